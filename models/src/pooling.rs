use crate::ModelError;
use serde::Deserialize;
use std::fmt;

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

/// Makes a vector of unit length from a pooled row, padded with zeros to `width`.
pub(crate) fn unit(row: &[f32], width: usize) -> Result<Vec<f32>, ModelError> {
    let mut vector = vec![0f32; width.max(row.len())];
    let head = &mut vector[..row.len()];
    head.copy_from_slice(row);
    normalise(head)?;
    Ok(vector)
}

/// Scales `vector` to unit length.
pub(crate) fn normalise(vector: &mut [f32]) -> Result<(), ModelError> {
    let norm = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt();
    if !norm.is_finite() || norm < 1e-12 {
        return Err(ModelError::NoDirection { texts: vec![0] });
    }
    let scale = 1.0 / norm;
    for value in vector {
        *value = (f64::from(*value) * scale) as f32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_has_unit_length_and_zero_padding() {
        assert_eq!(unit(&[6.0, 0.0], 4).unwrap(), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(unit(&[3.0, 4.0], 4).unwrap(), [0.6, 0.8, 0.0, 0.0]);
    }

    #[test]
    fn a_row_without_a_direction_is_an_error_not_a_nan() {
        for row in [&[0.0, 0.0][..], &[f32::NAN, 1.0], &[f32::INFINITY, 1.0], &[]] {
            assert!(matches!(unit(row, 2), Err(ModelError::NoDirection { .. })), "{row:?}");
        }
    }
}
