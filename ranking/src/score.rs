//! Windowed block-max MaxScore. Windows of documents whose bounds sum to less than the k-th score are skipped, and so are blocks in
//! such slots of a window. Terms whose bounds together cannot lift a document above it are only looked up for documents that other
//! terms found.

use super::{
    block::{BLOCK, Columns, Meta},
    postings::Postings,
    topk::TopK,
};
use std::{ops::Range, sync::Arc};

/// The most terms that a query may be scored by; the margin of the single-precision scores is for this many.
pub const MAX_TERMS: usize = 256;
const WINDOW: usize = 4_096;
/// A window has as many words of 64 documents as a word has bits.
const WORD: usize = 64;
const WORDS: usize = WINDOW / WORD;
const _: () = assert!(WORDS == u64::BITS as usize, "a bit stands for each word");
/// How many documents have a bound together. A block of a frequent term has about as many.
const SLOT: usize = 256;
const SLOTS: usize = WINDOW / SLOT;
/// The sum of a document that no list has. Together with any contribution it makes exactly that, with a positive sign even if that is zero.
const ABSENT: f32 = -0.0;
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
    /// The largest contribution to any document of each slot of the window.
    bounds: [f32; SLOTS],
    /// The largest of those that count.
    bound: f32,
}

impl<'a> Cursor<'a> {
    fn new(list: &'a List) -> Self {
        let columns = Columns::new();
        let weight = list.weight as f32;
        Self { list, weight, block: 0, loaded: usize::MAX, at: 0, columns, bounds: [0.0; SLOTS], bound: 0.0 }
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

    /// Finds the bounds of the window at `low`, without decoding anything.
    fn look_ahead(&mut self, low: u32, high: u32) {
        let mut most = [0f32; SLOTS];
        for meta in &self.list.postings.metas[self.block..] {
            if meta.first >= high {
                break;
            }
            let saturation = match self.list.bounds {
                Bounds::Times(factor) => (meta.ub * factor).min(1.0),
                Bounds::Unknown => 1.0,
            };
            for slot in most.get_mut(slots(meta, low, high)).unwrap_or_default() {
                *slot = slot.max(saturation);
            }
        }
        self.bounds = most.map(|most| self.weight * most);
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

    /// Adds this list's contributions in `low..high` to the window. Blocks that lie in no slot of `open` are left out.
    fn accumulate(&mut self, curve: &Curve, low: u32, high: u32, open: u32, window: &mut Window) {
        let (floor, slope, weight) = (curve.floor as f32, curve.slope as f32, self.weight);
        let mut gains = [0f32; BLOCK];
        while let Some(meta) = self.list.postings.metas.get(self.block)
            && meta.first < high
        {
            if !is_any(open, slots(meta, low, high)) {
                if meta.last >= high {
                    break;
                }
                self.block += 1;
                continue;
            }
            let n = self.load();
            self.at += self.columns.docs[self.at..n].partition_point(|&doc| doc < low);
            let end = self.at + self.columns.docs[self.at..n].partition_point(|&doc| doc < high);
            let (from, to) = (self.at, end);
            for ((gain, &tf), &length) in
                gains[from..to].iter_mut().zip(&self.columns.tfs[from..to]).zip(&self.columns.lengths[from..to])
            {
                // Both are below 2^31, and processors convert signed numbers side by side.
                let (tf, length) = (tf as i32 as f32, length as i32 as f32);
                *gain = weight * tf / (tf + floor + slope * length);
            }
            window.add(low, &self.columns.docs[from..to], &gains[from..to]);
            self.at = end;
            if end < n {
                break;
            }
            self.block += 1;
        }
    }
}

/// The slots of the window `low..high` that a block reaches into.
#[inline]
fn slots(meta: &Meta, low: u32, high: u32) -> Range<usize> {
    let from = meta.first.saturating_sub(low) as usize / SLOT;
    let to = meta.last.min(high - 1).saturating_sub(low) as usize / SLOT;
    from..to + 1
}

/// Whether a bit of `range` is set.
#[inline]
fn is_any(bits: u32, range: Range<usize>) -> bool {
    let below = |end: usize| (1u64 << end) - 1;
    u64::from(bits) & below(range.end) & !below(range.start) != 0
}

/// What the lists together give to each document of a window.
struct Window {
    sums: [f32; WINDOW],
    /// The words in which a sum may not be [`ABSENT`].
    touched: u64,
}

impl Window {
    fn new() -> Self {
        Self { sums: [ABSENT; WINDOW], touched: 0 }
    }

    /// Adds to the documents, which ascend from `low` on within the window.
    #[inline]
    fn add(&mut self, low: u32, docs: &[u32], gains: &[f32]) {
        let (Some(first), Some(last)) = (docs.first(), docs.last()) else { return };
        let offset = |doc: u32| (doc.wrapping_sub(low) as usize) & (WINDOW - 1);
        if (last - first) as usize > WORD * docs.len() {
            for &doc in docs {
                self.touched |= 1 << (offset(doc) / WORD);
            }
        } else {
            let (from, to) = (offset(*first) / WORD, offset(*last) / WORD);
            self.touched |= u64::MAX << from & u64::MAX >> (WORDS - 1 - to);
        }
        for (&doc, &gain) in docs.iter().zip(gains) {
            self.sums[offset(doc)] += gain;
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

/// How many sums are compared at once.
const GROUP: usize = 16;

/// Which of the sums are there and reach the threshold together with `rest`. There is no branch for each sum, because none could be foretold.
#[inline]
fn reaching(sums: &[f32; GROUP], rest: f32, threshold: f32) -> u32 {
    let is_reaching = |sum: f32| sum.is_sign_positive() & ((sum + rest) * SLACK >= threshold);
    sums.iter().enumerate().fold(0, |bits, (i, &sum)| bits | u32::from(is_reaching(sum)) << i)
}

/// The largest of a word of sums.
#[inline]
fn largest(sums: &[f32]) -> f32 {
    let mut most = [ABSENT; GROUP];
    for group in sums.chunks_exact(GROUP) {
        for (most, &sum) in most.iter_mut().zip(group) {
            *most = larger(*most, sum);
        }
    }
    largest_of(&most)
}

/// The largest of a group of sums, found side by side.
#[inline]
fn largest_of(sums: &[f32; GROUP]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| larger(sums[i], sums[i + 8]));
    let four: [f32; 4] = std::array::from_fn(|i| larger(eight[i], eight[i + 4]));
    larger(larger(four[0], four[2]), larger(four[1], four[3]))
}

/// The processor's own maximum, which needs no care for what is not a number.
#[inline]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// A document that the active lists found, with the bounds of the passive ones together.
struct Candidate {
    doc: u32,
    slot: usize,
    score: f32,
    rest: f32,
}

/// What of a window is looked at.
struct Plan {
    /// A bit for each slot that may hold one of the best documents.
    open: u32,
    /// So many of the lists, the weakest first, cannot lift a document above the threshold by themselves.
    passive: usize,
    /// The bounds of these together, by slot.
    rest: [f32; SLOTS],
}

impl Plan {
    fn everything() -> Self {
        Self { open: u32::MAX, passive: 0, rest: [0.0; SLOTS] }
    }
}

/// Puts the lists in the order of their bounds in `low..high`, and decides which slots and which lists need not be read.
fn plan(cursors: &mut [Cursor<'_>], order: &mut [usize], low: u32, high: u32, threshold: f32) -> Plan {
    let mut sums = [0f32; SLOTS];
    for cursor in &mut *cursors {
        cursor.look_ahead(low, high);
        for (sum, bound) in sums.iter_mut().zip(&cursor.bounds) {
            *sum += bound;
        }
    }
    let is_open = sums.map(|sum| sum * SLACK >= threshold);
    let open = is_open.iter().enumerate().fold(0, |open, (slot, &is_open)| open | u32::from(is_open) << slot);
    let mut plan = Plan { open, ..Plan::everything() };
    if open == 0 {
        return plan;
    }
    let largest = |bounds: &[f32; SLOTS]| {
        bounds.iter().zip(&is_open).filter(|(_, is_open)| **is_open).fold(0f32, |most, (bound, _)| most.max(*bound))
    };
    for cursor in &mut *cursors {
        cursor.bound = largest(&cursor.bounds);
    }
    order.sort_unstable_by(|&a, &b| cursors[a].bound.total_cmp(&cursors[b].bound));
    for &weakest in &*order {
        let mut rest = plan.rest;
        for (rest, bound) in rest.iter_mut().zip(&cursors[weakest].bounds) {
            *rest += bound;
        }
        if largest(&rest) * SLACK >= threshold {
            break;
        }
        plan.rest = rest;
        plan.passive += 1;
    }
    plan
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
        let mut window = Window::new();
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
            let plan =
                if self.prune { plan(&mut cursors, &mut order, low, high, top.threshold) } else { Plan::everything() };
            let Plan { open, passive, rest } = plan;
            if open == 0 {
                low = high;
                continue;
            }
            for &i in &order[passive..] {
                cursors[i].accumulate(&self.curve, low, high, open, &mut window);
            }
            let gone = dead.mask(low, high);
            let may = allowed.as_mut().map(|walk| walk.mask(low, high));
            let may = may.as_ref();
            let mut touched = std::mem::take(&mut window.touched);
            while touched != 0 {
                let word = touched.trailing_zeros() as usize;
                touched &= touched - 1;
                let slot = word * WORD / SLOT;
                let rest = rest[slot];
                let live = !gone[word] & may.map_or(u64::MAX, |may| may[word]);
                let sums = &mut window.sums[word * WORD..][..WORD];
                if open >> slot & 1 == 1 && live != 0 && (largest(sums) + rest) * SLACK >= top.threshold {
                    for (group, sums) in sums.as_chunks::<GROUP>().0.iter().enumerate() {
                        let mut bits = reaching(sums, rest, top.threshold) & (live >> (group * GROUP)) as u32;
                        while bits != 0 {
                            let bit = bits.trailing_zeros() as usize;
                            bits &= bits - 1;
                            let doc = low + (word * WORD + group * GROUP + bit) as u32;
                            let candidate = Candidate { doc, slot, score: sums[bit], rest };
                            if let Some(score) =
                                self.complete(&mut cursors, &order[..passive], candidate, top.threshold)
                            {
                                top.push(score, doc);
                            }
                        }
                    }
                }
                sums.fill(ABSENT);
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
        candidate: Candidate,
        threshold: f32,
    ) -> Option<f32> {
        let Candidate { doc, slot, mut score, mut rest } = candidate;
        for &i in passive.iter().rev() {
            if (score + rest) * SLACK < threshold {
                return None;
            }
            let cursor = &mut cursors[i];
            rest -= cursor.bounds[slot];
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
