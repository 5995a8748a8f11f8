//! Workers whose network fails: cut, black hole, slow.
use crate::{
    admin::{long_text, of_root, worker_command},
    crash::Process,
    support::{
        TestApp, Wish, invariants,
        proxy::{Proxy, Weather},
        until,
    },
};
use std::time::Duration;
use svc_client::wire::{DocumentPath, Settled, TaskQuery};

/// A worker whose connections all go through the proxy.
fn behind(app: &TestApp, proxy: &Proxy, name: &str, pace: &[&str]) -> Process {
    let (user, database) = (app.options.get_username(), app.options.get_database().unwrap());
    let url = format!("postgres://{user}@{}/{database}?sslmode=disable", proxy.address);
    let mut command = worker_command(app, &[&["--worker-id", name][..], pace].concat());
    Process(command.env("SVC_DATABASE_URL", url).spawn().unwrap())
}

/// A lease short enough to see it lapse.
const HASTE: &[&str] =
    &["--poll-seconds", "0.1", "--heartbeat-seconds", "0.4", "--lease-seconds", "1.5", "--reap-seconds", "0.3"];

async fn proxy(app: &TestApp) -> Proxy {
    Proxy::start(app.options.get_socket().unwrap().join(format!(".s.PGSQL.{}", app.options.get_port()))).await
}

/// A task that this worker runs.
async fn runs(app: &TestApp, root: i64, worker: &str) {
    until("the worker to run an embed task", async || {
        let query =
            TaskQuery { status: Some("running".to_owned()), task_type: Some("embed".to_owned()), ..of_root(root) };
        let tasks = app.client.list_tasks(query).await.unwrap().tasks;
        tasks.into_iter().find(|task| task.claimed_by.as_deref() == Some(worker))
    })
    .await;
}

async fn cut_off(weather: Weather) {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let proxy = proxy(&app).await;
    let first = app.upload_bytes("first.md", long_text()).await.unwrap().document_id;
    let far = behind(&app, &proxy, "far", HASTE);
    runs(&app, first, "far").await;
    proxy.set(weather);
    let near = Process(worker_command(&app, &[&["--worker-id", "near"][..], HASTE].concat()).spawn().unwrap());
    assert_eq!(app.settled(first).await.settled, Settled::Settled, "another worker takes over");
    let lost: i64 =
        sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE outcome = 'lease_lost' AND worker = 'far'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert!(lost > 0, "the lease of the one cut off ran out");
    drop(near);
    proxy.set(Weather::Fair);
    // Alone again, it comes back by itself and works.
    let mut second = long_text();
    second.extend(b"# And another part\n\nSo that these are other bytes.\n");
    let second = app.upload_bytes("second.md", second).await.unwrap().document_id;
    assert_eq!(app.settled(second).await.settled, Settled::Settled);
    let by_far: i64 =
        sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE outcome = 'completed' AND worker = 'far'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert!(by_far > 0, "the one that was cut off works again");
    drop(far);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_worker_whose_connections_are_cut_loses_its_tasks_and_comes_back() {
    cut_off(Weather::Cut).await;
}

#[tokio::test]
async fn a_worker_in_a_black_hole_loses_its_tasks_and_comes_back() {
    cut_off(Weather::Blackhole).await;
}

#[tokio::test]
async fn a_slow_network_slows_work_and_breaks_nothing() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let proxy = proxy(&app).await;
    proxy.set(Weather::Slow(Duration::from_millis(5)));
    let _far = behind(&app, &proxy, "far", &["--poll-seconds", "0.1"]);
    let id = app.upload(&crate::support::sample("handbook.md")).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    assert_eq!(app.client.read_frontier(DocumentPath { id }).await.unwrap().nodes_failed, 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
