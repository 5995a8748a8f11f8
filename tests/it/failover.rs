//! The primary is killed under a live service, and a standby is promoted: what was acknowledged is there, and nobody is told less than it knows.
mod lost;

use crate::{
    crash::url,
    replicas::answered_by,
    support::{
        TestApp, Wish, document,
        proxy::{Proxy, Weather},
        server,
        standby::Standby,
        until,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use svc::embedded::EmbeddedPostgres;
use svc_client::{
    AFTER_HEADER, Code, Failure, Json,
    wire::{DocumentPath, EmbedQuery, WaitQuery},
};

/// How many writes are acknowledged before the primary is killed, and again after a standby took its place.
const WRITES: usize = 30;
/// How often what must never be seen is looked for.
const LOOKS: usize = 20;
/// A position that no log has.
const BEYOND: &str = "FFFFFFFF/0";

/// Has the primary acknowledge nothing before this standby has it.
async fn acknowledge_with(primary: &EmbeddedPostgres, heir: &Standby, name: &str) {
    let mut conn = PgConnection::connect_with(&primary.superuser_options()).await.unwrap();
    let change = format!("ALTER SYSTEM SET synchronous_standby_names = '\"{name}\"'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut conn).await.unwrap();
    sqlx::query("SELECT pg_reload_conf()").execute(&mut conn).await.unwrap();
    until("the standby to be waited for", async || {
        let waits = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')";
        sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut conn).await.unwrap().then_some(())
    })
    .await;
    conn.close().await.unwrap();
    assert!(heir.ask::<bool>("SELECT pg_is_in_recovery()").await);
}

fn kill(primary: &EmbeddedPostgres) {
    let pid = Pid::from_raw(i32::try_from(primary.server_pid().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// While no server takes the primary's place a call may be told to come again, and nothing else.
fn passes(failure: &Failure) {
    assert_eq!(failure.code, Code::Unavailable, "{failure:?}");
}

/// The title of a document, as a caller is told who knows this position.
async fn title(app: &TestApp, id: i64, after: Option<&str>) -> String {
    let mut request = app.raw("GET", &format!("/documents/{id}"));
    if let Some(after) = after {
        request = request.header(AFTER_HEADER, after);
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.json::<Value>().await.unwrap()["title"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_goes_on_at_the_standby_that_took_the_place_of_its_primary_with_all_that_was_acknowledged() {
    let primary = server::own("failover").await;
    let heir = Standby::of(&primary, "failover-1").await;
    // This one reads from the heir, so that it is never ahead of it, and goes on with it.
    let follower = Standby::of(&primary, "failover-2").await;
    follower.follow(&heir).await;
    acknowledge_with(&primary, &heir, "failover-1").await;
    let options = primary.connect_options();
    let socket = options.get_socket().unwrap().join(format!(".s.PGSQL.{}", options.get_port()));
    let address = Proxy::start(socket).await;
    let (user, database) = (options.get_username(), options.get_database().unwrap());
    let through = format!("postgres://{user}@{}/{database}?sslmode=disable", address.address);
    let through: PgConnectOptions = through.parse().unwrap();
    let read_url = url(&follower.options);
    let settings = [("SVC_DATABASE_READ_URL", read_url.as_str())];
    let wish = Wish { settings: &settings, no_worker: true, database: Some(through), ..Wish::default() };
    let mut app = TestApp::with(wish).await;
    until("the standby to answer reads", async || app.service.replicas().unwrap().state().ok()).await;

    let (acknowledged, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let count = || acknowledged.lock().unwrap().len();
    let write = async {
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            let title = format!("Heron {number}");
            let new = Json(document(&title, "A heron waits."));
            let id = match app.client.create_document(WaitQuery::default(), new).await {
                Ok(made) => made.document.id,
                Err(failure) => {
                    passes(&failure);
                    continue;
                }
            };
            acknowledged.lock().unwrap().push((id, title.clone()));
            // Whoever wrote it is told of it, by whatever server, as long as any answers.
            match app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await {
                Ok(read) => assert_eq!(read.value().unwrap().title, title),
                Err(failure) => passes(&failure),
            }
        }
    };
    let switch = async {
        until("writes", async || (count() >= WRITES).then_some(())).await;
        address.set(Weather::Cut);
        kill(&primary);
        assert!(heir.ask::<bool>("SELECT pg_promote()").await);
        let before = count();
        address.lead_to(heir.socket());
        address.set(Weather::Fair);
        until("writes at the new primary", async || (count() >= before + WRITES).then_some(())).await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(write, switch);
    let acknowledged = acknowledged.into_inner().unwrap();
    for (id, expected) in &acknowledged {
        let read = app.client.read_document(DocumentPath { id: *id }, EmbedQuery::default()).await.unwrap();
        assert_eq!(read.value().unwrap().title, *expected);
        // Whoever knows of more than the new log has is told what there is.
        assert_eq!(title(&app, *id, Some(BEYOND)).await, *expected);
    }

    // A server that may still be of the history of before answers nobody, and one that follows does.
    let (first, _) = acknowledged[0];
    let renamed = app.raw("PATCH", &format!("/documents/{first}")).json(&json!({"title": "Renamed"}));
    assert_eq!(renamed.send().await.unwrap().status(), 200);
    until("the follower to have the new history", async || {
        let has = "SELECT EXISTS (SELECT FROM documents WHERE title = 'Renamed')";
        follower.ask::<bool>(has).await.then_some(())
    })
    .await;
    until("the follower to answer reads again", async || {
        // A standby tells of its new history in its next checkpoint, at the latest.
        heir.set("CHECKPOINT").await;
        follower.set("CHECKPOINT").await;
        let before = answered_by(&app, &follower);
        assert_eq!(title(&app, first, None).await, "Renamed");
        (answered_by(&app, &follower) > before).then_some(())
    })
    .await;
    for look in 0..LOOKS {
        assert_eq!(title(&app, first, None).await, "Renamed", "look {look}");
        let word = format!("Egret {look}");
        let id = app.client.create_document(WaitQuery::default(), Json(document(&word, ""))).await.unwrap().document.id;
        let read = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
        assert_eq!(read.value().unwrap().title, word);
    }

    // What was queued before is queued still.
    app.start_worker().await;
    until("all documents to be settled", async || {
        let open = "SELECT count(*) FROM documents WHERE settled <> 'settled'";
        let open: i64 = sqlx::query_scalar(open).fetch_one(&app.pool).await.ok()?;
        (open == 0).then_some(())
    })
    .await;
    app.end().await;
    drop((heir, follower));
    primary.stop().await;
}
