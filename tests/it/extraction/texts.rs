//! Which texts at and under a document are read.
use super::{app, facts, text};
use crate::{
    edits::patched,
    support::{TestApp, invariants, llm::Llm, until},
};
use serde_json::json;
use svc_client::{
    Code, Json, OptionalJson,
    wire::{DocumentPath, PiecesQuery, SegmentRequest, SplitRequest, WaitQuery},
};

const NOTES: [&str; 6] = [
    "A heron waits by the reeds for fish.",
    "Coots dive for weeds in the shallow pond.",
    "The radar gauge measures the level of the tank.",
    "A technician calibrates the level sensor of the tank.",
    "The assembly elects its chair by a vote of two thirds.",
    "A tied vote of the assembly is broken by lot.",
];

/// Puts what is under a document into several segments, as soon as it has its vectors.
async fn segmented(app: &TestApp, id: i64) {
    let made = until("the vectors", async || {
        let request = SegmentRequest { penalty: Some(1e-6), min_segment: Some(1), ..SegmentRequest::default() };
        match app.client.segment_document(DocumentPath { id }, OptionalJson(Some(request))).await {
            Err(failure) if failure.code == Code::Conflict => None,
            made => Some(made.unwrap()),
        }
    });
    let made = made.await;
    assert!(made.children == NOTES.len() && made.segments.len() > 1, "{made:?}");
}

/// How many texts are read at and under a document.
async fn texts(app: &TestApp, id: i64) -> usize {
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let answer = app.client.extract_facts(DocumentPath { id }, wait, OptionalJson(None)).await.unwrap();
    assert_eq!(answer.done.expect("all tasks ended").failed, 0);
    answer.tasks as usize
}

#[tokio::test]
async fn a_text_is_read_also_once_what_is_under_it_is_in_segments_unless_these_hold_its_own_pieces() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    llm.will_say(|_| facts(&[]));
    let handbook = text(&app, "Ada Lovelace leads the Engine Team.", None).await;
    for note in NOTES {
        text(&app, note, Some(handbook)).await;
    }
    assert_eq!(texts(&app, handbook).await, NOTES.len() + 1);
    segmented(&app, handbook).await;
    patched(&app, handbook, json!({"content": "Ada Lovelace leads the Pump Team."})).await;
    llm.will_say(|_| facts(&[]));
    assert_eq!(texts(&app, handbook).await, NOTES.len() + 1);
    assert!(llm.asked().iter().any(|call| call.message().contains("leads the Pump Team")));

    let cut = text(&app, &NOTES.join("\n"), None).await;
    let at = (1..NOTES.len()).map(|first| NOTES[..first].iter().map(|note| note.len() as u32 + 1).sum()).collect();
    let request = SplitRequest { at: Some(at), ..SplitRequest::default() };
    app.client.split_document(DocumentPath { id: cut }, PiecesQuery { wait: true }, Json(request)).await.unwrap();
    assert_eq!(texts(&app, cut).await, NOTES.len());
    segmented(&app, cut).await;
    assert_eq!(texts(&app, cut).await, NOTES.len());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
