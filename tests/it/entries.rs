//! `POST /ingest`: texts, conversations and fetched addresses as files, answered with their finished trees.
use crate::{
    cli::{lines, svc},
    principals::{grant, someone},
    support::{TOKEN, TestApp, Wish, document, http, invariants, sample, until, web::Web},
};
use serde_json::{Value, json};
use svc_client::{
    Client, Code, Failure, FileUpload, Json, Remote,
    wire::{
        AttemptOutcome, DocumentPath, Entry, GrantRight, IngestQuery, IngestedTree, NewIngestion, PageQuery, Settled,
        TaskTypePath, UploadQuery, WaitQuery,
    },
};

const PARAGRAPH: &str = "The grey heron is a wading bird that stands in shallow water, and waits for fish and frogs, and eats them. It nests in high trees. ";

async fn ingest(app: &TestApp, body: Value) -> Result<IngestedTree, Failure> {
    app.client.ingest(IngestQuery::default(), Json(serde_json::from_value(body).unwrap())).await
}

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

async fn bytes(app: &TestApp, id: i64) -> Vec<u8> {
    app.raw("GET", &format!("/documents/{id}/bytes")).send().await.unwrap().bytes().await.unwrap().to_vec()
}

/// A service that may fetch from this server, which also stands for arXiv.
async fn with_web(settings: &[(&str, &str)]) -> (TestApp, Web) {
    let web = Web::start().await;
    let (allow, arxiv) = (format!("[{:?}]", web.at), web.url(""));
    let own = [("SVC_FETCH_ALLOW", allow.as_str()), ("SVC_ARXIV_URL", arxiv.as_str())];
    let app = TestApp::with(Wish { settings: &[&own, settings].concat(), ..Wish::default() }).await;
    (app, web)
}

fn page(title: &str, link: &str) -> String {
    let text = PARAGRAPH.repeat(4);
    format!(
        "<!doctype html><html><head><title>{title}</title><script>steal()</script></head><body><nav>Log in</nav>
         <article><p>{text}</p><h2>Diet</h2><p>{text} See <a href='{link}'>egrets</a>.</p></article>
         <footer>Imprint</footer></body></html>"
    )
}

#[tokio::test]
async fn the_list_of_pipelines_says_what_each_entry_takes() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    insta::assert_json_snapshot!("pipelines", app.client.list_pipelines().await.unwrap());
    app.end().await;
}

#[tokio::test]
async fn a_text_is_answered_with_its_finished_tree() {
    let app = TestApp::start().await;
    let text = "# Herons\n\nThe heron waits by the water.\n\n# Fish\n\nFish swim past the heron.\n";
    let tree = ingest(&app, json!({"entry": "markdown", "content": text, "event_time": "2024-05-01T00:00:00Z"})).await;
    let tree = tree.unwrap();
    let root = &tree.document;
    assert_eq!((root.title.as_str(), root.usetype.as_str(), root.settled), ("Herons", "markdown", Settled::Settled));
    assert_eq!(root.event_time.unwrap().timestamp(), 1_714_521_600);
    assert!(!tree.was_existing && tree.next_cursor.is_none() && tree.document_id == root.id);
    let titles = |tree: &IngestedTree, usetype: &str| -> Vec<String> {
        tree.nodes.iter().filter(|node| node.usetype == usetype).map(|node| node.title.clone()).collect()
    };
    assert_eq!(titles(&tree, "section"), ["Herons", "Fish"]);
    assert!(tree.nodes.iter().all(|node| node.settled == Settled::Settled && node.path[0] == root.id));
    assert_eq!((tree.frontier.nodes_total, tree.frontier.tasks_unfinished), (tree.nodes.len() as i64 + 1, 0));
    assert!(tree.attempts.iter().all(|attempt| attempt.outcome == AttemptOutcome::Completed));
    assert_eq!(bytes(&app, root.id).await, text.as_bytes());
    assert_eq!(evidence(&app, root.id).await["entry"], json!({"entry": "markdown", "source": "content"}));

    let chunk = |tree: &IngestedTree| tree.nodes.iter().find(|node| node.usetype == "chunk").unwrap().embed.clone();
    assert!(root.embed.is_none() && chunk(&tree).is_none());
    let same = serde_json::from_value(json!({"entry": "markdown", "content": text})).unwrap();
    let with_embed =
        app.client.ingest(IngestQuery { include_embed: true, ..IngestQuery::default() }, Json(same)).await.unwrap();
    assert!(with_embed.document.embed.is_some() && chunk(&with_embed).is_some(), "{with_embed:?}");

    // Who does not wait is answered at once, with what is there.
    let new = serde_json::from_value(json!({"entry": "markdown", "content": "# Coots\n\nThey dive."})).unwrap();
    let stored = app.client.ingest(IngestQuery { wait: false, ..IngestQuery::default() }, Json(new)).await.unwrap();
    assert_eq!((stored.document_id, stored.document.id), (stored.frontier.document_id, stored.document_id));
    assert_eq!(app.settled(stored.document_id).await.settled, Settled::Settled);

    // The same text through the same entry is the same document; another entry reads it in another way.
    let again = ingest(&app, json!({"entry": "markdown", "content": text, "title": "Other"})).await.unwrap();
    assert_eq!((again.document_id, again.was_existing, again.nodes.len()), (root.id, true, tree.nodes.len()));
    let raw = ingest(&app, json!({"entry": "raw", "content": text})).await.unwrap();
    assert!(!raw.was_existing && raw.document.usetype == "raw" && titles(&raw, "section").is_empty(), "{raw:?}");
    assert!(raw.nodes[0].content.starts_with("# Herons"), "{raw:?}");
    let file = app.upload_bytes("herons.md", text).await.unwrap();
    assert!(!file.was_existing && file.document_id != root.id);
    app.settled(file.document_id).await;
    let other = json!({"entry": "raw", "content": text, "options": {"structure": {"max_tokens": 60}}});
    let refused = ingest(&app, other).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (400, Code::StoredWithOtherOptions));
    assert_eq!(refused.members["requested_options"]["structure"]["max_tokens"], 60);
    assert_eq!(refused.members["stored_options"]["structure"]["max_tokens"], 120);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_turn_becomes_nodes_with_its_speaker_and_time() {
    let app = TestApp::start().await;
    let turns = json!([
        {"speaker": "Ann", "text": "Where does the heron nest?", "time": "2024-05-01T10:00:00Z"},
        {"speaker": "Ben", "text": "# In trees\n\nHigh above the water."},
        {"speaker": "Ann", "text": PARAGRAPH.repeat(12), "time": "2024-05-01T10:05:00Z"},
    ]);
    let tree = ingest(&app, json!({"entry": "conversation", "turns": turns})).await.unwrap();
    assert_eq!(
        (tree.document.title.as_str(), tree.document.usetype.as_str()),
        ("Conversation of Ann, Ben", "conversation")
    );
    let sections: Vec<_> = tree.nodes.iter().filter(|node| node.usetype == "section").collect();
    let said: Vec<_> = sections
        .iter()
        .map(|node| (node.title.as_str(), node.structured_content["index"].as_i64().unwrap(), node.event_time))
        .collect();
    let time = |text: &str| Some(text.parse().unwrap());
    assert_eq!(
        said,
        [("Ann", 0, time("2024-05-01T10:00:00Z")), ("Ben", 1, None), ("Ann", 2, time("2024-05-01T10:05:00Z"))]
    );
    let chunks: Vec<_> = tree.nodes.iter().filter(|node| node.usetype == "chunk").collect();
    assert!(chunks.len() > 4, "the last turn is long");
    for chunk in chunks {
        let turn = sections.iter().find(|section| section.id == chunk.parent_id.unwrap()).unwrap();
        assert_eq!((&chunk.structured_content, chunk.event_time), (&turn.structured_content, turn.event_time));
        assert_eq!(chunk.structured_content["speaker"], turn.title.as_str());
    }
    let stored = String::from_utf8(bytes(&app, tree.document_id).await).unwrap();
    assert!(stored.starts_with("## Ann (2024-05-01T10:00:00Z)\n\nWhere does"), "{stored}");
    let transcript = ingest(&app, json!({"entry": "transcript", "content": "Ann: Hello.\n\nBen: Bye."})).await.unwrap();
    assert_eq!((transcript.document.usetype.as_str(), transcript.document.settled), ("transcript", Settled::Settled));
    app.end().await;
}

#[tokio::test]
async fn what_an_entry_does_not_take_is_named() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for (body, status, code, names) in [
        (json!({"entry": "raw", "content": "x", "pipeline_config": {}}), 400, "unknown_option", "`options`"),
        (json!({"entry": "raw", "content": "x", "options": {"ocr": {}}}), 400, "unknown_option", "`ocr`"),
        (json!({"entry": "wiki", "content": "x"}), 422, "invalid_field", "wiki:url"),
        (json!({"content": "x"}), 422, "invalid_field", "entry"),
        (json!({"entry": "raw", "content": "x", "stages": []}), 422, "invalid_field", "stages"),
        (json!({"entry": "raw"}), 422, "invalid_field", "`content`"),
        (json!({"entry": "raw", "content": "  "}), 422, "invalid_field", "content"),
        (json!({"entry": "raw", "content": "%PDF-1.7\n"}), 422, "invalid_field", "application/pdf"),
        (json!({"entry": "raw", "url": "http://example.org"}), 422, "invalid_field", "url"),
        (
            json!({"entry": "conversation", "content": "x", "turns": [{"speaker": "A", "text": "b"}]}),
            422,
            "invalid_field",
            "turns",
        ),
        (
            json!({"entry": "conversation", "turns": [{"speaker": "", "text": "b"}]}),
            422,
            "invalid_field",
            "turns[0].speaker",
        ),
        (json!({"entry": "wiki:arxiv", "id": "../../etc"}), 422, "invalid_field", "2301.00001"),
        (json!({"entry": "wiki:arxiv", "url": "http://example.org/abs/2301.00001"}), 422, "invalid_field", "url"),
        (json!({"entry": "wiki:url", "url": "ftp://example.org/"}), 422, "invalid_field", "https"),
        (json!({"entry": "wiki:url", "url": "http://u:secret@example.org/"}), 422, "invalid_field", "password"),
        (
            json!({"entry": "wiki:url", "url": "http://127.0.0.1:5432/?key=secret"}),
            422,
            "invalid_field",
            "SVC_FETCH_ALLOW",
        ),
        (json!({"entry": "wiki:pdf", "url": "http://[::ffff:169.254.169.254]/"}), 422, "invalid_field", "public"),
        (json!({"entry": "raw", "content": "x", "parent_id": 999_999}), 404, "not_found", "999999"),
    ] {
        let answer = app.raw("POST", "/ingest").json(&body).send().await.unwrap();
        let (got, problem): (u16, Value) = (answer.status().as_u16(), answer.json().await.unwrap());
        assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(names), "{body}: {problem}");
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0, "what is refused stores nothing");
    app.end().await;
}

#[tokio::test]
async fn a_page_is_fetched_read_and_kept_as_it_came() {
    let (app, web) = with_web(&[]).await;
    let html = page("Grey heron", "../Egret");
    let header =
        "content-type: text/html; charset=utf-8\r\netag: \"v1\"\r\nlast-modified: Wed, 01 May 2024 10:00:00 GMT\r\n";
    web.put("/wiki/Heron", "200 OK", header, html.as_bytes());
    web.put("/start?token=x", "302 Found", "location: /wiki/Heron\r\n", b"");
    let tree = ingest(&app, json!({"entry": "wiki:url", "url": web.url("/start?token=x")})).await.unwrap();
    let (id, root) = (tree.document_id, &tree.document);
    assert_eq!(
        (root.title.as_str(), root.usetype.as_str(), root.settled),
        ("Grey heron", "wiki:url", Settled::Settled)
    );
    assert_eq!(bytes(&app, id).await, html.as_bytes(), "the bytes are those that came");
    let text: String = tree.nodes.iter().map(|node| node.content.as_str()).collect();
    assert!(text.contains(&format!("[egrets]({})", web.url("/Egret"))), "{text}");
    assert!(!text.contains("steal") && !text.contains("Imprint") && !text.contains("<p>"), "{text}");
    assert!(tree.nodes.iter().any(|node| node.usetype == "section" && node.title == "Diet"));
    let evidence = evidence(&app, id).await;
    let fetched = &evidence["fetched"];
    for (name, expected) in [
        ("url", json!(web.url("/start?token=x"))),
        ("final_url", json!(web.url("/wiki/Heron"))),
        ("etag", json!("\"v1\"")),
        ("last_modified", json!("Wed, 01 May 2024 10:00:00 GMT")),
        ("media_type", json!("text/html")),
        ("bytes", json!(html.len())),
    ] {
        assert_eq!(fetched[name], expected, "{fetched}");
    }
    assert!(fetched["fetched_at"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().is_ok(), "{fetched}");
    assert_eq!((&evidence["page"]["title"], &evidence["extract.empty"]), (&json!("Grey heron"), &Value::Null));
    assert_eq!(evidence["extract.text"]["headings_from"], "html");
    let again = ingest(&app, json!({"entry": "wiki:url", "url": web.url("/wiki/Heron")})).await.unwrap();
    assert_eq!((again.document_id, again.was_existing), (id, true));
    // A page without text is no success in disguise.
    web.put("/empty", "200 OK", "content-type: text/html\r\n", b"<title>Empty</title><script>x()</script>");
    let empty = ingest(&app, json!({"entry": "wiki:url", "url": web.url("/empty")})).await.unwrap();
    assert_eq!(empty.frontier.warnings, ["extract.empty: no_text"]);
    app.end().await;
}

#[tokio::test]
async fn what_an_address_cannot_give_is_said_and_nothing_is_stored() {
    let (app, web) = with_web(&[("SVC_FETCH_MAX_BYTES", "100000"), ("SVC_PARSER_CPU_TIME", "1")]).await;
    let html = "content-type: text/html\r\n";
    web.put("/inward", "302 Found", "location: http://127.0.0.1:1/\r\n", b"");
    web.put("/huge", "200 OK", html, &vec![b'x'; 200_000]);
    web.put("/image", "200 OK", "content-type: image/png\r\n", b"\x89PNG");
    web.put("/untyped", "200 OK", "", b"<p>x</p>");
    web.put("/lies", "200 OK", "content-type: application/pdf\r\n", b"<p>no pdf</p>");
    web.put("/deep", "200 OK", html, "<div>".repeat(19_000).as_bytes());
    web.put("/abs/2301.00009", "200 OK", html, b"<title>No paper</title><p>x</p>");
    for (entry, path, status, names) in [
        ("wiki:url", "/inward", 422, "public"),
        ("wiki:url", "/missing?key=k3y", 424, "404"),
        ("wiki:url", "/huge", 413, "SVC_FETCH_MAX_BYTES"),
        ("wiki:url", "/image", 424, "image/png"),
        ("wiki:url", "/untyped", 424, "no media type"),
        ("wiki:pdf", "/lies", 424, "something else"),
        ("wiki:pdf", "/image", 424, "application/pdf"),
        ("wiki:arxiv", "/abs/2301.00009", 424, "2301.00009"),
        ("wiki:arxiv", "/abs/2301.00010", 424, "404"),
    ] {
        let refused = ingest(&app, json!({"entry": entry, "url": web.url(path)})).await.unwrap_err();
        assert_eq!(refused.status, status, "{path}: {refused}");
        let text = serde_json::to_string(&refused).unwrap();
        assert!(refused.detail.contains("127.0.0.1") && refused.detail.contains(names), "{path}: {text}");
        assert!(!text.contains("k3y") && !text.contains("secret"), "{text}");
    }
    // A page that is made to keep a reader busy ends the reader, and at worst takes its time.
    let deep = ingest(&app, json!({"entry": "wiki:url", "url": web.url("/deep")})).await;
    assert!(
        deep.as_ref().map_or_else(|refused| refused.status == 422, |tree| tree.document.settled == Settled::Settled),
        "{deep:?}"
    );
    let failed = deep.is_err();
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert!(stored == i64::from(!failed), "{stored}");
    app.end().await;
}

#[tokio::test]
async fn a_paper_comes_with_its_title_authors_and_abstract() {
    let (app, web) = with_web(&[]).await;
    let described = "<html><head><meta name=citation_title content='Herons in winter'><meta name=citation_author content='Onym, Ann'>
        <meta name=citation_author content='Body, Some'><meta name=citation_abstract content='They stay.'></head><body><p>x</p></body></html>";
    let pdf = std::fs::read(sample("quarterly-review.pdf")).unwrap();
    web.put("/abs/2301.00001v2", "200 OK", "content-type: text/html\r\n", described.as_bytes());
    web.put("/pdf/2301.00001v2", "200 OK", "content-type: application/pdf\r\netag: \"p\"\r\n", &pdf);
    web.put("/file.pdf", "200 OK", "content-type: application/pdf\r\n", &pdf);
    web.put(
        "/damaged.pdf",
        "200 OK",
        "content-type: application/pdf\r\n",
        &std::fs::read(sample("corrupt.pdf")).unwrap(),
    );
    let tree = ingest(&app, json!({"entry": "wiki:arxiv", "id": "arXiv:2301.00001v2"})).await.unwrap();
    assert_eq!((tree.document.title.as_str(), tree.document.usetype.as_str()), ("Herons in winter", "wiki:arxiv"));
    assert_eq!(bytes(&app, tree.document_id).await, pdf);
    let found = evidence(&app, tree.document_id).await;
    assert_eq!(
        found["arxiv"],
        json!({"id": "2301.00001v2", "title": "Herons in winter", "authors": ["Onym, Ann", "Body, Some"], "abstract": "They stay."})
    );
    assert_eq!((&found["fetched"]["etag"], &found["extract.text"]["page_count"]), (&json!("\"p\""), &json!(3)));
    assert_eq!(web.asked(), ["/abs/2301.00001v2", "/pdf/2301.00001v2"]);
    let again = ingest(&app, json!({"entry": "wiki:arxiv", "url": web.url("/pdf/2301.00001v2.pdf")})).await.unwrap();
    assert_eq!((again.document_id, again.was_existing), (tree.document_id, true));
    let file = ingest(&app, json!({"entry": "wiki:pdf", "url": web.url("/file.pdf")})).await.unwrap();
    assert_eq!(
        (file.document.title.as_str(), file.document.settled, file.was_existing),
        ("file", Settled::Settled, false)
    );
    // A file that cannot be read is answered as the failed tree that it is.
    let damaged = ingest(&app, json!({"entry": "wiki:pdf", "url": web.url("/damaged.pdf")})).await.unwrap();
    assert_eq!(damaged.document.settled, Settled::Failed);
    let last = damaged.attempts.last().unwrap();
    assert!(last.outcome == AttemptOutcome::Failed && last.message.as_ref().unwrap().contains("damaged"), "{last:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_fetches_addresses_and_papers() {
    let (app, web) = with_web(&[]).await;
    web.put("/wiki/Heron", "200 OK", "content-type: text/html\r\n", page("Grey heron", "/x").as_bytes());
    let (there, gone) = (web.url("/wiki/Heron"), web.url("/gone"));
    let fetched = svc(&app, &["fetch", &there, &gone, "no-paper"]).await;
    assert_eq!(fetched.status.code(), Some(3), "some addresses are refused: {fetched:?}");
    let reports = lines(&fetched);
    assert_eq!((&reports[0]["title"], &reports[0]["state"]), (&json!("Grey heron"), &json!("settled")));
    let codes: Vec<_> = reports[1..].iter().map(|report| report["error"]["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["fetch_failed", "invalid_field"], "{reports:?}");
    let shown = svc(&app, &["--table", "fetch", &there]).await;
    assert!(
        shown.status.success() && String::from_utf8_lossy(&shown.stdout).contains("settled: Grey heron"),
        "{shown:?}"
    );
    app.end().await;
}

#[tokio::test]
async fn without_a_worker_the_answer_says_what_the_work_waits_for() {
    let wish = Wish { no_worker: true, settings: &[("SVC_INGEST_WAIT_SECONDS", "0.2")], ..Wish::default() };
    let mut app = TestApp::with(wish).await;
    let body = json!({"entry": "raw", "content": "The heron waits."});
    let refused = ingest(&app, body.clone()).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (503, Code::Unavailable));
    let id = refused.members["document_id"].as_i64().unwrap();
    assert_eq!(refused.members["frontier"], format!("/ingest/file/{id}/frontier"));
    assert_eq!(refused.members["blocked_by"].as_object().unwrap().values().filter_map(Value::as_i64).sum::<i64>(), 1);
    app.start_worker().await;
    app.settled(id).await;
    let tree = ingest(&app, body).await.unwrap();
    assert_eq!((tree.document_id, tree.was_existing, tree.document.settled), (id, true, Settled::Settled));
    app.end().await;
}

#[tokio::test]
async fn an_answer_that_comes_too_soon_tells_of_no_work_on_what_its_caller_may_not_read() {
    let app = TestApp::with(Wish { settings: &[("SVC_INGEST_WAIT_SECONDS", "0.2")], ..Wish::default() }).await;
    let one = someone(&app, "one").await;
    let text = "# Herons\n\nThe heron waits by the water.\n\n# Coots\n\nThe coot dives for its food.\n";
    let new = || NewIngestion { content: Some(text.to_owned()), ..NewIngestion::of(Entry::Markdown) };
    let at_once = IngestQuery { wait: false, ..IngestQuery::default() };
    let id = app.client.ingest(at_once, Json(new())).await.unwrap().document_id;
    app.settled(id).await;
    let leaf = app.subtree(id).await.into_iter().find(|node| node.usetype == "chunk").unwrap();
    let section = leaf.parent_id.unwrap();
    assert_ne!(section, id);
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    app.client.protect_document(DocumentPath { id: section }).await.unwrap();
    until("the part to be embedded without the titles above it", async || {
        let left = "SELECT count(*) FROM task_queue WHERE NOT final";
        (sqlx::query_scalar::<_, i64>(left).fetch_one(&app.pool).await.unwrap() == 0).then_some(())
    })
    .await;
    crate::edits::patched(&app, leaf.id, json!({"content": "The heron waits no more."})).await;
    let wait = async |client: &Client<Remote>| client.ingest(IngestQuery::default(), Json(new())).await.unwrap_err();
    let (owners, theirs) = tokio::join!(wait(&app.client), wait(&one.client));
    assert_eq!((owners.code, &owners.members["blocked_by"]["paused"]), (Code::Unavailable, &json!(1)), "{owners:?}");
    assert_eq!((theirs.code, &theirs.members["blocked_by"]), (Code::Unavailable, &json!({})), "{theirs:?}");
    assert!(!theirs.detail.contains("paused"), "{theirs}");
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    app.settled(id).await;
    app.end().await;
}

#[tokio::test]
async fn who_hangs_up_leaves_the_work_going_on() {
    let app = TestApp::start().await;
    let probe = TaskTypePath { task_type: "probe".into() };
    app.client.pause_task_type(probe.clone()).await.unwrap();
    let body = json!({"entry": "raw", "content": PARAGRAPH.repeat(20)});
    let request = tokio::spawn(app.raw("POST", "/ingest").json(&body).send());
    let id: i64 = until("the document", async || {
        sqlx::query_scalar("SELECT id FROM documents WHERE usetype = 'raw'").fetch_optional(&app.pool).await.unwrap()
    })
    .await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled(), "it waits for a task that is paused");
    app.client.resume_task_type(probe).await.unwrap();
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    app.end().await;
}

#[tokio::test]
async fn a_large_tree_is_answered_by_its_first_page() {
    let app = TestApp::with(Wish { settings: &[("SVC_PAGE_BYTES", "64 KiB")], ..Wish::default() }).await;
    let tree = ingest(&app, json!({"entry": "raw", "content": PARAGRAPH.repeat(500)})).await.unwrap();
    let (id, cursor) = (tree.document_id, tree.next_cursor.clone());
    assert!(cursor.is_some() && (tree.nodes.len() as i64) < tree.frontier.nodes_total - 1, "{:?}", tree.nodes.len());
    let mut ids: Vec<i64> = tree.nodes.iter().map(|node| node.id).collect();
    let mut query = PageQuery { cursor, ..PageQuery::default() };
    while query.cursor.is_some() {
        let page = app.client.list_subtree(DocumentPath { id }, query.clone()).await.unwrap();
        ids.extend(page.documents.iter().map(|node| node.id));
        query.cursor = page.next_cursor;
    }
    assert_eq!(ids, app.subtree(id).await.iter().map(|node| node.id).collect::<Vec<_>>());
    app.end().await;
}

#[tokio::test]
async fn an_entry_keeps_the_zones_of_access() {
    let (app, web) = with_web(&[]).await;
    let [one, two] = [someone(&app, "one").await, someone(&app, "two").await];
    let new = |entry: Entry| NewIngestion::of(entry);
    let text = |private| NewIngestion { content: Some("The heron waits.".into()), private, ..new(Entry::Raw) };
    let mine = one.client.ingest(IngestQuery::default(), Json(text(true))).await.unwrap();
    assert!(!mine.was_existing && !mine.nodes.is_empty(), "its maker reads what is private");
    assert_eq!(two.client.read_frontier(DocumentPath { id: mine.document_id }).await.unwrap_err().code, Code::NotFound);
    let theirs = two.client.ingest(IngestQuery::default(), Json(text(false))).await.unwrap();
    assert!(!theirs.was_existing && theirs.document_id != mine.document_id, "what one may not read is not found");
    let again = one.client.ingest(IngestQuery::default(), Json(text(true))).await.unwrap();
    assert_eq!((again.document_id, again.was_existing), (mine.document_id, true));
    let folder = app
        .client
        .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(document("Folder", "x")))
        .await
        .unwrap()
        .id;
    grant(&app, &one, folder, GrantRight::Write).await;
    grant(&app, &two, folder, GrantRight::Read).await;
    // A document that a caller reads, and finds through its bytes, is linked to the parent that it may write.
    let under = NewIngestion { parent_id: Some(folder), ..text(false) };
    let linked = one.client.ingest(IngestQuery::default(), Json(under.clone())).await.unwrap();
    assert!(linked.was_existing && linked.linked_into_parent && linked.document_id == mine.document_id);
    // Who may not write the parent does not even have the server fetch.
    web.put("/x", "200 OK", "content-type: text/html\r\n", b"<p>x</p>");
    let page = NewIngestion { url: Some(web.url("/x")), parent_id: Some(folder), ..new(Entry::WikiUrl) };
    assert_eq!(two.client.ingest(IngestQuery::default(), Json(page)).await.unwrap_err().status, 403);
    let hidden = NewIngestion { parent_id: Some(mine.document_id), ..text(false) };
    assert_eq!(two.client.ingest(IngestQuery::default(), Json(hidden)).await.unwrap_err().status, 404);
    assert!(web.asked().is_empty(), "{:?}", web.asked());
    app.end().await;
}

/// The rules of an upload for bytes that are stored already, under several principals.
#[tokio::test]
async fn an_upload_finds_adopts_and_encloses_by_what_its_caller_may_reach() {
    let app = TestApp::start().await;
    let [one, two] = [someone(&app, "one").await, someone(&app, "two").await];
    let file = |options: Value| FileUpload::from_bytes("heron.txt", "The heron waits by the water.", Some(options));
    let private = UploadQuery { private: true, ..UploadQuery::default() };
    let open = UploadQuery::default();
    let upload = async |who: &crate::principals::Someone, query| who.client.upload_file(query, file(json!({}))).await;
    // Private copies: each principal has its own, and finds that one again.
    let first = upload(&one, private).await.unwrap();
    let second = upload(&two, private).await.unwrap();
    assert!(!first.was_existing && !second.was_existing && first.document_id != second.document_id);
    for (who, stored) in [(&one, &first), (&two, &second)] {
        for query in [private, open] {
            let again = upload(who, query).await.unwrap();
            assert_eq!((again.document_id, again.was_existing), (stored.document_id, true));
        }
    }
    // The uploader is the only grantee, and writes.
    let grants: Vec<(i64, bool)> =
        sqlx::query_as("SELECT principal_id, can_write FROM access_grants WHERE document_id = $1")
            .bind(first.document_id)
            .fetch_all(&app.pool)
            .await
            .unwrap();
    assert_eq!(grants, [(one.id, true)]);
    // Other options of the same bytes are refused with both sets, and only where the caller reads the stored file.
    let refused = one.client.upload_file(open, file(json!({"structure": {"max_tokens": 60}}))).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (400, Code::StoredWithOtherOptions));
    assert_eq!(refused.members["document_id"], first.document_id);
    for (set, tokens) in [("stored_options", 120), ("requested_options", 60)] {
        assert_eq!(refused.members[set]["structure"]["max_tokens"], tokens, "{refused:?}");
    }
    let three = someone(&app, "three").await;
    let apart = three.client.upload_file(private, file(json!({"structure": {"max_tokens": 60}}))).await.unwrap();
    assert!(!apart.was_existing);
    // A parent adopts what is stored by a link; the file stays where it is, and keeps its own parent.
    let folder = app
        .client
        .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(document("Folder", "x")))
        .await
        .unwrap()
        .id;
    grant(&app, &one, folder, GrantRight::Write).await;
    grant(&app, &two, folder, GrantRight::Read).await;
    let under = UploadQuery { parent_id: Some(folder), ..open };
    let adopted = upload(&one, under).await.unwrap();
    assert!(adopted.was_existing && adopted.linked_into_parent && adopted.document_id == first.document_id);
    assert!(
        one.client.list_subtree(DocumentPath { id: folder }, PageQuery::default()).await.unwrap().documents.is_empty()
    );
    let links = async |who: &crate::principals::Someone| {
        who.client.list_links(DocumentPath { id: folder }, PageQuery::default()).await.unwrap().links
    };
    let shown = links(&one).await;
    assert_eq!((shown.len(), shown[0].target_id, shown[0].link_type.as_str()), (1, first.document_id, "contains"));
    assert!(links(&two).await.is_empty(), "a link to what one may not read is not shown");
    assert_eq!(upload(&two, under).await.unwrap_err().status, 403);
    let new_bytes = FileUpload::from_bytes("new.txt", "New bytes.", None);
    let child = one.client.upload_file(under, new_bytes).await.unwrap();
    assert!(!child.was_existing && !child.linked_into_parent);
    for id in [first.document_id, second.document_id, apart.document_id, child.document_id] {
        app.settled(id).await;
    }
    let parents: Vec<(Option<i64>,)> = sqlx::query_as("SELECT parent_id FROM documents WHERE id = ANY($1) ORDER BY id")
        .bind([first.document_id, child.document_id])
        .fetch_all(&app.pool)
        .await
        .unwrap();
    assert_eq!(parents, [(None,), (Some(folder),)]);
    assert_eq!(http().get(format!("{}/ingest/pipelines", app.base)).send().await.unwrap().status(), 401);
    assert_ne!(TOKEN, one.secret);
    app.end().await;
}
