//! What was most likely meant by the words of a query that no text has.
use super::{
    fulltext::is_unspaced,
    paging::{self, Page, REPLACED, Replaced, WORD_BYTES},
};
use crate::{
    core::Core,
    error::OrFail,
    store::{self, search::Eligible},
};
use sqlx::PgConnection;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    ops::Range,
};
use svc_client::{
    Failure,
    wire::{SearchedInstead, WordInstead},
};
use svc_ranking::{Analyzer, meant, without_language};

/// How many different words of a query are looked up.
const WORDS: usize = 32;
/// A shorter word is near to too many others.
const LETTERS: usize = 3;
/// How many terms of the index are compared with a word: so many before its place among them, and as many behind it.
const AROUND: i64 = 10_000;
/// How many of the nearest terms are looked for in texts, some at a time: terms of texts that the caller may not read are among them, and must not keep
/// its own from it.
const LOOKED_FOR: usize = 1_024;
const AT_ONCE: usize = 64;
/// How many characters of a text are read to see how it writes a term.
const READ: i32 = 20_000;

/// A word that may be replaced.
struct Word {
    /// Its bytes in the query, where it stands first.
    range: Range<usize>,
    /// Where it stands again.
    again: Vec<Range<usize>>,
    terms: Vec<String>,
    /// Whether it is a name with parts, such as `get_user`, which is meant as it stands.
    is_name: bool,
    /// Whether it stands once and nothing follows it, so that somebody may still be typing it.
    is_last: bool,
}

/// Puts the nearest word of eligible texts in the place of each word that none has which the caller may read. What is in other texts counts as if it were
/// nowhere, and each word that is put in is read from an eligible text: so nobody learns which words stand in texts that it may not read.
/// A further page searches for what the first one did.
pub(super) async fn correct(
    core: &Core,
    eligible: &Eligible,
    is_wanted: bool,
    page: &mut Page,
    query: &mut String,
) -> Result<Option<SearchedInstead>, Failure> {
    if !is_wanted {
        return Ok(None);
    }
    if page.is_first() {
        page.replaced = mistyped(core, eligible, query).await?;
    }
    put_in(core.lexicon.analyzer(), &page.replaced, query)
}

/// The words of a query that none has which the caller may read, each with the nearest one.
async fn mistyped(core: &Core, eligible: &Eligible, query: &str) -> Result<Vec<Replaced>, Failure> {
    let words = words(core.lexicon.analyzer(), query);
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let terms: Vec<String> = words.iter().flat_map(|word| word.terms.iter().cloned()).collect();
    let mut tx = store::transaction::begin_search(&core.pool).await.or_fail()?;
    // A text is also found by titles above it, which the filter may leave out.
    let readable = Eligible { scope: eligible.scope.clone(), ..Eligible::default() };
    let holders = store::fulltext::holders(&mut tx, &readable, &terms).await.or_fail()?;
    let known: HashSet<&str> =
        terms.iter().zip(&holders).filter(|(_, holder)| holder.is_some()).map(|(term, _)| term.as_str()).collect();
    let is_unknown = |word: &&Word| !word.terms.iter().any(|term| known.contains(term.as_str()));
    let unknown: Vec<&Word> = words.iter().filter(is_unknown).take(REPLACED).collect();
    let mut replaced = Vec::new();
    for word in unknown {
        let searched = nearest(core, &mut tx, eligible, word).await?;
        if let Some(searched) = searched.filter(|searched| searched.len() <= WORD_BYTES) {
            replaced.push(Replaced { range: word.range.clone(), searched });
        }
    }
    tx.commit().await.or_fail()?;
    Ok(replaced)
}

/// Puts words into a query, each wherever the word stands that it is for. Those of a cursor may be for another query.
fn put_in(analyzer: &Analyzer, replaced: &[Replaced], query: &mut String) -> Result<Option<SearchedInstead>, Failure> {
    if replaced.is_empty() {
        return Ok(None);
    }
    let words = words(analyzer, query);
    let (mut places, mut instead, mut end) = (Vec::new(), Vec::new(), 0);
    for Replaced { range, searched } in replaced {
        let word = words.iter().find(|word| word.range == *range && range.start >= end);
        let word = word.ok_or_else(paging::of_another)?;
        places.extend(word.again.iter().chain([range]).map(|range| (range.clone(), searched)));
        instead.push(WordInstead { asked: query[range.clone()].to_owned(), searched: searched.clone() });
        end = range.end;
    }
    // The last comes first, so that the others keep their places.
    places.sort_unstable_by_key(|(range, _)| Reverse(range.start));
    for (range, searched) in places {
        query.replace_range(range, searched);
    }
    Ok(Some(SearchedInstead { query: query.clone(), words: instead }))
}

/// The nearest word that an eligible text has, as it is written there.
async fn nearest(
    core: &Core,
    conn: &mut PgConnection,
    eligible: &Eligible,
    word: &Word,
) -> Result<Option<String>, Failure> {
    let Some(term) = word.terms.first() else { return Ok(None) };
    let around = store::indexes::terms::around(conn, "default", term, AROUND).await.or_fail()?;
    let near: Vec<String> = meant(&word.terms, around.iter().map(String::as_str), word.is_last, LOOKED_FOR)
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mut held = None;
    for terms in near.chunks(AT_ONCE) {
        let holders = store::fulltext::holders(conn, eligible, terms).await.or_fail()?;
        held = terms.iter().zip(holders).find_map(|(term, holder)| Some((term, holder?)));
        if held.is_some() {
            break;
        }
    }
    let Some((term, holder)) = held else { return Ok(None) };
    let read = store::documents::beginnings(conn, &eligible.scope, &[holder], READ).await.or_fail()?;
    let analyzer = core.lexicon.analyzer();
    let written = read.iter().find_map(|read| {
        // A title may be too short to tell its language.
        let whole = || as_written(analyzer, &format!("{}\n{}", read.title, read.text), term);
        as_written(analyzer, &read.text, term).or_else(whole)
    });
    Ok(Some(written.unwrap_or_else(|| without_language(term).0.to_owned())))
}

/// The first word of a text that has this term, in small letters.
fn as_written(analyzer: &Analyzer, text: &str, term: &str) -> Option<String> {
    let mut written = None;
    analyzer.tokens_with_ranges(text, |token| {
        if written.is_none() && token.term == term {
            written = Some(text[token.range].to_lowercase());
        }
    });
    written
}

/// The different words of a query that may be replaced, in their order. What stands in quotes or is forbidden is meant as it stands.
fn words(analyzer: &Analyzer, query: &str) -> Vec<Word> {
    if query.contains(['"', '“', '”']) {
        return Vec::new();
    }
    let end = query.trim_end().len();
    let mut words: BTreeMap<u32, Word> = BTreeMap::new();
    analyzer.query_tokens(query, |token| {
        let is_part = token.is_part();
        let word = words.entry(token.word).or_insert_with(|| Word {
            is_last: token.range.end == end,
            range: token.range,
            again: Vec::new(),
            terms: Vec::new(),
            is_name: false,
        });
        word.is_name |= is_part;
        word.terms.push(token.term.to_owned());
    });
    let is_word = |word: &Word| {
        let (text, before) = (&query[word.range.clone()], &query[..word.range.start]);
        !word.is_name
            && !before.ends_with('-')
            && text.chars().count() >= LETTERS
            && text.chars().all(|letter| letter.is_alphabetic() && !is_unspaced(letter))
    };
    let mut places = HashMap::new();
    let mut different: Vec<Word> = Vec::new();
    for word in words.into_values().filter(is_word) {
        match places.entry(query[word.range.clone()].to_lowercase()) {
            Entry::Vacant(place) => {
                place.insert(different.len());
                different.push(word);
            }
            Entry::Occupied(place) => {
                let first = &mut different[*place.get()];
                first.again.push(word.range);
                first.is_last = false;
            }
        }
    }
    different.truncate(WORDS);
    different
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_ranking::AnalyzerConfig;

    #[test]
    fn words_are_put_where_they_belong_and_nowhere_else() {
        let word = |range, searched: &str| Replaced { range, searched: searched.to_owned() };
        let analyzer = Analyzer::new(AnalyzerConfig::default());
        let mut again = "hreon by hreon".to_owned();
        assert!(put_in(&analyzer, &[word(0..5, "heron")], &mut again).unwrap().is_some_and(|put| put.words.len() == 1));
        assert_eq!(again, "heron by heron");
        let mut query = "hreon in thé reedz!".to_owned();
        let put = [word(0..5, "heron"), word(14..19, "reeds")];
        let instead = put_in(&analyzer, &put, &mut query).unwrap().unwrap();
        assert_eq!((query.as_str(), instead.query.as_str()), ("heron in thé reeds!", "heron in thé reeds!"));
        assert_eq!(instead.words[1], WordInstead { asked: "reedz".to_owned(), searched: "reeds".to_owned() });
        for wrong in [
            vec![word(14..21, "reeds")],
            vec![word(12..13, "e")],
            vec![word(14..19, "reeds"), word(0..5, "heron")],
            vec![word(0..5, "heron"), word(4..6, "n")],
        ] {
            assert!(put_in(&analyzer, &wrong, &mut query).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_words_that_may_be_mistyped_are_looked_up() {
        let analyzer = Analyzer::new(AnalyzerConfig::default());
        for (query, expected) in [
            ("the hreon in reeds", vec!["hreon", "reeds*"]),
            ("reeds hero ", vec!["reeds", "hero*"]),
            ("reeds, hero.", vec!["reeds", "hero"]),
            ("hreon reeds Hreon hero", vec!["hreon", "reeds", "hero*"]),
            ("hero reeds hero", vec!["hero", "reeds"]),
            ("get_user E4021 XK-4471-B", vec![]),
            ("reeds -hreon", vec!["reeds"]),
            ("\"hreon\" reeds", vec![]),
            ("東京都 ox", vec![]),
            ("", vec![]),
        ] {
            let words = words(&analyzer, query);
            let shown = |word: &Word| format!("{}{}", &query[word.range.clone()], if word.is_last { "*" } else { "" });
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(words.iter().map(shown).collect::<Vec<_>>(), expected, "{query}");
        }
    }
}
