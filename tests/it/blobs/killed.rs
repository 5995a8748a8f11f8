//! Services and workers that are killed on the way to the object store: no row ever lacks its object, and what is left goes.
use super::{moving::tidied, *};
use crate::support::{PATIENCE, TOKEN, http, invariants, s3::Stop};
use sqlx::Connection;
use std::io::{BufRead, BufReader};

/// The service's program on the store of a test, and its address.
async fn service(app: &TestApp, s3: &S3) -> (Process, String) {
    let mut command = crash::serve_command(app);
    command.envs(s3.settings()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Process(command.spawn().unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        lines.find_map(|line| Some(line.split_once(" serves ")?.1.split_whitespace().next()?.to_owned()))
    });
    (process, tokio::time::timeout(PATIENCE, address).await.unwrap().unwrap().expect("it serves"))
}

/// Sends an upload that nobody will answer.
fn upload(address: &str, name: &'static str, bytes: Vec<u8>) -> tokio::task::JoinHandle<()> {
    let url = format!("{address}ingest/file");
    tokio::spawn(async move {
        let part = reqwest::multipart::Part::bytes(bytes).file_name(name);
        let form = reqwest::multipart::Form::new().part("file", part);
        let _ = http().post(url).bearer_auth(TOKEN).multipart(form).send().await;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_whose_service_is_killed_is_whole_or_not_there() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    // The store has its mark before anything is killed.
    app.service.sampler.ask_blob_store().await;
    let large = noise(9 << 20, 7);
    let files = async || count(&app, "SELECT count(*) FROM document_blobs").await;
    let mut left = 0;
    for (stop, bytes) in [
        (Stop::Before("PUT", "/blobs/"), b"small".to_vec()),
        (Stop::After("PUT", "/blobs/"), b"small".to_vec()),
        (Stop::After("POST", "uploads"), large.clone()),
        (Stop::After("PUT", "partNumber"), large.clone()),
        (Stop::After("POST", "uploadId"), large.clone()),
    ] {
        let (service, address) = service(&app, &s3).await;
        let mut stopped = s3.stop_at(stop);
        let sending = upload(&address, "upload.bin", bytes);
        tokio::time::timeout(PATIENCE, stopped.recv()).await.unwrap().unwrap();
        service.kill();
        s3.go_on();
        sending.await.unwrap();
        assert_eq!(files().await, 0, "{stop:?}");
        assert!(s3.objects().len() >= left, "{stop:?}");
        left = s3.objects().len();
    }
    assert!(left >= 2, "what was put and not named is left for the sweep: {left}");
    // The object is there, and its row waits for us.
    let (service, address) = service(&app, &s3).await;
    let mut holder = sqlx::PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE document_blobs IN SHARE MODE").execute(&mut holder).await.unwrap();
    let sending = upload(&address, "upload.bin", large.clone());
    until("a row that is about to be inserted", async || {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                          AND query LIKE 'INSERT INTO document_blobs%'";
        (count(&app, waiting).await > 0).then_some(())
    })
    .await;
    service.kill();
    holder.close().await.unwrap();
    sending.await.unwrap();
    until("its transaction to end", async || {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'INSERT INTO document_blobs%' AND state <> 'idle'";
        (count(&app, open).await == 0).then_some(())
    })
    .await;
    assert_eq!(files().await, 0);
    let id = app.upload_bytes("upload.bin", large.clone()).await.unwrap().document_id;
    assert!(bytes_of(&app, id).await.unwrap() == large);
    tidied(&app, &s3).await;
    assert_eq!(s3.objects().len(), 1);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_while_it_stores_members_makes_them_once() {
    let s3 = S3::start().await;
    let mut app = app_on(&s3.settings(), true).await;
    let zip = members::archive(&[("heron.md", "# Herons\n\nThey wait."), ("coot.md", "# Coots\n\nThey dive.")]);
    let id = app.upload_bytes("birds.zip", zip).await.unwrap().document_id;
    for (number, stop) in [Stop::Before("PUT", "/blobs/"), Stop::After("PUT", "/blobs/")].into_iter().enumerate() {
        let mut stopped = s3.stop_at(stop);
        let mut worker = crash::worker_command(&app, number);
        worker.envs(s3.settings()).env("SVC_SPOOL_MAX_BYTES", "0");
        let worker = Process(worker.spawn().unwrap());
        tokio::time::timeout(PATIENCE, stopped.recv()).await.unwrap().unwrap();
        worker.kill();
        s3.go_on();
        assert_eq!(count(&app, "SELECT count(*) FROM document_blobs").await, 1, "{stop:?}");
    }
    app.start_worker().await;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    invariants::check_drained(&app.pool).await;
    assert!(s3.objects().len() > 3, "a kill has left an object, which shows that it hit");
    tidied(&app, &s3).await;
    assert_eq!(s3.objects().len(), 3);
    app.end().await;
}
