//! Where on their pages the texts of chunks stand that an engine read.
use super::{Page, evidence, impostor, ingested, pdf, text};
use crate::support::{TestApp, Wish};
use serde_json::json;
use svc_client::{
    Json, OptionalJson,
    wire::{DocumentPath, NewLink, Settled},
};
use svc_formats::PictureSize;

/// What an engine does that reads these words on every page: each with its paragraph, line and place, and its confidence.
fn reads(words: &[(&str, &str, &str, &str)]) -> String {
    let columns = "level page_num block_num par_num line_num word_num left top width height conf text";
    let rows =
        words.iter().map(|(line, place, confidence, text)| format!("5 1 1 {line} 1 {place} {confidence} {text}"));
    let table: String =
        std::iter::once(columns.to_owned()).chain(rows).map(|row| row.replace(' ', "\\t") + "\\n").collect();
    format!("cat >/dev/null; printf '{table}'")
}

#[tokio::test]
async fn a_chunk_of_a_page_that_was_read_knows_where_it_stands_and_its_links_follow_it_there() {
    let folder = tempfile::tempdir().unwrap();
    // The pages are drawn at 300 pixels in an inch, and 25 of these are 6 points.
    let words = |top: &str| {
        reads(&[
            ("1 1", format!("125 {top} 250 25").as_str(), "96", "grey"),
            ("1 1", format!("400 {top} 100 50").as_str(), "41.5", "herons"),
            ("1 2", "125 350 500 25", "90", "wade"),
            ("2 1", "150 600 200 25", "12", "slowly"),
        ])
    };
    let engine = impostor(folder.path(), &words("250"));
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let blank = || Page::Scan(PictureSize { width: 300, height: 400, dpi: 72.0 }, vec![255; 120_000]);
    let (id, frontier) = ingested(&app, "scan.pdf", pdf(&[Page::Text("Egrets"), blank()], &[])).await;
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]));
    assert_eq!(text(&app, id).await, "Egrets\n\ngrey herons\nwade\n\nslowly");
    let of_file = evidence(&app, id).await;
    for told in [&of_file["ocr"], &of_file["ocr"]["by_page"][0]] {
        assert_eq!((&told["words"], &told["low_confidence"]), (&json!(4), &json!(2)), "{told}");
    }
    let chunk = async || app.subtree(id).await.into_iter().find(|node| node.usetype == "chunk").unwrap();
    let first = chunk().await;
    let boxes = json!([
        {"page": 2, "left": 30.0, "top": 60.0, "width": 120.0, "height": 30.0},
        {"page": 2, "left": 36.0, "top": 144.0, "width": 48.0, "height": 6.0},
    ]);
    assert_eq!(evidence(&app, first.id).await["anchor"]["boxes"], boxes);
    let shown = app.client.view_document(DocumentPath { id: first.id }).await.unwrap().value().unwrap().source.unwrap();
    assert_eq!(serde_json::to_value(&shown.boxes).unwrap(), boxes);

    // Another run of the engine finds the same words a little further down.
    let note = app.create("Note", "A note about herons.", None).await.id;
    let link = NewLink { target_id: first.id, link_type: "cites".into(), score: None, metadata: Default::default() };
    app.client.create_link(DocumentPath { id: note }, Json(link)).await.unwrap();
    impostor(folder.path(), &words("255"));
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
    app.settled(id).await;
    let second = chunk().await;
    assert_ne!(second.id, first.id);
    let moved = evidence(&app, second.id).await["anchor"]["boxes"][0]["top"].clone();
    assert_eq!(moved, json!(61.2));
    let target: i64 = sqlx::query_scalar("SELECT target_id FROM document_links WHERE source_id = $1")
        .bind(note)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(target, second.id);
    app.end().await;
}
