//! What is left of a command that is killed while it writes a file.
use super::{before, end_of, start, text};
use crate::support::{TestApp, Wish, proxy::Weather, sample, until};
use std::fs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_whole_is_never_left() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id.to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved").display().to_string();
    let bytes_of = format!("GET /documents/{id}/bytes");
    for (arguments, asks) in
        [(&["bytes", &id, "-o", &path][..], bytes_of.as_str()), (&["rdf", "export", "-o", &path], "GET /rdf/turtle")]
    {
        let proxy = before(&app).await;
        // It waits for the service with the file open.
        proxy.set(Weather::Blackhole);
        let mut child = start(&format!("http://{}", proxy.address), arguments);
        until("the command to ask", async || proxy.has_heard(asks).then_some(())).await;
        child.kill().unwrap();
        let done = end_of(child).await;
        assert!(!done.status.success(), "{arguments:?}: {}", text(&done.stderr));
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{arguments:?} leaves {left:?}");
        proxy.set(Weather::Cut);
    }
    app.end().await;
}
