//! Files that are written for programs: what people read in them is found, and the markup around it is not.
use crate::support::{TestApp, invariants, repository};
use serde_json::{Value, json};
use svc_client::wire::{DocumentPath, Settled};

/// The texts of all chunks under a file.
async fn chunks(app: &TestApp, id: i64) -> String {
    let nodes = app.subtree(id).await;
    let texts: Vec<_> = nodes.iter().filter(|node| node.usetype == "chunk").map(|node| node.content.as_str()).collect();
    texts.join("\n")
}

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

#[tokio::test]
async fn a_web_page_is_read_without_its_markup() {
    let app = TestApp::start().await;
    let (id, frontier) = app.ingest(&repository().join("formats/tests/files/orchard-report.html")).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let read = evidence(&app, id).await;
    assert_eq!((&read["detected"]["format"], &read["detected"]["mime"]), (&json!("html"), &json!("text/html")));
    assert_eq!((&read["structure"]["from"], &read["structure"]["sections"]), (&json!("html"), &json!(5)), "{read}");
    let chunks = chunks(&app, id).await;
    assert!(chunks.contains("| North | 84 | A. Miller |") && chunks.contains("the harvest of plums"), "{chunks}");
    for gone in ["<", "trackVisit", "cookies", "base64"] {
        assert!(!chunks.replace("4 < 13", "").contains(gone), "{gone}: {chunks}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn markup_without_a_reader_is_not_indexed() {
    let app = TestApp::start().await;
    let encoded = "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyByZWFzb24sIGJ1dCBi\n".repeat(50);
    for (name, bytes) in
        [("page.ps", "%!PS-Adobe-3.0\n/Times findfont\n(Words) show\n".to_owned()), ("key.pem", encoded)]
    {
        let stored = app.upload_bytes(name, bytes.into_bytes()).await.unwrap();
        let frontier = app.settled(stored.document_id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        let read = evidence(&app, stored.document_id).await;
        assert_eq!(read["extract.empty"], "no_reader", "{read}");
        assert_eq!(read["matched.patterns"]["has_markup"], true, "{read}");
        assert!(app.subtree(stored.document_id).await.is_empty(), "{name} has nodes under it");
    }
    app.end().await;
}
