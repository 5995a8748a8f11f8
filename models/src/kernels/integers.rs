//! Products of i16 rows and i8 weights, exact in i32, for processors that cannot multiply quads ([`super::quads`]).

#[cfg(target_arch = "aarch64")]
use super::lanes::Neon;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::{
    lanes::{Lanes, Portable, WIDTH},
    tile::{Isa, Panel},
};

/// The weights of sixteen outputs for two inputs, pair by pair.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct PairLine(pub [[i8; 2]; WIDTH]);

/// The greatest absolute value of a weight.
const WEIGHT_LIMIT: f32 = 127.0;

/// Rows as integers: each number is its integer times its row's scale.
pub(super) struct Integers {
    /// Each row has an even number of inputs; the last one may be a zero that fills it up.
    values: Vec<[i16; 2]>,
    scales: Vec<f32>,
}

impl Integers {
    pub fn new(x: &[f32], inputs: usize) -> Self {
        let rows = x.len() / inputs;
        let mut integers = Self { values: vec![[0; 2]; rows * inputs.div_ceil(2)], scales: vec![0.0; rows] };
        to_integers(x, inputs, integers.values.as_flattened_mut(), &mut integers.scales);
        integers
    }
}

#[inline(always)]
fn to_integers_body(x: &[f32], inputs: usize, values: &mut [i16], scales: &mut [f32]) {
    // The limit keeps the sum of all products with the greatest weights inside i32.
    let limit = (i32::MAX as f32 / (WEIGHT_LIMIT * (inputs + 1) as f32)).min(32_767.0).floor();
    let rows = x.chunks_exact(inputs).zip(values.chunks_exact_mut(inputs.next_multiple_of(2)));
    for ((x, values), scale) in rows.zip(scales) {
        // As integers, absolute values have the order of the numbers, and a value that is not a number is greater than
        // all of them.
        let greatest = x.iter().map(|x| x.to_bits() & 0x7FFF_FFFF).fold(0, u32::max);
        let greatest = f32::from_bits(greatest);
        let factor = if greatest > 0.0 { limit / greatest } else { 0.0 };
        *scale = if greatest.is_finite() { greatest / limit } else { f32::NAN };
        for (value, x) in values.iter_mut().zip(x) {
            // Adding 1.5 * 2^23 leaves the rounded number in the low bits of the mantissa.
            *value = x.mul_add(factor, 12_582_912.0).to_bits() as i16;
        }
    }
}
dispatch!(
    to_integers, to_integers_body, (x: &[f32], inputs: usize, values: &mut [i16], scales: &mut [f32]));

/// Makes panels of sixteen outputs from a weight `[inputs, outputs]`, and the scale of each output.
pub(super) fn pack(weight: &[f32], inputs: usize, outputs: usize) -> (Vec<PairLine>, Vec<f32>) {
    let mut scales = vec![0f32; outputs];
    for row in weight.chunks_exact(outputs) {
        for (scale, weight) in scales.iter_mut().zip(row) {
            *scale = scale.max(weight.abs() / WEIGHT_LIMIT);
        }
    }
    let mut lines = Vec::with_capacity(inputs.div_ceil(2) * outputs.div_ceil(WIDTH));
    for first in (0..outputs).step_by(WIDTH) {
        for input in (0..inputs).step_by(2) {
            let integer = |input: usize, output: usize| {
                if input >= inputs || output >= outputs || scales[output] == 0.0 {
                    return 0;
                }
                (weight[input * outputs + output] / scales[output]).round_ties_even() as i8
            };
            lines
                .push(PairLine(std::array::from_fn(|at| [integer(input, first + at), integer(input + 1, first + at)])));
        }
    }
    scales.resize(outputs.next_multiple_of(WIDTH), 0.0);
    (lines, scales)
}

/// Multiplies `M` rows by one panel.
#[inline(always)]
unsafe fn tile<L: Lanes, const M: usize>(
    x: *const [i16; 2],
    row_scales: *const f32,
    panel: Panel<'_, PairLine>,
    scales: *const f32,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    // SAFETY: the caller promises that `x` has `M` rows as long as the panel, and `out` has `M` rows of `columns`.
    unsafe {
        let (mut sums, mut ahead) = ([L::no_sums(); M], panel.ahead);
        for (at, line) in panel.lines.iter().enumerate() {
            let weights = L::load_pairs(line.0.as_ptr().cast());
            for (row, sums) in sums.iter_mut().enumerate() {
                *sums = L::add_pairs(*sums, weights, x.add(row * panel.lines.len() + at));
            }
            if let Some(ahead) = &mut ahead {
                ahead.prefetch::<L>();
            }
        }
        let scales = L::load(scales);
        for (row, sums) in sums.into_iter().enumerate() {
            let values = L::of_sums(sums).times(scales).times(L::all(*row_scales.add(row)));
            if columns == WIDTH {
                values.store(out.add(row * out_stride));
            } else {
                let mut line = [0f32; WIDTH];
                values.store(line.as_mut_ptr());
                std::slice::from_raw_parts_mut(out.add(row * out_stride), columns).copy_from_slice(&line[..columns]);
            }
        }
    }
}

#[inline(always)]
unsafe fn multiply_body<L: Lanes>(
    x: &Integers,
    lines: &[PairLine],
    scales: &[f32],
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    let depth = x.values.len() / x.scales.len();
    let tiles = x.scales.len().div_ceil(L::TILE_ROWS);
    for (at, first) in (0..columns).step_by(WIDTH).enumerate() {
        let lines_of_panel = &lines[at * depth..][..depth];
        let next = lines.get((at + 1) * depth..).unwrap_or_default();
        let scales = &scales[first..][..WIDTH];
        let columns = WIDTH.min(columns - first);
        for tile_at in 0..tiles {
            let row = x.scales.len() * tile_at / tiles;
            let height = x.scales.len() * (tile_at + 1) / tiles - row;
            let panel = Panel::of_tile::<L>(lines_of_panel, next, tile_at, tiles);
            // SAFETY: the caller's promise.
            unsafe {
                let values = x.values.as_ptr().add(row * depth);
                let row_scales = x.scales.as_ptr().add(row);
                let out = out.add(row * out_stride + first);
                macro_rules! of_height {
                    ($($height:literal)*) => {
                        match height {
                            $($height if const { $height <= L::TILE_ROWS } => tile::<L, $height>(
                                values, row_scales, panel, scales.as_ptr(), out, out_stride, columns),)*
                            _ => unreachable!("a tile has from one to TILE_ROWS rows"),
                        }
                    };
                }
                of_height!(1 2 3 4 5 6 7 8 9 10 11 12);
            }
        }
    }
}

/// Computes `out = x * weight` for some panels and their scales.
///
/// # Safety
///
/// `out` has a row of `columns` numbers for each row of `x`, the rows begin `out_stride` apart, and nobody else reads
/// or writes them.
pub(super) unsafe fn multiply(
    isa: Isa,
    x: &Integers,
    lines: &[PairLine],
    scales: &[f32],
    out: *mut f32,
    out_stride: usize,
    columns: usize,
) {
    #[cfg(target_arch = "x86_64")]
    macro_rules! on {
        ($lanes:ty, $features:literal) => {{
            #[target_feature(enable = $features)]
            unsafe fn on(
                x: &Integers,
                lines: &[PairLine],
                scales: &[f32],
                out: *mut f32,
                out_stride: usize,
                columns: usize,
            ) {
                // SAFETY: the caller's promise is passed on.
                unsafe { multiply_body::<$lanes>(x, lines, scales, out, out_stride, columns) }
            }
            // SAFETY: the caller's promise is passed on, and the features were detected.
            unsafe { on(x, lines, scales, out, out_stride, columns) }
        }};
    }
    match isa {
        // SAFETY: the caller's promise is passed on.
        Isa::Portable => unsafe { multiply_body::<Portable>(x, lines, scales, out, out_stride, columns) },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => on!(Avx2, "avx2,fma"),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => on!(Avx512, "avx512f,avx512bw,fma"),
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the caller's promise is passed on, and the build's target has the feature.
        Isa::Neon => unsafe { multiply_body::<Neon>(x, lines, scales, out, out_stride, columns) },
    }
}

#[cfg(test)]
mod tests {
    use super::{super::samples::*, *};

    /// This runs every instance that the processor can run.
    #[test]
    fn all_instances_give_the_sums_of_the_textbook() {
        for (rows, inputs, outputs) in [(1, 1, 1), (5, 7, 16), (13, 80, 33), (25, 64, 50)] {
            let (x, mut weight) = (values(rows * inputs, 1), values(inputs * outputs, 2));
            weight.iter_mut().for_each(|weight| *weight = (*weight * 30.0).round());
            // With the greatest weight in each output, scales are 1.
            weight[..outputs].fill(127.0);
            let want = (0..rows * outputs).map(|at| {
                let (x, weights) =
                    (&x[at / outputs * inputs..][..inputs], weight[at % outputs..].iter().step_by(outputs));
                x.iter().zip(weights).map(|(x, weight)| f64::from(*x) * f64::from(*weight)).sum()
            });
            let (want, rows, (lines, scales)) =
                (want.collect::<Vec<f64>>(), Integers::new(&x, inputs), pack(&weight, inputs, outputs));
            for isa in Isa::here() {
                let mut got = vec![f32::NAN; want.len()];
                // SAFETY: `got` has a row of all outputs for each row of `x`.
                unsafe { multiply(isa, &rows, &lines, &scales, got.as_mut_ptr(), outputs, outputs) };
                close(&got, &want, 0.5).unwrap();
            }
        }
    }
}
