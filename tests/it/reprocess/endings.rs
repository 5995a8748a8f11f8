//! Reprocesses that fail, are cancelled, or lose their workers.
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reprocess_that_fails_leaves_the_tree_that_the_file_has() {
    let app = TestApp::start().await;
    let password = json!({"extract": {"password": "heron"}});
    let upload = FileUpload::from_path(&sample("locked.pdf"), Some(password.clone())).await.unwrap();
    let id = app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let tree = app.subtree(id).await;
    assert!(!tree.is_empty());
    // What was read with the password is still there, so it is not needed again.
    reprocess(&app, id, short(), false).await.unwrap();
    app.settled(id).await;
    assert_eq!(evidence(&app, id, "reprocess").await["state"], "done");
    let tree: Vec<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    sqlx::query("DELETE FROM node_evidence WHERE document_id = $1 AND name = 'unlocked'")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    let begun = reprocess(&app, id, json!({}), false).await.unwrap();
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    assert_eq!(app.subtree(id).await.iter().map(|node| node.id).collect::<Vec<_>>(), tree);
    let ended = evidence(&app, id, "reprocess").await;
    assert_eq!(
        (&ended["state"], &ended["reason"]["task_type"], &ended["reason"]["error_type"]),
        (&json!("failed"), &json!("probe"), &json!("permanent"))
    );
    assert_eq!(ended["started_at"], json!(begun.started_at));
    assert_eq!(evidence(&app, id, "options").await["structure"]["max_tokens"], 20, "the options are those of its tree");
    let (kind, data): (String, Value) = sqlx::query_as(
        "SELECT kind, data FROM event_outbox WHERE document_id = $1 AND NOT owner_only ORDER BY id DESC LIMIT 1",
    )
    .bind(id)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(
        (kind.as_str(), &data["warning"], &data["detail"]["state"]),
        ("ingest.warning", &json!("reprocess"), &json!("failed"))
    );
    let wrong = reprocess(&app, id, json!({"extract": {"password": "wrong"}}), false).await.unwrap_err();
    assert_eq!((wrong.code, hidden(&app).await), (Code::WrongPassword, vec![]));
    reprocess(&app, id, password, false).await.unwrap();
    app.settled(id).await;
    assert_eq!(evidence(&app, id, "reprocess").await["state"], "done");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_file_gets_a_tree_and_a_tree_with_more_failures_is_not_taken() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    let id = ingested(&app, Some(folder)).await;
    let tree: Vec<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    app.client.make_raptor(DocumentPath { id: folder }, wait, OptionalJson(None)).await.unwrap();
    let above = app.subtree(folder).await.len();
    let fail_embed = async |id: i64| {
        pause(&app, "embed").await;
        let root_id = Some(reprocess(&app, id, short(), false).await.unwrap().root_id);
        let query = || TaskQuery { root_id, task_type: Some("embed".into()), ..TaskQuery::default() };
        let task = until("a task that embeds", async || {
            app.client.list_tasks(query()).await.unwrap().tasks.first().map(|task| task.id)
        })
        .await;
        app.client.cancel_task(TaskPath { id: task }).await.unwrap();
        resume(&app, "embed").await;
        app.settled(id).await;
        evidence(&app, id, "reprocess").await
    };
    let ended = fail_embed(id).await;
    assert_eq!((&ended["state"], &ended["reason"]["code"]), (&json!("failed"), &json!("more_failed_parts")));
    assert_eq!(app.subtree(id).await.iter().map(|node| node.id).collect::<Vec<_>>(), tree);
    assert_eq!(app.subtree(folder).await.len(), above, "summaries that tell of it stay as well");

    // A file without a tree has nothing to lose.
    pause(&app, "probe").await;
    let bytes = "# Grebes\n\nThe grebe dives.";
    let other = app.upload_bytes("grebes.md", bytes).await.unwrap().document_id;
    let refused = reprocess(&app, other, json!({}), true).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused}");
    app.client.cancel_ingest(DocumentPath { id: other }).await.unwrap();
    assert_eq!(frontier(&app, other).await.settled, Settled::Failed);
    resume(&app, "probe").await;
    let failed = || TaskQuery { root_id: Some(other), status: Some(TaskStatus::Failed), ..TaskQuery::default() };
    let old = app.client.list_tasks(failed()).await.unwrap().tasks[0].id;
    reprocess(&app, other, json!({}), false).await.unwrap();
    assert_eq!(app.settled(other).await.settled, Settled::Settled);
    assert_eq!(of(&app.subtree(other).await, "section", "Grebes").len(), 1);
    assert_eq!(app.client.list_tasks(failed()).await.unwrap().tasks.len(), 0, "what failed was of the old tree");
    assert_eq!(app.client.retry_task(TaskPath { id: old }).await.unwrap_err().code, Code::NotFound);
    assert_eq!(evidence(&app, other, "cancelled").await, Value::Null);

    // Not even where a part of the new one fails.
    pause(&app, "probe").await;
    let third = app.upload_bytes("coots.md", "# Coots\n\nThe coot dives too.").await.unwrap().document_id;
    app.client.cancel_ingest(DocumentPath { id: third }).await.unwrap();
    assert_eq!(frontier(&app, third).await.settled, Settled::Failed);
    resume(&app, "probe").await;
    assert_eq!(fail_embed(third).await["state"], "done");
    let tree = app.subtree(third).await;
    assert_eq!(of(&tree, "section", "Coots").len(), 1, "{tree:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_or_a_delete_takes_a_reprocess_along_and_a_move_does_not_hinder_it() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    let tree: Vec<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    let folder = app.create("Folder", "A folder.", None).await.id;
    let begun = async || {
        pause(&app, "embed").await;
        reprocess(&app, id, short(), false).await.unwrap();
        until("its tree", async || (frontier(&app, id).await.reprocess?.nodes_total > 3).then_some(())).await;
    };
    let gone = async || until("the reprocess to be gone", async || hidden(&app).await.is_empty().then_some(())).await;
    begun().await;
    let cancelled = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert!(cancelled.tasks_cancelled > 0, "{cancelled:?}");
    gone().await;
    let now = frontier(&app, id).await;
    assert_eq!((now.reprocess, now.settled, now.nodes_in_flight), (None, Settled::Settled, 0));
    assert_eq!(app.subtree(id).await.iter().map(|node| node.id).collect::<Vec<_>>(), tree);
    assert_eq!(evidence(&app, id, "reprocess").await["state"], "cancelled");
    invariants::check_drained(&app.pool).await;

    // It does not matter where the file lies, who may reach it, and what changes in it meanwhile.
    begun().await;
    patch(&app, id, json!({"parent_id": folder, "title": "Moved"})).await.unwrap();
    app.client.protect_document(DocumentPath { id: folder }).await.unwrap();
    app.client.delete_document(DocumentPath { id: tree[0] }).await.unwrap();
    resume(&app, "embed").await;
    app.settled(id).await;
    let document = read(&app, id).await;
    assert_eq!((document.path, document.title.as_str()), (vec![folder], "Moved"));
    let tree = app.subtree(id).await;
    assert_eq!((of(&tree, "section", "Herons").len(), of(&tree, "section", "Coots").len()), (1, 1));
    assert!(tree.iter().all(|node| node.path.starts_with(&[folder, id])));
    invariants::check_drained(&app.pool).await;

    // A part that gets a door of its own keeps it: the new tree, which has none there, does not take its place.
    begun().await;
    let section = of(&tree, "section", "Coots")[0];
    app.client.protect_document(DocumentPath { id: section }).await.unwrap();
    resume(&app, "embed").await;
    app.settled(id).await;
    let ended = evidence(&app, id, "reprocess").await;
    assert_eq!((&ended["state"], &ended["reason"]["code"]), (&json!("failed"), &json!("access_roots")));
    let refused = reprocess(&app, id, short(), false).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["document_ids"]), (Code::Conflict, &json!([section])));
    app.client.unprotect_document(DocumentPath { id: section }).await.unwrap();
    invariants::check_drained(&app.pool).await;

    begun().await;
    app.client.delete_document(DocumentPath { id: folder }).await.unwrap();
    gone().await;
    let left = "SELECT (SELECT count(*) FROM documents) + (SELECT count(*) FROM document_blobs) + (SELECT count(*) FROM search_index_entries)";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&app.pool).await.unwrap(), 0);
    resume(&app, "embed").await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reprocess_survives_the_death_of_its_workers() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.upload_bytes("birds.md", text()).await.unwrap().document_id;
    let worker = crash::worker(&app, 0);
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let old: BTreeSet<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    // Nobody can put the new tree in its place while somebody may create documents. A connection of the pool would be ended before long.
    let mut creating = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock_shared($1)")
        .bind(AdvisoryLock::Access.key())
        .execute(&mut creating)
        .await
        .unwrap();
    worker.kill();
    reprocess(&app, id, short(), false).await.unwrap();
    // A task whose lease is lost for a third time would fail.
    for number in 1..3 {
        let worker = crash::worker(&app, number);
        let name = format!("victim-{number}");
        until("the worker to hold a task, or to wait for its turn", async || {
            let held: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM task_queue WHERE claimed_by = $1) OR NOT EXISTS (SELECT 1 FROM task_queue WHERE NOT final)",
            )
            .bind(&name)
            .fetch_one(&app.pool)
            .await
            .unwrap();
            held.then_some(())
        })
        .await;
        worker.kill();
        invariants::check(&app.pool).await;
    }
    let worker = crash::worker(&app, 3);
    let settled =
        "SELECT count(*) FROM generations g JOIN documents d ON d.id = g.generation_id WHERE d.settled = 'settled'";
    until("the new tree to settle", async || {
        (sqlx::query_scalar::<_, i64>(settled).fetch_one(&app.pool).await.unwrap() == 1).then_some(())
    })
    .await;
    worker.kill();
    let now: BTreeSet<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    assert_eq!(now, old);
    creating.close().await.unwrap();
    // A worker that comes later takes the step that is left.
    let mut last = crash::draining(&app, 4);
    let ended = tokio::task::spawn_blocking(move || last.0.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    assert_eq!(evidence(&app, id, "reprocess").await["state"], "done");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// To delete a large tree takes long, and whoever puts another one in its place keeps everybody from creating.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_create_while_the_tree_that_was_replaced_is_deleted() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    let before = app.subtree(id).await;
    let old = before.iter().find(|node| node.usetype == "chunk").unwrap().id;
    let linked = app.create("Note", "A note on herons.", None).await.id;
    link(&app, linked, old).await;
    // The old tree can be moved, and not deleted.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM documents WHERE id = $1 FOR KEY SHARE").bind(old).execute(&mut *held).await.unwrap();
    reprocess(&app, id, short(), false).await.unwrap();
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    until_a_statement_waits(&app.pool).await;
    let created =
        app.client.create_document(WaitQuery::default(), Json(document("Other", "A coot."))).await.unwrap().id;
    let after: BTreeSet<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    assert!(after.len() > before.len() && before.iter().all(|node| !after.contains(&node.id)));
    assert_eq!(frontier(&app, id).await.nodes_total, 1 + after.len() as i64);
    let gone = app.client.read_document(DocumentPath { id: old }, EmbedQuery::default()).await.unwrap_err();
    assert_eq!((gone.code, links(&app, linked).await.len()), (Code::NotFound, 0));
    assert!(!searches(&app).await.values().any(|(found, ..)| found.contains(&old)));
    invariants::check(&app.pool).await;
    held.commit().await.unwrap();
    until("the old tree to be deleted", async || hidden(&app).await.is_empty().then_some(())).await;
    app.client.delete_document(DocumentPath { id: created }).await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_tree_takes_its_place_without_reading_the_tasks_of_other_files() {
    let app = TestApp::start().await;
    let id = ingested(&app, None).await;
    nearly_done(&app, id).await;
    let mut tx = app.pool.begin().await.unwrap();
    sqlx::query(
        "WITH others AS (
             INSERT INTO documents (title, content, usetype, content_hash, guard)
             SELECT 'Note', '', 'markdown', 'sha256:' || md5(n::text), 0 FROM generate_series(1, 1000) n RETURNING id)
         INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, status, final, ready)
         SELECT 'test', id, 'io', id || '/', 0, id, 'self', 'completed', true, false FROM others, generate_series(1, 50)",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    sqlx::query("ANALYZE task_queue").execute(&mut *tx).await.unwrap();
    let file = place(&mut tx, id).await;
    let generation = store::reprocess::running(&mut tx, DocumentId(id)).await.unwrap().unwrap();
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'task_queue'";
    let before: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
    store::reprocess::put_in_place(&mut tx, &file, &generation).await.unwrap();
    // A large file has many nodes, of which most have no task.
    let gone: Vec<DocumentId> = (1..=5_000).map(|n| DocumentId(1_000_000 + n)).collect();
    let followed = gone.iter().map(|id| (*id, *id)).collect();
    store::reprocess::redirect_extractions(&mut tx, &file, &followed, &gone).await.unwrap();
    let after: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(after - before, 0, "the tasks of a file are found by an index");
    let tasks = "SELECT count(*) FILTER (WHERE root_id = $1 AND final) > 0, count(*) FILTER (WHERE root_id = $2) FROM task_queue";
    let tasks: (bool, i64) = sqlx::query_as(tasks).bind(id).bind(generation.id).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(tasks, (true, 0), "what has ended came along");
    tx.rollback().await.unwrap();
    resume(&app, "summarize").await;
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
