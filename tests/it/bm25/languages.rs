//! An index where each text has its own language.
use super::{create, find, put};
use std::collections::BTreeSet;
use svc::search::bm25::{self, Allowed};
use svc_ids::IndexId;
use svc_ranking::{Analyzer, AnalyzerConfig, Cache, Config, Language};

const ENGLISH: &str = "The heron and the kestrel live near the river, and they have been seen there for many years by the people of the town.";
const OFTEN: &str = "The kestrel and the kestrel have been seen by the people of the town, where the kestrel and the kestrel live with the \
                     kestrel for many years.";
const OTHER: &str =
    "The people of the town have been living there for many years, and they have seen what lives near the river.";
const GERMAN: &str = "Der Turmfalke und der Kestrel leben seit vielen Jahren in der Nähe der kleinen Stadt, und die Leute haben sie dort \
                      gesehen.";
const OTHER_GERMAN: &str =
    "Die Leute in der kleinen Stadt leben dort seit vielen Jahren und haben gesehen, was an dem Fluss lebt.";
const UNTOLD: &str = "kestrel 7";

fn detecting() -> AnalyzerConfig {
    AnalyzerConfig { language: Language::Detect, ..AnalyzerConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_is_as_rare_in_a_text_of_a_rare_language_as_in_any_other() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    // How long a text is does not count.
    let index = create(&pool, "rarity", &Config { b: 0.0, analyzer: detecting(), ..Config::default() }).await;
    for (text, term) in [
        (ENGLISH, "kestrel/english"),
        (OFTEN, "kestrel/english"),
        (OTHER, "town/english"),
        (GERMAN, "kestrel/german"),
        (OTHER_GERMAN, "stadt/german"),
        (UNTOLD, "kestrel"),
    ] {
        let terms = Analyzer::new(detecting()).bag(text).terms;
        assert!(terms.contains_key(term), "{terms:?}");
    }
    let texts = [(ENGLISH, 19), (OFTEN, 1), (OTHER, 10), (GERMAN, 1), (OTHER_GERMAN, 1), (UNTOLD, 1)];
    let texts = texts.into_iter().flat_map(|(text, times)| std::iter::repeat_n(text.to_owned(), times));
    let texts: Vec<(i64, String)> = (1..).zip(texts).collect();
    put(&pool, &cache, index, &texts).await;
    let expected: Vec<i64> = [20].into_iter().chain(1..20).chain([31, 33]).collect();
    for what in ["as it was written", "sealed", "remembered", "foreseen"] {
        let found = find(&pool, &cache, index, "kestrel", 50, Allowed::All).await;
        assert_eq!(found.iter().map(|hit| hit.document_id.0).collect::<Vec<_>>(), expected, "{what}: {found:?}");
        assert!(found[1..].iter().all(|hit| (hit.score - found[1].score).abs() < 1e-9), "{what}: {found:?}");
        bm25::compact(&pool, index).await.expect("compacted");
    }
}

/// What is found by a hundred words and more, of which one text has the last one.
async fn by_many_words(index: IndexId, pool: &sqlx::PgPool, cache: &Cache) -> Vec<i64> {
    let endings = ["ack", "onk", "ilt", "umb", "erp"];
    let words: Vec<String> = ('b'..='w').flat_map(|first| endings.map(|ending| format!("{first}{ending}"))).collect();
    let last = words.last().expect("there are words").clone();
    put(pool, cache, index, &[(1, last), (2, "something else".to_owned())]).await;
    let found = find(pool, cache, index, &words.join(" "), 9, Allowed::All).await;
    found.into_iter().map(|hit| hit.document_id.0).collect()
}

#[tokio::test]
async fn a_long_query_finds_by_its_last_word_also_where_it_is_looked_for_in_each_language() {
    let pool = crate::support::server::new_pool().await;
    for language in [Language::Detect, Language::English] {
        let cache = Cache::new(1 << 20);
        let analyzer = AnalyzerConfig { language, ..AnalyzerConfig::default() };
        let index = create(&pool, language.name(), &Config { analyzer, ..Config::default() }).await;
        assert_eq!(by_many_words(index, &pool, &cache).await, [1], "{language:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_query_with_too_many_words_a_word_is_searched_for_in_all_languages_or_in_none() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let index = create(&pool, "words", &Config { b: 0.0, analyzer: detecting(), ..Config::default() }).await;
    // Each word is in two English texts and in one of no told language, so that its English term has more documents.
    let texts_of = |word: &String| {
        let english = ENGLISH.replace("kestrel", word);
        [english.clone(), english, format!("{word} 7")]
    };
    let is_told = |word: &String| {
        let [english, _, untold] = texts_of(word).map(|text| Analyzer::new(detecting()).bag(&text).terms);
        english.contains_key(&*format!("{word}/english")) && untold.contains_key(&**word)
    };
    let endings = ["ack", "onk", "ilt", "umb", "erp", "arp", "olt", "isk", "unt", "emp"];
    let words = ('b'..='w').flat_map(|first| endings.map(|ending| format!("{first}{ending}")));
    let words: Vec<String> = words.filter(is_told).take(150).collect();
    assert_eq!(words.len(), 150);
    let texts: Vec<(i64, String)> = (1..).zip(words.iter().flat_map(texts_of)).collect();
    put(&pool, &cache, index, &texts).await;
    bm25::compact(&pool, index).await.expect("compacted");
    for what in ["read", "remembered"] {
        let found = find(&pool, &cache, index, &words.join(" "), 1_000, Allowed::All).await;
        assert_eq!(found.len(), 128 * 3, "{what}: two terms of each of 128 words");
        assert!(found.iter().all(|hit| (hit.score - found[0].score).abs() < 1e-9), "{what}: {found:?}");
        let of: BTreeSet<i64> = found.iter().map(|hit| (hit.document_id.0 - 1) / 3).collect();
        assert_eq!(of.len(), 128, "{what}: each word is found in all of its texts");
    }
}
