//! The vectors of the last queries: a search that ranks, groups and looks for the best sentence asks for its query's vector each time,
//! and people ask the next page of what they asked before.
use super::{EmbedError, Model, QueryError};
use lru::LruCache;
use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

/// The most vectors that are kept: with the widest model and the longest queries about 6 MiB.
const MOST: NonZeroUsize = NonZeroUsize::new(1_024).expect("more than none");

/// A query with more bytes is embedded each time.
const LONGEST: usize = 2 << 10;

/// The vectors of the last queries by model and text.
#[derive(Debug)]
pub struct QueryVectors {
    known: Mutex<LruCache<String, QueryVector>>,
}

/// The vector of a query; `None` if the model knows none of its tokens.
pub type QueryVector = Option<Arc<[f32]>>;

impl Default for QueryVectors {
    fn default() -> QueryVectors {
        QueryVectors { known: Mutex::new(LruCache::new(MOST)) }
    }
}

impl QueryVectors {
    /// What [`Model::embed_query`] says of the query, of which it is asked only if that is not known. No failure is kept.
    pub async fn of(&self, model: &Model, query: &str) -> Result<QueryVector, QueryError> {
        if query.len() > LONGEST {
            return Ok(embed(model, query).await?);
        }
        let key = format!("{}\0{query}", model.identity());
        if let Some(vector) = self.lock().get(&key) {
            return Ok(vector.clone());
        }
        let vector = embed(model, query).await?;
        self.lock().put(key, vector.clone());
        Ok(vector)
    }

    /// Embeds the queries that are not known yet, in one call. If one of them cannot be embedded, none is.
    pub async fn learn(&self, model: &Model, queries: &[&str]) -> Result<(), EmbedError> {
        let key = |query: &str| format!("{}\0{query}", model.identity());
        let mut unknown: Vec<String> =
            queries.iter().filter(|query| query.len() <= LONGEST).map(|query| (*query).to_owned()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown.retain(|query| !self.lock().contains(&key(query)));
        if unknown.is_empty() {
            return Ok(());
        }
        let mut without = Vec::new();
        let mut with = Vec::with_capacity(unknown.len());
        for query in unknown {
            if model.is_unknown(&query)? { without.push(query) } else { with.push(query) }
        }
        let vectors = if with.is_empty() { Vec::new() } else { model.embed_queries(with.clone()).await? };
        let mut known = self.lock();
        for (query, vector) in with.iter().zip(vectors) {
            known.put(key(query), Some(vector.into()));
        }
        for query in without {
            known.put(key(&query), None);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LruCache<String, QueryVector>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn embed(model: &Model, query: &str) -> Result<QueryVector, EmbedError> {
    if model.is_unknown(query)? {
        return Ok(None);
    }
    Ok(Some(model.embed_query(query.to_owned()).await?.into()))
}
