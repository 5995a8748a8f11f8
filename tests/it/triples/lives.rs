//! What becomes of facts when their documents are moved, closed, opened, reprocessed and deleted.
use super::{day, doc, fact, predicate, rules::Deriving, says, under};
use crate::{
    cli::svc,
    principals::{grant, idle, someone},
    support::{TestApp, sample, until, until_a_statement_waits},
};
use serde_json::{Value, json};
use svc_client::{
    Code, Json, OptionalJson,
    wire::{
        DocumentChange, DocumentPath, FactOutcome, FactPath, FactQuery, FactResponse, GrantRight, Invalidation,
        LintAudit, LintRequest, NewFact, OnOverlap, ValidAt, WaitQuery,
    },
};

async fn read(app: &TestApp, id: i64) -> FactResponse {
    app.client.read_fact(FactPath { id }).await.unwrap()
}

async fn state(app: &TestApp, source_id: i64) -> Vec<FactResponse> {
    let query = FactQuery { source_id: Some(source_id), valid_at: Some(ValidAt::Any), ..FactQuery::default() };
    app.client.list_facts(query).await.unwrap().facts
}

#[tokio::test]
async fn a_quote_is_found_in_its_source_and_no_longer_shown_once_the_text_has_changed() {
    let app = idle().await;
    let a = doc(&app, "A").await;
    let source = doc(&app, "the radar  gauge").await;
    predicate(&app, "is").await;
    let quoted = |quote: &str| NewFact {
        source_id: Some(source),
        quote: Some(quote.to_owned()),
        confidence: Some(0.8),
        on_overlap: Some(OnOverlap::Merge),
        ..says(a, "is", "known")
    };
    let made = app.client.assert_fact(Json(quoted("of the radar gauge."))).await.unwrap();
    let citation = &made.fact.citations[0];
    assert_eq!(
        (citation.quote.as_deref(), citation.confidence),
        (Some("of the radar  gauge."), Some(0.8)),
        "the text's own words"
    );
    assert_eq!((citation.quote_start, citation.quote_end), (Some(14), Some(34)));
    // Again it is a known fact; other words are one more citation, and the same ones are not.
    for (quote, count) in [("What is known", 2), ("What is known", 2)] {
        let again = app.client.assert_fact(Json(quoted(quote))).await.unwrap();
        assert_eq!(
            (again.outcome, again.fact.id, again.fact.citations.len()),
            (FactOutcome::Existing, made.fact.id, count)
        );
    }
    let change = DocumentChange { content: Some("Nothing of it.".to_owned()), ..DocumentChange::default() };
    app.client.update_document(DocumentPath { id: source }, WaitQuery::default(), Json(change)).await.unwrap();
    let citation = read(&app, made.fact.id).await.citations.remove(0);
    assert_eq!((citation.quote, citation.quote_start), (None, Some(14)));
    app.end().await;
}

#[tokio::test]
async fn a_changed_text_that_states_a_fact_again_shows_its_words_and_leaves_it_no_longer_stale() {
    let app = idle().await;
    let [a, source] = [doc(&app, "A").await, doc(&app, "the radar").await];
    predicate(&app, "is").await;
    let said = || NewFact {
        source_id: Some(source),
        quote: Some("known of the radar".to_owned()),
        on_overlap: Some(OnOverlap::Merge),
        ..says(a, "is", "known")
    };
    let stale = async || {
        let asked = LintRequest { audits: Some(vec![LintAudit::Staleness]), ..LintRequest::default() };
        app.client.lint_graph(Json(asked)).await.unwrap().audits[0].count
    };
    let made = app.client.assert_fact(Json(said())).await.unwrap().fact;
    // The words stand where they stood, and then elsewhere each time.
    let longer = "What is known of the radar. It turns.".to_owned();
    let moved = (1..=12).map(|times| format!("{} What is known of the radar.", "So.".repeat(times)));
    let mut last = made.clone();
    for text in std::iter::once(longer).chain(moved) {
        let change = DocumentChange { content: Some(text), ..DocumentChange::default() };
        app.client.update_document(DocumentPath { id: source }, WaitQuery::default(), Json(change)).await.unwrap();
        assert_eq!(stale().await, 1);
        let again = app.client.assert_fact(Json(said())).await.unwrap();
        assert_eq!((again.outcome, again.fact.id), (FactOutcome::Existing, made.id));
        let quotes: Vec<&str> = again.fact.citations.iter().filter_map(|cited| cited.quote.as_deref()).collect();
        assert_eq!(quotes, ["known of the radar"], "{:?}", again.fact.citations);
        assert_eq!(stale().await, 0);
        last = again.fact;
    }
    // The first citation and that of the text as it is now are kept, however many came between.
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM triple_citations").fetch_one(&app.pool).await.unwrap();
    assert_eq!((kept, last.citations.len(), last.citations[0].quote.is_some()), (2, 2, true));
    // What was known first was stated once.
    let then = FactQuery {
        source_id: Some(source),
        known_at: Some(made.recorded_at),
        valid_at: Some(ValidAt::Any),
        ..FactQuery::default()
    };
    let then = app.client.list_facts(then).await.unwrap().facts;
    let cited: Vec<_> = then.iter().flat_map(|fact| &fact.citations).map(|cited| &cited.source_hash).collect();
    assert_eq!(cited, [&made.citations[0].source_hash]);
    app.end().await;
}

#[tokio::test]
async fn a_delete_ends_what_only_the_deleted_stated_and_what_was_about_it() {
    let app = idle().await;
    let [a, b, folder] = [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "Folder").await];
    let [one, two] = [under(&app, "One", Some(folder)).await, doc(&app, "Two").await];
    predicate(&app, "a").await;
    let by = |source: i64, new: NewFact| NewFact { source_id: Some(source), on_overlap: Some(OnOverlap::Merge), ..new };
    let assert = async |new: NewFact| app.client.assert_fact(Json(new)).await.unwrap().fact;
    let only_one = assert(by(one, fact(a, "a", b))).await;
    let both = assert(by(one, says(a, "a", "x"))).await;
    assert_eq!(assert(by(two, says(a, "a", "x"))).await.id, both.id);
    let alone = assert(by(one, says(a, "a", "y"))).await;
    assert_eq!(assert(NewFact { on_overlap: Some(OnOverlap::Merge), ..says(a, "a", "y") }).await.id, alone.id);
    let about = assert(fact(b, "a", one)).await;
    app.client.delete_document(DocumentPath { id: folder }).await.unwrap();
    for (id, ended) in [(only_one.id, true), (both.id, false), (alone.id, false), (about.id, true)] {
        let fact = read(&app, id).await;
        assert_eq!(fact.invalidation.as_deref(), ended.then_some("source_deleted"), "{fact:?}");
    }
    assert_eq!(read(&app, both.id).await.source_id, Some(two));
    assert_eq!(read(&app, alone.id).await.source_id, None);
    // What was known then is still the owner's to read, and shows nothing of the text.
    let then = FactQuery { object_id: Some(one), known_at: Some(about.recorded_at), ..FactQuery::default() };
    assert_eq!(app.client.list_facts(then.clone()).await.unwrap().facts.len(), 1);
    assert!(read(&app, only_one.id).await.citations.is_empty());
    let reader = someone(&app, "reader").await;
    assert_eq!(reader.client.list_facts(then).await.unwrap_err().code, Code::NotFound);
    assert_eq!(reader.client.read_fact(FactPath { id: about.id }).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

#[tokio::test]
async fn facts_of_two_closed_places_that_come_to_one_are_merged() {
    let app = idle().await;
    let [a, b, root, open] =
        [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "Root").await, doc(&app, "Open").await];
    let [first, second] = [under(&app, "First", Some(root)).await, under(&app, "Second", Some(root)).await];
    let [one, two] = [under(&app, "One", Some(first)).await, under(&app, "Two", Some(second)).await];
    let both = under(&app, "Both", Some(first)).await;
    predicate(&app, "a").await;
    for id in [first, second] {
        app.client.protect_document(DocumentPath { id }).await.unwrap();
    }
    let by = async |source: i64, from: u32, until: u32| {
        let new = NewFact {
            source_id: Some(source),
            on_overlap: Some(OnOverlap::Merge),
            valid_from: Some(day(from)),
            valid_until: Some(day(until)),
            ..fact(a, "a", b)
        };
        app.client.assert_fact(Json(new)).await.unwrap().fact
    };
    let move_to = async |id: i64, parent: i64| {
        let change = DocumentChange { parent_id: Some(Some(parent)), ..DocumentChange::default() };
        app.client.update_document(DocumentPath { id }, WaitQuery::default(), Json(change)).await.unwrap();
    };
    let old = by(one, 1, 10).await;
    assert_eq!(by(both, 2, 3).await.id, old.id);
    move_to(both, second).await;
    let other = by(two, 5, 20).await;
    assert_ne!(other.id, old.id);
    assert_eq!(by(both, 6, 7).await.id, other.id);
    move_to(both, open).await;
    // What the third document states too is all that goes on, and each day of it once.
    app.client.delete_document(DocumentPath { id: root }).await.unwrap();
    let query = FactQuery { subject_id: Some(a), valid_at: Some(ValidAt::Any), ..FactQuery::default() };
    let left = app.client.list_facts(query).await.unwrap().facts;
    let mut times: Vec<_> = left.iter().map(|fact| (fact.valid_from, fact.valid_until, fact.source_id)).collect();
    times.sort_unstable();
    let stated = |from: u32, until: u32| (Some(day(from)), Some(day(until)), Some(both));
    assert_eq!(times, [stated(1, 10), stated(10, 20)]);
    app.end().await;
}

#[tokio::test]
async fn a_fact_is_as_closed_as_its_source_and_meets_its_like_where_it_comes() {
    let app = idle().await;
    let [a, b, source, other] =
        [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "Source").await, doc(&app, "Other").await];
    predicate(&app, "a").await;
    let reader = someone(&app, "reader").await;
    let sees = async |id: i64| reader.client.read_fact(FactPath { id }).await.is_ok();
    let span = |from: u32, until: u32| NewFact {
        valid_from: Some(day(from)),
        valid_until: Some(day(until)),
        ..fact(a, "a", b)
    };
    let assert = async |new: NewFact| app.client.assert_fact(Json(new)).await.unwrap().fact;
    let private = assert(NewFact { source_id: Some(source), ..span(1, 10) }).await;
    assert!(sees(private.id).await);
    app.client.protect_document(DocumentPath { id: source }).await.unwrap();
    assert!(!sees(private.id).await);
    // The closed fact keeps nobody from saying the same.
    let open = assert(NewFact { source_id: Some(other), ..span(4, 6) }).await;
    assert!(sees(open.id).await);
    grant(&app, &reader, source, GrantRight::Read).await;
    assert!(sees(private.id).await);
    // Opened again, it is left of where the other one says so, and what it was stays readable.
    app.client.unprotect_document(DocumentPath { id: source }).await.unwrap();
    let closed = read(&app, private.id).await;
    assert_eq!((closed.invalidation.as_deref(), closed.invalidated_by), (Some("merged"), Some(open.id)));
    let rest = state(&app, source).await;
    let times: Vec<_> =
        rest.iter().filter(|fact| fact.previous_id.is_some()).map(|fact| (fact.valid_from, fact.valid_until)).collect();
    assert_eq!(times, [(Some(day(1)), Some(day(4))), (Some(day(6)), Some(day(10)))]);
    assert_eq!(read(&app, open.id).await.citations.len(), 2, "both documents state it now");
    // A move under a closed document closes what it states; what another one states too stays open.
    let closed = doc(&app, "Closed").await;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let change = DocumentChange { parent_id: Some(Some(closed)), ..DocumentChange::default() };
    app.client.update_document(DocumentPath { id: source }, WaitQuery::default(), Json(change)).await.unwrap();
    for fact in state(&app, source).await {
        assert_eq!(sees(fact.id).await, fact.id == open.id, "{fact:?}");
    }
    let shown = reader.client.read_fact(FactPath { id: open.id }).await.unwrap();
    assert_eq!((shown.source_id, shown.citations.len()), (Some(other), 1));
    app.end().await;
}

#[tokio::test]
async fn what_two_documents_state_stays_known_to_who_reads_the_one_that_was_closed_first() {
    let app = idle().await;
    let [a, b, first, second] =
        [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "First").await, doc(&app, "Second").await];
    predicate(&app, "a").await;
    let by = async |source: i64| {
        let new = NewFact { source_id: Some(source), on_overlap: Some(OnOverlap::Merge), ..fact(a, "a", b) };
        app.client.assert_fact(Json(new)).await.unwrap().fact
    };
    let stated = by(first).await;
    assert_eq!(by(second).await.id, stated.id);
    let [one, two] = [someone(&app, "one").await, someone(&app, "two").await];
    grant(&app, &two, second, GrantRight::Read).await;
    let of = |source_id: i64| FactQuery { source_id: Some(source_id), ..FactQuery::default() };
    let before = two.client.list_facts(of(second)).await.unwrap();
    assert_eq!((before.facts.len(), before.facts[0].id), (1, stated.id));
    grant(&app, &one, first, GrantRight::Read).await;
    let [known] = <[FactResponse; 1]>::try_from(two.client.list_facts(of(second)).await.unwrap().facts).unwrap();
    let cited: Vec<i64> = known.citations.iter().map(|citation| citation.document_id).collect();
    assert_eq!((known.source_id, cited, known.created_at), (Some(second), vec![second], stated.created_at));
    assert_eq!(known.previous_id, None, "it came from what others read alone");
    assert!(known.recorded_at > before.known_at);
    let [known] = <[FactResponse; 1]>::try_from(one.client.list_facts(of(first)).await.unwrap().facts).unwrap();
    assert_eq!((known.id, known.source_id), (stated.id, Some(first)));
    // What was known before is as it was.
    let then = FactQuery { known_at: Some(before.known_at), ..of(second) };
    let then: Vec<i64> = app.client.list_facts(then).await.unwrap().facts.iter().map(|fact| fact.id).collect();
    assert_eq!(then, [stated.id]);
    // Where both are open it is one fact again.
    for id in [first, second] {
        app.client.unprotect_document(DocumentPath { id }).await.unwrap();
    }
    let left: Vec<i64> = state(&app, second).await.iter().map(|fact| fact.id).collect();
    assert_eq!(left, [stated.id]);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_about_parts_of_a_file_follow_a_reprocess() {
    let app = TestApp::start().await;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let parts = app.subtree(file).await;
    let section = parts.iter().find(|part| part.usetype == "section").unwrap();
    let leaf = parts.iter().filter(|part| part.usetype == "chunk").max_by_key(|part| part.content.len()).unwrap();
    let person = doc(&app, "A person").await;
    predicate(&app, "a").await;
    let quote: String = leaf.content.chars().take(20).collect();
    let assert = async |new: NewFact| app.client.assert_fact(Json(new)).await.unwrap().fact;
    let about = assert(NewFact { source_id: Some(section.id), ..fact(section.id, "a", person) }).await;
    let from = assert(NewFact { source_id: Some(leaf.id), quote: Some(quote), ..says(person, "a", "x") }).await;
    let ended = assert(NewFact { source_id: Some(section.id), ..says(person, "a", "ended") }).await;
    app.client.invalidate_fact(FactPath { id: ended.id }, OptionalJson(None)).await.unwrap();
    // Chunks of another size are no counterparts.
    let part_of = assert(NewFact { source_id: Some(section.id), ..fact(section.id, "a", leaf.id) }).await;
    let mut stated = Vec::new();
    for other in [Some(section.id), None] {
        let says = says(section.id, "a", &format!("{other:?}"));
        let made = assert(NewFact { source_id: Some(leaf.id), ..says.clone() }).await;
        if let Some(other) = other {
            assert(NewFact { source_id: Some(other), on_overlap: Some(OnOverlap::Merge), ..says }).await;
        }
        stated.push(made.id);
    }
    let options = serde_json::from_value(json!({"options": {"structure": {"max_tokens": 16}}})).unwrap();
    app.client.reprocess_file(DocumentPath { id: file }, OptionalJson(Some(options))).await.unwrap();
    app.settled(file).await;
    until("the new tree", async || {
        (app.client.read_document(DocumentPath { id: section.id }, Default::default()).await.is_err()).then_some(())
    })
    .await;
    let old = read(&app, about.id).await;
    assert_eq!(old.invalidation.as_deref(), Some("reprocessed"));
    let new = read(&app, old.invalidated_by.unwrap()).await;
    let followed = app.client.read_document(DocumentPath { id: new.subject_id }, Default::default()).await;
    let followed = followed.unwrap().value().unwrap();
    assert_eq!(
        (followed.usetype.as_str(), &followed.title, new.previous_id),
        ("section", &section.title, Some(about.id))
    );
    assert_eq!((new.source_id, new.citations[0].document_id), (Some(followed.id), followed.id));
    // What has lost an end, or all that stated it, has ended; what another part states too goes on.
    for lost in [part_of.id, stated[1], from.id] {
        assert_eq!(read(&app, lost).await.invalidation.as_deref(), Some("source_deleted"));
    }
    // What was believed once stays readable to those who may read the new part.
    let reader = someone(&app, "reader").await;
    let seen = reader.client.read_fact(FactPath { id: ended.id }).await.unwrap();
    assert_eq!((seen.source_id, seen.citations.len()), (Some(followed.id), 1));
    let old = read(&app, stated[0]).await;
    let new = read(&app, old.invalidated_by.unwrap()).await;
    assert_eq!((new.subject_id, new.source_id), (followed.id, Some(followed.id)));
    app.end().await;
}

#[tokio::test]
async fn what_a_fact_is_left_of_is_named_to_those_who_may_read_that() {
    let app = idle().await;
    let [a, b] = [doc(&app, "A").await, doc(&app, "B").await];
    let [first, second] = [doc(&app, "first source").await, doc(&app, "second source").await];
    predicate(&app, "leads").await;
    let stated = |source_id: i64| NewFact { source_id: Some(source_id), ..fact(a, "leads", b) };
    let whole = app.client.assert_fact(Json(stated(first))).await.unwrap().fact.id;
    let ended = Invalidation { valid_from: Some(day(10)), ..Invalidation::default() };
    let ended = app.client.invalidate_fact(FactPath { id: whole }, OptionalJson(Some(ended))).await.unwrap();
    let rest = ended.remainders[0].id;
    // The other source states what is left, and not what is believed no more.
    let again = NewFact { valid_until: Some(day(10)), on_overlap: Some(OnOverlap::Merge), ..stated(second) };
    let again = app.client.assert_fact(Json(again)).await.unwrap();
    assert_eq!((again.outcome, again.fact.id), (FactOutcome::Existing, rest));
    let reader = someone(&app, "reader").await;
    let seen = async || reader.client.read_fact(FactPath { id: rest }).await.unwrap().previous_id;
    assert_eq!(seen().await, Some(whole));
    app.client.protect_document(DocumentPath { id: first }).await.unwrap();
    assert_eq!(seen().await, None);
    let hidden = reader.client.read_fact(FactPath { id: whole }).await.unwrap_err();
    assert_eq!(hidden.code, Code::NotFound);
    assert_eq!(read(&app, rest).await.previous_id, Some(whole));
    app.client.delete_document(DocumentPath { id: first }).await.unwrap();
    assert_eq!((seen().await, read(&app, rest).await.previous_id), (None, Some(whole)));
    app.end().await;
}

#[tokio::test]
async fn the_command_line_says_replaces_and_follows_facts() {
    let app = idle().await;
    let [lab, ada, bea] = [doc(&app, "Lab").await, doc(&app, "Ada").await, doc(&app, "Bea").await];
    let [from, to, other] = [lab, ada, bea].map(|id| id.to_string());
    let run = async |arguments: &[&str]| {
        let done = svc(&app, arguments).await;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), said(&done.stdout), said(&done.stderr))
    };
    assert_eq!(
        run(&["--table", "predicates", "--add", "org:leads", "--functional"]).await.1,
        "predicate 1: org:leads\n"
    );
    let listed = run(&["--table", "predicates", "lead"]).await.1;
    assert!(listed.contains("org:leads") && listed.contains("urn:svc:predicate/org/leads"), "{listed}");
    let (_, said, _) =
        run(&["--table", "facts", "add", &from, "org:leads", "--to", &to, "--from", "2020-01-01T00:00:00Z"]).await;
    assert_eq!(said, "fact 1: created\n");
    let (code, _, refused) = run(&["facts", "add", &from, "org:leads", "--to", &to]).await;
    assert!(code == Some(1) && refused.contains("fact 1 says so already"), "{refused}");
    let replaced = run(&["--table", "facts", "replace", "1", "--to", &other, "--from", "2024-01-01T00:00:00Z"]).await.1;
    assert!(replaced.contains("in the place of 1; left of it: "), "{replaced}");
    let then = run(&["--table", "facts", "list", &from, "--at", "2021-01-01T00:00:00Z"]).await.1;
    assert!(then.contains("org:leads") && then.contains("2024-01-01T00:00:00Z") && then.lines().count() == 2, "{then}");
    assert_eq!(run(&["facts", "list", &from, "--at", "any"]).await.1.lines().count(), 2);
    assert_eq!(run(&["facts", "history", "1"]).await.1.lines().count(), 2);
    let (code, path, _) = run(&["--table", "path", &from, &other]).await;
    assert!(code == Some(0) && path.contains("-org:leads->") && path.contains("Bea"), "{path}");
    let (code, path, _) = run(&["--table", "path", &to, &other]).await;
    assert_eq!((code, path.as_str()), (Some(1), "no path\n"), "Ada leads it no longer");
    let ended = run(&["--table", "facts", "end", "1"]).await;
    assert!(ended.0 == Some(1) && ended.2.contains("no longer believed"), "{ended:?}");
    app.end().await;
}

/// The arguments of a command with more of them.
fn joined<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

#[tokio::test]
async fn the_command_line_reads_other_moments_and_leaves_out_what_was_derived() {
    let app = idle().await;
    let [a, b, c] = [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "C").await].map(|id| id.to_string());
    let run = async |arguments: &[&str]| {
        let done = svc(&app, arguments).await;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), said(&done.stdout), said(&done.stderr))
    };
    let line = async |arguments: &[&str]| -> Value {
        let (code, said, refused) = run(arguments).await;
        assert_eq!(code, Some(0), "{refused}");
        serde_json::from_str(&said).unwrap()
    };
    let above = line(&[
        "predicates",
        "--add",
        "org:above",
        "--transitive",
        "--irreflexive",
        "--asymmetric",
        "--label",
        "is above",
        "--description",
        "In rank.",
    ])
    .await;
    assert_eq!((&above["label"], &above["description"]), (&json!("is above"), &json!("In rank.")));
    for (flag, is_so) in
        [("transitive", true), ("irreflexive", true), ("asymmetric", true), ("symmetric", false), ("functional", false)]
    {
        assert_eq!(above[flag], is_so, "{flag}");
    }
    let other = above["id"].to_string();
    let named = line(&["predicates", "--add", "org:named", "--inverse-functional", "--disjoint-with", &other]).await;
    assert_eq!((&named["inverse_functional"], &named["disjoint_with"]), (&json!(true), &json!([above["id"]])));
    let refused = run(&["predicates", "--transitive"]).await;
    assert!(refused.0 == Some(2) && refused.2.contains("--add"), "{refused:?}");

    let deriving = Deriving::start(&app);
    let first = line(&["facts", "add", &a, "org:above", "--to", &b, "--from", "2024-01-01T00:00:00Z"]).await;
    line(&["facts", "add", &b, "org:above", "--to", &c, "--from", "2024-01-05T00:00:00Z"]).await;
    deriving.done(&app).await;
    let before = first["recorded_at"].as_str().unwrap();
    let length = async |more: &[&str]| {
        let (code, said, _) = run(&joined(&["path", &a, &c], more)).await;
        let found: Value = serde_json::from_str(&said).unwrap();
        (code, found["paths"][0]["length"].as_u64())
    };
    assert_eq!(length(&[]).await, (Some(0), Some(1)));
    assert_eq!(length(&["--asserted"]).await, (Some(0), Some(2)));
    assert_eq!(length(&["--at", "2024-01-03T00:00:00Z"]).await, (Some(1), None), "C is below nobody yet");
    assert_eq!(length(&["--known", before]).await, (Some(1), None), "nobody had said so yet");

    let around = async |more: &[&str]| {
        let found = line(&joined(&["graph", "neighbors", &a], more)).await;
        found["facts"].as_array().unwrap().len()
    };
    assert_eq!((around(&[]).await, around(&["--asserted"]).await, around(&["--known", before]).await), (2, 1, 1));
    let count = async |arguments: &[&str]| run(arguments).await.1.lines().count();
    let since = "2024-01-01T00:00:00Z";
    assert_eq!((count(&["graph", "diff", since]).await, count(&["graph", "diff", since, "--asserted"]).await), (3, 2));
    assert_eq!(line(&["graph", "stats", "--asserted"]).await["facts"], 2);
    for (only, facts) in [(&["--derived"][..], 1), (&["--asserted"], 1), (&["--type", "static"], 0), (&[], 2)] {
        assert_eq!(count(&joined(&["facts", "list", &a], only)).await, facts, "{only:?}");
    }
    let exported = async |more: &[&str]| {
        let (_, text, _) = run(&joined(&["rdf", "export"], more)).await;
        crate::rdf::canonical(&text).len()
    };
    assert_eq!((exported(&[]).await, exported(&["--asserted"]).await), (3, 2));

    let cited: [&str; 6] = ["--source", &b, "--quote", "What is known", "--confidence", "0.5"];
    let cited = line(&joined(&["facts", "add", &a, "org:named", "--value", "Ada"], &cited)).await;
    assert_eq!(cited["citations"][0]["confidence"], 0.5);
    assert_eq!(count(&["facts", "list", "--value", "Ada"]).await, 1);
    assert_eq!(count(&["facts", "list", "--value", "ada"]).await, 0, "a literal is compared to the letter");
    for (flag, field) in [("--min-tokens", "coverage.tokens"), ("--min-facts", "coverage.facts")] {
        let refused = run(&["lint", flag, "2"]).await;
        assert!(refused.0 == Some(1) && refused.2.contains(field), "{refused:?}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_fact_goes_with_a_document_that_is_deleted_meanwhile() {
    let app = idle().await;
    let [a, b] = [doc(&app, "A").await, doc(&app, "B").await];
    predicate(&app, "a").await;
    let stated = app.client.assert_fact(Json(fact(a, "a", b))).await.unwrap().fact;
    let mut pen = app.pool.begin().await.unwrap();
    sqlx::query("SELECT take_pen()").execute(&mut *pen).await.unwrap();
    let ending = tokio::spawn({
        let client = app.client.clone();
        let portion = serde_json::from_value(serde_json::json!({"valid_from": "2024-01-05T00:00:00Z"})).unwrap();
        async move { client.invalidate_fact(FactPath { id: stated.id }, OptionalJson(Some(portion))).await }
    });
    until_a_statement_waits(&app.pool).await;
    let deleting = tokio::spawn({
        let client = app.client.clone();
        async move { client.delete_document(DocumentPath { id: a }).await }
    });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("both to wait", async || {
        (sqlx::query_scalar::<_, i64>(waiting).fetch_one(&app.pool).await.unwrap() > 1).then_some(())
    })
    .await;
    pen.rollback().await.unwrap();
    ending.await.unwrap().unwrap();
    deleting.await.unwrap().unwrap();
    let believed: i64 = sqlx::query_scalar("SELECT count(*) FROM triples WHERE invalidated_at IS NULL")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(believed, 0);
    app.end().await;
}
