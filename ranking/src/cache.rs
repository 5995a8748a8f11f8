use super::{Totals, postings::Postings};
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

/// The sealed list of a term, as it was when it was last read.
#[derive(Clone)]
pub struct Newest {
    pub key: SealedKey,
    /// The average length, in tokens, for which the bounds of the list were made.
    pub average: f32,
    pub list: Arc<Postings>,
}

/// What an index had of a term when it was last read.
#[derive(Clone)]
pub struct Seen {
    /// `None` if no postings of the term were sealed.
    pub sealed: Option<Newest>,
    /// Whether the index had nothing else of the term: no tail and no tombstones.
    pub is_all: bool,
    /// What [`Totals::contents`] was.
    pub contents: i64,
}

/// What an index was when it was last read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenIndex {
    pub id: i64,
    pub totals: Totals,
    /// Whether it was the same the time before, so that it is most likely the same the next time.
    pub is_quiet: bool,
}

/// What a process remembers of ONE database: sealed postings, bounded in bytes, and the ids of terms and the totals of
/// indexes, bounded in number. All searches and writers should share it.
pub struct Cache {
    sealed: Mutex<Sealed>,
    terms: Mutex<LruCache<(i64, Box<str>), i32>>,
    indexes: Mutex<LruCache<Box<str>, SeenIndex>>,
}

/// The sealed list of a term by its key, with the average length of its bounds, [`Seen::is_all`] and [`Seen::contents`].
type SeenKey = (Option<(SealedKey, f32)>, bool, i64);

struct Sealed {
    lists: LruCache<SealedKey, Arc<Postings>>,
    /// By index and term.
    seen: LruCache<(i64, Box<str>), SeenKey>,
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
                seen: LruCache::new(TERMS),
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

    /// What the index of this name was when it was last read.
    pub fn index(&self, name: &str) -> Option<SeenIndex> {
        lock(&self.indexes).get(name).copied()
    }

    /// Remembers what was read of the index of this name.
    pub fn keep_index(&self, name: &str, id: i64, totals: Totals) -> SeenIndex {
        let mut indexes = lock(&self.indexes);
        let is_quiet = indexes.get(name).is_some_and(|before| before.id == id && before.totals == totals);
        let seen = SeenIndex { id, totals, is_quiet };
        indexes.put(name.into(), seen);
        seen
    }

    /// What was last read of each of `terms`, in their order; `None` for what is not remembered.
    pub fn seen<'a>(&self, index: i64, terms: impl IntoIterator<Item = &'a str>) -> Vec<Option<Seen>> {
        let mut sealed = lock(&self.sealed);
        let Sealed { lists, seen, .. } = &mut *sealed;
        let of = |term: &str| {
            let (newest, is_all, contents) = *seen.get(&(index, term.into()))?;
            let sealed = match newest {
                Some((key, average)) => Some(Newest { key, average, list: Arc::clone(lists.get(&key)?) }),
                None => None,
            };
            Some(Seen { sealed, is_all, contents })
        };
        terms.into_iter().map(of).collect()
    }

    /// Remembers what was read of a term, unless its list alone is larger than the cache.
    pub fn keep(&self, index: i64, term: &str, seen: &Seen) {
        let mut sealed = lock(&self.sealed);
        let Some(Newest { key, average, list }) = &seen.sealed else {
            sealed.seen.put((index, term.into()), (None, seen.is_all, seen.contents));
            return;
        };
        let cost = list.bytes() + OVERHEAD;
        if cost > sealed.most {
            sealed.seen.pop(&(index, term.into()));
            return;
        }
        sealed.seen.put((index, term.into()), (Some((*key, *average)), seen.is_all, seen.contents));
        if let Some(old) = sealed.lists.put(*key, Arc::clone(list)) {
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

    /// Forgets the ids of all terms, because some were purged, or the database was restored to a time before some of them existed.
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
        Config, Parameters,
        block::{Posting, encode_rows},
        score::Curve,
    };

    #[test]
    fn sealed_postings_stay_within_their_bytes() {
        let curve = Curve::new(Parameters { k1: 1.2, b: 0.75 }, 10.0);
        let postings: Vec<Posting> = (1..500).map(|doc| Posting { doc, tf: 1, length: 10 }).collect();
        let rows = encode_rows(&postings, &curve, 16).into_iter().map(|row| (row.first as i32, row.data)).collect();
        let list = Arc::new(Postings::sealed(rows).expect("own bytes"));
        let sealed = |key| {
            let newest = Newest { key, average: 10.0, list: Arc::clone(&list) };
            Seen { sealed: Some(newest), is_all: true, contents: 5 }
        };
        let cache = Cache::new(5 * (list.bytes() + OVERHEAD));
        for term in 0..50 {
            cache.keep(1, &term.to_string(), &sealed((1, term, 1, 7)));
            assert!(cache.bytes() <= 5 * (list.bytes() + OVERHEAD));
        }
        let known = |cache: &Cache, index| {
            let of = |seen: Option<Seen>| {
                seen.map(|seen| (seen.sealed.map(|newest| newest.key), seen.is_all, seen.contents))
            };
            cache.seen(index, ["0", "49"]).into_iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(known(&cache, 1), [None, Some((Some((1, 49, 1, 7)), true, 5))]);
        assert_eq!(known(&cache, 2), [None, None]);
        cache.keep(1, "49", &Seen { is_all: false, contents: 6, ..sealed((1, 49, 2, 8)) });
        assert_eq!(known(&cache, 1), [None, Some((Some((1, 49, 2, 8)), false, 6))]);
        let small = Cache::new(10);
        small.keep(1, "49", &Seen { sealed: None, is_all: true, contents: 5 });
        assert_eq!(known(&small, 1), [None, Some((None, true, 5))]);
        small.keep(1, "49", &sealed((1, 49, 1, 7)));
        assert_eq!((small.bytes(), known(&small, 1)), (0, vec![None, None]));
    }

    #[test]
    fn an_index_is_quiet_once_it_was_read_twice_with_nothing_written_in_between() {
        let cache = Cache::new(10);
        let totals =
            |docs| Totals { config: Config::default(), generation: 1, rescored_at: 0, docs, tokens: 9, contents: 5 };
        assert_eq!(cache.index("one"), None);
        for (id, docs, is_quiet) in [(1, 2, false), (1, 2, true), (1, 3, false), (1, 3, true), (2, 3, false)] {
            let seen = cache.keep_index("one", id, totals(docs));
            assert_eq!(seen, SeenIndex { id, totals: totals(docs), is_quiet });
            assert_eq!(cache.index("one"), Some(seen));
        }
    }
}
