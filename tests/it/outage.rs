//! The database goes away and comes back.
use crate::{
    crash::Process,
    support::{self, PATIENCE, TOKEN, document, invariants, sample, until},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};
use svc::{app::App, reader::Reader};
use svc_client::{
    Client, Code, FileUpload, Json, Remote,
    wire::{DocumentPath, HealthStatus, UploadQuery, WaitQuery},
};
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn meanwhile_503_and_then_on() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let data_dir = support::server::folder().join("outage");
    let folder = data_dir.display().to_string();
    let settings = support::settings(&[
        ("SVC_DATA_DIR", &folder),
        ("SVC_LISTEN", "127.0.0.1:0"),
        ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"),
        ("SVC_WORKER_HEARTBEAT_SECONDS", "1"),
        ("SVC_WORKER_LEASE_SECONDS", "10"),
        ("SVC_WORKER_REAP_SECONDS", "1"),
    ]);
    let home = settings.postgres_home.clone();
    let database = svc::embedded::EmbeddedPostgres::start(&data_dir.join("database"), &home).await.unwrap();
    let options = database.connect_options();
    let socket = options.get_socket().unwrap().display().to_string();
    let url =
        format!("postgres://{}@localhost/{}?host={socket}", options.get_username(), options.get_database().unwrap());
    let settings = support::settings(&[
        ("SVC_DATA_DIR", &folder),
        ("SVC_LISTEN", "127.0.0.1:0"),
        ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"),
        ("SVC_DATABASE_URL", &url),
        ("SVC_MIGRATE", "auto"),
        ("SVC_WORKER_HEARTBEAT_SECONDS", "1"),
        ("SVC_WORKER_LEASE_SECONDS", "10"),
        ("SVC_WORKER_REAP_SECONDS", "1"),
    ]);
    let app =
        App::start(Arc::new(settings), TOKEN, Reader::new(PathBuf::from(env!("CARGO_BIN_EXE_svc")))).await.unwrap();
    let client = Client(Remote::new(&format!("http://{}", app.address), TOKEN, support::http()));
    let file = |name: &str| FileUpload::from_bytes(name, std::fs::read(sample(name)).unwrap(), None);
    let before = client.upload_file(UploadQuery::default(), file("handbook.md")).await.unwrap().document_id;

    database.stop().await;
    let down =
        client.create_document(WaitQuery::default(), Json(document("Never", "Written to nobody."))).await.unwrap_err();
    assert_eq!((down.code, down.status), (Code::Unavailable, 503), "{down}");
    assert!(down.members.contains_key("retry_after"), "{down}");
    let answer =
        support::http().get(format!("http://{}/documents/1", app.address)).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    let failure = until("the service to know", async || {
        client.read_readiness().await.err().filter(|failure| failure.detail.contains("database"))
    })
    .await;
    assert_eq!(failure.status, 503);
    let health = client.read_health().await.unwrap();
    assert_eq!(
        (health.version.as_str(), health.status),
        (svc_client::VERSION, HealthStatus::Degraded),
        "the process is alive"
    );
    let database = svc::embedded::EmbeddedPostgres::start(&data_dir.join("database"), &home).await.unwrap();
    let back = async {
        loop {
            match client
                .create_document(WaitQuery::default(), Json(document("During", "Written while the database restarts.")))
                .await
            {
                Ok(created) => return created.id,
                Err(failure) => assert_eq!(failure.code, Code::Unavailable, "{failure}"),
            }
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await.unwrap_err();
        }
    };
    let during = tokio::time::timeout(PATIENCE, back).await.expect("the database comes back");
    let settles = async {
        loop {
            let frontiers = [
                client.read_frontier(DocumentPath { id: before }).await,
                client.read_frontier(DocumentPath { id: during }).await,
            ];
            if frontiers.iter().all(|f| f.as_ref().is_ok_and(|f| f.nodes_in_flight == 0 && f.tasks_unfinished == 0)) {
                return;
            }
            tokio::time::timeout(Duration::from_millis(50), std::future::pending::<()>()).await.unwrap_err();
        }
    };
    tokio::time::timeout(PATIENCE, settles).await.expect("what was under way goes on");
    let pool = sqlx::PgPool::connect_with(database.connect_options()).await.unwrap();
    invariants::check_drained(&pool).await;
    pool.close().await;
    app.stop(std::future::pending()).await;
    database.stop().await;
    let _ = std::fs::remove_dir_all(&data_dir);
}

#[tokio::test]
async fn who_is_asked_to_stop_before_it_has_started_stops_in_order() {
    // It takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://svc@{}/svc", silent.local_addr().unwrap());
    let programs: [(&str, &[&str]); 3] = [
        (env!("CARGO_BIN_EXE_svc"), &["serve"]),
        (env!("CARGO_BIN_EXE_svc-worker"), &[]),
        (env!("CARGO_BIN_EXE_svc-batch-worker"), &["run", "--provider", "mock"]),
    ];
    for (program, arguments) in programs {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["--config", "/dev/null"])
            .env("SVC_DATABASE_URL", &url)
            .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
            .env("SVC_LISTEN", "127.0.0.1:0")
            .env("SVC_CONSOLE_LISTEN", "127.0.0.1:0")
            .env("SVC_API_TOKEN", TOKEN)
            .env("SVC_LOG_LEVEL", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut process = Process(command.spawn().unwrap());
        let connected = tokio::time::timeout(PATIENCE, silent.accept()).await.expect("it asks its database").unwrap();
        kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
        let status = until("its end", async || process.0.try_wait().unwrap()).await;
        // Whoever does not listen for the signal is ended by it, or, as the first process of a container, not at all.
        assert_eq!(status.code(), Some(0), "{program}: {status}");
        drop(connected);
    }
}
