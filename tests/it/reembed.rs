//! Moves of all vectors from one model to another: the old one answers until the new one can, whatever is written, killed or called off meanwhile.
mod serving;

use crate::{
    admin::{run, worker_command},
    cli::{lines, svc},
    crash::Process,
    edits::patched,
    support::{self, TOKEN, TestApp, Wish, invariants, poison, sample, searches::ask, until},
};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use std::{collections::BTreeMap, process::Stdio, slice, sync::OnceLock};
use svc::{
    service::Service,
    settings::model_settings,
    store::{model_moves, reindex},
};
use svc_client::{
    Code, Json, OptionalJson,
    wire::{
        AuditQuery, BlockedBy, DocumentPath, EmbedQuery, FindingKind, ModelMove, ModelMoveState, NewBatch, PiecesQuery,
        SegmentRequest, SplitRequest, TaskQuery, TaskTypePath,
    },
};
use svc_models::Engine;

/// The small model in another precision, loaded once per run.
fn other() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let load = || {
        let settings = support::settings(&[("SVC_EMBEDDING_PRECISION", "f32")]);
        Engine::load(&model_settings(&settings)).expect("the model of `make setup`")
    };
    ENGINE.get_or_init(load).clone()
}

fn with_other() -> Wish<'static> {
    Wish { coming: Some(other()), ..Wish::default() }
}

fn of_type() -> TaskTypePath {
    TaskTypePath { task_type: "reembed".to_owned() }
}

async fn last(app: &TestApp) -> ModelMove {
    app.client.read_model_move().await.unwrap().last.unwrap()
}

async fn ended(app: &TestApp, state: ModelMoveState) -> ModelMove {
    let asked = async || Some(last(app).await).filter(|last| last.state == state);
    until("the move to end", asked).await
}

/// The models of the vectors of each document that has some.
async fn models(app: &TestApp) -> BTreeMap<i64, Vec<String>> {
    let rows: Vec<(i64, Vec<String>)> = sqlx::query_as(
        "SELECT document_id, array_agg(embed_model ORDER BY embed_model) FROM document_vectors GROUP BY 1",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    rows.into_iter().collect()
}

/// The documents that a search by meaning finds, best first.
async fn found(app: &TestApp, query: &str) -> Vec<i64> {
    let body = json!({"query": query, "group_by": "none", "limit": 100});
    let found = ask(&app.client, "vector", &body).await.unwrap();
    found.results.iter().map(|result| result.document.id).collect()
}

/// The vector of a document, as it is shown.
async fn shown(app: &TestApp, id: i64) -> Vec<f32> {
    let query = EmbedQuery { include_embed: true };
    app.client.read_document(DocumentPath { id }, query).await.unwrap().value().unwrap().embed.unwrap()
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// Waits until no task is left.
async fn idle(app: &TestApp) {
    until("the queue to be empty", async || {
        let left = "SELECT count(*) FROM task_queue WHERE NOT final";
        (sqlx::query_scalar::<_, i64>(left).fetch_one(&app.pool).await.unwrap() == 0).then_some(())
    })
    .await;
}

async fn created(app: &TestApp, count: usize) {
    let new = |n: usize| json!({"title": format!("Note {n}"), "content": format!("The clerk of room {n} files the minutes.")});
    let documents: Vec<Value> = (0..count).map(new).collect();
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    app.client.create_documents(Json(batch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_model_answers_until_each_document_has_a_vector_of_the_new_one() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = (support::engine().info().identity.clone(), other().info().identity.clone());
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let herons = app.create("Herons", "A heron waits in the shallows for a fish.", None).await.id;
    let bread = app.create("Bread", "Yeast makes the dough rise in the oven.", None).await.id;
    let gone = app.create("Coots", "A coot dives for weeds.", None).await.id;
    let filler = |n: usize| format!("Clerk {n} files the minutes of meeting {n} in cabinet {n}. ");
    let long: String =
        (0..80).map(filler).chain(["The volcano erupts, and lava flows from its crater. ".to_owned()]).collect();
    let long = app.create("Report", &long, None).await.id;
    app.client.embed_tokens(DocumentPath { id: herons }).await.unwrap();
    // The sum of a segment that a caller asks for is of its own kind.
    let trades = "Coopers make barrels. Smiths forge the iron. Tailors sew the coats. Judges read the law.";
    let parts = app.create("Trades", trades, None).await.id;
    let split = SplitRequest { at: Some(vec![22, 45, 68]), by_headings: false, replace: false };
    app.client.split_document(DocumentPath { id: parts }, PiecesQuery::default(), Json(split)).await.unwrap();
    idle(&app).await;
    let segments = SegmentRequest { penalty: Some(1e-6), min_segment: Some(1), ..SegmentRequest::default() };
    app.client.segment_document(DocumentPath { id: parts }, OptionalJson(Some(segments))).await.unwrap();
    idle(&app).await;
    let before = models(&app).await;
    assert!(before.values().all(|models| models == slice::from_ref(&old)), "{before:?}");

    app.client.pause_task_type(of_type()).await.unwrap();
    let begun = app.client.start_model_move().await.unwrap();
    assert_eq!((begun.model.as_str(), begun.coming_model.as_deref()), (old.as_str(), Some(new.as_str())));
    let begun = begun.last.unwrap();
    assert_eq!((begun.state, begun.of, begun.done), (ModelMoveState::Moving, before.len() as i64, 0));
    assert_eq!(found(&app, "a bird that fishes").await[0], herons);
    assert_eq!(last(&app).await.to_model, app.client.start_model_move().await.unwrap().last.unwrap().to_model, "again");
    until("the tasks to be queued", async || (last(&app).await.tasks > 0).then_some(())).await;
    // What is written and deleted meanwhile.
    patched(&app, bread, json!({"content": "A glacier is a river of ice."})).await;
    app.client.delete_document(DocumentPath { id: gone }).await.unwrap();
    let later = app.create("Tides", "The moon pulls the oceans, and the water rises.", None).await.id;
    until("the new text to be found", async || {
        (found(&app, "frozen water that flows").await[0] == bread).then_some(())
    })
    .await;
    app.client.resume_task_type(of_type()).await.unwrap();

    let done = ended(&app, ModelMoveState::Done).await;
    assert!(done.passes > 0 && done.refused == 0 && done.tasks == 0 && done.served_at < done.ended_at, "{done:?}");
    let after = models(&app).await;
    assert!(after.values().all(|models| models == slice::from_ref(&new)), "{after:?}");
    let moved: Vec<i64> = before.keys().copied().filter(|id| *id != gone).chain([later]).collect();
    assert_eq!(after.into_keys().collect::<Vec<i64>>(), moved);
    assert_eq!(app.client.read_model_move().await.unwrap().model, new);
    for (query, first) in [
        ("a bird that fishes", herons),
        ("frozen water that flows", bread),
        ("a clerk files minutes in a cabinet", long),
    ] {
        assert_eq!(found(&app, query).await[0], first, "{query}");
    }
    let fresh = other().embed_documents(vec!["Herons\nA heron waits in the shallows for a fish.".to_owned()]).await;
    let fresh = &fresh.unwrap()[0].vector;
    assert!(cosine(&shown(&app, herons).await, fresh) > 0.9999);
    assert!(shown(&app, file).await.iter().any(|number| *number != 0.0));
    let tokens: Vec<String> = sqlx::query_scalar("SELECT model FROM token_packs").fetch_all(&app.pool).await.unwrap();
    assert_eq!(tokens, slice::from_ref(&new));
    let index = "SELECT count(*) FROM pg_indexes WHERE tablename = 'document_vectors' AND indexdef LIKE '%hnsw%' || quote_literal($1) || '%'";
    for (model, expected) in [(&old, 0), (&new, 1)] {
        let indexes: i64 = sqlx::query_scalar(index).bind(model).fetch_one(&app.pool).await.unwrap();
        assert_eq!(indexes, expected, "{model}");
    }
    let acts = app.client.list_audit(AuditQuery::default()).await.unwrap().entries;
    let starts = acts.iter().filter(|entry| entry.act.as_str() == "model_move.start").count();
    assert_eq!(starts, 1, "what began nothing is not recorded");
    // What is written from here on gets vectors of the new model at once.
    let last = app.create("Ice", "Snow that never melts becomes ice.", None).await.id;
    assert_eq!(models(&app).await[&last], [new]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_called_off_leaves_nothing_and_may_begin_anew() {
    let app = TestApp::with(with_other()).await;
    let (old, new) = (support::engine().info().identity.clone(), other().info().identity.clone());
    let id = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    app.create("Bread", "Yeast makes the dough rise.", None).await;
    let refusal = app.client.cancel_model_move().await.unwrap_err();
    assert_eq!(refusal.code, Code::Conflict);
    app.client.pause_task_type(of_type()).await.unwrap();
    app.client.start_model_move().await.unwrap();
    until("the tasks to be queued", async || (last(&app).await.tasks > 0).then_some(())).await;
    // As if a task had come so far.
    sqlx::query(
        "INSERT INTO document_vectors (document_id, embed_model, embed, weight) SELECT document_id, $2, embed, weight FROM document_vectors WHERE document_id = $1",
    )
    .bind(id)
    .bind(&new)
    .execute(&app.pool)
    .await
    .unwrap();
    app.client.cancel_model_move().await.unwrap();
    ended(&app, ModelMoveState::Cancelled).await;
    app.client.resume_task_type(of_type()).await.unwrap();
    until("the tasks to be over", async || (last(&app).await.tasks == 0).then_some(())).await;
    assert!(
        models(&app).await.values().all(|models| models == slice::from_ref(&old)),
        "what a task finds called off it leaves"
    );
    assert_eq!(app.client.read_model_move().await.unwrap().model, old);
    assert_eq!(app.client.cancel_model_move().await.unwrap_err().code, Code::Conflict);

    app.client.start_model_move().await.unwrap();
    ended(&app, ModelMoveState::Done).await;
    assert!(models(&app).await.values().all(|models| models == slice::from_ref(&new)));
    assert_eq!(app.client.cancel_model_move().await.unwrap_err().code, Code::Conflict, "it serves already");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_called_off_is_not_over_while_the_index_of_its_vectors_is_left() {
    let app = TestApp::with(with_other()).await;
    let new = other().info().identity.clone();
    app.create("Herons", "A heron waits in the shallows.", None).await;
    app.client.pause_task_type(of_type()).await.unwrap();
    app.client.start_model_move().await.unwrap();
    let has_index = async || {
        let mut conn = app.pool.acquire().await.unwrap();
        reindex::has_index(&mut conn, &new).await.unwrap()
    };
    until("the index of the new model", async || has_index().await.then_some(())).await;
    // As a vacuum holds the table.
    let mut vacuum = app.pool.begin().await.unwrap();
    let lock = sqlx::raw_sql("LOCK TABLE document_vectors IN SHARE UPDATE EXCLUSIVE MODE");
    lock.execute(&mut *vacuum).await.unwrap();
    app.client.cancel_model_move().await.unwrap();
    // When a try began that waits for the table.
    let trying = async || {
        let waits = "SELECT max(query_start) FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%DROP INDEX IF EXISTS%'";
        sqlx::query_scalar::<_, Option<DateTime<Utc>>>(waits).fetch_one(&app.pool).await.unwrap()
    };
    let first = until("the index to be dropped in vain", trying).await;
    until("another try", async || trying().await.filter(|begun| *begun > first)).await;
    assert!(has_index().await);
    assert_eq!(last(&app).await.state, ModelMoveState::Cancelling);
    let refused = app.client.start_model_move().await.unwrap_err();
    assert_eq!((refused.code, refused.members["to_model"].as_str()), (Code::Conflict, Some(new.as_str())));
    vacuum.rollback().await.unwrap();
    ended(&app, ModelMoveState::Cancelled).await;
    assert!(!has_index().await);
    app.client.resume_task_type(of_type()).await.unwrap();
    until("the tasks to be over", async || (last(&app).await.tasks == 0).then_some(())).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_to_which_the_new_model_gives_no_vector_does_not_stop_the_move() {
    let app = TestApp::with(Wish { coming: Some(poison::engine()), ..Wish::default() }).await;
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    let glass = app.create("Glass", &format!("A knife of {}.", poison::WORD), None).await.id;
    app.client.start_model_move().await.unwrap();
    let done = ended(&app, ModelMoveState::Done).await;
    assert_eq!((done.refused, done.of), (1, 2));
    assert_eq!(models(&app).await.into_keys().collect::<Vec<i64>>(), [herons]);
    let evidence = app.client.read_evidence(DocumentPath { id: glass }).await.unwrap().evidence;
    assert_eq!(evidence["embed"]["skipped"], "no_direction");
    assert_eq!(found(&app, "a bird").await, [herons]);
    patched(&app, glass, json!({"content": "A knife of glass."})).await;
    assert_eq!(last(&app).await.refused, 0, "another text is another matter");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_which_none_has_a_vector_do_not_pass_for_a_broken_model() {
    let app = TestApp::with(Wish { coming: Some(poison::engine()), ..Wish::default() }).await;
    app.create("Glass", &format!("A knife of {}.", poison::WORD), None).await;
    app.create("Stone", &format!("A mirror of {}.", poison::WORD), None).await;
    app.client.start_model_move().await.unwrap();
    let done = ended(&app, ModelMoveState::Done).await;
    assert_eq!((done.refused, done.of), (2, 2));
    assert!(models(&app).await.is_empty());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_the_runner_of_a_model_that_does_not_serve() {
    // It is not there yet when the service starts.
    let (socket, address) = support::nobody();
    let url = format!("http://{address}");
    let settings = [("SVC_RUNNER_COMING_URL", url.as_str()), ("SVC_RUNNER_KEY", "a key of runners")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let model = support::engine().info().identity.clone();
    sqlx::query(
        "INSERT INTO model_moves (serving, from_model, to_model, state, wanted) VALUES ($1, $1, 'new@1', 'moving', 1)",
    )
    .bind(&model)
    .execute(&app.pool)
    .await
    .unwrap();
    until("the service to know of the move", async || app.service.serving.served()).await;
    // It does not block.
    let runner = socket.listen(64).unwrap().into_std().unwrap();
    assert!(found(&app, "a bird").await.is_empty());
    assert!(runner.accept().is_err(), "a search of the model that serves asks nobody else");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_the_new_model_leaves_it_to_others_and_says_so_once_it_serves() {
    let mut app = TestApp::with(Wish { no_worker: true, ..with_other() }).await;
    let settings = [("SVC_WORKER_ID", "without")];
    let without =
        TestApp::with(Wish { database: Some(app.options.clone()), settings: &settings, ..Wish::default() }).await;
    let id = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    let refusal = without.client.start_model_move().await.unwrap_err();
    assert_eq!(
        (refusal.code, refusal.members["setting"].as_str()),
        (Code::NotConfigured, Some("SVC_EMBEDDING_COMING_MODEL"))
    );
    app.client.start_model_move().await.unwrap();
    // Its worker knows nothing of the model, and gives the tasks to others that do.
    until("the tasks to wait for another worker", async || {
        let blocked_by = Some(BlockedBy::NoHandler);
        let query = TaskQuery { task_type: Some("reembed".to_owned()), blocked_by, ..TaskQuery::default() };
        let tasks = app.client.list_tasks(query).await.unwrap().tasks;
        (!tasks.is_empty()).then_some(())
    })
    .await;
    let old = "UPDATE task_queue SET created_at = now() - interval '1 hour' WHERE task_type = 'reembed'";
    sqlx::query(old).execute(&app.pool).await.unwrap();
    let finding = until("the finding", async || {
        let findings = without.client.list_findings().await.unwrap().findings;
        findings.into_iter().find(|finding| finding.kind == FindingKind::NoHandler)
    })
    .await;
    assert!(finding.about == "reembed" && finding.remedy.contains("SVC_EMBEDDING_COMING_MODEL"), "{finding:?}");
    let later = app.create("Bread", "Yeast makes the dough rise.", None).await.id;
    assert_eq!(found(&without, "a bird").await[0], id);
    app.start_worker().await;
    until("the new model to serve", async || last(&app).await.served_at).await;
    let body = json!({"query": "a bird"});
    until("the other process to learn of it", async || ask(&without.client, "vector", &body).await.err()).await;
    let refusal = ask(&without.client, "vector", &body).await.unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    until("its readiness to tell", async || without.client.read_readiness().await.err()).await;
    let words = ask(&without.client, "bm25", &json!({"query": "heron"})).await.unwrap();
    assert_eq!(words.results[0].document.id, id);
    until("the new model to answer", async || (found(&app, "a bird").await.len() == 2).then_some(())).await;
    ended(&app, ModelMoveState::Done).await;
    assert_eq!(models(&app).await.into_keys().collect::<Vec<i64>>(), [id, later]);
    without.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_model_without_a_move_is_told_and_mended() {
    let app = TestApp::with(Wish { coming: Some(support::engine()), ..Wish::default() }).await;
    let model = support::engine().info().identity.clone();
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let herons = app.create("Herons", "A heron waits in the shallows.", None).await.id;
    let all = models(&app).await.len() as i64;
    sqlx::raw_sql("UPDATE document_vectors SET embed_model = 'gone@1'").execute(&app.pool).await.unwrap();
    let other_model = async |method: &str| {
        let body = json!({"query": "a bird that waits"});
        ask(&app.client, method, &body).await.unwrap().scope_state.other_model
    };
    until("searches to tell of it", async || (other_model("vector").await == all).then_some(())).await;
    assert_eq!((other_model("hybrid").await, other_model("bm25").await), (all, 0));
    let findings = app.client.list_findings().await.unwrap().findings;
    let finding = findings.iter().find(|finding| finding.kind == FindingKind::OtherModel).unwrap();
    assert!(
        finding.about.starts_with(&format!("{all} documents, such as {file}, ")) && finding.about.contains("gone@1"),
        "{finding:?}"
    );
    assert!(finding.remedy.contains("svc reembed"), "{finding:?}");

    let moved = svc(&app, &["reembed"]).await;
    assert!(moved.status.success(), "{moved:?}");
    let told = lines(&moved);
    assert_eq!((&told[0]["last"]["of"], &told.last().unwrap()["last"]["state"]), (&json!(all), &json!("done")));
    assert!(models(&app).await.values().all(|models| models == slice::from_ref(&model)));
    assert_eq!(found(&app, "a bird that waits").await[0], herons);
    until("nobody to tell of it any more", async || (other_model("vector").await == 0).then_some(())).await;
    let findings = app.client.list_findings().await.unwrap().findings;
    assert!(findings.iter().all(|finding| finding.kind != FindingKind::OtherModel), "{findings:?}");
    let shown = String::from_utf8(svc(&app, &["--table", "reembed", "--state"]).await.stdout).unwrap();
    assert_eq!(shown, format!("{model} answers; the move is done\n"));
    let mut conn = app.pool.acquire().await.unwrap();
    let replaced = model_moves::served(&mut conn).await.unwrap().unwrap().replaced;
    assert_eq!(replaced, ["gone@1"], "a forgotten process with that model writes nothing");
    drop(conn);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_process_looks_which_model_serves_before_it_works_with_one() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let (old, new) = (support::engine().info().identity.clone(), other().info().identity.clone());
    sqlx::query(
        "INSERT INTO model_moves (serving, from_model, to_model, state, wanted) VALUES ($2, $1, $2, 'done', 1)",
    )
    .bind(&old)
    .bind(&new)
    .execute(&app.pool)
    .await
    .unwrap();
    let (settings, reader) = (app.service.settings.clone(), app.service.reader.clone());
    let fresh = Service::new(settings, app.pool.clone(), Some(support::engine().into()), TOKEN, reader);
    let fresh = fresh.with_coming(Some(other().into()));
    assert_eq!(fresh.model().await.unwrap().identity(), new);
    fresh.close().await;
    app.end().await;
}

/// A worker that makes the vectors is killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_goes_on_whatever_is_killed() {
    let mut app = TestApp::with(Wish { no_worker: true, ..with_other() }).await;
    let new = other().info().identity.clone();
    created(&app, 300).await;
    assert!(run(worker_command(&app, &["--drain"])).await.status.success());
    let all = models(&app).await.len();
    assert_eq!(all, 300);
    app.client.start_model_move().await.unwrap();
    let made = async || {
        let query = "SELECT count(*) FROM document_vectors WHERE embed_model = $1";
        sqlx::query_scalar::<_, i64>(query).bind(&new).fetch_one(&app.pool).await.unwrap()
    };
    for _ in 0..2 {
        let had = made().await;
        let mut command = worker_command(&app, &[]);
        command
            .env("SVC_EMBEDDING_COMING_MODEL", "all-MiniLM-L6-v2")
            .env("SVC_EMBEDDING_COMING_PRECISION", "f32")
            .env("SVC_WORKER_LEASE_SECONDS", "6")
            .env("SVC_WORKER_HEARTBEAT_SECONDS", "1")
            .env("SVC_WORKER_REAP_SECONDS", "1")
            .stdout(Stdio::null());
        let worker = Process(command.spawn().unwrap());
        until("the worker to make some", async || (made().await > had || made().await == all as i64).then_some(()))
            .await;
        worker.kill();
    }
    app.start_worker().await;
    let done = ended(&app, ModelMoveState::Done).await;
    assert_eq!((done.of, done.refused), (all as i64, 0));
    let after = models(&app).await;
    assert!(after.len() == all && after.values().all(|models| models == slice::from_ref(&new)), "{after:?}");
    app.end().await;
}

/// Has a task of each of these documents wait in a batch of a provider.
async fn batched(app: &TestApp, documents: &[i64]) {
    let batch: i64 = sqlx::query_scalar(
        "INSERT INTO llm_batches (provider, model, state) VALUES ('mock', 'm', 'submitted') RETURNING id",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    sqlx::query(
        "WITH waiting AS (
             INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, ready, status, batch_id, batched_at, claim_token)
             SELECT 'extract:facts', id, 'llm', id || '/', 0, id, 'self', false, 'batched', $1::text, now(), gen_random_uuid() FROM unnest($2::bigint[]) AS id
             RETURNING *)
         INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
         SELECT id, claim_token, 'w', node_path, node_depth, write_mode, region_paths(node_path, write_mode, NULL, NULL), region_depths(node_depth, write_mode, NULL)
           FROM waiting",
    )
    .bind(batch)
    .bind(documents)
    .execute(&app.pool)
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_that_wait_in_a_batch_of_a_provider_do_not_hold_a_move_up() {
    for free in [1, 0] {
        let app = TestApp::with(with_other()).await;
        let mut ids = Vec::new();
        for n in 0..3 {
            ids.push(app.create(&format!("Note {n}"), "The clerk files the minutes.", None).await.id);
        }
        idle(&app).await;
        batched(&app, &ids[..3 - free]).await;
        app.client.start_model_move().await.unwrap();
        ended(&app, ModelMoveState::Done).await;
        let after = models(&app).await;
        assert!(after.values().all(|models| models == slice::from_ref(&other().info().identity)), "{after:?}");
        let left = "SELECT count(*) FROM task_queue WHERE status = 'batched'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&app.pool).await.unwrap();
        assert_eq!(left, 2, "one pays again only where all wait");
        for table in ["task_reservation", "task_queue", "llm_batches"] {
            sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&app.pool).await.unwrap();
        }
        app.end().await;
    }
}
