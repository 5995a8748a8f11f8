//! What a stream tells while the rights of its reader change, and where it ends.
use super::{create, next, numbered, query};
use crate::{
    edits::patch,
    principals::{grant, someone},
    support::{PATIENCE, until, until_a_statement_waits},
};
use futures_util::StreamExt;
use serde_json::json;
use std::time::Duration;
use svc::{
    access::Caller,
    registry::InProcess,
    store::{event_feed, transaction},
};
use svc_client::{
    Client, Code,
    wire::{ApiTokenPath, DocumentPath, EventKind, GrantRight},
};
use svc_ids::ApiTokenId;

/// A grant that closes a document waits for those who create, and others go on meanwhile.
#[tokio::test]
async fn a_grant_that_had_to_wait_tells_of_nothing_that_happened_before_it_was_made() {
    let (app, sequencer) = numbered().await;
    let reader = someone(&app, "reader").await;
    let top = create(&app, None).await;
    app.client.protect_document(DocumentPath { id: top }).await.unwrap();
    let inner = create(&app, Some(top)).await;
    let leaf = create(&app, Some(inner)).await;
    let creating = transaction::begin_creating(&app.pool).await.unwrap();
    tokio::join!(grant(&app, &reader, inner, GrantRight::Read), async {
        until_a_statement_waits(&app.pool).await;
        patch(&app, leaf, json!({"title": "Another place"})).await.unwrap();
        creating.commit().await.unwrap();
    });
    patch(&app, leaf, json!({"content": "A text about coots."})).await.unwrap();
    let mut events = reader.client.follow_events(query("", "0")).await.unwrap();
    let first = next(&mut events).await.data;
    let expected = (EventKind::DocumentUpdated, Some(leaf), &json!(["content"]));
    assert_eq!((first.kind, first.document_id, &first.data["fields"]), expected);
    sequencer.abort();
    app.end().await;
}

/// Has the clock of the runtime go on by two seconds, as if the reader of a stream had rested for so long.
async fn rest() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_page_that_is_read_slowly_is_read_again_and_ends_with_its_token() {
    let (app, sequencer) = numbered().await;
    let reader = someone(&app, "reader").await;
    for _ in 0..4 {
        create(&app, None).await;
    }
    until("the numbers", async || (event_feed::newest(&app.pool).await.unwrap() == 4).then_some(())).await;
    // Within the process no buffers take events before they are read.
    let caller = Caller::of_token(&app.pool, ApiTokenId(reader.token_id)).await.unwrap().expect("a token that lives");
    let slow = Client(InProcess { service: app.service.clone(), caller });
    let mut events = slow.follow_events(query("", "0")).await.unwrap();
    assert_eq!(next(&mut events).await.data.seq, 1);
    rest().await;
    for seq in [2, 3] {
        assert_eq!(next(&mut events).await.data.seq, seq, "nothing is told twice or left out");
    }
    app.client.revoke_api_token(ApiTokenPath { id: reader.token_id }).await.unwrap();
    rest().await;
    let end = tokio::time::timeout(PATIENCE, events.next()).await.expect("an end").expect("a reason");
    assert_eq!(end.expect_err("the fourth is not told").code, Code::Unauthenticated);
    sequencer.abort();
    app.end().await;
}

/// A service that ends waits for its requests, and would wait for who has missed a million events.
#[tokio::test]
async fn a_stream_ends_with_the_service_however_much_is_left_to_tell() {
    let (app, sequencer) = numbered().await;
    for _ in 0..3 {
        create(&app, None).await;
    }
    until("the numbers", async || (event_feed::newest(&app.pool).await.unwrap() == 3).then_some(())).await;
    // Within the process no buffers take events before they are read.
    let here = Client(InProcess { service: app.service.clone(), caller: Caller::Owner });
    let mut events = here.follow_events(query("", "0")).await.unwrap();
    assert_eq!(next(&mut events).await.data.seq, 1);
    app.service.ending.cancel();
    let end = tokio::time::timeout(PATIENCE, events.next()).await.expect("an end");
    assert!(end.is_none(), "{end:?}");
    assert_eq!(events.last_id(), Some("1"), "nothing that was not told is passed over");
    sequencer.abort();
    app.end().await;
}
