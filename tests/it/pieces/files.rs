//! The vectors of segments that hold files, whatever happens to these.
use super::{TOPICS, assert_sums, drained, ids_under, segment};
use crate::{
    edits::patched,
    support::{TestApp, invariants, until},
};
use serde_json::json;
use svc_client::{
    Code, FileUpload, OptionalJson,
    wire::{DocumentPath, ReprocessRequest, SegmentRequest, UploadQuery},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_of_files_follows_their_reprocesses_their_titles_and_the_end_of_their_parts() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
    let mut files = Vec::new();
    for n in 0..6 {
        let text = format!("# File {n}\n\n{} It is the text of file {n}.\n", TOPICS[n / 3].join(" "));
        let file = FileUpload::from_bytes(&format!("{n}.md"), text, None);
        files.push(app.client.upload_file(query, file).await.unwrap().document_id);
    }
    for id in &files {
        app.settled(*id).await;
    }
    let made = segment(&app, folder, SegmentRequest { penalty: Some(0.3), ..SegmentRequest::default() }).await.unwrap();
    let segments: Vec<i64> = made.segments.iter().map(|segment| segment.id).collect();
    assert_eq!(ids_under(&app, segments[1]).await, files[3..]);
    drained(&app).await;
    assert_sums(&app, &segments).await;

    let options = Some(json!({"structure": {"max_tokens": 20}}));
    let request = OptionalJson(Some(ReprocessRequest { options, ..ReprocessRequest::default() }));
    app.client.reprocess_file(DocumentPath { id: files[3] }, request).await.unwrap();
    app.settled(files[3]).await;
    drained(&app).await;
    assert_sums(&app, &segments).await;

    patched(&app, files[4], json!({"title": "How yeast makes the dough of bread rise"})).await;
    drained(&app).await;
    assert_sums(&app, &segments).await;

    for file in &files[3..] {
        for id in ids_under(&app, *file).await {
            until("no task to hold the part", async || match app.client.delete_document(DocumentPath { id }).await {
                Err(failure) if failure.code == Code::Conflict => None,
                answer => {
                    answer.unwrap();
                    Some(())
                }
            })
            .await;
        }
        app.settled(*file).await;
    }
    drained(&app).await;
    assert_sums(&app, &segments).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
