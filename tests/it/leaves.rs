//! Tasks that reserve some leaves of a file and nothing else, so that a large flat file is embedded by many at once.
use crate::{
    queue::claimer,
    support::{PATIENCE, TestApp, Wish, invariants, place},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::json;
use std::time::Duration;
use svc::{
    store::{
        leases,
        reservations::{self, EditError},
        tasks::{self, NewTask},
    },
    worker::{Role, RunningWorker},
};
use svc_actors::{Grant, Lane, LeafRange, Region, WorkerEnd, WriteMode, path_key};
use svc_client::wire::{PageQuery, Settled, TaskTypePath};
use svc_ids::{DocumentId, RootId};

/// Starts a worker that ends when no task is left to run, and waits for its end.
pub async fn drain(app: &TestApp) {
    let role = Role { drain: true, ..Role::of(&app.service.settings) };
    let mut worker = RunningWorker::start(role, app.service.tools(), app.options.clone()).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, worker.wait()).await.unwrap(), WorkerEnd::Drained);
    worker.stop(Duration::from_secs(10), std::future::pending()).await;
}

/// Claims one task, as a worker with one idle slot does.
async fn claim_one(app: &TestApp) -> Option<Grant> {
    tasks::claim(&app.pool, &claimer("w"), &[(Lane::Model, 1)]).await.unwrap().grants.pop()
}

#[tokio::test]
async fn a_flat_file_is_embedded_by_as_many_tasks_at_once_as_there_are_slots() {
    let settings = &[("SVC_CHUNK_MAX_CHARS", "400")];
    let app = TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    // The model reads a word of more than a hundred characters as one token, so that much text costs little time.
    let text = (0..).map(|n| format!("Weir {n} was read, seal {:0130x}.", n * 7919));
    let text: Vec<String> = text.take(4_400).collect();
    let text = text.join(" ");
    assert!((650_000..750_000).contains(&text.len()), "{} bytes", text.len());
    let file = app.upload_bytes("readings.txt", text).await.unwrap().document_id;
    drain(&app).await;
    app.client.resume_task_type(embed()).await.unwrap();

    let (one, two) = (claim_one(&app).await.unwrap(), claim_one(&app).await.unwrap());
    assert_eq!((one.document_id.0, two.document_id.0), (file, file));
    assert!(one.region.leaves.is_some() && !one.region.overlaps(&two.region), "{:?} {:?}", one.region, two.region);
    invariants::check(&app.pool).await;
    let held = app.client.list_reservations(PageQuery::default()).await.unwrap().reservations;
    assert_eq!(held.iter().filter(|held| held.leaves.is_some()).count(), 2, "{held:?}");

    // Whatever writes under the file waits for them, and so does a deletion.
    let mut conn = app.pool.acquire().await.unwrap();
    for (mode, waits) in [(WriteMode::Subtree, true), (WriteMode::Children, true), (WriteMode::Itself, false)] {
        let task = NewTask {
            task_type: "test",
            lane: Lane::Io,
            document_id: DocumentId(file),
            path: &[],
            root_id: RootId(file),
            write_mode: mode,
            leaves: None,
            dependencies: &[],
            params: &json!({}),
            badge: None,
            priority: 0,
            traceparent: None,
        };
        let id = tasks::enqueue(&mut conn, &task).await.unwrap();
        let claimed = tasks::claim(&mut *conn, &claimer("w"), &[(Lane::Io, 1)]).await.unwrap().grants;
        assert_eq!(claimed.is_empty(), waits, "a task with {mode}");
        sqlx::query("DELETE FROM task_queue WHERE id = $1").bind(id).execute(&mut *conn).await.unwrap();
    }
    let whole = place(&mut conn, file).await;
    let deletion = reservations::hold_for_edit(&mut conn, &whole, WriteMode::Subtree).await;
    assert!(matches!(deletion, Err(EditError::Held(holder)) if holder.task_type == "embed"));
    drop(conn);

    leases::give_back(&app.pool, &[one.token, two.token]).await.unwrap();
    drain(&app).await;
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let bare: i64 =
        sqlx::query_scalar("SELECT count(*) FROM documents d WHERE NOT EXISTS (SELECT 1 FROM document_vectors v WHERE v.document_id = d.id)")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(bare, 0, "each chunk has its vector, and so has the file");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A region in a random tree, whose ids have one to three digits: of a mode, or of some of the leaves.
fn region(random: &mut SmallRng, paths: &[Vec<i64>]) -> Region {
    let path = paths[random.random_range(0..paths.len())].clone();
    let is_leaf = |leaf: &&Vec<i64>| !paths.iter().any(|other| other.len() > leaf.len() && other.starts_with(leaf));
    let under = paths.iter().filter(|other| other.len() > path.len() && other.starts_with(&path)).filter(is_leaf);
    let mut under: Vec<&Vec<i64>> = under.collect();
    under.sort_by_key(|leaf| path_key(leaf));
    let mode = [WriteMode::Itself, WriteMode::Children, WriteMode::Subtree][random.random_range(0..3)];
    if under.is_empty() || random.random_bool(0.4) {
        return Region { path, mode, leaves: None };
    }
    let (one, other) = (random.random_range(0..under.len()), random.random_range(0..under.len()));
    let leaves = LeafRange { first: under[one.min(other)].clone(), last: under[one.max(other)].clone() };
    Region { path, mode: WriteMode::Subtree, leaves: Some(leaves) }
}

/// Compares the server with [`Region::overlaps`], which a test beside it compares with sets of nodes.
#[tokio::test]
async fn the_servers_regions_overlap_exactly_where_their_nodes_do() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut overlapping = 0;
    for seed in 0..40 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut paths: Vec<Vec<i64>> = vec![vec![random.random_range(1..200)]];
        for _ in 0..30 {
            let mut path = paths[random.random_range(0..paths.len())].clone();
            let id = random.random_range(1..200);
            if !paths.iter().any(|other| other.last() == Some(&id)) {
                path.push(id);
                paths.push(path);
            }
        }
        let regions: Vec<Region> = (0..40).map(|_| region(&mut random, &paths)).collect();
        let key = |of: fn(&LeafRange) -> &Vec<i64>| -> Vec<Option<String>> {
            regions.iter().map(|region| region.leaves.as_ref().map(|leaves| path_key(of(leaves)))).collect()
        };
        let theirs: Vec<bool> = sqlx::query_scalar(
            "WITH region AS (
                 SELECT n, region_paths(path, mode, first, last) AS paths, region_depths(depth, mode, first) AS depths
                   FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::text[]) WITH ORDINALITY AS r(path, mode, depth, first, last, n))
             SELECT a.paths && b.paths AND a.depths && b.depths FROM region a CROSS JOIN region b ORDER BY a.n, b.n",
        )
        .bind(regions.iter().map(|region| path_key(&region.path)).collect::<Vec<_>>())
        .bind(regions.iter().map(|region| region.mode.as_str()).collect::<Vec<_>>())
        .bind(regions.iter().map(|region| region.path.len() as i32 - 1).collect::<Vec<_>>())
        .bind(key(|leaves| &leaves.first))
        .bind(key(|leaves| &leaves.last))
        .fetch_all(&app.pool)
        .await
        .unwrap();
        let pairs = regions.iter().flat_map(|one| regions.iter().map(move |other| (one, other)));
        for ((one, other), theirs) in pairs.zip(theirs) {
            assert_eq!(one.overlaps(other), theirs, "{one:?} {other:?}");
            overlapping += usize::from(theirs);
        }
    }
    assert!((5_000..59_000).contains(&overlapping), "{overlapping} of 64,000 pairs");
    app.end().await;
}
