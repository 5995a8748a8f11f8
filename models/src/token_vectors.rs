//! A text token by token: vectors for late interaction, and which of them matter most.

use crate::{ModelError, pooling::normalise};
use std::ops::Range;

/// The vectors of a text's tokens, each in the context of all the others. Only the text's own tokens have vectors; the
/// model sees special tokens and the prefix, but their vectors are not returned.
///
/// A token's importance is the length of its row before that is scaled to unit length: words that carry a text have
/// long rows. This needs no other text and costs nothing, whereas attention received would have to be kept, which no
/// pass does. On Cranfield with all-MiniLM-L6-v2 (75 questions), keeping half of the tokens by this measure keeps 8.1
/// of a question's first ten MaxSim results. The other measures keep 7.2 (attention received in the last layer), 7.7
/// (in the last three), 7.7 (by chance) and 5.6 (likeness to the text's vector). nDCG@10 is .360, .368, .351, .348 and
/// .307; with all tokens it is .374. Of three tenths, attention in the last three layers keeps most: 6.9 against 6.5,
/// and .349 against .342. `encoder/importance` of the benches prints this.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenVectors {
    /// The id of each token in the vocabulary.
    pub token_ids: Vec<u32>,
    /// The bytes of the text that each token stands for.
    pub offsets: Vec<Range<usize>>,
    /// The number of components in one token's vector.
    pub width: usize,
    /// The vectors one after the other, each of unit length.
    pub values: Vec<f32>,
    /// How much each token matters; comparable only within a text.
    pub importance: Vec<f32>,
    /// The band of importance of each token: 10 if it is among the most important tenth, 20 if among the most important
    /// fifth, and so on to 100. Of equal tokens the earlier one goes first.
    pub tiers: Vec<u8>,
}

impl TokenVectors {
    /// Makes the vectors from the rows that a model gave, one per token.
    pub(crate) fn from_rows(
        token_ids: Vec<u32>,
        offsets: Vec<Range<usize>>,
        width: usize,
        rows: Vec<f32>,
    ) -> Result<Self, ModelError> {
        let importance = importance(&rows, width);
        let mut values = rows;
        values.chunks_exact_mut(width.max(1)).try_for_each(normalise)?;
        let mut tiers = vec![0; importance.len()];
        let order = by_importance(&importance);
        for (place, &token) in order.iter().enumerate() {
            tiers[token] = ((place * 10 / order.len() + 1) * 10) as u8;
        }
        Ok(Self { token_ids, offsets, width, values, importance, tiers })
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.token_ids.len()
    }

    /// Whether the text has no tokens of its own because it is empty, white space or control characters.
    pub fn is_empty(&self) -> bool {
        self.token_ids.is_empty()
    }

    /// The vectors, token by token.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.width)
    }

    /// The tokens to keep of a text if this share of them, from 0 to 1, should be kept: the most important ones, in the
    /// order of the text. At least one is kept if there is any.
    pub fn most_important(&self, share: f64) -> Vec<usize> {
        // The small subtraction makes 0.55 of 100 equal 55 in binary too.
        let count = (share.clamp(0.0, 1.0) * self.len() as f64 - 1e-9).ceil() as usize;
        let mut kept = by_importance(&self.importance);
        kept.truncate(count.max(1));
        kept.sort_unstable();
        kept
    }
}

fn by_importance(importance: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..importance.len()).collect();
    order.sort_by(|&left, &right| importance[right].total_cmp(&importance[left]).then(left.cmp(&right)));
    order
}

/// The length of each token's row before that is scaled to unit length.
fn importance(rows: &[f32], width: usize) -> Vec<f32> {
    let length = |row: &[f32]| row.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt() as f32;
    rows.chunks_exact(width.max(1)).map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(rows: Vec<f32>, width: usize) -> TokenVectors {
        let tokens = rows.len() / width;
        TokenVectors::from_rows((0..tokens as u32).collect(), (0..tokens).map(|at| at..at + 1).collect(), width, rows)
            .unwrap()
    }

    #[test]
    fn a_token_counts_by_the_length_of_its_row() {
        let vectors = of(vec![3.0, 4.0, 0.6, 0.8, 0.0, 2.0, 2.0, 0.0], 2);
        assert_eq!(vectors.importance, [5.0, 1.0, 2.0, 2.0]);
        assert_eq!(vectors.values, [0.6, 0.8, 0.6, 0.8, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(vectors.tiers, [10, 80, 30, 60]);
        assert_eq!(vectors.most_important(0.5), [0, 2]);
        assert_eq!(vectors.most_important(0.0), [0]);
        assert_eq!(vectors.most_important(7.0), [0, 1, 2, 3]);
        assert_eq!(of(Vec::new(), 2).most_important(0.5), [0usize; 0]);
    }

    #[test]
    fn a_row_without_a_direction_is_an_error() {
        for row in [[0.0, 0.0], [f32::NAN, 1.0]] {
            let vectors = TokenVectors::from_rows(vec![1], vec![0..1; 1], 2, row.to_vec());
            assert!(matches!(vectors, Err(ModelError::NoDirection { .. })), "{row:?}");
        }
    }

    proptest! {
        #[test]
        fn tiers_are_tenths_and_agree_with_what_is_kept(lengths in prop::collection::vec(1u8..20, 1..200), tenth in 1usize..=10) {
            let vectors = of(lengths.iter().map(|&length| f32::from(length)).collect(), 1);
            let tier = tenth * 10;
            let kept = vectors.most_important(tenth as f64 / 10.0);
            let in_tiers: Vec<usize> = (0..vectors.len()).filter(|&token| usize::from(vectors.tiers[token]) <= tier).collect();
            prop_assert_eq!(&kept, &in_tiers);
            prop_assert_eq!(kept.len(), (lengths.len() * tenth).div_ceil(10));
            let least = kept.iter().map(|&token| lengths[token]).min();
            let most_left_out = (0..lengths.len()).filter(|token| !kept.contains(token)).map(|token| lengths[token]).max();
            prop_assert!(most_left_out.is_none() || most_left_out <= least);
        }
    }
}
