//! Facts of texts that take time from others.
use super::{app, believed, evidence, extract, facts, said, text};
use crate::{
    edits::patched,
    principals::{grant, someone},
    support::{
        document, invariants,
        llm::{Asked, Llm},
    },
};
use chrono::Datelike;
use serde_json::json;
use svc_client::{
    FileUpload, Json, OptionalJson,
    wire::{
        DocumentPath, ExtractFactsRequest, FactPath, FactType, GrantRight, NewDocument, NewFact, NewFacts,
        NewPredicate, OnOverlap, SupersedeFacts, UploadQuery, WaitQuery,
    },
};

/// All that a text says is recorded at one moment, and a part of what was recorded may have to give way again.
#[tokio::test]
async fn two_new_answers_take_their_time_from_one_old_one_and_an_edited_text_from_what_it_said() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let new = NewPredicate { name: "works_for".to_owned(), functional: true, ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
    let times = async || {
        let facts = believed(&app.client).await;
        let mut times: Vec<(Option<i32>, Option<i32>)> = facts
            .iter()
            .filter(|fact| fact.predicate == "default:works_for")
            .map(|fact| (fact.valid_from.map(|from| from.year()), fact.valid_until.map(|until| until.year())))
            .collect();
        times.sort_unstable();
        times
    };
    let older = NewDocument {
        event_time: Some("2001-01-01T00:00:00Z".parse().unwrap()),
        ..document("Old", "Ada Lovelace works for Globex.")
    };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let older = app.client.create_document(wait, Json(older)).await.unwrap().id;
    llm.will([facts(&[said(
        json!({"object": "Globex", "valid_from": null, "quote": "Ada Lovelace works for Globex"}),
    )])]);
    extract(&app.client, older, ExtractFactsRequest::default()).await;
    assert_eq!(times().await, [(None, None)]);

    let younger = text(&app, "Ada Lovelace works for Acme, then for Initech.", None).await;
    let quote = "Ada Lovelace works for Acme";
    llm.will([facts(&[
        said(json!({"object": "Acme", "valid_from": "2010", "valid_until": "2015", "quote": quote})),
        said(json!({"object": "Initech", "valid_from": "2015", "quote": "then for Initech"})),
    ])]);
    let auto = ExtractFactsRequest { supersede: Some(SupersedeFacts::Auto), ..ExtractFactsRequest::default() };
    assert_eq!(extract(&app.client, younger, auto).await.facts, 2);
    assert_eq!(times().await, [(None, Some(2010)), (Some(2010), Some(2015)), (Some(2015), None)]);

    patched(&app, younger, json!({"content": "Ada Lovelace works for Umbrella since 2012."})).await;
    llm.will([facts(&[said(
        json!({"object": "Umbrella", "valid_from": "2012", "quote": "Ada Lovelace works for Umbrella"}),
    )])]);
    let both = ExtractFactsRequest { replace: true, ..auto };
    assert_eq!(extract(&app.client, younger, both).await.facts, 1);
    assert_eq!(times().await, [(None, Some(2010)), (Some(2012), None)]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_facts_of_a_file_are_as_old_as_what_the_file_tells() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let new = NewPredicate { name: "works_for".to_owned(), functional: true, ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
    let auto = ExtractFactsRequest { supersede: Some(SupersedeFacts::Auto), ..ExtractFactsRequest::default() };
    let now = text(&app, "Ada Lovelace works for Acme Corp.", None).await;
    llm.will([facts(&[said(json!({"quote": "Ada Lovelace works for Acme Corp"}))])]);
    extract(&app.client, now, auto).await;

    let quote = "Ada Lovelace works for Globex";
    let query = UploadQuery { event_time: Some("2020-01-01T00:00:00Z".parse().unwrap()), ..UploadQuery::default() };
    let file = FileUpload::from_bytes("minutes.md", format!("# Minutes\n\n{quote}. So it was told.\n"), None);
    let file = app.client.upload_file(query, file).await.unwrap().document_id;
    app.settled(file).await;
    let chunks = "SELECT id FROM documents WHERE usetype = 'chunk'";
    let chunk: i64 = sqlx::query_scalar(chunks).fetch_one(&app.pool).await.unwrap();
    llm.will([facts(&[said(json!({"object": "Globex", "valid_from": "2024-06", "quote": quote}))])]);
    assert_eq!(extract(&app.client, file, auto).await.facts, 1);
    let message = llm.asked()[0].message().to_owned();
    assert!(message.contains("The reference time of the text is 2020-01-01T00:00:00Z."), "{message}");
    let superseded = async |id: i64| evidence(&app, id).await["facts"]["superseded"].clone();
    assert_eq!(superseded(chunk).await, json!([]), "what is told now is younger");

    // What a file told long ago gives way to a text that is a year younger.
    let quote = "Ada Lovelace works for Initech";
    let later = NewDocument {
        event_time: Some("2021-01-01T00:00:00Z".parse().unwrap()),
        ..document("Later", &format!("{quote}."))
    };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let later = app.client.create_document(wait, Json(later)).await.unwrap().id;
    llm.will([facts(&[said(json!({"object": "Initech", "valid_from": "2024-09", "quote": quote}))])]);
    extract(&app.client, later, auto).await;
    assert_eq!(superseded(later).await, evidence(&app, chunk).await["facts"]["facts"]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_text_is_dated_by_what_is_above_it_if_its_readers_read_that_too() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let folder =
        NewDocument { event_time: Some("2001-01-01T00:00:00Z".parse().unwrap()), ..document("Closed folder", "") };
    let folder = app.client.create_document(WaitQuery::default(), Json(folder)).await.unwrap().id;
    app.client.protect_document(DocumentPath { id: folder }).await.unwrap();
    let id = text(&app, "Ada Lovelace works for Acme Corp.", Some(folder)).await;
    llm.will_say(|_| facts(&[]));
    extract(&app.client, id, ExtractFactsRequest::default()).await;
    app.client.protect_document(DocumentPath { id }).await.unwrap();
    extract(&app.client, id, ExtractFactsRequest::default()).await;
    let told = |call: &Asked| call.message().contains("The reference time of the text is 2001-01-01T00:00:00Z.");
    assert_eq!(llm.asked().iter().map(told).collect::<Vec<_>>(), [true, false]);
    app.end().await;
}

/// The owner says it too, so that no text of others ends it.
#[tokio::test]
async fn what_somebody_asserted_without_a_source_gives_way_to_no_text_though_a_text_states_it_too() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let new = NewPredicate { name: "works_for".to_owned(), functional: true, ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
    let auto = ExtractFactsRequest { supersede: Some(SupersedeFacts::Auto), ..ExtractFactsRequest::default() };
    for is_asserted in [true, false] {
        let quote = "Ada Lovelace works for Acme Corp";
        let older = text(&app, &format!("{quote}, of which {is_asserted} was told."), None).await;
        llm.will([facts(&[said(json!({"quote": quote}))])]);
        extract(&app.client, older, ExtractFactsRequest::default()).await;
        let told = believed(&app.client).await.pop().unwrap();
        if is_asserted {
            let again = NewFact {
                subject_id: Some(told.subject_id),
                predicate: Some(told.predicate.clone()),
                object_id: told.object_id,
                valid_from: told.valid_from,
                fact_type: Some(FactType::Dynamic),
                ..NewFact::default()
            };
            let again = NewFacts { facts: vec![again], on_overlap: Some(OnOverlap::Merge) };
            app.client.assert_facts(Json(again)).await.unwrap();
            assert_eq!(believed(&app.client).await.len(), 1, "it is the same fact");
        }
        let younger =
            text(&app, &format!("Ada Lovelace works for Globex, of which {is_asserted} was told."), None).await;
        let globex = json!({"object": "Globex", "valid_from": "2024-06", "quote": "Ada Lovelace works for Globex"});
        llm.will([facts(&[said(globex)])]);
        extract(&app.client, younger, auto).await;
        let superseded = evidence(&app, younger).await["facts"]["superseded"].as_array().unwrap().len();
        assert_eq!(superseded, usize::from(!is_asserted));
        for fact in believed(&app.client).await {
            app.client.invalidate_fact(FactPath { id: fact.id }, OptionalJson(None)).await.unwrap();
        }
    }
    app.end().await;
}

/// The other text was closed after both had stated it.
#[tokio::test]
async fn what_a_closed_text_states_too_goes_on_for_its_readers_when_the_open_one_states_it_no_longer() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let (reader, stranger) = (someone(&app, "reader").await, someone(&app, "stranger").await);
    let quote = "Ada Lovelace works for Acme Corp";
    let open = text(&app, &format!("{quote}."), None).await;
    let closed = text(&app, &format!("{quote}, they say."), None).await;
    for id in [open, closed] {
        llm.will([facts(&[said(json!({"quote": quote}))])]);
        extract(&app.client, id, ExtractFactsRequest::default()).await;
    }
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    grant(&app, &reader, closed, GrantRight::Read).await;
    assert_eq!((believed(&reader.client).await.len(), believed(&stranger.client).await.len()), (1, 1));
    llm.will([facts(&[])]);
    let replace = ExtractFactsRequest { replace: true, max_facts: Some(7), ..ExtractFactsRequest::default() };
    extract(&app.client, open, replace).await;
    let left = believed(&reader.client).await;
    assert_eq!(left.iter().map(|fact| fact.source_id).collect::<Vec<_>>(), [Some(closed)]);
    assert!(believed(&stranger.client).await.is_empty());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
