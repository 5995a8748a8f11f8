//! Writes postings as a compaction leaves them, without the tails that appending makes. For a million texts this takes some minutes.
use crate::figure::BoxError;
use sqlx::PgPool;
use std::collections::HashMap;
use svc::store::{
    indexes::{
        self,
        postings::{self, Entry, PostingsRow},
        terms::{self, Sealed},
    },
    transaction,
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{Curve, Posting, encode_rows};

/// How many terms, and how many entries, one statement takes.
const TERMS: usize = 10_000;
const ENTRIES: usize = 10_000;
/// How many rows of postings one statement takes; each has at most 8 kB.
const ROWS: usize = 16_384;

/// A text as its index has it.
pub struct Counted {
    pub id: DocumentId,
    pub length: u32,
    /// Each of its terms, by the place of its name, with how often it occurs.
    pub terms: Vec<(u32, u32)>,
}

/// Adds texts to an index that has none of them yet.
pub async fn append(pool: &PgPool, index: IndexId, names: &[&str], texts: &[Counted]) -> Result<(), BoxError> {
    let mut conn = pool.acquire().await?;
    let before = indexes::totals(&mut conn, index).await?;
    let mut ids = Vec::with_capacity(names.len());
    for names in names.chunks(TERMS) {
        terms::insert(&mut conn, index, names).await?;
        let known: HashMap<String, i32> = terms::ids(&mut conn, index, names).await?.into_iter().collect();
        for name in names {
            ids.push(*known.get(*name).ok_or_else(|| format!("the term `{name}` was not stored"))?);
        }
    }
    let docnos = postings::next_docnos(&mut conn, index, texts.len()).await?;
    drop(conn);

    let mut lists: Vec<Vec<Posting>> = vec![Vec::new(); names.len()];
    for (text, &docno) in texts.iter().zip(&docnos) {
        let doc = docno.unsigned_abs();
        for &(place, tf) in &text.terms {
            lists[place as usize].push(Posting { doc, tf, length: text.length });
        }
    }
    let tokens: i64 = texts.iter().map(|text| i64::from(text.length)).sum();
    let average = (before.tokens + tokens) as f64 / (before.docs as f64 + texts.len() as f64).max(1.0);
    let curve = Curve::new(before.config.parameters(), average);

    let mut tx = transaction::begin(pool).await?;
    postings::lock_compaction(&mut tx, index).await?;
    for (texts, docnos) in texts.chunks(ENTRIES).zip(docnos.chunks(ENTRIES)) {
        let entry = |(text, &docno): (&Counted, &i32)| {
            let mut terms: Vec<(i32, u32)> = text.terms.iter().map(|&(place, tf)| (ids[place as usize], tf)).collect();
            terms.sort_unstable();
            Entry {
                docno,
                document_id: text.id,
                length: text.length as i32,
                tfs: terms.iter().map(|&(_, tf)| tf as i16).collect(),
                terms: terms.into_iter().map(|(term, _)| term).collect(),
            }
        };
        let entries: Vec<Entry> = texts.iter().zip(docnos).map(entry).collect();
        postings::insert_entries(&mut tx, index, &entries).await?;
    }
    let mut rows = Vec::new();
    for (list, &term_id) in lists.iter().zip(&ids) {
        rows.extend(encode_rows(list, &curve, usize::MAX).into_iter().map(|row| PostingsRow {
            term_id,
            first_doc: row.first as i32,
            last_doc: row.last as i32,
            n: row.n as i32,
            ub: row.ub,
            sealed: true,
            data: row.data,
        }));
        if rows.len() >= ROWS {
            postings::insert_postings(&mut tx, index, &std::mem::take(&mut rows)).await?;
        }
    }
    postings::insert_postings(&mut tx, index, &rows).await?;
    // The bounds hold for the smaller of two averages.
    let now = (average as f32).next_down().max(0.0);
    let places: Vec<(i32, usize)> = ids.iter().copied().zip(lists.iter().map(Vec::len)).collect();
    for places in places.chunks(TERMS) {
        let of: Vec<i32> = places.iter().map(|&(term_id, _)| term_id).collect();
        let stats = terms::stats_by_id(&mut tx, index, &of).await?;
        let sealed = |&(term_id, added): &(i32, usize)| {
            let known = stats.binary_search_by_key(&term_id, |term| term.term_id).ok();
            let before = known.map(|at| &stats[at]).filter(|term| term.df > 0);
            Sealed {
                term_id,
                df: before.map_or(0, |term| term.df) + added as i32,
                avgdl_built: before.map_or(now, |term| term.avgdl_built.min(now)),
            }
        };
        let sealed: Vec<Sealed> = places.iter().map(sealed).collect();
        terms::set_sealed(&mut tx, index, before.generation + 1, &sealed).await?;
    }
    postings::insert_delta(&mut tx, index, i32::try_from(texts.len())?, tokens).await?;
    indexes::fold_totals(&mut tx, index).await?;
    indexes::set_generation(&mut tx, index, before.generation + 1).await?;
    Ok(tx.commit().await?)
}
