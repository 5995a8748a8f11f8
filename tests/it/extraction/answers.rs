//! Answers are kept: what is paid for once serves every attempt, and what is of no use is asked for again.
use super::{TEXT, app, attempts, believed, evidence, extract, facts, said, text};
use crate::{
    ontologies::load,
    support::{
        TestApp, document, invariants,
        llm::{Asked, Llm, Reply},
        until,
    },
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use svc_client::{
    Json, OptionalJson,
    wire::{
        DocumentChange, DocumentPath, ExtractFactsRequest, NewDocument, NewPredicate, NewPredicates, OntologyQuery,
        WaitQuery,
    },
};

/// A text that a model which reads little reads in two pieces, of which the first begins with `Nothing`, and what tells them apart.
fn two_pieces() -> (String, &'static str) {
    let sentences: String = (0..26).map(|number| format!("Nothing is told in sentence {number} of many. ")).collect();
    (format!("{sentences}{TEXT}"), "sentence 3 of")
}

/// A service whose model reads little.
async fn narrow(llm: &Llm) -> TestApp {
    app(llm, &[("SVC_LLM_CONTEXT_TOKENS", "2048")]).await
}

async fn kept(app: &TestApp) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM llm_answers").fetch_one(&app.pool).await.unwrap()
}

async fn predicate(app: &TestApp, name: &str) {
    let description =
        Some("works for leads and pays, or what else the text may say of people and companies".to_owned());
    let new = NewPredicate { name: name.to_owned(), description, ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap();
}

async fn change(app: &TestApp, id: i64, change: Value) {
    let change: DocumentChange = serde_json::from_value(change).unwrap();
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    app.client.update_document(DocumentPath { id }, wait, Json(change)).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_used_is_asked_for_again_and_the_rest_is_not() {
    let llm = Llm::start().await;
    let app = narrow(&llm).await;
    let (content, first) = two_pieces();
    let id = text(&app, &content, None).await;
    llm.will_say(move |call: &Asked| match call.message().contains(first) {
        true => facts(&[]),
        false => Reply::said("I would rather not."),
    });
    assert_eq!(extract(&app.client, id, ExtractFactsRequest::default()).await.failed, 1);
    assert_eq!(llm.asked().len(), 3, "the second piece was asked of twice");
    assert_eq!(attempts(&app, id).await[0]["code"], "llm_answer_unusable");
    assert_eq!(kept(&app).await, 1, "only the answer that is of use is kept");
    llm.will([facts(&[said(json!({}))])]);
    let done = extract(&app.client, id, ExtractFactsRequest::default()).await;
    assert_eq!((done.facts, done.failed), (1, 0));
    let asked = llm.asked();
    assert!(asked.len() == 1 && !asked[0].message().contains(first), "{asked:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_predicate_without_a_namespace_is_the_one_of_default_or_the_only_one_of_its_name() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    for (namespace, name, label) in [
        ("crm", "works_for", Some("serves")),
        ("default", "crm_works_for", None),
        ("default", "works_for", None),
        ("dc", "serves", None),
        ("a", "led_by", None),
        ("b", "led_by", None),
    ] {
        let (namespace, label) = (Some(namespace.to_owned()), label.map(str::to_owned));
        let new = NewPredicate { namespace, name: name.to_owned(), label, ..NewPredicate::default() };
        app.client.create_predicate(Json(new)).await.unwrap();
    }
    let means = [
        ("works for", "default:works_for"),
        ("crm:works_for", "crm:works_for"),
        ("crm_works_for", "default:crm_works_for"),
        ("serves", "dc:serves"),
        ("led by", "extracted:led_by"),
        ("b:led_by", "b:led_by"),
    ];
    let id = text(&app, TEXT, None).await;
    llm.will([facts(&means.map(|(name, _)| said(json!({"predicate": name}))))]);
    let request = ExtractFactsRequest { max_facts: Some(6), ..ExtractFactsRequest::default() };
    assert_eq!(extract(&app.client, id, request).await.facts, 6);
    let mut found: Vec<String> = believed(&app.client).await.into_iter().map(|fact| fact.predicate).collect();
    let mut expected = means.map(|(_, predicate)| predicate);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    app.end().await;
}

#[tokio::test]
async fn a_text_that_a_model_refuses_is_asked_of_once_and_what_a_filter_breaks_off_counts_as_far_as_it_goes() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let message = json!({"content": null, "refusal": "I'm sorry."});
    let refusal = json!({"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}).to_string();
    let refused = text(&app, TEXT, None).await;
    llm.will([Reply::status("200 OK", "", &refusal)]);
    let done = extract(&app.client, refused, ExtractFactsRequest::default()).await;
    assert_eq!((done.failed, llm.asked().len()), (1, 1));
    let attempts = attempts(&app, refused).await;
    assert_eq!((attempts.len(), &attempts[0]["code"]), (1, &json!("language_model_refuses")), "{attempts:?}");

    let broken_off = text(&app, &TEXT.replace("1911", "1912"), None).await;
    let answer = json!({"facts": [said(json!({})), said(json!({"predicate": "leads"}))]}).to_string();
    llm.will([Reply::filtered(&answer[..answer.len() - 20])]);
    let done = extract(&app.client, broken_off, ExtractFactsRequest::default()).await;
    assert_eq!((done.facts, done.failed, llm.asked().len()), (1, 0, 1));
    assert_eq!(evidence(&app, broken_off).await["facts"]["truncated"], true);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_text_is_paid_again_for_what_makes_another_question_of_it_and_for_nothing_else() {
    let llm = Llm::start().await;
    let app = narrow(&llm).await;
    let (content, _) = two_pieces();
    let folder = text(&app, "", None).await;
    let id = text(&app, &content, Some(folder)).await;
    llm.will_say(|call: &Asked| match call.message().contains("Ada Lovelace") {
        true => facts(&[said(json!({}))]),
        false => facts(&[]),
    });
    // How often the model is asked for one extraction.
    let asked = async |request: ExtractFactsRequest| -> usize {
        let before = llm.asked().len();
        assert_eq!(extract(&app.client, id, request).await.failed, 0);
        llm.asked().len() - before
    };
    let open = ExtractFactsRequest::default();
    let closed = ExtractFactsRequest { new_predicates: Some(NewPredicates::Closed), ..open };
    let pieces = asked(open).await;
    assert!(pieces >= 2);
    for number in 0..8 {
        predicate(&app, &format!("does_thing_{number}")).await;
    }
    change(&app, folder, json!({"title": "Another name"})).await;
    assert_eq!(asked(open).await, 0, "predicates and titles are hints");
    assert_eq!(asked(ExtractFactsRequest { confidence_threshold: Some(0.1), replace: true, ..open }).await, 0);
    assert_eq!(asked(closed).await, pieces, "where no other ones count, the predicates belong to the question");
    assert_eq!(asked(closed).await, 0);
    predicate(&app, "works_for").await;
    assert_eq!(asked(closed).await, pieces, "the model has not been told of the new one");
    assert_eq!(asked(ExtractFactsRequest { max_facts: Some(9), ..open }).await, pieces);
    app.end().await;
}

#[tokio::test]
async fn the_model_is_told_from_what_to_what_predicates_lead_as_open_ontologies_say() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let said = "ex:Company a owl:Class ; rdfs:label 'Firm' . ex:employs a owl:ObjectProperty ; rdfs:label 'employs' ; rdfs:comment 'has staff' ;
        rdfs:domain ex:Company ; rdfs:range ex:Person, ex:Robot . ex:founded a owl:DatatypeProperty ; rdfs:range <http://www.w3.org/2001/XMLSchema#gYear> .
        ex:odd a owl:ObjectProperty ; rdfs:range [ owl:unionOf () ] .";
    let made = load(&app.client, OntologyQuery::default(), said).await.unwrap();
    let range = "http://www.w3.org/2000/01/rdf-schema#range";
    assert_eq!(made.not_used.get(range), Some(&1), "a class without a name says nothing: {:?}", made.not_used);
    let hidden = "<http://secret.example/> a owl:Ontology . ex:founded rdfs:domain <http://secret.example/Cartel> .";
    load(&app.client, OntologyQuery { private: true, ..OntologyQuery::default() }, hidden).await.unwrap();
    let id = text(&app, TEXT, None).await;
    llm.will([facts(&[])]);
    extract(&app.client, id, ExtractFactsRequest::default()).await;
    let calls = llm.asked();
    let message = calls[0].message();
    for line in ["ex:employs from Firm to Person or Robot: employs; has staff\n", "ex:founded to gYear\n", "ex:odd\n"] {
        assert!(message.contains(line), "{line} in {message}");
    }
    assert!(!message.contains("Cartel"), "{message}");
    // Where only these predicates count, another range makes another question.
    let closed = ExtractFactsRequest { new_predicates: Some(NewPredicates::Closed), ..ExtractFactsRequest::default() };
    for (calls, range) in [(1, "ex:Person"), (0, "ex:Person"), (1, "ex:Robot")] {
        let text =
            format!("<http://example.org/work> a owl:Ontology . ex:runs a owl:ObjectProperty ; rdfs:range {range} .");
        load(&app.client, OntologyQuery::default(), &text).await.unwrap();
        llm.will([facts(&[])]);
        extract(&app.client, id, closed).await;
        assert_eq!(llm.asked().len(), calls, "{range}");
    }
    app.end().await;
}

#[tokio::test]
async fn no_attempt_and_no_other_task_takes_an_answer_from_one_that_has_paid_for_it() {
    let llm = Llm::start().await;
    let app = narrow(&llm).await;
    let (content, first) = two_pieces();
    let id = text(&app, &content, None).await;
    let goes_on = Arc::new(AtomicBool::new(false));
    let free = goes_on.clone();
    llm.will_say(move |call: &Asked| {
        let is_first = call.message().contains(first);
        match call.message().contains("at most 5 facts") && !is_first && !free.load(Ordering::Relaxed) {
            true => Reply::status("500 Internal Server Error", "", "{}"),
            false if is_first => facts(&[]),
            false => facts(&[said(json!({"predicate": "default:works_for"}))]),
        }
    });
    // The first task waits with half of its answers.
    let closed = |max_facts| ExtractFactsRequest {
        max_facts: Some(max_facts),
        new_predicates: Some(NewPredicates::Closed),
        ..ExtractFactsRequest::default()
    };
    app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(Some(closed(5)))).await.unwrap();
    until("the first attempt", async || (attempts(&app, id).await.len() == 1).then_some(())).await;
    predicate(&app, "works_for").await;
    assert_eq!(extract(&app.client, id, closed(8)).await.facts, 1);
    goes_on.store(true, Ordering::Relaxed);
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
        .execute(&app.pool)
        .await
        .unwrap();
    until("the first task", async || {
        let ended = attempts(&app, id).await.iter().filter(|attempt| attempt["outcome"] == "completed").count();
        (ended == 2).then_some(())
    })
    .await;
    let of_first = |most: &str| {
        llm.asked().iter().filter(|call| call.message().contains(first) && call.message().contains(most)).count()
    };
    assert_eq!((of_first("at most 5 facts"), of_first("at most 8 facts")), (1, 1));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn two_documents_with_one_text_pay_once_and_lose_nothing_to_each_other() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let of = async |time: &str| {
        let new = NewDocument { event_time: Some(time.parse().unwrap()), ..document("A note", TEXT) };
        let wait = WaitQuery { wait: true, ..WaitQuery::default() };
        app.client.create_document(wait, Json(new)).await.unwrap().id
    };
    let both = [of("2024-05-01T00:00:00Z").await, of("2024-05-01T00:00:00Z").await];
    llm.will([facts(&[said(json!({}))])]);
    for id in &both {
        assert_eq!(extract(&app.client, *id, ExtractFactsRequest::default()).await.facts, 1);
    }
    assert_eq!((llm.asked().len(), believed(&app.client).await[0].citations.len()), (1, 2));
    // What the first one is asked next, and its end, take nothing from the second one.
    let other = ExtractFactsRequest { max_facts: Some(9), ..ExtractFactsRequest::default() };
    extract(&app.client, both[0], other).await;
    assert_eq!(llm.asked().len(), 2);
    app.client.delete_document(DocumentPath { id: both[0] }).await.unwrap();
    let dry = ExtractFactsRequest { dry_run: true, ..ExtractFactsRequest::default() };
    assert_eq!(extract(&app.client, both[1], dry).await.facts, 1);
    assert_eq!(llm.asked().len(), 2);
    // What a text of another time means by last year is another question.
    let earlier = of("2019-05-01T00:00:00Z").await;
    assert_eq!(extract(&app.client, earlier, ExtractFactsRequest::default()).await.facts, 1);
    assert_eq!(llm.asked().len(), 3);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_model_is_told_no_title_that_some_reader_of_the_text_may_not_read() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let folder = async |title: &str, parent_id| {
        let new = NewDocument { parent_id, ..document(title, "") };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let outer = folder("The outer folder", None).await;
    let inner = folder("The inner folder", Some(outer)).await;
    let id = text(&app, TEXT, Some(inner)).await;
    for closed in [outer, inner] {
        app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    }
    llm.will([facts(&[])]);
    extract(&app.client, id, ExtractFactsRequest::default()).await;
    let asked = llm.asked().remove(0);
    let message = asked.message();
    assert!(message.contains("The inner folder > A note") && !message.contains("The outer folder"), "{message}");
    app.end().await;
}

/// Whether a model is asked of [`TEXT`].
fn is_of_text(call: &Asked) -> bool {
    call.message().contains("Ada Lovelace")
}

#[tokio::test]
async fn a_text_is_not_paid_again_because_of_what_is_under_it_or_where_it_lies() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let id = text(&app, TEXT, None).await;
    let note = text(&app, "A remark.", Some(id)).await;
    llm.will_say(|call: &Asked| match is_of_text(call) {
        true => facts(&[said(json!({}))]),
        false => facts(&[]),
    });
    let answers = async || -> i64 {
        let query = "SELECT count(*) FROM llm_answers WHERE document_id = $1 AND task_type = 'extract:facts'";
        sqlx::query_scalar(query).bind(id).fetch_one(&app.pool).await.unwrap()
    };
    let asked = async || -> usize {
        assert_eq!(extract(&app.client, id, ExtractFactsRequest::default()).await.failed, 0);
        llm.asked().into_iter().filter(is_of_text).count()
    };
    assert_eq!((asked().await, answers().await), (1, 1));
    change(&app, note, json!({"content": "Another remark."})).await;
    assert_eq!(answers().await, 1, "the text under it is another");
    assert_eq!(asked().await, 1);
    let folder = text(&app, "", None).await;
    for parent_id in [Some(folder), None] {
        change(&app, id, json!({"parent_id": parent_id})).await;
        assert_eq!(answers().await, 1, "it lies elsewhere");
        assert_eq!(asked().await, 1);
    }
    app.client.delete_document(DocumentPath { id: note }).await.unwrap();
    assert_eq!(answers().await, 1, "what was under it is deleted");
    assert_eq!(asked().await, 1);
    // Another text is another question, and nothing is kept of the old one.
    change(&app, id, json!({"content": TEXT.replace("1911", "1912")})).await;
    assert_eq!(answers().await, 0);
    assert_eq!(asked().await, 2);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
