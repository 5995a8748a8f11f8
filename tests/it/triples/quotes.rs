//! The words that documents state facts with, cut out of long texts.
use super::{doc, predicate, says};
use crate::{
    access::Random,
    principals::idle,
    support::{TestApp, document},
};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use svc::store::{scope::Readable, triples};
use svc_client::{
    Json,
    wire::{FactQuery, NewFact, NewFacts, WaitQuery},
};
use svc_ids::TripleId;

/// How many facts quote the text.
const FACTS: usize = 200;

/// How many of the pieces in which long texts are stored this transaction has read.
async fn pieces(conn: &mut PgConnection) -> i64 {
    let query = "SELECT coalesce(sum(s.idx_tup_fetch), 0)::bigint FROM pg_stat_xact_all_tables s
                   JOIN pg_class c ON c.reltoastrelid = s.relid AND c.oid = 'documents'::regclass";
    sqlx::query_scalar(query).fetch_one(conn).await.unwrap()
}

/// How many pieces are read to show these facts.
async fn read_for(app: &TestApp, ids: &[TripleId]) -> i64 {
    let everything = Readable::everything();
    let mut tx = app.pool.begin().await.unwrap();
    let rows = triples::read_many(&mut tx, &everything, ids).await.unwrap();
    let before = pieces(&mut tx).await;
    let facts = triples::shown(&mut tx, &everything, rows, None).await.unwrap();
    let read = pieces(&mut tx).await - before;
    tx.rollback().await.unwrap();
    assert_eq!(facts.iter().filter(|fact| fact.citations[0].quote.is_some()).count(), ids.len());
    read
}

#[tokio::test]
async fn a_long_text_is_read_once_for_all_facts_of_an_answer_that_quote_it() {
    let app = idle().await;
    predicate(&app, "states").await;
    let about = doc(&app, "about").await;
    // Two bytes a letter, and too few repetitions to be compressed to little.
    let mut random = Random(7919);
    let letters: Vec<char> = ('а'..='я').collect();
    let words: Vec<String> =
        (0..2_000).map(|_| (0..8).map(|_| letters[random.below(letters.len())]).collect()).collect();
    let mut text = String::new();
    for _ in 0..40_000 {
        text.push_str(&words[random.below(words.len())]);
        text.push(' ');
    }
    for number in 0..=FACTS {
        text.push_str(&format!("Строка {number} стоит в конце. "));
    }
    let new = document("long", &text);
    let source = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    // Each second quote reaches into the one after it.
    let quotes: BTreeMap<String, String> = (0..FACTS)
        .map(|number| {
            let quote = match number % 2 {
                0 => format!("Строка {number} стоит в конце."),
                _ => format!("{number} стоит в конце. Строка {}", number + 1),
            };
            (number.to_string(), quote)
        })
        .collect();
    let facts = quotes.iter().map(|(literal, quote)| NewFact {
        source_id: Some(source),
        quote: Some(quote.clone()),
        ..says(about, "states", literal)
    });
    let batch = NewFacts { facts: facts.collect(), on_overlap: None };
    app.client.assert_facts(Json(batch)).await.unwrap();

    let query = FactQuery { source_id: Some(source), limit: Some(1_000), ..FactQuery::default() };
    let listed = app.client.list_facts(query).await.unwrap().facts;
    assert_eq!(listed.len(), FACTS);
    let characters: Vec<char> = text.chars().collect();
    for fact in &listed {
        let citation = &fact.citations[0];
        assert_eq!(citation.quote.as_ref(), quotes.get(fact.object_literal.as_ref().unwrap()), "{fact:?}");
        let [start, end] =
            [citation.quote_start, citation.quote_end].map(|place| usize::try_from(place.unwrap()).unwrap());
        assert_eq!(citation.quote, Some(characters[start..end].iter().collect::<String>()), "{fact:?}");
    }

    let ids: Vec<TripleId> = listed.iter().map(|fact| TripleId(fact.id)).collect();
    let (one, all) = (read_for(&app, &ids[..1]).await, read_for(&app, &ids).await);
    assert!(one > 50, "the text is too short to tell: {one}");
    assert!(all <= 2 * one, "{all} pieces for {FACTS} facts, and {one} for one");
    app.end().await;
}

#[tokio::test]
async fn a_text_that_is_quoted_at_both_ends_is_read_in_parts() {
    let app = idle().await;
    predicate(&app, "states").await;
    let about = doc(&app, "about").await;
    // It is longer than what is read at once for several quotes.
    let text = format!("Первые слова текста. {}Последние буквы книги.", "слово ".repeat(200_000));
    let source = app.client.create_document(WaitQuery::default(), Json(document("long", &text))).await.unwrap().id;
    let quotes = ["Первые слова", "слова текста. слово", "Последние буквы", "буквы книги."];
    let facts = quotes.map(|quote| NewFact {
        source_id: Some(source),
        quote: Some(quote.to_owned()),
        ..says(about, "states", quote)
    });
    app.client.assert_facts(Json(NewFacts { facts: facts.into(), on_overlap: None })).await.unwrap();

    let query = FactQuery { source_id: Some(source), ..FactQuery::default() };
    let listed = app.client.list_facts(query).await.unwrap().facts;
    assert_eq!(listed.len(), quotes.len());
    for fact in &listed {
        assert_eq!(fact.citations[0].quote, fact.object_literal, "{fact:?}");
    }
    app.end().await;
}
