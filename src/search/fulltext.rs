//! What a full-text search asks for: words, "phrases", `or`, -not.
use super::{
    Total,
    explain::{plan, ran},
    legs::Leg,
};
use crate::{
    core::Core,
    error::OrFail,
    store::{
        self,
        fulltext::{COUNTED, Question},
        growth::Timed,
        lexicon::lexeme,
        search::Eligible,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};
use svc_client::{
    Failure,
    wire::{LegWay, SearchMethod},
};
use svc_ranking::{Analyzer, idf};

/// How many documents the rarer words of a question may have together; a document that has only the others is not looked at.
const CANDIDATES: i64 = 20_000;

/// The most words of a query; each costs a look at every document that has it.
const WORDS: usize = 64;
/// The most terms that these words have together: a word of Chinese may be long.
const TERMS: usize = 1_024;
/// Up to this many terms a text is ranked by how densely they stand in it. That takes time with the square of their number, half a second
/// for a long text that has sixty of them; beyond, each word counts for itself.
const DENSE: usize = 8;
/// From this many terms on a run of characters without spaces is no word but a sentence, of which some may be asked for.
const SENTENCE: usize = 3;

/// Why a query cannot be asked.
#[derive(Debug, PartialEq, Eq)]
enum Unaskable {
    /// It, or one of its choices, only says what must not occur: that matches nearly everything.
    Forbids,
    /// It has this many words, or one of them has too many terms.
    Long(usize),
}

/// A query as tsqueries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Everything that is asked for; empty if the query has no word.
    all: String,
    /// The words of which each is worth something, if the query is only words; empty if it says itself what goes with what.
    words: Vec<String>,
    /// What must hold even if not all of the words occur.
    always: String,
    /// Everything that is asked for, one by one, if it is too much to be ranked by density.
    apart: Vec<String>,
}

struct Item<'q> {
    text: &'q str,
    forbidden: bool,
    quoted: bool,
}

/// What a `-` forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Minus {
    /// Whatever follows it.
    Anything,
    /// A word or a phrase; before a digit it is the sign of a number.
    Words,
}

/// Whether what follows a `-` is a word or a phrase, and no number.
pub(super) fn is_word_or_phrase(text: &str) -> bool {
    text.starts_with(char::is_alphabetic) || quoted(text).is_some()
}

impl Asked {
    fn read(query: &str, minus: Minus, analyzer: &Analyzer) -> Result<Asked, Unaskable> {
        let (mut count, mut terms) = (0, 0);
        let mut choices = Vec::new();
        let (mut words, mut always, mut apart) = (Vec::new(), Vec::new(), Vec::new());
        for items in choices_of(query, minus) {
            let (mut wanted, mut forbidden) = (Vec::new(), Vec::new());
            let mut is_word = false;
            for item in &items {
                let parts = expressions(item, analyzer, &mut count, &mut terms);
                is_word |= !item.forbidden;
                match item {
                    Item { forbidden: true, .. } if !parts.is_empty() => {
                        forbidden.push({
                            let whole: Vec<String> = parts.iter().map(Part::whole).collect();
                            format!("!{}", bracketed(&whole, " & "))
                        });
                    }
                    Item { quoted: false, .. } => words.extend(parts.iter().flat_map(Part::apart)),
                    _ => always.extend(parts.iter().map(Part::whole)),
                }
                if !item.forbidden {
                    apart.extend(parts.iter().flat_map(Part::apart));
                    wanted.extend(parts.iter().map(Part::whole));
                }
            }
            always.extend(forbidden.iter().cloned());
            if wanted.is_empty() && is_word {
                // Its words are too common to be indexed.
                continue;
            }
            if wanted.is_empty() && forbidden.is_empty() {
                continue;
            }
            if wanted.is_empty() {
                return Err(Unaskable::Forbids);
            }
            wanted.extend(forbidden);
            choices.push(bracketed(&wanted, " & "));
        }
        if count > WORDS || terms > TERMS {
            return Err(Unaskable::Long(count));
        }
        if choices.len() != 1 {
            (words, always) = (Vec::new(), Vec::new());
        }
        for words in [&mut words, &mut apart] {
            let mut seen = BTreeSet::new();
            words.retain(|word| seen.insert(word.clone()));
            // A sentence without spaces has as many pairs of characters as characters.
            words.truncate(WORDS);
        }
        if terms <= DENSE {
            apart.clear();
        }
        Ok(Asked { all: choices.join(" | "), words, always: always.join(" & "), apart })
    }

    /// What has everything, or one of the words at least: of the rarest, as long as they are in few documents. Says whether these are all.
    fn among(&self, frequencies: &[i64]) -> (String, bool) {
        let mut words: Vec<(i64, &str)> =
            std::iter::zip(frequencies.iter().copied(), self.words.iter().map(String::as_str)).collect();
        words.sort_unstable();
        let mut room = CANDIDATES;
        let is_kept = |(at, (df, _)): &(usize, &(i64, &str))| {
            // Nobody has counted on from there.
            room -= if *df < COUNTED { *df } else { CANDIDATES + 1 };
            room >= 0 || *at == 0
        };
        let kept: Vec<&str> = words.iter().enumerate().take_while(is_kept).map(|(_, (_, word))| *word).collect();
        let any = format!("({})", kept.join(" | "));
        let among = if self.always.is_empty() { any } else { format!("{} & {any}", self.always) };
        (format!("({}) | ({among})", self.all), kept.len() == words.len())
    }
}

/// Ranks what has all that is asked for. If that is less than `limit`, what has some of the words comes after it, the rarer ones first:
/// nDCG@10 of Cranfield's questions is then .357 instead of .02.
///
/// The answer is by some of the words if all of them give fewer than `enough`: that is not `limit`, which grows until there are enough
/// groups, so that more of the same ranking comes and not another one. Says whether it is by all of them, and some of them would find more.
pub(super) async fn leg(
    core: &Core,
    eligible: &Eligible,
    (query, minus): (&str, Minus),
    enough: u32,
    limit: u32,
) -> Result<(Leg, bool), Failure> {
    let asked = Asked::read(query, minus, core.lexicon.analyzer()).map_err(|unaskable| match unaskable {
        Unaskable::Forbids => Failure::field("query", "it only forbids words: add one that must occur"),
        Unaskable::Long(words) => {
            let detail = match words > WORDS {
                true => format!("a full-text search takes at most {WORDS} words, but the query has {words}"),
                false => {
                    format!("a full-text search takes words of at most {TERMS} terms together: search for a part of it")
                }
            };
            Failure::field("query", detail).with("limit", WORDS)
        }
    })?;
    let (wanted, begun) = (i64::from(limit), Instant::now());
    let ran = |way, returned| ran(SearchMethod::Fulltext, begun, limit, returned, plan(way, None));
    if asked.all.is_empty() {
        let total = Total { count: 0, exact: true };
        return Ok((Leg { ranked: Vec::new(), total, ran: ran(LegWay::AllWords, 0) }, false));
    }
    let mut tx = store::transaction::begin_search(&core.pool).await.or_fail()?;
    let (mut ranked, mut count) =
        store::fulltext::matching(&mut tx, eligible, &asked.all, &asked.apart, wanted).await.or_fail()?;
    let (mut exact, mut way) = (true, LegWay::AllWords);
    let parts = asked.words.len() + usize::from(!asked.always.is_empty());
    let mut is_narrow = !asked.words.is_empty() && parts > 1;
    if is_narrow && count < i64::from(enough) {
        is_narrow = false;
        way = LegWay::SomeWords;
        let (frequencies, all) = store::fulltext::frequencies(&mut tx, &asked.words).await.or_fail()?;
        let weights: Vec<f64> = frequencies.iter().map(|df| idf(all as f64, *df as f64)).collect();
        let (among, is_all) = asked.among(&frequencies);
        let Asked { all, words, apart, .. } = &asked;
        let question = Question { all, among: &among, words, apart, weights: &weights };
        (ranked, count) = store::fulltext::answering(&mut tx, eligible, &question, wanted).await.or_fail()?;
        exact = is_all;
    }
    tx.commit().await.or_fail()?;
    core.load.record(Timed::Search, begun.elapsed());
    let total = Total { count: count.unsigned_abs(), exact };
    Ok((Leg { ran: ran(way, ranked.len()), ranked, total }, is_narrow))
}

/// What opens a phrase and what closes it: the quotes of keyboards, and those that word processors put in their place in English and in German. A phrase of
/// a keyboard may go on to the end; the other ones are signs like any other where nothing closes them.
const QUOTES: [(char, &[char]); 3] = [('"', &['"']), ('“', &['”']), ('„', &['“', '”'])];

/// The phrase that begins a text, and what comes after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let open = text.chars().next()?;
    let (_, close) = QUOTES.into_iter().find(|(opens, _)| *opens == open)?;
    let inner = &text[open.len_utf8()..];
    match inner.split_once(close) {
        None if open == '"' => Some((inner, "")),
        split => split,
    }
}

/// Whether a query has a phrase that is closed and has a letter or a digit in it.
pub(super) fn has_phrase(query: &str) -> bool {
    // For each pair of quotes, whether such a character stands behind the first one that is open; `None` if none is.
    let mut open = QUOTES.map(|_| None);
    for character in query.chars() {
        for (has_word, (opens, close)) in open.iter_mut().zip(QUOTES) {
            if close.contains(&character) {
                if *has_word == Some(true) {
                    return true;
                }
                *has_word = None;
            }
            if character == opens && has_word.is_none() {
                *has_word = Some(false);
            }
        }
        if character.is_alphanumeric() {
            open.iter_mut().flatten().for_each(|has_word| *has_word = true);
        }
    }
    false
}

/// The items of each choice between which the query says `or`.
fn choices_of(query: &str, minus: Minus) -> Vec<Vec<Item<'_>>> {
    // Where each pair closes for the last time: to look for the end of a phrase at each quote would take time with the square of their number.
    let ends = QUOTES.map(|(_, close)| query.rfind(close));
    // Whether what is left of the query begins with a phrase.
    let is_phrase = |left: &str| {
        let at = query.len() - left.len();
        let is_closed = |end: Option<usize>| end.is_some_and(|end| at < end);
        QUOTES.iter().zip(ends).any(|((opens, _), end)| left.starts_with(*opens) && (*opens == '"' || is_closed(end)))
    };
    let mut choices = vec![Vec::new()];
    let mut rest = query.trim_start();
    while !rest.is_empty() {
        let bare = rest.strip_prefix('-').filter(|bare| match minus {
            Minus::Anything => !bare.is_empty() && !bare.starts_with(char::is_whitespace),
            Minus::Words => bare.starts_with(char::is_alphabetic) || is_phrase(bare),
        });
        let forbidden = bare.is_some();
        let text = bare.unwrap_or(rest);
        let (text, quoted, next) = match Some(text).filter(|text| is_phrase(text)).and_then(quoted) {
            Some((text, next)) => (text, true, next),
            None => {
                let end =
                    text.char_indices().find(|(at, ch)| ch.is_whitespace() || (*at > 0 && is_phrase(&text[*at..])));
                let end = end.map_or(text.len(), |(at, _)| at);
                (&text[..end], false, &text[end..])
            }
        };
        if !quoted && !forbidden && text.eq_ignore_ascii_case("or") {
            choices.push(Vec::new());
        } else if let Some(choice) = choices.last_mut() {
            choice.push(Item { text, forbidden, quoted });
        }
        rest = next.trim_start();
    }
    choices
}

/// What must occur of an item: each of its words, or all of them in their order if they are quoted.
fn expressions(item: &Item<'_>, analyzer: &Analyzer, count: &mut usize, terms: &mut usize) -> Vec<Part> {
    // By their places the terms of each word, a word by its parts if it has some.
    let mut words: BTreeMap<u32, (bool, BTreeMap<u32, Vec<String>>)> = BTreeMap::new();
    analyzer.query_tokens(item.text, |token| {
        *terms += 1;
        if *terms > TERMS {
            return;
        }
        let (has_parts, places) = words.entry(token.word).or_default();
        if token.is_part() && !*has_parts {
            *has_parts = true;
            places.clear();
        }
        if token.is_part() || !*has_parts {
            let alternatives = places.entry(token.position).or_default();
            let term = lexeme(token.term);
            if !alternatives.contains(&term) {
                alternatives.push(term);
            }
        }
    });
    let mut words: Vec<BTreeMap<u32, Vec<String>>> = words.into_values().map(|(_, places)| places).collect();
    *count += words.len();
    if item.quoted {
        words = vec![words.into_iter().flatten().collect()];
    }
    words.into_iter().filter(|places| !places.is_empty()).map(|places| Part { places, quoted: item.quoted }).collect()
}

/// A word or a phrase: its terms by their places, with their alternatives.
struct Part {
    places: BTreeMap<u32, Vec<String>>,
    quoted: bool,
}

impl Part {
    /// All of it, in its order.
    fn whole(&self) -> String {
        phrase(&self.places)
    }

    /// What of it a text may have without the rest: each pair of the characters of a sentence in Chinese or Japanese.
    fn apart(&self) -> Vec<String> {
        let is_unspaced = self.places.values().flatten().all(|term| term.trim_matches('\'').chars().all(is_unspaced));
        match self.quoted || self.places.len() < SENTENCE || !is_unspaced {
            true => vec![self.whole()],
            false => self.places.values().map(|alternatives| bracketed(alternatives, " | ")).collect(),
        }
    }
}

/// Whether a character belongs to Chinese or Japanese, which have no spaces between words.
pub(super) fn is_unspaced(character: char) -> bool {
    matches!(character, '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

fn phrase(places: &BTreeMap<u32, Vec<String>>) -> String {
    let mut phrase = String::new();
    let mut last = 0;
    for (place, alternatives) in places {
        if !phrase.is_empty() {
            phrase.push_str(&format!(" <{}> ", place - last));
        }
        phrase.push_str(&bracketed(alternatives, " | "));
        last = *place;
    }
    if places.len() > 1 { format!("({phrase})") } else { phrase }
}

fn bracketed(parts: &[String], between: &str) -> String {
    match parts {
        [one] => one.clone(),
        parts => format!("({})", parts.join(between)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_ranking::AnalyzerConfig;

    #[test]
    fn a_word_that_nobody_has_counted_to_its_end_is_too_common() {
        let asked = Asked { words: ["rare", "flood", "gauge"].map(str::to_owned).to_vec(), ..Asked::default() };
        let among = |frequencies: [i64; 3]| asked.among(&frequencies);
        assert_eq!(among([3, 9_999, COUNTED]), ("() | ((rare | flood))".to_owned(), false));
        assert_eq!(among([COUNTED, COUNTED, COUNTED]).0, "() | ((flood))", "the first one stays");
        assert!(among([3, 9_000, 9_999]).1);
    }

    #[test]
    fn a_query_becomes_what_must_occur() {
        let analyzer = Analyzer::new(AnalyzerConfig::default());
        let read = |query: &str| Asked::read(query, Minus::Anything, &analyzer);
        for (query, all) in [
            ("Rising dough", "('rise' & 'dough')"),
            ("rises -dough", "('rise' & !'dough')"),
            ("\"oven of bread\" -\"two words\"", "(('oven' <2> 'bread') & !('two' <1> 'word'))"),
            ("cats or dogs fish", "'cat' | ('dog' & 'fish')"),
            ("get_user_by_id", "('get' <1> 'user' <2> 'id')"),
            ("東京都 塔", "(('東京' <1> '京都') & '塔')"),
            ("l'école", "('l''ecol' | 'ecol')"),
            ("the", ""),
            ("", ""),
            ("-- \"", ""),
            ("a or b", "'b'"),
            ("\"unclosed quote", "('unclos' <1> 'quot')"),
            ("“radar gauge” -“read by”", "(('radar' <1> 'gaug') & !'read')"),
            ("mill“pond duck", "('mill' & 'pond' & 'duck')"),
            ("„radar gauge“ fails in storm", "(('radar' <1> 'gaug') & 'fail' & 'storm')"),
            ("„one two” -„three four“", "(('one' <1> 'two') & !('three' <1> 'four'))"),
            ("“ mill", "'mill'"),
        ] {
            assert_eq!(read(query).map(|asked| asked.all), Ok(all.to_owned()), "{query}");
        }
        assert_eq!(read("-dough"), Err(Unaskable::Forbids));
        assert_eq!(read("bread or -dough"), Err(Unaskable::Forbids));
        let long: String = (0..300).map(|at| format!("w{at} ")).collect();
        assert_eq!(read(&long), Err(Unaskable::Long(300)));
        assert_eq!(read(&"漢字".repeat(1_000)), Err(Unaskable::Long(1)));
        let asked = read("how \"bread dough\" rises -oven").unwrap();
        assert_eq!(
            (asked.words, asked.always),
            (vec!["'how'".into(), "'rise'".into()], "('bread' <1> 'dough') & !'oven'".into())
        );
    }

    #[test]
    fn a_phrase_is_one_wherever_each_look_for_its_end_would_find_it() {
        let texts = ["\"", "“", "”", "„", "x", " ", "-"];
        let all = |length: u32| {
            (0..7_usize.pow(length))
                .map(move |n| (0..length).map(|at| texts[n / 7_usize.pow(at) % 7]).collect::<String>())
        };
        for query in (1..=5).flat_map(all) {
            let is_closed = |(at, _): (usize, char)| {
                quoted(&query[at..]).is_some_and(|(phrase, rest)| {
                    phrase.contains('x') && phrase.len() + rest.len() + 1 < query.len() - at
                })
            };
            assert_eq!(has_phrase(&query), query.char_indices().any(is_closed), "{query}");
            for minus in [Minus::Anything, Minus::Words] {
                let mut rest = query.trim_start();
                for item in choices_of(&query, minus).into_iter().flatten() {
                    let bare = if item.forbidden { rest.strip_prefix('-').unwrap() } else { rest };
                    let found = quoted(bare);
                    assert_eq!(item.quoted, found.is_some(), "{query}");
                    let text = found.map_or(item.text, |(phrase, _)| phrase);
                    assert_eq!(item.text, text, "{query}");
                    let is_within = |(at, _): (usize, char)| quoted(&bare[at..]).is_some();
                    assert!(item.quoted || !item.text.char_indices().skip(1).any(is_within), "{query}");
                    let next = found.map_or_else(|| &bare[item.text.len()..], |(_, next)| next);
                    rest = next.trim_start();
                }
                assert_eq!(rest, "", "{query}");
            }
        }
    }

    #[test]
    fn a_minus_may_be_the_sign_of_a_number_and_still_forbids_words() {
        let analyzer = Analyzer::new(AnalyzerConfig::default());
        let read = |minus| Asked::read("rises -40 -dough -\"two words\"", minus, &analyzer).map(|asked| asked.all);
        let anything = "('rise' & !'40' & !'dough' & !('two' <1> 'word'))";
        assert_eq!(read(Minus::Anything), Ok(anything.to_owned()));
        assert_eq!(read(Minus::Words), Ok("('rise' & '40' & !'dough' & !('two' <1> 'word'))".to_owned()));
    }
}
