//! Sixteen numbers at once, as the processor has them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Numbers of a line, whatever the processor's registers hold.
pub(super) const WIDTH: usize = 16;

/// Sixteen f32.
///
/// # Safety
///
/// Every function is for processors with the features that the implementing type names; pointers are to `WIDTH` numbers.
pub(super) trait Lanes: Copy {
    /// Rows of a tile whose sums fit the registers.
    const TILE_ROWS: usize;
    unsafe fn zero() -> Self;
    unsafe fn all(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// `self + left * right`, rounded once where the processor can.
    unsafe fn add_product(self, left: Self, right: Self) -> Self;
    /// Brings what will be read soon into the cache; any address will do.
    fn prefetch(_at: *const f32) {}
}

/// What any processor has: LLVM makes of it what it can.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; WIDTH]);

impl Lanes for Portable {
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; WIDTH])
    }

    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        Self([value; WIDTH])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { from.cast::<[f32; WIDTH]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; WIDTH]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, left: Self, right: Self) -> Self {
        // Not mul_add: without the instruction it is a call of a function.
        Self(std::array::from_fn(|i| self.0[i] + left.0[i] * right.0[i]))
    }
}

/// AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch reads nothing, and every x86_64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }

    const TILE_ROWS: usize = 6;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        unsafe { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        // SAFETY: as above.
        let value = unsafe { _mm256_set1_ps(value) };
        Self(value, value)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, left: Self, right: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm256_fmadd_ps(left.0, right.0, self.0), _mm256_fmadd_ps(left.1, right.1, self.1)) }
    }
}

/// AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch reads nothing, and every x86_64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }

    const TILE_ROWS: usize = 12;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { _mm512_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, left: Self, right: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_fmadd_ps(left.0, right.0, self.0) })
    }
}
