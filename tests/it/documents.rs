//! Documents: the nodes of the tree.
use crate::support::{TestApp, Wish, document, invariants, refusing_soon, sample};
use serde_json::json;
use svc::search::bm25;
use svc_client::{
    Code, Json,
    wire::{DocumentPage, DocumentPath, EmbedQuery, NewDocument, PageQuery, Settled, WaitQuery},
};
use svc_ids::IndexId;

#[tokio::test]
async fn a_document_is_read_back_as_it_was_written() {
    let app = TestApp::start().await;
    let new = serde_json::from_value(json!({
        "title": "Überschrift", "content": "Zwei\nZeilen 🎈", "usetype": "raw", "position": 3,
        "event_time": "2021-02-03T04:05:06Z", "structured_content": {"a": [1, null, "x"]},
    }))
    .unwrap();
    let created =
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    let read = app
        .client
        .read_document(DocumentPath { id: created.id }, EmbedQuery { include_embed: true })
        .await
        .unwrap()
        .value()
        .unwrap();
    assert_eq!(
        (read.title.as_str(), read.content.as_str(), read.usetype.as_str()),
        ("Überschrift", "Zwei\nZeilen 🎈", "raw")
    );
    assert_eq!((read.position, read.settled, read.path.len(), read.parent_id), (Some(3), Settled::Settled, 0, None));
    assert_eq!(serde_json::to_value(&read.structured_content).unwrap(), json!({"a": [1, null, "x"]}));
    assert_eq!(read.content_hash, svc::store::documents::content_hash("Zwei\nZeilen 🎈"));
    let embed = read.embed.unwrap();
    let norm: f32 = embed.iter().map(|x| x * x).sum();
    assert!(embed.len() == 768 && (norm - 1.0).abs() < 1e-4, "{} {norm}", embed.len());
    let plain = app
        .client
        .read_document(DocumentPath { id: created.id }, EmbedQuery::default())
        .await
        .unwrap()
        .value()
        .unwrap();
    assert!(plain.embed.is_none());
    let evidence = app.client.read_evidence(DocumentPath { id: created.id }).await.unwrap().evidence;
    assert_eq!(evidence["rule"], "asserted", "no task and no upload made it");
    app.end().await;
}

#[tokio::test]
async fn both_clients_answer_alike() {
    let app = TestApp::start().await;
    let id = app.create("One", "The same over both ways.", None).await.id;
    let path = DocumentPath { id };
    let remote = app.client.read_document(path, EmbedQuery { include_embed: true }).await.unwrap().value().unwrap();
    let local = app.in_process.read_document(path, EmbedQuery { include_embed: true }).await.unwrap().value().unwrap();
    assert_eq!(serde_json::to_value(remote).unwrap(), serde_json::to_value(local).unwrap());
    let missing = DocumentPath { id: 999_999 };
    let (remote, local) = (
        app.client.read_evidence(missing).await.unwrap_err(),
        app.in_process.read_evidence(missing).await.unwrap_err(),
    );
    assert_eq!((remote.code, remote.detail), (local.code, local.detail));
    let refused = app.in_process.create_document(WaitQuery::default(), Json(document("", "x"))).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidField);
    app.end().await;
}

#[tokio::test]
async fn lists_come_page_by_page_in_a_stable_order() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let root = app.client.create_document(WaitQuery::default(), Json(document("Root", ""))).await.unwrap();
    let mut expected = Vec::new();
    for (title, position) in [
        ("late", Some(9)),
        ("unplaced one", None),
        ("first", Some(-1)),
        ("tie a", Some(4)),
        ("tie b", Some(4)),
        ("unplaced two", None),
    ] {
        let mut new = document(title, "");
        (new.parent_id, new.position) = (Some(root.id), position);
        let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
        expected.push((position.map_or(i64::MAX, i64::from), id, title));
    }
    expected.sort();
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let query = PageQuery { cursor, limit: Some(2), ..PageQuery::default() };
        let page = app.client.list_children(DocumentPath { id: root.id }, query).await.unwrap();
        assert!(page.documents.len() <= 2);
        seen.extend(page.documents.into_iter().map(|d| d.title));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected.iter().map(|(_, _, title)| *title).collect::<Vec<_>>());
    assert_eq!(app.subtree(root.id).await.len(), 6);
    let first = expected[0].1;
    let others = titles(app.client.list_siblings(DocumentPath { id: first }, PageQuery::default()).await.unwrap());
    assert_eq!(others, expected[1..].iter().map(|(_, _, title)| *title).collect::<Vec<_>>());
    let roots = app.client.list_roots(PageQuery::default()).await.unwrap();
    assert_eq!((roots.documents.len(), roots.next_cursor), (1, None));
    let wrong = PageQuery { cursor: Some("x".into()), ..PageQuery::default() };
    assert_eq!(
        app.client.list_children(DocumentPath { id: root.id }, wrong).await.unwrap_err().code,
        Code::InvalidField
    );
    app.end().await;
}

fn titles(page: DocumentPage) -> Vec<String> {
    page.documents.into_iter().map(|document| document.title).collect()
}

#[tokio::test]
async fn a_document_has_ancestors_root_first_and_a_root_has_other_roots_as_siblings() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let mut line: Vec<i64> = Vec::new();
    for title in ["top", "middle", "low", "leaf"] {
        let new = NewDocument { parent_id: line.last().copied(), ..document(title, "") };
        line.push(app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id);
    }
    let leaf = DocumentPath { id: line[3] };
    let all = app.client.list_ancestors(leaf, PageQuery::default()).await.unwrap();
    assert_eq!((titles(all.clone()).join(" "), all.next_cursor), ("top middle low".to_owned(), None));
    let query = |cursor| PageQuery { cursor, limit: Some(2), ..PageQuery::default() };
    let first = app.client.list_ancestors(leaf, query(None)).await.unwrap();
    assert_eq!(titles(first.clone()), ["top", "middle"]);
    let second = app.client.list_ancestors(leaf, query(first.next_cursor)).await.unwrap();
    assert_eq!((titles(second.clone()).join(" "), second.next_cursor), ("low".to_owned(), None));
    let strange = app.client.list_ancestors(leaf, query(Some(line[3].to_string()))).await.unwrap_err();
    assert_eq!(strange.code, Code::InvalidField);

    let mut others = Vec::new();
    for (title, position) in [("other", None), ("last", Some(9)), ("first", Some(-9))] {
        let new = NewDocument { position, ..document(title, "") };
        others.push(app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id);
    }
    let roots = app.client.list_siblings(DocumentPath { id: others[0] }, PageQuery::default()).await.unwrap();
    assert_eq!(titles(roots), ["first", "last", "top"]);
    let (mut roots, mut cursor) = (Vec::new(), None);
    for _ in 0..2 {
        let page = app.client.list_roots(query(cursor)).await.unwrap();
        cursor = page.next_cursor.clone();
        roots.extend(titles(page));
    }
    assert_eq!((roots.join(" "), cursor), ("first last top other".to_owned(), None));
    assert!(app.client.list_siblings(leaf, PageQuery::default()).await.unwrap().documents.is_empty());
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_by_name() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let mut orphan = document("t", "c");
    orphan.parent_id = Some(424_242);
    assert_eq!(app.client.create_document(WaitQuery::default(), Json(orphan)).await.unwrap_err().code, Code::NotFound);
    for (path, body, field) in [
        ("/documents", json!({"title": "a\u{0}b", "content": "c"}), "title"),
        ("/documents", json!({"title": "t", "content": "c\u{0}d"}), "content"),
        ("/documents", json!({"title": "t", "content": "c", "usetype": "\u{0}"}), "usetype"),
        (
            "/documents",
            json!({"title": "t", "content": "c", "structured_content": {"k": [{"n": "\u{0}"}]}}),
            "structured_content.k[0].n",
        ),
        (
            "/documents",
            json!({"title": "t", "content": "c", "structured_content": {"k\u{0}": 1}}),
            "structured_content",
        ),
        ("/search/bm25", json!({"query": "a\u{0}b"}), "query"),
        ("/search/bm25", json!({"query": "a", "index": "\u{0}"}), "index"),
        (
            "/search/bm25",
            json!({"query": "a", "filter": {"structured_content": {"k": "\u{0}"}}}),
            "filter.structured_content.k",
        ),
    ] {
        let answer = app.raw("POST", path).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{body}");
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert!(problem["field"].as_str().unwrap().starts_with(field), "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("U+0000"), "{problem}");
    }
    let none = app.client.list_roots(PageQuery::default()).await.unwrap();
    assert!(none.documents.is_empty(), "nothing of it was stored");
    let created = app.raw("POST", "/documents").json(&json!({"title": "a", "content": "b"})).send().await.unwrap();
    assert_eq!(created.status(), 201);
    let location = created.headers()["location"].to_str().unwrap().to_owned();
    let stored: serde_json::Value = created.json().await.unwrap();
    assert_eq!(location, format!("/documents/{}", stored["id"]));
    app.end().await;
}

#[tokio::test]
async fn a_title_is_one_line_at_every_door() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let id = app.client.create_document(WaitQuery::default(), Json(document("t", "c"))).await.unwrap().id;
    let one = format!("/documents/{id}");
    for title in ["a\nb", "a\tb", "a\u{1b}[2Jb", "a\u{9b}b", " "] {
        for (method, path, body, field) in [
            ("POST", "/documents", json!({"title": title, "content": "c"}), "title"),
            (
                "POST",
                "/documents/batch",
                json!({"documents": [{"title": title, "content": "c"}]}),
                "documents[0].title",
            ),
            ("PATCH", one.as_str(), json!({"title": title}), "title"),
            ("POST", "/ingest", json!({"entry": "raw", "content": "c", "title": title}), "title"),
            ("POST", "/templates", json!({"title": title, "content": "c"}), "title"),
        ] {
            let answer = app.raw(method, path).json(&body).send().await.unwrap();
            assert_eq!(answer.status(), 422, "{path} {body}");
            let problem: serde_json::Value = answer.json().await.unwrap();
            assert_eq!(problem["field"], field, "{path} {body}: {problem}");
        }
    }
    app.upload_bytes("a\n\u{1b}[2Jb.txt", "A heron.").await.unwrap();
    let titles = titles(app.client.list_roots(PageQuery::default()).await.unwrap());
    assert!(titles.iter().all(|title| !title.is_empty() && !title.contains(char::is_control)), "{titles:?}");
    assert_eq!(titles.len(), 2);
    app.end().await;
}

#[tokio::test]
async fn the_largest_and_smallest_numbers_are_read_back_exactly_and_larger_ones_are_refused() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let create = async |number: &str| {
        let body = format!(r#"{{"title": "t", "content": "c", "structured_content": {{"k": [{number}]}}}}"#);
        app.raw("POST", "/documents").header("content-type", "application/json").body(body).send().await.unwrap()
    };
    assert!(create("1e309").await.status().is_client_error());
    let numbers = [f64::MAX, f64::MIN, 1.5e308, f64::MIN_POSITIVE, 5e-324];
    for number in numbers {
        assert_eq!(create(&format!("{number:e}")).await.status(), 201, "{number}");
    }
    let listed = app.client.list_roots(PageQuery::default()).await.unwrap().documents;
    let read = listed.iter().map(|document| document.structured_content["k"][0].as_f64());
    assert_eq!(read.collect::<Vec<_>>(), numbers.map(Some));
    app.end().await;
}

/// The number of rows in every table.
async fn rows(app: &TestApp) -> Vec<(String, i64)> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY 1",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let mut counts = Vec::new();
    for table in tables {
        let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        counts.push((table, sqlx::query_scalar(query).fetch_one(&app.pool).await.unwrap()));
    }
    counts.push((
        "pg_largeobject_metadata".into(),
        sqlx::query_scalar("SELECT count(*) FROM pg_largeobject_metadata").fetch_one(&app.pool).await.unwrap(),
    ));
    counts
}

#[tokio::test]
async fn delete_takes_every_row_and_byte() {
    let app = TestApp::start().await;
    let (kept, _) = app.ingest(&sample("handbook.md")).await;
    let (gone, _) = app.ingest(&sample("quarterly-review.pdf")).await;
    let note = app.create("A note on the review", "It lies under the file.", Some(gone)).await;
    app.client.delete_document(DocumentPath { id: gone }).await.unwrap();
    for id in [gone, note.id] {
        assert_eq!(
            app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap_err().code,
            Code::NotFound
        );
    }
    assert_eq!(app.client.delete_document(DocumentPath { id: gone }).await.unwrap_err().code, Code::NotFound);
    invariants::check_drained(&app.pool).await;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE id = $1 OR path @> ARRAY[$1]")
        .bind(kept)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    let all: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, all, "something of the deleted file is left");
    app.client.delete_document(DocumentPath { id: kept }).await.unwrap();
    // The words go with the next compactions, and a look once a day takes the terms that nothing has any more.
    while bm25::compact(&app.pool, IndexId(1)).await.unwrap().busy {}
    while bm25::purge_terms(&app.pool, IndexId(1)).await.unwrap().busy {}
    // The queue keeps these: workers, what they served and how long they took, the ledger, the name of the store, the count of changes of access, and which objects of an
    // object store go later. What happened is told later.
    let own = [
        "_sqlx_migrations",
        "access_changes",
        "blob_garbage",
        "blob_store",
        "event_counter",
        "event_outbox",
        "schema_functions",
        "knowledge_clock",
        "process_timings",
        "workers_left",
        "upkeep_turn",
        "workers",
        "search_indexes",
    ];
    let left: Vec<_> =
        rows(&app).await.into_iter().filter(|(table, count)| *count > 0 && !own.contains(&table.as_str())).collect();
    assert!(left.is_empty(), "{left:?}");
    let objects: i64 = sqlx::query_scalar("SELECT count(*) FROM blob_garbage").fetch_one(&app.pool).await.unwrap();
    assert_eq!(objects, if app.service.settings.blob_store.is_some() { 2 } else { 0 }, "an object a file");
    app.end().await;
}

/// Creates a document, and has the database do this, in PL/pgSQL, at the end of the statement that deletes it.
async fn with_end_of_delete(app: &TestApp, body: &str) -> i64 {
    let created = app.client.create_document(WaitQuery::default(), Json(document("A folder", ""))).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "CREATE FUNCTION at_end() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} RETURN NULL; END$$;
         CREATE TRIGGER at_end AFTER DELETE ON documents FOR EACH STATEMENT EXECUTE FUNCTION at_end()"
    )))
    .execute(&app.pool)
    .await
    .unwrap();
    created.document.id
}

#[tokio::test]
async fn a_statement_of_a_delete_has_the_longer_of_two_limits() {
    for (request, limit) in [("700", "700s"), ("2", "5min")] {
        let settings = &[("SVC_STATEMENT_TIMEOUT_SECONDS", "300"), ("SVC_REQUEST_TIMEOUT_SECONDS", request)];
        let app = TestApp::with(Wish { settings, no_worker: true, ..Default::default() }).await;
        let has_limit =
            format!("ASSERT current_setting('statement_timeout') = '{limit}', current_setting('statement_timeout');");
        let id = with_end_of_delete(&app, &has_limit).await;
        app.client.delete_document(DocumentPath { id }).await.unwrap();
        app.end().await;
    }
}

#[tokio::test]
async fn a_delete_that_takes_too_long_deletes_nothing_and_says_what_to_do() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let id = with_end_of_delete(&app, "RAISE EXCEPTION USING ERRCODE = 'query_canceled';").await;
    let refused = app.client.delete_document(DocumentPath { id }).await.unwrap_err();
    assert_eq!(refused.code, Code::TimedOut, "{refused}");
    assert!(format!("{refused:?}").contains("a part at a time"), "{refused:?}");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, 1);
    app.end().await;
}

#[tokio::test]
async fn an_edit_inside_a_held_region_is_refused_naming_the_holder() {
    let app = TestApp::with(Wish { waits: refusing_soon(), no_worker: true, ..Default::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let claimer =
        svc::store::tasks::Claimer { worker_id: "w".into(), badges: None, strict: false, lease: crate::queue::LEASE };
    let grants = svc::store::tasks::claim(&app.pool, &claimer, &[(svc_actors::Lane::Cpu, 1)]).await.unwrap().grants;
    let folder = Json(document("Folder", "What is in it."));
    let folder = app.client.create_document(WaitQuery::default(), folder).await.unwrap().id;
    let refused = crate::edits::patch(&app, id, json!({"parent_id": folder})).await.unwrap_err();
    assert_eq!((refused.code, refused.members["task_id"].as_i64()), (Code::Conflict, Some(grants[0].task_id.0)));
    assert!(refused.members.contains_key("retry_after") && refused.to_string().contains("/cancel"), "{refused}");
    // The worker has died, and its lease lasts.
    app.patient().delete_document(DocumentPath { id }).await.unwrap();
    app.client.delete_document(DocumentPath { id: folder }).await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_file_under_another_counts_in_both_and_its_end_disturbs_neither() {
    let mut app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let outer = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let into = |name| {
        let query = svc_client::wire::UploadQuery { parent_id: Some(outer), ..Default::default() };
        app.client.upload_file(
            query,
            svc_client::FileUpload::from_bytes(name, format!("# {name}\n\nA file under another."), None),
        )
    };
    let (gone, kept) = (into("gone.md").await.unwrap().document_id, into("kept.md").await.unwrap().document_id);
    let note = app
        .client
        .create_document(
            WaitQuery::default(),
            Json({
                let mut note = document("Note", "A note under the outer file.");
                note.parent_id = Some(outer);
                note
            }),
        )
        .await
        .unwrap()
        .id;
    let total = async |id| app.client.read_frontier(DocumentPath { id }).await.unwrap().nodes_total;
    assert_eq!((total(outer).await, total(kept).await), (4, 1));
    app.client.delete_document(DocumentPath { id: gone }).await.unwrap();
    app.client.delete_document(DocumentPath { id: note }).await.unwrap();
    assert_eq!(total(outer).await, 2);
    invariants::check(&app.pool).await;
    app.start_worker().await;
    let inner = app.settled(kept).await;
    let whole = app.settled(outer).await;
    assert_eq!((inner.settled, whole.settled, whole.nodes_failed), (Settled::Settled, Settled::Settled, 0));
    assert_eq!(whole.nodes_total, 1 + app.subtree(outer).await.len() as i64);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
