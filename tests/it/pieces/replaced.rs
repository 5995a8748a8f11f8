//! Segments that a further call would replace, and what callers gave them meanwhile.
use super::{drained, notes, replace, segment};
use crate::{
    edits::{get, patched},
    support::TestApp,
};
use serde_json::json;
use svc_client::{Code, wire::SegmentRequest};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_to_which_a_caller_gave_a_text_is_not_taken_away() {
    let app = TestApp::start().await;
    let (top, _) = notes(&app).await;
    let told = segment(&app, top, SegmentRequest::default()).await.unwrap().segments[1].id;
    let text = "How the gauge measures, in short.";
    patched(&app, told, json!({"content": text})).await;
    drained(&app).await;
    let refused = segment(&app, top, replace()).await.unwrap_err();
    assert!(refused.code == Code::Conflict && refused.members.contains_key("remedy"), "{refused}");
    assert!(refused.detail.contains(&format!("segment {told} ")), "{refused}");
    assert_eq!(get(&app, told).await.content, text);

    patched(&app, told, json!({"content": ""})).await;
    drained(&app).await;
    let again = segment(&app, top, replace()).await.unwrap();
    assert_eq!((again.deleted, again.children), (3, 24));
    app.end().await;
}
