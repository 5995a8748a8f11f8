//! What stands between the matrix products, on plain slices: written so that LLVM vectorises it, compiled three times
//! (AVX-512, AVX2 with FMA, and whatever the target has), chosen at run time. The only unsafe code of the crate.
#![expect(unsafe_code, reason = "calls of functions compiled for features checked at run time, and gemm's pointers")]

/// Lanes of one accumulator: one AVX-512 register, two of AVX2.
const LANES: usize = 16;

/// exp for x <= 88, about 2 ulp, without a branch; below -87 it is exp(-87).
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 leaves the rounded exponent in the low bits of the mantissa.
    const SHIFT: f32 = 12_582_912.0;
    // Not f32::max: the comparison compiles to one instruction, max to three.
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let exponent = shifted - SHIFT;
    // ln 2 in two parts, so that the remainder is exact.
    let r = exponent.mul_add(-0.693_359_4, x);
    let r = exponent.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4_f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let y = (r * r).mul_add(p, r) + 1.0;
    y * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

/// GELU with erf by Abramowitz and Stegun 7.1.26, whose error is at most 1.5e-7.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let z = x * std::f32::consts::FRAC_1_SQRT_2;
    let a = z.abs();
    let t = 1.0 / 0.327_591_1_f32.mul_add(a, 1.0);
    let mut p = 1.061_405_4_f32;
    p = p.mul_add(t, -1.453_152);
    p = p.mul_add(t, 1.421_413_7);
    p = p.mul_add(t, -0.284_496_74);
    p = p.mul_add(t, 0.254_829_6);
    let erf = 1.0 - p * t * exp(-a * a);
    0.5 * x * (1.0 + erf.copysign(z))
}

/// One body, three instances.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident, $body:ident, ($($argument:ident : $type:ty),*)) => {
        $(#[$doc])*
        pub(crate) fn $name($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma")]
                fn v4($($argument: $type),*) { $body($($argument),*) }
                #[target_feature(enable = "avx2,fma")]
                fn v3($($argument: $type),*) { $body($($argument),*) }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("fma")
                {
                    // SAFETY: the features were just detected.
                    return unsafe { v4($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the features were just detected.
                    return unsafe { v3($($argument),*) };
                }
            }
            $body($($argument),*)
        }
    };
}

#[inline(always)]
fn add_bias_body(rows: &mut [f32], bias: &[f32]) {
    for row in rows.chunks_exact_mut(bias.len()) {
        for (x, b) in row.iter_mut().zip(bias) {
            *x += *b;
        }
    }
}
dispatch!(
    /// Adds `bias` to each row.
    add_bias, add_bias_body, (rows: &mut [f32], bias: &[f32]));

#[inline(always)]
fn add_bias_gelu_body(rows: &mut [f32], bias: &[f32]) {
    for row in rows.chunks_exact_mut(bias.len()) {
        for (x, b) in row.iter_mut().zip(bias) {
            *x = gelu(*x + *b);
        }
    }
}
dispatch!(
    /// GELU of each row with `bias` added.
    add_bias_gelu, add_bias_gelu_body, (rows: &mut [f32], bias: &[f32]));

/// Gain, offset and epsilon of a layer's normalisation.
#[derive(Debug, Clone)]
pub(crate) struct LayerNorm {
    pub gain: Vec<f32>,
    pub offset: Vec<f32>,
    pub epsilon: f32,
}

#[inline(always)]
fn add_normalise_body(rows: &mut [f32], added: &[f32], bias: &[f32], norm: &LayerNorm) {
    let width = bias.len();
    for (row, added) in rows.chunks_exact_mut(width).zip(added.chunks_exact(width)) {
        let mut lanes = [0f32; LANES];
        {
            let ((xs, x_tail), (ys, y_tail), (bs, b_tail)) =
                (row.as_chunks_mut::<LANES>(), added.as_chunks::<LANES>(), bias.as_chunks::<LANES>());
            for ((x, y), b) in xs.iter_mut().zip(ys).zip(bs) {
                for i in 0..LANES {
                    let value = x[i] + y[i] + b[i];
                    x[i] = value;
                    lanes[i] += value;
                }
            }
            for (((x, y), b), lane) in x_tail.iter_mut().zip(y_tail).zip(b_tail).zip(&mut lanes) {
                *x += y + b;
                *lane += *x;
            }
        }
        let mean = lanes.iter().sum::<f32>() / width as f32;
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
        let scale = 1.0 / (squares.iter().sum::<f32>() / width as f32 + norm.epsilon).sqrt();
        for ((x, gain), offset) in row.iter_mut().zip(&norm.gain).zip(&norm.offset) {
            *x = (*x * scale).mul_add(*gain, *offset);
        }
    }
}
dispatch!(
    /// `rows = normalise(rows + added + bias)`, row by row; a row is as wide as `bias`.
    add_normalise, add_normalise_body, (rows: &mut [f32], added: &[f32], bias: &[f32], norm: &LayerNorm));

#[inline(always)]
fn softmax_body(rows: &mut [f32], width: usize, scale: f32) {
    for row in rows.chunks_exact_mut(width) {
        let (xs, tail) = row.as_chunks_mut::<LANES>();
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for x in xs.iter() {
            for i in 0..LANES {
                lanes[i] = if x[i] > lanes[i] { x[i] } else { lanes[i] };
            }
        }
        let greatest = lanes.iter().chain(tail.iter()).copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sums = [0f32; LANES];
        for x in xs {
            for i in 0..LANES {
                x[i] = exp((x[i] - greatest) * scale);
                sums[i] += x[i];
            }
        }
        for (x, sum) in tail.iter_mut().zip(&mut sums) {
            *x = exp((*x - greatest) * scale);
            *sum += *x;
        }
        let inverse = 1.0 / sums.iter().sum::<f32>();
        for x in row {
            *x *= inverse;
        }
    }
}
dispatch!(
    /// Softmax of each row of `width`, its values multiplied by `scale` (positive) before.
    softmax, softmax_body, (rows: &mut [f32], width: usize, scale: f32));

/// A matrix read in place.
#[derive(Clone, Copy)]
struct View<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl View<'_> {
    fn is_inside(&self) -> bool {
        is_inside(self.data.len(), self.rows, self.columns, self.row_stride, self.column_stride)
    }
}

fn is_inside(length: usize, rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> bool {
    rows > 0 && columns > 0 && (rows - 1) * row_stride + (columns - 1) * column_stride < length
}

/// `out = left * right`; the rows of `out` stand `out_stride` apart.
fn multiply(out: &mut [f32], out_stride: usize, left: View<'_>, right: View<'_>) {
    assert!(left.columns == right.rows && left.is_inside() && right.is_inside());
    assert!(right.columns <= out_stride && is_inside(out.len(), left.rows, right.columns, out_stride, 1));
    // SAFETY: the three matrices lie inside their slices (asserted), and `out` is borrowed mutably, so it overlaps neither.
    unsafe {
        gemm::gemm(
            left.rows,
            right.columns,
            left.columns,
            out.as_mut_ptr(),
            1,
            out_stride as isize,
            false,
            left.data.as_ptr(),
            left.column_stride as isize,
            left.row_stride as isize,
            right.data.as_ptr(),
            right.column_stride as isize,
            right.row_stride as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Queries handled at once: bounds the score matrix to this many rows however long the sequence is.
const QUERY_ROWS: usize = 128;

/// Attention inside each sequence. `qkv` has a row `[queries | keys | values]` per token, `out` a row of
/// `heads * head_width`; heads are read and written where they lie.
pub(crate) fn attention(
    qkv: &[f32],
    out: &mut [f32],
    sequences: &[std::ops::Range<usize>],
    heads: usize,
    head_width: usize,
) {
    let hidden = heads * head_width;
    let scale = 1.0 / (head_width as f32).sqrt();
    let longest = sequences.iter().map(|sequence| sequence.len()).max().unwrap_or(0);
    let mut scores = vec![0f32; QUERY_ROWS.min(longest) * longest];
    for sequence in sequences {
        let length = sequence.len();
        for head in 0..heads {
            let tokens = &qkv[sequence.start * 3 * hidden..sequence.end * 3 * hidden];
            for first in (0..length).step_by(QUERY_ROWS) {
                let rows = QUERY_ROWS.min(length - first);
                let scores = &mut scores[..rows * length];
                let part =
                    |first: usize, third: usize| &tokens[first * 3 * hidden + third * hidden + head * head_width..];
                let queries =
                    View { data: part(first, 0), rows, columns: head_width, row_stride: 3 * hidden, column_stride: 1 };
                let keys = View {
                    data: part(0, 1),
                    rows: head_width,
                    columns: length,
                    row_stride: 1,
                    column_stride: 3 * hidden,
                };
                let values = View {
                    data: part(0, 2),
                    rows: length,
                    columns: head_width,
                    row_stride: 3 * hidden,
                    column_stride: 1,
                };
                multiply(scores, length, queries, keys);
                softmax(scores, length, scale);
                let weights = View { data: scores, rows, columns: length, row_stride: length, column_stride: 1 };
                multiply(&mut out[(sequence.start + first) * hidden + head * head_width..], hidden, weights, values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 * 4.0 - 4.0
            })
            .collect()
    }

    fn close(got: &[f32], want: &[f64], tolerance: f64) -> Result<(), TestCaseError> {
        prop_assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            prop_assert!((f64::from(*got) - want).abs() <= tolerance, "{} where {} was due", got, want);
        }
        Ok(())
    }

    /// erf by its series, in f64; good for |x| below 5.
    fn erf(x: f64) -> f64 {
        if x.abs() > 5.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn gelu_follows_erf_over_its_whole_range() {
        for step in -2000..=2000 {
            let x = step as f32 / 200.0;
            let want = 0.5 * f64::from(x) * (1.0 + erf(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2));
            assert!((f64::from(gelu(x)) - want).abs() < 1e-6, "gelu({x}) = {} where {want} was due", gelu(x));
        }
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
    }

    proptest! {
        #[test]
        fn bias_and_gelu_are_those_of_the_scalar_body(rows in 1usize..5, width in 1usize..70, seed: u32) {
            let (x, bias) = (values(rows * width, seed), values(width, seed ^ 1));
            let sums: Vec<f64> = x.iter().zip(bias.iter().cycle()).map(|(x, b)| f64::from(x + b)).collect();
            let mut added = x.clone();
            add_bias(&mut added, &bias);
            close(&added, &sums, 0.0)?;
            let mut activated = x;
            add_bias_gelu(&mut activated, &bias);
            let want: Vec<f64> = sums.iter().map(|x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))).collect();
            close(&activated, &want, 2e-6)?;
        }

        #[test]
        fn normalised_rows_are_those_of_the_textbook(rows in 1usize..5, width in 2usize..70, seed: u32) {
            let (x, y, bias) = (values(rows * width, seed), values(rows * width, seed ^ 1), values(width, seed ^ 2));
            let norm = LayerNorm { gain: values(width, seed ^ 3), offset: values(width, seed ^ 4), epsilon: 1e-3 };
            let mut want = Vec::new();
            for row in 0..rows {
                let sum: Vec<f64> =
                    (0..width).map(|i| f64::from(x[row * width + i]) + f64::from(y[row * width + i]) + f64::from(bias[i])).collect();
                let mean = sum.iter().sum::<f64>() / width as f64;
                let variance = sum.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
                let scale = 1.0 / (variance + 1e-3).sqrt();
                want.extend((0..width).map(|i| (sum[i] - mean) * scale * f64::from(norm.gain[i]) + f64::from(norm.offset[i])));
            }
            let mut got = x;
            add_normalise(&mut got, &y, &bias, &norm);
            close(&got, &want, 1e-4)?;
        }

        #[test]
        fn attention_is_that_of_the_textbook(
            lengths in prop::collection::vec(prop_oneof![1usize..40, 120usize..140, 250usize..260], 1..4),
            heads in 1usize..4,
            head_width in 1usize..20,
            seed: u32,
        ) {
            let hidden = heads * head_width;
            let mut sequences = Vec::new();
            let mut total = 0;
            for length in lengths {
                sequences.push(total..total + length);
                total += length;
            }
            let qkv = values(total * 3 * hidden, seed);
            let mut got = vec![f32::NAN; total * hidden];
            attention(&qkv, &mut got, &sequences, heads, head_width);
            let at = |token: usize, third: usize, head: usize, i: usize| f64::from(qkv[token * 3 * hidden + third * hidden + head * head_width + i]);
            let mut want = vec![0f64; total * hidden];
            for sequence in &sequences {
                for head in 0..heads {
                    for query in sequence.clone() {
                        let weights: Vec<f64> = sequence
                            .clone()
                            .map(|key| ((0..head_width).map(|i| at(query, 0, head, i) * at(key, 1, head, i)).sum::<f64>() / (head_width as f64).sqrt()).exp())
                            .collect();
                        let sum: f64 = weights.iter().sum();
                        for i in 0..head_width {
                            want[query * hidden + head * head_width + i] =
                                sequence.clone().zip(&weights).map(|(key, weight)| weight / sum * at(key, 2, head, i)).sum();
                        }
                    }
                }
            }
            close(&got, &want, 2e-4)?;
        }
    }
}
