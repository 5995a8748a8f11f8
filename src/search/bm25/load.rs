//! What a search scores: the postings of its terms, as they are read or as this process remembers them.
use super::{
    Error,
    read::{FIRST, Query, VERIFY, Verify, score, set_out},
};
use crate::store::indexes::{
    postings::Resolved,
    reading::{self, Foreseen, Known, PartOf, Reading},
    terms::{self, TermStats},
};
use sqlx::PgConnection;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use svc_ids::IndexId;
use svc_ranking::{
    Analyzer, AnalyzerConfig, Bounds, Cache, Curve, Kind, Language, List, MAX_TERMS, Newest, Posting, Postings,
    Scoring, Seen, SeenIndex, Totals, Weighted, decode_row, idf, without_language,
};

/// The most words of a query that are looked up, the most repeated ones first.
const LOOKED_UP: usize = 1_024;
/// A query with more bytes is analysed on a blocking thread.
const LONG_QUERY: usize = 16 << 10;

/// An index as it was read for a query.
pub(super) struct Loaded {
    pub(super) index: IndexId,
    /// The server's process that read it.
    pub(super) backend: i32,
    pub(super) scoring: Scoring,
    /// The best documents, if the search had foreseen what it read, and what is known of those that the index has.
    pub(super) foreseen: Option<(Scored, Vec<Resolved>)>,
}

/// The best documents by their numbers, with their scores.
pub(super) type Scored = Vec<(u32, f64)>;

/// What a search finds if the index still is what it was when it was last read.
struct Guess {
    /// The index as it was.
    reading: Reading,
    /// Whether all of it was read of the same contents, so that asking which contents the index has now is enough.
    is_of_one_moment: bool,
    scoring: Scoring,
    scored: Scored,
}

impl Guess {
    /// Whether the index has been read to be just that, so that reading its postings comes to the same scores.
    fn is_right(&self, now: &Reading) -> bool {
        let was = &self.reading;
        now.id == was.id
            && now.totals == was.totals
            && now.parts.is_empty()
            && now.stats.iter().filter(|term| term.df > 0).eq(&was.stats)
    }
}

/// What a query looks for.
struct Wanted {
    /// By term, with what each counts: for a word, how often it stands in the query; for an added term, its share of all words.
    terms: Vec<Weighted>,
    /// Where each text has its own language: for each word, the places of its terms in all languages.
    words: Vec<Vec<usize>>,
}

impl Wanted {
    /// How many documents each term stands for, where so many have the term itself. A text has a word by the terms of one language alone, and the word is as rare in
    /// a text of a rare language as in any other. So each of its terms stands for all documents that have the word.
    fn documents(&self, own: &[i64]) -> Vec<i64> {
        let mut documents = own.to_vec();
        for places in &self.words {
            let mut by_language: Vec<(Option<&str>, i64)> = Vec::new();
            for &place in places.iter().filter(|place| own[**place] > 0) {
                let (_, language) = without_language(&self.terms[place].0);
                match by_language.iter_mut().find(|(known, _)| *known == language) {
                    // A text that has an accented form mostly has the one without accents too.
                    Some((_, most)) => *most = own[place].max(*most),
                    None => by_language.push((language, own[place])),
                }
            }
            let all: i64 = by_language.iter().map(|(_, most)| most).sum();
            for &place in places {
                documents[place] = documents[place].max(all);
            }
        }
        documents
    }

    /// Leaves as many words as may be scored, those whose terms have the fewest sealed postings first, and of these the terms that the index knows, which come with their
    /// counts. A word stays with all of its terms or with none: with its rare terms alone it would count as a rare word.
    fn narrowed(&self, known: &HashMap<String, i32>) -> Wanted {
        let counts: Vec<Option<i64>> =
            self.terms.iter().map(|(term, _)| known.get(&**term).map(|df| i64::from(*df))).collect();
        let in_words: HashSet<usize> = self.words.iter().flatten().copied().collect();
        let alone = (0..self.terms.len()).filter(|place| !in_words.contains(place)).map(|place| vec![place]);
        let mut words: Vec<Vec<usize>> = self.words.iter().cloned().chain(alone).collect();
        words.sort_by_cached_key(|places| {
            (places.iter().filter_map(|&place| counts[place]).sum::<i64>(), places.iter().min().copied())
        });
        let mut kept: HashSet<usize> = HashSet::with_capacity(MAX_TERMS);
        for places in &words {
            let new: HashSet<usize> =
                places.iter().copied().filter(|place| counts[*place].is_some() && !kept.contains(place)).collect();
            if kept.len() + new.len() > MAX_TERMS {
                break;
            }
            kept.extend(new);
        }
        let mut places: Vec<usize> = kept.into_iter().collect();
        places.sort_unstable();
        let now: HashMap<usize, usize> = places.iter().enumerate().map(|(now, &place)| (place, now)).collect();
        let words = self.words.iter().map(|word| word.iter().filter_map(|place| now.get(place).copied()).collect());
        Wanted { terms: places.iter().map(|&place| self.terms[place].clone()).collect(), words: words.collect() }
    }
}

/// What a query looks for in an index with this analyzer.
async fn wanted(config: AnalyzerConfig, Query { text, added }: Query<'_>) -> Result<Wanted, Error> {
    let (words, length) = if text.len() > LONG_QUERY {
        let text = text.to_owned();
        let analysis = tokio::task::spawn_blocking(move || counted(config, &text));
        analysis.await.map_err(|_| Error::Stopped)?
    } else {
        counted(config, text)
    };
    let counts = words.iter().flat_map(|(word, count)| word.iter().map(move |term| (term.clone(), *count)));
    let mut terms: Vec<Weighted> = counts.collect();
    terms.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    terms.dedup_by(|(term, count), (kept, sum)| {
        let is_same = term == kept;
        if is_same {
            *sum += *count;
        }
        is_same
    });
    // Where each text has its own language, a word becomes a term of each language, and a text can have only one of these. So words are counted, not terms.
    let all = if terms.is_empty() { 0.0 } else { f64::from(length.max(1)) };
    for (term, share) in added.iter().filter(|_| all > 0.0) {
        match terms.binary_search_by(|(known, _)| known.cmp(term)) {
            Ok(at) => terms[at].1 += all * share,
            Err(at) => terms.insert(at, (term.clone(), all * share)),
        }
    }
    let place = |term: &str| terms.binary_search_by(|(known, _)| (**known).cmp(term)).ok();
    let in_all = words.iter().filter(|_| config.language == Language::Detect);
    let words = in_all.map(|(word, _)| word.iter().filter_map(|term| place(term)).collect()).collect();
    Ok(Wanted { terms, words })
}

/// The terms of a word of a query, and how often it stands there.
type Counted = (Vec<Box<str>>, f64);

/// The words of a query that are looked up, and how many words the query has. Where each text has its own language, a word has all of its forms in all languages;
/// elsewhere each form is looked for by itself.
fn counted(config: AnalyzerConfig, text: &str) -> (Vec<Counted>, u32) {
    let mut words: Vec<Vec<Box<str>>> = Vec::new();
    let (mut length, mut before) = (0_u32, None);
    Analyzer::new(config).query_tokens(text, |token| {
        length = length.saturating_add(u32::from(token.kind == Kind::Word));
        // The first part of a name shares the place of the name, and is a word of its own.
        let place = Some((token.position, token.is_part()));
        let is_form = config.language == Language::Detect && place == before;
        match words.last_mut().filter(|_| is_form) {
            Some(word) => word.push(token.term.into()),
            None => words.push(vec![token.term.into()]),
        }
        before = place;
    });
    let mut counts: HashMap<Vec<Box<str>>, f64> = HashMap::with_capacity(words.len());
    for word in words {
        *counts.entry(word).or_default() += 1.0;
    }
    let mut words: Vec<Counted> = counts.into_iter().collect();
    if words.len() > LOOKED_UP {
        words.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        words.truncate(LOOKED_UP);
    }
    (words, length)
}

/// Reads the postings of the query's terms, as of one moment; `None` if there is no index of this name.
pub(super) async fn load(
    conn: &mut PgConnection,
    cache: &Cache,
    name: &str,
    query: Query<'_>,
    limit: usize,
    verify: Option<&dyn Verify>,
) -> Result<Option<Loaded>, Error> {
    // Mostly the index is what it was; otherwise its own analyzer reads the query again.
    let mut before = cache.index(name);
    loop {
        let (id, analyzer) = before.map(|index| (index.id, index.totals.config.analyzer)).unwrap_or_default();
        let mut wanted = wanted(analyzer, query).await?;
        if wanted.terms.len() > MAX_TERMS {
            let names: Vec<&str> = wanted.terms.iter().map(|(name, _)| &**name).collect();
            let known = terms::sealed_counts(&mut *conn, name, &names).await?;
            wanted = wanted.narrowed(&known.into_iter().collect());
        }
        let names: Vec<&str> = wanted.terms.iter().map(|(name, _)| &**name).collect();
        let seen = cache.seen(id, names.iter().copied());
        let newest = seen.iter().flatten().filter_map(|seen| seen.sealed.as_ref());
        let known: Vec<Known> = newest.map(|Newest { key: (_, term_id, _, seal), .. }| (*term_id, *seal)).collect();
        let mut guess = match before {
            Some(index) => foresee(index, &wanted, &seen, limit, verify).await?,
            None => None,
        };
        let docnos: Vec<i32> = guess.iter().flat_map(|guess| &guess.scored).map(|&(doc, _)| doc as i32).collect();
        let eligible = verify.and_then(|filter| filter.eligible());
        if let Some(Guess { reading, scoring, scored, .. }) = guess.take_if(|guess| guess.is_of_one_moment) {
            let foreseen = Foreseen { index: reading.id, docnos: &docnos, eligible };
            let Some(now) = reading::glance(&mut *conn, name, foreseen).await? else { return Ok(None) };
            if (now.id, now.contents) == (reading.id, reading.totals.contents) {
                let foreseen = Some((scored, now.resolved));
                return Ok(Some(Loaded { index: now.id, backend: now.backend, scoring, foreseen }));
            }
        }
        let foreseen = guess.as_ref().map(|guess| Foreseen { index: guess.reading.id, docnos: &docnos, eligible });
        let Some(mut reading) = reading::read(&mut *conn, name, &names, &known, foreseen).await? else {
            return Ok(None);
        };
        if !reading.totals.config.analyzer.is_current() {
            return Err(Error::OtherAnalyzer(name.to_owned()));
        }
        let (index, backend) = (reading.id, reading.backend);
        if let Some(Guess { scoring, scored, .. }) = guess.filter(|guess| guess.is_right(&reading)) {
            let contents = reading.totals.contents;
            // Nothing is foreseen unless all of the terms are remembered.
            let now: Vec<Seen> = seen.into_iter().flatten().map(|seen| Seen { contents, ..seen }).collect();
            keep(cache, id, &names, &now);
            let foreseen = Some((scored, reading.resolved));
            return Ok(Some(Loaded { index, backend, scoring, foreseen }));
        }
        let now = cache.keep_index(name, index.0, reading.totals);
        if (index.0, reading.totals.config.analyzer) == (id, analyzer) {
            let (scoring, seen) = scoring(&mut reading, &wanted, &seen)?;
            keep(cache, id, &names, &seen);
            return Ok(Some(Loaded { index, backend, scoring, foreseen: None }));
        }
        before = Some(now);
    }
}

/// Remembers what was read of these terms.
fn keep(cache: &Cache, index: i64, names: &[&str], seen: &[Seen]) {
    for (name, seen) in names.iter().zip(seen) {
        cache.keep(index, name, seen);
    }
}

/// Scores the postings that are remembered. Returns `None` if these were not all that there is, if something has been written between the last two times that
/// the index was read, or if the statement that reads the postings could not verify what is found: then scoring now would most likely be in vain.
async fn foresee(
    before: SeenIndex,
    wanted: &Wanted,
    seen: &[Option<Seen>],
    limit: usize,
    verify: Option<&dyn Verify>,
) -> Result<Option<Guess>, Error> {
    // A filter that lists its documents first does not verify any.
    let is_verified = verify.is_none_or(|filter| filter.eligible().is_some() && filter.listed_after() > 0);
    if !before.is_quiet || !is_verified || limit == 0 {
        return Ok(None);
    }
    let mut stats = Vec::with_capacity(wanted.terms.len());
    for ((name, _), seen) in wanted.terms.iter().zip(seen) {
        match seen {
            Some(Seen { sealed: Some(newest), is_all: true, .. }) => stats.push(as_it_was(name, newest)),
            Some(Seen { sealed: None, is_all: true, .. }) => {}
            _ => return Ok(None),
        }
    }
    let mut reading = Reading {
        backend: 0,
        id: IndexId(before.id),
        totals: before.totals,
        stats,
        parts: Vec::new(),
        resolved: Vec::new(),
    };
    let (mut scoring, _) = scoring(&mut reading, wanted, seen)?;
    let most = set_out(&mut scoring, limit, verify);
    if most == 0 || scoring.k > FIRST {
        return Ok(None);
    }
    let (scoring, scored) = score(scoring, most).await?;
    let is_of_one_moment = seen.iter().flatten().all(|seen| seen.contents == before.totals.contents);
    Ok((scored.len() <= VERIFY).then_some(Guess { reading, is_of_one_moment, scoring, scored }))
}

/// What the index said of a term when its list was read.
fn as_it_was(name: &str, Newest { key: (_, term_id, generation, seal), average, list }: &Newest) -> TermStats {
    TermStats {
        term: name.to_owned(),
        term_id: *term_id,
        df: i32::try_from(list.count()).unwrap_or(i32::MAX),
        generation: *generation,
        seal: *seal,
        avgdl_built: *average,
    }
}

/// Takes the postings out of what was read. Returns also what there is of each wanted term.
fn scoring(reading: &mut Reading, wanted: &Wanted, seen: &[Option<Seen>]) -> Result<(Scoring, Vec<Seen>), Error> {
    let (index, totals) = (reading.id, reading.totals);
    let corrupt = |term| move |reason| Error::Corrupt { index, term, reason };
    let mut found: HashMap<i32, Found> = HashMap::with_capacity(reading.stats.len());
    for part in reading.parts.drain(..) {
        let found = found.entry(part.term_id).or_default();
        match part.postings {
            PartOf::Sealed(first, data) => found.sealed.push((first, data)),
            PartOf::Tail(data) => decode_row(&data, &mut found.tail).map_err(corrupt(part.term_id))?,
            PartOf::Dead(docs) => found.dead.extend(docs.into_iter().map(i32::unsigned_abs)),
        }
    }
    let average = totals.average_length();
    let curve = Curve::new(totals.config.parameters(), average);
    let known: Vec<Option<&TermStats>> = (wanted.terms.iter())
        .map(|(name, _)| reading.stats.binary_search_by(|term| (*term.term).cmp(name)).ok())
        .map(|at| at.and_then(|at| reading.stats.get(at)))
        .collect();
    let frequency = |term: &TermStats| {
        let (tail, dead) = found.get(&term.term_id).map_or((0, 0), |found| (found.tail.len(), found.dead.len()));
        (i64::from(term.df) + tail as i64 - dead as i64).max(0)
    };
    let own: Vec<i64> = known.iter().map(|term| term.map_or(0, frequency)).collect();
    let documents = wanted.documents(&own);
    let most = wanted.terms.len();
    let (mut lists, mut dead, mut now) = (Vec::with_capacity(most), vec![], Vec::with_capacity(most));
    for (at, seen) in seen.iter().enumerate() {
        let Some(term) = known[at] else {
            now.push(Seen { sealed: None, is_all: true, contents: totals.contents });
            continue;
        };
        let found = found.remove(&term.term_id).unwrap_or_default();
        let mut is_all = found.tail.is_empty() && found.dead.is_empty();
        dead.extend(found.dead);
        let weight = idf(totals.docs as f64, documents[at] as f64) * (totals.config.k1 + 1.0) * wanted.terms[at].1;
        let mut sealed = None;
        if term.df > 0 {
            let key = (index.0, term.term_id, term.generation, term.seal);
            let before = seen.as_ref().and_then(|seen| seen.sealed.as_ref()).filter(|newest| newest.key == key);
            let list = match before {
                Some(newest) => Arc::clone(&newest.list),
                None => Arc::new(Postings::sealed(found.sealed).map_err(corrupt(term.term_id))?),
            };
            // Of a damaged index nothing is foreseen.
            is_all &= list.count() as i64 == i64::from(term.df);
            lists.push(List { postings: Arc::clone(&list), weight, bounds: bounds(&totals, term, average) });
            sealed = Some(Newest { key, average: term.avgdl_built, list });
        }
        if !found.tail.is_empty() {
            let postings = Arc::new(Postings::tail(found.tail, &curve));
            lists.push(List { postings, weight, bounds: Bounds::Times(1.0) });
        }
        now.push(Seen { sealed, is_all, contents: totals.contents });
    }
    dead.sort_unstable();
    dead.dedup();
    Ok((Scoring { lists, curve, allowed: None, dead, k: 0, prune: true }, now))
}

#[derive(Default)]
struct Found {
    sealed: Vec<(i32, Vec<u8>)>,
    tail: Vec<Posting>,
    dead: Vec<u32>,
}

/// A longer average makes every saturation larger, at most in proportion; a shorter one only leaves the bounds too
/// large.
fn bounds(totals: &Totals, term: &TermStats, average: f64) -> Bounds {
    let built = f64::from(term.avgdl_built);
    if term.generation <= totals.rescored_at || built <= 0.0 {
        Bounds::Unknown
    } else {
        Bounds::Times((average / built).max(1.0) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_word_of_a_long_query_is_looked_up_in_all_languages() {
        let config = AnalyzerConfig { language: Language::Detect, ..AnalyzerConfig::default() };
        let endings = ["ack", "onk", "ilt", "umb", "erp"];
        let words: Vec<String> =
            ('b'..='w').flat_map(|first| endings.map(|ending| format!("{first}{ending}"))).collect();
        let wanted = wanted(config, Query::from(words.join(" ").as_str())).await.expect("analysed");
        let is_wanted = |term: &str| wanted.terms.binary_search_by(|(known, _)| (**known).cmp(term)).is_ok();
        for word in &words {
            assert!(is_wanted(word) && is_wanted(&format!("{word}/english")), "{word}");
        }
        assert_eq!(wanted.words.len(), words.len());
    }

    #[test]
    fn the_rarest_words_of_a_long_query_stay_each_with_all_of_its_known_terms() {
        let names: Vec<String> = (0..129).map(|word| format!("w{word:03}")).collect();
        let forms = names.iter().flat_map(|name| [name.clone(), format!("{name}/english"), format!("{name}/german")]);
        let terms: Vec<Weighted> = forms.map(|term| (term.into(), 1.0)).collect();
        let words = (0..129).map(|word| vec![word * 3, word * 3 + 1, word * 3 + 2]).collect();
        // The first word is the commonest one, though only by one of its terms.
        let count =
            |name: &str| [(name.to_owned(), 1), (format!("{name}/english"), if name == "w000" { 9 } else { 2 })];
        let known: HashMap<String, i32> = names.iter().flat_map(|name| count(name)).collect();
        let wanted = Wanted { terms, words }.narrowed(&known);
        let kept: Vec<&str> = wanted.terms.iter().map(|(term, _)| &**term).collect();
        let expected: Vec<String> =
            names[1..].iter().flat_map(|name| [name.clone(), format!("{name}/english")]).collect();
        assert_eq!(kept, expected);
        assert_eq!(wanted.words[1..].concat(), (0..MAX_TERMS).collect::<Vec<_>>());
        assert!(wanted.words[0].is_empty());
    }

    #[test]
    fn a_term_of_a_word_stands_for_the_documents_that_have_the_word_in_any_language() {
        let terms = ["run/english", "running", "running/german", "runs", "runs/german", "tern"];
        let terms: Vec<Weighted> = terms.map(|term| (term.into(), 1.0)).to_vec();
        let wanted = Wanted { terms, words: vec![vec![1, 0, 2], vec![3, 0, 4]] };
        // The last one was added.
        assert_eq!(wanted.documents(&[100, 5, 1, 2, 0, 7]), [106, 106, 106, 102, 102, 7]);
        let terms = ["hauser/german", "häuser", "haus/german", "haus/dutch"];
        let terms: Vec<Weighted> = terms.map(|term| (term.into(), 1.0)).to_vec();
        let wanted = Wanted { terms, words: vec![vec![0, 1, 2, 3]] };
        assert_eq!(wanted.documents(&[8, 1, 9, 4]), [14; 4], "a text with both forms counts once");
    }
}
