/// The relative difference that a single-precision score may have from the exact one, including that of summing up to
/// [`MAX_TERMS`](crate::MAX_TERMS) terms in any order.
pub(crate) const MARGIN: f32 = 1e-4;
/// How many documents beyond the k-th are held because they may tie with it. Of more equal ones, those indexed first
/// stay.
const TIES: usize = 8_192;

/// The best k documents and all that may still equal the k-th one.
pub(crate) struct TopK {
    k: usize,
    cap: usize,
    held: Vec<(f32, u32)>,
    /// No lower score can be among the best k.
    pub threshold: f32,
}

impl TopK {
    pub(crate) fn new(k: usize) -> Self {
        Self { k, cap: k.saturating_mul(2).max(64), held: vec![], threshold: f32::NEG_INFINITY }
    }

    #[inline]
    pub(crate) fn push(&mut self, score: f32, doc: u32) {
        if score < self.threshold {
            return;
        }
        self.held.push((score, doc));
        if self.held.len() >= self.cap {
            self.cut();
        }
    }

    /// Drops what can no longer be among the best, and raises the threshold.
    pub(crate) fn cut(&mut self) {
        if self.held.len() < self.k || self.k == 0 {
            return;
        }
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let (_, kth, _) = self.held.select_nth_unstable_by(self.k - 1, order);
        self.threshold = kth.0 * (1.0 - MARGIN);
        let threshold = self.threshold;
        self.held.retain(|held| held.0 >= threshold);
        let most = self.k.saturating_add(TIES);
        if self.held.len() > most {
            self.held.select_nth_unstable_by(most - 1, order);
            self.held.truncate(most);
        }
        // The cap grows with what is held, so that a cut costs a constant share per push.
        self.cap = (2 * self.held.len()).max(2 * self.k).max(64);
    }

    /// The documents, ascending.
    pub(crate) fn into_docs(mut self) -> Vec<u32> {
        self.cut();
        let mut docs: Vec<u32> = self.held.into_iter().map(|(_, doc)| doc).collect();
        docs.sort_unstable();
        docs
    }
}
