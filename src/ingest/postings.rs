//! What documents bring into the BM25 indexes that cover them. The terms are interned outside of the transaction that writes the postings, so the
//! postings are made before it. Whoever writes them has locked the documents, and so sees every index that was built without them.
use crate::{
    core::Core,
    search::bm25::{self, Error, Prepared, Text},
    store::{
        self,
        indexes::{self, Taken},
        nodes::TextRow,
    },
    usetype::Usetype,
};
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashMap, HashSet};
use svc_ids::{DocumentId, IndexId};

/// No more texts are read at once after this many bytes, because they are all held, some of them twice.
const BYTES: i64 = 16 << 20;
/// How many documents are read at once.
const DOCUMENTS: usize = 500;

/// Postings of documents.
pub struct Postings {
    /// The indexes that covered the documents.
    covering: Vec<(IndexId, DocumentId)>,
    /// The documents that tell which indexes these are.
    by: Vec<DocumentId>,
    /// What the documents are that will be under these; `None` if these are the documents.
    new: Option<Usetype>,
    prepared: Vec<Prepared>,
}

impl Postings {
    /// Makes the postings of texts that were read.
    pub async fn prepare(core: &Core, rows: &[TextRow]) -> Result<Postings, Error> {
        let by: Vec<DocumentId> = rows.iter().map(|row| row.id).collect();
        let covering = covering(&mut *core.pool.acquire().await?, &by, None).await?;
        let by_id: HashMap<DocumentId, &TextRow> = rows.iter().map(|row| (row.id, row)).collect();
        let mut texts: BTreeMap<IndexId, Vec<Text>> = BTreeMap::new();
        for (index, id) in &covering {
            if let Some(row) = by_id.get(id) {
                texts.entry(*index).or_default().push(Text::of(row));
            }
        }
        Postings { covering, by, new: None, prepared: Vec::new() }.with(core, texts).await
    }

    /// Makes the postings of documents of a usetype that will be under another one.
    pub async fn of_new(
        core: &Core,
        under: DocumentId,
        usetype: Usetype,
        texts: impl Fn() -> Vec<Vec<Text>>,
    ) -> Result<Postings, Error> {
        let (by, new) = (vec![under], Some(usetype));
        let covering = covering(&mut *core.pool.acquire().await?, &by, new).await?;
        let mut postings = Postings { covering: covering.clone(), by, new, prepared: Vec::new() };
        for (index, _) in covering {
            for part in texts() {
                postings = postings.with(core, BTreeMap::from([(index, part)])).await?;
            }
        }
        Ok(postings)
    }

    async fn with(mut self, core: &Core, texts: BTreeMap<IndexId, Vec<Text>>) -> Result<Postings, Error> {
        for (index, texts) in texts {
            self.prepared.push(bm25::prepare(&core.pool, &core.postings, index, texts).await?);
        }
        Ok(self)
    }

    /// Leaves out every document that is not among these.
    pub fn keep(&mut self, ids: &HashSet<DocumentId>) {
        self.by.retain(|id| ids.contains(id));
        self.covering.retain(|(_, id)| ids.contains(id));
        self.prepared.iter_mut().for_each(|prepared| prepared.keep(ids));
    }

    /// Puts the documents into their indexes, in place of what these held of them.
    pub async fn write(&self, core: &Core, conn: &mut PgConnection) -> Result<(), Error> {
        if covering(conn, &self.by, self.new).await? != self.covering {
            return Err(Error::OtherIndexes);
        }
        self.write_unchecked(core, conn).await
    }

    async fn write_unchecked(&self, core: &Core, conn: &mut PgConnection) -> Result<(), Error> {
        for prepared in &self.prepared {
            let replaced = bm25::replace(conn, prepared).await;
            if matches!(replaced, Err(Error::StaleTerms(_))) {
                core.postings.forget_term_ids();
            }
            replaced?;
        }
        Ok(())
    }
}

/// The postings of documents as they were read, for indexes that these may enter.
#[derive(Default)]
pub struct AsRead {
    read: HashMap<DocumentId, Taken>,
    parts: Vec<Postings>,
}

/// Documents that settled, of which some are not as they were read or were not read. Nothing was written of any.
pub type Unread = Vec<DocumentId>;

impl AsRead {
    /// Makes the postings that these documents have as they are now.
    pub async fn prepare(core: &Core, ids: &[DocumentId]) -> Result<AsRead, Error> {
        let mut made = AsRead::default();
        for part in ids.chunks(DOCUMENTS) {
            let taken = indexes::taken(&mut *core.pool.acquire().await?, part).await?;
            for some in parts(&taken) {
                let ids: Vec<DocumentId> = some.iter().map(|taken| taken.id).collect();
                let rows = store::nodes::texts(&mut *core.pool.acquire().await?, &ids).await?;
                made.parts.push(Postings::prepare(core, &rows).await?);
            }
            made.read.extend(taken.into_iter().map(|taken| (taken.id, taken)));
        }
        Ok(made)
    }

    /// Puts those that settled in this transaction into their indexes.
    pub async fn write(
        mut self,
        core: &Core,
        conn: &mut PgConnection,
        landed: &[DocumentId],
    ) -> Result<Result<(), Unread>, Error> {
        if landed.is_empty() {
            return Ok(Ok(()));
        }
        let taken = indexes::taken(conn, landed).await?;
        if taken.iter().any(|taken| self.read.get(&taken.id) != Some(taken)) {
            return Ok(Err(taken.into_iter().map(|taken| taken.id).collect()));
        }
        let ids: HashSet<DocumentId> = taken.iter().map(|taken| taken.id).collect();
        for part in &mut self.parts {
            part.keep(&ids);
            part.write_unchecked(core, conn).await?;
        }
        Ok(Ok(()))
    }
}

/// The indexes that these documents belong into, or new ones of a usetype that will be under these.
async fn covering(
    conn: &mut PgConnection,
    by: &[DocumentId],
    new: Option<Usetype>,
) -> sqlx::Result<Vec<(IndexId, DocumentId)>> {
    let Some(new) = new else { return indexes::covering(conn, by).await };
    let all = indexes::covering_under(conn, by).await?.into_iter().filter(|covering| covering.takes(new.as_str()));
    Ok(all.filter_map(|covering| Some((covering.index_id, covering.under?))).collect())
}

/// Documents in parts that may be in memory at once.
fn parts(taken: &[Taken]) -> impl Iterator<Item = &[Taken]> {
    let mut bytes = 0;
    taken.chunk_by(move |one, next| {
        bytes += one.size;
        let fits = bytes + next.size <= BYTES;
        if !fits {
            bytes = 0;
        }
        fits
    })
}
