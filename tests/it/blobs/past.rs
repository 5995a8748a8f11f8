//! A database that goes back to a moment before, while its objects do not.
use super::*;
use crate::support::standby::Standby;
use sqlx::postgres::PgConnectOptions;

async fn on(s3: &S3, database: PgConnectOptions) -> TestApp {
    let settings = s3.settings();
    let mut settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    settings.push(("SVC_SPOOL_MAX_BYTES", "0"));
    TestApp::with(Wish { settings: &settings, no_worker: true, database: Some(database), ..Wish::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_a_past_moment_finds_all_of_its_bytes() {
    let s3 = S3::start().await;
    let primary = server::own("past").await;
    let app = on(&s3, primary.connect_options()).await;
    let mut files = Vec::new();
    for (name, length, seed) in [("small.bin", 100, 1), ("kept.bin", 70_000, 2), ("large.bin", (9 << 20) + 3, 3)] {
        let bytes = noise(length, seed);
        files.push((app.upload_bytes(name, bytes.clone()).await.unwrap().document_id, bytes));
    }
    // What replays no more is the database as it was at that moment, as a restore up to it makes it.
    let past = Standby::of(&primary, "past-1").await;
    until("the copy to have the files", async || {
        (past.ask::<i64>("SELECT count(*) FROM document_blobs").await == 3).then_some(())
    })
    .await;
    past.set("ALTER SYSTEM SET primary_conninfo = ''").await;
    until("the copy to receive no more", async || {
        past.ask::<bool>("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)").await.then_some(())
    })
    .await;
    delete(&app, files[0].0).await;
    delete(&app, files[2].0).await;
    let later = app.upload_bytes("later.bin", noise(5_000, 5)).await.unwrap();
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 0, "a restored database may need them");
    app.end().await;

    assert!(past.ask::<bool>("SELECT pg_promote()").await);
    let back = on(&s3, past.options.clone()).await;
    for (id, bytes) in &files {
        assert!(bytes_of(&back, *id).await.unwrap() == *bytes, "file {id}");
    }
    // What came after that moment has no row any more, and goes once it is old.
    age(&s3.object(later.blob_ref.trim_start_matches("obj:")));
    assert_eq!(back.service.blobs.sweep(&back.pool).await.unwrap(), 1);
    let_the_window_pass(&back).await;
    assert_eq!(back.service.blobs.remove_garbage(&back.pool).await.unwrap(), 1);
    assert_eq!(keys_of(&s3.objects()), keys(&back).await.0);
    for (id, bytes) in &files {
        assert!(bytes_of(&back, *id).await.unwrap() == *bytes, "file {id} after the look");
    }
    back.end().await;
    drop(past);
    primary.stop().await;
}
