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

/// Groups sequences of similar length into passes of at most `max_sequences` and about `max_tokens`, and returns the
/// indices in each pass. A sequence is never split: one that is longer than `max_tokens` makes its own pass.
pub(crate) fn plan_passes(lengths: &[usize], max_tokens: usize, max_sequences: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| lengths[index]);
    let mut passes: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for index in order {
        match passes.last_mut() {
            Some(pass) if pass.len() < max_sequences && tokens + lengths[index] <= max_tokens => {
                pass.push(index);
                tokens += lengths[index];
            }
            _ => {
                passes.push(vec![index]);
                tokens = lengths[index];
            }
        }
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
        ) {
            let passes = plan_passes(&lengths, TOKENS_PER_PASS, max_sequences);
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
    fn a_pass_is_filled_before_the_next_is_begun() {
        assert_eq!(plan_passes(&[300, 10, 300, 290], 600, 32), [vec![1, 3, 0], vec![2]]);
    }
}
