//! Seeded randomness: SplitMix64 (Steele, Lea and Flood, 2014). The same seed gives the same numbers in every release.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to and without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `n`, which is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// 1 or -1.
    pub(crate) fn sign(&mut self) -> f64 {
        if self.next() >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// `count` of the numbers below `n`, ascending; all of them if there are no more.
    pub(crate) fn sample(&mut self, n: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for at in 0..count.min(n) {
            let other = at + self.below(n - at);
            all.swap(at, other);
        }
        all.truncate(count);
        all.sort_unstable();
        all
    }
}
