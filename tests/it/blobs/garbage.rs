//! Objects that the store does not delete: they hold up no others.
use super::*;
use crate::support::{PATIENCE, s3::Stop};
use std::time::Duration;

#[tokio::test]
async fn an_object_that_the_store_does_not_delete_stays_alone_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let app = app_on(&in_folder(folder.path()), true).await;
    let mut stored = Vec::new();
    for name in ["first", "second", "third"] {
        let upload = app.upload_bytes(name, name).await.unwrap();
        delete(&app, upload.document_id).await;
        stored.push(upload.blob_ref.trim_start_matches("obj:").to_owned());
    }
    let path = |key: &str| folder.path().join(key);
    let stubborn = stored.remove(0);
    // A folder is not deleted as a file is.
    std::fs::remove_file(path(&stubborn)).unwrap();
    std::fs::create_dir(path(&stubborn)).unwrap();
    std::fs::write(path(&stubborn).join("photo.jpg"), "x").unwrap();
    let_the_window_pass(&app).await;
    let refused = app.service.blobs.remove_garbage(&app.pool).await.unwrap_err();
    assert!(refused.to_string().contains(&stubborn), "{refused}");
    assert_eq!(keys(&app).await.1, [stubborn.clone()].into());
    assert!(stored.iter().all(|key| !path(key).exists()));
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 0, "it is put off");

    std::fs::remove_dir_all(path(&stubborn)).unwrap();
    std::fs::write(path(&stubborn), "first").unwrap();
    let_the_window_pass(&app).await;
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 1);
    assert!(keys(&app).await.1.is_empty() && !path(&stubborn).exists());
    app.end().await;
}

#[tokio::test]
async fn a_page_of_garbage_that_was_put_off_gives_way_to_what_is_behind_it() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let (day, hour) = (Duration::from_secs(24 * 3600), Duration::from_secs(3600));
    let noted = "INSERT INTO blob_garbage (object, since) VALUES
                 ('a', now() - interval '5 days'), ('b', now() - interval '4 days'),
                 ('c', now() - interval '3 days'), ('d', now() - interval '2 days')";
    sqlx::query(noted).execute(&app.pool).await.unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    let page = store::blobs::garbage(&mut conn, day, 2).await.unwrap();
    assert_eq!(page, ["a", "b"]);
    store::blobs::put_off_garbage(&mut conn, &page, day, hour).await.unwrap();
    let behind = store::blobs::garbage(&mut conn, day, 2).await.unwrap();
    assert_eq!(behind, ["c", "d"]);
    store::blobs::forget_garbage(&mut conn, &behind).await.unwrap();
    assert!(store::blobs::garbage(&mut conn, day, 2).await.unwrap().is_empty());
    // What is not due yet is not due any sooner.
    store::blobs::put_off_garbage(&mut conn, &page, 3 * day, hour).await.unwrap();
    assert!(store::blobs::garbage(&mut conn, day, 2).await.unwrap().is_empty());
    sqlx::query("UPDATE blob_garbage SET since = since - interval '1 hour'").execute(&mut *conn).await.unwrap();
    assert_eq!(store::blobs::garbage(&mut conn, day, 2).await.unwrap().len(), 2, "they are tried again");
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn a_look_for_orphans_that_a_stop_cuts_off_is_made_again_a_day_later_and_a_whole_one_is_not() {
    let s3 = S3::start().await;
    let app = app_on(&s3.settings(), true).await;
    let upload = app.upload_bytes("heron.txt", "A heron waits.").await.unwrap();
    let key = upload.blob_ref.trim_start_matches("obj:").to_owned();
    delete(&app, upload.document_id).await;
    let nothing_names_it = async || {
        sqlx::query("DELETE FROM blob_garbage").execute(&app.pool).await.unwrap();
    };
    nothing_names_it().await;
    age(&s3.object(&key));
    let queue = || PgQueue::new(&app.service.tools(), claimer("w"), crate::queue::LEASE, None);
    let mut stopped = s3.stop_at(Stop::Before("GET", "list-type=2"));
    let first = queue();
    first.sweep().await.unwrap();
    tokio::time::timeout(PATIENCE, stopped.recv()).await.expect("it lists objects").unwrap();
    drop(first);
    s3.go_on();
    let looks_later = async |days: i32| {
        let passes = "UPDATE upkeep_turn SET taken_at = taken_at - make_interval(days => $1)";
        sqlx::query(passes).bind(days).execute(&app.pool).await.unwrap();
        let next = queue();
        next.sweep().await.unwrap();
        until("its work to end", async || next.is_tidy().then_some(())).await;
        keys(&app).await.1
    };
    assert_eq!(looks_later(1).await, [key.clone()].into());
    nothing_names_it().await;
    assert!(looks_later(1).await.is_empty(), "the look of this week was made");
    assert_eq!(looks_later(6).await, [key].into());
    app.end().await;
}
