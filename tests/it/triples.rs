//! Facts: what a caller asserts, supersedes and invalidates, and reads at other times.
mod apart;
mod lives;
mod meanwhile;
mod oracle;
mod paths;
mod quotes;
mod rights;
pub mod rules;

use crate::{
    principals::{grant, idle, someone},
    support::{TOKEN, TestApp, Wish, document, http},
};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use svc_client::{
    Code, Failure, Json, OptionalJson,
    wire::{
        AssertedFact, DocumentPath, FactOutcome, FactPath, FactQuery, FactType, GrantRight, Invalidation, NewDocument,
        NewFact, NewFacts, NewPredicate, OnOverlap, PageQuery, PredicateChange, PredicatePath, PredicateQuery,
        PredicateResponse, Supersession, ValidAt, WaitQuery,
    },
};

/// The first moment of a day of January 2024.
pub fn day(day: u32) -> DateTime<Utc> {
    format!("2024-01-{day:02}T00:00:00Z").parse().unwrap()
}

/// A document, which waits to be embedded.
pub async fn doc(app: &TestApp, title: &str) -> i64 {
    under(app, title, None).await
}

pub async fn under(app: &TestApp, title: &str, parent_id: Option<i64>) -> i64 {
    let new = NewDocument { parent_id, ..document(title, &format!("What is known of {title}.")) };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
}

pub async fn predicate(app: &TestApp, name: &str) -> PredicateResponse {
    let new = NewPredicate { name: name.to_owned(), ..NewPredicate::default() };
    app.client.create_predicate(Json(new)).await.unwrap()
}

/// A fact between two documents at all times.
pub fn fact(subject_id: i64, predicate: &str, object_id: i64) -> NewFact {
    NewFact {
        subject_id: Some(subject_id),
        predicate: Some(predicate.to_owned()),
        object_id: Some(object_id),
        ..NewFact::default()
    }
}

/// A fact that leads to a text.
pub fn says(subject_id: i64, predicate: &str, literal: &str) -> NewFact {
    let object_literal = Some(literal.to_owned());
    NewFact {
        subject_id: Some(subject_id),
        predicate: Some(predicate.to_owned()),
        object_literal,
        ..NewFact::default()
    }
}

async fn assert(app: &TestApp, fact: NewFact) -> Result<AssertedFact, Failure> {
    app.client.assert_fact(Json(fact)).await
}

/// The facts about a document at a time in the world and a time in the store.
async fn at(app: &TestApp, subject_id: i64, valid: ValidAt, known_at: Option<DateTime<Utc>>) -> Vec<String> {
    let query = FactQuery { subject_id: Some(subject_id), valid_at: Some(valid), known_at, ..FactQuery::default() };
    let page = app.client.list_facts(query).await.unwrap();
    let shown = |bound: Option<DateTime<Utc>>| bound.map_or("..".to_owned(), |bound| bound.format("%d").to_string());
    let mut facts: Vec<String> = page
        .facts
        .iter()
        .map(|fact| {
            let object = fact.object_literal.clone().unwrap_or_else(|| fact.object_id.unwrap().to_string());
            format!("{} {object} {}-{}", fact.predicate, shown(fact.valid_from), shown(fact.valid_until))
        })
        .collect();
    facts.sort();
    facts
}

async fn sent(app: &TestApp, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = app.raw(method, path).bearer_auth(TOKEN).json(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

#[tokio::test]
async fn a_fact_is_superseded_and_withdrawn_and_every_time_reads_as_it_was_known() {
    let app = idle().await;
    let [ada, bea, lab] = [doc(&app, "Ada").await, doc(&app, "Bea").await, doc(&app, "Lab").await];
    predicate(&app, "leads").await;
    let made = assert(&app, NewFact { valid_from: Some(day(1)), ..fact(lab, "leads", ada) }).await.unwrap();
    assert_eq!(
        (made.outcome, made.fact.predicate.as_str(), made.fact.fact_type),
        (FactOutcome::Created, "default:leads", FactType::Dynamic)
    );
    let [first, id] = [made.fact.recorded_at, made.fact.created_at];
    assert_eq!(first, id);
    // From the tenth on it is Bea.
    let path = FactPath { id: made.fact.id };
    let new = Supersession { object_id: Some(bea), valid_from: Some(day(10)), ..Supersession::default() };
    let done = app.client.supersede_fact(path, Json(new)).await.unwrap();
    assert_eq!(
        (done.closed.invalidated_by, done.closed.invalidation.as_deref()),
        (Some(done.fact.id), Some("superseded"))
    );
    assert_eq!((done.remainders.len(), done.remainders[0].previous_id), (1, Some(path.id)));
    assert_eq!(
        (done.remainders[0].valid_until, done.remainders[0].created_at),
        (Some(day(10)), first),
        "what is left was learned then"
    );
    let second = done.fact.recorded_at;
    // Nobody led it in the twentieth and after.
    let portion =
        Invalidation { valid_from: Some(day(20)), reason: Some("dissolved".to_owned()), ..Invalidation::default() };
    let done = app.client.invalidate_fact(FactPath { id: done.fact.id }, OptionalJson(Some(portion))).await.unwrap();
    assert_eq!((done.closed.invalidation.as_deref(), done.remainders.len()), (Some("dissolved"), 1));

    let (ada, bea) = (ada.to_string(), bea.to_string());
    let all = |known: Option<DateTime<Utc>>| at(&app, lab, ValidAt::Any, known);
    assert_eq!(all(None).await, [format!("default:leads {ada} 01-10"), format!("default:leads {bea} 10-20")]);
    assert_eq!(all(Some(second)).await, [format!("default:leads {ada} 01-10"), format!("default:leads {bea} 10-..")]);
    assert_eq!(all(Some(first)).await, [format!("default:leads {ada} 01-..")]);
    assert!(all(Some(first - chrono::TimeDelta::microseconds(1))).await.is_empty());
    for (moment, leads) in [(1, Some(&ada)), (9, Some(&ada)), (10, Some(&bea)), (19, Some(&bea)), (20, None)] {
        let found = at(&app, lab, ValidAt::At(day(moment)), None).await;
        assert_eq!(
            found.first().map(|fact| fact.contains(&format!(" {} ", leads.unwrap()))),
            leads.map(|_| true),
            "{moment}: {found:?}"
        );
    }
    assert!(at(&app, lab, ValidAt::At(Utc::now()), None).await.is_empty());

    // Nothing is gone: the closed ones are there, and a past reading shows them as they were then.
    let closed =
        FactQuery { subject_id: Some(lab), invalidated: true, valid_at: Some(ValidAt::Any), ..FactQuery::default() };
    assert_eq!(app.client.list_facts(closed).await.unwrap().facts.len(), 2);
    let query = FactQuery {
        subject_id: Some(lab),
        known_at: Some(first),
        valid_at: Some(ValidAt::Any),
        ..FactQuery::default()
    };
    let page = app.client.list_facts(query).await.unwrap();
    assert_eq!((page.facts[0].invalidated_at, page.facts[0].invalidated_by, page.known_at), (None, None, first));
    let told = app.client.read_fact_history(path, PageQuery { limit: Some(1), ..PageQuery::default() }).await.unwrap();
    assert_eq!((told.facts[0].id, told.next_cursor.is_some()), (path.id, true));
    let rest = app
        .client
        .read_fact_history(path, PageQuery { cursor: told.next_cursor, ..PageQuery::default() })
        .await
        .unwrap();
    assert_eq!((rest.facts.len(), rest.facts[0].previous_id, rest.next_cursor), (1, Some(path.id), None));

    // What is closed stays closed.
    let again = app.client.invalidate_fact(path, OptionalJson(None)).await.unwrap_err();
    assert_eq!((again.code, again.members["reason"].as_str()), (Code::Conflict, Some("already_invalidated")));
    assert!(again.members["invalidated_by"].as_i64().is_some(), "{again:?}");
    app.end().await;
}

#[tokio::test]
async fn the_same_statement_is_believed_once_at_a_time() {
    let app = idle().await;
    let [a, b] = [doc(&app, "A").await, doc(&app, "B").await];
    predicate(&app, "cites").await;
    let span = |from: u32, until: u32| NewFact {
        valid_from: Some(day(from)),
        valid_until: Some(day(until)),
        ..fact(a, "cites", b)
    };
    let first = assert(&app, span(1, 5)).await.unwrap().fact;
    let refused = assert(&app, span(4, 8)).await.unwrap_err();
    assert_eq!((refused.code, refused.members["triple_id"].as_i64()), (Code::Conflict, Some(first.id)));
    assert_eq!(refused.members["reason"], "overlaps");
    // One that begins when the other ends is another fact.
    let second = assert(&app, span(5, 8)).await.unwrap().fact;
    let merge = |new: NewFact| NewFact { on_overlap: Some(OnOverlap::Merge), ..new };
    let known = assert(&app, merge(span(2, 3))).await.unwrap();
    assert_eq!((known.outcome, known.fact.id), (FactOutcome::Existing, first.id));
    let united = assert(&app, merge(span(4, 12))).await.unwrap();
    assert_eq!(
        (united.outcome, united.fact.valid_from, united.fact.valid_until),
        (FactOutcome::Merged, Some(day(1)), Some(day(12)))
    );
    assert_eq!(united.fact.created_at, first.created_at);
    for old in [first.id, second.id] {
        let old = app.client.read_fact(FactPath { id: old }).await.unwrap();
        assert_eq!((old.invalidation.as_deref(), old.invalidated_by), (Some("merged"), Some(united.fact.id)));
    }
    // Within a batch the same holds, and all or nothing.
    let batch =
        |on_overlap| NewFacts { facts: vec![span(20, 22), span(21, 25), span(27, 28), span(22, 23)], on_overlap };
    let refused = app.client.assert_facts(Json(batch(None))).await.unwrap_err();
    assert_eq!((refused.code, refused.members["index"].as_u64()), (Code::Conflict, Some(1)), "{refused:?}");
    assert_eq!(at(&app, a, ValidAt::Any, None).await.len(), 1);
    let done = app.client.assert_facts(Json(batch(Some(OnOverlap::Merge)))).await.unwrap();
    let outcomes: Vec<FactOutcome> = done.facts.iter().map(|fact| fact.outcome).collect();
    assert_eq!(outcomes, [FactOutcome::Created, FactOutcome::Merged, FactOutcome::Created, FactOutcome::Existing]);
    assert!(
        done.facts[0].id == done.facts[1].id
            && done.facts[1].id == done.facts[3].id
            && done.facts[2].id != done.facts[0].id
    );
    assert_eq!(at(&app, a, ValidAt::Any, None).await.len(), 3);
    app.end().await;
}

#[tokio::test]
async fn a_literal_is_kept_to_the_letter_and_a_wrong_one_is_refused() {
    let app = idle().await;
    let a = doc(&app, "A").await;
    predicate(&app, "weighs").await;
    let number = |value: &str| NewFact { object_datatype: Some("xsd:decimal".to_owned()), ..says(a, "weighs", value) };
    let one = assert(&app, number("1.50")).await.unwrap().fact;
    assert_eq!(one.object_datatype.as_deref(), Some("http://www.w3.org/2001/XMLSchema#decimal"));
    assert_ne!(assert(&app, number("1.5")).await.unwrap().fact.id, one.id, "they are two literals");
    let query = FactQuery { object_literal: Some("1.50".to_owned()), ..FactQuery::default() };
    assert_eq!(app.client.list_facts(query).await.unwrap().facts, [one]);
    let named = assert(&app, NewFact { object_language: Some("de-CH".to_owned()), ..says(a, "weighs", "schwer") })
        .await
        .unwrap()
        .fact;
    assert_eq!(
        (named.object_language.as_deref(), named.object_datatype.as_deref().unwrap().ends_with("#langString")),
        (Some("de-ch"), true)
    );
    for (new, field) in [
        (number("heavy"), "object_literal"),
        (says(a, "weighs", &"x".repeat(64 * 1024 + 1)), "object_literal"),
        (NewFact { object_id: Some(a), ..says(a, "weighs", "x") }, "object_literal"),
        (NewFact { object_literal: None, ..says(a, "weighs", "x") }, "object_id"),
        (NewFact { object_language: Some("en".to_owned()), ..number("1") }, "object_language"),
        (NewFact { predicate: None, ..number("1") }, "predicate"),
        (NewFact { predicate: Some("default:unheard".to_owned()), ..number("1") }, "predicate"),
        (NewFact { predicate: None, predicate_id: Some(99), ..number("1") }, "predicate_id"),
        (NewFact { valid_from: Some(day(2)), valid_until: Some(day(2)), ..number("1") }, "valid_until"),
        // A leap second is the second after it, so that this one is of the year 10000, and that interval empty.
        (NewFact { valid_from: "9999-12-31T23:59:60Z".parse().ok(), ..number("1") }, "valid_from"),
        (
            NewFact {
                valid_from: "2016-12-31T23:59:60Z".parse().ok(),
                valid_until: "2017-01-01T00:00:00Z".parse().ok(),
                ..number("1")
            },
            "valid_until",
        ),
        (NewFact { valid_from: Some(day(2)), fact_type: Some(FactType::Atemporal), ..number("1") }, "fact_type"),
        (NewFact { quote: Some("x".to_owned()), ..number("1") }, "quote"),
        (NewFact { source_id: Some(a), quote: Some("words it lacks".to_owned()), ..number("3") }, "quote"),
        (NewFact { source_id: Some(a), confidence: Some(1.5), ..number("3") }, "confidence"),
    ] {
        let refused = assert(&app, new).await.unwrap_err();
        assert_eq!((refused.code, refused.members["field"].as_str()), (Code::InvalidField, Some(field)), "{refused:?}");
    }
    let long = Supersession { object_iri: Some(format!("http://e/{}", "x".repeat(2_048))), ..Supersession::default() };
    let of = FactPath { id: assert(&app, number("2")).await.unwrap().fact.id };
    assert_eq!(app.client.supersede_fact(of, Json(long)).await.unwrap_err().members["field"], "object_iri");
    let batch = NewFacts { facts: vec![number("7"), number("heavy")], on_overlap: None };
    let refused = app.client.assert_facts(Json(batch)).await.unwrap_err();
    assert_eq!((&refused.members["field"], &refused.members["index"]), (&json!("facts[1].object_literal"), &json!(1)));
    let batch =
        NewFacts { facts: vec![number("7"), NewFact { subject_id: Some(99), ..number("8") }], on_overlap: None };
    let refused = app.client.assert_facts(Json(batch)).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.detail.as_str(), &refused.members["index"]),
        (Code::NotFound, "there is no document 99", &json!(1))
    );
    for body in
        [json!({"facts": []}), json!({"facts": vec![json!({"subject_id": 1, "predicate": "a", "object_id": 1}); 5001]})]
    {
        assert_eq!(sent(&app, "POST", "/triples/batch", &body).await.0, 422);
    }
    for query in ["valid_at=soon", "known_at=any", "limit=0", "cursor=x", "predicate=unheard", "fact_type=old"] {
        let answer = app.raw("GET", &format!("/triples?{query}")).bearer_auth(TOKEN).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{query}");
    }
    assert_eq!(at(&app, a, ValidAt::Any, None).await.len(), 4, "nothing of what was refused is stored");
    app.end().await;
}

#[tokio::test]
async fn a_predicate_is_one_of_its_name_and_goes_only_if_nothing_was_ever_said_with_it() {
    let app = idle().await;
    let client = &app.client;
    let new = |name: &str, iri: Option<&str>| NewPredicate {
        name: name.to_owned(),
        namespace: Some("schema".to_owned()),
        iri: iri.map(str::to_owned),
        functional: true,
        ..NewPredicate::default()
    };
    let author = client.create_predicate(Json(new("author", Some("https://schema.org/author")))).await.unwrap();
    let plain = client.create_predicate(Json(new("is in", None))).await.unwrap();
    assert_eq!(
        (author.iri.as_str(), plain.iri.as_str()),
        ("https://schema.org/author", "urn:svc:predicate/schema/is%20in")
    );
    for (again, is) in [(new("author", None), author.id), (new("other", Some("https://schema.org/author")), author.id)]
    {
        let refused = client.create_predicate(Json(again)).await.unwrap_err();
        assert_eq!((refused.code, refused.members["predicate_id"].as_i64()), (Code::Conflict, Some(is)));
    }
    for (body, field) in [
        (json!({"name": " "}), "name"),
        (json!({"name": "a", "namespace": "a:b"}), "namespace"),
        (json!({"name": "a", "iri": "author"}), "iri"),
        (json!({"name": "a", "iri": "urn:svc:predicate/x"}), "iri"),
        (json!({"name": "a", "inverse_of": 99}), "inverse_of"),
        (json!({"name": "a", "sub_property_of": [1, 99]}), "sub_property_of"),
        (json!({"name": "a", "symmetric": true, "asymmetric": true}), "asymmetric"),
    ] {
        let (status, refused) = sent(&app, "POST", "/triples/predicates", &body).await;
        assert_eq!((status, refused["field"].as_str()), (422, Some(field)), "{refused}");
    }
    let path = PredicatePath { id: plain.id };
    let change = PredicateChange {
        label: Some(Some("lies in".to_owned())),
        inverse_of: Some(Some(author.id)),
        disjoint_with: Some(vec![author.id]),
        functional: Some(false),
        ..PredicateChange::default()
    };
    let changed = client.update_predicate(path, Json(change)).await.unwrap();
    assert_eq!(
        (changed.label.as_deref(), changed.inverse_of, changed.functional),
        (Some("lies in"), Some(author.id), false)
    );
    let change = PredicateChange { symmetric: Some(true), asymmetric: Some(true), ..PredicateChange::default() };
    assert_eq!(client.update_predicate(path, Json(change)).await.unwrap_err().code, Code::InvalidField);
    let change = PredicateChange { name: Some("author".to_owned()), ..PredicateChange::default() };
    assert_eq!(client.update_predicate(path, Json(change)).await.unwrap_err().code, Code::Conflict);
    assert_eq!(client.read_predicate(path).await.unwrap(), changed);
    let query = |q: Option<&str>, namespace: Option<&str>| PredicateQuery {
        q: q.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
        ..PredicateQuery::default()
    };
    for (asked, ids) in [
        (query(None, None), vec![author.id, plain.id]),
        (query(Some("LIES"), None), vec![plain.id]),
        (query(None, Some("default")), vec![]),
    ] {
        let listed = client.list_predicates(asked).await.unwrap().predicates;
        assert_eq!(listed.iter().map(|predicate| predicate.id).collect::<Vec<_>>(), ids);
    }

    // No name and no IRI can be taken for the IRI of another.
    for (new, field) in [
        (
            NewPredicate {
                name: "//schema.org/editor".to_owned(),
                namespace: Some("https".to_owned()),
                ..new("x", None)
            },
            "name",
        ),
        (NewPredicate { namespace: Some("URN".to_owned()), ..new("isbn:1", None) }, "namespace"),
        (NewPredicate { iri: Some("URN:svc:predicate/default/x".to_owned()), ..new("x", None) }, "iri"),
    ] {
        let refused = client.create_predicate(Json(new)).await.unwrap_err();
        assert_eq!((refused.status, refused.members["field"].as_str()), (422, Some(field)), "{refused:?}");
    }

    // A fact names it by any of its names.
    let a = doc(&app, "A").await;
    for name in ["schema:is in", "urn:svc:predicate/schema/is%20in", "https://schema.org/author"] {
        assert(&app, says(a, name, name)).await.unwrap();
    }
    let used = client.delete_predicate(path).await.unwrap_err();
    assert_eq!(used.code, Code::Conflict);
    let other = client
        .create_predicate(Json(NewPredicate { sub_property_of: vec![plain.id], ..new("part", None) }))
        .await
        .unwrap();
    client.delete_predicate(PredicatePath { id: other.id }).await.unwrap();
    assert_eq!(client.delete_predicate(PredicatePath { id: other.id }).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

#[tokio::test]
async fn who_may_not_write_the_subject_asserts_nothing_and_who_may_not_read_is_told_of_nothing() {
    let app = idle().await;
    let [open, closed, other] = [doc(&app, "Open").await, doc(&app, "Closed").await, doc(&app, "Other").await];
    let reader = someone(&app, "reader").await;
    let writer = someone(&app, "writer").await;
    grant(&app, &reader, closed, GrantRight::Read).await;
    grant(&app, &writer, closed, GrantRight::Write).await;
    app.client.protect_document(DocumentPath { id: other }).await.unwrap();
    predicate(&app, "knows").await;
    let made = writer.client.assert_fact(Json(fact(closed, "knows", open))).await.unwrap().fact;
    for (who, new, code) in [
        (&reader, fact(closed, "knows", open), Code::Forbidden),
        (&reader, fact(open, "knows", closed), Code::Forbidden),
        (&writer, fact(closed, "knows", other), Code::NotFound),
        (&writer, fact(other, "knows", closed), Code::NotFound),
        (&writer, NewFact { source_id: Some(other), ..fact(closed, "knows", closed) }, Code::NotFound),
    ] {
        assert_eq!(who.client.assert_fact(Json(new)).await.unwrap_err().code, code);
    }
    let path = FactPath { id: made.id };
    let new = Supersession { object_id: Some(closed), ..Supersession::default() };
    assert_eq!(reader.client.supersede_fact(path, Json(new.clone())).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(reader.client.invalidate_fact(path, OptionalJson(None)).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(reader.client.read_fact(path).await.unwrap(), made);
    let stranger = someone(&app, "stranger").await;
    let gone = stranger.client.read_fact(path).await.unwrap_err();
    let missing = stranger.client.read_fact(FactPath { id: made.id + 90 }).await.unwrap_err();
    assert_eq!(
        (gone.code, gone.detail.replace(&made.id.to_string(), "#")),
        (missing.code, missing.detail.replace(&(made.id + 90).to_string(), "#"))
    );
    assert_eq!(stranger.client.supersede_fact(path, Json(new)).await.unwrap_err().code, Code::NotFound);
    for refused in [
        stranger.client.update_predicate(PredicatePath { id: 1 }, Json(PredicateChange::default())).await.err(),
        stranger.client.delete_predicate(PredicatePath { id: 1 }).await.err(),
    ] {
        assert_eq!(refused.unwrap().code, Code::Forbidden);
    }
    // A fact whose new object the reader may not read is closed for the reader, and nothing says by what.
    let secret = Supersession { object_id: Some(other), ..Supersession::default() };
    app.client.supersede_fact(path, Json(secret)).await.unwrap();
    let seen = reader.client.read_fact(path).await.unwrap();
    assert_eq!((seen.invalidation.as_deref(), seen.invalidated_by), (Some("superseded"), None));
    let refused = writer.client.invalidate_fact(path, OptionalJson(None)).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.members.get("invalidated_by").and_then(Value::as_i64)),
        (Code::Conflict, None),
        "{refused:?}"
    );
    let nobody = http().get(format!("{}/triples", app.base)).send().await.unwrap();
    assert_eq!(nobody.status(), 401);
    app.end().await;
}

#[tokio::test]
async fn who_may_read_all_of_a_fact_is_told_of_it() {
    let app = idle().await;
    let [open, closed, other] = [doc(&app, "Open").await, doc(&app, "Closed").await, doc(&app, "Open too").await];
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    predicate(&app, "knows").await;
    let batch = NewFacts {
        facts: vec![
            says(open, "knows", "a"),
            says(open, "knows", "b"),
            fact(open, "knows", closed),
            fact(open, "knows", other),
        ],
        on_overlap: None,
    };
    let made = app.client.assert_facts(Json(batch)).await.unwrap();
    let ids: Vec<i64> = made.facts.iter().map(|fact| fact.id).collect();
    let new = Supersession { object_literal: Some("c".to_owned()), ..Supersession::default() };
    let done = app.client.supersede_fact(FactPath { id: ids[0] }, Json(new)).await.unwrap();
    app.client.invalidate_fact(FactPath { id: ids[1] }, OptionalJson(None)).await.unwrap();
    // What is known of a document ends with it, and those who could read it are told.
    for id in [closed, other] {
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    let told: Vec<(String, i64, Value, bool)> = sqlx::query_as(
        "SELECT kind, document_id, data, owner_only FROM event_outbox WHERE kind LIKE 'triple.%' ORDER BY id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let told: Vec<_> = told
        .into_iter()
        .map(|(kind, id, data, owner_only)| (kind, id, data["triple_ids"].clone(), owner_only))
        .collect();
    let event = |kind: &str, ids: Value, owner_only: bool| (format!("triple.{kind}"), open, ids, owner_only);
    let right = [
        event("created", json!([ids[0], ids[1], ids[3]]), false),
        event("created", json!([ids[2]]), true),
        event("superseded", json!([ids[0]]), false),
        event("created", json!([done.fact.id]), false),
        event("invalidated", json!([ids[1]]), false),
        event("invalidated", json!([ids[2]]), true),
        event("invalidated", json!([ids[3]]), false),
    ];
    let sorted = |mut events: Vec<(String, i64, Value, bool)>| {
        events.sort_by_key(|event| event.2.to_string() + &event.0);
        events
    };
    assert_eq!(sorted(told), sorted(right.to_vec()));
    app.end().await;
}

#[tokio::test]
async fn one_long_text_may_state_as_many_facts_as_a_batch_has() {
    let app = idle().await;
    predicate(&app, "states").await;
    let words = |number: usize| format!("sentence {number} of the text");
    let filling = "and so on ".repeat(28);
    let text: String = (0..1_000).map(|number| format!("This is {}, {filling}.\n", words(number))).collect();
    let source =
        app.client.create_document(WaitQuery::default(), Json(document("A long text", &text))).await.unwrap().id;
    let fact = |number: usize| NewFact {
        source_id: Some(source),
        // Runs of white space may differ.
        quote: Some(words(number).replace(' ', if number.is_multiple_of(2) { " " } else { "  " })),
        ..says(source, "states", &number.to_string())
    };
    let facts = NewFacts { facts: (0..1_000).map(fact).collect(), on_overlap: None };
    let written = app.client.assert_facts(Json(facts)).await.unwrap().facts;
    assert_eq!(written.len(), 1_000);
    let wrong: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM triples t JOIN triple_citations c ON c.triple_id = t.id JOIN documents d ON d.id = c.document_id
          WHERE substr(d.content, c.quote_start + 1, c.quote_end - c.quote_start) <> 'sentence ' || t.object_literal || ' of the text'",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(wrong, 0);
    // The one that is at fault is named.
    let mut facts: Vec<NewFact> =
        (0..3).map(|number| NewFact { valid_from: Some(day(1)), ..fact(number + 2_000) }).collect();
    facts[0].quote = Some(words(7));
    let refused = app.client.assert_facts(Json(NewFacts { facts, on_overlap: None })).await.expect_err("no such words");
    assert_eq!((refused.code, &refused.members["index"]), (Code::InvalidField, &json!(1)));
    app.end().await;
}

#[tokio::test]
async fn a_database_that_takes_too_long_is_no_fault_of_a_fact() {
    // Long enough for what nobody holds up, on a loaded machine too.
    let settings = &[("SVC_STATEMENT_TIMEOUT_SECONDS", "2")];
    let app = TestApp::with(Wish { settings, no_worker: true, ..Wish::default() }).await;
    let [a, b] = [doc(&app, "A").await, doc(&app, "B").await];
    predicate(&app, "knows").await;
    let facts = || Json(NewFacts { facts: vec![fact(a, "knows", b), fact(b, "knows", a)], on_overlap: None });
    for held in ["SELECT take_pen()", "SELECT 1 FROM documents FOR UPDATE"] {
        let mut other = app.pool.begin().await.unwrap();
        sqlx::query(held).execute(&mut *other).await.unwrap();
        let refused = app.client.assert_facts(facts()).await.unwrap_err();
        assert_eq!((refused.code, refused.members.get("index")), (Code::TimedOut, None), "{held}: {refused:?}");
        other.rollback().await.unwrap();
    }
    app.client.assert_facts(facts()).await.unwrap();
    app.end().await;
}
