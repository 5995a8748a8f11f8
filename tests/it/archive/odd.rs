//! What is unusual and allowed: it leaves a store and comes into another one, or nothing of it does.
use super::{done, drained, said};
use crate::{
    cli::svc,
    edits::patched,
    principals::{grant, idle, someone},
    rdf::import,
    runner::far,
    support::{TestApp, Wish, document},
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};
use svc_client::{
    Code, FileUpload, Json,
    wire::{
        ArchivePart, ArchiveQuery, DocumentPath, GrantRight, ImportQuery, ImportedArchive, IngestQuery, NewBatch,
        NewDocument, NewLink, NewPredicate, UploadQuery, WaitQuery,
    },
};

/// As many bytes as twenty herons for each word, but a single token, because the tokenizer takes a word of over 100 characters as unknown.
fn long_words(count: usize) -> String {
    format!("{} ", "heron".repeat(24)).repeat(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_store_took_another_one_takes_too() {
    let limit = || Wish { settings: &[("SVC_MAX_BODY_BYTES", "64 KiB")], ..Wish::default() };
    let (app, other) = (TestApp::with(limit()).await, TestApp::with(limit()).await);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let archive = archive.to_str().unwrap();
    // Any client may say of a file what is no media type.
    for declared in ["nonsense", "text", "text/plain; charset=utf 8", "application/x y"] {
        let upload =
            FileUpload::from_bytes(&format!("{}.md", declared.len()), format!("# {declared}\n\nA heron."), None);
        let upload = FileUpload { declared_mime: Some(declared.to_owned()), ..upload };
        app.client.upload_file(UploadQuery::default(), upload).await.unwrap();
    }
    // Some say what no header can hold.
    let form = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.md\"\r\nContent-Type: text/\u{1}plain{}\r\n\r\n# A coot\r\n\r\nIt dives.\r\n--XX--\r\n",
        "; x=y".repeat(200)
    );
    let upload = app.raw("POST", "/ingest/file").header("content-type", "multipart/form-data; boundary=XX").body(form);
    assert_eq!(upload.send().await.unwrap().status(), 202);
    let cut: Vec<String> =
        sqlx::query_scalar("SELECT declared_mime FROM document_blobs WHERE length(declared_mime) > 100")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    assert!(cut.len() == 1 && cut[0].starts_with("text/plain; x=y") && cut[0].len() <= 255, "{cut:?}");
    // The label of a blank node is a part of an IRI.
    let named = |bytes: usize| format!("_:{} <http://e/says> 'hush' .", "h".repeat(bytes));
    import(&app.client, ImportQuery::default(), &named(900)).await.unwrap();
    let refused = import(&app.client, ImportQuery::default(), &named(3_000)).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidField, "{refused}");
    // Ingestion puts the metadata of a turn into an object of its own.
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(63), "]".repeat(63));
    let metadata: Value = serde_json::from_str(&deep).unwrap();
    let turns = json!([{"speaker": "Ann", "text": "Herons wait.", "metadata": metadata}]);
    let new = serde_json::from_value(json!({"entry": "conversation", "turns": turns})).unwrap();
    app.client.ingest(IngestQuery::default(), Json(new)).await.unwrap();
    // Bytes come to what came with an archive: an empty file has the hash of any empty text.
    let note = app.create("Note", "", None).await.id;
    let empty = FileUpload::from_bytes("empty.txt", "", None);
    let refused = app.client.import_bytes(DocumentPath { id: note }, Default::default(), empty).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidField, "{refused}");
    patched(&app, note, json!({"content": "A heron after all."})).await;
    // Its body fills the limit, and an archive says more of it.
    let words = long_words(540);
    let large = NewDocument { ..document("Large", words.trim()) };
    assert!(serde_json::to_vec(&large).unwrap().len() > 65_000);
    app.client.create_document(WaitQuery::default(), Json(large)).await.unwrap();
    // Together they are more than a call may hold.
    let mut ends = Vec::new();
    for number in 0..60 {
        let new = document(&format!("Note {number}"), long_words(247).trim());
        ends.push(app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id);
    }
    for number in 0..40_u32 {
        let why = "x".repeat(if number == 0 { 65_000 } else { 30_000 });
        let metadata = json!({"why": why}).as_object().unwrap().clone();
        let link = NewLink { target_id: ends[1], link_type: format!("cites{number}"), score: None, metadata };
        app.client.create_link(DocumentPath { id: ends[0] }, Json(link)).await.unwrap();
    }
    drained(&app).await;
    // A shell puts a slash behind the name of a folder that is there.
    fs::create_dir(archive).unwrap();
    done(&app, &["export", &format!("{archive}/"), "--json"]).await;
    let imported = done(&other, &["import", archive, "--json"]).await;
    assert_eq!((imported["files"].as_u64(), imported["queued"].as_u64()), (Some(6), Some(0)), "{imported}");
    assert_eq!(imported["links"]["created"], 40, "{imported}");
    let declared: Vec<Option<String>> =
        sqlx::query_scalar("SELECT declared_mime FROM document_blobs ORDER BY document_id")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    let there: Vec<Option<String>> =
        sqlx::query_scalar("SELECT declared_mime FROM document_blobs ORDER BY document_id")
            .fetch_all(&other.pool)
            .await
            .unwrap();
    assert!(declared == there && declared.len() == 6, "{declared:?} {there:?}");
    let deepest: Value = sqlx::query_scalar(
        "SELECT structured_content -> 'metadata' FROM documents WHERE structured_content ? 'speaker'",
    )
    .fetch_one(&other.pool)
    .await
    .unwrap();
    assert_eq!(deepest, metadata);
    let labels = "SELECT count(*) FROM graph_nodes WHERE blank AND length(iri) > 900";
    assert_eq!(sqlx::query_scalar::<_, i64>(labels).fetch_one(&other.pool).await.unwrap(), 1);
    let longest: i64 =
        sqlx::query_scalar("SELECT max(length(content))::bigint FROM documents").fetch_one(&other.pool).await.unwrap();
    assert_eq!(longest, i64::try_from(words.trim().len()).unwrap());
    // A copy beside the first has the same bytes there, and an export of the copy says that they stay behind.
    let top = app.client.create_document(WaitQuery::default(), Json(document("Top", ""))).await.unwrap().document.id;
    let copied = done(&app, &["import", archive, "--under", &top.to_string(), "--json"]).await;
    assert_eq!(copied["same_bytes"], 6);
    let without = folder.path().join("without");
    let output = svc(&app, &["export", without.to_str().unwrap(), "--under", &top.to_string()]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("5 files have no bytes of their own"), "{said}");
    app.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_finished_only_from_where_it_was_begun() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    app.client.create_document(WaitQuery::default(), Json(document("A", "heron"))).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let part = folder.path().join("archive.part");
    fs::create_dir(&part).unwrap();
    fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).unwrap();
    let begun = |source: &str| {
        json!({"archive": "an-archive", "version": env!("CARGO_PKG_VERSION"), "root": null, "source": source, "stage": "documents",
            "cursor": null, "length": 0, "without_bytes": 0, "counts": {"documents": 0, "vectors": 0, "files": 0, "file_bytes": 0,
            "links": 0, "links_outside": 0, "grants": 0, "predicates": 0}})
    };
    let own = format!("{} as owner", app.base);
    for source in ["http://elsewhere as owner".to_owned(), format!("{} as 7", app.base)] {
        fs::write(part.join("progress.json"), begun(&source).to_string()).unwrap();
        let output = svc(&app, &["export", archive.to_str().unwrap()]).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains("service or caller") && said.contains("remove it"),
            "{said}"
        );
    }
    fs::write(part.join("progress.json"), begun(&own).to_string()).unwrap();
    let exported = done(&app, &["export", archive.to_str().unwrap(), "--json"]).await;
    assert_eq!((&exported["archive"], &exported["counts"]["documents"]), (&json!("an-archive"), &json!(1)));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_hold_many_values_come_in_as_many_calls_as_they_need() {
    let idle = || Wish { no_worker: true, ..Wish::default() };
    let (app, other) = (TestApp::with(idle()).await, TestApp::with(idle()).await);
    let list = json!({"list": vec![0; 99_000]});
    for number in 0..7 {
        let structured_content = list.as_object().unwrap().clone();
        let new = NewDocument { structured_content, ..document(&format!("{number}"), "") };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap(), "--json"]).await;
    let imported = done(&other, &["import", archive.to_str().unwrap(), "--json"]).await;
    assert_eq!(imported["documents"], 7, "{imported}");

    let line = |number| json!({"title": format!("{number}"), "content": "", "structured_content": list}).to_string();
    let lines = folder.path().join("lines.ndjson");
    fs::write(&lines, (0..4).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let output = svc(&other, &["import", lines.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&other.pool).await.unwrap();
    assert_eq!(stored, 11);
    app.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_export_goes_into_a_folder_that_somebody_else_may_enter() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let part = folder.path().join("archive.part");
    fs::create_dir(&part).unwrap();
    fs::set_permissions(&part, fs::Permissions::from_mode(0o777)).unwrap();
    let output = svc(&app, &["export", archive.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("this user alone may enter"), "{said}");
    assert_eq!(fs::read_dir(&part).unwrap().count(), 0);
    fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).unwrap();
    done(&app, &["export", archive.to_str().unwrap(), "--json"]).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_waits_for_a_model_that_is_away() {
    // Nobody listens there.
    let settings = far("http://127.0.0.1:9");
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let part: ArchivePart = serde_json::from_value(json!({"documents": [{
        "id": 1, "title": "A", "content": "heron", "usetype": "markdown", "settled": "settled", "content_hash": "sha256:",
        "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z",
        "vector": {"model": "m@1", "weight": 1.0, "halves": "AAA="}}]}))
    .unwrap();
    let of = ImportedArchive { archive: "an-archive".to_owned(), parent_id: None };
    let refused = app.client.import_documents(of, Json(part)).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "{refused:?}");
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_with_a_text_of_its_own_leaves_no_task_that_fails() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let part: ArchivePart = serde_json::from_value(json!({"documents": [{
        "id": 1, "title": "A", "content": "heron", "usetype": "markdown", "settled": "settled", "content_hash": "sha256:",
        "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z",
        "container": {"root": 1, "tokens": 3, "failed_children": 0}}]}))
    .unwrap();
    let of = ImportedArchive { archive: "an-archive".to_owned(), parent_id: None };
    let made = app.client.import_documents(of, Json(part)).await.unwrap();
    assert_eq!((made.documents.len(), made.queued), (1, 0));
    let queued: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue").fetch_one(&app.pool).await.unwrap();
    assert_eq!(queued, 0, "nothing embeds what has the sum of others");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_come_in_with_weights_of_which_a_sum_can_be_made() {
    let app = TestApp::start().await;
    let model = app.service.model().await.unwrap().identity().to_owned();
    // A one and 383 zeros.
    let halves = format!("ADwA{}", "AAAA".repeat(255));
    let document = |id: i64| {
        json!({"id": id, "title": "A", "content": "", "usetype": "markdown", "settled": "settled", "content_hash": "sha256:",
            "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z"})
    };
    let part = |weight: f64| -> ArchivePart {
        let mut documents = [1, 2, 3].map(document);
        documents[0]["rule"] = "segment".into();
        for child in &mut documents[1..] {
            child["parent"] = 1.into();
            child["content"] = "heron".into();
            child["vector"] = json!({"model": model, "weight": weight, "halves": halves});
        }
        serde_json::from_value(json!({"documents": documents})).unwrap()
    };
    let of = ImportedArchive { archive: "an-archive".to_owned(), parent_id: None };
    for weight in [3e38, 1e-40, -1.0] {
        let refused = app.client.import_documents(of.clone(), Json(part(weight))).await.unwrap_err();
        assert_eq!(
            (refused.code, &refused.members["field"]),
            (Code::InvalidField, &json!("documents[1].vector.weight"))
        );
    }
    let made = app.client.import_documents(of, Json(part(1e15))).await.unwrap();
    assert_eq!((made.documents.len(), made.vectors), (3, 2));
    drained(&app).await;
    let sum = "SELECT v.weight FROM document_vectors v JOIN node_origins o ON o.document_id = v.document_id WHERE o.rule = 'segment'";
    let sum: f32 = sqlx::query_scalar(sum).fetch_one(&app.pool).await.unwrap();
    assert!((sum / 2e15 - 1.0).abs() < 0.01, "{sum}");
    app.end().await;
}

/// What the rows of tables hold, the shortest first.
async fn records(app: &TestApp) -> Vec<Value> {
    let query = "SELECT structured_content FROM documents WHERE usetype = 'record' ORDER BY octet_length(structured_content::text)";
    sqlx::query_scalar(query).fetch_all(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_with_more_text_than_a_caller_may_give_comes_out_and_in_again() {
    let (app, other) = (TestApp::start().await, idle().await);
    let table = format!("name,body\nheron,short\ncoot,brief\nteal,{}\n", long_words(11_000).trim());
    let id = app.upload_bytes("articles.csv", table).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.nodes_failed, 0);
    drained(&app).await;
    let was = records(&app).await;
    assert!(was.len() == 3 && was[2]["record"]["body"].as_str().unwrap().len() > 1 << 20, "{} records", was.len());
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;
    done(&other, &["import", archive.to_str().unwrap()]).await;
    assert!(records(&other).await == was, "they differ");
    app.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_begins_nowhere_that_it_could_not_end() {
    let app = idle().await;
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    fs::create_dir(folder.path().join("linked")).unwrap();
    symlink(folder.path().join("linked"), &link).unwrap();
    for (path, says) in
        [(link.to_str().unwrap(), "is a link"), ("/proc", "is where a disk is mounted"), ("/dev/null", "is no folder")]
    {
        let output = svc(&app, &["export", path]).await;
        assert!(output.status.code() == Some(1) && said(&output).contains(says), "{path}: {}", said(&output));
        assert!(!Path::new(&format!("{path}.part")).exists(), "{path}: it has begun");
    }
    // No import would take it, and by then the store may be gone.
    let id = app.upload_bytes("heron.txt", "The heron waits.").await.unwrap().document_id;
    let forged = "UPDATE documents SET content = 'A text besides.' WHERE id = $1";
    sqlx::query(forged).bind(id).execute(&app.pool).await.unwrap();
    let archive = folder.path().join("archive");
    let output = svc(&app, &["export", archive.to_str().unwrap()]).await;
    let named = format!("document {id} cannot go into an archive, because its `content` is that of the file's bytes");
    assert!(output.status.code() == Some(1) && said(&output).contains(&named), "{}", said(&output));
    assert!(!archive.exists());
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_links_among_many_are_found_though_no_page_reads_all() {
    let app = idle().await;
    let documents = json!([{"title": "top", "content": "", "key": "top"}, {"title": "child", "content": "", "parent_key": "top"},
        {"title": "one", "content": ""}, {"title": "two", "content": ""}]);
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap().documents;
    let [top, child, one, two] = [0, 1, 2, 3].map(|at: usize| made[at].document_id);
    sqlx::query("INSERT INTO document_links (source_id, target_id, link_type) SELECT $1, $2, 'cites' || n FROM generate_series(1, 10001) n")
        .bind(one)
        .bind(two)
        .execute(&app.pool)
        .await
        .unwrap();
    let link =
        NewLink { target_id: one, link_type: "cites".to_owned(), score: None, metadata: serde_json::Map::default() };
    app.client.create_link(DocumentPath { id: child }, Json(link)).await.unwrap();
    let query = ArchiveQuery { parent_id: Some(top), ..ArchiveQuery::default() };
    let first = app.client.export_links(query.clone()).await.unwrap();
    assert!(first.links.is_empty() && first.next_cursor.is_some(), "{:?}", first.next_cursor);
    let second = app.client.export_links(ArchiveQuery { cursor: first.next_cursor, ..query }).await.unwrap();
    assert_eq!((second.links.len(), second.next_cursor), (1, None));
    let ends = &second.links[0];
    assert_eq!((ends.source, ends.target, ends.outside), (child, one, true));
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let exported = done(&app, &["export", archive.to_str().unwrap(), "--under", &top.to_string()]).await;
    assert_eq!(exported["counts"]["links"], 1, "{exported}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_come_in_calls_as_small_as_the_service_takes_them() {
    let app = idle().await;
    let settings = &[("SVC_RDF_MAX_TRIPLES", "50"), ("SVC_MAX_BODY_BYTES", "64 KiB")];
    let other = TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await;
    let alice = someone(&app, "alice").await;
    someone(&other, "alice").await;
    let documents: Vec<Value> = (0..11).map(|number| json!({"title": format!("{number}"), "content": ""})).collect();
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap().documents;
    let ids: Vec<i64> = made.iter().map(|made| made.document_id).collect();
    grant(&app, &alice, ids[0], GrantRight::Read).await;
    let new = NewPredicate { name: "weighs".to_owned(), ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
    let fact = |weight: usize, source: Option<i64>| json!({"subject_id": ids[0], "predicate": "weighs", "object_literal": weight.to_string(), "source_id": source});
    // Ten documents state each of the first.
    let stated = (0..5).flat_map(|weight| ids[1..].iter().map(move |source| (weight, Some(*source))));
    let facts: Vec<Value> =
        stated.chain((5..300).map(|weight| (weight, None))).map(|(weight, source)| fact(weight, source)).collect();
    let facts = serde_json::from_value(json!({"facts": facts, "on_overlap": "merge"})).unwrap();
    app.client.assert_facts(Json(facts)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!(imported["facts"], json!({"created": 300, "merged": 0, "existing": 0, "outside": 0, "left_out": 0}));
    assert_eq!(imported["grants"]["created"], 1, "{imported}");
    let cited: i64 = sqlx::query_scalar("SELECT count(*) FROM triple_citations").fetch_one(&other.pool).await.unwrap();
    assert_eq!(cited, 50);
    app.end().await;
    other.end().await;
}
