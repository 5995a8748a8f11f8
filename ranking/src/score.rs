//! Windowed block-max MaxScore. Windows of documents whose bounds sum to less than the k-th score are skipped. Terms
//! whose bounds together cannot lift a document above it are only looked up for documents that other terms found.

use super::{
    block::{BLOCK, Columns},
    postings::Postings,
    topk::TopK,
};
use std::sync::Arc;

/// The most terms that a query may be scored by; the margin of the single-precision scores is for this many.
pub const MAX_TERMS: usize = 256;
const WINDOW: usize = 2_048;
const WORDS: usize = WINDOW / 64;
/// Bounds are sums of rounded numbers too.
const SLACK: f32 = 1.0 + 1e-5;

/// k1 and b of the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    pub k1: f64,
    pub b: f64,
}

/// `tf / (tf + k1 (1 - b + b length/average))`, between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    floor: f64,
    slope: f64,
}

impl Curve {
    pub fn new(parameters: Parameters, average: f64) -> Self {
        let Parameters { k1, b } = parameters;
        // An index without tokens has no lengths to normalise.
        let average = if average > 0.0 { average } else { 1.0 };
        Self { floor: k1 * (1.0 - b), slope: k1 * b / average }
    }

    #[inline]
    pub(crate) fn saturation(&self, tf: u32, length: u32) -> f32 {
        let tf = tf as f32;
        tf / (tf + self.floor as f32 + self.slope as f32 * length as f32)
    }

    #[inline]
    pub(crate) fn exact(&self, tf: u32, length: u32) -> f64 {
        let tf = f64::from(tf);
        tf / (tf + self.floor + self.slope * f64::from(length))
    }
}

/// `ln(1 + (N - df + 0.5) / (df + 0.5))`, which is above 0.
pub fn idf(docs: f64, df: f64) -> f64 {
    let df = df.min(docs);
    (1.0 + (docs - df + 0.5) / (df + 0.5)).ln()
}

/// The factor that makes the bounds of a list's blocks valid for the query's curve.
#[derive(Clone, Copy, Debug)]
pub enum Bounds {
    Times(f32),
    /// It is only known that a saturation is at most 1.
    Unknown,
}

/// A list with the weight of its term: idf (k1 + 1), times what the term counts in the query.
pub struct List {
    pub postings: Arc<Postings>,
    pub weight: f64,
    pub bounds: Bounds,
}

/// Everything that a scoring needs, so that it can run on a separate thread.
pub struct Scoring {
    pub lists: Vec<List>,
    pub curve: Curve,
    /// Ascending; `None`: every document.
    pub allowed: Option<Arc<[u32]>>,
    /// Removed documents whose postings still exist, ascending.
    pub dead: Vec<u32>,
    pub k: usize,
    pub prune: bool,
}

struct Cursor<'a> {
    list: &'a List,
    weight: f32,
    block: usize,
    loaded: usize,
    /// The position in the loaded block.
    at: usize,
    columns: Columns,
    bound: f32,
}

impl<'a> Cursor<'a> {
    fn new(list: &'a List) -> Self {
        let columns = Columns::new();
        Self { list, weight: list.weight as f32, block: 0, loaded: usize::MAX, at: 0, columns, bound: 0.0 }
    }

    /// Moves to the block that may hold `doc`, without decoding anything.
    #[inline]
    fn skip_to(&mut self, doc: u32) {
        let metas = &self.list.postings.metas;
        while self.block < metas.len() && metas[self.block].last < doc {
            self.block += 1;
        }
    }

    #[inline]
    fn load(&mut self) -> usize {
        if self.loaded != self.block {
            self.list.postings.load(self.block, &mut self.columns);
            self.loaded = self.block;
            self.at = 0;
        }
        usize::from(self.list.postings.metas[self.block].n)
    }

    /// A lower bound of the next document at or after `doc`; `None` at the end.
    fn next_from(&mut self, doc: u32) -> Option<u32> {
        self.skip_to(doc);
        let meta = self.list.postings.metas.get(self.block)?;
        Some(meta.first.max(doc))
    }

    /// The largest contribution to any document in `low..high`.
    fn bound(&self, low: u32, high: u32) -> f32 {
        let mut most = 0f32;
        for meta in &self.list.postings.metas[self.block..] {
            if meta.first >= high {
                break;
            }
            if meta.last >= low {
                most = most.max(meta.ub);
            }
        }
        if most == 0.0 {
            return 0.0;
        }
        self.weight
            * match self.list.bounds {
                Bounds::Times(factor) => (most * factor).min(1.0),
                Bounds::Unknown => 1.0,
            }
    }

    /// Looks `doc` up; later calls must ask for later documents.
    #[inline]
    fn find(&mut self, doc: u32) -> Option<(u32, u32)> {
        self.skip_to(doc);
        if self.list.postings.metas.get(self.block)?.first > doc {
            return None;
        }
        let n = self.load();
        self.at = advance(&self.columns.docs, self.at, n, doc);
        (self.at < n && self.columns.docs[self.at] == doc)
            .then(|| (self.columns.tfs[self.at], self.columns.lengths[self.at]))
    }

    /// Adds this list's contributions in `low..high` to the window.
    fn accumulate(&mut self, curve: &Curve, low: u32, high: u32, sums: &mut [f32; WINDOW], seen: &mut [u64; WORDS]) {
        let (floor, slope, weight) = (curve.floor as f32, curve.slope as f32, self.weight);
        let mut gains = [0f32; BLOCK];
        while self.list.postings.metas.get(self.block).is_some_and(|meta| meta.first < high) {
            let n = self.load();
            self.at += self.columns.docs[self.at..n].partition_point(|&doc| doc < low);
            let end = self.at + self.columns.docs[self.at..n].partition_point(|&doc| doc < high);
            let (from, to) = (self.at, end);
            for ((gain, &tf), &length) in
                gains[from..to].iter_mut().zip(&self.columns.tfs[from..to]).zip(&self.columns.lengths[from..to])
            {
                let tf = tf as f32;
                *gain = weight * tf / (tf + floor + slope * length as f32);
            }
            for (&doc, &gain) in self.columns.docs[from..to].iter().zip(&gains[from..to]) {
                let offset = (doc.wrapping_sub(low) as usize) & (WINDOW - 1);
                sums[offset] += gain;
                seen[offset >> 6] |= 1 << (offset & 63);
            }
            self.at = end;
            if end < n {
                break;
            }
            self.block += 1;
        }
    }
}

/// How many document numbers are compared at once on the way to the next document.
const STRIDE: usize = 16;

/// The first position from `at` on, at most `n`, whose document is not before `doc`. The position is mostly near, so comparing some
/// documents at once takes less time than a binary search in the rest of the block.
#[inline]
fn advance(docs: &[u32; BLOCK], mut at: usize, n: usize, doc: u32) -> usize {
    // Document numbers are below 2^31, and processors compare signed numbers side by side.
    let is_before = |other: u32| (other as i32) < doc as i32;
    while at < n {
        let Some(next) = docs[at..n].first_chunk::<STRIDE>() else {
            return at + docs[at..n].iter().filter(|&&other| is_before(other)).count();
        };
        let before = next.iter().map(|&other| u32::from(is_before(other))).sum::<u32>() as usize;
        at += before;
        if before < STRIDE {
            break;
        }
    }
    at
}

/// A sorted set that is traversed together with the windows.
struct Walk<'a> {
    docs: &'a [u32],
}

impl Walk<'_> {
    /// The bits of the set in `low..high`. What comes before `low` is dropped.
    fn mask(&mut self, low: u32, high: u32) -> [u64; WORDS] {
        self.docs = &self.docs[self.docs.partition_point(|&doc| doc < low)..];
        let mut mask = [0u64; WORDS];
        for &doc in self.docs.iter().take_while(|&&doc| doc < high) {
            let offset = (doc - low) as usize;
            mask[offset >> 6] |= 1 << (offset & 63);
        }
        mask
    }
}

impl Scoring {
    /// The best documents with their exact scores, in the order of document numbers: at least the best k, and all that
    /// may equal the last of them.
    pub fn run(&self) -> Vec<(u32, f64)> {
        if self.k == 0 {
            return vec![];
        }
        self.exact(&self.select())
    }

    fn select(&self) -> Vec<u32> {
        let mut cursors: Vec<Cursor<'_>> = self.lists.iter().map(Cursor::new).collect();
        let mut order: Vec<usize> = (0..cursors.len()).collect();
        let mut top = TopK::new(self.k);
        let mut sums = [0f32; WINDOW];
        let mut seen = [0u64; WORDS];
        let mut dead = Walk { docs: &self.dead };
        let mut allowed = self.allowed.as_deref().map(|docs| Walk { docs });
        let mut low = 0u32;
        loop {
            if let Some(walk) = &mut allowed {
                walk.docs = &walk.docs[walk.docs.partition_point(|&doc| doc < low)..];
                match walk.docs.first() {
                    Some(&doc) => low = doc,
                    None => break,
                }
            }
            match cursors.iter_mut().filter_map(|cursor| cursor.next_from(low)).min() {
                Some(doc) => low = doc,
                None => break,
            }
            // Document numbers are below 2^31, so no window reaches the end of u32.
            let high = low.saturating_add(WINDOW as u32);
            let mut passive = 0;
            let mut rest = 0f32;
            if self.prune {
                let mut sum = 0f32;
                for cursor in &mut cursors {
                    cursor.bound = cursor.bound(low, high);
                    sum += cursor.bound;
                }
                if sum * SLACK < top.threshold {
                    low = high;
                    continue;
                }
                order.sort_unstable_by(|&a, &b| cursors[a].bound.total_cmp(&cursors[b].bound));
                while passive < order.len() && (rest + cursors[order[passive]].bound) * SLACK < top.threshold {
                    rest += cursors[order[passive]].bound;
                    passive += 1;
                }
            }
            for &i in &order[passive..] {
                cursors[i].accumulate(&self.curve, low, high, &mut sums, &mut seen);
            }
            let gone = dead.mask(low, high);
            let may = allowed.as_mut().map(|walk| walk.mask(low, high));
            for word in 0..WORDS {
                let mut bits = std::mem::take(&mut seen[word]);
                let live = !gone[word] & may.map_or(u64::MAX, |may| may[word]);
                while bits != 0 {
                    let bit = bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let offset = word * 64 + bit;
                    let score = std::mem::take(&mut sums[offset]);
                    if live >> bit & 1 == 0 || (score + rest) * SLACK < top.threshold {
                        continue;
                    }
                    let doc = low + offset as u32;
                    if let Some(score) = self.complete(&mut cursors, &order[..passive], doc, score, rest, top.threshold)
                    {
                        top.push(score, doc);
                    }
                }
            }
            top.cut();
            if high == u32::MAX {
                break;
            }
            low = high;
        }
        top.into_docs()
    }

    /// Adds the passive lists to a document's score, the strongest first; returns `None` once the document cannot reach
    /// the threshold.
    #[inline]
    fn complete(
        &self,
        cursors: &mut [Cursor<'_>],
        passive: &[usize],
        doc: u32,
        mut score: f32,
        mut rest: f32,
        threshold: f32,
    ) -> Option<f32> {
        for &i in passive.iter().rev() {
            if (score + rest) * SLACK < threshold {
                return None;
            }
            let cursor = &mut cursors[i];
            rest -= cursor.bound;
            if let Some((tf, length)) = cursor.find(doc) {
                score += cursor.weight * self.curve.saturation(tf, length);
            }
        }
        Some(score)
    }

    /// Scores `docs`, which must ascend, in double precision and in the fixed order of the lists.
    fn exact(&self, docs: &[u32]) -> Vec<(u32, f64)> {
        let mut out: Vec<(u32, f64)> = docs.iter().map(|&doc| (doc, 0.0)).collect();
        for list in &self.lists {
            let mut cursor = Cursor::new(list);
            for (doc, score) in &mut out {
                if let Some((tf, length)) = cursor.find(*doc) {
                    *score += list.weight * self.curve.exact(tf, length);
                }
            }
        }
        out
    }
}
