//! Late interaction: each token of a query is matched with the nearest token of a document.
use crate::kernels;
use half::{f16, slice::HalfFloatSliceExt};

/// The numbers of a pack, which are half-precision and little-endian.
pub fn unpack(pack: &[u8]) -> Vec<f32> {
    let halves: Vec<f16> = pack.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes)).collect();
    halves.to_f32_vec()
}

/// Returns the sum, over the rows of `query`, of the largest inner product with any row of `document`. Rows have `width`
/// numbers, a multiple of 16. A document without rows adds nothing.
pub fn sum_of_nearest(query: &[f32], document: &[f32], width: usize) -> f64 {
    if width == 0 || document.len() < width {
        return 0.0;
    }
    let mut best = vec![f32::NEG_INFINITY; query.len() / width];
    kernels::nearest(query, document, width, &mut best);
    best.into_iter().map(f64::from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(at: usize) -> [f32; 16] {
        std::array::from_fn(|place| if place == at { 1.0 } else { 0.0 })
    }

    #[test]
    fn each_token_of_the_query_counts_its_nearest() {
        let query = [axis(0), axis(1), axis(2)].concat();
        let mut half = axis(1);
        half[1] = 0.5;
        assert_eq!(sum_of_nearest(&query, &[axis(0), axis(5), half].concat(), 16), 1.5);
        assert_eq!(sum_of_nearest(&query, &[], 16), 0.0);
        assert_eq!(sum_of_nearest(&query, &query, 0), 0.0);
        let pack = [f16::from_f32(0.25).to_le_bytes(), f16::from_f32(-2.0).to_le_bytes()].concat();
        assert_eq!(unpack(&pack), [0.25, -2.0]);
    }
}
