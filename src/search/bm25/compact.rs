//! Compaction merges tails and tombstones into the sealed rows they belong to.
//!
//! Each bounded batch of rows has its own transaction, so that memory, locks and the work lost in a crash stay bounded.
//! Every batch leaves the index whole, because it replaces the rows it deletes in the same transaction. Only rows that
//! were read are deleted, by key; whatever is appended meanwhile, even with smaller document numbers, waits for the
//! next pass. The advisory lock belongs to the transaction, so that nothing can leave it behind.

use super::{Error, write::stored};
use crate::store::{
    indexes::{
        self, postings,
        postings::{Head, Keyed, PostingsRow},
        terms,
        terms::{Sealed, TermStats},
    },
    transaction,
};
use sqlx::{PgConnection, PgPool};
use std::collections::{HashMap, HashSet};
use svc_ids::IndexId;
use svc_ranking::{Curve, Posting, Totals, decode_row, encode_rows};

/// The most terms of one batch.
const TERMS: i64 = 8_192;
/// The most rows of tails, and of tombstones, of one batch.
const ROWS: i64 = 32_768;
/// The most postings in the tails of one batch; each takes 12 bytes once decoded.
const POSTINGS: i64 = 2 << 20;
/// How many sealed rows are inserted together; each is under 8 kB.
const PUT: usize = 2_048;
/// How many sealed rows are decoded together; each has about 2,000 postings.
const GROUP: usize = 256;
/// A sealed row with fewer postings is joined to a neighbour that is rewritten anyway.
const UNDERFULL: i32 = 512;
/// The number of postings in a full row.
const FULL: i32 = 2_048;
/// The most terms that one transaction of a purge looks at.
const LOOKED_AT: i64 = 16_384;
/// How much the average length may have grown before all bounds of a touched term are computed anew.
const DRIFT: f64 = 1.25;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Another compaction holds the lock and continues, so this one did nothing or not everything.
    pub busy: bool,
    pub batches: u32,
    pub sealed_postings: u64,
    pub purged_postings: u64,
}

/// Seals the tails of `index` and purges its tombstones, in one pass over the terms that have any. What is appended
/// behind the pass waits for the next one.
pub async fn compact(pool: &PgPool, index: IndexId) -> Result<Compaction, Error> {
    let mut done = Compaction::default();
    let mut after = i32::MIN;
    let mut rescored_at = None;
    loop {
        let mut tx = transaction::begin(pool).await?;
        if !postings::try_lock_compaction(&mut tx, index).await? {
            done.busy = true;
            return Ok(done);
        }
        let totals = indexes::totals(&mut tx, index).await?;
        let first_seen = *rescored_at.get_or_insert(totals.rescored_at);
        let mut pending = postings::pending_terms(&mut tx, index, after, TERMS).await?;
        if totals.rescored_at > 0 {
            // Lists sealed with other weights are rewritten too, because otherwise they would never be pruned again.
            pending.extend(terms::sealed_until(&mut tx, index, totals.rescored_at, after, TERMS).await?);
            pending.sort_unstable();
            pending.dedup();
            pending.truncate(TERMS as usize);
        }
        if pending.is_empty() {
            indexes::fold_totals(&mut tx, index).await?;
            if first_seen > 0 {
                indexes::all_rescored(&mut tx, index, first_seen).await?;
            }
            tx.commit().await?;
            return Ok(done);
        }
        after = Batch::read(&mut tx, index, totals, pending).await?.seal(&mut tx, &mut done).await?;
        indexes::set_generation(&mut tx, index, totals.generation + 1).await?;
        tx.commit().await?;
        done.batches += 1;
        tracing::debug!(index.id = index.0, batches = done.batches, "sealed a batch of postings");
    }
}

/// What a purge of terms did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgedTerms {
    /// Others wrote the index all the time, so this did not do everything.
    pub busy: bool,
    pub terms: u64,
}

/// Deletes the terms of `index` that no document has any more, once compactions have purged their postings, and those that were prepared before the last purge and never
/// written. Otherwise the words of deleted documents would stay, and a vocabulary of numbers and ids would grow for ever. A writer that remembers such a term gets
/// [`Error::StaleTerms`].
pub async fn purge_terms(pool: &PgPool, index: IndexId) -> Result<PurgedTerms, Error> {
    let mut done = PurgedTerms::default();
    let (mut seen, mut after) = (None, Some(i32::MIN));
    while let Some(from) = after {
        let mut tx = transaction::begin(pool).await?;
        let (unused, last) = terms::without_sealed(&mut tx, index, from, LOOKED_AT).await?;
        if !unused.is_empty() {
            if !indexes::try_hold_alone(&mut tx, index).await? {
                tx.rollback().await?;
                done.busy = true;
                return Ok(done);
            }
            done.terms += terms::delete_unused(&mut tx, index, &unused).await?;
        }
        tx.commit().await?;
        (seen, after) = (last.or(seen), last);
    }
    if let Some(last) = seen {
        terms::set_seen(&mut *pool.acquire().await?, index, last).await?;
    }
    Ok(done)
}

struct Batch {
    index: IndexId,
    totals: Totals,
    curve: Curve,
    /// The term after which the next batch starts.
    next: i32,
    terms: Vec<i32>,
    tails: Vec<Keyed<Vec<u8>>>,
    tombstones: Vec<Keyed<Vec<i32>>>,
}

/// A run of neighbouring sealed rows of one term, and what is added to and removed from it.
struct Job {
    term: i32,
    rows: Vec<i32>,
    add: Vec<Posting>,
    dead: Vec<u32>,
}

/// The outcome for one term.
struct Outcome {
    df: i64,
    avgdl_built: f32,
    dead: HashSet<u32>,
}

impl Batch {
    async fn read(
        conn: &mut PgConnection,
        index: IndexId,
        totals: Totals,
        mut pending: Vec<i32>,
    ) -> Result<Self, Error> {
        // Tombstones are read first: a reader that sees one also sees, in the later statement, the posting that it is
        // for.
        let mut tombstones = postings::tombstones(&mut *conn, index, &pending, ROWS).await?;
        let mut heads = postings::tail_heads(&mut *conn, index, &pending, ROWS).await?;
        let mut next = pending.last().copied().unwrap_or(i32::MAX);
        let mut total = 0;
        let running = heads.iter().map(|head| (total += i64::from(head.n), total).1);
        // There is at least one row, because a batch could otherwise be empty for ever.
        let within = running.take_while(|&total| total <= POSTINGS).count().max(1).min(heads.len());
        let over = within < heads.len() || heads.len() as i64 == ROWS;
        heads.truncate(within);
        let cut = [
            tombstones.last().filter(|_| tombstones.len() as i64 == ROWS).map(|row| row.0),
            heads.last().filter(|_| over).map(|head| head.term_id),
        ];
        for last in cut.into_iter().flatten() {
            // The term at which the limit was reached comes again in the next batch, with the rest of it.
            next = next.min(last.saturating_sub(1));
            pending.retain(|&term| term <= last);
            tombstones.retain(|row| row.0 <= last);
            heads.retain(|head| head.term_id <= last);
        }
        let (ids, firsts): (Vec<i32>, Vec<i32>) = heads.iter().map(|head| (head.term_id, head.first_doc)).unzip();
        let tails = postings::take_rows(&mut *conn, index, false, &ids, &firsts).await?;
        let curve = Curve::new(totals.config.parameters(), totals.average_length());
        Ok(Self { index, totals, curve, next, terms: pending, tails, tombstones })
    }

    async fn seal(self, conn: &mut PgConnection, done: &mut Compaction) -> Result<i32, Error> {
        let index = self.index;
        let (ids, firsts) = keys(&self.tombstones);
        postings::delete_tombstones(&mut *conn, index, &ids, &firsts).await?;

        let stats = terms::stats_by_id(&mut *conn, index, &self.terms).await?;
        let heads = postings::heads(&mut *conn, index, &self.terms).await?;
        let mut outcomes: HashMap<i32, Outcome> = HashMap::with_capacity(stats.len());
        let mut jobs: Vec<Job> = vec![];
        let mut new: Vec<PostingsRow> = vec![];
        let mut rows = 0;
        for term in &stats {
            let (outcome, planned) = self.plan(term, of(&heads, term.term_id, |head| head.term_id), done)?;
            outcomes.insert(term.term_id, outcome);
            for job in planned {
                rows += job.rows.len();
                jobs.push(job);
                if rows >= GROUP {
                    self.rewrite(&mut *conn, std::mem::take(&mut jobs), &mut outcomes, &mut new, done).await?;
                    rows = 0;
                }
                if new.len() >= PUT {
                    postings::insert_postings(&mut *conn, index, &std::mem::take(&mut new)).await?;
                }
            }
        }
        self.rewrite(&mut *conn, jobs, &mut outcomes, &mut new, done).await?;
        postings::insert_postings(&mut *conn, index, &new).await?;

        // A tombstone must wait if its posting is in a tail beyond this batch's limit.
        let waiting: Vec<Keyed<Vec<i32>>> = self
            .tombstones
            .iter()
            .filter_map(|(term, _, docs)| {
                let unmet = &outcomes.get(term)?.dead;
                let docs: Vec<i32> = docs.iter().copied().filter(|doc| unmet.contains(&doc.unsigned_abs())).collect();
                Some((*term, *docs.first()?, docs))
            })
            .filter(|(term, ..)| *term > self.next)
            .collect();
        postings::insert_tombstones(&mut *conn, index, &waiting).await?;

        let mut sealed: Vec<Sealed> = outcomes
            .iter()
            .map(|(&term_id, outcome)| Sealed {
                term_id,
                df: outcome.df.clamp(0, i64::from(i32::MAX)) as i32,
                avgdl_built: outcome.avgdl_built,
            })
            .collect();
        sealed.sort_unstable_by_key(|term| term.term_id);
        terms::set_sealed(conn, index, self.totals.generation + 1, &sealed).await?;
        Ok(self.next)
    }

    /// Decides which sealed rows of a term are rewritten, and splits its tails and tombstones among them.
    fn plan(&self, term: &TermStats, heads: &[Head], done: &mut Compaction) -> Result<(Outcome, Vec<Job>), Error> {
        let id = term.term_id;
        let mut dead: HashSet<u32> = of(&self.tombstones, id, |row| row.0)
            .iter()
            .flat_map(|row| row.2.iter().map(|doc| doc.unsigned_abs()))
            .collect();
        let mut add = vec![];
        for (_, _, data) in of(&self.tails, id, |row| row.0) {
            decode_row(data, &mut add).map_err(|reason| Error::Corrupt { index: self.index, term: id, reason })?;
        }
        done.sealed_postings += add.len() as u64;
        let before = add.len();
        add.retain(|posting| !dead.remove(&posting.doc));
        done.purged_postings += (before - add.len()) as u64;
        add.sort_unstable_by_key(|posting| posting.doc);
        let mut gone: Vec<u32> = dead.iter().copied().collect();
        gone.sort_unstable();

        let average = self.totals.average_length();
        let built = f64::from(term.avgdl_built);
        let stale = term.generation <= self.totals.rescored_at || built <= 0.0 || average > built * DRIFT;
        let touched = touch(heads, &add, &gone, stale);
        let rewritten = touched.iter().all(|&touched| touched);
        // As f32 it may round up, and a bound computed for a smaller average must not be taken for one computed for a
        // larger.
        let now = (average as f32).next_down().max(0.0);
        let avgdl_built = if rewritten { now } else { term.avgdl_built.min(now) };
        let outcome = Outcome { df: i64::from(term.df) + add.len() as i64, avgdl_built, dead };
        Ok((outcome, split(id, heads, &touched, add, gone)))
    }

    /// Removes the rows of `jobs` and merges them into `new` rows.
    async fn rewrite(
        &self,
        conn: &mut PgConnection,
        jobs: Vec<Job>,
        outcomes: &mut HashMap<i32, Outcome>,
        new: &mut Vec<PostingsRow>,
        done: &mut Compaction,
    ) -> Result<(), Error> {
        let (ids, firsts): (Vec<i32>, Vec<i32>) =
            jobs.iter().flat_map(|job| job.rows.iter().map(|&first| (job.term, first))).unzip();
        let mut old: HashMap<(i32, i32), Vec<u8>> = HashMap::with_capacity(ids.len());
        if !ids.is_empty() {
            let rows = postings::take_rows(&mut *conn, self.index, true, &ids, &firsts).await?;
            old.extend(rows.into_iter().map(|(term, first, data)| ((term, first), data)));
        }
        for mut job in jobs {
            let mut list = vec![];
            for first in job.rows {
                let data = old.remove(&(job.term, first)).unwrap_or_default();
                decode_row(&data, &mut list).map_err(|reason| Error::Corrupt {
                    index: self.index,
                    term: job.term,
                    reason,
                })?;
            }
            if let Some(outcome) = outcomes.get_mut(&job.term) {
                let before = list.len();
                list.retain(|posting| {
                    job.dead.binary_search(&posting.doc).is_err() || !outcome.dead.remove(&posting.doc)
                });
                outcome.df -= (before - list.len()) as i64;
                done.purged_postings += (before - list.len()) as u64;
            }
            list.append(&mut job.add);
            // There are two ascending runs, which the stable sort merges in one pass.
            list.sort_by_key(|posting| posting.doc);
            new.extend(stored(job.term, true, encode_rows(&list, &self.curve, usize::MAX)));
        }
        Ok(())
    }
}

fn keys<T>(rows: &[Keyed<T>]) -> (Vec<i32>, Vec<i32>) {
    rows.iter().map(|row| (row.0, row.1)).unzip()
}

/// The part of `rows`, which are sorted by term, that belongs to `term`.
fn of<T>(rows: &[T], term: i32, key: impl Fn(&T) -> i32) -> &[T] {
    let start = rows.partition_point(|row| key(row) < term);
    let len = rows[start..].partition_point(|row| key(row) == term);
    &rows[start..start + len]
}

/// The row that `doc` is in or would go into.
fn home(heads: &[Head], doc: u32) -> usize {
    heads.partition_point(|head| head.first_doc.unsigned_abs() <= doc).saturating_sub(1)
}

fn touch(heads: &[Head], add: &[Posting], dead: &[u32], all: bool) -> Vec<bool> {
    let mut touched = vec![all; heads.len()];
    let Some(last) = heads.last() else { return touched };
    for doc in add.iter().map(|posting| posting.doc) {
        // After a full last row a new one begins.
        if doc < last.last_doc.unsigned_abs() || last.n < FULL {
            touched[home(heads, doc)] = true;
        }
    }
    for &doc in dead {
        touched[home(heads, doc)] = true;
    }
    let direct = touched.clone();
    for (i, head) in heads.iter().enumerate() {
        let beside = (i > 0 && direct[i - 1]) || direct.get(i + 1) == Some(&true);
        touched[i] |= beside && head.n < UNDERFULL;
    }
    touched
}

fn split(term: i32, heads: &[Head], touched: &[bool], add: Vec<Posting>, dead: Vec<u32>) -> Vec<Job> {
    let mut jobs = vec![];
    let (mut add, mut dead) = (add.as_slice(), dead.as_slice());
    let mut at = 0;
    while at < heads.len() {
        if !touched[at] {
            at += 1;
            continue;
        }
        let mut end = at + 1;
        while end < heads.len() && touched[end] && end - at < GROUP {
            end += 1;
        }
        // The range extends to the next row, or behind the last row to the end if that row takes more.
        let high = heads.get(end).map_or(u32::MAX, |head| head.first_doc.unsigned_abs());
        let (mine, rest) = add.split_at(add.partition_point(|posting| posting.doc < high));
        let (gone, later) = dead.split_at(dead.partition_point(|&doc| doc < high));
        (add, dead) = (rest, later);
        let rows = heads[at..end].iter().map(|head| head.first_doc).collect();
        jobs.push(Job { term, rows, add: mine.to_vec(), dead: gone.to_vec() });
        at = end;
    }
    if !add.is_empty() {
        jobs.push(Job { term, rows: vec![], add: add.to_vec(), dead: vec![] });
    }
    jobs
}
