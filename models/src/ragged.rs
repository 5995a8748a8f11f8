use std::ops::Range;

/// How many tokens a worker runs at once. The activations of about this many rows stay in the processor's second cache,
/// and a query waits for one such pass at most.
pub(crate) const TOKENS_PER_PASS: usize = 600;

/// Sequences one after the other, without padding, so that only real tokens are computed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ragged {
    pub token_ids: Vec<u32>,
    /// For each token: 0, or 1 if it belongs to the second text of a pair.
    pub token_types: Vec<u8>,
    /// The range of each sequence's tokens in `token_ids`.
    pub sequences: Vec<Range<usize>>,
}

impl Ragged {
    pub fn from_sequences<'a>(sequences: impl IntoIterator<Item = &'a [u32]>) -> Self {
        Self::from_pairs(sequences.into_iter().map(|sequence| (sequence, sequence.len())))
    }

    /// Makes a batch of pairs; each comes with the number of tokens that belong to its first text.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a [u32], usize)>) -> Self {
        let mut ragged = Self::default();
        for (sequence, first) in pairs {
            let start = ragged.token_ids.len();
            ragged.token_ids.extend_from_slice(sequence);
            ragged.token_types.resize(start + first, 0);
            ragged.token_types.resize(start + sequence.len(), 1);
            ragged.sequences.push(start..ragged.token_ids.len());
        }
        ragged
    }

    /// For each token, its position in its sequence.
    pub fn positions(&self) -> Vec<u32> {
        self.sequences.iter().flat_map(|sequence| 0..sequence.len() as u32).collect()
    }

    pub fn token_count(&self) -> usize {
        self.token_ids.len()
    }
}

/// The fewest tokens for which a thread gets a pass of its own. With fewer, reading the weights once more costs more than sharing one pass among the
/// threads.
const FEWEST_TOKENS: usize = 192;

/// How much a device takes in one pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassLimit {
    /// About how many tokens.
    pub tokens: usize,
    /// Whether it pads all sequences to the longest one, so that padding takes as much memory as tokens do.
    pub pads: bool,
}

impl PassLimit {
    /// Whether it takes so many sequences, with so many tokens in all of them and in the longest one.
    fn holds(self, sequences: usize, tokens: usize, longest: usize) -> bool {
        let rows = if self.pads { sequences * longest } else { tokens };
        rows <= self.tokens
    }
}

/// Groups sequences of similar length into passes of at most `max_sequences` and about as many tokens as `limit` says, and
/// returns the indices in each pass. A sequence is never split: one that is longer than that makes its own pass. The passes have
/// similar numbers of tokens, and there are as many for each of `threads`, so that none waits for the last one.
pub(crate) fn plan_passes(
    lengths: &[usize],
    limit: PassLimit,
    max_sequences: usize,
    threads: usize,
) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| lengths[index]);
    let total: usize = lengths.iter().sum();
    let fewest = total.div_ceil(limit.tokens).max(1);
    let even = fewest.next_multiple_of(threads.max(1));
    let planned = if total / even >= FEWEST_TOKENS { even } else { fewest };
    let mut passes: Vec<Vec<usize>> = Vec::new();
    // The tokens of the last pass, and of all passes.
    let (mut tokens, mut placed) = (0, 0);
    for index in order {
        let length = lengths[index];
        // A sequence belongs to the pass whose share of all tokens holds its middle.
        let share_ends = if passes.len() < planned { total * passes.len() / planned } else { total };
        match passes.last_mut() {
            // Lengths rise, so this sequence would be the longest of the pass.
            Some(pass)
                if pass.len() < max_sequences
                    && limit.holds(pass.len() + 1, tokens + length, length)
                    && placed + length / 2 <= share_ends =>
            {
                pass.push(index);
                tokens += length;
            }
            _ => {
                passes.push(vec![index]);
                tokens = length;
            }
        }
        placed += length;
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RAGGED: PassLimit = PassLimit { tokens: TOKENS_PER_PASS, pads: false };

    proptest! {
        #[test]
        fn passes_hold_each_sequence_once_and_keep_both_limits(
            lengths in prop::collection::vec(0usize..1500, 0..200),
            max_sequences in 1usize..40,
            threads in 1usize..9,
            pads in any::<bool>(),
        ) {
            let limit = PassLimit { pads, ..RAGGED };
            let passes = plan_passes(&lengths, limit, max_sequences, threads);
            let mut seen: Vec<usize> = passes.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for pass in &passes {
                let tokens: usize = pass.iter().map(|&index| lengths[index]).sum();
                let longest = pass.iter().map(|&index| lengths[index]).max().unwrap_or_default();
                let rows = if pads { pass.len() * longest } else { tokens };
                prop_assert!(!pass.is_empty() && pass.len() <= max_sequences);
                prop_assert!(rows <= TOKENS_PER_PASS || pass.len() == 1);
            }
        }
    }

    #[test]
    fn passes_are_few_and_alike() {
        let tokens = |lengths: &[usize], threads| -> Vec<usize> {
            let passes = plan_passes(lengths, RAGGED, 256, threads);
            passes.iter().map(|pass| pass.iter().map(|&index| lengths[index]).sum()).collect()
        };
        assert_eq!(plan_passes(&[300, 10, 300, 290], RAGGED, 32, 1), [vec![1, 3, 0], vec![2]]);
        assert_eq!(tokens(&[100; 7], 1), [400, 300]);
        // Neither thread waits for the other one.
        assert_eq!(tokens(&[100; 32], 2), [500, 600, 500, 500, 600, 500]);
        assert_eq!(tokens(&[9; 64], 2), [288, 288]);
        // So few tokens are one pass, which all threads share.
        assert_eq!(tokens(&[9; 40], 2), [360]);
        assert!(tokens(&[], 2).is_empty());
    }

    #[test]
    fn short_texts_are_not_padded_to_the_length_of_a_long_one() {
        let mut lengths = vec![100; 31];
        lengths.push(8000);
        for (pads, passes) in [(false, 1), (true, 2)] {
            assert_eq!(plan_passes(&lengths, PassLimit { tokens: 16_384, pads }, 32, 1).len(), passes);
        }
    }
}
