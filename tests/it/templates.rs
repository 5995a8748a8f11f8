//! Templates of prompts: what they say, what they refuse, what they reach, and what is kept of them.
use crate::{
    cli::{lines, svc},
    edits::patched,
    principals::{grant, someone},
    support::{TestApp, Wish, document, sample, until_a_statement_waits},
};
use serde_json::{Value, json};
use sqlx::PgExecutor;
use svc_client::{
    Client, Code, Failure, Json, Meta, OptionalJson,
    wire::{
        ChunkRequest, ContextConfig, CreatedDocument, DocumentChange, DocumentPath, EmbedQuery, GrantRight, GroupBy,
        HybridWeights, NewContext, PageQuery, PiecesQuery, RenderedTemplate, SearchMethod, SplitRequest,
        TemplateSearch, WaitQuery,
    },
};

async fn create<T>(client: &Client<T>, body: Value) -> Result<CreatedDocument, Failure>
where
    T: svc_client::Transport<svc_client::ops::create_template>,
{
    client.create_template(WaitQuery::default(), Json(serde_json::from_value(body).unwrap())).await
}

async fn render<T>(client: &Client<T>, id: i64, body: Value) -> Result<RenderedTemplate, Failure>
where
    T: svc_client::Transport<svc_client::ops::render_template>,
{
    client.render_template(DocumentPath { id }, OptionalJson(Some(serde_json::from_value(body).unwrap()))).await
}

fn field(failure: &Failure) -> (Code, &str) {
    (failure.code, failure.members.get("field").and_then(Value::as_str).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_says_what_its_values_documents_and_partials_say() {
    let app = TestApp::start().await;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let head = json!({"title": "Head", "content": "You answer {{ reader|upper }}.", "variables": {"reader": {"type": "string"}}});
    let head = create(&app.client, head).await.unwrap().id;
    let body = json!({
        "title": "Summary of a report",
        "content": "{% include 'head' %}\nSummarise {{ report.title }} in {{ count }} points{% if tone %}, {{ tone }}{% endif %}{{ note }}.\n{{ report.content }}\n{% for child in report.children %}[{{ child.title }}]{% endfor %}",
        "variables": {
            "report": {"type": "document", "description": "What to summarise"},
            "count": {"type": "number", "default": 3},
            "tone": {"type": "string", "required": false},
            "note": {"required": false},
        },
        "partials": [{"name": "head", "template_id": head}],
    });
    let made = create(&app.client, body).await.unwrap();
    assert_eq!(made.usetype, "template");
    assert_eq!(made.structured_content["variables"]["count"], json!({"type": "number", "default": 3}));
    let said = render(&app.client, made.id, json!({"variables": {"reader": "Ada"}, "documents": {"report": file}}))
        .await
        .unwrap();
    assert!(said.text.starts_with("You answer ADA.\nSummarise handbook.md in 3 points.\n"), "{}", said.text);
    assert!(said.text.contains("Never use a solvent") && said.text.contains("[Operations handbook"), "{}", said.text);
    assert_eq!(said.used_variables, ["count", "note", "reader", "report", "tone"]);
    assert_eq!(said.content_hash, made.content_hash);
    assert!(said.tokens.unwrap() > 100);
    let plain = json!({"variables": {"reader": "x", "count": 1.5, "tone": "kindly"}, "documents": {"report": head}});
    let said = render(&app.client, made.id, plain).await.unwrap();
    assert_eq!(said.text, "You answer X.\nSummarise Head in 1.5 points, kindly.\nYou answer {{ reader|upper }}.\n");

    let listed = app.client.list_templates(PageQuery { limit: Some(1), ..PageQuery::default() }).await.unwrap();
    assert_eq!(listed.documents.iter().map(|template| template.id).collect::<Vec<_>>(), [head]);
    let rest =
        app.client.list_templates(PageQuery { cursor: listed.next_cursor, ..PageQuery::default() }).await.unwrap();
    assert_eq!((rest.documents[0].id, rest.documents.len(), rest.next_cursor), (made.id, 1, None));
    let report = format!("report={file}");
    let said = svc(
        &app,
        &["template", "render", &made.id.to_string(), "--set", "reader=Ada", "--set", "count=2", "--document", &report],
    )
    .await;
    assert_eq!(lines(&said)[0]["used_variables"], json!(["count", "note", "reader", "report", "tone"]));
    let refused = svc(&app, &["template", "render", &made.id.to_string()]).await;
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("is required"),
        "{refused:?}"
    );
    for method in [
        None,
        Some(SearchMethod::Bm25),
        Some(SearchMethod::Fulltext),
        Some(SearchMethod::Vector),
        Some(SearchMethod::Hybrid),
    ] {
        let body = TemplateSearch { method, ..TemplateSearch::new("summarise report") };
        let found = crate::support::until("the template to be found", async || {
            let found = app.client.search_templates(Json(body.clone())).await.unwrap().results;
            (!found.is_empty()).then_some(found)
        })
        .await;
        assert!(found.iter().all(|result| result.document.usetype == "template"), "{method:?}");
        assert_eq!(found[0].document.id, made.id, "{method:?}");
    }
    let body = TemplateSearch { usetype: Some(vec!["file".to_owned()]), ..TemplateSearch::new("x") };
    assert_eq!(field(&app.client.search_templates(Json(body)).await.unwrap_err()), (Code::InvalidField, "usetype"));
    app.end().await;
}

#[tokio::test]
async fn a_search_that_names_hybrid_has_the_weights_of_one_that_names_no_method() {
    let app = TestApp::start().await;
    create(&app.client, json!({"title": "Report", "content": "Summarise the report."})).await.unwrap();
    let named = |name: &str, weights| NewContext {
        name: name.to_owned(),
        config: ContextConfig { weights, ..ContextConfig::default() },
    };
    let given = HybridWeights { vector: Some(0.75), bm25: Some(0.25) };
    app.client.create_context(Json(named("plain", None))).await.unwrap();
    app.client.create_context(Json(named("weighed", Some(given)))).await.unwrap();
    for (method, context, weights, expected) in [
        (None, None, None, [1.0, 1.0]),
        (Some(SearchMethod::Hybrid), None, None, [1.0, 1.0]),
        (Some(SearchMethod::Hybrid), Some("plain"), None, [1.0, 1.0]),
        (Some(SearchMethod::Hybrid), Some("weighed"), None, [0.75, 0.25]),
        (Some(SearchMethod::Hybrid), None, Some(given), [0.75, 0.25]),
    ] {
        let context = context.map(str::to_owned);
        let body =
            TemplateSearch { method, context, weights, explain: true, ..TemplateSearch::new("summarise report") };
        let legs = app.client.search_templates(Json(body)).await.unwrap().explanation.unwrap().legs;
        let weighed: Vec<_> = legs.iter().map(|leg| leg.weight).collect();
        assert_eq!(weighed, expected.map(Some), "{method:?} {legs:?}");
    }
    // What groups the results is said by the context too.
    let config = ContextConfig { group_by: Some(GroupBy::File), ..ContextConfig::default() };
    app.client.create_context(Json(NewContext { name: "files".to_owned(), config })).await.unwrap();
    for (context, expected) in [(None, None), (Some("files"), Some(GroupBy::File))] {
        for method in [None, Some(SearchMethod::Hybrid)] {
            let context = context.map(str::to_owned);
            let body = TemplateSearch { method, context, ..TemplateSearch::new("summarise report") };
            let found = app.client.search_templates(Json(body)).await.unwrap();
            assert_eq!(found.group_by, expected, "{method:?}");
        }
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_table_is_said_once_with_what_was_written_at_it() {
    let app = TestApp::start().await;
    let row = |n: usize| format!("| Gauge {n} | It reads the level of tank {n} at noon, and once more at night |\n");
    let rows: String = (0..60).map(row).collect();
    let text = format!("# Gauges\n\n| Name | Task |\n|---|---|\n{rows}");
    let file = app.upload_bytes("gauges.md", text).await.unwrap().document_id;
    app.settled(file).await;
    let tree = app.subtree(file).await;
    let table = tree.iter().find(|node| node.usetype == "table").unwrap().id;
    let chunks: Vec<i64> = tree.iter().filter(|node| node.parent_id == Some(table)).map(|node| node.id).collect();
    assert!(chunks.len() > 1, "{tree:?}");
    app.create("Note", "The heron is no gauge.", Some(chunks[0])).await;
    patched(&app, chunks[1], json!({"content": "A kingfisher came by."})).await;
    // Its rows are those of the table as before.
    patched(&app, chunks[0], json!({"title": "The first gauges"})).await;
    app.settled(file).await;
    let body = json!({"title": "t", "content": "{{ report.content }}", "variables": {"report": {"type": "document"}}});
    let id = create(&app.client, body).await.unwrap().id;
    let said = render(&app.client, id, json!({"documents": {"report": file}})).await.unwrap().text;
    for words in ["tank 1 at noon", "tank 59 at noon", "heron is no gauge", "kingfisher"] {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
    // These letters stand in the table, but that is not what was written.
    patched(&app, chunks[1], json!({"content": "no"})).await;
    app.settled(file).await;
    let said = render(&app.client, id, json!({"documents": {"report": file}})).await.unwrap().text;
    assert!(said.lines().any(|line| line == "no"), "{said}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_said_once_although_its_pieces_were_cut_again() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    let sentence = |bird: &str, n: usize| format!("The {bird} number {n} stands in the reeds and waits for fish. ");
    let part = |bird: &str| (0..8).map(|n| sentence(bird, n)).collect::<String>();
    let text = format!("# Herons\n\n{}\n\n# Coots\n\n{}", part("heron"), part("coot"));
    let birds = app.create("Birds", &text, Some(folder)).await.id;
    let request = SplitRequest { by_headings: true, ..SplitRequest::default() };
    let wait = PiecesQuery { wait: true };
    let pieces = app.client.split_document(DocumentPath { id: birds }, wait, Json(request)).await.unwrap().created;
    let request = OptionalJson(Some(ChunkRequest { max_tokens: Some(40), ..ChunkRequest::default() }));
    let chunks = app.client.chunk_document(DocumentPath { id: pieces[0] }, wait, request).await.unwrap().created;
    assert!(chunks.len() > 1, "{chunks:?}");
    let body = json!({"title": "t", "content": "{{ report.content }}", "variables": {"report": {"type": "document"}}});
    let id = create(&app.client, body).await.unwrap().id;
    let said = render(&app.client, id, json!({"documents": {"report": folder}})).await.unwrap().text;
    for words in ["heron number 1 ", "heron number 7 ", "coot number 0 "] {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_cannot_work_is_refused_with_the_place_and_the_name() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let refused = create(&app.client, json!({"title": "t", "content": "a\nb {{ x"})).await.unwrap_err();
    assert_eq!(
        (field(&refused), &refused.members["line"]),
        ((Code::InvalidField, "content"), &json!(2)),
        "{refused:?}"
    );
    assert!(refused.members["column"].as_u64().unwrap() >= 3, "{refused:?}");
    let refused = create(&app.client, json!({"title": "t", "content": "{{ who }}"})).await.unwrap_err();
    assert_eq!(field(&refused), (Code::InvalidField, "variables"));
    assert!(refused.detail.contains("`who`"), "{refused}");
    for (variables, partials) in [
        (json!({"a b": {}}), json!([])),
        (json!({"x": {"type": "number", "default": "three"}}), json!([])),
        (
            serde_json::from_str(&format!("{{\"x\": {{\"default\": {}{}}}}}", "[".repeat(100), "]".repeat(100)))
                .unwrap(),
            json!([]),
        ),
        (json!({"x": {"default": {"$serde_json::private::RawValue": "5"}}}), json!([])),
        (json!({"x": {"description": "x".repeat(300_000)}}), json!([])),
        (json!({}), json!([{"name": "p", "template_id": 999_999}])),
        (json!({}), json!([{"name": "p", "template_id": 1}, {"name": "p", "template_id": 1}])),
    ] {
        let body = json!({"title": "t", "content": "x", "variables": variables, "partials": partials});
        let refused = app.raw("POST", "/templates").json(&body).send().await.unwrap();
        assert_eq!(refused.status(), 422, "{body:.300}");
    }
    let text = "{{ n }}{% if deep %}{{ deep.er }}{% endif %}";
    let body = json!({"title": "t", "content": text, "variables": {"n": {"type": "number"}, "deep": {"type": "object", "required": false}}});
    let id = create(&app.client, body).await.unwrap().id;
    for (values, name) in [
        (json!({}), "n"),
        (json!({"variables": {"n": 1, "m": 2}}), "m"),
        (json!({"variables": {"n": "1"}}), "n"),
        (json!({"variables": {"n": 1}, "documents": {"deep": 1}}), "deep"),
        (json!({"variables": {"n": 1}, "documents": {"other": 1}}), "other"),
        (json!({"variables": {"n": 1, "deep": {"x": 1}}}), "template"),
    ] {
        assert_eq!(
            field(&render(&app.client, id, values.clone()).await.unwrap_err()),
            (Code::InvalidField, name),
            "{values}"
        );
    }
    let note = app.client.create_document(WaitQuery::default(), Json(document("Note", "x"))).await.unwrap().id;
    assert_eq!(render(&app.client, note, json!({})).await.unwrap_err().code, Code::NotFound);
    assert_eq!(app.client.delete_template(DocumentPath { id: note }).await.unwrap_err().code, Code::NotFound);
    assert!(app.client.read_document(DocumentPath { id: note }, EmbedQuery::default()).await.is_ok());

    // A circle, once the second half of it is drawn, and a chain that is too long.
    let one = create(&app.client, json!({"title": "1", "content": "x"})).await.unwrap().id;
    let mut last = one;
    for depth in 2..=9 {
        let partial = json!([{"name": "p", "template_id": last}]);
        last = create(
            &app.client,
            json!({"title": depth.to_string(), "content": "{% include 'p' %}", "partials": partial}),
        )
        .await
        .unwrap()
        .id;
    }
    assert_eq!(render(&app.client, last, json!({})).await.unwrap().text, "x");
    let partial = json!([{"name": "p", "template_id": last}]);
    let deep = json!({"title": "10", "content": "{% include 'p' %}", "partials": partial});
    assert_eq!(field(&create(&app.client, deep).await.unwrap_err()), (Code::InvalidField, "partials"));
    let circle = Json(serde_json::from_value(json!({"partials": partial})).unwrap());
    let refused = app.client.update_template(DocumentPath { id: one }, WaitQuery::default(), circle).await.unwrap_err();
    assert_eq!(field(&refused), (Code::InvalidField, "partials"));
    // What was written as a plain document is refused when it is rendered, and can be mended.
    let bad = json!({"content": "{% if %}", "structured_content": {"variables": 7}});
    let change: DocumentChange = serde_json::from_value(bad).unwrap();
    app.client.update_document(DocumentPath { id }, WaitQuery::default(), Json(change)).await.unwrap();
    assert_eq!(
        field(&render(&app.client, id, json!({})).await.unwrap_err()),
        (Code::InvalidField, "structured_content")
    );
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_nobody_trusts_reaches_nothing_and_ends() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for text in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{{ 'x' * 2000000 }}",
        "{{ ('x' * 100000000) ~ ('y' * 100000000) ~ ('z' * 100000000) }}",
    ] {
        let id = create(&app.client, json!({"title": "t", "content": text})).await.unwrap().id;
        let refused = render(&app.client, id, json!({})).await.unwrap_err();
        assert_eq!(refused.code, Code::TooLarge, "{text}: {refused}");
    }
    for text in [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include '/etc/passwd' %}",
        "{% include '1' %}",
        "{{ debug() }}",
        "{{ ''.__class__ }}",
    ] {
        let variables = json!({"debug": {"required": false}});
        let id = create(&app.client, json!({"title": "t", "content": text, "variables": variables})).await.unwrap().id;
        let refused = render(&app.client, id, json!({})).await.unwrap_err();
        assert!([Code::InvalidField, Code::TooLarge].contains(&refused.code), "{text}: {refused}");
    }
    // What is nested without end ends the process that reads it, and nothing else.
    for text in [
        format!("{{{{ {}1 }}}}", "-".repeat(190_000)),
        "{{ (".repeat(40_000),
        "{% if x %}".repeat(19_000),
        "[".repeat(1000),
    ] {
        let body = json!({"title": "t", "content": text, "variables": {"x": {"required": false}}});
        match create(&app.client, body).await {
            Ok(made) => drop(render(&app.client, made.id, json!({})).await),
            Err(refused) => {
                assert!([Code::InvalidField, Code::TooLarge].contains(&refused.code), "{}: {refused}", &text[..10]);
            }
        }
    }
    // A document is read once, however many variables name it, and one with too much under it is refused.
    let many = app.client.create_document(WaitQuery::default(), Json(document("Many", ""))).await.unwrap().id;
    sqlx::query(
        "INSERT INTO documents (parent_id, path, title, content, usetype, position, content_hash, guard)
         SELECT $1, ARRAY[$1], 'n', '', 'markdown', n, 'sha256:' || md5(n::text), 0 FROM generate_series(1, 6000) n",
    )
    .bind(many)
    .execute(&app.pool)
    .await
    .unwrap();
    let body = json!({"title": "t", "content": "{{ d.title }}", "variables": {"d": {"type": "document"}}});
    let id = create(&app.client, body).await.unwrap().id;
    let refused = render(&app.client, id, json!({"documents": {"d": many}})).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["document_id"]), (Code::TooLarge, &json!(many)));
    // A template is refused at the first one that is too much, and a document's text counts for each variable that names it.
    let partials: Vec<i64> = sqlx::query_scalar(
        "INSERT INTO documents (title, content, usetype, content_hash, guard)
         SELECT 'p', repeat('x', 1048576), 'template', 'sha256:' || md5('p' || n), 0 FROM generate_series(1, 20) n RETURNING id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let named: Vec<Value> = partials.iter().map(|id| json!({"name": format!("p{id}"), "template_id": id})).collect();
    let large = |count: usize| json!({"title": "t", "content": "x", "partials": named[..count]});
    let refused = create(&app.client, large(20)).await.unwrap_err();
    assert_eq!(
        (refused.code, &refused.members["document_id"]),
        (Code::TooLarge, &json!(partials[15])),
        "sixteen of a MiB and the rest are more than 16 MiB"
    );
    create(&app.client, large(2)).await.unwrap();
    let long: i64 = sqlx::query_scalar(
        "INSERT INTO documents (title, content, usetype, content_hash, guard)
         VALUES ('Long', repeat('x', 5000000), 'markdown', 'sha256:long', 0) RETURNING id",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    let variables = json!({"a": {"type": "document"}, "b": {"type": "document", "required": false}});
    let body =
        json!({"title": "t", "content": "{{ a.title }}{% if b %}, {{ b.title }}{% endif %}", "variables": variables});
    let id = create(&app.client, body).await.unwrap().id;
    assert_eq!(render(&app.client, id, json!({"documents": {"a": long}})).await.unwrap().text, "Long");
    let refused = render(&app.client, id, json!({"documents": {"a": long, "b": long}})).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["document_id"]), (Code::TooLarge, &json!(long)));
    // What values say is a text, never a template.
    let id = create(&app.client, json!({"title": "t", "content": "{{ x }}", "variables": {"x": {}}})).await.unwrap().id;
    let said = render(&app.client, id, json!({"variables": {"x": "{{ 7 * 7 }}<b>&"}})).await.unwrap();
    assert_eq!(said.text, "{{ 7 * 7 }}<b>&");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_reaches_only_what_its_caller_may_read() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let (who, other) = (someone(&app, "one").await, someone(&app, "two").await);
    let secret = create(&app.client, json!({"title": "Secret", "content": "kingfisher"})).await.unwrap().id;
    let note = app.client.create_document(WaitQuery::default(), Json(document("Note", "kingfisher"))).await.unwrap().id;
    let partials = json!([{"name": "p", "template_id": secret}]);
    let open = create(&app.client, json!({"title": "Open", "content": "{% include 'p' %}", "partials": partials}))
        .await
        .unwrap()
        .id;
    let takes = json!({"title": "Takes", "content": "{{ d.content }}", "variables": {"d": {"type": "document"}}});
    let takes = create(&app.client, takes).await.unwrap().id;
    grant(&app, &other, secret, GrantRight::Read).await;
    grant(&app, &other, note, GrantRight::Read).await;
    assert_eq!(render(&other.client, open, json!({})).await.unwrap().text, "kingfisher");
    assert_eq!(render(&other.client, takes, json!({"documents": {"d": note}})).await.unwrap().text, "kingfisher");
    let hidden = render(&who.client, open, json!({})).await.unwrap_err();
    let missing = {
        app.client.delete_template(DocumentPath { id: secret }).await.unwrap();
        render(&who.client, open, json!({})).await.unwrap_err()
    };
    assert_eq!((hidden.code, &hidden.detail), (Code::InvalidField, &missing.detail));
    for id in [note, 999_999] {
        let refused = render(&who.client, takes, json!({"documents": {"d": id}})).await.unwrap_err();
        assert_eq!((refused.code, refused.detail), (Code::NotFound, format!("there is no document {id}")));
    }
    let listed = who.client.list_templates(PageQuery::default()).await.unwrap().documents;
    assert_eq!(listed.iter().map(|template| template.id).collect::<Vec<_>>(), [open, takes]);
    assert_eq!(render(&who.client, note, json!({})).await.unwrap_err().detail, format!("there is no document {note}"));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_that_renders_all_the_time_leaves_slots_to_others() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let who = someone(&app, "one").await;
    let id = create(&app.client, json!({"title": "t", "content": "x"})).await.unwrap().id;
    let service = app.service.clone();
    let greedy = svc_ids::PrincipalId(who.id);
    // More than any machine has slots; what it gets, it keeps.
    let asked = (0..256).map(|_| service.admission.rendering(Some(greedy)));
    let kept: Vec<_> = futures_util::future::join_all(asked).await.into_iter().filter_map(Result::ok).collect();
    assert!(!kept.is_empty());
    assert_eq!(render(&app.client, id, json!({})).await.unwrap().text, "x");
    let refused = render(&who.client, id, json!({})).await.unwrap_err();
    assert_eq!(refused.code, Code::TooManyRequests);
    drop(kept);
    assert_eq!(render(&who.client, id, json!({})).await.unwrap().text, "x");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_template_was_is_kept_with_who_changed_it() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let who = someone(&app, "editor").await;
    let made = create(&app.client, json!({"title": "First", "content": "one"})).await.unwrap();
    let path = DocumentPath { id: made.id };
    grant(&app, &who, made.id, GrantRight::Write).await;
    let change = |body: Value| Json(serde_json::from_value(body).unwrap());
    let body = json!({"content": "two {{ x }}", "variables": {"x": {}}});
    let changed = who.client.update_template(path, WaitQuery::default(), change(body)).await.unwrap().value;
    assert_eq!((changed.title.as_str(), changed.content.as_str()), ("First", "two {{ x }}"));
    // The same again, and a place among siblings, change no text.
    app.client.update_template(path, WaitQuery::default(), change(json!({"content": "two {{ x }}"}))).await.unwrap();
    let by_hand: DocumentChange = serde_json::from_value(json!({"position": 3})).unwrap();
    app.client.update_document(path, WaitQuery::default(), Json(by_hand)).await.unwrap();
    let by_hand: DocumentChange = serde_json::from_value(json!({"title": "Second"})).unwrap();
    app.client.update_document(path, WaitQuery::default(), Json(by_hand)).await.unwrap();
    let refused = app.client.update_template(path, WaitQuery::default(), change(json!({"content": "{% for %}"}))).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidField);
    let evidence = app.client.read_evidence(path).await.unwrap().evidence;
    let versions = evidence["versions"].as_array().unwrap();
    let told: Vec<_> =
        versions.iter().map(|version| (&version["title"], &version["content"], &version["changed_by"])).collect();
    assert_eq!(
        told,
        [(&json!("First"), &json!("one"), &json!("editor")), (&json!("First"), &json!("two {{ x }}"), &json!("owner"))]
    );
    assert_eq!(versions[0]["structured_content"], json!({"variables": {}, "partials": []}));
    // Of two who change it at once, neither stores what the other made wrong.
    for round in 0..5 {
        let both = json!({"content": format!("{{{{ a }}}} {round}"), "variables": {"a": {}, "b": {}}});
        app.client.update_template(path, WaitQuery::default(), change(both)).await.unwrap();
        let (text, variables) = (json!({"content": "{{ b }}"}), json!({"variables": {"a": {}}}));
        let (one, other) = tokio::join!(
            app.client.update_template(path, WaitQuery::default(), change(text)),
            app.client.update_template(path, WaitQuery::default(), change(variables)),
        );
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    }
    let plain = json!({"content": "plain", "variables": {}});
    app.client.update_template(path, WaitQuery::default(), change(plain)).await.unwrap();
    // Of very long histories the latest is kept.
    for round in 0..30 {
        let body = json!({"content": format!("{}{round}", "x".repeat(190_000)), "variables": {}});
        app.client.update_template(path, WaitQuery::default(), change(body)).await.unwrap();
    }
    let evidence = app.client.read_evidence(path).await.unwrap().evidence;
    let versions = evidence["versions"].as_array().unwrap();
    assert!((15..25).contains(&versions.len()), "{}", versions.len());
    assert!(versions.last().unwrap()["content"].as_str().unwrap().ends_with("x28"));
    let read = app.client.read_template(path, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert!(read.content.ends_with("x29"));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_whatever_version_takes_nothing_back_that_another_one_made_meanwhile() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let body = json!({"title": "t", "content": "{{ a }}", "variables": {"a": {}}});
    let path = DocumentPath { id: create(&app.client, body).await.unwrap().id };
    let mut other = app.pool.begin().await.unwrap();
    let lock = sqlx::query("SELECT 1 FROM documents WHERE id = $1 FOR UPDATE").bind(path.id);
    lock.execute(&mut *other).await.unwrap();
    let any = app.client.given(Meta { if_match: Some("*".to_owned()), ..Meta::default() });
    let change = Json(serde_json::from_value(json!({"content": "{{ a }}!"})).unwrap());
    let (changed, ()) = tokio::join!(any.update_template(path, WaitQuery::default(), change), async {
        // By then the template was read and checked.
        until_a_statement_waits(&app.pool).await;
        let declare = "UPDATE documents SET structured_content = '{\"variables\": {\"a\": {}, \"b\": {}}, \"partials\": []}' WHERE id = $1";
        sqlx::query(declare).bind(path.id).execute(&mut *other).await.unwrap();
        other.commit().await.unwrap();
    });
    changed.unwrap();
    let now = app.client.read_template(path, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert_eq!(now.content, "{{ a }}!");
    let variables = &now.structured_content["variables"];
    assert!(variables["a"].is_object() && variables["b"].is_object(), "{variables}");
    app.end().await;
}

/// Has a template declare these variables, as if somebody else had changed it.
async fn declare(executor: impl PgExecutor<'_>, id: i64, variables: &Value) {
    let declared = json!({"variables": variables, "partials": []}).to_string();
    let declare = sqlx::query("UPDATE documents SET structured_content = $2::jsonb WHERE id = $1");
    declare.bind(id).bind(declared).execute(executor).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_one_of_several_versions_takes_nothing_back_that_another_one_made_meanwhile() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let body = json!({"title": "t", "content": "{{ a }}", "variables": {"a": {}}});
    let path = DocumentPath { id: create(&app.client, body).await.unwrap().id };
    let (a, both) = (json!({"a": {}}), json!({"a": {}, "b": {}}));
    declare(&app.pool, path.id, &a).await;
    let tag = async || {
        let read = app.client.read_template(path, EmbedQuery::default()).await.unwrap();
        read.etag().to_owned()
    };
    // The tag of a version does not depend on when it came about.
    let one = tag().await;
    declare(&app.pool, path.id, &both).await;
    let two = tag().await;
    declare(&app.pool, path.id, &a).await;
    assert_eq!(tag().await, one);

    let mut other = app.pool.begin().await.unwrap();
    let lock = sqlx::query("SELECT 1 FROM documents WHERE id = $1 FOR UPDATE").bind(path.id);
    lock.execute(&mut *other).await.unwrap();
    let either = app.client.given(Meta { if_match: Some(format!("{one}, {two}")), ..Meta::default() });
    let change = Json(serde_json::from_value(json!({"content": "{{ a }}!"})).unwrap());
    let (changed, ()) = tokio::join!(either.update_template(path, WaitQuery::default(), change), async {
        // By then the first version was read and checked.
        until_a_statement_waits(&app.pool).await;
        declare(&mut *other, path.id, &both).await;
        other.commit().await.unwrap();
    });
    assert_eq!(changed.unwrap_err().code, Code::PreconditionFailed);
    let now = app.client.read_template(path, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert!(now.content == "{{ a }}" && now.structured_content["variables"]["b"].is_object(), "{now:?}");
    let change = Json(serde_json::from_value(json!({"content": "{{ b }}"})).unwrap());
    either.update_template(path, WaitQuery::default(), change).await.unwrap();
    app.end().await;
}
