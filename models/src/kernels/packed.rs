#[cfg(target_arch = "x86_64")]
use super::{
    amx,
    thirds::{self, SplitRows},
};
use super::{
    halves::{self, HalfPairs, Halves},
    integers::{self, Integers, PairLine},
    lanes::WIDTH,
    quads::{self, Bytes},
    tile::{HalfLine, Isa, Line, PanelLine, Panels, Rows, multiply},
};
use crate::Precision;
use rayon::prelude::*;
use std::ops::Range;

/// How many inputs of a panel stay in the processor's first cache while all rows are multiplied by it.
const DEPTH: usize = 384;
/// How many rows are multiplied by a panel before the next panel comes: this many rows of `DEPTH` inputs stay in the
/// second cache.
pub(crate) const ROWS_AT_ONCE: usize = 96;
/// The same for AMX, which multiplies so fast that with fewer rows it would wait for the next panel.
#[cfg(target_arch = "x86_64")]
const ROWS_OF_TILES_AT_ONCE: usize = 384;
/// The same for f32 by AMX. The weights are split once for so many rows, and the thirds of these stay in the second cache. With more rows a pass on one
/// thread would pause too rarely.
#[cfg(target_arch = "x86_64")]
const ROWS_OF_THIRDS_AT_ONCE: usize = 192;
/// How many rows fill the tiles of the most common processors.
pub(crate) const TILE_ROWS: usize = 6;
/// How many inputs a tile of AMX has, in bf16 (which f32 is split into) and in int8.
const HALVES_OF_TILE: usize = 32;
#[cfg(target_arch = "x86_64")]
const BYTES_OF_TILE: usize = 64;

/// The weight of a linear layer in the layout that the product reads: blocks of inputs, and within them panels of
/// sixteen outputs.
pub(crate) struct Packed {
    lines: Lines,
    inputs: usize,
    outputs: usize,
    /// How many inputs a block has; the last block has the rest.
    depth: usize,
}

#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86_64 reads pairs and quads"))]
enum Lines {
    F32(Vec<Line>),
    Bf16(Vec<HalfLine>),
    /// For a processor that multiplies pairs of them.
    Bf16Pairs(Vec<HalfPairs>),
    /// The weights, and the scale of each output's weights. There is one block of inputs.
    Int8(Vec<PairLine>, Vec<f32>),
    /// For a processor that multiplies quads of them.
    Int8Quads(quads::Weights),
}

/// Rows in the form that a product reads.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86_64 reads pairs and quads"))]
enum Left<'a> {
    Floats(&'a [f32]),
    #[cfg(target_arch = "x86_64")]
    Split(SplitRows),
    Halves(Halves),
    Integers(Integers),
    Bytes(Bytes),
}

/// Where the threads of a product write; each writes to its own columns.
#[derive(Clone, Copy)]
struct Columns(*mut f32);

impl Columns {
    fn first(&self) -> *mut f32 {
        self.0
    }
}

// SAFETY: its only use, in `product_shared`, gives each thread different columns.
unsafe impl Send for Columns {}
// SAFETY: as above.
unsafe impl Sync for Columns {}

impl Packed {
    /// Packs a weight `[inputs, outputs]`.
    pub fn new(weight: &[f32], inputs: usize, outputs: usize, precision: Precision) -> Self {
        assert!(weight.len() == inputs * outputs && inputs > 0);
        let mut depth = inputs.div_ceil(inputs.div_ceil(DEPTH));
        if inputs.is_multiple_of(HALVES_OF_TILE) {
            // Whole tiles are multiplied by AMX.
            depth = depth.next_multiple_of(HALVES_OF_TILE);
        }
        let lines = match precision {
            Precision::Bf16 if halves::is_here() => {
                // Each number takes half of the bytes. Whole tiles are multiplied by AMX.
                let least = if inputs.is_multiple_of(HALVES_OF_TILE) { HALVES_OF_TILE } else { 2 };
                depth = inputs.div_ceil(inputs.div_ceil(2 * DEPTH)).next_multiple_of(least);
                Lines::Bf16Pairs(halves::pack(weight, inputs, outputs, depth))
            }
            Precision::F32 => Lines::F32(lines(weight, inputs, outputs, depth, Line)),
            Precision::Bf16 => Lines::Bf16(lines(weight, inputs, outputs, depth, |numbers| {
                HalfLine(numbers.map(|number| half::bf16::from_f32(number).to_bits()))
            })),
            Precision::Int8 if quads::is_here() => Lines::Int8Quads(quads::Weights::new(weight, inputs, outputs)),
            Precision::Int8 => {
                let (lines, scales) = integers::pack(weight, inputs, outputs);
                Lines::Int8(lines, scales)
            }
        };
        Self { lines, inputs, outputs, depth }
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// How many rows are best multiplied at once.
    pub fn rows_at_once(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.is_for_amx() {
            return match self.lines {
                Lines::F32(_) => ROWS_OF_THIRDS_AT_ONCE,
                _ => ROWS_OF_TILES_AT_ONCE,
            };
        }
        ROWS_AT_ONCE
    }

    /// How many rows fill the tiles.
    pub fn tile_rows(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.is_for_amx() {
            return amx::ROWS;
        }
        TILE_ROWS
    }

    /// Whether AMX multiplies rows by the weight.
    #[cfg(target_arch = "x86_64")]
    fn is_for_amx(&self) -> bool {
        let of_tile = match self.lines {
            Lines::F32(_) | Lines::Bf16Pairs(_) => HALVES_OF_TILE,
            Lines::Int8Quads(_) => BYTES_OF_TILE,
            Lines::Bf16(_) | Lines::Int8(..) => return false,
        };
        self.inputs.is_multiple_of(of_tile) && amx::is_here()
    }

    /// Computes `out = x * weight` for rows `x` of `inputs` numbers.
    pub fn product(&self, x: &[f32], out: &mut [f32]) {
        self.check(x, out);
        let rows = self.rows_at_once();
        for (x, out) in x.chunks(rows * self.inputs).zip(out.chunks_mut(rows * self.outputs)) {
            // SAFETY: `out` has a row of all columns for each row of `x`, and is borrowed mutably.
            unsafe { self.columns(&self.left(x), out.as_mut_ptr(), 0..self.panels()) };
        }
    }

    /// Does the same as [`Self::product`], but the threads of the pool share the outputs. Use it for few rows.
    pub fn product_shared(&self, x: &[f32], out: &mut [f32]) {
        self.check(x, out);
        // Each thread gets two parts, so that a late thread does not delay the others for long.
        let parts = (2 * rayon::current_num_threads()).min(self.panels());
        let (x, out) = (self.left(x), Columns(out.as_mut_ptr()));
        (0..parts).into_par_iter().with_max_len(1).for_each(|part| {
            let panels = self.panels() * part / parts..self.panels() * (part + 1) / parts;
            // SAFETY: as in `product`; the parts have different panels and so different columns.
            unsafe { self.columns(&x, out.first(), panels) };
        });
    }

    fn panels(&self) -> usize {
        self.outputs.div_ceil(WIDTH)
    }

    fn check(&self, x: &[f32], out: &[f32]) {
        assert!(x.len().is_multiple_of(self.inputs) && out.len() == x.len() / self.inputs * self.outputs);
    }

    /// Computes the columns of some panels.
    ///
    /// # Safety
    ///
    /// `out` has a row of all outputs for each row of `x`, and nobody else reads or writes the columns of `panels`.
    unsafe fn columns(&self, x: &Left<'_>, out: *mut f32, panels: Range<usize>) {
        let columns = panels.start * WIDTH..self.outputs.min(panels.end * WIDTH);
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match (&self.lines, x) {
                #[cfg(target_arch = "x86_64")]
                (Lines::F32(lines), Left::Split(x)) => self.split_columns(lines, x, out, panels.start, columns),
                (Lines::F32(lines), Left::Floats(x)) => self.float_columns(lines, x, out, panels.start, columns),
                (Lines::Bf16(lines), Left::Floats(x)) => self.float_columns(lines, x, out, panels.start, columns),
                (Lines::Int8(lines, scales), Left::Integers(x)) => {
                    let (isa, lines) = (Isa::of_processor(), &lines[panels.start * self.inputs.div_ceil(2)..]);
                    let out = out.add(columns.start);
                    integers::multiply(isa, x, lines, &scales[columns.start..], out, self.outputs, columns.len());
                }
                #[cfg(target_arch = "x86_64")]
                (Lines::Bf16Pairs(lines), Left::Halves(x)) => self.half_columns(lines, x, out, panels.start, columns),
                #[cfg(target_arch = "x86_64")]
                (Lines::Int8Quads(weights), Left::Bytes(x)) => {
                    let out = out.add(columns.start);
                    quads::multiply(x, weights, panels.start, out, self.outputs, columns.len());
                }
                _ => unreachable!("`left` makes what the weights need"),
            }
        }
    }

    /// # Safety
    ///
    /// The same as for [`Self::columns`].
    unsafe fn float_columns<W: PanelLine>(
        &self,
        lines: &[W],
        x: &[f32],
        out: *mut f32,
        first_panel: usize,
        columns: Range<usize>,
    ) {
        for block in (0..self.inputs).step_by(self.depth) {
            let depth = self.depth.min(self.inputs - block);
            let rows = Rows { data: &x[block..], count: x.len() / self.inputs, stride: self.inputs };
            let lines = &lines[block * self.panels() + first_panel * depth..];
            let right = Panels { lines, stride: depth, depth, columns: columns.len() };
            // SAFETY: the caller's promise is passed on.
            unsafe { multiply(rows, right, out.add(columns.start), self.outputs, block > 0) };
        }
    }

    /// # Safety
    ///
    /// The same as for [`Self::columns`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn half_columns(
        &self,
        lines: &[HalfPairs],
        x: &Halves,
        out: *mut f32,
        first_panel: usize,
        columns: Range<usize>,
    ) {
        for block in (0..self.inputs).step_by(self.depth) {
            let depth = self.depth.min(self.inputs - block).div_ceil(2);
            let lines = &lines[block / 2 * self.panels() + first_panel * depth..];
            // SAFETY: such lines are only made if the processor has the instruction; the rest is the caller's promise.
            unsafe {
                halves::multiply(x, block / 2, depth, lines, out.add(columns.start), self.outputs, columns.len());
            }
        }
    }

    /// # Safety
    ///
    /// The same as for [`Self::columns`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn split_columns(
        &self,
        lines: &[Line],
        x: &SplitRows,
        out: *mut f32,
        first_panel: usize,
        columns: Range<usize>,
    ) {
        for block in (0..self.inputs).step_by(self.depth) {
            let depth = self.depth.min(self.inputs - block);
            let lines = &lines[block * self.panels() + first_panel * depth..];
            // SAFETY: the caller's promise is passed on.
            unsafe {
                thirds::multiply(x, block, depth, lines, out.add(columns.start), self.outputs, columns.len());
            }
        }
    }

    fn left<'a>(&self, x: &'a [f32]) -> Left<'a> {
        match self.lines {
            #[cfg(target_arch = "x86_64")]
            Lines::F32(_) if self.is_for_amx() => Left::Split(SplitRows::new(x, self.inputs)),
            Lines::Int8(..) => Left::Integers(Integers::new(x, self.inputs)),
            Lines::Int8Quads(_) => Left::Bytes(Bytes::new(x, self.inputs)),
            Lines::Bf16Pairs(_) => Left::Halves(Halves::new(x, self.inputs)),
            _ => Left::Floats(x),
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
impl Packed {
    /// Does the same as [`Self::product`] with weights in f32 as a processor without AMX does it.
    pub(super) fn product_by_lines(&self, x: &[f32], out: &mut [f32]) {
        self.check(x, out);
        // SAFETY: as in `product`.
        unsafe { self.columns(&Left::Floats(x), out.as_mut_ptr(), 0..self.panels()) };
    }
}

/// Packs the panels of all blocks; the last panel is filled up with zeros on the right.
fn lines<W>(weight: &[f32], inputs: usize, outputs: usize, depth: usize, line: impl Fn([f32; WIDTH]) -> W) -> Vec<W> {
    let mut lines = Vec::with_capacity(inputs * outputs.div_ceil(WIDTH));
    for block in (0..inputs).step_by(depth) {
        for first in (0..outputs).step_by(WIDTH) {
            for input in block..inputs.min(block + depth) {
                let row = &weight[input * outputs..(input + 1) * outputs];
                let row = &row[first..outputs.min(first + WIDTH)];
                let mut numbers = [0f32; WIDTH];
                numbers[..row.len()].copy_from_slice(row);
                lines.push(line(numbers));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{super::samples::*, *};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_product_is_that_of_the_textbook(rows in 1usize..120, inputs in 1usize..80, outputs in 1usize..100, deep: bool, seed: u32) {
            let inputs = if deep { inputs + 2 * DEPTH } else { inputs };
            let (x, weight) = (values(rows * inputs, seed), values(inputs * outputs, seed ^ 1));
            let want: Vec<f64> = (0..rows * outputs)
                .map(|at| (0..inputs).map(|i| f64::from(x[at / outputs * inputs + i]) * f64::from(weight[i * outputs + at % outputs])).sum())
                .collect();
            let packed = Packed::new(&weight, inputs, outputs, Precision::F32);
            let mut got = vec![f32::NAN; rows * outputs];
            packed.product(&x, &mut got);
            close(&got, &want, 1e-2)?;
            let mut shared = vec![f32::NAN; rows * outputs];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
            pool.install(|| packed.product_shared(&x, &mut shared));
            prop_assert_eq!(got, shared);
        }
    }

    proptest! {
        /// Weights and rows that the precision represents exactly give exact results but for the rounding of sums.
        #[test]
        fn lower_precisions_lose_nothing_but_digits(rows in 1usize..20, inputs in 1usize..200, outputs in 1usize..60, seed: u32) {
            let whole = |count: usize, seed: u32| -> Vec<f32> {
                values(count, seed).into_iter().map(|x| (x * 32.0).round().clamp(-127.0, 127.0)).collect()
            };
            let (mut x, mut weight) = (whole(rows * inputs, seed), whole(inputs * outputs, seed ^ 1));
            // With the greatest number in each group, scales are 1.
            for input in (0..inputs).step_by(64) {
                x.iter_mut().skip(input).step_by(inputs).for_each(|x| *x = 127.0);
                weight[input * outputs..][..outputs].fill(127.0);
            }
            let want: Vec<f64> = (0..rows * outputs)
                .map(|at| (0..inputs).map(|i| f64::from(x[at / outputs * inputs + i]) * f64::from(weight[i * outputs + at % outputs])).sum())
                .collect();
            for precision in [Precision::Bf16, Precision::Int8] {
                let packed = Packed::new(&weight, inputs, outputs, precision);
                let mut got = vec![f32::NAN; rows * outputs];
                packed.product(&x, &mut got);
                close(&got, &want, 16.0)?;
                let mut shared = vec![f32::NAN; rows * outputs];
                let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
                pool.install(|| packed.product_shared(&x, &mut shared));
                prop_assert_eq!(&got, &shared);
            }
        }
    }

    /// Whole numbers of this size are exact in bf16, and so are their sums.
    #[test]
    fn blocks_of_bf16_add_up() {
        let whole = |count: usize, seed: u32| values(count, seed).into_iter().map(f32::round).collect::<Vec<f32>>();
        let (rows, inputs, outputs) = (13, 4 * DEPTH + 1, 35);
        let (x, weight) = (whole(rows * inputs, 1), whole(inputs * outputs, 2));
        let want = (0..rows * outputs).map(|at| {
            let (x, weights) = (&x[at / outputs * inputs..][..inputs], weight[at % outputs..].iter().step_by(outputs));
            x.iter().zip(weights).map(|(x, weight)| x * weight).sum::<f32>()
        });
        let mut got = vec![f32::NAN; rows * outputs];
        Packed::new(&weight, inputs, outputs, Precision::Bf16).product(&x, &mut got);
        assert_eq!(got, want.collect::<Vec<f32>>());
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for (precision, odd) in [
            (Precision::Int8, f32::NAN),
            (Precision::Int8, f32::INFINITY),
            (Precision::Bf16, f32::NAN),
            (Precision::Bf16, f32::from_bits(0x7FFF_FFFF)),
            (Precision::F32, f32::NAN),
            (Precision::F32, f32::from_bits(0x7FFF_FFFF)),
        ] {
            // AMX multiplies only whole tiles, so it takes the second number of inputs and not the first.
            for inputs in [3, 64] {
                let packed = Packed::new(&vec![1.0; 2 * inputs], inputs, 2, precision);
                let mut x = vec![0.0; 2 * inputs];
                x[..2].copy_from_slice(&[1.0, odd]);
                let mut out = [f32::INFINITY; 4];
                packed.product(&x, &mut out);
                let is_right = out[0].is_nan() && out[1].is_nan() && out[2..] == [0.0, 0.0];
                assert!(is_right, "{precision}, {inputs} inputs: {out:?}");
            }
        }
    }

    #[test]
    fn an_infinity_in_f32_does_not_become_a_number() {
        for odd in [f32::INFINITY, f32::NEG_INFINITY] {
            for inputs in [3, 64] {
                let packed = Packed::new(&vec![1.0; 2 * inputs], inputs, 2, Precision::F32);
                let mut x = vec![0.0; 2 * inputs];
                x[1] = odd;
                let mut out = [f32::NAN; 4];
                packed.product(&x, &mut out);
                let is_right = out[..2].iter().all(|out| !out.is_finite()) && out[2..] == [0.0, 0.0];
                assert!(is_right, "{odd}, {inputs} inputs: {out:?}");
            }
        }
    }
}
