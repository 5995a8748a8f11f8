//! Products of bf16 and of integers by AMX, which multiplies sixteen rows by sixteen outputs in one instruction. Only some processors have it, and a
//! process must ask the system for it. Products of f32 consist of products of bf16 ([`super::thirds`]).

use super::{
    halves::HalfPairs,
    lanes::{Avx512, Lanes},
    quads::QuadLine,
};
use std::{
    arch::{asm, x86_64::__cpuid_count},
    sync::OnceLock,
};

/// How many rows a tile has, how many outputs, and how many pairs or quads of inputs.
pub(super) const TILE: usize = 16;
/// The bytes from row to row of a tile of weights.
const LINE: usize = size_of::<HalfPairs>();

/// How many pairs or quads of inputs the products take at once; a block of inputs needs a multiple of it.
pub(super) const AT_ONCE: usize = TILE;
/// The most rows that are multiplied at once.
pub(super) const ROWS: usize = 2 * TILE;

/// Whether this processor has the instructions, and those of AVX-512 F, BW and BF16, and the system lets the process use them.
pub(super) fn is_here() -> bool {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    *IS_HERE.get_or_init(|| is_in_processor() && is_allowed())
}

fn is_in_processor() -> bool {
    const FEATURES: u32 = 7;
    /// bf16, tiles and int8.
    const AMX: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && __cpuid_count(FEATURES, 0).edx & AMX == AMX
}

/// Asks Linux for the state of the tiles, which it saves only for processes that asked. It refuses where it has not switched the tiles on, and where a
/// thread's signal stack is too small for them; the answer holds for all threads of the process.
fn is_allowed() -> bool {
    #[cfg(target_os = "linux")]
    {
        const ARCH_PRCTL: isize = 158;
        const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
        const TILE_DATA: usize = 18;
        let mut result = ARCH_PRCTL;
        // SAFETY: the call reads and writes no memory, and its registers are declared.
        unsafe {
            asm!("syscall", inlateout("rax") result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
                lateout("rcx") _, lateout("r11") _, options(nostack));
        }
        result == 0
    }
    #[cfg(not(target_os = "linux"))]
    {
        false
    }
}

/// The shapes of the eight tiles, as `ldtilecfg` reads them. The first byte is the number of this format, 1. From `ROW_BYTES` on there are two bytes for
/// each tile, which say how many bytes its rows have; from `HEIGHTS` on there is one, which says how many rows it has.
#[repr(C, align(64))]
struct Config([u8; 64]);

impl Config {
    const ROW_BYTES: usize = 16;
    const HEIGHTS: usize = 48;
}

/// The shapes that the tiles of this thread have. When it is dropped they have none, since the system would otherwise save them whenever it runs
/// another thread.
pub(super) struct Shapes {
    /// How many rows are multiplied at once, 0 before there are shapes.
    count: usize,
}

impl Shapes {
    pub const NONE: Self = Self { count: 0 };

    /// Gives the tiles the shapes for up to [`ROWS`] rows: tiles 0 to 3 are sums of two blocks of rows by two panels, 4 and 5 the rows, and 6 and 7 the
    /// weights.
    ///
    /// # Safety
    ///
    /// [`is_here`].
    pub unsafe fn set(&mut self, count: usize) {
        if self.count == count {
            return;
        }
        let (first, second, whole) = (count.min(TILE) as u8, count.saturating_sub(TILE) as u8, TILE as u8);
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for (tile, height) in [first, first, second, second, first, second, whole, whole].into_iter().enumerate() {
            if height > 0 {
                config.0[Config::ROW_BYTES + 2 * tile] = LINE as u8;
                config.0[Config::HEIGHTS + tile] = height;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly, preserves_flags)) };
        self.count = count;
    }
}

impl Drop for Shapes {
    fn drop(&mut self) {
        if self.count > 0 {
            // SAFETY: shapes were set, so the instructions are here.
            unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
        }
    }
}

// The compiler uses no tile, so what one instruction leaves there is what the next one finds.
macro_rules! load {
    ($tile:tt, $from:expr, $stride:expr) => {
        asm!(concat!("tileloadd ", $tile, ", [{} + {}*1]"), in(reg) $from, in(reg) $stride, out($tile) _,
            options(nostack, readonly, preserves_flags))
    };
}
macro_rules! store {
    ($tile:tt, $to:expr, $stride:expr) => {
        asm!(concat!("tilestored [{} + {}*1], ", $tile), in(reg) $to, in(reg) $stride, options(nostack, preserves_flags))
    };
}
macro_rules! add_product {
    ($instruction:tt, $sums:tt, $rows:tt, $weights:tt) => {
        asm!(concat!($instruction, " ", $sums, ", ", $rows, ", ", $weights), out($sums) _,
            options(nostack, nomem, preserves_flags))
    };
}
macro_rules! zero {
    ($tile:tt) => {
        asm!(concat!("tilezero ", $tile), out($tile) _, options(nostack, nomem, preserves_flags))
    };
}

/// The two sides of a product: rows, and panels of sixteen outputs. Tiles take [`AT_ONCE`] pairs of inputs of both at a time, which is a step.
pub(super) trait Sides {
    /// How many steps there are.
    fn steps(&self) -> usize;

    /// Prepares the steps of up to [`ROWS`] rows from `row` on, with the one or two panels from `panel` on. The rows come one group after the other,
    /// then again for the next panels.
    ///
    /// # Safety
    ///
    /// The sides have these rows and panels.
    unsafe fn begin(&mut self, row: usize, panel: usize, panels: usize);

    /// Adds one step to the sums in tiles 0 to 3: the products of `M` times sixteen rows from `row` on, of which the last may be fewer, with `N`
    /// panels from `panel` on. The steps come in order, after [`Self::begin`] for the same rows and panels.
    ///
    /// # Safety
    ///
    /// The sides have these rows, panels and this step, and the shapes are those of the rows.
    unsafe fn add<const M: usize, const N: usize>(&mut self, row: usize, panel: usize, step: usize);
}

/// Loads a part of one or two blocks of rows, sixteen pairs of inputs, into tiles 4 and 5. The rows of a block begin `stride` bytes apart.
///
/// # Safety
///
/// The shapes are set, and `M` blocks have as many rows as they say.
#[inline(always)]
pub(super) unsafe fn load_rows<const M: usize>(blocks: [*const u8; 2], stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        load!("tmm4", blocks[0], stride);
        if M > 1 {
            load!("tmm5", blocks[1], stride);
        }
    }
}

/// Loads sixteen lines of one or two panels into tiles 6 and 7. The lines of a panel begin `stride` bytes apart.
///
/// # Safety
///
/// The shapes are set, and `N` panels have so many lines.
#[inline(always)]
pub(super) unsafe fn load_weights<const N: usize>(panels: [*const u8; 2], stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        load!("tmm6", panels[0], stride);
        if N > 1 {
            load!("tmm7", panels[1], stride);
        }
    }
}

/// Adds the products of the rows and weights that are loaded to the sums. With two blocks of rows and two panels no sum waits for its last addition.
///
/// # Safety
///
/// The shapes are set, and `M` blocks of rows and `N` panels are loaded.
#[inline(always)]
pub(super) unsafe fn add_products<const M: usize, const N: usize>() {
    // SAFETY: the caller's promise.
    unsafe {
        add_product!("tdpbf16ps", "tmm0", "tmm4", "tmm6");
        if N > 1 {
            add_product!("tdpbf16ps", "tmm1", "tmm4", "tmm7");
        }
        if M > 1 {
            add_product!("tdpbf16ps", "tmm2", "tmm5", "tmm6");
        }
        if M > 1 && N > 1 {
            add_product!("tdpbf16ps", "tmm3", "tmm5", "tmm7");
        }
    }
}

/// Where sums are written: rows of f32 that begin `stride` apart.
#[derive(Clone, Copy)]
struct Sums {
    at: *mut f32,
    stride: usize,
}

/// Multiplies `M` times sixteen rows from `row` on, of which the last may be fewer, by `N` panels from `panel` on, in all steps.
///
/// # Safety
///
/// The sides have these rows and panels, the shapes are those of the rows, and each of `sums` has a line for each row.
unsafe fn tiles<S: Sides, const M: usize, const N: usize>(
    sides: &mut S,
    row: usize,
    panel: usize,
    [first, second]: [Sums; 2],
    is_added: bool,
) {
    let bytes = |sums: Sums| sums.stride * size_of::<f32>();
    // SAFETY: the caller's promise.
    unsafe {
        // The second block of rows.
        let below = |sums: Sums| sums.at.add(TILE * sums.stride);
        if is_added {
            load!("tmm0", first.at, bytes(first));
            if N > 1 {
                load!("tmm1", second.at, bytes(second));
            }
            if M > 1 {
                load!("tmm2", below(first), bytes(first));
            }
            if M > 1 && N > 1 {
                load!("tmm3", below(second), bytes(second));
            }
        } else {
            zero!("tmm0");
            if N > 1 {
                zero!("tmm1");
            }
            if M > 1 {
                zero!("tmm2");
            }
            if M > 1 && N > 1 {
                zero!("tmm3");
            }
        }
        sides.begin(row, panel, N);
        for step in 0..sides.steps() {
            sides.add::<M, N>(row, panel, step);
        }
        store!("tmm0", first.at, bytes(first));
        if N > 1 {
            store!("tmm1", second.at, bytes(second));
        }
        if M > 1 {
            store!("tmm2", below(first), bytes(first));
        }
        if M > 1 && N > 1 {
            store!("tmm3", below(second), bytes(second));
        }
    }
}

/// Computes the products of `count` rows with the panels of `columns` outputs, and writes them to `out` or adds them.
///
/// # Safety
///
/// [`is_here`], the sides have these rows and panels, `out` has a row of `columns` numbers for each row, the rows begin `out_stride` apart, and nobody
/// else reads or writes them.
pub(super) unsafe fn multiply_sides<S: Sides>(
    sides: &mut S,
    count: usize,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
    is_added: bool,
) {
    // Sums of a last panel of fewer than sixteen outputs pass through here.
    let mut narrow = [[0f32; TILE]; ROWS];
    let mut shapes = Shapes::NONE;
    for column in (0..columns).step_by(2 * TILE) {
        let (panel, width) = (column / TILE, (2 * TILE).min(columns - column));
        for row in (0..count).step_by(ROWS) {
            let count = ROWS.min(count - row);
            // SAFETY: the caller's promise; the narrow panel is the last one, of `width % TILE` columns.
            unsafe {
                shapes.set(count);
                let out = out.add(row * out_stride + column);
                let of_panel = |panel: usize| Sums { at: out.wrapping_add(panel * TILE), stride: out_stride };
                let mut sums = [of_panel(0), of_panel(1)];
                let (last, kept) = (width.div_ceil(TILE) - 1, width % TILE);
                if kept > 0 {
                    if is_added {
                        for (at, line) in narrow[..count].iter_mut().enumerate() {
                            let old = sums[last].at.add(at * out_stride);
                            line[..kept].copy_from_slice(std::slice::from_raw_parts(old, kept));
                        }
                    }
                    sums[last] = Sums { at: narrow.as_mut_ptr().cast(), stride: TILE };
                }
                match (count > TILE, last > 0) {
                    (true, true) => tiles::<S, 2, 2>(sides, row, panel, sums, is_added),
                    (true, false) => tiles::<S, 2, 1>(sides, row, panel, sums, is_added),
                    (false, true) => tiles::<S, 1, 2>(sides, row, panel, sums, is_added),
                    (false, false) => tiles::<S, 1, 1>(sides, row, panel, sums, is_added),
                }
                if kept > 0 {
                    for (at, line) in narrow[..count].iter().enumerate() {
                        let new = of_panel(last).at.add(at * out_stride);
                        std::slice::from_raw_parts_mut(new, kept).copy_from_slice(&line[..kept]);
                    }
                }
            }
        }
    }
}

/// The lines of the two panels of `depth` lines that come after those from `panel` on, as far as there are any.
pub(super) fn after_two<W>(lines: &[W], panel: usize, depth: usize) -> &[W] {
    let next = lines.get((panel + 2) * depth..).unwrap_or_default();
    &next[..next.len().min(2 * depth)]
}

/// Has the cache fetch the panels that come next, share by share.
pub(super) fn fetch_ahead<W>(next: &[W], share: usize, shares: usize) {
    for line in &next[next.len() * share / shares..next.len() * (share + 1) / shares] {
        Avx512::prefetch(std::ptr::from_ref(line).cast());
    }
}

/// The sums of two panels for the rows that are multiplied at once. Each row of a tile is a line of the cache.
#[repr(C, align(64))]
pub(super) struct Integers(pub [[[i32; TILE]; ROWS]; 2]);

/// Multiplies up to [`ROWS`] rows of u8 by one or two panels of i8, in [`AT_ONCE`] quads of inputs. The rows begin `stride` quads apart, the panels
/// `apart` lines.
///
/// # Safety
///
/// [`is_here`], the shapes are those of `count` rows, and all of these rows and panels have so many quads.
pub(super) unsafe fn multiply_quads(
    (x, stride): (*const [u8; 4], usize),
    count: usize,
    (lines, apart): (*const QuadLine, usize),
    panels: usize,
    sums: &mut Integers,
) {
    let stride_bytes = stride * size_of::<[u8; 4]>();
    let Integers([first, second]) = sums;
    // SAFETY: the caller's promise, and `sums` has a line for each row.
    unsafe {
        load!("tmm4", x, stride_bytes);
        load!("tmm6", lines, LINE);
        zero!("tmm0");
        add_product!("tdpbusd", "tmm0", "tmm4", "tmm6");
        if panels > 1 {
            load!("tmm7", lines.add(apart), LINE);
            zero!("tmm1");
            add_product!("tdpbusd", "tmm1", "tmm4", "tmm7");
        }
        if count > TILE {
            load!("tmm5", x.add(TILE * stride), stride_bytes);
            zero!("tmm2");
            add_product!("tdpbusd", "tmm2", "tmm5", "tmm6");
            store!("tmm2", first[TILE..].as_mut_ptr(), LINE);
        }
        if count > TILE && panels > 1 {
            zero!("tmm3");
            add_product!("tdpbusd", "tmm3", "tmm5", "tmm7");
            store!("tmm3", second[TILE..].as_mut_ptr(), LINE);
        }
        store!("tmm0", first.as_mut_ptr(), LINE);
        if panels > 1 {
            store!("tmm1", second.as_mut_ptr(), LINE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::samples::values, *};
    use crate::{Precision, kernels::Packed};
    use proptest::prelude::*;

    proptest! {
        /// Whole numbers of this size are exact in bf16, and so are their sums.
        #[test]
        fn products_of_whole_numbers_are_exact(
            rows in 1usize..70, inputs in (1usize..60).prop_map(|tiles| 2 * AT_ONCE * tiles), outputs in 1usize..100, seed: u32,
        ) {
            let whole = |count: usize, seed: u32| values(count, seed).into_iter().map(f32::round).collect::<Vec<f32>>();
            let (x, weight) = (whole(rows * inputs, seed), whole(inputs * outputs, seed ^ 1));
            let mut want = vec![0f32; rows * outputs];
            for (x, want) in x.chunks_exact(inputs).zip(want.chunks_exact_mut(outputs)) {
                for (x, weights) in x.iter().zip(weight.chunks_exact(outputs)) {
                    want.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += x * weight);
                }
            }
            let mut got = vec![f32::NAN; rows * outputs];
            Packed::new(&weight, inputs, outputs, Precision::Bf16).product(&x, &mut got);
            prop_assert_eq!(got, want);
        }
    }
}
