//! Uploads of files, and the ingestion that follows.
use crate::support::{IN_DATABASE, TestApp, Wish, broken_stream, document, invariants, repository, sample};
use serde_json::{Value, json};
use svc_client::{
    Code, FileUpload, Json,
    wire::{DocumentPath, NewDocument, PageQuery, Settled, UploadQuery, WaitQuery},
};

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

/// A tree as text: usetypes, titles, and the first words of each content.
async fn shape(app: &TestApp, id: i64) -> String {
    let nodes = app.subtree(id).await;
    let depth = nodes.first().map_or(0, |node| node.path.len());
    let line = |node: &svc_client::wire::DocumentResponse| {
        let words: Vec<&str> = node.content.split_whitespace().take(6).collect();
        format!(
            "{}{} #{} {}: {}\n",
            "  ".repeat(node.path.len() - depth),
            node.usetype,
            node.position.unwrap_or(-1),
            node.title,
            words.join(" ")
        )
    };
    nodes.iter().map(line).collect()
}

#[tokio::test]
async fn a_markdown_file_becomes_the_tree_that_it_declares() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&sample("handbook.md")).await;
    assert_eq!((frontier.settled, frontier.nodes_in_flight, frontier.nodes_failed), (Settled::Settled, 0, 0));
    insta::assert_snapshot!("handbook_tree", shape(&app, id).await);
    let evidence = evidence(&app, id).await;
    assert_eq!(evidence["matched.patterns"]["has_headings"], true);
    let tasks: Vec<_> =
        evidence["attempts"].as_array().unwrap().iter().map(|a| a["task_type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(&tasks[..4], ["probe", "extract:text", "extract:tables", "structure:declared"]);
    assert!(tasks[4..].iter().any(|task| task == "summarize"), "{tasks:?}");
    invariants::check_drained(&app.pool).await;

    // Each chunk is the slice of the extracted text that its anchor names.
    let (text, _): (String, Value) = sqlx::query_as("SELECT text, layout FROM extractions WHERE document_id = $1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    let characters: Vec<char> = text.chars().collect();
    for node in app.subtree(id).await.iter().filter(|node| node.usetype == "chunk") {
        let anchor = self::evidence(&app, node.id).await["anchor"].clone();
        let (start, end) =
            (anchor["characters"][0].as_u64().unwrap() as usize, anchor["characters"][1].as_u64().unwrap() as usize);
        assert_eq!(characters[start..end].iter().collect::<String>(), node.content, "{anchor}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_pdf_and_a_docx_become_trees_with_anchors() {
    let app = TestApp::start().await;
    let (pdf, frontier) = app.ingest(&sample("quarterly-review.pdf")).await;
    assert_eq!(frontier.settled, Settled::Settled);
    insta::assert_snapshot!("pdf_tree", shape(&app, pdf).await);
    // What was found in the file is evidence; the cost of reading it belongs to the attempt.
    let read = evidence(&app, pdf).await;
    let attempts = read["attempts"].as_array().unwrap();
    let extract = attempts.iter().find(|attempt| attempt["task_type"] == "extract:text").unwrap();
    assert_eq!(read["extract.text"]["page_count"], 3, "{read}");
    assert!(extract["detail"]["reader"].is_object() && extract["detail"].get("page_count").is_none(), "{extract}");
    let chunk = app.subtree(pdf).await.into_iter().rfind(|node| node.usetype == "chunk").unwrap();
    assert_eq!(evidence(&app, chunk.id).await["anchor"]["pages"], json!([3, 3]));
    let (docx, frontier) = app.ingest(&sample("onboarding-checklist.docx")).await;
    assert_eq!(frontier.settled, Settled::Settled);
    insta::assert_snapshot!("docx_tree", shape(&app, docx).await);
    // Null says that a task looked and found nothing; absent says that none looked.
    let of_docx = evidence(&app, docx).await;
    for (of_file, name, shown) in [
        (&of_docx, "archive", Some(&Value::Null)),
        (&of_docx, "extract.empty", Some(&Value::Null)),
        (&of_docx, "docx.endnotes", Some(&Value::Null)),
        (&of_docx, "pptx.comments", None),
        (&of_docx, "embed", None),
        (&read, "scanned_pages", Some(&Value::Null)),
        (&read, "docx.comments", None),
    ] {
        assert_eq!(of_file.get(name), shown, "{name} of {of_file}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_container_says_how_it_got_its_embedding() {
    let app = TestApp::start().await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    let (window, mut concatenated) = (crate::support::engine().info().doc_window as u64, 0);
    for node in app.subtree(id).await.iter().filter(|node| node.usetype == "section") {
        let effective = evidence(&app, node.id).await["effective_content"].clone();
        if effective.is_null() {
            continue;
        }
        concatenated += 1;
        assert_eq!((effective["method"].as_str(), effective["window"].as_u64()), (Some("concatenated"), Some(window)));
        let children =
            app.client.list_children(DocumentPath { id: node.id }, PageQuery::default()).await.unwrap().documents.len();
        assert_eq!(effective["source_children"].as_u64(), Some(children as u64));
        assert!(effective["tokens"].as_u64().unwrap() <= window && effective["characters"].as_u64().unwrap() > 0);
    }
    assert!(concatenated > 0);
    let long: String =
        (0..400).map(|n| format!("Sentence number {n} of a text that no window of this model holds. ")).collect();
    let file = app.upload_bytes("long.txt", long).await.unwrap().document_id;
    app.settled(file).await;
    let evidence = evidence(&app, file).await;
    assert_eq!(evidence["effective_content"], Value::Null);
    assert!(evidence["rollup"]["not_concatenated"]["tokens"].as_u64().unwrap() > window, "{evidence}");
    let has_vector: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM document_vectors WHERE document_id = $1)")
        .bind(file)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(has_vector, "a container gets an embedding derived from its children");
    app.end().await;
}

#[tokio::test]
async fn the_same_bytes_are_stored_once() {
    let app = TestApp::with(Wish { settings: &[IN_DATABASE], ..Wish::default() }).await;
    let first = app.upload(&sample("release-notes.txt")).await.unwrap();
    assert_eq!((first.was_existing, first.settled, first.attempts.len()), (false, Settled::InFlight, 0));
    assert!(first.content_hash.starts_with("sha256:") && first.blob_ref.starts_with("lob:"));
    app.settled(first.document_id).await;
    let second = app.upload(&sample("release-notes.txt")).await.unwrap();
    assert_eq!(
        (second.document_id, second.was_existing, second.settled, second.linked_into_parent),
        (first.document_id, true, Settled::Settled, false)
    );
    assert!(!second.attempts.is_empty());

    let folder = app.create("Folder", "", None).await.id;
    let into = |parent_id| {
        app.client.upload_file(
            UploadQuery { parent_id, ..UploadQuery::default() },
            FileUpload::from_bytes("again.txt", std::fs::read(sample("release-notes.txt")).unwrap(), None),
        )
    };
    let linked = into(Some(folder)).await.unwrap();
    assert_eq!((linked.document_id, linked.linked_into_parent), (first.document_id, true));
    assert_eq!(app.subtree(folder).await.len(), 0);
    let links = app.client.list_links(DocumentPath { id: folder }, PageQuery::default()).await.unwrap().links;
    assert_eq!((links.len(), links[0].link_type.as_str(), links[0].target_id), (1, "contains", first.document_id));
    assert_eq!(into(Some(12_345)).await.unwrap_err().code, Code::NotFound);

    let options = json!({"structure": {"max_tokens": 40}});
    let with = |options| {
        app.client.upload_file(
            UploadQuery::default(),
            FileUpload::from_bytes("n", std::fs::read(sample("release-notes.txt")).unwrap(), Some(options)),
        )
    };
    let refused = with(options.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::StoredWithOtherOptions, 400));
    assert_eq!(
        (
            &refused.members["requested_options"]["structure"]["max_tokens"],
            &refused.members["stored_options"]["structure"]["max_tokens"]
        ),
        (&json!(40), &json!(120))
    );
    assert_eq!(with(json!({"structure": {"max_tokens": 120}})).await.unwrap().document_id, first.document_id);
    let unknown = with(json!({"structure": {"tokens": 40}})).await.unwrap_err();
    assert_eq!((unknown.status, unknown.members["key"].as_str()), (400, Some("structure.tokens")));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn eight_uploads_of_the_same_bytes_at_once_make_one_node() {
    let app = TestApp::start().await;
    let uploads = (0..8).map(|_| app.upload_bytes("same.txt", "The very same bytes, eight times at once."));
    let answers = futures_util::future::join_all(uploads).await;
    let ids: std::collections::BTreeSet<i64> = answers.iter().map(|a| a.as_ref().unwrap().document_id).collect();
    assert_eq!((ids.len(), answers.iter().filter(|a| !a.as_ref().unwrap().was_existing).count()), (1, 1));
    app.settled(*ids.first().unwrap()).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn options_reach_the_chunks_and_may_come_last_in_the_form() {
    let app = TestApp::start().await;
    let text: String = (0..60).map(|n| format!("This is plain sentence number {n} here. ")).collect();
    let form = reqwest::multipart::Form::new()
        .part(
            "file",
            reqwest::multipart::Part::text(text.clone()).file_name("plain.txt").mime_str("text/x-claimed").unwrap(),
        )
        .text("options", r#"{"structure": {"max_tokens": 20}}"#);
    let answer = app.raw("POST", "/ingest/file").multipart(form).send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(
        (answer["declared_mime"].as_str(), answer["detected_mime"].as_str()),
        (Some("text/x-claimed"), Some("text/plain"))
    );
    let id = answer["document_id"].as_i64().unwrap();
    app.settled(id).await;
    let chunks = app.subtree(id).await;
    assert!(chunks.len() >= 30, "{} chunks", chunks.len());
    for chunk in &chunks {
        assert!(crate::support::engine().count_content_tokens(&chunk.content).unwrap() <= 24, "{:?}", chunk.content);
    }
    app.end().await;
}

#[tokio::test]
async fn bad_files_fail_for_good_at_the_first_attempt_and_say_why() {
    let app = TestApp::start().await;
    for name in ["corrupt.pdf", "corrupt.docx"] {
        let (id, frontier) = app.ingest(&sample(name)).await;
        assert_eq!((frontier.settled, frontier.nodes_failed, frontier.nodes_total), (Settled::Failed, 1, 1), "{name}");
        let attempts = evidence(&app, id).await["attempts"].clone();
        let failed: Vec<_> = attempts
            .as_array()
            .unwrap()
            .iter()
            .filter(|a| a["outcome"] == "failed" && a["error_type"] != "dependency")
            .collect();
        assert_eq!(failed.len(), 1, "{name}: {attempts}");
        assert_eq!(
            (failed[0]["error_type"].as_str(), failed[0]["attempt"].as_i64()),
            (Some("permanent"), Some(1)),
            "{name}"
        );
        assert!(failed[0]["message"].as_str().unwrap().len() > 10, "{name}: {attempts}");
    }
    let (noise, frontier) = {
        let bytes: Vec<u8> = (0..5000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let id = app.upload_bytes("noise.bin", bytes).await.unwrap();
        assert_eq!((id.detected_mime, id.detected_by), (None, None));
        (id.document_id, app.settled(id.document_id).await)
    };
    assert_eq!(frontier.settled, Settled::Failed);
    assert!(evidence(&app, noise).await["attempts"][0]["message"].as_str().unwrap().contains("no known format"));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn odd_files_are_taken_for_what_they_are() {
    let app = TestApp::start().await;
    let (_, empty) = app.ingest(&sample("empty.txt")).await;
    assert_eq!(
        (empty.settled, empty.nodes_total, empty.warnings.clone()),
        (Settled::Settled, 1, vec!["extract.empty: no_text".to_owned()])
    );
    for (name, title) in [("", "untitled"), (&"n".repeat(300), &"n".repeat(255) as &str), ("../../x.txt", "x.txt")] {
        let id = app.upload_bytes(name, format!("A file named {name:?} in some way.")).await.unwrap().document_id;
        assert_eq!(
            app.client.read_document(DocumentPath { id }, Default::default()).await.unwrap().value().unwrap().title,
            title
        );
        assert_eq!(app.settled(id).await.settled, Settled::Settled);
    }
    // The claim is recorded and not believed.
    let latin: Vec<u8> = b"Caf\xe9 au lait, d\xe9j\xe0 vu, na\xefve, \xe0 la carte, fa\xe7ade, cr\xe8me br\xfbl\xe9e, o\xf9 \xeates-vous.".to_vec();
    let form = reqwest::multipart::Form::new().part(
        "file",
        reqwest::multipart::Part::bytes(latin).file_name("latin.txt").mime_str("text/plain; charset=utf-8").unwrap(),
    );
    let answer: Value = app.raw("POST", "/ingest/file").multipart(form).send().await.unwrap().json().await.unwrap();
    let id = answer["document_id"].as_i64().unwrap();
    app.settled(id).await;
    let text = &app.subtree(id).await[0].content;
    assert!(text.contains("Café") && text.contains("façade"), "{text}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Counts the documents, large objects and tasks that exist.
async fn stored(app: &TestApp) -> (i64, i64, i64) {
    let query = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM task_queue)";
    sqlx::query_as(query).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test]
async fn what_does_not_come_in_whole_leaves_nothing() {
    let limit = 300 * 1024;
    let app =
        TestApp::with(Wish { settings: &[("SVC_MAX_UPLOAD_BYTES", "307200")], no_worker: true, ..Default::default() })
            .await;
    let upload = |pieces| FileUpload {
        filename: Some("broken.txt".into()),
        declared_mime: None,
        length: None,
        bytes: broken_stream(pieces),
        options: None,
    };
    let hung_up = app.client.upload_file(UploadQuery::default(), upload(3)).await.unwrap_err();
    assert_eq!(hung_up.code, Code::Unreachable, "the client itself broke off");
    let in_process = app.in_process.upload_file(UploadQuery::default(), upload(3)).await.unwrap_err();
    assert_eq!(in_process.code, Code::MalformedRequest);
    let large = app.upload_bytes("large.txt", vec![b'x'; limit + 1]).await.unwrap_err();
    assert_eq!(
        (large.status, large.members["limit"].as_u64(), large.members["setting"].as_str()),
        (413, Some(limit as u64), Some("SVC_MAX_UPLOAD_BYTES"))
    );
    app.upload_bytes("fits.txt", vec![b'x'; limit]).await.unwrap();
    for (form, field) in [
        (reqwest::multipart::Form::new().text("options", "{}"), "file"),
        (reqwest::multipart::Form::new().text("file", "a").text("colour", "red"), "colour"),
        (reqwest::multipart::Form::new().text("file", "a").text("options", "{"), "options"),
        (reqwest::multipart::Form::new().text("file", "a").text("options", r#"{"a": {}, "a": {}}"#), "options"),
        (reqwest::multipart::Form::new().text("file", "a").text("file", "b"), "file"),
    ] {
        let answer = app.raw("POST", "/ingest/file").multipart(form).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{field}");
        assert_eq!(answer.json::<Value>().await.unwrap()["field"].as_str(), Some(field));
    }
    // Where all tests have an object store, the database has no bytes of files.
    let large_objects = i64::from(!app.service.blobs.are_outside());
    assert_eq!(stored(&app).await, (1, large_objects, 1), "only the one that came in whole");
    app.end().await;
}

#[tokio::test]
async fn the_corpus_of_real_files_is_read_or_refused_with_a_reason() {
    let corpus = repository().join("../shared/corpus");
    if !corpus.exists() {
        crate::support::left_out("no corpus beside the repository; the samples alone were ingested");
        return;
    }
    let app = TestApp::start().await;
    let manifest: Value = serde_json::from_slice(&std::fs::read(corpus.join("manifest.json")).unwrap()).unwrap();
    let mut files = Vec::new();
    for entry in manifest.as_array().unwrap() {
        let name = entry["file"].as_str().unwrap();
        let stored = app.upload(&corpus.join(name)).await.unwrap();
        files.push((name.to_owned(), stored.document_id));
    }
    let mut report = String::new();
    for (name, id) in files {
        let frontier = app.settled(id).await;
        let evidence = evidence(&app, id).await;
        let attempts = evidence["attempts"].as_array().unwrap();
        let reason = attempts.iter().find(|a| a["outcome"] == "failed" && a["error_type"] != "dependency").map(|a| {
            assert_eq!(a["error_type"], "permanent", "{name}: {a}");
            let limit = a["detail"]["limit"].as_str().map(|limit| format!(" ({limit})")).unwrap_or_default();
            assert_eq!(a["code"] == "limit_exceeded", !limit.is_empty(), "{name}: {a}");
            format!(" {}: {}{limit}", a["task_type"].as_str().unwrap(), a["code"].as_str().unwrap())
        });
        assert_eq!(frontier.settled == Settled::Failed, reason.is_some(), "{name}: {frontier:?} {reason:?}");
        let state = frontier.settled.as_str();
        report += &format!(
            "{name}: {state}{}{}\n",
            reason.unwrap_or_default(),
            frontier.warnings.iter().map(|w| format!(" ({w})")).collect::<String>()
        );
    }
    insta::assert_snapshot!("corpus_outcomes", report);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_file_of_some_megabytes_comes_in_whole() {
    let app = TestApp::with(Wish { settings: &[IN_DATABASE], no_worker: true, ..Default::default() }).await;
    let bytes: Vec<u8> = (0..5 * 1024 * 1024u32).map(|n| b'a' + (n % 26) as u8).collect();
    let stored = app.upload_bytes("large.txt", bytes.clone()).await.unwrap();
    let lob: i64 = stored.blob_ref.trim_start_matches("lob:").parse().unwrap();
    let held: Vec<u8> =
        sqlx::query_scalar("SELECT lo_get($1::bigint::oid)").bind(lob).fetch_one(&app.pool).await.unwrap();
    assert!(held == bytes, "{} bytes came back", held.len());
    app.end().await;
}

#[tokio::test]
async fn the_frontier_of_a_folder_counts_the_tasks_of_the_files_in_it() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let top = app.client.create_document(WaitQuery::default(), Json(document("Top", ""))).await.unwrap().id;
    let folder = NewDocument { parent_id: Some(top), ..document("Folder", "") };
    let folder = app.client.create_document(WaitQuery::default(), Json(folder)).await.unwrap().id;
    let frontier = async |id| app.client.read_frontier(DocumentPath { id }).await.unwrap();
    let before = frontier(top).await.tasks_unfinished;
    let mut file = 0;
    for name in ["handbook.md", "release-notes.txt"] {
        let upload = FileUpload::from_path(&sample(name), None).await.unwrap();
        let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
        file = app.client.upload_file(query, upload).await.unwrap().document_id;
    }
    let of_folder = frontier(folder).await;
    assert_eq!(frontier(top).await.tasks_unfinished, before + 2);
    let probes = of_folder.stages.iter().find(|stage| stage.task_type == "probe").map(|stage| stage.pending);
    assert_eq!((of_folder.nodes_in_flight, probes), (2, Some(2)));
    assert_eq!(frontier(file).await.tasks_unfinished, 1, "a file beside it is not under it");
    app.end().await;
}
