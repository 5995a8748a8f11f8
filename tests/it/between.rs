//! What somebody else does between two looks: each of these interleavings once left something stuck, lost or told to the wrong reader.
use crate::{
    admin::waits_for_pause,
    edits::patched,
    queue::{LEASE, claimer, node, task},
    rollup,
    summarize::{self, section},
    support::{
        TestApp, Wish, invariants,
        llm::{Asked, Llm, Reply},
        sample, until, until_a_statement_waits,
    },
    upkeep::age,
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use svc::{
    ingest::settle,
    store::{access, locks, moves, places, scope::Writable, tasks, transaction, upkeep},
    worker::{queue::PgQueue, settling},
};
use svc_actors::{Lane, Queue, TaskFailure, WriteMode};
use svc_client::{
    Code, Json, OptionalJson,
    wire::{
        AttemptOutcome, DocumentPath, ExtractFactsRequest, ReprocessRequest, Settled, TaskPath, TaskStatus,
        TaskTypePath, WaitQuery,
    },
};
use svc_ids::{DocumentId, RootId, TaskId};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

fn of_type(name: &str) -> TaskTypePath {
    TaskTypePath { task_type: name.to_owned() }
}

/// A task stands where its document is, however long the move takes that was under way.
#[tokio::test]
async fn what_is_asked_of_a_document_that_moves_is_queued_where_it_will_be() {
    let llm = Llm::start().await;
    llm.will_say(|_| Reply::said("{}"));
    let app = summarize::app(&llm, &[]).await;
    for name in ["raptor", "extract:facts"] {
        let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
        app.settled(file).await;
        let shelf = app.create("Shelf", "Files lie here.", None).await.id;
        let mut moving = transaction::begin_moving(&app.pool).await.unwrap();
        let everything = Writable::everything();
        let from = places::find(&mut moving, &everything, DocumentId(file)).await.unwrap().unwrap();
        let shelf = places::find(&mut moving, &everything, DocumentId(shelf)).await.unwrap().unwrap();
        let ask = async {
            let path = DocumentPath { id: file };
            match name {
                "raptor" => drop(app.client.make_raptor(path, WaitQuery::default(), OptionalJson(None)).await.unwrap()),
                _ => {
                    let request = OptionalJson(Some(ExtractFactsRequest::default()));
                    drop(app.client.extract_facts(path, WaitQuery::default(), request).await.unwrap());
                }
            }
        };
        let moves = async {
            until_a_statement_waits(&app.pool).await;
            moves::relocate(&mut moving, &from, Some(&shelf)).await.unwrap();
            moves::relocate_tasks(&mut moving, &from, &from.moved(Some(&shelf))).await.unwrap();
            moving.commit().await.unwrap();
        };
        tokio::join!(ask, moves);
        let places: Vec<String> =
            sqlx::query_scalar("SELECT node_path FROM task_queue WHERE task_type = $1 AND root_id = $2")
                .bind(name)
                .bind(file)
                .fetch_all(&app.pool)
                .await
                .unwrap();
        let new = format!("{}/{file}/", shelf.id());
        assert!(!places.is_empty() && places.iter().all(|place| place.starts_with(&new)), "{name}: {places:?}");
    }
    app.end().await;
}

/// The summary was made of the text of a section that is closed before the summary is written.
#[tokio::test]
async fn a_summary_quotes_nothing_that_is_being_closed() {
    let llm = Llm::start().await;
    let app = summarize::app(&llm, &[]).await;
    let tells = |call: &Asked| call.message().contains("volcano of number 79");
    llm.will_say(move |call| Reply::said(if tells(call) { "It tells of the end." } else { "It tells of the rest." }));
    app.client.pause_task_type(of_type("summarize:llm")).await.unwrap();
    let file = summarize::upload(&app, &section("", "volcano", 80), json!({})).await;
    waits_for_pause(&app, file).await;
    let end = summarize::children(&app, file).await.pop().unwrap();
    assert!(end.content.contains("volcano of number 79"), "{end:?}");
    let mut closing = transaction::begin_moving(&app.pool).await.unwrap();
    assert!(access::protect_held(&mut closing, DocumentId(end.id)).await.unwrap());
    app.client.resume_task_type(of_type("summarize:llm")).await.unwrap();
    until_a_statement_waits(&app.pool).await;
    closing.commit().await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let told = summarize::evidence(&app, file).await["effective_content"]["text"].to_string();
    assert!(told.contains("the rest") && !told.contains("the end"), "{told}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// The summary above is made of the one below, which loses its text when a part of it is closed.
#[tokio::test]
async fn a_summary_quotes_no_summary_that_quotes_what_was_closed_meanwhile() {
    let llm = Llm::start().await;
    let app = summarize::app(&llm, &[]).await;
    let of_summaries = |call: &Asked| call.message().contains("It tells of");
    // Two of these do not fit the model's window, so the model is asked about them.
    let more = "It goes on with more of the same and says nothing else. ".repeat(25);
    let released = Arc::new(Notify::new());
    let mut held = Some(released.clone());
    llm.will_say(move |call| {
        let tells = ["volcano of number 79", "the end"].iter().any(|words| call.message().contains(words));
        let told = if tells { "It tells of the end." } else { "It tells of the rest." };
        // The model thinks about the whole file until a part of it is closed.
        match of_summaries(call) {
            true => match held.take() {
                Some(released) => Reply::said(told).held(&released),
                None => Reply::said(told),
            },
            false => Reply::said(&format!("{told} {more}")),
        }
    });
    let text = section("Ovens", "oven", 80) + &section("Volcanoes", "volcano", 80);
    let file = summarize::upload(&app, &text, json!({})).await;
    until("the call for the whole file", async || llm.asked().iter().any(of_summaries).then_some(())).await;
    let volcanoes = summarize::children(&app, file).await.pop().unwrap().id;
    let end = summarize::children(&app, volcanoes).await.pop().unwrap();
    assert!(end.content.contains("volcano of number 79"), "{end:?}");
    app.client.protect_document(DocumentPath { id: end.id }).await.unwrap();
    released.notify_one();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let told = async |id: i64| summarize::evidence(&app, id).await["effective_content"]["text"].to_string();
    assert!(told(file).await.contains("the rest") && !told(file).await.contains("the end"), "{}", told(file).await);
    assert!(!told(volcanoes).await.contains("the end"), "{}", told(volcanoes).await);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// The segments are cut of what has settled, so a text that was edited since then comes first.
#[tokio::test]
async fn a_container_that_is_open_again_is_not_cut_into_segments() {
    let app = TestApp::start().await;
    app.client.pause_task_type(of_type("structure:semantic")).await.unwrap();
    let file = rollup::upload(&app, rollup::three_subjects(12), rollup::one_sentence_each()).await;
    let cuts = until("the task that cuts", async || rollup::waiting(&app, file, "structure:semantic").await).await;
    let chunk = summarize::children(&app, file).await.pop().unwrap().id;
    app.client.pause_task_type(of_type("embed")).await.unwrap();
    patched(&app, chunk, json!({"content": "The court heard the glacier."})).await;
    app.client.resume_task_type(of_type("structure:semantic")).await.unwrap();
    until("the task to end", async || {
        app.client.read_task(TaskPath { id: cuts }).await.unwrap().finished.then_some(())
    })
    .await;
    let attempts = summarize::evidence(&app, file).await["attempts"].clone();
    let outcome = |attempt: &serde_json::Value| attempt["outcome"].as_str().map(str::to_owned);
    let of_cuts = attempts.as_array().unwrap().iter().find(|attempt| attempt["task_type"] == "structure:semantic");
    assert_eq!(of_cuts.and_then(outcome).as_deref(), Some(AttemptOutcome::Skipped.as_str()), "{attempts}");
    assert!(summarize::children(&app, file).await.iter().all(|child| child.usetype == "chunk"));
    app.client.resume_task_type(of_type("embed")).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let segments = summarize::children(&app, file).await;
    assert!(segments.iter().all(|child| child.usetype == "section"), "it is cut once the text has settled");
    let under = app.subtree(file).await.into_iter().find(|node| node.id == chunk).unwrap();
    assert_eq!((under.settled, under.path.len()), (Settled::Settled, 2));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_is_created_deep_under_a_document_while_it_is_deleted_is_counted_out_with_it() {
    let app = TestApp::start().await;
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let before = app.settled(file).await;
    let section = summarize::children(&app, file).await.remove(0);
    let goes = 1 + app.subtree(section.id).await.len() as i64;
    // Stands for somebody else's creation that commits when the delete has begun.
    let creation = format!(
        "CREATE FUNCTION creates() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, settled, guard)
             SELECT id, path || id, 'late', '', 'note', '', 'in_flight', guard FROM documents WHERE id = {0};
             INSERT INTO frontier_delta VALUES ({file}, 1, 1, 0, 0);
             RETURN NULL; END $$;
         CREATE TRIGGER creates AFTER INSERT ON event_outbox FOR EACH ROW WHEN (NEW.document_id = {0}) EXECUTE FUNCTION creates()",
        section.id
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(creation)).execute(&app.pool).await.unwrap();
    app.client.delete_document(DocumentPath { id: section.id }).await.unwrap();
    let after = app.settled(file).await;
    assert_eq!((after.nodes_in_flight, after.nodes_total), (0, before.nodes_total - goes), "{after:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Whoever deletes, moves or cancels something near keeps the settler away and takes no events of others.
#[tokio::test]
async fn what_was_left_to_settle_while_the_settler_was_kept_away_is_settled_without_a_sweep() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    sqlx::query("INSERT INTO settle_event (root_id, document_id, done, failed) VALUES ($1, $1, 0, 0)")
        .bind(file)
        .execute(&app.pool)
        .await
        .unwrap();
    let mut held = transaction::begin(&app.pool).await.unwrap();
    locks::tree(&mut held, DocumentId(file)).await.unwrap();
    settle::settle(&app.service, RootId(file)).await.unwrap();
    let left = async || {
        sqlx::query_scalar::<_, bool>("SELECT EXISTS (SELECT FROM settle_event)").fetch_one(&app.pool).await.unwrap()
    };
    assert!(left().await, "it is left to who holds the tree");
    held.rollback().await.unwrap();
    let looking = settling::start((*app.service.tools()).clone(), TaskTracker::new());
    until("the event to be taken", async || (!left().await).then_some(())).await;
    looking.abort();
    app.end().await;
}

#[tokio::test]
async fn a_change_of_priority_waits_for_nobody_who_rolls_up_the_file() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let mut held = transaction::begin(&app.pool).await.unwrap();
    locks::tree(&mut held, DocumentId(file)).await.unwrap();
    let change = Json(svc_client::wire::PriorityChange { priority: 7 });
    let changed = tokio::select! {
        changed = app.client.change_priority(DocumentPath { id: file }, change) => changed.unwrap(),
        () = until_a_statement_waits(&app.pool) => panic!("the change of priority waits for the tree"),
    };
    assert_eq!(changed.tasks_changed, 1);
    held.rollback().await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_task_that_is_claimed_while_it_is_cancelled_is_stopped() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    // Stands for a worker that claims between the look for a held task and the look for a waiting one.
    let claim = format!(
        "CREATE FUNCTION claims() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE task_queue SET status = 'claimed', claim_token = gen_random_uuid(), claimed_by = 'w', heartbeat_at = now(), ready = false
              WHERE id = {id} AND status = 'pending';
             RETURN NULL; END $$;
         CREATE TRIGGER claims AFTER UPDATE ON task_queue FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION claims()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(claim)).execute(&app.pool).await.unwrap();
    let after = app.client.cancel_task(TaskPath { id: id.0 }).await.unwrap();
    assert!(after.cancel_requested_at.is_some(), "the worker would never learn of it: {after:?}");
    // It has no region, which a claim would have taken.
    sqlx::raw_sql("DROP TRIGGER claims ON task_queue; DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_task_that_fails_while_it_is_cancelled_is_not_tried_again() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    for failure in [TaskFailure::retryable("slow", "it took too long"), TaskFailure::away("gone", "it is not there")] {
        let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
        let held = tasks::claim(&app.pool, &claimer("w"), &[(Lane::Io, 1)]).await.unwrap().grants.remove(0);
        assert_eq!(held.task_id, id);
        let mut cancel = app.pool.begin().await.unwrap();
        sqlx::query("UPDATE task_queue SET cancel_requested_at = now() WHERE id = $1")
            .bind(id)
            .execute(&mut *cancel)
            .await
            .unwrap();
        let (failed, ()) = tokio::join!(queue.fail(&held, &failure), async {
            until_a_statement_waits(&app.pool).await;
            cancel.commit().await.unwrap();
        });
        assert!(failed.unwrap());
        let after = app.client.read_task(TaskPath { id: id.0 }).await.unwrap();
        assert_eq!((after.status, after.finished, after.retry_after), (TaskStatus::Failed, true, None), "{after:?}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Nothing but the row keeps two calls for the task of a plain document apart.
#[tokio::test]
async fn a_task_that_is_claimed_before_it_is_queued_again_a_second_time_stays_claimed() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    app.client.cancel_task(TaskPath { id: id.0 }).await.unwrap();
    // Stands for the first call, and for the worker that claims the task after it.
    let mut first = app.pool.begin().await.unwrap();
    for step in [
        "UPDATE task_queue SET status = 'pending', final = false, error_type = NULL WHERE id = $1",
        "UPDATE task_queue SET status = 'claimed', claim_token = gen_random_uuid(), claimed_by = 'w', heartbeat_at = now() WHERE id = $1",
    ] {
        sqlx::query(step).bind(id).execute(&mut *first).await.unwrap();
    }
    let (second, ()) = tokio::join!(app.client.retry_task(TaskPath { id: id.0 }), async {
        until_a_statement_waits(&app.pool).await;
        first.commit().await.unwrap();
    });
    let refused = second.unwrap_err();
    assert_eq!((refused.code, &refused.members["task_status"]), (Code::Conflict, &json!("claimed")), "{refused:?}");
    assert_eq!(app.client.read_task(TaskPath { id: id.0 }).await.unwrap().status, TaskStatus::Claimed);
    // It has no region, which a claim would have taken.
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_task_that_is_put_back_while_old_ones_are_purged_stays() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id: TaskId = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    app.client.cancel_task(TaskPath { id: id.0 }).await.unwrap();
    age(&app).await;
    let mut back = app.pool.begin().await.unwrap();
    sqlx::query("UPDATE task_queue SET status = 'pending', final = false, error_type = NULL WHERE id = $1")
        .bind(id)
        .execute(&mut *back)
        .await
        .unwrap();
    let mut purges = app.pool.begin().await.unwrap();
    let week = Duration::from_secs(7 * 86_400);
    let (purged, ()) = tokio::join!(upkeep::purge(&mut purges, week, TaskId(0), "another type"), async {
        until_a_statement_waits(&app.pool).await;
        back.commit().await.unwrap();
    });
    purges.commit().await.unwrap();
    assert_eq!(purged.unwrap().rows, 0);
    assert_eq!(app.client.read_task(TaskPath { id: id.0 }).await.unwrap().status, TaskStatus::Pending);
    app.end().await;
}

/// To remove what a large reprocess built may take longer than many sweeps.
#[tokio::test]
async fn a_reprocess_that_ends_for_long_keeps_no_other_upkeep_waiting() {
    let app = TestApp::start().await;
    let file = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    app.settled(file).await;
    app.client.pause_task_type(of_type("probe")).await.unwrap();
    let request = OptionalJson(Some(ReprocessRequest::default()));
    app.client.reprocess_file(DocumentPath { id: file }, request).await.unwrap();
    let generation: i64 =
        sqlx::query_scalar("UPDATE generations SET abandoned = true WHERE document_id = $1 RETURNING generation_id")
            .bind(file)
            .fetch_one(&app.pool)
            .await
            .unwrap();
    let mut held = transaction::begin(&app.pool).await.unwrap();
    locks::file(&mut held, RootId(generation)).await.unwrap();
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    // The first sweep is cut off, as it is after a lease.
    tokio::select! {
        swept = queue.sweep() => panic!("the sweep did not look at the reprocess: {swept:?}"),
        () = until_a_statement_waits(&app.pool) => {}
    }
    sqlx::query("INSERT INTO settle_event (root_id, document_id, done, failed) VALUES ($1, $1, 0, 0)")
        .bind(file)
        .execute(&app.pool)
        .await
        .unwrap();
    let count = async |query: &'static str| -> i64 { sqlx::query_scalar(query).fetch_one(&app.pool).await.unwrap() };
    let settled =
        until("the event to be taken", async || (count("SELECT count(*) FROM settle_event").await == 0).then_some(()));
    tokio::select! {
        swept = queue.sweep() => panic!("a worker that drains would end before the removal does: {swept:?}"),
        () = settled => {}
    }
    held.rollback().await.unwrap();
    until("the removal to end", async || (count("SELECT count(*) FROM generations").await == 0).then_some(())).await;
    app.end().await;
}
