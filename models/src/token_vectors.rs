//! A text token by token: vectors for late interaction, and which of them matter most.

use std::ops::Range;

use crate::{ModelError, pooling::normalise};

/// The vectors of a text's tokens, each in the context of all the others. The text's own tokens only: special tokens and
/// the prefix are seen by the model and not given back.
///
/// A text is ranked almost as well by half of its tokens as by all. IMPORTANCE_DOC
#[derive(Debug, Clone, PartialEq)]
pub struct TokenVectors {
    /// The vocabulary's number of each token.
    pub token_ids: Vec<u32>,
    /// The bytes of the text that each token stands for.
    pub offsets: Vec<Range<usize>>,
    /// Components of one token's vector.
    pub width: usize,
    /// The vectors one after the other, each of unit length.
    pub values: Vec<f32>,
    /// How much each token matters; comparable within a text alone.
    pub importance: Vec<f32>,
    /// The band of importance that each token fell into: 10 is among the most important tenth, 20 among the fifth, and so
    /// on to 100. Where tokens are alike the earlier one goes first.
    pub tiers: Vec<u8>,
}

impl TokenVectors {
    /// From the rows that a model gave for the tokens, one a token.
    pub(crate) fn from_rows(
        token_ids: Vec<u32>,
        offsets: Vec<Range<usize>>,
        width: usize,
        rows: Vec<f32>,
    ) -> Result<Self, ModelError> {
        let importance = importance(&rows, width)?;
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

    /// Whether the text has no tokens of its own: it is empty, white space or control characters.
    pub fn is_empty(&self) -> bool {
        self.token_ids.is_empty()
    }

    /// The vectors, token by token.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.width)
    }

    /// Which tokens to keep of a text when this share of them is to be, from 0 to 1: the most important ones, in the order
    /// of the text. At least one where there is any.
    pub fn most_important(&self, share: f64) -> Vec<usize> {
        let count = (share.clamp(0.0, 1.0) * self.len() as f64).ceil() as usize;
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

