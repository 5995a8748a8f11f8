use super::{AnalyzerConfig, postings::Postings};
use lru::LruCache;
use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const TERMS: NonZeroUsize = NonZeroUsize::new(200_000).expect("not zero");
const INDEXES: NonZeroUsize = NonZeroUsize::new(1_000).expect("not zero");
/// The memory of a list beyond its own bytes.
const OVERHEAD: usize = 160;

/// Index, term, generation and seal. A sealed list never changes under its key: sealing again changes the generation
/// and draws another seal, which differs even if a restored database repeats its generations.
pub type SealedKey = (i64, i32, i64, i64);

/// A sealed list of a term, as it was when it was last read.
pub type Newest = (SealedKey, Arc<Postings>);

/// What a process remembers of ONE database: sealed postings, bounded in bytes, and the ids of terms and the analyzers of
/// indexes, bounded in number. All searches and writers should share it.
pub struct Cache {
    sealed: Mutex<Sealed>,
    terms: Mutex<LruCache<(i64, Box<str>), i32>>,
    indexes: Mutex<LruCache<Box<str>, (i64, AnalyzerConfig)>>,
}

struct Sealed {
    lists: LruCache<SealedKey, Arc<Postings>>,
    /// By index and term.
    newest: LruCache<(i64, Box<str>), SealedKey>,
    bytes: usize,
    most: usize,
}

/// A panic between two map operations leaves the maps whole, so a poisoned lock is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    /// Makes a cache whose sealed postings take at most `bytes`. 256 MiB hold the frequent terms of some millions of
    /// chunks.
    pub fn new(bytes: usize) -> Self {
        Self {
            sealed: Mutex::new(Sealed {
                lists: LruCache::unbounded(),
                newest: LruCache::new(TERMS),
                bytes: 0,
                most: bytes,
            }),
            terms: Mutex::new(LruCache::new(TERMS)),
            indexes: Mutex::new(LruCache::new(INDEXES)),
        }
    }

    /// The bytes that sealed postings take.
    pub fn bytes(&self) -> usize {
        lock(&self.sealed).bytes
    }

    /// The id and the analyzer that the index of this name had when it was last read.
    pub fn index(&self, name: &str) -> Option<(i64, AnalyzerConfig)> {
        lock(&self.indexes).get(name).copied()
    }

    pub fn keep_index(&self, name: &str, id: i64, analyzer: AnalyzerConfig) {
        lock(&self.indexes).put(name.into(), (id, analyzer));
    }

    /// The sealed lists of `terms` that were last read; those that are not kept are left out.
    pub fn newest<'a>(&self, index: i64, terms: impl IntoIterator<Item = &'a str>) -> Vec<Newest> {
        let mut sealed = lock(&self.sealed);
        let Sealed { lists, newest, .. } = &mut *sealed;
        let of = |term: &str| {
            let key = *newest.get(&(index, term.into()))?;
            Some((key, Arc::clone(lists.get(&key)?)))
        };
        terms.into_iter().filter_map(of).collect()
    }

    pub fn keep(&self, term: &str, key: SealedKey, list: &Arc<Postings>) {
        let mut sealed = lock(&self.sealed);
        let cost = list.bytes() + OVERHEAD;
        if cost > sealed.most {
            return;
        }
        sealed.newest.put((key.0, term.into()), key);
        if let Some(old) = sealed.lists.put(key, Arc::clone(list)) {
            sealed.bytes -= old.bytes() + OVERHEAD;
        }
        sealed.bytes += cost;
        while sealed.bytes > sealed.most
            && let Some((_, old)) = sealed.lists.pop_lru()
        {
            sealed.bytes -= old.bytes() + OVERHEAD;
        }
    }

    /// The known ids of `terms`, in their order.
    pub fn term_ids(&self, index: i64, terms: &[Box<str>]) -> Vec<Option<i32>> {
        let mut known = lock(&self.terms);
        terms.iter().map(|term| known.get(&(index, term.clone())).copied()).collect()
    }

    /// Forgets the ids of all terms, because the database was restored to a time before some of them existed.
    pub fn forget_term_ids(&self) {
        lock(&self.terms).clear();
    }

    pub fn keep_term_ids(&self, index: i64, terms: impl IntoIterator<Item = (Box<str>, i32)>) {
        let mut known = lock(&self.terms);
        for (term, id) in terms {
            known.put((index, term), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Parameters,
        block::{Posting, encode_rows},
        score::Curve,
    };

    #[test]
    fn sealed_postings_stay_within_their_bytes() {
        let curve = Curve::new(Parameters { k1: 1.2, b: 0.75 }, 10.0);
        let postings: Vec<Posting> = (1..500).map(|doc| Posting { doc, tf: 1, length: 10 }).collect();
        let rows = encode_rows(&postings, &curve, 16).into_iter().map(|row| (row.first as i32, row.data)).collect();
        let list = Arc::new(Postings::sealed(rows).expect("own bytes"));
        let cache = Cache::new(5 * (list.bytes() + OVERHEAD));
        for term in 0..50 {
            cache.keep(&term.to_string(), (1, term, 1, 7), &list);
            assert!(cache.bytes() <= 5 * (list.bytes() + OVERHEAD));
        }
        let known = |index| cache.newest(index, ["0", "49"]).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(known(1), [(1, 49, 1, 7)]);
        assert_eq!(known(2), []);
        cache.keep("49", (1, 49, 2, 8), &list);
        assert_eq!(known(1), [(1, 49, 2, 8)]);
        let small = Cache::new(10);
        small.keep("1", (1, 1, 1, 7), &list);
        assert_eq!(small.bytes(), 0);
    }
}
