//! What else wants a region that is held, being claimed or waited for: deletions, edits, and tasks that cannot wait
//! longer.
use crate::{
    queue::{app, claim, claimer, finish, node, status, task},
    support::{TestApp, place},
};
use std::time::Duration;
use svc::store::{
    documents,
    reservations::{self, EditError},
    tasks::{self, Failed},
};
use svc_actors::{Grant, Lane, TaskFailure, WriteMode};
use svc_ids::{DocumentId, TaskId};

async fn waits_for_a_lock<T>(app: &TestApp, server: i32, work: &tokio::task::JoinHandle<T>) {
    let waits = "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = $1";
    while !sqlx::query_scalar::<_, bool>(waits).bind(server).fetch_one(&app.pool).await.unwrap() {
        assert!(!work.is_finished(), "it waits for the task's row");
        tokio::task::yield_now().await;
    }
}

/// Deletes a document while a transaction holds its task. The transaction only ends once the deletion waits for it.
async fn delete_meanwhile(app: &TestApp, id: i64, holding: sqlx::Transaction<'_, sqlx::Postgres>) {
    let mut deleter = app.pool.acquire().await.unwrap();
    let server: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *deleter).await.unwrap();
    let place = place(&mut deleter, id).await;
    let deletion = tokio::spawn(async move { documents::delete_subtrees(&mut deleter, &[place]).await });
    waits_for_a_lock(app, server, &deletion).await;
    holding.commit().await.unwrap();
    assert_eq!(deletion.await.unwrap().unwrap().ids, [DocumentId(id)]);
}

#[tokio::test]
async fn a_deletion_takes_the_log_along_that_was_being_written() {
    let app = app().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let mut ending = app.pool.begin().await.unwrap();
    let failure = TaskFailure::permanent("corrupt", "written while the document is deleted");
    assert_eq!(tasks::fail(&mut ending, &grant, &failure, "w", Duration::ZERO).await.unwrap(), Failed::Final);
    delete_meanwhile(&app, root.0, ending).await;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM task_attempts").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, 0);
    app.end().await;
}

#[tokio::test]
async fn a_deletion_takes_the_region_along_that_was_being_claimed() {
    let app = app().await;
    for count in [1, 2] {
        let root = node(&app, None).await;
        task(&app, &root, WriteMode::Itself, 0, None).await;
        let mut claiming = app.pool.begin().await.unwrap();
        let got = tasks::claim(&mut *claiming, &claimer("w"), &[(Lane::Io, count)]).await.unwrap().grants;
        assert_eq!(got.len(), 1);
        delete_meanwhile(&app, root.0, claiming).await;
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM task_reservation").fetch_one(&app.pool).await.unwrap();
        assert_eq!(left, 0, "a claim of {count}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_task_that_is_kept_waiting_for_a_minute_makes_younger_ones_stand_back() {
    let app = app().await;
    let root = node(&app, None).await;
    let (one, two, three) =
        (node(&app, Some(root.0)).await, node(&app, Some(root.0)).await, node(&app, Some(root.0)).await);
    task(&app, &one, WriteMode::Itself, 9, None).await;
    task(&app, &two, WriteMode::Itself, 8, None).await;
    let held = claim(&app, 2).await;
    let whole = task(&app, &root, WriteMode::Subtree, 0, None).await;
    let intents =
        async || sqlx::query_scalar::<_, TaskId>("SELECT task_id FROM task_intent").fetch_all(&app.pool).await.unwrap();
    assert!(claim(&app, 1).await.is_empty());
    let (_, _, in_the_way) = status(&app, whole).await;
    assert!(in_the_way.is_some() && intents().await.is_empty(), "it only parks");
    sqlx::query("UPDATE task_queue SET parked_since = now() - interval '61 seconds' WHERE id = $1")
        .bind(whole)
        .execute(&app.pool)
        .await
        .unwrap();
    let younger = task(&app, &three, WriteMode::Itself, 0, None).await;
    let (gone, other): (Vec<_>, Vec<_>) = held.into_iter().partition(|grant| Some(grant.task_id) == in_the_way);
    assert!(finish(&app.pool, &gone[0]).await);
    assert!(claim(&app, 1).await.is_empty(), "it woke and is blocked again");
    assert_eq!(intents().await, [whole]);
    assert!(claim(&app, 1).await.is_empty(), "{younger} is free, and stands back");
    assert!(finish(&app.pool, &other[0]).await);
    assert_eq!(claim(&app, 1).await.remove(0).task_id, whole);
    app.end().await;
}

#[tokio::test]
async fn an_edit_keeps_claims_away_from_its_region_and_holds_up_none() {
    let app = app().await;
    let root = node(&app, None).await;
    let child = node(&app, Some(root.0)).await;
    let beside = node(&app, Some(root.0)).await;
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let own = task(&app, &root, WriteMode::Itself, 2, None).await;
    let inside = task(&app, &child, WriteMode::Itself, 1, None).await;
    let elsewhere = task(&app, &beside, WriteMode::Itself, 0, None).await;
    let ids = |grants: &[Grant]| grants.iter().map(|grant| grant.task_id).collect::<Vec<_>>();

    let mut edit = app.pool.begin().await.unwrap();
    let edited = place(&mut edit, child.0).await;
    reservations::hold_for_edit(&mut edit, &edited, WriteMode::Itself).await.expect("nobody holds it");
    let got = claim(&app, 4).await;
    assert_eq!(ids(&got), [own, elsewhere], "what does not touch the edit");
    edit.rollback().await.unwrap();
    for grant in got {
        assert!(finish(&app.pool, &grant).await);
    }

    // The edit waits for a claim under way, which then blocks it.
    let mut claiming = app.pool.begin().await.unwrap();
    let got = tasks::claim(&mut *claiming, &claimer("w"), &[(Lane::Io, 1)]).await.unwrap().grants;
    assert_eq!(ids(&got), [whole]);
    let mut edit = app.pool.begin().await.unwrap();
    let server: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *edit).await.unwrap();
    let editing = tokio::spawn(async move { reservations::hold_for_edit(&mut edit, &edited, WriteMode::Itself).await });
    waits_for_a_lock(&app, server, &editing).await;
    claiming.commit().await.unwrap();
    match editing.await.unwrap() {
        Err(EditError::Held(holder)) => assert_eq!(holder.task_id, whole),
        other => panic!("{other:?}"),
    }
    assert!(finish(&app.pool, &got[0]).await);
    assert_eq!(ids(&claim(&app, 1).await), [inside]);
    app.end().await;
}

/// What lies far down a tree of a store with many documents has a path that does not fit into an index.
#[tokio::test]
async fn tasks_far_down_a_tree_are_claimed_however_long_their_paths_are() {
    let app = app().await;
    let line =
        |seed: i64| (0..240).map(|level| 100_000_000_000_000 + seed * 1_000_003 + level * 17).collect::<Vec<i64>>();
    let mut queued = Vec::new();
    for seed in 0..40 {
        let id = node(&app, None).await.0;
        let mode = if seed % 2 == 0 { WriteMode::Itself } else { WriteMode::Subtree };
        queued.push(task(&app, &(id, line(seed)), mode, 0, None).await);
    }
    let got = claim(&app, 40).await;
    assert_eq!(got.iter().map(|grant| grant.task_id).collect::<Vec<_>>(), queued);

    // Two neighbours at the end of one long line: one after the other.
    let (one, other) = (node(&app, None).await.0, node(&app, None).await.0);
    let first = task(&app, &(one, line(50)), WriteMode::Itself, 0, None).await;
    let second = task(&app, &(other, line(50)), WriteMode::Itself, 0, None).await;
    let grants = claim(&app, 2).await;
    assert_eq!(grants.iter().map(|grant| grant.task_id).collect::<Vec<_>>(), [first]);
    assert!(finish(&app.pool, &grants[0]).await);
    assert_eq!(claim(&app, 2).await[0].task_id, second);
    // The ids in those paths are of no documents.
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}
