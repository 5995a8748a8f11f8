//! Matrix products whose right side is in panels: sixteen columns each, line by line.

#[cfg(target_arch = "aarch64")]
use super::lanes::Neon;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{Lanes, Portable, WIDTH};

/// One row of a panel, which fills one line of the cache.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub [f32; WIDTH]);

impl Line {
    pub const ZERO: Self = Self([0.0; WIDTH]);
}

/// The lines of a panel: sixteen outputs of one input, or of two.
pub(super) trait PanelLine: Copy {
    /// # Safety
    ///
    /// The same as for [`Lanes`].
    unsafe fn lanes<L: Lanes>(&self) -> L;
}

impl PanelLine for Line {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(&self) -> L {
        // SAFETY: the caller's promise is passed on.
        unsafe { L::load(self.0.as_ptr()) }
    }
}

/// A [`Line`] in bf16: the upper halves of f32.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct HalfLine(pub [u16; WIDTH]);

impl PanelLine for HalfLine {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(&self) -> L {
        // SAFETY: the caller's promise is passed on.
        unsafe { L::load_bf16(self.0.as_ptr()) }
    }
}

/// Rows of f32 that begin `stride` apart and are read in place.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub data: &'a [f32],
    pub count: usize,
    pub stride: usize,
}

/// A panel as a tile reads it.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a, W> {
    pub lines: &'a [W],
    pub ahead: Option<Ahead>,
}

/// A tile's share of prefetching the next panel, line by line.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    at: *const u8,
    step: usize,
}

impl Ahead {
    const NOTHING: Self = Self { at: std::ptr::null(), step: 0 };

    #[inline(always)]
    pub fn prefetch<L: Lanes>(&mut self) {
        L::prefetch(self.at);
        self.at = self.at.wrapping_add(self.step);
    }
}

impl<'a, W> Panel<'a, W> {
    /// With up to this many tiles, as in a query, nearly all time is spent waiting for weights, so each line prefetches
    /// a part of a line of the next panel. With more tiles a panel the waiting is shorter than that would cost, and
    /// each tile prefetches its share at once.
    const FEW_TILES: usize = 4;

    /// Makes the panel for one of `tiles` tiles. If no panel follows, the panel itself is prefetched.
    pub fn of_tile<L: Lanes>(lines: &'a [W], next: &[W], tile: usize, tiles: usize) -> Self {
        let next = if next.len() < lines.len() { lines } else { &next[..lines.len()] };
        let share = &next[lines.len() * tile / tiles..lines.len() * (tile + 1) / tiles];
        if tiles > Self::FEW_TILES {
            for line in share {
                L::prefetch(std::ptr::from_ref(line).cast());
            }
            return Self { lines, ahead: None };
        }
        Self { lines, ahead: Some(Ahead { at: share.as_ptr().cast(), step: size_of::<W>() / tiles }) }
    }
}

/// The rows of a product, and what its panels look like.
#[derive(Clone, Copy)]
struct Sides {
    x: *const f32,
    count: usize,
    /// The distance from row to row.
    stride: usize,
    /// How many lines a panel has, and how many numbers of each row count.
    depth: usize,
    /// The distance from panel to panel, in lines.
    apart: usize,
}

/// Computes the sums of one tile: `M` rows by `N` panels.
#[inline(always)]
unsafe fn tile<L: Lanes, W: PanelLine, const M: usize, const N: usize>(
    sides: Sides,
    panels: Panel<'_, W>,
    sums: &mut [[L; N]; M],
) {
    match panels.ahead {
        // SAFETY: the caller's promise is passed on.
        Some(ahead) => unsafe { tile_body::<L, W, M, N, true>(sides, panels.lines.as_ptr(), ahead, sums) },
        // SAFETY: as above.
        None => unsafe { tile_body::<L, W, M, N, false>(sides, panels.lines.as_ptr(), Ahead::NOTHING, sums) },
    }
}

#[inline(always)]
unsafe fn tile_body<L: Lanes, W: PanelLine, const M: usize, const N: usize, const IS_AHEAD: bool>(
    Sides { x, stride, depth, apart, .. }: Sides,
    lines: *const W,
    ahead: Ahead,
    sums: &mut [[L; N]; M],
) {
    let (mut at, mut ahead) = (0, ahead);
    // Closures would be separate functions, compiled without the processor's features, so this is a macro.
    macro_rules! step {
        () => {
            // SAFETY: the caller promises `N` panels of `depth` lines, and that each of the `M` rows has as many numbers.
            unsafe {
                let mut weights = [L::zero(); N];
                for (panel, weights) in weights.iter_mut().enumerate() {
                    *weights = (*lines.add(panel * apart + at)).lanes();
                    if IS_AHEAD {
                        ahead.prefetch::<L>();
                    }
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let number = L::all(*x.add(row * stride + at));
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        *sum = sum.add_product(number, weights);
                    }
                }
            }
            at += 1;
        };
    }
    for _ in 0..depth / 4 {
        step!();
        step!();
        step!();
        step!();
    }
    for _ in 0..depth % 4 {
        step!();
    }
}

/// What computes tiles with one set of instructions. Each height of a tile is a function of its own: all of them in one would take the
/// compiler half a minute more.
trait Tiles: Lanes {
    /// Writes one tile to `out`, which has `columns` columns: more than those of all panels but the last.
    ///
    /// # Safety
    ///
    /// The same as for [`Lanes`]; the rows are as long as a panel, and `out` has `M` rows of `columns`.
    unsafe fn tile_to<W: PanelLine, const M: usize, const N: usize>(
        sides: Sides,
        panels: Panel<'_, W>,
        out: *mut f32,
        out_stride: usize,
        columns: usize,
        is_added: bool,
    );
}

macro_rules! tiles {
    ($lanes:ty $(, $features:literal)?) => {
        impl Tiles for $lanes {
            $(#[target_feature(enable = $features)])?
            unsafe fn tile_to<W: PanelLine, const M: usize, const N: usize>(
                sides: Sides,
                panels: Panel<'_, W>,
                out: *mut f32,
                out_stride: usize,
                columns: usize,
                is_added: bool,
            ) {
                // SAFETY: the caller's promise is passed on.
                unsafe { tile_to_body::<Self, W, M, N>(sides, panels, out, out_stride, columns, is_added) }
            }
        }
    };
}

tiles!(Portable);
#[cfg(target_arch = "x86_64")]
tiles!(Avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
tiles!(Avx512, "avx512f,avx512bw,fma");
// The build's target has the feature.
#[cfg(target_arch = "aarch64")]
tiles!(Neon);

/// Does what [`Tiles::tile_to`] does, compiled for the instructions of its caller.
#[inline(always)]
unsafe fn tile_to_body<L: Lanes, W: PanelLine, const M: usize, const N: usize>(
    sides: Sides,
    panels: Panel<'_, W>,
    out: *mut f32,
    out_stride: usize,
    columns: usize,
    is_added: bool,
) {
    // The last panel may have fewer columns than the line that it was filled up to.
    let (whole, rest) = (columns / WIDTH, columns % WIDTH);
    // SAFETY: the caller promises that the rows are as long as a panel, and `out` has `M` rows of `columns`.
    unsafe {
        let mut sums = [[L::zero(); N]; M];
        if is_added {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (panel, sum) in sums.iter_mut().enumerate() {
                    if panel + 1 < N || rest == 0 {
                        *sum = L::load(out.add(row * out_stride + panel * WIDTH));
                    }
                }
            }
        }
        tile(sides, panels, &mut sums);
        for (row, sums) in sums.into_iter().enumerate() {
            for (panel, sum) in sums.into_iter().enumerate() {
                if panel + 1 < N || rest == 0 {
                    sum.store(out.add(row * out_stride + panel * WIDTH));
                    continue;
                }
                let mut line = Line::ZERO;
                sum.store(line.0.as_mut_ptr());
                let out = std::slice::from_raw_parts_mut(out.add(row * out_stride + whole * WIDTH), rest);
                for (out, value) in out.iter_mut().zip(line.0) {
                    *out = if is_added { *out + value } else { value };
                }
            }
        }
    }
}

/// Multiplies all rows by the panels of one tile, in tiles of similar heights.
unsafe fn multiply_panels<L: Tiles, W: PanelLine>(
    rows: Sides,
    lines: &[W],
    next: &[W],
    out: *mut f32,
    out_stride: usize,
    columns: usize,
    is_added: bool,
) {
    let count = rows.count;
    let tiles = count.div_ceil(L::TILE_ROWS);
    for tile in 0..tiles {
        let first = count * tile / tiles;
        let height = count * (tile + 1) / tiles - first;
        let panels = Panel::of_tile::<L>(lines, next, tile, tiles);
        // SAFETY: the caller promises `count` rows as long as a panel, and as many rows of `columns` in `out`.
        unsafe {
            let sides = Sides { x: rows.x.add(first * rows.stride), count: height, ..rows };
            let out = out.add(first * out_stride);
            // Guards that are constant keep heights that no tile of these lanes has from being compiled.
            macro_rules! of_height {
                ($($height:literal)*) => {
                    match height {
                        $($height if const { $height <= L::TILE_ROWS && L::TILE_PANELS > 1 } && columns > WIDTH =>
                            L::tile_to::<W, $height, 2>(sides, panels, out, out_stride, columns, is_added),
                        $height if const { $height <= L::TILE_ROWS } =>
                            L::tile_to::<W, $height, 1>(sides, panels, out, out_stride, columns, is_added),)*
                        _ => unreachable!("a tile has from one to TILE_ROWS rows"),
                    }
                };
            }
            of_height!(1 2 3 4 5 6 7 8 9 10 11 12);
        }
    }
}

/// A right side in panels of `depth` lines each, with the number of its columns; the last panel is filled up with
/// zeros.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, W> {
    pub lines: &'a [W],
    /// The distance from panel to panel.
    pub stride: usize,
    pub depth: usize,
    pub columns: usize,
}

unsafe fn multiply_with<L: Tiles, W: PanelLine>(
    x: Rows<'_>,
    right: Panels<'_, W>,
    out: *mut f32,
    out_stride: usize,
    is_added: bool,
) {
    let Panels { lines, stride, depth, columns } = right;
    let rows = Sides { x: x.data.as_ptr(), count: x.count, stride: x.stride, depth, apart: stride };
    for (at, first) in (0..columns).step_by(L::TILE_PANELS * WIDTH).enumerate() {
        let columns = (L::TILE_PANELS * WIDTH).min(columns - first);
        let from = at * L::TILE_PANELS * stride;
        let panels = &lines[from..][..(columns.div_ceil(WIDTH) - 1) * stride + depth];
        let next = lines.get(from + L::TILE_PANELS * stride..).unwrap_or_default();
        // SAFETY: the caller's promise, and the slice has the lines of all panels.
        unsafe { multiply_panels::<L, W>(rows, panels, next, out.add(first), out_stride, columns, is_added) };
    }
}

/// The processor's features that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// The best set that this processor has.
    pub fn of_processor() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("fma")
            {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Self::Neon;
        }
        Self::Portable
    }

    /// All sets that this processor has, so that the code for old processors is tested on new ones too.
    #[cfg(test)]
    pub fn here() -> Vec<Self> {
        let mut sets = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        sets.extend([Self::Avx2, Self::Avx512].into_iter().filter(|&set| match Self::of_processor() {
            Self::Avx512 => true,
            best => set == best,
        }));
        #[cfg(target_arch = "aarch64")]
        sets.push(Self::Neon);
        sets
    }
}

/// Computes `x * right` and writes it to the rows of `out`, or adds it to them.
///
/// # Safety
///
/// `out` has `x.count` rows of `right.columns` numbers that begin `out_stride` apart, and nobody else reads or writes
/// them.
pub(super) unsafe fn multiply<W: PanelLine>(
    x: Rows<'_>,
    right: Panels<'_, W>,
    out: *mut f32,
    out_stride: usize,
    is_added: bool,
) {
    // SAFETY: the caller's promise is passed on.
    unsafe { multiply_on(Isa::of_processor(), x, right, out, out_stride, is_added) }
}

unsafe fn multiply_on<W: PanelLine>(
    isa: Isa,
    x: Rows<'_>,
    right: Panels<'_, W>,
    out: *mut f32,
    out_stride: usize,
    is_added: bool,
) {
    assert!(x.count == 0 || (x.count - 1) * x.stride + right.depth <= x.data.len(), "the left side is too short");
    match isa {
        // SAFETY: the left side was checked above, slices bound the right side, and the caller promises the same of
        // `out`.
        Isa::Portable => unsafe { multiply_with::<Portable, W>(x, right, out, out_stride, is_added) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above, and the features were detected.
        Isa::Avx2 => unsafe { multiply_with::<Avx2, W>(x, right, out, out_stride, is_added) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above, and the features were detected.
        Isa::Avx512 => unsafe { multiply_with::<Avx512, W>(x, right, out, out_stride, is_added) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as for the portable code.
        Isa::Neon => unsafe { multiply_with::<Neon, W>(x, right, out, out_stride, is_added) },
    }
}

#[cfg(test)]
mod tests {
    use super::{super::samples::*, *};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tiles_of_all_heights_are_those_of_the_textbook(
            count in 1usize..30, depth in 1usize..40, columns in 1usize..50, apart in 0usize..5, seed: u32,
        ) {
            let (stride, out_stride) = (depth + apart, columns + apart);
            let x = values(count * stride, seed);
            let panels = columns.div_ceil(WIDTH);
            let numbers = values(panels * depth * WIDTH, seed ^ 1);
            let lines: Vec<Line> = numbers.as_chunks().0.iter().map(|&numbers| Line(numbers)).collect();
            let right = Panels { lines: &lines, stride: depth, depth, columns };
            let textbook = |row: usize, column: usize| -> f64 {
                let weight = |at: usize| f64::from(lines[column / WIDTH * depth + at].0[column % WIDTH]);
                (0..depth).map(|at| f64::from(x[row * stride + at]) * weight(at)).sum()
            };
            for isa in Isa::here() {
                let mut out = vec![7f32; count * out_stride];
                for times in 1..3 {
                    let rows = Rows { data: &x, count, stride };
                    // SAFETY: `out` has a row for each of `x`.
                    unsafe { multiply_on(isa, rows, right, out.as_mut_ptr(), out_stride, times > 1) };
                    for (row, out) in out.chunks_exact(out_stride).enumerate() {
                        for (column, &got) in out.iter().enumerate() {
                            let want = if column < columns { f64::from(times) * textbook(row, column) } else { 7.0 };
                            prop_assert!((f64::from(got) - want).abs() < 1e-3, "{isa:?}: {got} where {want} was due");
                        }
                    }
                }
            }
        }
    }
}
