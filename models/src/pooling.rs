use crate::ModelError;
use serde::Deserialize;
use std::{fmt, ops::RangeInclusive};

/// How the rows of a text's tokens become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Pooling {
    /// The mean over all tokens, including special tokens.
    Mean,
    /// The first token's row.
    Cls,
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
        })
    }
}

/// The vector of a text of its own, not of a token.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// It has unit length and is padded with zeros.
    pub vector: Vec<f32>,
    /// How much the text counts beside others when one vector stands for all of them: the length of the sum of its tokens' rows. With
    /// this weight, the sum over the parts of a text points where the sum over all of their tokens does. Where only the first token's row
    /// is used, there is no such sum, and the weight is the number of tokens.
    pub weight: f32,
}

impl Embedding {
    /// The embedding of texts that together are one: the sum of their vectors by their weights; `None` if there are none, or if
    /// they cancel out.
    pub fn sum(parts: Vec<Self>) -> Option<Self> {
        if parts.len() < 2 {
            return parts.into_iter().next();
        }
        let mut sum = vec![0f32; parts.iter().map(|part| part.vector.len()).max()?];
        for Self { vector, weight } in &parts {
            sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value * weight);
        }
        let weight = length(&sum).ok()? as f32;
        normalise(&mut sum).ok()?;
        Some(Self { vector: sum, weight })
    }

    /// Makes an embedding from the pooled row of a text of this many tokens.
    pub(crate) fn of(row: &[f32], pooling: Pooling, tokens: usize, width: usize) -> Result<Self, ModelError> {
        let mut vector = vec![0f32; width.max(row.len())];
        vector[..row.len()].copy_from_slice(row);
        normalise(&mut vector[..row.len()])?;
        let weight = match pooling {
            Pooling::Mean => length(row)? as f32,
            Pooling::Cls => tokens as f32,
        };
        Ok(Self { vector, weight })
    }
}

/// Whether a row can be scaled to unit length.
pub(crate) fn has_direction(row: &[f32]) -> bool {
    length(row).is_ok()
}

/// The lengths that a weight can have: a greater one would be stored as infinity.
const LENGTHS: RangeInclusive<f64> = 1e-12..=f32::MAX as f64;

fn length(row: &[f32]) -> Result<f64, ModelError> {
    let length = row.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt();
    if !LENGTHS.contains(&length) {
        return Err(ModelError::NoDirection { texts: vec![0] });
    }
    Ok(length)
}

/// Scales `vector` to unit length.
pub(crate) fn normalise(vector: &mut [f32]) -> Result<(), ModelError> {
    let scale = 1.0 / length(vector)?;
    for value in vector {
        *value = (f64::from(*value) * scale) as f32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedding_has_unit_length_and_zero_padding_and_weighs_what_its_rows_sum_up_to() {
        let of = |row: &[f32], pooling| Embedding::of(row, pooling, 2, 4).unwrap();
        assert_eq!(of(&[6.0, 0.0], Pooling::Mean), Embedding { vector: vec![1.0, 0.0, 0.0, 0.0], weight: 6.0 });
        assert_eq!(of(&[3.0, 4.0], Pooling::Cls), Embedding { vector: vec![0.6, 0.8, 0.0, 0.0], weight: 2.0 });
    }

    #[test]
    fn the_sum_of_the_parts_of_a_text_points_where_the_sum_of_its_rows_does() {
        let rows = [[3.0, 4.0], [3.0, -4.0], [0.5, 2.0], [-2.0, 5.0], [1.0, 1.0]];
        let of = |rows: &[[f32; 2]]| {
            let sum = [0, 1].map(|at| rows.iter().map(|row| row[at]).sum());
            Embedding::of(&sum, Pooling::Mean, rows.len(), 2).unwrap()
        };
        let (sum, all) = (Embedding::sum(vec![of(&rows[..2]), of(&rows[2..4]), of(&rows[4..])]).unwrap(), of(&rows));
        assert!(
            (sum.weight - all.weight).abs() < 1e-5 && (sum.vector[0] - all.vector[0]).abs() < 1e-6,
            "{sum:?} {all:?}"
        );
        assert_eq!(Embedding::sum(vec![all.clone()]), Some(all));
        let opposite = [1.0, -1.0].map(|x| Embedding { vector: vec![x], weight: 2.0 });
        assert_eq!((Embedding::sum(Vec::new()), Embedding::sum(opposite.to_vec())), (None, None));
    }

    #[test]
    fn a_row_without_a_direction_is_an_error_not_a_nan() {
        for row in [&[0.0, 0.0][..], &[f32::NAN, 1.0], &[f32::INFINITY, 1.0], &[f32::MAX, f32::MAX], &[]] {
            let made = Embedding::of(row, Pooling::Mean, 1, 2);
            assert!(matches!(made, Err(ModelError::NoDirection { .. })) && !has_direction(row), "{row:?}");
        }
    }
}
