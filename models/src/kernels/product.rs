/// A matrix read in place.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub data: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

impl View<'_> {
    fn is_inside(&self) -> bool {
        is_inside(self.data.len(), self.rows, self.columns, self.row_stride, self.column_stride)
    }
}

fn is_inside(length: usize, rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> bool {
    rows > 0 && columns > 0 && (rows - 1) * row_stride + (columns - 1) * column_stride < length
}

/// Whether a product replaces what is there or is added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    Replaced,
    Added,
}

/// `left * right` to `out`, whose rows stand `out_stride` apart.
pub(super) fn multiply(out: &mut [f32], out_stride: usize, left: View<'_>, right: View<'_>, into: Destination) {
    multiply_on(gemm::Parallelism::None, out, out_stride, left, right, into);
}

/// `out = x * weight` for rows `x` of `inputs` and a weight `[inputs, outputs]`, shared over the threads of the pool.
pub(crate) fn product(x: &[f32], weight: &[f32], out: &mut [f32], inputs: usize, outputs: usize) {
    let rows = out.len() / outputs;
    let left = View { data: x, rows, columns: inputs, row_stride: inputs, column_stride: 1 };
    let right = View { data: weight, rows: inputs, columns: outputs, row_stride: outputs, column_stride: 1 };
    let threads = gemm::Parallelism::Rayon(rayon::current_num_threads());
    multiply_on(threads, out, outputs, left, right, Destination::Replaced);
}

fn multiply_on(
    threads: gemm::Parallelism,
    out: &mut [f32],
    out_stride: usize,
    left: View<'_>,
    right: View<'_>,
    into: Destination,
) {
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
            into == Destination::Added,
            left.data.as_ptr(),
            left.column_stride as isize,
            left.row_stride as isize,
            right.data.as_ptr(),
            right.column_stride as isize,
            right.row_stride as isize,
            if into == Destination::Added { 1.0 } else { 0.0 },
            1.0,
            false,
            false,
            false,
            threads,
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::samples::*, *};

    proptest! {
        #[test]
        fn a_product_is_that_of_the_textbook(rows in 1usize..40, inputs in 1usize..80, outputs in 1usize..300, seed: u32) {
            let (x, weight) = (values(rows * inputs, seed), values(inputs * outputs, seed ^ 1));
            let want: Vec<f64> = (0..rows * outputs)
                .map(|at| (0..inputs).map(|i| f64::from(x[at / outputs * inputs + i]) * f64::from(weight[i * outputs + at % outputs])).sum())
                .collect();
            let mut got = vec![f32::NAN; rows * outputs];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
            pool.install(|| product(&x, &weight, &mut got, inputs, outputs));
            close(&got, &want, 1e-3)?;
            let view = |data, rows, columns| View { data, rows, columns, row_stride: columns, column_stride: 1 };
            multiply(&mut got, outputs, view(&x, rows, inputs), view(&weight, inputs, outputs), Destination::Added);
            let twice: Vec<f64> = want.iter().map(|value| 2.0 * value).collect();
            close(&got, &twice, 2e-3)?;
        }
    }
}
