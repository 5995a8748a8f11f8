use super::{LANES, sum_of};

/// Gain, offset and epsilon of a layer's normalisation.
#[derive(Debug, Clone)]
pub(crate) struct LayerNorm {
    pub gain: Vec<f32>,
    pub offset: Vec<f32>,
    pub epsilon: f32,
}

/// Normalises a row whose sum is that of `sums`.
#[inline(always)]
fn finish(row: &mut [f32], sums: [f32; LANES], norm: &LayerNorm) {
    let width = row.len() as f32;
    let mean = sum_of(sums) / width;
    let mut squares = [0f32; LANES];
    let (xs, tail) = row.as_chunks_mut::<LANES>();
    for x in xs {
        for i in 0..LANES {
            x[i] -= mean;
            squares[i] = x[i].mul_add(x[i], squares[i]);
        }
    }
    for (x, square) in tail.iter_mut().zip(&mut squares) {
        *x -= mean;
        *square = x.mul_add(*x, *square);
    }
    let scale = 1.0 / (sum_of(squares) / width + norm.epsilon).sqrt();
    for ((x, gain), offset) in row.iter_mut().zip(&norm.gain).zip(&norm.offset) {
        *x = (*x * scale).mul_add(*gain, *offset);
    }
}

#[inline(always)]
fn normalise_body(rows: &mut [f32], norm: &LayerNorm) {
    for row in rows.chunks_exact_mut(norm.gain.len()) {
        let mut sums = [0f32; LANES];
        let (xs, tail) = row.as_chunks::<LANES>();
        for x in xs {
            for i in 0..LANES {
                sums[i] += x[i];
            }
        }
        for (x, sum) in tail.iter().zip(&mut sums) {
            *sum += x;
        }
        finish(row, sums, norm);
    }
}
dispatch!(
    /// Normalises each row; a row is as wide as the norm.
    normalise, normalise_body, (rows: &mut [f32], norm: &LayerNorm));

#[inline(always)]
fn add_normalise_body(rows: &mut [f32], added: &[f32], norm: &LayerNorm) {
    let width = norm.gain.len();
    for (row, added) in rows.chunks_exact_mut(width).zip(added.chunks_exact(width)) {
        let mut sums = [0f32; LANES];
        {
            let ((xs, x_tail), (ys, y_tail)) = (row.as_chunks_mut::<LANES>(), added.as_chunks::<LANES>());
            for (x, y) in xs.iter_mut().zip(ys) {
                for i in 0..LANES {
                    x[i] += y[i];
                    sums[i] += x[i];
                }
            }
            for ((x, y), sum) in x_tail.iter_mut().zip(y_tail).zip(&mut sums) {
                *x += y;
                *sum += *x;
            }
        }
        finish(row, sums, norm);
    }
}
dispatch!(
    /// `rows = normalise(rows + added)`, row by row; a row is as wide as the norm.
    add_normalise, add_normalise_body, (rows: &mut [f32], added: &[f32], norm: &LayerNorm));

#[cfg(test)]
mod tests {
    use super::{super::samples::*, *};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn normalised_rows_are_those_of_the_textbook(rows in 1usize..5, width in 2usize..70, seed: u32) {
            let (x, y) = (values(rows * width, seed), values(rows * width, seed ^ 1));
            let norm = LayerNorm { gain: values(width, seed ^ 3), offset: values(width, seed ^ 4), epsilon: 1e-3 };
            let mut want = Vec::new();
            for row in 0..rows {
                let sum: Vec<f64> =
                    (0..width).map(|i| f64::from(x[row * width + i]) + f64::from(y[row * width + i])).collect();
                let mean = sum.iter().sum::<f64>() / width as f64;
                let variance = sum.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
                let scale = 1.0 / (variance + 1e-3).sqrt();
                want.extend((0..width).map(|i| (sum[i] - mean) * scale * f64::from(norm.gain[i]) + f64::from(norm.offset[i])));
            }
            let mut got = x.clone();
            add_normalise(&mut got, &y, &norm);
            close(&got, &want, 1e-4)?;
            let mut got: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            normalise(&mut got, &norm);
            close(&got, &want, 1e-4)?;
        }
    }
}
