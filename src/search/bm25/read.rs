use super::{
    Error,
    load::{Loaded, Scored, load},
};
use crate::store::{
    indexes::postings::{self as rows, Resolved},
    search::Eligible,
    transaction,
};
use sqlx::{PgConnection, PgPool};
use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{Cache, Scoring, Weighted};

/// Up to this many postings, adding up everything is faster than using bounds.
const EXHAUSTIVE: usize = 64 << 10;
/// Up to this many postings, scoring takes a fraction of a millisecond. It stays on the async thread, because the search would wait until another one wakes up.
const INLINE: usize = 128 << 10;
/// The most documents that are verified before it is known what share of them passes.
pub(super) const FIRST: usize = 2_000;
/// Where such a share of the documents passes, hardly more than the results are verified.
const NEARLY_ALL: f64 = 0.9;
/// How many documents one call of a verifier gets.
pub(super) const VERIFY: usize = 10_000;

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

    /// The same filter for the statement that reads the postings, which verifies the documents that the search foresees; `None` if that
    /// statement cannot have it, or would have to be planned for it anew each time.
    fn eligible(&self) -> Option<&Eligible> {
        None
    }

    /// Is told how many more documents were verified.
    fn verified(&self, _documents: usize) {}

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

/// What one look at the index came to.
enum Outcome {
    Found(Vec<Hit>),
    /// A document has another number than when the postings were read: it has been indexed anew, or is gone.
    Changed,
}

/// The `limit` best documents of the index of this name for `query`, by descending score, then by ascending document; `None` if there is
/// no such index. If more than eight thousand documents tie at the limit, those indexed first are taken.
///
/// Where nothing was written since the index was last read, it mostly takes one statement: the search scores the postings that it remembers, and
/// the statement tells whether the index still has the same contents, and verifies the best documents. Otherwise it mostly takes two: one reads the postings, and one
/// verifies; the first search after a write may take three. If a document was indexed anew between them, all is read again as of one moment.
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
    let Some(loaded) = load(&mut conn, cache, index, query, limit, verify).await? else {
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
    let Some(loaded) = load(&mut tx, cache, index, query, limit, verify).await? else { return Ok(None) };
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
    let Loaded { index, mut scoring, mut foreseen, .. } = loaded;
    let most = set_out(&mut scoring, limit, verify);
    if limit == 0 || most == 0 {
        return Ok(Outcome::Found(vec![]));
    }
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
        scoring.k = scoring.k.min(most);
        let scored = match foreseen.take() {
            Some((scored, resolved)) => {
                told(verify, resolved.len());
                verdicts.extend(resolved.into_iter().map(|one| (one.docno, (one.document_id, one.passes))));
                scored
            }
            None => {
                let (back, scored) = score(scoring, most).await?;
                scoring = back;
                scored
            }
        };
        let whole = scored.len() < scoring.k || scoring.k >= most;
        let docnos: Vec<i32> = scored.iter().map(|&(doc, _)| doc as i32).collect();
        let unknown: Vec<i32> = docnos.iter().copied().filter(|docno| !verdicts.contains_key(docno)).collect();
        for docnos in unknown.chunks(VERIFY) {
            told(verify, docnos.len());
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

/// Decides how many documents are scored first, and whether bounds are used. Returns how many postings there are.
pub(super) fn set_out(scoring: &mut Scoring, limit: usize, verify: Option<&dyn Verify>) -> usize {
    let most = scoring.lists.iter().map(|list| list.postings.count()).sum::<usize>();
    scoring.prune = most > EXHAUSTIVE;
    scoring.k = match verify {
        Some(filter) if filter.share() >= NEARLY_ALL => enough(limit, filter.share()),
        Some(filter) => enough(limit, filter.share()).min(FIRST).max(limit.saturating_mul(2).saturating_add(16)),
        None => limit,
    };
    // This also limits what the scoring holds for a huge `limit`.
    scoring.k = scoring.k.min(most);
    most
}

fn told(verify: Option<&dyn Verify>, documents: usize) {
    if let Some(filter) = verify {
        filter.verified(documents);
    }
}

/// How many documents to fetch so that `limit` of them most likely pass, where this share does.
fn enough(limit: usize, share: f64) -> usize {
    (limit as f64 / share * 1.25) as usize + 16
}

pub(super) async fn score(scoring: Scoring, postings: usize) -> Result<(Scoring, Scored), Error> {
    let run = move || {
        let scored = scoring.run();
        (scoring, scored)
    };
    if postings <= INLINE {
        return Ok(run());
    }
    tokio::task::spawn_blocking(run).await.map_err(|_| Error::Stopped)
}
