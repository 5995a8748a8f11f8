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

/// Groups sequences of similar length into passes of at most `max_sequences` and about `max_tokens`, and returns the
/// indices in each pass. A sequence is never split: one that is longer than `max_tokens` makes its own pass. The passes have
/// similar numbers of tokens, and there are as many for each of `threads`, so that none waits for the last one.
pub(crate) fn plan_passes(
    lengths: &[usize],
    max_tokens: usize,
    max_sequences: usize,
    threads: usize,
) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| lengths[index]);
    let total: usize = lengths.iter().sum();
    let fewest = total.div_ceil(max_tokens).max(1);
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
            Some(pass)
                if pass.len() < max_sequences && tokens + length <= max_tokens && placed + length / 2 <= share_ends =>
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

    proptest! {
        #[test]
        fn passes_hold_each_sequence_once_and_keep_both_limits(
            lengths in prop::collection::vec(0usize..1500, 0..200),
            max_sequences in 1usize..40,
            threads in 1usize..9,
        ) {
            let passes = plan_passes(&lengths, TOKENS_PER_PASS, max_sequences, threads);
            let mut seen: Vec<usize> = passes.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for pass in &passes {
                let tokens: usize = pass.iter().map(|&index| lengths[index]).sum();
                prop_assert!(!pass.is_empty() && pass.len() <= max_sequences);
                prop_assert!(tokens <= TOKENS_PER_PASS || pass.len() == 1);
            }
        }
    }

    #[test]
    fn passes_are_few_and_alike() {
        let tokens = |lengths: &[usize], threads| -> Vec<usize> {
            let passes = plan_passes(lengths, TOKENS_PER_PASS, 256, threads);
            passes.iter().map(|pass| pass.iter().map(|&index| lengths[index]).sum()).collect()
        };
        assert_eq!(plan_passes(&[300, 10, 300, 290], TOKENS_PER_PASS, 32, 1), [vec![1, 3, 0], vec![2]]);
        assert_eq!(tokens(&[100; 7], 1), [400, 300]);
        // Neither thread waits for the other one.
        assert_eq!(tokens(&[100; 32], 2), [500, 600, 500, 500, 600, 500]);
        assert_eq!(tokens(&[9; 64], 2), [288, 288]);
        // So few tokens are one pass, which all threads share.
        assert_eq!(tokens(&[9; 40], 2), [360]);
        assert!(tokens(&[], 2).is_empty());
    }
}
