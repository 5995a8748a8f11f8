use super::Error;
use crate::store::{
    indexes::{
        Totals,
        postings::{self as rows, Resolved},
        reading::{self, Known, PartOf, Reading},
        terms::TermStats,
    },
    transaction,
};
use sqlx::{PgConnection, PgPool};
use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{
    Analyzer, AnalyzerConfig, Bounds, Cache, Curve, List, MAX_TERMS, Newest, Posting, Postings, Scoring, SealedKey,
    Weighted, decode_row, idf,
};

/// The most terms of a query that are looked up, the most repeated ones first.
const LOOKED_UP: usize = 1_024;
/// Up to this many postings, adding up everything is faster than using bounds.
const EXHAUSTIVE: usize = 64 << 10;
/// Up to this many postings, scoring stays on the async thread, because handing it over would cost more.
const INLINE: usize = 32 << 10;
/// A query with more bytes is analysed on a blocking thread.
const LONG_QUERY: usize = 16 << 10;
/// The most documents that are verified before it is known what share of them passes.
const FIRST: usize = 2_000;
/// Where such a share of the documents passes, hardly more than the results are verified.
const NEARLY_ALL: f64 = 0.9;
/// How many documents one call of a verifier gets.
const VERIFY: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    pub document_id: DocumentId,
    pub score: f64,
}

/// What is searched for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    pub text: &'q str,
    /// Terms of the index that count as well, each with its share of the weight of all words of the text together.
    pub added: &'q [Weighted],
}

impl<'q> From<&'q str> for Query<'q> {
    fn from(text: &'q str) -> Query<'q> {
        Query { text, added: &[] }
    }
}

/// What a [`Verify`] answers later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = sqlx::Result<T>> + Send + 'a>>;

/// A filter of documents. It is asked on the search's own connection.
pub trait Verify: Send + Sync {
    /// The documents that have these numbers in the index, each with its number and whether it may be returned, in any order.
    fn resolve<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        index: IndexId,
        docnos: &'a [i32],
    ) -> Answer<'a, Vec<Resolved>>;

    /// All documents of the index that may be returned, ascending by their numbers, if the filter is narrow, otherwise `None`.
    fn list<'a>(&'a self, conn: &'a mut PgConnection, index: IndexId) -> Answer<'a, Option<Vec<Resolved>>>;

    /// The share of the documents that are expected to pass, more than 0 and at most 1; a wrong one costs time alone.
    fn share(&self) -> f64 {
        1.0
    }

    /// How many documents to verify before asking for the list. By default this is where verifying has taken about as
    /// long as the list takes.
    fn listed_after(&self) -> usize {
        1_000
    }
}

/// Which documents a search may return. Each way is exact.
pub enum Allowed<'a> {
    All,
    /// The best documents are verified, and more are fetched until `limit` pass or none are left. If too many fail, a
    /// narrow filter lists its documents, and scoring skips everything else.
    Verify(&'a dyn Verify),
}

/// An index as it was read for a query.
struct Loaded {
    index: IndexId,
    /// The server's process that read it.
    backend: i32,
    scoring: Scoring,
}

/// What one look at the index came to.
enum Outcome {
    Found(Vec<Hit>),
    /// A document has another number than when the postings were read: it has been indexed anew, or is gone.
    Changed,
}

/// The `limit` best documents of the index of this name for `query`, by descending score, then by ascending document; `None` if there is
/// no such index. If more than eight thousand documents tie at the limit, those indexed first are taken.
///
/// It mostly takes two statements: one reads the postings, and one verifies the best documents. If a document was indexed anew between
/// them, all is read again as of one moment.
pub async fn search(
    pool: &PgPool,
    cache: &Cache,
    index: &str,
    query: Query<'_>,
    limit: usize,
    allowed: Allowed<'_>,
) -> Result<Option<Vec<Hit>>, Error> {
    let verify = match allowed {
        Allowed::All => None,
        Allowed::Verify(verify) => Some(verify),
    };
    let mut conn = transaction::statements(pool).await?;
    let Some(loaded) = load(&mut conn, cache, index, query).await? else {
        conn.end();
        return Ok(None);
    };
    conn.served_by(loaded.backend);
    let outcome = look(&mut conn, loaded, limit, verify).await?;
    conn.end();
    if let Outcome::Found(hits) = outcome {
        return Ok(Some(hits));
    }
    let mut tx = transaction::begin_snapshot(pool).await?;
    let Some(loaded) = load(&mut tx, cache, index, query).await? else { return Ok(None) };
    let outcome = look(&mut tx, loaded, limit, verify).await?;
    tx.commit().await?;
    match outcome {
        Outcome::Found(hits) => Ok(Some(hits)),
        Outcome::Changed => Err(Error::Dangling(index.into())),
    }
}

async fn look(
    conn: &mut PgConnection,
    loaded: Loaded,
    limit: usize,
    mut verify: Option<&dyn Verify>,
) -> Result<Outcome, Error> {
    let Loaded { index, mut scoring, .. } = loaded;
    let most = scoring.lists.iter().map(|list| list.postings.count()).sum::<usize>();
    if limit == 0 || most == 0 {
        return Ok(Outcome::Found(vec![]));
    }
    scoring.prune = most > EXHAUSTIVE;
    scoring.k = match verify {
        Some(filter) if filter.share() >= NEARLY_ALL => enough(limit, filter.share()),
        Some(filter) => enough(limit, filter.share()).min(FIRST).max(limit.saturating_mul(2).saturating_add(16)),
        None => limit,
    };
    let mut verdicts: HashMap<i32, (DocumentId, bool)> = HashMap::new();
    let mut may_list = true;
    loop {
        if let Some(filter) = verify
            && may_list
            && verdicts.len() >= filter.listed_after()
        {
            may_list = false;
            if let Some(listed) = filter.list(&mut *conn, index).await? {
                scoring.allowed = Some(listed.iter().map(|one| one.docno.unsigned_abs()).collect::<Arc<[u32]>>());
                verdicts.extend(listed.into_iter().map(|one| (one.docno, (one.document_id, one.passes))));
                scoring.k = limit;
                verify = None;
            }
        }
        // This also limits what the scoring holds for a huge `limit`.
        scoring.k = scoring.k.min(most);
        let (back, scored) = score(scoring, most).await?;
        scoring = back;
        let whole = scored.len() < scoring.k || scoring.k >= most;
        let docnos: Vec<i32> = scored.iter().map(|&(doc, _)| doc as i32).collect();
        let unknown: Vec<i32> = docnos.iter().copied().filter(|docno| !verdicts.contains_key(docno)).collect();
        for docnos in unknown.chunks(VERIFY) {
            let resolved = match verify {
                Some(filter) => filter.resolve(&mut *conn, index, docnos).await?,
                None => rows::documents(&mut *conn, index, docnos).await?,
            };
            if resolved.len() < docnos.len() {
                return Ok(Outcome::Changed);
            }
            verdicts.extend(resolved.into_iter().map(|one| (one.docno, (one.document_id, one.passes))));
        }
        let mut hits: Vec<(Hit, bool)> = scored
            .iter()
            .filter_map(|&(doc, score)| {
                let (document_id, passes) = *verdicts.get(&(doc as i32))?;
                Some((Hit { document_id, score }, passes || verify.is_none()))
            })
            .collect();
        hits.sort_unstable_by(|(a, _), (b, _)| b.score.total_cmp(&a.score).then(a.document_id.cmp(&b.document_id)));
        if verify.is_some() && !whole {
            // Only the first k are in their final order: some documents that tie with the last of them may be missing.
            hits.truncate(scoring.k);
        }
        let seen = hits.len();
        let mut passing: Vec<Hit> = hits.into_iter().filter(|(_, passes)| *passes).map(|(hit, _)| hit).collect();
        if passing.len() >= limit || whole || verify.is_none() {
            passing.truncate(limit);
            return Ok(Outcome::Found(passing));
        }
        let share = passing.len().max(1) as f64 / seen.max(1) as f64;
        scoring.k = enough(limit, share).clamp(scoring.k.saturating_mul(2), scoring.k.saturating_mul(16));
    }
}

/// How many documents to fetch so that `limit` of them most likely pass, where this share does.
fn enough(limit: usize, share: f64) -> usize {
    (limit as f64 / share * 1.25) as usize + 16
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
async fn load(conn: &mut PgConnection, cache: &Cache, name: &str, query: Query<'_>) -> Result<Option<Loaded>, Error> {
    // Mostly the index is what it was; otherwise its own analyzer reads the query again.
    let (mut id, mut analyzer) = cache.index(name).unwrap_or_default();
    loop {
        let wanted = query_terms(analyzer, query).await?;
        let names: Vec<&str> = wanted.iter().map(|(name, _)| &**name).collect();
        let newest = cache.newest(id, names.iter().copied());
        let known: Vec<Known> = newest.iter().map(|((_, term_id, _, seal), _)| (*term_id, *seal)).collect();
        let Some(reading) = reading::read(&mut *conn, name, &names, &known, MAX_TERMS).await? else { return Ok(None) };
        let now = (reading.id.0, reading.totals.config.analyzer);
        if !now.1.is_current() {
            return Err(Error::OtherAnalyzer(name.to_owned()));
        }
        if now == (id, analyzer) {
            let (index, backend) = (reading.id, reading.backend);
            return Ok(Some(Loaded { index, backend, scoring: scoring(cache, reading, &wanted, newest)? }));
        }
        (id, analyzer) = now;
        cache.keep_index(name, id, analyzer);
    }
}

fn scoring(cache: &Cache, reading: Reading, wanted: &[Weighted], newest: Vec<Newest>) -> Result<Scoring, Error> {
    let Reading { id: index, totals, stats, parts, .. } = reading;
    let corrupt = |term| move |reason| Error::Corrupt { index, term, reason };
    let mut found: HashMap<i32, Found> = HashMap::with_capacity(stats.len());
    for part in parts {
        let found = found.entry(part.term_id).or_default();
        match part.postings {
            PartOf::Sealed(first, data) => found.sealed.push((first, data)),
            PartOf::Tail(data) => decode_row(&data, &mut found.tail).map_err(corrupt(part.term_id))?,
            PartOf::Dead(docs) => found.dead.extend(docs.into_iter().map(i32::unsigned_abs)),
        }
    }
    let mut newest: HashMap<SealedKey, Arc<Postings>> = newest.into_iter().collect();
    let average = totals.average_length();
    let curve = Curve::new(totals.config.parameters(), average);
    let mut lists = Vec::with_capacity(stats.len());
    let mut dead = vec![];
    for term in &stats {
        let found = found.remove(&term.term_id).unwrap_or_default();
        let df = i64::from(term.df) + found.tail.len() as i64 - found.dead.len() as i64;
        dead.extend(found.dead);
        let count = wanted.binary_search_by(|(name, _)| (**name).cmp(&term.term)).map_or(1.0, |at| wanted[at].1);
        let weight = idf(totals.docs as f64, df.max(0) as f64) * (totals.config.k1 + 1.0) * count;
        if term.df > 0 {
            let key = (index.0, term.term_id, term.generation, term.seal);
            let list = match newest.remove(&key) {
                Some(list) => list,
                None => {
                    let list = Arc::new(Postings::sealed(found.sealed).map_err(corrupt(term.term_id))?);
                    cache.keep(&term.term, key, &list);
                    list
                }
            };
            lists.push(List { postings: list, weight, bounds: bounds(&totals, term, average) });
        }
        if !found.tail.is_empty() {
            let postings = Arc::new(Postings::tail(found.tail, &curve));
            lists.push(List { postings, weight, bounds: Bounds::Times(1.0) });
        }
    }
    dead.sort_unstable();
    dead.dedup();
    Ok(Scoring { lists, curve, allowed: None, dead, k: 0, prune: true })
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

async fn score(scoring: Scoring, postings: usize) -> Result<(Scoring, Vec<(u32, f64)>), Error> {
    let run = move || {
        let scored = scoring.run();
        (scoring, scored)
    };
    if postings <= INLINE {
        return Ok(run());
    }
    tokio::task::spawn_blocking(run).await.map_err(|_| Error::Stopped)
}
