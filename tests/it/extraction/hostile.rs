//! Answers that no model should give, and processes that meet or end at the worst moment.
use super::{TEXT, app, attempts, believed, entities, extract, facts, said, text};
use crate::{
    crash,
    support::{
        TestApp, Wish, document, invariants,
        llm::{Llm, Reply},
        until,
    },
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use svc_client::{
    Json, OptionalJson,
    wire::{DocumentPath, ExtractFactsRequest, MergeMethod, MergeQuery, Settled, WaitQuery},
};

#[tokio::test]
async fn an_answer_brings_nothing_that_the_store_cannot_hold() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let id = text(&app, &format!("{TEXT} Zoë has met Ada Lovelace."), None).await;
    let literal = |value: &str, datatype: &str| {
        said(json!({"predicate": "notes", "object": value, "object_kind": "literal", "datatype": datatype}))
    };
    let deep = (0..50).fold(json!("x"), |inner, _| json!({"a": [inner]}));
    let answer = [
        said(json!({"subject": "\u{202e}Ada\u{0}Lovelace\u{200f}", "subject_type": "per\u{0}son"})),
        said(
            json!({"predicate": "has\u{0}met\u{202e}", "subject": "Zo\u{308}e", "quote": "Zoë has met Ada Lovelace", "object": "Ada Lovelace"}),
        ),
        literal("a\u{0}b", "xsd:string"),
        literal("b", "xsd:str\u{0}ing"),
        literal("c", "xsd:a> <b"),
        said(json!({"valid_from": "-9999-01-01T00:00:00Z"})),
        said(json!({"valid_from": "2024-03-01T00:00:00.0000001Z", "valid_until": "2024-03-01T00:00:00.0000002Z"})),
        said(json!({"subject": "Ada Lovelace ".repeat(1_000)})),
        said(json!({"predicate": "p".repeat(10_000), "subject_type": "t".repeat(10_000)})),
        said(json!({"quote": "Ada Lovelace ".repeat(10_000)})),
        said(json!({"object": deep})),
        json!(null),
        json!([[], {}]),
    ];
    llm.will([Reply::whole(&json!({"facts": answer}).to_string())]);
    let request = ExtractFactsRequest { max_facts: Some(100), ..ExtractFactsRequest::default() };
    let done = extract(&app.client, id, request).await;
    assert_eq!((done.failed, done.facts), (0, 3), "{done:?}");
    let dropped: Vec<(&str, i64)> = done.dropped.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(
        dropped,
        [("bad_form", 3), ("bad_literal", 3), ("bad_time", 2), ("name_not_in_text", 1), ("quote_not_found", 1)]
    );
    let titles: Vec<String> = entities(&app).await.into_iter().map(|(_, title)| title).collect();
    assert!(
        titles.iter().all(|title| title.chars().all(|c| !c.is_control() && c != '\u{202e}' && c != '\u{200f}')),
        "{titles:?}"
    );
    let predicates: Vec<String> = believed(&app.client).await.into_iter().map(|fact| fact.predicate).collect();
    assert!(predicates.contains(&"extracted:has_met".to_owned()), "{predicates:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_answer_of_any_depth_and_length_ends_with_its_task() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    for (number, noise) in
        ["[".repeat(1 << 20), "{\"facts\":".repeat(1 << 17), format!("{{\"facts\": [{}", "[{\"a\":".repeat(1 << 17))]
            .into_iter()
            .enumerate()
    {
        let id = text(&app, &TEXT.replace("1911", &format!("180{number}")), None).await;
        llm.will([Reply::whole(&noise)]);
        assert_eq!(extract(&app.client, id, ExtractFactsRequest::default()).await.failed, 1);
        assert_eq!(attempts(&app, id).await[0]["code"], "llm_answer_unusable");
    }
    // What is longer than any answer may be is read no further.
    let long = text(&app, &TEXT.replace("1911", "1810"), None).await;
    llm.will([Reply::whole(&"x".repeat(10 << 20)), facts(&[said(json!({}))])]);
    app.client.extract_facts(DocumentPath { id: long }, WaitQuery::default(), OptionalJson(None)).await.unwrap();
    until("the first attempt", async || (!attempts(&app, long).await.is_empty()).then_some(())).await;
    let first = attempts(&app, long).await.remove(0);
    assert_eq!((&first["code"], &first["error_type"]), (&json!("language_model_failed"), &json!("retryable")));
    until("the next attempt", async || (!believed(&app.client).await.is_empty()).then_some(())).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_thousand_facts_of_one_answer_are_written_and_those_beyond_are_counted() {
    let llm = Llm::start().await;
    // The text is read in one piece.
    let app = app(&llm, &[("SVC_LLM_CONTEXT_TOKENS", "100000")]).await;
    let sentence = |number: usize| format!("Person {} of town {} has paid {number} pounds", number % 250, number % 100);
    let content: String = (0..1_010).map(|number| format!("{}. ", sentence(number))).collect();
    let id = text(&app, &content, None).await;
    let fact = |number: usize| {
        said(json!({
            "subject": format!("Person {}", number % 250), "predicate": "has_paid", "object": number, "object_kind": "literal", "datatype": "xsd:integer",
            "valid_from": null, "quote": sentence(number),
        }))
    };
    let answer: Vec<Value> = (0..1_010).map(fact).collect();
    llm.will([Reply::whole(&json!({"facts": answer}).to_string())]);
    let request = ExtractFactsRequest { max_facts: Some(1_000), ..ExtractFactsRequest::default() };
    let done = extract(&app.client, id, request).await;
    assert_eq!((done.facts, done.entities, done.merges, done.failed), (1_000, 250, 0, 0), "{done:?}");
    assert_eq!(done.dropped.get("too_many"), Some(&10));
    let cited: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM triple_citations c JOIN documents d ON d.id = c.document_id JOIN triples t ON t.id = c.triple_id
          WHERE substr(d.content, c.quote_start + 1, c.quote_end - c.quote_start) LIKE '% has paid ' || t.object_literal || ' pounds'",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(cited, 1_000, "each fact has its own words");
    app.end().await;
}

/// Waits until so many tasks wait for the zone of the open texts, which the test holds.
async fn waits_for_zone(app: &TestApp, count: i64) {
    until("the tasks at the zone", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
              WHERE l.locktype = 'advisory' AND NOT l.granted AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('graph_nodes', 0)",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap();
        (waiting == count).then_some(())
    })
    .await;
}

/// Holds the zone of the open texts until the connection is dropped.
async fn hold_zone(app: &TestApp) -> PgConnection {
    let mut conn = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(hashtextextended('graph_nodes', 0))").execute(&mut conn).await.unwrap();
    conn
}

#[tokio::test]
async fn two_texts_that_name_a_new_entity_at_one_moment_mean_one_and_nearly_the_same_names_are_merged() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_EXTRACTION_ENTITY_SIMILARITY_THRESHOLD", "0.5")]).await;
    let one = text(&app, "Acme Corporation pays Grace Hopper.", None).await;
    let other = text(&app, "Acme Corporation Ltd pays Grace Hopper.", None).await;
    llm.will_say(|call| {
        let name = if call.message().contains("Ltd") { "Acme Corporation Ltd" } else { "Acme Corporation" };
        facts(&[said(json!({
            "subject": name, "subject_type": "company", "predicate": "pays", "object": "Grace Hopper", "object_type": "person",
            "valid_from": null, "quote": format!("{name} pays Grace Hopper"),
        }))])
    });
    let held = hold_zone(&app).await;
    for id in [one, other] {
        app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(None)).await.unwrap();
    }
    // Both have compared their names with what there was, which is nothing.
    waits_for_zone(&app, 2).await;
    drop(held);
    until("the facts", async || (believed(&app.client).await.len() == 2).then_some(())).await;
    let titles: Vec<String> = entities(&app).await.into_iter().map(|(_, title)| title).collect();
    assert_eq!(titles.iter().filter(|title| *title == "Grace Hopper").count(), 1, "{titles:?}");
    let merges = app.client.list_merges(MergeQuery::default()).await.unwrap().merges;
    assert!(merges.len() == 1 && merges[0].method == MergeMethod::Similarity, "{merges:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_between_an_answer_and_its_facts_pays_nothing_twice() {
    let llm = Llm::start().await;
    let settings = [("SVC_LLM_BASE_URL", llm.base.as_str()), ("SVC_LLM_MODEL", "asked-model")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let worker = |number: usize| {
        let mut command = crash::worker_command(&app, number);
        command.env("SVC_LLM_BASE_URL", &llm.base).env("SVC_LLM_MODEL", "asked-model");
        crash::Process(command.spawn().unwrap())
    };
    let new = document("A note", TEXT);
    let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    llm.will([facts(&[said(json!({}))])]);
    let victim = worker(0);
    until("the text", async || {
        let read = app.client.read_document(DocumentPath { id }, Default::default()).await.unwrap().value().unwrap();
        (read.settled == Settled::Settled).then_some(())
    })
    .await;
    let held = hold_zone(&app).await;
    app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(None)).await.unwrap();
    waits_for_zone(&app, 1).await;
    assert_eq!(llm.asked().len(), 1);
    victim.kill();
    drop(held);
    assert!(believed(&app.client).await.is_empty(), "nothing is half written");
    let heir = worker(1);
    until("the facts", async || (!believed(&app.client).await.is_empty()).then_some(())).await;
    assert_eq!(llm.asked().len(), 1, "the answer was kept before the crash");
    assert_eq!((believed(&app.client).await.len(), entities(&app).await.len()), (1, 2));
    drop(heir);
    app.end().await;
}
