//! Counts the different values of a column in bounded memory.

use std::collections::HashSet;

/// How many values are counted exactly; beyond that, their number is estimated.
const EXACT: usize = 1_024;
/// The registers of the estimate give a standard error of 1.04 / sqrt(4096), or 1.6%.
const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;

/// Counts different hashes, exactly at first and then by HyperLogLog (Flajolet et al., 2007).
#[derive(Debug)]
pub(super) enum Distinct {
    Exact(HashSet<u64>),
    Estimated(Box<[u8; REGISTERS]>),
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Exact(HashSet::new())
    }
}

impl Distinct {
    /// Adds a value by its hash, whose bits must be uniform.
    pub(super) fn add(&mut self, hash: u64) {
        match self {
            Self::Exact(seen) => {
                seen.insert(hash);
                if seen.len() > EXACT {
                    let mut registers = Box::new([0; REGISTERS]);
                    for &hash in seen.iter() {
                        register(&mut registers, hash);
                    }
                    *self = Self::Estimated(registers);
                }
            }
            Self::Estimated(registers) => register(registers, hash),
        }
    }

    /// The number, and whether it is exact.
    pub(super) fn count(&self) -> (u64, bool) {
        let registers = match self {
            Self::Exact(seen) => return (seen.len() as u64, true),
            Self::Estimated(registers) => registers,
        };
        let count = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / count);
        let sum: f64 = registers.iter().map(|&rank| (-f64::from(rank)).exp2()).sum();
        let raw = alpha * count * count / sum;
        let empty = registers.iter().filter(|&&rank| rank == 0).count();
        // For small numbers the count of empty registers is the better estimate.
        let estimate = if raw <= 2.5 * count && empty > 0 { count * (count / empty as f64).ln() } else { raw };
        (estimate.round() as u64, false)
    }
}

fn register(registers: &mut [u8; REGISTERS], hash: u64) {
    let index = (hash >> (64 - BITS)) as usize;
    let rank = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() as u8 + 1;
    registers[index] = registers[index].max(rank);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hash, Hasher};

    fn counted(values: u64) -> (u64, bool) {
        let mut distinct = Distinct::default();
        for _ in 0..2 {
            for value in 0..values {
                let mut hasher = DefaultHasher::new();
                value.hash(&mut hasher);
                distinct.add(hasher.finish());
            }
        }
        distinct.count()
    }

    #[test]
    fn few_are_counted_and_many_estimated() {
        assert_eq!(counted(0), (0, true));
        assert_eq!(counted(1_024), (1_024, true));
        for values in [1_025, 5_000, 12_000, 100_000, 1_000_000] {
            let (estimate, exact) = counted(values);
            let error = (estimate as f64 - values as f64).abs() / values as f64;
            assert!(!exact && error < 0.05, "{values}: {estimate}");
        }
    }
}
