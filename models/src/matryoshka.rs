use crate::{ModelError, ModelInfo, TokenVectors, pooling::normalise};

/// Returns the first `width` components of a vector, scaled to unit length: a shorter vector as models trained as
/// Matryoshkas mean it. `is_centred` is for a model whose card applies a layer norm before the cut
/// (nomic-embed-text-v1.5): the mean of all `native_width` components is subtracted, and the norm's scale would vanish
/// in the last step anyway.
///
/// `vector` may be padded with zeros beyond `native_width`. A greater `width` changes nothing but the centre.
fn shorten(vector: &[f32], native_width: usize, width: usize, is_centred: bool) -> Result<Vec<f32>, ModelError> {
    let vector = &vector[..native_width.min(vector.len())];
    let mean = match is_centred {
        true => (vector.iter().map(|&value| f64::from(value)).sum::<f64>() / vector.len().max(1) as f64) as f32,
        false => 0.0,
    };
    let mut short: Vec<f32> = vector.iter().take(width).map(|value| value - mean).collect();
    normalise(&mut short)?;
    Ok(short)
}

impl ModelInfo {
    /// Returns the first `width` components of a vector of this model, scaled to unit length. How good they are depends
    /// on the model: one that was trained for it lists such widths in its card.
    pub fn shorten(&self, vector: &[f32], width: usize) -> Result<Vec<f32>, ModelError> {
        shorten(vector, self.native_width, width, self.is_centred)
    }
}

impl TokenVectors {
    /// Cuts each token's vector to its first `width` components, scaled to unit length. A `width` of the model's own or
    /// more changes nothing.
    pub fn shortened(&self, width: usize) -> Result<Self, ModelError> {
        let width = width.min(self.width);
        let mut values = Vec::with_capacity(self.len() * width);
        for row in self.rows() {
            values.extend_from_slice(&row[..width]);
        }
        values.chunks_exact_mut(width).try_for_each(normalise)?;
        Ok(Self { width, values, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_vector_is_its_first_components_at_unit_length() {
        assert_eq!(shorten(&[0.3, 0.4, 0.5, 0.0], 3, 2, false).unwrap(), [0.6, 0.8]);
        assert_eq!(shorten(&[0.6, 0.8, 0.0, 0.0], 2, 512, false).unwrap(), [0.6, 0.8]);
        assert!(matches!(shorten(&[0.0, 0.0, 1.0], 3, 2, false), Err(ModelError::NoDirection { .. })));
        assert!(matches!(shorten(&[], 0, 2, true), Err(ModelError::NoDirection { .. })));
    }

    #[test]
    fn the_centre_is_that_of_the_layer_norm_over_all_components() {
        // Computed by hand: normalise(layer_norm([4, 0, 1, 3])[..2]), where the mean is 2.
        let unit: Vec<f32> = [4.0, 0.0, 1.0, 3.0].iter().map(|x| x / 26f32.sqrt()).collect();
        let short = shorten(&unit, 4, 2, true).unwrap();
        let half = std::f32::consts::FRAC_1_SQRT_2;
        assert!((short[0] - half).abs() < 1e-6 && (short[1] + half).abs() < 1e-6, "{short:?}");
    }

    #[test]
    fn token_vectors_are_shortened_one_by_one() {
        let rows = vec![0.6, 0.0, 0.8, 0.0, 1.0, 0.0];
        let vectors = TokenVectors::from_rows(vec![7, 9], vec![0..1, 1..2], 3, rows).unwrap();
        let short = vectors.shortened(2).unwrap();
        assert_eq!((short.width, &short.values[..]), (2, &[1.0, 0.0, 0.0, 1.0][..]));
        assert_eq!(vectors.shortened(3).unwrap(), vectors);
    }
}
