//! Clients that go away before they are answered.
use crate::support::{self, TOKEN, TestApp, document, invariants, until};
use sqlx::{Connection, PgConnection, PgPool};
use std::{path::PathBuf, sync::Arc, time::Duration};
use svc::{app::App, embedded::EmbeddedPostgres, reader::Reader};
use svc_client::{
    Client, Json, Remote,
    wire::{DocumentPath, HybridSearch, PageQuery, WaitQuery},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// Sends a request with a JSON body and reads nothing.
async fn send(address: &str, path: &str, body: &serde_json::Value) -> TcpStream {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Counts the statements of the service that wait for a lock. A test locks a table for this, so that everything stops
/// where it is.
async fn waiting(onlooker: &mut PgConnection, of: &str) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'svc'
            AND state = 'active' AND wait_event_type = 'Lock' AND query LIKE $1",
    )
    .bind(of)
    .fetch_one(onlooker)
    .await
    .unwrap()
}

/// A connection that holds a table until it is closed, and one that looks on.
async fn hold(pool: &PgPool, table: &str) -> (PgConnection, PgConnection) {
    let options = pool.connect_options();
    // The name differs from those of the service's own connections.
    let options = sqlx::postgres::PgConnectOptions::clone(&options).application_name("test");
    let mut holder = PgConnection::connect_with(&options).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut holder).await.unwrap();
    (holder, PgConnection::connect_with(&options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_hang_up_disturb_nobody() {
    let app = TestApp::start().await;
    let (first, address) = (app.create("Tides", "The moon pulls the oceans.", None).await, app.base.clone());
    let address = address.trim_start_matches("http://").to_owned();
    let rude = tokio::spawn(async move {
        // This is like somebody who types: each letter replaces the last search.
        for at in 0..150_u64 {
            let stream = send(&address, "/search/hybrid", &serde_json::json!({"query": format!("moon {at}")})).await;
            tokio::time::sleep(Duration::from_millis(at * 7 % 31)).await;
            drop(stream);
        }
    });
    let mut rounds = 0;
    while !rude.is_finished() || rounds == 0 {
        let new = document("Bread", &format!("Yeast eats the sugar in dough {rounds}."));
        let created = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
        assert_eq!(
            app.client
                .read_document(DocumentPath { id: created.id }, Default::default())
                .await
                .unwrap()
                .value()
                .unwrap()
                .id,
            created.id
        );
        app.client.read_frontier(DocumentPath { id: first.id }).await.unwrap();
        app.client.list_roots(PageQuery::default()).await.unwrap();
        app.client.search_hybrid(Json(HybridSearch::new("oceans"))).await.unwrap();
        rounds += 1;
    }
    rude.await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_search_whose_client_is_gone_is_cancelled_at_the_server() {
    let app = TestApp::start().await;
    app.create("Tides", "The moon pulls the oceans.", None).await;
    let address = app.base.trim_start_matches("http://").to_owned();
    let (holder, mut onlooker) = hold(&app.pool, "documents").await;
    for (path, of) in
        [("/search/fulltext", "%ts_rank_cd%"), ("/search/vector", "%documents%"), ("/search/hybrid", "%documents%")]
    {
        let stream = send(&address, path, &serde_json::json!({"query": "moon"})).await;
        until(&format!("{path} at work"), async || (waiting(&mut onlooker, of).await > 0).then_some(())).await;
        drop(stream);
        until("its cancel", async || (waiting(&mut onlooker, of).await == 0).then_some(())).await;
    }
    holder.close().await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_write_is_carried_out_though_its_client_is_gone() {
    let app = TestApp::start().await;
    let address = app.base.trim_start_matches("http://").to_owned();
    let (holder, mut onlooker) = hold(&app.pool, "documents").await;
    let stream =
        send(&address, "/documents", &serde_json::json!({"title": "Kept", "content": "Written to nobody."})).await;
    until("the insert", async || (waiting(&mut onlooker, "%INSERT INTO documents%").await > 0).then_some(())).await;
    drop(stream);
    // A search whose client leaves later is cancelled, so a cancel of the write would have come earlier.
    let search = send(&address, "/search/fulltext", &serde_json::json!({"query": "moon"})).await;
    until("the search", async || (waiting(&mut onlooker, "%ts_rank_cd%").await > 0).then_some(())).await;
    drop(search);
    until("its cancel", async || (waiting(&mut onlooker, "%ts_rank_cd%").await == 0).then_some(())).await;
    assert!(waiting(&mut onlooker, "%INSERT INTO documents%").await > 0, "the write goes on without its client");
    holder.close().await.unwrap();
    until("the document", async || {
        let page = app.client.list_roots(PageQuery::default()).await.unwrap();
        page.documents.iter().any(|document| document.title == "Kept").then_some(())
    })
    .await;
    app.end().await;
}

#[tokio::test]
async fn a_text_is_not_cut_for_a_client_that_is_gone() {
    let app = TestApp::start().await;
    let id = app.create("Herons", "The heron waits by the water. It eats fish.", None).await.id;
    let address = app.base.trim_start_matches("http://").to_owned();
    for path in [format!("/documents/{id}/chunk"), format!("/documents/{id}/split")] {
        let (holder, mut onlooker) = hold(&app.pool, "documents").await;
        let body = match path.ends_with("split") {
            true => serde_json::json!({"at": [30]}),
            false => serde_json::json!({}),
        };
        let stream = send(&address, &path, &body).await;
        let at_work = "%SELECT d.id, d.path FROM documents%";
        until(&format!("{path} at work"), async || (waiting(&mut onlooker, at_work).await > 0).then_some(())).await;
        drop(stream);
        // A search whose client leaves later is cancelled, so the service knows then that this client has left.
        let search = send(&address, "/search/fulltext", &serde_json::json!({"query": "moon"})).await;
        until("the search", async || (waiting(&mut onlooker, "%ts_rank_cd%").await > 0).then_some(())).await;
        drop(search);
        until("its cancel", async || (waiting(&mut onlooker, "%ts_rank_cd%").await == 0).then_some(())).await;
        holder.close().await.unwrap();
        until("the end of the request", async || app.service.requests.is_empty().then_some(())).await;
        assert_eq!(app.subtree(id).await.len(), 0, "{path}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_service_waits_for_writes_without_a_client() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let data_dir = std::env::temp_dir().join(format!("svc-hangups-{}", std::process::id()));
    let folder = data_dir.display().to_string();
    let settings = support::settings(&[
        ("SVC_DATA_DIR", &folder),
        ("SVC_LISTEN", "127.0.0.1:0"),
        ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"),
        ("SVC_INGEST_WORKER_ENABLED", "false"),
    ]);
    let reader = Reader::new(PathBuf::from(env!("CARGO_BIN_EXE_svc")));
    let app = App::start(Arc::new(settings.clone()), TOKEN, reader.clone()).await.unwrap();
    let (holder, mut onlooker) = hold(&app.service.task_pool, "documents").await;
    let body = serde_json::json!({"title": "Kept", "content": "Written while the service ends."});
    let stream = send(&app.address.to_string(), "/documents", &body).await;
    until("the insert", async || (waiting(&mut onlooker, "%INSERT INTO documents%").await > 0).then_some(())).await;
    drop(stream);
    let service = app.service.clone();
    let stopped = tokio::spawn(app.stop(std::future::pending()));
    until("the end to be begun", async || service.requests.is_closed().then_some(())).await;
    assert!(!service.requests.is_empty(), "the write is still under way");
    holder.close().await.unwrap();
    onlooker.close().await.unwrap();
    stopped.await.unwrap();
    assert!(EmbeddedPostgres::connect_options_of(&data_dir).is_err(), "the server under it has ended");

    let app = App::start(Arc::new(settings), TOKEN, reader).await.unwrap();
    let client = Client(Remote::new(&format!("http://{}", app.address), TOKEN, support::http()));
    let roots = client.list_roots(PageQuery::default()).await.unwrap().documents;
    assert_eq!(roots.iter().map(|document| document.title.as_str()).collect::<Vec<_>>(), ["Kept"]);
    invariants::check_idle(&app.service.task_pool).await;
    app.stop(std::future::pending()).await;
    std::fs::remove_dir_all(data_dir).unwrap();
}
