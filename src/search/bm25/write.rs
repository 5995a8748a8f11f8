use super::Error;
use crate::{
    search::{has_title, titles},
    store::{
        away::{LOCK_NOT_AVAILABLE, QUERY_CANCELED, sql_state},
        indexes::{
            self, IndexError, postings,
            postings::{Entry, PostingsRow},
            terms,
        },
        nodes::TextRow,
    },
};
use sqlx::{PgConnection, PgPool};
use std::collections::{HashMap, HashSet};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{Analyzer, Bag, Cache, Config, Curve, Posting, Row, encode_rows};

/// Tails are short, so that compaction needs bounded memory for a bounded number of them.
const TAIL_BLOCKS: usize = 4;
/// How many terms one statement interns.
const INTERN: usize = 10_000;

/// What is indexed of a document.
#[derive(Clone, Debug)]
pub struct Text {
    pub document_id: DocumentId,
    /// The titles above a chunk, a line each, for an index that has these too.
    pub above: String,
    /// The title, if the document is found by it.
    pub title: String,
    pub text: String,
}

impl Text {
    /// What is indexed of a node under these titles.
    pub fn new(document_id: DocumentId, usetype: &str, title: &str, content: &str, above: &[String]) -> Text {
        let is_told = has_title(usetype) && (!content.trim().is_empty() || titles::is_telling(usetype, title));
        Text {
            document_id,
            above: titles::telling(above).join("\n"),
            title: if is_told { title.to_owned() } else { String::new() },
            text: content.to_owned(),
        }
    }

    /// What is indexed of a stored node.
    pub fn of(row: &TextRow) -> Text {
        Text::new(row.id, &row.usetype, &row.title, &row.content, &row.titles)
    }

    /// Whether it says nothing by itself.
    pub fn is_blank(&self) -> bool {
        self.title.trim().is_empty() && self.text.trim().is_empty()
    }

    fn bag(&self, analyzer: &Analyzer, config: &Config) -> Bag {
        let above = if config.title_paths && !self.is_blank() { self.above.as_str() } else { "" };
        let titles: Vec<&str> = [above, self.title.as_str()].into_iter().filter(|title| !title.is_empty()).collect();
        let titles = titles.join("\n");
        match titles.is_empty() {
            true => analyzer.bag(&self.text),
            false => analyzer.weighted_bag(&format!("{titles}\n{}", self.text), titles.len(), config.title_weight),
        }
    }
}

/// Documents that are ready to be appended to one index.
#[derive(Debug)]
pub struct Prepared {
    index: IndexId,
    config: Config,
    documents: Vec<Document>,
    /// Documents that say nothing, and are in no index.
    blank: Vec<DocumentId>,
    /// Every term of the documents, by name.
    terms: Vec<(Box<str>, i32)>,
    curve: Curve,
}

#[derive(Debug)]
struct Document {
    id: DocumentId,
    length: u32,
    /// `(term, tf)`, ascending by term.
    terms: Vec<(i32, u32)>,
}

impl Prepared {
    /// Leaves out every document that is not among these.
    pub fn keep(&mut self, ids: &HashSet<DocumentId>) {
        self.documents.retain(|document| ids.contains(&document.id));
        self.blank.retain(|id| ids.contains(id));
    }

    fn document_ids(&self) -> Vec<DocumentId> {
        self.documents.iter().map(|document| document.id).chain(self.blank.iter().copied()).collect()
    }
}

/// Analyses texts on a blocking thread and interns their terms in separate statements, before and outside the
/// transaction that will [`append`] them. So no writer waits for another's new terms longer than such a statement
/// takes. A term interned for a batch that is never appended stays, with df 0, until a purge. Memory grows with the texts: pass some
/// hundreds at a time.
pub async fn prepare(pool: &PgPool, cache: &Cache, index: IndexId, texts: Vec<Text>) -> Result<Prepared, Error> {
    let (blank, texts): (Vec<Text>, Vec<Text>) = texts.into_iter().partition(Text::is_blank);
    let mut conn = pool.acquire().await?;
    let config = indexes::totals(&mut conn, index).await?.config;
    if !config.analyzer.is_current() {
        return Err(Error::OtherAnalyzer(index.to_string()));
    }
    // The connection is not kept during the analysis, because connections are few.
    drop(conn);
    let bags = tokio::task::spawn_blocking(move || {
        let analyzer = Analyzer::new(config.analyzer);
        texts.into_iter().map(|text| (text.document_id, text.bag(&analyzer, &config))).collect()
    })
    .await
    .map_err(|_| Error::Stopped)?;
    let blank = blank.iter().map(|text| text.document_id).collect();
    Ok(Prepared { blank, ..intern(pool, cache, index, config, bags).await? })
}

/// The second half of [`prepare`], for a caller that has analysed `(document, bag)` itself.
pub async fn intern(
    pool: &PgPool,
    cache: &Cache,
    index: IndexId,
    config: Config,
    bags: Vec<(DocumentId, Bag)>,
) -> Result<Prepared, Error> {
    let mut names: Vec<&Box<str>> = bags.iter().flat_map(|(_, bag)| bag.terms.keys()).collect();
    // They are sorted, so that two writers insert their new terms in the same order and cannot deadlock.
    names.sort_unstable();
    names.dedup();
    let mut conn = pool.acquire().await?;
    let totals = indexes::totals(&mut conn, index).await?;
    let mut ids = HashMap::with_capacity(names.len());
    for chunk in names.chunks(INTERN) {
        let chunk: Vec<Box<str>> = chunk.iter().map(|&name| name.clone()).collect();
        let known = cache.term_ids(index.0, &chunk);
        let mut unknown = vec![];
        for (name, id) in chunk.iter().zip(known) {
            match id {
                Some(id) => {
                    ids.insert(name.clone(), id);
                }
                None => unknown.push(&**name),
            }
        }
        let mut found: Vec<(Box<str>, i32)> = vec![];
        // The terms are read first, because an insert that conflicts uses up a number of the sequence. They are read
        // again last, because another writer may have inserted the same term in between; its statement has ended by
        // then.
        for step in 0..3 {
            if unknown.is_empty() {
                break;
            }
            let rows = match step {
                1 => terms::insert(&mut conn, index, &unknown).await?,
                _ => terms::ids(&mut conn, index, &unknown).await?,
            };
            let rows: HashMap<String, i32> = rows.into_iter().collect();
            unknown.retain(|name| match rows.get(*name) {
                Some(&id) => {
                    found.push(((*name).into(), id));
                    false
                }
                None => true,
            });
        }
        if !unknown.is_empty() {
            return Err(IndexError::Unknown(index).into());
        }
        ids.extend(found.iter().cloned());
        cache.keep_term_ids(index.0, found);
    }
    let curve = Curve::new(totals.config.parameters(), totals.average_length());
    let documents = bags
        .into_iter()
        .map(|(id, bag)| {
            let mut terms: Vec<(i32, u32)> =
                bag.terms.iter().filter_map(|(name, &tf)| Some((*ids.get(name)?, tf))).collect();
            terms.sort_unstable();
            Document { id, length: bag.length.min(i32::MAX as u32), terms }
        })
        .collect();
    let mut terms: Vec<(Box<str>, i32)> = ids.into_iter().collect();
    terms.sort_unstable();
    Ok(Prepared { index, config, documents, blank: Vec::new(), terms, curve })
}

/// Adds prepared documents to their index; searches see them once the transaction `tx` commits. None of them may be in
/// the index; see [`replace`]. After [`Error::StaleTerms`], forget the cache's ids and prepare the documents anew.
pub async fn append(tx: &mut PgConnection, prepared: &Prepared) -> Result<(), Error> {
    if prepared.documents.is_empty() {
        return Ok(());
    }
    hold(&mut *tx, prepared).await?;
    append_held(tx, prepared).await
}

/// Keeps the index from being deleted and emptied until the transaction ends.
async fn hold(tx: &mut PgConnection, prepared: &Prepared) -> Result<(), Error> {
    let index = prepared.index;
    let held = indexes::hold(tx, index).await.map_err(|error| {
        let waited = [QUERY_CANCELED, LOCK_NOT_AVAILABLE].contains(&sql_state(&error).as_ref());
        if waited { Error::Emptied(index) } else { Error::Database(error) }
    })?;
    let present = held.ok_or(IndexError::Unknown(index))?;
    // Since the texts were read, the index may have been emptied for another analyzer, or titles may have come to count otherwise.
    if present.same_postings(&prepared.config) { Ok(()) } else { Err(Error::StaleTerms(index)) }
}

async fn append_held(tx: &mut PgConnection, prepared: &Prepared) -> Result<(), Error> {
    let Prepared { index, config: _, documents, blank: _, terms: named, curve } = prepared;
    let index = *index;
    if documents.is_empty() {
        return Ok(());
    }
    // Since the terms were looked up, the server may have become another one, or an earlier state of the same one.
    let (names, ids): (Vec<&str>, Vec<i32>) = named.iter().map(|(name, id)| (&**name, *id)).unzip();
    if !terms::agree(&mut *tx, index, &names, &ids).await? {
        return Err(Error::StaleTerms(index));
    }
    let docnos = postings::next_docnos(&mut *tx, index, documents.len()).await.map_err(|error| {
        if sql_state(&error) == postings::NO_NUMBERS { Error::Full(index) } else { Error::Database(error) }
    })?;
    let mut flat: Vec<(i32, Posting)> = Vec::with_capacity(documents.iter().map(|document| document.terms.len()).sum());
    let mut entries = Vec::with_capacity(documents.len());
    for (document, &docno) in documents.iter().zip(&docnos) {
        // The sequence starts at 1 and ends where i32 does.
        let doc = docno.unsigned_abs();
        flat.extend(document.terms.iter().map(|&(term, tf)| (term, Posting { doc, tf, length: document.length })));
        entries.push(Entry {
            docno,
            document_id: document.id,
            length: document.length as i32,
            terms: document.terms.iter().map(|&(term, _)| term).collect(),
            tfs: document.terms.iter().map(|&(_, tf)| tf as i16).collect(),
        });
    }
    postings::insert_entries(&mut *tx, index, &entries).await.map_err(|error| match error.as_database_error() {
        Some(cause) if cause.constraint() == Some("search_index_entries_document") => Error::AlreadyIndexed(index),
        _ => Error::Database(error),
    })?;
    flat.sort_unstable_by_key(|&(term, posting)| (term, posting.doc));
    let mut rows = vec![];
    for run in flat.chunk_by(|a, b| a.0 == b.0) {
        let list: Vec<Posting> = run.iter().map(|&(_, posting)| posting).collect();
        rows.extend(stored(run[0].0, false, encode_rows(&list, curve, TAIL_BLOCKS)));
    }
    postings::insert_postings(&mut *tx, index, &rows).await?;
    let tokens = documents.iter().map(|document| i64::from(document.length)).sum();
    postings::insert_delta(tx, index, documents.len() as i32, tokens).await?;
    Ok(())
}

/// Removes those of the documents that are in `index`, or in any index if that is `None`. No search that starts after
/// the transaction finds or counts them. Returns the number of removed entries.
pub async fn remove(tx: &mut PgConnection, index: Option<IndexId>, document_ids: &[DocumentId]) -> Result<i64, Error> {
    Ok(postings::bury(tx, index, document_ids).await?)
}

/// Indexes changed documents anew: [`remove`] from this index, then [`append`].
pub async fn replace(tx: &mut PgConnection, prepared: &Prepared) -> Result<(), Error> {
    let documents = prepared.document_ids();
    if documents.is_empty() {
        return Ok(());
    }
    // The index is held before anything is removed: whoever empties it has locked it and waits for these entries, so the other order would deadlock.
    hold(&mut *tx, prepared).await?;
    remove(&mut *tx, Some(prepared.index), &documents).await?;
    append_held(tx, prepared).await
}

pub(super) fn stored(term_id: i32, sealed: bool, rows: Vec<Row>) -> impl Iterator<Item = PostingsRow> {
    rows.into_iter().map(move |row| PostingsRow {
        term_id,
        // Document numbers come from an integer column.
        first_doc: row.first as i32,
        last_doc: row.last as i32,
        n: row.n as i32,
        ub: row.ub,
        sealed,
        data: row.data,
    })
}
