//! Summaries over a part of the tree, and the part of it that is worth reading within a budget of tokens.
mod written;

use crate::{
    edits::patched,
    principals::someone,
    support::{TestApp, Wish, document, invariants, until, until_a_statement_waits},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use svc_client::{
    Client, Code, Failure, FileUpload, Json, OptionalJson, Remote,
    wire::{
        Bm25Search, DocumentPath, DocumentResponse, EmbedQuery, FulltextSearch, LinkPath, LinkResponse, NewDocument,
        PageQuery, PortfolioRequest, PortfolioResponse, RaptorRequest, RaptorTree, Settled, TaskPath, TaskTypePath,
        UploadQuery, VectorSearch, WaitQuery,
    },
};

/// A file about three things in turn, in 36 sections.
fn three_topics() -> String {
    let about = [
        [
            "heron",
            "The heron waits in the reeds and spears the fish that swims too near.",
            "Its nest of sticks is high in the tree.",
        ],
        [
            "gauge",
            "The radar gauge measures the level of the tank by the time of its echo.",
            "A technician calibrates the sensor and reads the display.",
        ],
        [
            "vote",
            "The assembly elects its chair by a vote, for which it needs two thirds of the members.",
            "A tie is broken by lot.",
        ],
    ];
    let section = |n: usize| {
        let [word, first, second] = about[n % 3];
        format!(
            "# The {word}, part {n}\n\n{first} Observation {n} was made in week {}. {second} Number {n} confirms it.\n\n",
            n % 52
        )
    };
    (0..36).map(section).collect()
}

async fn file(app: &TestApp) -> i64 {
    let id = app.upload_bytes("topics.md", three_topics()).await.unwrap().document_id;
    app.settled(id).await;
    id
}

async fn summarise(app: &TestApp, id: i64, request: RaptorRequest) -> RaptorTree {
    let made = app
        .client
        .make_raptor(DocumentPath { id }, WaitQuery { wait: true, ..WaitQuery::default() }, OptionalJson(Some(request)))
        .await;
    let made = match made {
        Ok(made) => made,
        Err(failure) => panic!("{failure:?}: {}", evidence(app, id).await["attempts"]),
    };
    assert_eq!(made.document_id, id);
    made.tree.expect("a small tree is made within a minute")
}

async fn refused(app: &TestApp, id: i64, request: RaptorRequest) -> Failure {
    app.client.make_raptor(DocumentPath { id }, WaitQuery::default(), OptionalJson(Some(request))).await.unwrap_err()
}

fn member(failure: &Failure, name: &str) -> Option<Value> {
    failure.members.get(name).cloned()
}

async fn links(app: &TestApp, id: i64) -> Vec<LinkResponse> {
    let query = PageQuery { limit: Some(1000), ..PageQuery::default() };
    app.client.list_links(DocumentPath { id }, query).await.unwrap().links
}

async fn evidence(app: &TestApp, id: i64) -> serde_json::Map<String, Value> {
    app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence
}

fn exists(documents: &[DocumentResponse], id: i64) -> bool {
    documents.iter().any(|document| document.id == id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summaries_are_made_linked_and_found_and_the_tree_below_stays_as_it_is() {
    let app = TestApp::start().await;
    let id = file(&app).await;
    let before = app.subtree(id).await;
    let request = RaptorRequest { summary_tokens: 60, cluster_tokens: 400, ..RaptorRequest::default() };
    let tree = summarise(&app, id, request).await;
    let after = app.subtree(id).await;
    let (made, kept): (Vec<DocumentResponse>, Vec<DocumentResponse>) = after
        .into_iter()
        .partition(|document| document.id == tree.raptor_id || document.path.contains(&tree.raptor_id));
    assert_eq!(json!(kept), json!(before));
    let holder = made.iter().find(|document| document.id == tree.raptor_id).unwrap();
    assert_eq!((holder.usetype.as_str(), holder.parent_id, holder.settled), ("raptor", Some(id), Settled::Settled));
    let summaries: Vec<&DocumentResponse> = made.iter().filter(|document| document.id != tree.raptor_id).collect();
    let leaves = before.iter().filter(|document| document.usetype == "chunk").count();
    assert_eq!((tree.leaves, tree.summaries), (leaves, summaries.len()));
    assert!(tree.levels.len() >= 2 && tree.without_vector == 0, "{tree:?}");
    assert!(tree.levels.windows(2).all(|pair| pair[1].nodes < pair[0].nodes), "{tree:?}");
    let recorded = evidence(&app, tree.raptor_id).await;
    assert_eq!(recorded["raptor"], json!(tree));
    assert!(!recorded.contains_key("anchor"), "a tree of summaries is no part of a file: {recorded:?}");

    // Every leaf is summarised, each summary quotes what it is linked to, and on the first level that is about one thing.
    let texts: BTreeMap<i64, &str> = before
        .iter()
        .chain(summaries.iter().copied())
        .map(|document| (document.id, document.content.as_str()))
        .collect();
    let mut summarised = BTreeSet::new();
    for summary in &summaries {
        let links = links(&app, summary.id).await;
        let of: Vec<&LinkResponse> = links.iter().filter(|link| link.source_id == summary.id).collect();
        assert!(of.len() > 1, "{links:?}");
        assert!(
            of.iter().all(|link| link.link_type == "derived_from" && link.score.is_some_and(|s| s > 0.0 && s <= 1.0))
        );
        let members: String = of.iter().map(|link| texts[&link.target_id]).collect::<Vec<_>>().join("\n");
        for sentence in summary.content.split("\n\n") {
            let words: Vec<&str> = sentence.split_whitespace().take(4).collect();
            assert!(members.contains(&words.join(" ")), "{sentence:?} is not in {members}");
        }
        let how = &evidence(&app, summary.id).await["summary"];
        assert_eq!(how["members"], of.len());
        assert!(how["tokens"].as_u64().unwrap() <= 60, "{how}");
        if how["level"] == 1 {
            let topics = ["heron", "gauge", "assembly"].iter().filter(|word| members.contains(**word)).count();
            assert_eq!(topics, 1, "{members}");
        }
        summarised.extend(of.iter().map(|link| link.target_id));
    }
    assert!(before.iter().all(|document| document.usetype != "chunk" || summarised.contains(&document.id)));

    // A search finds summaries by their usetype, and otherwise not.
    let vector = VectorSearch::new("How does a heron catch its prey?");
    let found = app.client.search_vector(Json(vector.clone())).await.unwrap();
    assert!(found.results.iter().all(|result| !exists(&made, result.document.id)));
    let named = VectorSearch { usetype: Some(vec!["summary".into()]), ..vector };
    let found = app.client.search_vector(Json(named)).await.unwrap();
    assert_eq!(found.total, summaries.len() as u64);
    assert!(found.results[0].document.content.contains("heron"), "{:?}", found.results[0]);
    let words = FulltextSearch::new("Summaries");
    for usetype in [None, Some(vec!["raptor".to_owned()])] {
        let found = app.client.search_fulltext(Json(FulltextSearch { usetype, ..words.clone() })).await.unwrap();
        assert_eq!(found.total, 0, "what holds summaries is no result");
    }
    let words = Bm25Search { usetype: Some(vec!["summary".into()]), ..Bm25Search::new("heron") };
    assert_eq!(app.client.search_bm25(Json(words)).await.unwrap().total, 0, "the index has no summaries by default");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_makes_the_same_summaries_again_in_place_of_the_old_ones() {
    let app = TestApp::with(Wish { settings: &[("SVC_BM25_EXCLUDE_USETYPES", "entity")], ..Wish::default() }).await;
    svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
    let id = file(&app).await;
    let request = RaptorRequest { seed: 7, summary_tokens: 60, cluster_tokens: 400, ..RaptorRequest::default() };
    let texts = async |tree: &RaptorTree| -> Vec<(String, String)> {
        let summaries = app.subtree(tree.raptor_id).await;
        summaries.into_iter().map(|summary| (summary.title, summary.content)).collect()
    };
    let first = summarise(&app, id, request).await;
    let (made, count) = (texts(&first).await, app.subtree(id).await.len());
    let words = Bm25Search { usetype: Some(vec!["summary".into()]), ..Bm25Search::new("heron") };
    let indexed = app.client.search_bm25(Json(words.clone())).await.unwrap().total;
    assert!(indexed > 0, "the settings let summaries into the index");
    let second = summarise(&app, id, request).await;
    assert_ne!(first.raptor_id, second.raptor_id);
    assert_eq!(RaptorTree { raptor_id: first.raptor_id, ..second.clone() }, first);
    assert_eq!(texts(&second).await, made);
    assert_eq!(app.subtree(id).await.len(), count, "the old tree is gone");
    assert_eq!(app.client.search_bm25(Json(words)).await.unwrap().total, indexed);
    let other = summarise(&app, id, RaptorRequest { summary_tokens: 40, ..request }).await;
    assert_ne!(texts(&other).await, made);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_summary_tells_of_what_its_readers_may_not_read() {
    let app = TestApp::start().await;
    let id = file(&app).await;
    let sections: Vec<DocumentResponse> =
        app.subtree(id).await.into_iter().filter(|document| document.usetype == "section").collect();
    let (closed, later, deleted) = (sections[3].id, sections[4].id, sections[5].id);
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let under = |document: &DocumentResponse, node: i64| document.path.contains(&node);
    let tells_of = async |tree: i64, node: i64| {
        let inside = app.subtree(id).await;
        let inside: BTreeSet<i64> = inside.iter().filter(|document| under(document, node)).map(|d| d.id).collect();
        let mut told = false;
        for summary in app.subtree(tree).await {
            told |= links(&app, summary.id).await.iter().any(|link| inside.contains(&link.target_id));
            told |= node == closed && summary.content.contains("Observation 3 was");
        }
        told
    };
    let request = RaptorRequest { summary_tokens: 400, cluster_tokens: 4_000, ..RaptorRequest::default() };
    let tree = summarise(&app, id, request).await;
    assert_eq!(tree.leaves, 35, "the closed section is left out, also for the owner");
    assert!(!tells_of(tree.raptor_id, closed).await && tells_of(tree.raptor_id, later).await);

    // What was closed or deleted since takes along the summaries that tell of it, and no others.
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    app.client.delete_document(DocumentPath { id: closed }).await.unwrap();
    assert!(exists(&app.subtree(id).await, tree.raptor_id), "it tells of nothing there");
    app.client.protect_document(DocumentPath { id: later }).await.unwrap();
    assert!(!exists(&app.subtree(id).await, tree.raptor_id), "summaries stay that quote what was closed");
    // What was deleted left the containers above to be rolled up anew.
    app.settled(id).await;
    let tree = summarise(&app, id, request).await;
    assert_eq!(tree.leaves, 34);
    app.client.delete_document(DocumentPath { id: deleted }).await.unwrap();
    assert!(!exists(&app.subtree(id).await, tree.raptor_id), "summaries stay that quote what was deleted");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_write_can_neither_keep_summaries_from_going_nor_put_anything_under_them() {
    let app = TestApp::start().await;
    let id = file(&app).await;
    let tree = summarise(&app, id, RaptorRequest::default()).await.raptor_id;
    let summary = app.subtree(tree).await.into_iter().find(|document| document.usetype == "summary").unwrap().id;
    let leaf = app.subtree(id).await.into_iter().find(|document| document.usetype == "section").unwrap().id;
    let change = async |id: i64, change: Value| {
        let change = serde_json::from_value(change).unwrap();
        app.client.update_document(DocumentPath { id }, WaitQuery::default(), Json(change)).await
    };
    for node in [tree, summary] {
        for edit in [
            json!({"position": 5}),
            json!({"usetype": "markdown"}),
            json!({"content": "x"}),
            json!({"parent_id": null}),
        ] {
            let refused = change(node, edit.clone()).await.unwrap_err();
            let field = edit.as_object().unwrap().keys().next().unwrap().clone();
            assert_eq!((refused.code, member(&refused, "field")), (Code::InvalidField, Some(field.into())), "{edit}");
        }
        let refused = app.client.protect_document(DocumentPath { id: node }).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidField, "rights of its own would open what it quotes");
        let under = NewDocument { parent_id: Some(node), ..document("mine", "precious") };
        let refused = app.client.create_document(WaitQuery::default(), Json(under)).await.unwrap_err();
        assert_eq!((refused.code, member(&refused, "field")), (Code::InvalidField, Some("parent_id".into())));
        let query = UploadQuery { parent_id: Some(node), ..UploadQuery::default() };
        let upload = FileUpload::from_bytes("mine.txt", "precious", None);
        assert_eq!(app.client.upload_file(query, upload).await.unwrap_err().code, Code::InvalidField);
        let batch = serde_json::from_value(json!({"documents": [{"title": "mine", "content": "", "parent_id": node}]}));
        assert_eq!(app.client.create_documents(Json(batch.unwrap())).await.unwrap_err().code, Code::InvalidField);
        let other = app.create("other", "", None).await.id;
        assert_eq!(change(other, json!({"parent_id": node})).await.unwrap_err().code, Code::InvalidField);
    }
    for link in links(&app, summary).await.iter().filter(|link| link.source_id == summary) {
        let refused = app.client.delete_link(LinkPath { id: summary, link_id: link.id }).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidField);
    }
    app.client.protect_document(DocumentPath { id: leaf }).await.unwrap();
    assert!(!exists(&app.subtree(id).await, tree), "summaries stay that quote what was closed");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_makes_summaries_is_queued_once_and_its_end_leaves_the_document_as_it_was() {
    let app = TestApp::start().await;
    let id = file(&app).await;
    let (path, wait) = (DocumentPath { id }, WaitQuery::default());
    app.client.pause_task_type(TaskTypePath { task_type: "raptor".into() }).await.unwrap();
    let queued = app.client.make_raptor(path, wait, OptionalJson(None)).await.unwrap();
    assert_eq!((queued.leaves, queued.tree), (36, None));
    let same = app.client.make_raptor(path, wait, OptionalJson(Some(RaptorRequest::default()))).await.unwrap();
    assert_eq!(same.task_id, queued.task_id);
    let other = refused(&app, id, RaptorRequest { seed: 1, ..RaptorRequest::default() }).await;
    assert_eq!((other.code, other.members["task_id"].as_i64()), (Code::Conflict, Some(queued.task_id)));

    app.client.cancel_task(TaskPath { id: queued.task_id }).await.unwrap();
    let settled =
        async || app.client.read_document(path, EmbedQuery::default()).await.unwrap().value().unwrap().settled;
    assert_eq!(settled().await, Settled::Settled, "a cancelled summary fails no document");
    app.client.resume_task_type(TaskTypePath { task_type: "raptor".into() }).await.unwrap();
    app.client.retry_task(TaskPath { id: queued.task_id }).await.unwrap();
    assert_eq!(settled().await, Settled::Settled, "nor does its retry take the document out of searches");
    app.settled(id).await;
    assert!(app.subtree(id).await.iter().any(|document| document.usetype == "raptor"));

    // Whoever waits for a task is told that it was cancelled, which is no fault of the service.
    app.client.pause_task_type(TaskTypePath { task_type: "raptor".into() }).await.unwrap();
    let waiting = WaitQuery { wait: true, ..WaitQuery::default() };
    let (ended, task_id) = tokio::join!(app.client.make_raptor(path, waiting, OptionalJson(None)), async {
        let task_id: i64 = until("the task to be queued", async || {
            sqlx::query_scalar("SELECT id FROM task_queue WHERE task_type = 'raptor' AND NOT final")
                .fetch_optional(&app.pool)
                .await
                .unwrap()
        })
        .await;
        app.client.cancel_task(TaskPath { id: task_id }).await.unwrap();
        task_id
    });
    let ended = ended.unwrap_err();
    assert_eq!((ended.code, ended.members["task_id"].as_i64()), (Code::Conflict, Some(task_id)), "{ended}");
    assert!(ended.members.contains_key("remedy"), "{ended}");

    // A task that finds less than there was when it was queued says so.
    app.client.pause_task_type(TaskTypePath { task_type: "raptor".into() }).await.unwrap();
    let late = app.client.make_raptor(path, wait, OptionalJson(None)).await.unwrap().task_id;
    for section in app.subtree(id).await.iter().filter(|document| document.usetype == "section") {
        app.client.delete_document(DocumentPath { id: section.id }).await.unwrap();
    }
    app.client.resume_task_type(TaskTypePath { task_type: "raptor".into() }).await.unwrap();
    app.settled(id).await;
    let attempts = evidence(&app, id).await["attempts"].clone();
    let last = attempts.as_array().unwrap().iter().rfind(|attempt| attempt["task_id"] == late).unwrap();
    assert_eq!(last["outcome"], "skipped", "{last}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_file_settles_although_a_task_for_its_summaries_waits() {
    let app = TestApp::start().await;
    let id = file(&app).await;
    let path = DocumentPath { id };
    app.client.pause_task_type(TaskTypePath { task_type: "raptor".into() }).await.unwrap();
    let task = app.client.make_raptor(path, WaitQuery::default(), OptionalJson(None)).await.unwrap().task_id;
    let leaf = app.subtree(id).await.into_iter().find(|document| document.usetype == "chunk").unwrap().id;
    patched(&app, leaf, json!({"content": "The heron sleeps on one leg."})).await;
    until("the file to settle", async || {
        let frontier = app.client.read_frontier(path).await.unwrap();
        (frontier.settled == Settled::Settled && frontier.nodes_in_flight == 0).then_some(())
    })
    .await;
    let is_over = async || app.client.read_task(TaskPath { id: task }).await.unwrap().finished;
    assert!(!is_over().await);
    invariants::check(&app.pool).await;
    app.client.resume_task_type(TaskTypePath { task_type: "raptor".into() }).await.unwrap();
    until("the summaries", async || is_over().await.then_some(())).await;
    assert!(app.subtree(id).await.iter().any(|document| document.usetype == "raptor"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_summarised_or_chosen_from_is_refused_with_its_remedy() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.upload_bytes("topics.md", three_topics()).await.unwrap().document_id;
    let in_flight = refused(&app, id, RaptorRequest::default()).await;
    assert_eq!(in_flight.code, Code::Conflict, "{in_flight:?}");
    let alone = app.client.create_document(WaitQuery::default(), Json(document("One", "Alone."))).await;
    let alone = alone.unwrap().id;
    let none = refused(&app, alone, RaptorRequest::default()).await;
    assert_eq!((none.code, member(&none, "field")), (Code::InvalidField, Some(json!("id"))), "{none:?}");
    let choose = async |id, request| app.client.choose_portfolio(DocumentPath { id }, Json(request)).await;
    let none = choose(alone, PortfolioRequest::new(100)).await.unwrap_err();
    assert_eq!((none.code, member(&none, "field")), (Code::InvalidField, Some(json!("id"))), "{none:?}");
    assert_eq!(choose(424_242, PortfolioRequest::new(100)).await.unwrap_err().code, Code::NotFound);
    assert_eq!(refused(&app, 424_242, RaptorRequest::default()).await.code, Code::NotFound);
    for (path, body, field) in [
        ("raptor", json!({"max_levels": 0}), "max_levels"),
        ("raptor", json!({"threshold": 0.9}), "threshold"),
        ("raptor", json!({"cluster_tokens": 300}), "cluster_tokens"),
        ("raptor/portfolio", json!({"tokens": 0}), "tokens"),
        ("raptor/portfolio", json!({"tokens": 9, "query": " "}), "query"),
    ] {
        let answer = app.raw("POST", &format!("/documents/{alone}/{path}")).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{body}");
        assert_eq!(answer.json::<Value>().await.unwrap()["field"], field, "{body}");
    }
    // More than can be compared pairwise, or summarised in one task.
    sqlx::query(
        "WITH made AS (
             INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
             SELECT $1, ARRAY[$1], 'Leaf', 'Leaf ' || n, 'markdown', 'x', 0 FROM generate_series(1, 10001) n RETURNING id),
         worded AS (INSERT INTO document_words (document_id, words) SELECT id, '' FROM made)
         INSERT INTO document_vectors (document_id, embed_model, embed, weight)
         SELECT id, $2, array_fill(0.05, ARRAY[384])::vector::halfvec, 1 FROM made",
    )
    .bind(alone)
    .bind(crate::support::engine().info().identity.as_str())
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::raw_sql("ANALYZE documents, document_vectors").execute(&app.pool).await.unwrap();
    let many = refused(&app, alone, RaptorRequest::default()).await;
    assert_eq!((many.code, member(&many, "limit")), (Code::TooLarge, Some(json!(10_000))), "{many:?}");
    let many = choose(alone, PortfolioRequest::new(100)).await.unwrap_err();
    assert_eq!((many.code, member(&many, "limit")), (Code::TooLarge, Some(json!(4_000))), "{many:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_portfolio_tells_of_nothing_hidden_under_a_leaf() {
    let app = TestApp::start().await;
    let bob = someone(&app, "bob").await;
    let top = app.create("Notes", "What was seen.", None).await.id;
    let note = app.create("Heron", "The heron waits in the reeds.", Some(top)).await.id;
    app.create("Gauge", "The gauge measures the level of the tank.", Some(top)).await;
    let under = app.create("Zebulon", "The two companies will be one.", Some(note)).await.id;
    let leaves = async |client: &Client<Remote>| {
        let request = PortfolioRequest::new(1_000);
        client.choose_portfolio(DocumentPath { id: top }, Json(request)).await.unwrap().leaves
    };
    assert_eq!(leaves(&bob.client).await, 2);
    app.client.protect_document(DocumentPath { id: under }).await.unwrap();
    assert_eq!(leaves(&bob.client).await, 2, "to its reader the note has nothing under it");
    assert_eq!(leaves(&app.client).await, 2);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_summary_keeps_a_title_that_its_leaf_had() {
    let app = TestApp::start().await;
    let id = file(&app).await;
    let request = RaptorRequest { summary_tokens: 60, cluster_tokens: 400, ..RaptorRequest::default() };
    let tree = summarise(&app, id, request).await;
    let leaf = app.subtree(id).await.into_iter().find(|document| document.usetype == "chunk").unwrap().id;
    patched(&app, leaf, json!({"title": "Another title"})).await;
    assert!(!exists(&app.subtree(id).await, tree.raptor_id));
    app.end().await;
}

/// A note is of no file, so nothing but its row keeps its changes from the task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_summary_has_a_title_that_a_note_lost_while_the_tree_was_stored() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    let titled = app.create("Old title", "The heron waits in the reeds and spears the fish.", Some(folder)).await.id;
    app.create("Old title", "The heron builds its nest of sticks in the reeds.", Some(folder)).await;
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE document_links IN SHARE MODE").execute(&mut *held).await.unwrap();
    let path = DocumentPath { id: folder };
    let task = app.client.make_raptor(path, WaitQuery::default(), OptionalJson(None)).await.unwrap().task_id;
    // The task has looked at the notes, and waits to link its summaries to them, which a change of a title does not.
    until_a_statement_waits(&app.pool).await;
    let is_over = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock') > 1
                       OR EXISTS (SELECT FROM documents WHERE id = $1 AND title <> 'Old title')";
    tokio::join!(patched(&app, titled, json!({"title": "New title"})), async {
        until("the change to wait or to be over", async || {
            sqlx::query_scalar::<_, bool>(is_over).bind(titled).fetch_one(&app.pool).await.unwrap().then_some(())
        })
        .await;
        held.rollback().await.unwrap();
    });
    until("the task to end", async || {
        app.client.read_task(TaskPath { id: task }).await.unwrap().finished.then_some(())
    })
    .await;
    let quoting = app.subtree(folder).await.into_iter().filter(|document| document.usetype == "summary");
    for summary in quoting {
        let of = links(&app, summary.id).await;
        assert!(summary.title != "Old title" || of.iter().all(|link| link.target_id != titled), "{summary:?}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_portfolio_covers_the_most_within_its_budget_and_says_how_near_it_is() {
    let app = TestApp::start().await;
    let id = file(&app).await;
    summarise(&app, id, RaptorRequest { summary_tokens: 60, cluster_tokens: 400, ..RaptorRequest::default() }).await;
    let choose = async |request| app.client.choose_portfolio(DocumentPath { id }, Json(request)).await.unwrap();
    let mut before: Option<PortfolioResponse> = None;
    for tokens in [1, 60, 200, 800, 1_000_000] {
        let chosen = choose(PortfolioRequest::new(tokens)).await;
        assert_eq!(chosen.tokens, chosen.nodes.iter().map(|node| node.tokens).sum::<u64>());
        assert!(chosen.tokens <= tokens.into(), "{} for {tokens}", chosen.tokens);
        assert!(
            chosen.bound >= chosen.coverage && chosen.coverage >= chosen.guarantee * chosen.bound - 1e-9,
            "{chosen:?}"
        );
        let gains: f64 = chosen.nodes.iter().map(|node| node.gain).sum();
        assert!((gains - chosen.coverage).abs() < 1e-6, "{gains} {}", chosen.coverage);
        let turns: BTreeSet<usize> = chosen.nodes.iter().map(|node| node.turn).collect();
        assert_eq!(turns, (1..=chosen.nodes.len()).collect());
        let leaves: Vec<i64> =
            chosen.nodes.iter().filter(|node| node.document.usetype == "chunk").map(|node| node.document.id).collect();
        assert!(leaves.is_sorted(), "a file's chunks are numbered as they are read: {leaves:?}");
        if let Some(before) = before {
            assert!(chosen.coverage >= before.coverage);
        }
        before = Some(chosen);
    }
    let all = before.unwrap();
    assert!(all.coverage > 0.999 && all.leaves == 36 && all.candidates > 36, "{all:?}");
    let none = choose(PortfolioRequest::new(1)).await;
    assert!(none.nodes.is_empty() && none.coverage == 0.0);

    // Three texts are enough for three topics; with a question they are those that it asks for.
    let few = PortfolioRequest { summaries: false, ..PortfolioRequest::new(150) };
    let chosen = choose(few.clone()).await;
    assert!(chosen.nodes.iter().all(|node| node.document.usetype == "chunk") && chosen.candidates == 36);
    for word in ["heron", "gauge", "assembly"] {
        assert!(chosen.nodes.iter().any(|node| node.document.content.contains(word)), "{word}: {:?}", chosen.nodes);
    }
    let asked = choose(PortfolioRequest { query: Some("How is a tank's level measured?".into()), ..few.clone() }).await;
    let first = asked.nodes.iter().find(|node| node.turn == 1).unwrap();
    assert!(first.document.content.contains("gauge"), "{:?}", asked.nodes);
    assert!(asked.nodes.iter().all(|node| node.document.embed.is_none()));
    let with_embed = choose(PortfolioRequest { include_embed: true, ..few.clone() }).await;
    assert!(with_embed.nodes.iter().all(|node| node.document.embed.is_some()), "{:?}", with_embed.nodes);
    let bare = choose(PortfolioRequest { include_content: false, ..few }).await;
    assert!(bare.nodes.iter().all(|node| node.document.content.is_empty() && node.document.omitted == ["content"]));
    assert_eq!(bare.nodes.len(), chosen.nodes.len());
    app.end().await;
}
