//! Shapes that are in use, so that their texts are not read for each write.
use super::Shapes;
use lru::LruCache;
use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};
use svc_ids::DocumentId;

/// How many sets of shapes a process keeps in memory.
const KEPT: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The ontology, the one shape that is meant, and the version of the text.
pub type Key = (DocumentId, Option<String>, String);

/// The shapes that writes met last.
pub struct KeptShapes(Mutex<LruCache<Key, Arc<Shapes>>>);

impl Default for KeptShapes {
    fn default() -> KeptShapes {
        KeptShapes(Mutex::new(LruCache::new(KEPT)))
    }
}

impl KeptShapes {
    pub fn get(&self, key: &Key) -> Option<Arc<Shapes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub fn put(&self, key: Key, shapes: Arc<Shapes>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, shapes);
    }
}
