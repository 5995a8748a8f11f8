//! Buckets of Google and containers of Azure: what is true of S3 is true of them.
use super::*;
use crate::support::{
    azure::{self, Azure},
    s3::GOOGLE_TOKEN,
};

/// What is deleted goes from the store, what is moved comes back from where it is, an orphan is found, and a secret that the server refuses is
/// not told.
async fn is_tended(settings: &[(&str, String)], objects: impl Fn() -> Vec<PathBuf>, secret: &str) {
    let app = app_on(settings, true).await;
    let small = app.upload_bytes("small.txt", "herons").await.unwrap().document_id;
    let large = noise(9 << 20, 4);
    let kept = app.upload_bytes("large.bin", large.clone()).await.unwrap().document_id;
    delete(&app, small).await;
    let_the_window_pass(&app).await;
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 1);
    assert_eq!(keys_of(&objects()), keys(&app).await.0);

    for to in ["database", "object"] {
        let moved = run(program(&app, settings, &["blobs", "move", "--to", to])).await;
        let line = last_line(&moved);
        assert_eq!((line["moved"].as_i64(), line["failed"].as_i64()), (Some(1), Some(0)), "{moved:?}");
        assert!(bytes_of(&app, kept).await.unwrap() == large, "in the {to}");
    }
    // Somebody has removed the first copy already.
    let (_, garbage) = keys(&app).await;
    let is_garbage = |path: &&PathBuf| !keys_of(std::slice::from_ref(*path)).is_disjoint(&garbage);
    std::fs::remove_file(objects().iter().find(is_garbage).unwrap()).unwrap();
    let_the_window_pass(&app).await;
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 1);
    assert_eq!((objects().len(), keys_of(&objects())), (1, keys(&app).await.0));

    // Each of several pages of a list is looked at.
    let whole = objects().remove(0);
    let shard = whole.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let orphans: Vec<PathBuf> =
        (0..5).map(|number| whole.with_file_name(format!("{shard}{number}{}", "f".repeat(29)))).collect();
    for orphan in &orphans {
        std::fs::write(orphan, "nobody's").unwrap();
        age(orphan);
    }
    assert_eq!(app.service.blobs.sweep(&app.pool).await.unwrap(), 5);
    let_the_window_pass(&app).await;
    assert_eq!(app.service.blobs.remove_garbage(&app.pool).await.unwrap(), 5);
    assert!(orphans.iter().all(|orphan| !orphan.exists()) && whole.exists());
    let verified = run(program(&app, settings, &["blobs", "verify", "--read"])).await;
    assert!(verified.status.success(), "{verified:?}");

    let mut changed = settings.to_vec();
    changed.iter_mut().filter(|(_, value)| value == secret).for_each(|(_, value)| "a-wrong-s3cret".clone_into(value));
    let refused = run(program(&app, &changed, &["blobs", "verify"])).await;
    let said = format!("{refused:?}");
    assert!(!refused.status.success() && said.contains("SVC_BLOB_STORE names") && said.contains("401"), "{said}");
    assert!(!said.contains("a-wrong-s3cret"), "{said}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_come_back_from_a_bucket_of_google_and_what_nobody_needs_goes() {
    let server = S3::of_google().await;
    comes_back(&server.settings(), || server.objects()).await;
    assert!(server.heard("POST") >= 2, "the large one went in parts");
    let server = S3::of_google().await;
    is_tended(&server.settings(), || server.objects(), GOOGLE_TOKEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_come_back_from_a_container_of_azure_and_what_nobody_needs_goes() {
    let server = Azure::start().await;
    comes_back(&server.settings(), || server.objects()).await;
    assert_eq!(server.loose_blocks(), 0, "the parts of the large one have become a blob");
    let server = Azure::start().await;
    is_tended(&server.settings(), || server.objects(), azure::TOKEN).await;
}
