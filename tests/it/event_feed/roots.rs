//! Events at and under one document.
use super::{create, numbered, query, take, told};
use crate::{edits::patch, principals::someone};
use serde_json::json;
use svc_client::{
    Client, Remote,
    wire::{DocumentPath, EventQuery},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_a_document_is_told_of_what_moves_away_from_under_it_if_it_may_read_both_places() {
    let (app, sequencer) = numbered().await;
    let reader = someone(&app, "reader").await;
    let (open, closed) = (create(&app, None).await, create(&app, None).await);
    let (out, into) = (create(&app, Some(open)).await, create(&app, Some(closed)).await);
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    patch(&app, out, json!({"parent_id": closed})).await.unwrap();
    patch(&app, into, json!({"parent_id": open})).await.unwrap();
    let last = create(&app, Some(open)).await;
    let follow = async |client: &Client<Remote>, root: i64, count: usize| {
        let query = EventQuery { root: Some(root), ..query("document.created,document.moved", "0") };
        take(&mut client.follow_events(query).await.unwrap(), count).await
    };
    let (created, moved) = (|id| told("document.created", id), |id| told("document.moved", id));
    let expected = [created(open), created(out), moved(out), moved(into), created(last)];
    assert_eq!(follow(&app.client, open, 5).await, expected);
    assert_eq!(follow(&app.client, closed, 4).await, [created(closed), created(into), moved(out), moved(into)]);
    assert_eq!(follow(&reader.client, open, 2).await, [created(open), created(last)]);
    sequencer.abort();
    app.end().await;
}
