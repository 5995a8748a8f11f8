use super::Error;
use crate::store::{
    indexes::{self, Totals, postings as rows, terms, terms::TermStats},
    transaction::Transaction,
};
use sqlx::PgConnection;
use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{
    Analyzer, Bounds, Cache, Curve, List, MAX_TERMS, Posting, Postings, Scoring, SealedKey, decode_row, idf,
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
/// How many documents one call of a verifier gets.
const VERIFY: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    pub document_id: DocumentId,
    pub score: f64,
}

/// What a [`Verify`] answers later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = sqlx::Result<T>> + Send + 'a>>;

/// A filter of documents. It is asked on the search's own connection, in its snapshot.
pub trait Verify: Send + Sync {
    /// Those of the ids that may be returned, in any order.
    fn verify<'a>(&'a self, conn: &'a mut PgConnection, document_ids: &'a [DocumentId]) -> Answer<'a, Vec<DocumentId>>;

    /// All ids that may be returned if the filter is narrow, otherwise `None`.
    fn list<'a>(&'a self, conn: &'a mut PgConnection) -> Answer<'a, Option<Vec<DocumentId>>>;

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

/// The `limit` best documents of `index` for `query`, by descending score, then by ascending document. If more than
/// eight thousand documents tie at the limit, those indexed first are taken.
///
/// `tx` must come from [`begin_snapshot`](crate::store::transaction::begin_snapshot), because otherwise a compaction
/// between two statements could make the lists inconsistent.
pub async fn search(
    tx: &mut Transaction,
    cache: &Cache,
    index: IndexId,
    query: &str,
    limit: usize,
    allowed: Allowed<'_>,
) -> Result<Vec<Hit>, Error> {
    let conn: &mut PgConnection = tx;
    let totals = indexes::totals(&mut *conn, index).await?;
    if limit == 0 || totals.docs <= 0 {
        return Ok(vec![]);
    }
    let wanted = query_terms(&totals, query).await?;
    if wanted.is_empty() {
        return Ok(vec![]);
    }
    let mut verify = match allowed {
        Allowed::All => None,
        Allowed::Verify(verify) => Some(verify),
    };
    let mut scoring = load(&mut *conn, cache, index, &totals, &wanted).await?;
    let most = scoring.lists.iter().map(|list| list.postings.count()).sum::<usize>();
    scoring.prune = most > EXHAUSTIVE;
    scoring.k = match verify {
        Some(filter) => enough(limit, filter.share()).min(FIRST).max(limit.saturating_mul(2).saturating_add(16)),
        None => limit,
    };
    let mut verdicts: HashMap<DocumentId, bool> = HashMap::new();
    let mut may_list = true;
    loop {
        if let Some(filter) = verify
            && may_list
            && verdicts.len() >= filter.listed_after()
        {
            may_list = false;
            if let Some(ids) = filter.list(&mut *conn).await? {
                let docnos = rows::docnos(&mut *conn, index, &ids).await?;
                scoring.allowed = Some(docnos.into_iter().map(i32::unsigned_abs).collect::<Arc<[u32]>>());
                scoring.k = limit;
                verify = None;
            }
        }
        // This also limits what the scoring holds for a huge `limit`.
        scoring.k = scoring.k.min(most.max(1));
        let (back, scored) = score(scoring, most).await?;
        scoring = back;
        let whole = scored.len() < scoring.k || scoring.k >= most;
        let mut hits = resolve(&mut *conn, index, &scored).await?;
        let Some(filter) = verify else {
            hits.truncate(limit);
            return Ok(hits);
        };
        // Only the first k are in their final order: some documents that tie with the last of them may be missing.
        if !whole {
            hits.truncate(scoring.k);
        }
        let unknown: Vec<DocumentId> =
            hits.iter().map(|hit| hit.document_id).filter(|id| !verdicts.contains_key(id)).collect();
        for ids in unknown.chunks(VERIFY) {
            verdicts.extend(ids.iter().map(|&id| (id, false)));
            let passed = filter.verify(&mut *conn, ids).await?;
            verdicts.extend(passed.into_iter().map(|id| (id, true)));
        }
        let seen = hits.len();
        hits.retain(|hit| verdicts.get(&hit.document_id) == Some(&true));
        if hits.len() >= limit || whole {
            hits.truncate(limit);
            return Ok(hits);
        }
        let share = hits.len().max(1) as f64 / seen.max(1) as f64;
        scoring.k = enough(limit, share).clamp(scoring.k.saturating_mul(2), scoring.k.saturating_mul(16));
    }
}

/// How many documents to fetch so that `limit` of them most likely pass, where this share does.
fn enough(limit: usize, share: f64) -> usize {
    (limit as f64 / share * 1.25) as usize + 16
}

/// `(term, times in the query)`, by term.
async fn query_terms(totals: &Totals, query: &str) -> Result<Vec<(Box<str>, u32)>, Error> {
    let config = totals.config.analyzer;
    let bag = if query.len() > LONG_QUERY {
        let query = query.to_owned();
        let analysis = tokio::task::spawn_blocking(move || Analyzer::new(config).bag(&query));
        analysis.await.map_err(|_| Error::Stopped)?
    } else {
        Analyzer::new(config).bag(query)
    };
    let mut terms: Vec<(Box<str>, u32)> = bag.terms.into_iter().collect();
    if terms.len() > LOOKED_UP {
        terms.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        terms.truncate(LOOKED_UP);
    }
    terms.sort_unstable();
    Ok(terms)
}

/// Reads the postings of the query's terms in this snapshot.
async fn load(
    conn: &mut PgConnection,
    cache: &Cache,
    index: IndexId,
    totals: &Totals,
    wanted: &[(Box<str>, u32)],
) -> Result<Scoring, Error> {
    let names: Vec<&str> = wanted.iter().map(|(name, _)| &**name).collect();
    let mut stats = terms::stats(&mut *conn, index, &names).await?;
    if stats.len() > MAX_TERMS {
        // The rarest terms matter most.
        stats.sort_by(|a, b| a.df.cmp(&b.df).then_with(|| a.term.cmp(&b.term)));
        stats.truncate(MAX_TERMS);
        stats.sort_by(|a, b| a.term.cmp(&b.term));
    }
    let keys: Vec<SealedKey> = stats.iter().map(|term| (index.0, term.term_id, term.generation, term.seal)).collect();
    let mut sealed = cache.sealed(&keys);
    let ids: Vec<i32> = stats.iter().map(|term| term.term_id).collect();
    let uncached: Vec<i32> = std::iter::zip(&stats, &sealed)
        .filter(|(term, list)| term.df > 0 && list.is_none())
        .map(|(term, _)| term.term_id)
        .collect();
    let mut found: HashMap<i32, Found> = HashMap::with_capacity(ids.len());
    for part in rows::parts(&mut *conn, index, &ids, &uncached).await? {
        let found = found.entry(part.term_id).or_default();
        let data = part.data.unwrap_or_default();
        match part.kind {
            rows::SEALED => found.sealed.push((part.first_doc, data)),
            rows::TAIL => decode_row(&data, &mut found.tail).map_err(|reason| Error::Corrupt {
                index,
                term: part.term_id,
                reason,
            })?,
            _ => found.dead.extend(part.docs.unwrap_or_default().into_iter().map(i32::unsigned_abs)),
        }
    }
    let average = totals.average_length();
    let curve = Curve::new(totals.config.parameters(), average);
    let mut lists = Vec::with_capacity(stats.len());
    let mut dead = vec![];
    for (i, term) in stats.iter().enumerate() {
        let found = found.remove(&term.term_id).unwrap_or_default();
        let df = i64::from(term.df) + found.tail.len() as i64 - found.dead.len() as i64;
        dead.extend(found.dead);
        let count = wanted.binary_search_by(|(name, _)| (**name).cmp(&term.term)).map_or(1, |at| wanted[at].1);
        let weight = idf(totals.docs as f64, df.max(0) as f64) * (totals.config.k1 + 1.0) * f64::from(count);
        if term.df > 0 {
            let list = match sealed[i].take() {
                Some(list) => list,
                None => {
                    let list = Postings::sealed(found.sealed).map_err(|reason| Error::Corrupt {
                        index,
                        term: term.term_id,
                        reason,
                    })?;
                    let list = Arc::new(list);
                    cache.keep(keys[i], &list);
                    list
                }
            };
            lists.push(List { postings: list, weight, bounds: bounds(totals, term, average) });
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

/// Document numbers to documents, in the order of the answer.
async fn resolve(conn: &mut PgConnection, index: IndexId, scored: &[(u32, f64)]) -> Result<Vec<Hit>, Error> {
    if scored.is_empty() {
        return Ok(vec![]);
    }
    let docnos: Vec<i32> = scored.iter().map(|&(doc, _)| doc as i32).collect();
    let documents: HashMap<i32, DocumentId> = rows::documents(conn, index, &docnos).await?.into_iter().collect();
    let mut hits: Vec<Hit> = scored
        .iter()
        .filter_map(|&(doc, score)| Some(Hit { document_id: *documents.get(&(doc as i32))?, score }))
        .collect();
    hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.document_id.cmp(&b.document_id)));
    Ok(hits)
}
