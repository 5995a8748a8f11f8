//! What a search scores: the postings of its terms, as they are read or as this process remembers them.
use super::{
    Error,
    read::{FIRST, Query, VERIFY, Verify, score, set_out},
};
use crate::store::indexes::{
    postings::Resolved,
    reading::{self, Foreseen, Known, PartOf, Reading},
    terms::TermStats,
};
use sqlx::PgConnection;
use std::{collections::HashMap, sync::Arc};
use svc_ids::IndexId;
use svc_ranking::{
    Analyzer, AnalyzerConfig, Bounds, Cache, Curve, List, MAX_TERMS, Newest, Posting, Postings, Scoring, Seen,
    SeenIndex, Totals, Weighted, decode_row, idf,
};

/// The most terms of a query that are looked up, the most repeated ones first.
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

/// The weight of each term in the query: for a word, how often it stands there; for an added term, its share of all words.
async fn query_terms(config: AnalyzerConfig, Query { text, added }: Query<'_>) -> Result<Vec<Weighted>, Error> {
    let bag = if text.len() > LONG_QUERY {
        let text = text.to_owned();
        let analysis = tokio::task::spawn_blocking(move || Analyzer::new(config).query(&text));
        analysis.await.map_err(|_| Error::Stopped)?
    } else {
        Analyzer::new(config).query(text)
    };
    // Where each text has its own language, a word becomes a term of each language, and a text can have only one of these. So words are counted, not terms.
    let words = if bag.terms.is_empty() { 0.0 } else { f64::from(bag.length.max(1)) };
    let mut terms: Vec<(Box<str>, u32)> = bag.terms.into_iter().collect();
    if terms.len() > LOOKED_UP {
        terms.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        terms.truncate(LOOKED_UP);
    }
    terms.sort_unstable();
    let mut terms: Vec<Weighted> = terms.into_iter().map(|(term, count)| (term, f64::from(count))).collect();
    for (term, share) in added.iter().filter(|_| words > 0.0) {
        match terms.binary_search_by(|(known, _)| known.cmp(term)) {
            Ok(at) => terms[at].1 += words * share,
            Err(at) => terms.insert(at, (term.clone(), words * share)),
        }
    }
    Ok(terms)
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
        let wanted = query_terms(analyzer, query).await?;
        let names: Vec<&str> = wanted.iter().map(|(name, _)| &**name).collect();
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
        let Some(mut reading) = reading::read(&mut *conn, name, &names, &known, MAX_TERMS, foreseen).await? else {
            return Ok(None);
        };
        if !reading.totals.config.analyzer.is_current() {
            return Err(Error::OtherAnalyzer(name.to_owned()));
        }
        let (index, backend) = (reading.id, reading.backend);
        if let Some(Guess { scoring, scored, .. }) = guess.filter(|guess| guess.is_right(&reading)) {
            let contents = reading.totals.contents;
            let now: Vec<Option<Seen>> =
                seen.into_iter().map(|seen| seen.map(|seen| Seen { contents, ..seen })).collect();
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
fn keep(cache: &Cache, index: i64, names: &[&str], seen: &[Option<Seen>]) {
    for (name, seen) in names.iter().zip(seen) {
        if let Some(seen) = seen {
            cache.keep(index, name, seen);
        }
    }
}

/// Scores the postings that are remembered. Returns `None` if these were not all that there is, if something has been written between the last two times that
/// the index was read, or if the statement that reads the postings could not verify what is found: then scoring now would most likely be in vain.
async fn foresee(
    before: SeenIndex,
    wanted: &[Weighted],
    seen: &[Option<Seen>],
    limit: usize,
    verify: Option<&dyn Verify>,
) -> Result<Option<Guess>, Error> {
    // A filter that lists its documents first does not verify any.
    let is_verified = verify.is_none_or(|filter| filter.eligible().is_some() && filter.listed_after() > 0);
    if !before.is_quiet || !is_verified || limit == 0 || wanted.len() > MAX_TERMS {
        return Ok(None);
    }
    let mut stats = Vec::with_capacity(wanted.len());
    for ((name, _), seen) in wanted.iter().zip(seen) {
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

/// Takes the postings out of what was read. Returns also what there is of each wanted term; `None` for one that was not looked at because too many others are rarer.
fn scoring(
    reading: &mut Reading,
    wanted: &[Weighted],
    seen: &[Option<Seen>],
) -> Result<(Scoring, Vec<Option<Seen>>), Error> {
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
    let (mut lists, mut dead, mut now) = (Vec::with_capacity(wanted.len()), vec![], Vec::with_capacity(wanted.len()));
    for ((name, count), seen) in wanted.iter().zip(seen) {
        let Ok(at) = reading.stats.binary_search_by(|term| (*term.term).cmp(name)) else {
            now.push((wanted.len() <= MAX_TERMS).then_some(Seen {
                sealed: None,
                is_all: true,
                contents: totals.contents,
            }));
            continue;
        };
        let term = &reading.stats[at];
        let found = found.remove(&term.term_id).unwrap_or_default();
        let mut is_all = found.tail.is_empty() && found.dead.is_empty();
        let df = i64::from(term.df) + found.tail.len() as i64 - found.dead.len() as i64;
        dead.extend(found.dead);
        let weight = idf(totals.docs as f64, df.max(0) as f64) * (totals.config.k1 + 1.0) * count;
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
        now.push(Some(Seen { sealed, is_all, contents: totals.contents }));
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
