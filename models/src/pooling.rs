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

/// Makes one vector of unit length, padded with zeros to `width`, from the rows of one text's tokens.
pub(crate) fn pool(pooling: Pooling, rows: &[f32], hidden: usize, width: usize) -> Result<Vec<f32>, ModelError> {
    let mut vector = vec![0f32; width.max(hidden)];
    let head = &mut vector[..hidden];
    match pooling {
        // The sum points where the mean points, and the length is set below.
        Pooling::Mean => {
            for row in rows.chunks_exact(hidden) {
                for (sum, value) in head.iter_mut().zip(row) {
                    *sum += value;
                }
            }
        }
        Pooling::Cls => {
            if let Some(row) = rows.chunks_exact(hidden).next() {
                head.copy_from_slice(row);
            }
        }
    }
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
    fn mean_and_cls_differ_and_both_have_unit_length_and_zero_padding() {
        let rows = [3.0, 4.0, 3.0, -4.0];
        assert_eq!(pool(Pooling::Mean, &rows, 2, 4).unwrap(), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(pool(Pooling::Cls, &rows, 2, 4).unwrap(), [0.6, 0.8, 0.0, 0.0]);
    }

    #[test]
    fn rows_without_a_direction_are_an_error_not_a_nan() {
        for rows in [[0.0, 0.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0]] {
            assert!(matches!(pool(Pooling::Mean, &rows, 2, 2), Err(ModelError::NoDirection { .. })), "{rows:?}");
        }
        assert!(matches!(pool(Pooling::Cls, &[], 2, 2), Err(ModelError::NoDirection { .. })));
    }
}
