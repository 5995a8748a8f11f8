//! Which model a process works with, and what it says of it, whatever its settings and the moves before left it with.
use super::{ended, found, idle, last, models, of_type, other, with_other};
use crate::{
    runner::{Script, far, runner_with},
    support::{
        self, TestApp, Wish, invariants, searches::ask, until, until_a_statement_like_this_waits,
        until_a_statement_waits,
    },
};
use serde_json::json;
use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use svc::store::model_moves;
use svc_client::{
    Code, Failure, Json, OptionalJson,
    wire::{
        ArchivePart, ArchiveQuery, BlockedBy, DocumentPath, EmbedOptions, ImportedArchive, IndexDocumentPath,
        ModelMoveState, SegmentRequest, TaskQuery, TaskTypePath, WaitQuery,
    },
};

/// The identities of the small model and of the one to which it is moved.
fn identities() -> (String, String) {
    (support::engine().info().identity.clone(), other().info().identity.clone())
}

/// Says that vectors were moved from the one model to the other, which serves.
async fn moved(app: &TestApp, from: &str, to: &str, state: &str) {
    sqlx::query(
        "INSERT INTO model_moves (serving, from_model, to_model, replaced, state, wanted) VALUES ($2, $1, $2, ARRAY[$1], $3, 1)",
    )
    .bind(from)
    .bind(to)
    .bind(state)
    .execute(&app.pool)
    .await
    .unwrap();
    app.service.look_at_moves().await;
}

/// Waits until the answer to a search by meaning is that this process lacks the model that serves.
async fn cannot_search(app: &TestApp) {
    let body = json!({"query": "a bird"});
    let refused = until("a search to be refused", async || ask(&app.client, "vector", &body).await.err()).await;
    assert!(refused.code == Code::Unavailable && refused.detail.contains("another model"), "{refused}");
}

/// The model with which a process works, if it works with one.
async fn works_with(app: &TestApp) -> Option<String> {
    app.service.model().await.ok().map(|model| model.identity().to_owned())
}

#[tokio::test]
async fn who_was_replaced_stays_so_until_it_serves_again() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let (old, new) = identities();
    let mut conn = app.pool.acquire().await.unwrap();
    for (from, to, expected) in [
        (&*old, &*new, vec![&*old]),
        // Somebody asks for the same once more.
        (&*new, &*new, vec![&*old]),
        (&*new, "third@3", vec![&*old, &*new]),
    ] {
        assert!(model_moves::start(&mut conn, from, to).await.unwrap());
        model_moves::serve(&mut conn).await.unwrap();
        assert!(model_moves::end(&mut conn).await.unwrap());
        assert_eq!(model_moves::served(&mut conn).await.unwrap().unwrap().replaced, expected);
        cannot_search(&app).await;
    }
    assert!(model_moves::start(&mut conn, "third@3", &old).await.unwrap());
    model_moves::serve(&mut conn).await.unwrap();
    assert_eq!(model_moves::served(&mut conn).await.unwrap().unwrap().replaced, [&*new, "third@3"]);
    drop(conn);
    until("it to serve again", async || (works_with(&app).await.as_ref() == Some(&old)).then_some(())).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_the_new_model_alone_waits_for_the_move_or_its_end() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = identities();
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    app.client.pause_task_type(of_type()).await.unwrap();
    app.client.start_model_move().await.unwrap();
    let wish = Wish { engine: Some(other()), no_worker: true, database: Some(app.options.clone()), ..Wish::default() };
    let early = TestApp::with(wish).await;
    cannot_search(&early).await;
    app.sampled().await;
    early.sampled().await;
    let unready = early.client.read_readiness().await.unwrap_err();
    assert!(
        unready.status == 503 && unready.detail.contains(&format!("model: the vectors of {old} serve")),
        "{unready}"
    );
    assert_eq!(found(&app, "a bird").await, [herons]);
    // Whoever looks for what is wrong may see the move, and call it off.
    let shown = early.client.read_model_move().await.unwrap();
    assert_eq!((shown.model, shown.last.unwrap().state), (old, ModelMoveState::Moving));

    // Between two moves the settings may name any model.
    early.client.cancel_model_move().await.unwrap();
    early.client.read_model_move().await.unwrap();
    ended(&app, ModelMoveState::Cancelled).await;
    until("it to be used", async || (works_with(&early).await.as_ref() == Some(&new)).then_some(())).await;
    app.client.resume_task_type(of_type()).await.unwrap();
    until("the tasks to be over", async || (last(&app).await.tasks == 0).then_some(())).await;
    early.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_the_new_model_alone_leaves_the_texts_to_those_that_have_the_old_one() {
    const NOTES: i64 = 40;
    let mut app = TestApp::with(with_other()).await;
    let (old, _) = identities();
    app.create("Herons", "A heron waits in the shallows.", None).await;
    app.client.pause_task_type(of_type()).await.unwrap();
    app.client.start_model_move().await.unwrap();
    app.stop_worker().await;
    for n in 0..NOTES {
        let new = support::document(&format!("Note {n}"), "The clerk files the minutes.");
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
    }
    let wish = Wish {
        engine: Some(other()),
        settings: &[("SVC_WORKER_ID", "early")],
        database: Some(app.options.clone()),
        ..Wish::default()
    };
    let early = TestApp::with(wish).await;
    let rests = "SELECT EXISTS (SELECT FROM task_queue WHERE put_off_code = 'model_not_serving')
                    AND NOT EXISTS (SELECT FROM task_reservation WHERE worker = 'early')
                    AND EXISTS (SELECT FROM workers w CROSS JOIN jsonb_array_elements(w.snapshot -> 'lanes') AS l(lane)
                                 WHERE w.worker_id = 'early' AND l.lane ->> 'lane' = 'model' AND l.lane -> 'busy' = l.lane -> 'permits')";
    until("its slots to stay empty", async || {
        sqlx::query_scalar::<_, bool>(rests).fetch_one(&app.pool).await.unwrap().then_some(())
    })
    .await;
    let put_off = "SELECT count(*) FROM task_queue WHERE put_off_code = 'model_not_serving'";
    let put_off: i64 = sqlx::query_scalar(put_off).fetch_one(&app.pool).await.unwrap();
    assert!(put_off < NOTES, "it took {put_off} of {NOTES}");
    app.start_worker().await;
    until("each text to have a vector of the old model", async || {
        let models = models(&app).await;
        (models.len() as i64 == NOTES + 1 && models.values().all(|models| models == slice::from_ref(&old)))
            .then_some(())
    })
    .await;
    app.client.cancel_model_move().await.unwrap();
    ended(&app, ModelMoveState::Cancelled).await;
    app.client.resume_task_type(of_type()).await.unwrap();
    until("the tasks to be over", async || (last(&app).await.tasks == 0).then_some(())).await;
    early.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_the_model_that_serves_goes_on_to_read_files() {
    let mut app = TestApp::with(with_other()).await;
    app.create("Herons", "A heron waits in the shallows.", None).await;
    app.client.pause_task_type(of_type()).await.unwrap();
    app.client.start_model_move().await.unwrap();
    app.stop_worker().await;
    let wish = Wish { engine: Some(other()), database: Some(app.options.clone()), ..Wish::default() };
    let early = TestApp::with(wish).await;
    let upload = async |n: usize| {
        let text = format!("Clerk {n} files the minutes of the meeting.\n");
        app.upload_bytes(&format!("minutes-{n}.txt"), text).await.unwrap().document_id
    };
    // Each of the worker's slots for files could be taken.
    let slots = std::thread::available_parallelism().unwrap().get().max(2);
    for n in 0..slots {
        upload(n).await;
    }
    until("the chunks of each file to wait for another worker", async || {
        let put_off =
            "SELECT count(*) FROM task_queue WHERE put_off_code = 'model_not_serving' AND task_type LIKE 'structure:%'";
        let put_off: i64 = sqlx::query_scalar(put_off).fetch_one(&app.pool).await.unwrap();
        (put_off == slots as i64).then_some(())
    })
    .await;
    let last_file = upload(slots).await;
    until("the next file to be read", async || {
        let evidence = app.client.read_evidence(DocumentPath { id: last_file }).await.unwrap().evidence;
        evidence.contains_key("extract.text").then_some(())
    })
    .await;
    app.start_worker().await;
    app.client.cancel_model_move().await.unwrap();
    ended(&app, ModelMoveState::Cancelled).await;
    app.client.resume_task_type(of_type()).await.unwrap();
    until("the tasks to be over", async || (last(&app).await.tasks == 0).then_some(())).await;
    early.end().await;
    app.end().await;
}

/// The models of the token vectors of each document that has some.
async fn token_models(app: &TestApp) -> Vec<String> {
    sqlx::query_scalar("SELECT model FROM token_packs").fetch_all(&app.pool).await.unwrap()
}

/// Keeps others from writing to a document until it is dropped.
async fn held(app: &TestApp, id: i64) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM documents WHERE id = $1 FOR NO KEY UPDATE").bind(id).execute(&mut *held).await.unwrap();
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_request_made_with_a_model_that_was_replaced_meanwhile_is_not_stored() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = identities();
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    let embed = || {
        let client = app.client.clone();
        async move { client.embed_document(DocumentPath { id: herons }, EmbedOptions::default(), OptionalJson(None)).await }
    };
    embed().await.unwrap();
    idle(&app).await;
    let held = held(&app, herons).await;
    let embedding = tokio::spawn(embed());
    until_a_statement_waits(&app.pool).await;
    // The move ends, for which no request counts.
    for statement in ["UPDATE document_vectors SET embed_model = $1", "UPDATE token_packs SET model = $1"] {
        sqlx::query(statement).bind(&new).execute(&app.pool).await.unwrap();
    }
    moved(&app, &old, &new, "done").await;
    held.rollback().await.unwrap();
    let refused = embedding.await.unwrap().unwrap_err();
    assert!(refused.code == Code::Conflict && refused.detail.contains("another model"), "{refused}");
    let stored = async || (models(&app).await[&herons].clone(), token_models(&app).await);
    assert_eq!(stored().await, (vec![new.clone()], vec![new.clone()]));
    assert_eq!(embed().await.unwrap().document_id, herons, "as the answer says");
    assert_eq!(stored().await, (vec![new.clone()], vec![new]));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_have_the_sums_of_the_model_that_serves_when_they_are_stored() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = identities();
    let folder = app.create("Folder", "What people noted.", None).await.id;
    for text in ["A heron waits in the shallows.", "A heron fishes.", "Yeast makes the dough rise.", "Bread bakes."] {
        app.create("Note", text, Some(folder)).await;
    }
    idle(&app).await;
    let segment = || {
        let client = app.client.clone();
        let request = SegmentRequest { penalty: Some(1e-6), min_segment: Some(1), ..SegmentRequest::default() };
        async move { client.segment_document(DocumentPath { id: folder }, OptionalJson(Some(request))).await }
    };
    let held = held(&app, folder).await;
    let segmenting = tokio::spawn(segment());
    until_a_statement_waits(&app.pool).await;
    sqlx::query("UPDATE document_vectors SET embed_model = $1").bind(&new).execute(&app.pool).await.unwrap();
    moved(&app, &old, &new, "done").await;
    held.rollback().await.unwrap();
    let refused = segmenting.await.unwrap().unwrap_err();
    assert!(refused.code == Code::Conflict && refused.detail.contains("another model"), "{refused}");
    let made = segment().await.unwrap().segments;
    let models = models(&app).await;
    let is_new = |id: i64| models.get(&id).is_some_and(|models| models == slice::from_ref(&new));
    assert!(!made.is_empty() && made.iter().all(|segment| is_new(segment.id)), "{made:?}: {models:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_stores_no_vector_of_a_model_that_is_replaced_before_its_end() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = identities();
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    idle(&app).await;
    let all = ArchiveQuery { parent_id: Some(herons), ..ArchiveQuery::default() };
    let documents = app.client.export_documents(all).await.unwrap().documents;
    let of = ImportedArchive { archive: "waders-and-fish".to_owned(), parent_id: None };
    // Whoever imports the same document gives it its key.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("INSERT INTO document_keys (key, document_id) VALUES ($1, $2)")
        .bind(format!("archive:{}:0:{herons}", of.archive))
        .bind(herons)
        .execute(&mut *held)
        .await
        .unwrap();
    let importing = tokio::spawn({
        let client = app.client.clone();
        async move { client.import_documents(of, Json(ArchivePart { documents })).await }
    });
    until_a_statement_like_this_waits(&app.pool, "INSERT INTO document_keys%").await;
    sqlx::query("UPDATE document_vectors SET embed_model = $1").bind(&new).execute(&app.pool).await.unwrap();
    moved(&app, &old, &new, "done").await;
    held.rollback().await.unwrap();
    let imported = importing.await.unwrap().unwrap();
    assert_eq!((imported.documents.len(), imported.vectors, imported.queued), (1, 0, 1));
    idle(&app).await;
    assert_eq!(models(&app).await[&imported.documents[0].document_id], [new]);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_gets_the_token_vectors_of_the_model_that_serves_when_they_are_written() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = identities();
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    let late = json!({"name": "late", "capabilities": {"bm25": false, "maxsim": true}});
    let index = app.client.create_index(Json(serde_json::from_value(late).unwrap())).await.unwrap().id;
    idle(&app).await;
    assert_eq!(token_models(&app).await, slice::from_ref(&old));
    sqlx::raw_sql("DELETE FROM token_embeddings; DELETE FROM token_packs").execute(&app.pool).await.unwrap();
    let held = held(&app, herons).await;
    let indexing = tokio::spawn({
        let client = app.client.clone();
        async move { client.index_document(IndexDocumentPath { id: index, document_id: herons }).await }
    });
    until_a_statement_waits(&app.pool).await;
    sqlx::query("UPDATE document_vectors SET embed_model = $1").bind(&new).execute(&app.pool).await.unwrap();
    moved(&app, &old, &new, "done").await;
    held.rollback().await.unwrap();
    indexing.await.unwrap().unwrap();
    assert_eq!(token_models(&app).await, [new]);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_was_replaced_is_moved_to_where_the_settings_name_it_alone() {
    let app = TestApp::with(Wish { coming: Some(support::engine()), ..Wish::default() }).await;
    let (old, new) = identities();
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    idle(&app).await;
    // A process that is gone has moved them.
    sqlx::query("UPDATE document_vectors SET embed_model = $1").bind(&new).execute(&app.pool).await.unwrap();
    moved(&app, &old, &new, "done").await;
    cannot_search(&app).await;
    assert_eq!(app.client.start_model_move().await.unwrap().model, old);
    ended(&app, ModelMoveState::Done).await;
    assert_eq!((works_with(&app).await, found(&app, "a bird").await), (Some(old.clone()), vec![herons]));
    assert_eq!(models(&app).await[&herons], [old]);
    let mut conn = app.pool.acquire().await.unwrap();
    assert_eq!(model_moves::served(&mut conn).await.unwrap().unwrap().replaced, [new]);
    drop(conn);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_the_tasks_of_a_move_as_soon_as_its_runner_has_the_model() {
    let mut app = TestApp::start().await;
    let (old, new) = identities();
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    idle(&app).await;
    app.stop_worker().await;
    moved(&app, &old, &new, "emptying").await;
    let served = sqlx::raw_sql("UPDATE model_moves SET served_at = now() - interval '1 minute'");
    served.execute(&app.pool).await.unwrap();
    let (runner, is_away) = (runner_with(other()).await, Arc::new(AtomicBool::new(true)));
    let script = before(&runner, &is_away).await;
    let settings = far(&script.base);
    let wish = Wish { settings: &settings, database: Some(app.options.clone()), ..Wish::default() };
    let late = TestApp::with(wish).await;
    until("the tasks to wait for a worker with the model", async || {
        let blocked_by = Some(BlockedBy::NoHandler);
        let query = TaskQuery { task_type: Some("reembed".to_owned()), blocked_by, ..TaskQuery::default() };
        (!app.client.list_tasks(query).await.unwrap().tasks.is_empty()).then_some(())
    })
    .await;
    is_away.store(false, Ordering::Relaxed);
    ended(&app, ModelMoveState::Done).await;
    assert_eq!(models(&app).await[&herons], [new]);
    for app in [late, runner, app] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_ends_where_the_settings_name_the_new_model_alone_once_it_serves() {
    let mut app = TestApp::start().await;
    let (old, new) = identities();
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    app.client.embed_tokens(DocumentPath { id: herons }).await.unwrap();
    idle(&app).await;
    app.stop_worker().await;
    moved(&app, &old, &new, "emptying").await;
    let served = sqlx::raw_sql("UPDATE model_moves SET served_at = now() - interval '1 minute'");
    served.execute(&app.pool).await.unwrap();
    let wish = Wish { engine: Some(other()), database: Some(app.options.clone()), ..Wish::default() };
    let late = TestApp::with(wish).await;
    ended(&late, ModelMoveState::Done).await;
    assert_eq!(models(&app).await[&herons], slice::from_ref(&new));
    let tokens: Vec<String> = sqlx::query_scalar("SELECT model FROM token_packs").fetch_all(&app.pool).await.unwrap();
    assert_eq!(tokens, [new]);
    late.end().await;
    app.end().await;
}

/// Stands before a runner, which is away while this says so.
async fn before(runner: &TestApp, is_away: &Arc<AtomicBool>) -> Script {
    let is_away = is_away.clone();
    let answer = move |_: &str, _: usize| is_away.load(Ordering::Relaxed).then(|| (502, String::new()));
    Script::before(&runner.base, answer).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_watches_the_runner_of_the_model_that_serves() {
    let (old, new) = identities();
    let (old_runner, new_runner) = (runner_with(support::engine()).await, runner_with(other()).await);
    let (old_is_away, new_is_away) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let old_script = before(&old_runner, &old_is_away).await;
    let new_script = before(&new_runner, &new_is_away).await;
    let mut settings = far(&old_script.base).to_vec();
    settings.push(("SVC_RUNNER_COMING_URL", new_script.base.as_str()));
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let ready = async || {
        app.sampled().await;
        app.client.read_readiness().await
    };
    let identity = async || ready().await.ok().map(|mut ready| ready.models.remove(0).identity);
    until("the old model to serve", async || (identity().await.as_ref() == Some(&old)).then_some(())).await;
    moved(&app, &old, &new, "done").await;
    until("the new model to be told of", async || (identity().await.as_ref() == Some(&new)).then_some(())).await;

    old_is_away.store(true, Ordering::Relaxed);
    // Nobody needs the old runner.
    for _ in 0..3 {
        match ready().await {
            Ok(ready) => assert_eq!(ready.models[0].identity, new),
            Err(unready) => assert!(!unready.detail.contains("model:"), "{unready}"),
        }
    }
    old_is_away.store(false, Ordering::Relaxed);
    new_is_away.store(true, Ordering::Relaxed);
    let is_missed = |unready: &Failure| unready.detail.contains("model: the runner does not answer");
    let unready = until("the new runner to be missed", async || ready().await.err().filter(is_missed)).await;
    assert_eq!(unready.status, 503);
    new_is_away.store(false, Ordering::Relaxed);
    until("the new runner to be back", async || (identity().await.as_ref() == Some(&new)).then_some(())).await;
    for app in [app, old_runner, new_runner] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_settles_while_its_texts_are_moved_has_the_sum_of_all_of_them() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = identities();
    moved(&app, &old, &new, "emptying").await;
    let summarize = || TaskTypePath { task_type: "summarize".to_owned() };
    app.client.pause_task_type(summarize()).await.unwrap();
    app.client.pause_task_type(of_type()).await.unwrap();
    let text = "# Birds\n\nWhat lives on the shore, and what it finds to eat in the shallows.\n\n\
                ## Coots\n\nA coot dives for weeds to the bottom of the lake, and brings them up to eat.\n";
    let file = app.upload_bytes("birds.md", text).await.unwrap().document_id;
    let chunks = until("the chunks to be embedded", async || {
        let settled = "SELECT d.id FROM documents d JOIN document_vectors v ON v.document_id = d.id
                        WHERE d.path @> ARRAY[$1::bigint] AND d.usetype = 'chunk' AND d.settled = 'settled' ORDER BY d.id";
        let chunks: Vec<i64> = sqlx::query_scalar(settled).bind(file).fetch_all(&app.pool).await.unwrap();
        (chunks.len() == 2).then_some(chunks)
    })
    .await;
    // As if the old model had embedded them, before the new one served.
    sqlx::query("UPDATE document_vectors SET embed_model = $1").bind(&old).execute(&app.pool).await.unwrap();
    let mut held = app.pool.begin().await.unwrap();
    let lock = "SELECT id FROM documents WHERE id = ANY($1) FOR NO KEY UPDATE";
    sqlx::query(lock).bind(&chunks).execute(&mut *held).await.unwrap();
    app.client.resume_task_type(of_type()).await.unwrap();
    let waiting = async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FOR NO KEY UPDATE%'";
        sqlx::query_scalar::<_, i64>(waits).fetch_one(&app.pool).await.unwrap()
    };
    until("the vectors to be written", async || (waiting().await > 0).then_some(())).await;
    app.client.resume_task_type(summarize()).await.unwrap();
    until("the containers to be rolled up, or to wait with them", async || {
        let frontier = app.client.read_frontier(DocumentPath { id: file }).await.unwrap();
        (frontier.is_at_rest() || waiting().await > 1).then_some(())
    })
    .await;
    held.rollback().await.unwrap();
    app.settled(file).await;
    idle(&app).await;
    let after = models(&app).await;
    assert!(after.values().all(|models| models.contains(&new)), "{after:?}");
    for node in app.subtree(file).await.into_iter().filter(|node| node.usetype == "section") {
        let rollup = app.client.read_evidence(DocumentPath { id: node.id }).await.unwrap().evidence["rollup"].clone();
        assert!(rollup.get("without_vector").is_none(), "{rollup}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
