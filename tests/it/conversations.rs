//! Conversations in one call, in the forms in which programs have them.
use crate::{
    cli::{lines, svc},
    principals::{grant, someone},
    support::{TestApp, Wish, document},
};
use serde_json::{Value, json};
use svc_client::{
    Client, Code, Failure, Json, Remote,
    wire::{
        Bm25Search, ConversationResponse, DocumentPath, Entry, GrantRight, NewConversation, NewIngestion, PageQuery,
        Settled, WaitQuery,
    },
};

async fn store(client: &Client<Remote>, wait: bool, body: Value) -> Result<ConversationResponse, Failure> {
    let new: NewConversation = serde_json::from_value(body).unwrap();
    client.create_conversation(WaitQuery { wait, ..WaitQuery::default() }, Json(new)).await
}

/// The sections of a conversation, as speaker, role, place and what else was said of the turn.
fn told(conversation: &ConversationResponse) -> Vec<(&str, Value)> {
    conversation.sections.iter().map(|section| (section.title.as_str(), json!(section.structured_content))).collect()
}

#[tokio::test]
async fn a_conversation_is_stored_in_one_call_and_each_turn_found_with_its_speaker() {
    let app = TestApp::start().await;
    let turns = json!([
        {"speaker": "Ann", "text": "Where does the heron nest?", "role": "user", "time": "2024-05-01T10:00:00Z", "metadata": {"id": "m1"}},
        {"speaker": "Ben", "text": "High in trees by the water."},
    ]);
    let body = json!({"turns": turns, "title": "Herons", "event_time": "2024-05-01T09:00:00Z"});
    let made = store(&app.client, true, body.clone()).await.unwrap();
    assert_eq!(
        (made.title.as_str(), made.settled, made.turns, made.was_existing),
        ("Herons", Settled::Settled, 2, false)
    );
    assert_eq!(made.speakers, ["Ann", "Ben"]);
    let first = json!({"speaker": "Ann", "index": 0, "role": "user", "metadata": {"id": "m1"}});
    assert_eq!(told(&made), [("Ann", first), ("Ben", json!({"speaker": "Ben", "index": 1}))]);
    assert_eq!(made.sections[0].event_time, "2024-05-01T10:00:00Z".parse().ok());
    let found = app.client.search_bm25(Json(Bm25Search::new("heron nest"))).await.unwrap();
    assert!(found.results.iter().any(|hit| hit.document.structured_content["speaker"] == "Ann"), "{found:?}");
    // The same turns are the same conversation, by this door and by the other.
    let again = store(&app.client, false, body).await.unwrap();
    assert_eq!((again.document_id, again.was_existing, again.sections.len()), (made.document_id, true, 2));
    let turns = serde_json::from_value(turns).unwrap();
    let new = NewIngestion { turns: Some(turns), ..NewIngestion::of(Entry::Conversation) };
    let other = app.client.ingest(svc_client::wire::IngestQuery::default(), Json(new)).await.unwrap();
    assert_eq!((other.document_id, other.was_existing), (made.document_id, true));
    app.end().await;
}

#[tokio::test]
async fn a_long_conversation_answers_with_its_turns_wherever_segments_put_them() {
    let app = TestApp::start().await;
    let speaker = |at: usize| if at.is_multiple_of(2) { "Ann" } else { "Bob" };
    let said = |at: usize| match at {
        0..20 => format!("The invoice number {at} is overdue, and the customer owes the whole amount."),
        _ => format!("The heron number {at} stands in the reeds and waits for a fish."),
    };
    let turns: Vec<Value> = (0..40).map(|at| json!({"speaker": speaker(at), "text": said(at)})).collect();
    let options = json!({"rollup": {"max_children": 4, "min_segment": 2, "penalty": 0.01}});
    let body = json!({"turns": turns, "options": options});
    let made = store(&app.client, true, body.clone()).await.unwrap();
    let path = DocumentPath { id: made.document_id };
    let under = app.client.list_children(path, PageQuery::default()).await.unwrap().documents;
    assert!(under.iter().any(|child| child.title == "Segment 1"), "{under:?}");
    let expected: Vec<_> = (0..40).map(|at| (speaker(at), json!({"speaker": speaker(at), "index": at}))).collect();
    assert_eq!(told(&made), expected);
    let ids = |stored: &ConversationResponse| stored.sections.iter().map(|turn| turn.id).collect::<Vec<_>>();
    let again = store(&app.client, false, body).await.unwrap();
    assert_eq!((again.was_existing, ids(&again)), (true, ids(&made)));
    app.end().await;
}

#[tokio::test]
async fn exports_of_programs_are_read_by_their_forms() {
    let app = TestApp::start().await;
    let messages = json!([{"role": "user", "content": "A heron?"}, {"role": "assistant", "name": "Guide", "content": [{"type": "text", "text": "A grey one."}]}]);
    let made = store(&app.client, true, json!({"messages": messages})).await.unwrap();
    assert_eq!(made.title, "Conversation of user, Guide");
    assert_eq!(told(&made)[1], ("Guide", json!({"speaker": "Guide", "role": "assistant", "index": 1})));
    let talk = "WEBVTT\n\n00:01.000 --> 00:04.000\n<v Ann>The teal is small.\n\n01:00:00.000 --> 01:00:02.000\n<v Ben>So it is.\n";
    let made = store(&app.client, true, json!({"content": talk, "event_time": "2024-05-01T10:00:00Z"})).await.unwrap();
    assert_eq!((made.turns, made.sections[1].event_time), (2, "2024-05-01T11:00:00Z".parse().ok()));
    assert_eq!(told(&made)[0].1["metadata"], json!({"start": 1.0, "end": 4.0}));
    // A transcript by `POST /ingest` is read in the same way, and what is no export is Markdown as before.
    let ingest = async |entry: Entry, text: &str| {
        let new = NewIngestion { content: Some(text.to_owned()), ..NewIngestion::of(entry) };
        app.client.ingest(svc_client::wire::IngestQuery::default(), Json(new)).await.unwrap()
    };
    let transcript = ingest(Entry::Transcript, talk).await;
    let speakers: Vec<&str> =
        transcript.nodes.iter().filter(|node| node.usetype == "section").map(|node| node.title.as_str()).collect();
    assert_eq!((transcript.document.usetype.as_str(), speakers), ("transcript", vec!["Ann", "Ben"]));
    let plain = ingest(Entry::Conversation, "# Notes\n\nAnn: the teal.").await;
    assert_eq!(plain.document.title, "Notes");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.jsonl");
    std::fs::write(
        &file,
        "{\"sender\": \"human\", \"text\": \"Is it a swan?\"}\n{\"sender\": \"Guide\", \"text\": \"It is.\"}\n",
    )
    .unwrap();
    let run = svc(&app, &["conversation", "import", file.to_str().unwrap(), "--title", "Swans", "--wait"]).await;
    let line = lines(&run).remove(0);
    assert_eq!((&line["title"], &line["turns"], &line["settled"]), (&json!("Swans"), &json!(2), &json!("settled")));
    std::fs::write(&file, "no conversation").unwrap();
    let run = svc(&app, &["conversation", "import", file.to_str().unwrap()]).await;
    assert!(String::from_utf8(run.stderr).unwrap().contains("none of the forms that are known"));
    app.end().await;
}

#[tokio::test]
async fn what_is_no_conversation_or_may_not_be_put_there_is_refused_by_name() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let turn = json!({"speaker": "A", "text": "x"});
    for (body, names) in [
        (json!({}), "exactly one of `turns`, `messages` and `content`"),
        (json!({"turns": [turn], "content": "x"}), "exactly one"),
        (json!({"turns": []}), "1 to 10000 turns"),
        (json!({"turns": vec![turn.clone(); 10_001]}), "got 10001"),
        (json!({"turns": [{"speaker": "A", "text": "x", "role": "a b"}]}), "turns[0].role"),
        (json!({"turns": [{"speaker": "A", "text": "x", "time": "-010000-01-01T00:00:00Z"}]}), "turns[0].time"),
        (json!({"turns": [turn], "event_time": "+10000-01-01T00:00:00Z"}), "event_time"),
        (json!({"content": "WEBVTT\n\n99:99:99.999 --> 99:99:99.999\n<v Ann>Hello.\n"}), "`99:99:99.999` is no time"),
        (json!({"messages": []}), "1 to 10000 messages"),
        (json!({"messages": [{"content": "x"}]}), "message 0 has no speaker"),
        (json!({"messages": [{"role": "user"}]}), "message 0 says nothing"),
        (json!({"content": "Ann said hello."}), "none of the forms"),
    ] {
        let refused = store(&app.client, false, body).await.unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains(names), "{names}: {}", refused.detail);
    }
    let options = json!({"turns": [turn], "options": {"ocr": {}}});
    assert_eq!(store(&app.client, false, options).await.unwrap_err().code, Code::UnknownOption);
    let closed = svc_client::wire::NewDocument { private: true, ..document("closed", "") };
    let closed = app.client.create_document(WaitQuery::default(), Json(closed)).await.unwrap().id;
    let p = someone(&app, "p").await;
    let there = |text: &str| json!({"turns": [{"speaker": "A", "text": text}], "parent_id": closed});
    assert_eq!(store(&p.client, false, there("x")).await.unwrap_err().code, Code::NotFound);
    grant(&app, &p, closed, GrantRight::Read).await;
    assert_eq!(store(&p.client, false, there("x")).await.unwrap_err().code, Code::Forbidden);
    grant(&app, &p, closed, GrantRight::Write).await;
    assert!(!store(&p.client, false, there("x")).await.unwrap().was_existing);
    // A private one is nobody else's, and the same words of another caller are another conversation.
    let private = json!({"turns": [{"speaker": "A", "text": "secret"}], "private": true});
    let one = store(&app.client, false, private.clone()).await.unwrap();
    let other = store(&p.client, false, private).await.unwrap();
    assert!(one.document_id != other.document_id && !other.was_existing);
    // As many turns as there may be are stored at once.
    let many: Vec<Value> =
        (0..10_000).map(|at| json!({"speaker": format!("S{}", at % 7), "text": format!("Line {at}")})).collect();
    let many = store(&app.client, false, json!({"turns": many})).await.unwrap();
    assert_eq!((many.turns, many.speakers.len(), many.settled), (10_000, 7, Settled::InFlight));
    app.end().await;
}
