//! Which row of a document is nearest to each row of a query.
use super::LANES;

/// How many rows of the query are compared with each row that is loaded. Their sums stay in registers.
const AT_ONCE: usize = 4;

/// Raises each of the `N` best products to the largest product with any row.
#[inline(always)]
fn compare<const N: usize>(asked: &[f32], rows: &[f32], width: usize, best: &mut [f32]) {
    let asked: [&[[f32; LANES]]; N] = std::array::from_fn(|n| asked[n * width..][..width].as_chunks().0);
    for row in rows.chunks_exact(width) {
        let mut sums = [[0f32; LANES]; N];
        for (at, x) in row.as_chunks::<LANES>().0.iter().enumerate() {
            for n in 0..N {
                let y = &asked[n][at];
                for i in 0..LANES {
                    sums[n][i] = x[i].mul_add(y[i], sums[n][i]);
                }
            }
        }
        for n in 0..N {
            best[n] = best[n].max(sums[n].iter().sum());
        }
    }
}

#[inline(always)]
fn nearest_body(asked: &[f32], rows: &[f32], width: usize, best: &mut [f32]) {
    let (many, few) = (asked.chunks_exact(AT_ONCE * width), best.len() / AT_ONCE * AT_ONCE);
    let (best, last) = best.split_at_mut(few);
    let rest = many.remainder();
    for (asked, best) in many.zip(best.chunks_exact_mut(AT_ONCE)) {
        compare::<AT_ONCE>(asked, rows, width, best);
    }
    for (asked, best) in rest.chunks_exact(width).zip(last.chunks_exact_mut(1)) {
        compare::<1>(asked, rows, width, best);
    }
}
dispatch!(
    /// Raises each number of `best`, of which there is one for each row of `asked`, to the largest inner product of that row with any of
    /// `rows`. A row has `width` numbers, which is not 0; those behind the last whole sixteen do not count.
    nearest, nearest_body, (asked: &[f32], rows: &[f32], width: usize, best: &mut [f32]));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::{close, values};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_row_has_its_largest_product(asked in 0usize..11, rows in 1usize..9, lines in 1usize..5, seed: u32) {
            let width = lines * LANES;
            let (query, document) = (values(asked * width, seed), values(rows * width, seed.wrapping_add(1)));
            let mut best = vec![f32::NEG_INFINITY; asked];
            nearest(&query, &document, width, &mut best);
            let mut plain = vec![f32::NEG_INFINITY; asked];
            nearest_body(&query, &document, width, &mut plain);
            let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let largest = |asked: &[f32]| {
                document.chunks_exact(width).map(|row| product(asked, row)).fold(f64::NEG_INFINITY, f64::max)
            };
            let wanted: Vec<f64> = query.chunks_exact(width).map(largest).collect();
            close(&best, &wanted, 1e-2)?;
            close(&plain, &wanted, 1e-2)?;
        }
    }
}
