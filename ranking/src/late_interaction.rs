//! Late interaction: each token of a query is matched with the nearest token of a document.
use half::{f16, slice::HalfFloatSliceExt};

/// The numbers of a pack, which are half-precision and little-endian.
pub fn unpack(pack: &[u8]) -> Vec<f32> {
    let halves: Vec<f16> = pack.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes)).collect();
    halves.to_f32_vec()
}

/// Returns the sum, over the rows of `query`, of the largest dot product with any row of `document`. Rows have `width`
/// numbers, a multiple of 16. A document without rows adds nothing.
pub fn sum_of_nearest(query: &[f32], document: &[f32], width: usize) -> f64 {
    if width == 0 {
        return 0.0;
    }
    let nearest = |asked: &[f32]| document.chunks_exact(width).map(|row| dot(asked, row)).reduce(f32::max);
    query.chunks_exact(width).filter_map(nearest).map(f64::from).sum()
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    // The compiler turns these parallel sums into vector instructions.
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    for (left, right) in left.as_chunks::<LANES>().0.iter().zip(right.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += left[lane] * right[lane];
        }
    }
    sums.iter().sum()
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
