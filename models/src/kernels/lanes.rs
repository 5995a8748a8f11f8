//! Sixteen numbers at once, as the processor's registers hold them.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// How many numbers a line has, however wide the processor's registers are.
pub(super) const WIDTH: usize = 16;

/// Sixteen f32.
///
/// # Safety
///
/// Every function needs a processor with the features that the implementing type names, and pointers to `WIDTH`
/// numbers.
pub(super) trait Lanes: Copy {
    /// How many rows of a tile have their sums in registers.
    const TILE_ROWS: usize;
    /// How many panels a tile has. With two, a number of a row that was read is multiplied twice, so that loads do not keep products waiting.
    const TILE_PANELS: usize = 1;
    unsafe fn zero() -> Self;
    unsafe fn all(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn load_bf16(from: *const u16) -> Self;
    unsafe fn times(self, other: Self) -> Self;
    /// `self + left * right`, rounded once if the processor can.
    unsafe fn add_product(self, left: Self, right: Self) -> Self;
    /// Loads what will be read soon into the cache; any address is allowed.
    fn prefetch(_at: *const u8) {}

    /// Sixteen i32.
    type Sums: Copy;
    /// Sixteen pairs of i16.
    type Pairs: Copy;
    unsafe fn no_sums() -> Self::Sums;
    /// Widens pairs of i8.
    unsafe fn load_pairs(from: *const i8) -> Self::Pairs;
    /// Adds to each sum the product of its pair and `pair`. With VNNI this is one instruction.
    unsafe fn add_pairs(sums: Self::Sums, pairs: Self::Pairs, pair: *const [i16; 2]) -> Self::Sums;
    unsafe fn of_sums(sums: Self::Sums) -> Self;
}

/// What any processor has; LLVM vectorises it as well as it can.
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
        // mul_add would be a function call on a processor without the instruction.
        Self(std::array::from_fn(|i| self.0[i] + left.0[i] * right.0[i]))
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: the caller's promise.
        let numbers = unsafe { from.cast::<[u16; WIDTH]>().read_unaligned() };
        Self(numbers.map(|number| f32::from_bits(u32::from(number) << 16)))
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * other.0[i]))
    }

    type Sums = [i32; WIDTH];
    type Pairs = [[i8; 2]; WIDTH];

    #[inline(always)]
    unsafe fn no_sums() -> Self::Sums {
        [0; WIDTH]
    }

    #[inline(always)]
    unsafe fn load_pairs(from: *const i8) -> Self::Pairs {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<Self::Pairs>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn add_pairs(sums: Self::Sums, pairs: Self::Pairs, pair: *const [i16; 2]) -> Self::Sums {
        // SAFETY: the caller's promise.
        let [first, second] = unsafe { pair.read_unaligned() }.map(i32::from);
        std::array::from_fn(|i| sums[i] + i32::from(pairs[i][0]) * first + i32::from(pairs[i][1]) * second)
    }

    #[inline(always)]
    unsafe fn of_sums(sums: Self::Sums) -> Self {
        Self(sums.map(|sum| sum as f32))
    }
}

/// AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx2 {
    #[inline(always)]
    fn prefetch(at: *const u8) {
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

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: as above. A bf16 is the upper half of an f32.
        unsafe {
            let first = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let second = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast()));
            Self(
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(first)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(second)),
            )
        }
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm256_mul_ps(self.0, other.0), _mm256_mul_ps(self.1, other.1)) }
    }

    type Sums = (__m256i, __m256i);
    type Pairs = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn no_sums() -> Self::Sums {
        // SAFETY: as above.
        unsafe { (_mm256_setzero_si256(), _mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn load_pairs(from: *const i8) -> Self::Pairs {
        // SAFETY: as above.
        unsafe {
            let (first, second) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast()));
            (_mm256_cvtepi8_epi16(first), _mm256_cvtepi8_epi16(second))
        }
    }

    #[inline(always)]
    unsafe fn add_pairs(sums: Self::Sums, pairs: Self::Pairs, pair: *const [i16; 2]) -> Self::Sums {
        // SAFETY: as above.
        unsafe {
            let pair = _mm256_set1_epi32(pair.cast::<i32>().read_unaligned());
            let (first, second) = (_mm256_madd_epi16(pairs.0, pair), _mm256_madd_epi16(pairs.1, pair));
            (_mm256_add_epi32(sums.0, first), _mm256_add_epi32(sums.1, second))
        }
    }

    #[inline(always)]
    unsafe fn of_sums(sums: Self::Sums) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm256_cvtepi32_ps(sums.0), _mm256_cvtepi32_ps(sums.1)) }
    }
}

/// AVX-512 F and BW.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512 {
    #[inline(always)]
    fn prefetch(at: *const u8) {
        // SAFETY: a prefetch reads nothing, and every x86_64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }

    const TILE_ROWS: usize = 12;
    const TILE_PANELS: usize = 2;

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

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: as above. A bf16 is the upper half of an f32.
        unsafe {
            let numbers = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(numbers)))
        }
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    type Sums = __m512i;
    type Pairs = __m512i;

    #[inline(always)]
    unsafe fn no_sums() -> Self::Sums {
        // SAFETY: as above.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load_pairs(from: *const i8) -> Self::Pairs {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn add_pairs(sums: Self::Sums, pairs: Self::Pairs, pair: *const [i16; 2]) -> Self::Sums {
        // SAFETY: as above. With VNNI, LLVM combines the two into vpdpwssd.
        unsafe {
            let pair = _mm512_set1_epi32(pair.cast::<i32>().read_unaligned());
            _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, pair))
        }
    }

    #[inline(always)]
    unsafe fn of_sums(sums: Self::Sums) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_cvtepi32_ps(sums) })
    }
}

/// NEON, which every processor of this architecture has.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy)]
pub(super) struct Neon([float32x4_t; 4]);

#[cfg(target_arch = "aarch64")]
impl Lanes for Neon {
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { [vdupq_n_f32(0.0); 4] })
    }

    #[inline(always)]
    unsafe fn all(value: f32) -> Self {
        // SAFETY: as above.
        Self(unsafe { [vdupq_n_f32(value); 4] })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above.
        unsafe { Self([vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))]) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        let [first, second, third, fourth] = self.0;
        // SAFETY: as above.
        unsafe {
            vst1q_f32(to, first);
            vst1q_f32(to.add(4), second);
            vst1q_f32(to.add(8), third);
            vst1q_f32(to.add(12), fourth);
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, left: Self, right: Self) -> Self {
        let ([a, b, c, d], x, y) = (self.0, left.0, right.0);
        // SAFETY: as above.
        Self(unsafe {
            [vfmaq_f32(a, x[0], y[0]), vfmaq_f32(b, x[1], y[1]), vfmaq_f32(c, x[2], y[2]), vfmaq_f32(d, x[3], y[3])]
        })
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: as above. A bf16 is the upper half of an f32.
        unsafe {
            let (first, second) = (vld1q_u16(from), vld1q_u16(from.add(8)));
            Self([
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(first))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(first)),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(second))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(second)),
            ])
        }
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        let ([a, b, c, d], x) = (self.0, other.0);
        // SAFETY: as above.
        Self(unsafe { [vmulq_f32(a, x[0]), vmulq_f32(b, x[1]), vmulq_f32(c, x[2]), vmulq_f32(d, x[3])] })
    }

    type Sums = [int32x4_t; 4];
    /// The first number of each pair, and the second.
    type Pairs = [[int16x8_t; 2]; 2];

    #[inline(always)]
    unsafe fn no_sums() -> Self::Sums {
        // SAFETY: as above.
        unsafe { [vdupq_n_s32(0); 4] }
    }

    #[inline(always)]
    unsafe fn load_pairs(from: *const i8) -> Self::Pairs {
        // SAFETY: as above.
        unsafe {
            let int8x16x2_t(first, second) = vld2q_s8(from);
            [
                [vmovl_s8(vget_low_s8(first)), vmovl_high_s8(first)],
                [vmovl_s8(vget_low_s8(second)), vmovl_high_s8(second)],
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_pairs(sums: Self::Sums, pairs: Self::Pairs, pair: *const [i16; 2]) -> Self::Sums {
        let [mut a, mut b, mut c, mut d] = sums;
        // SAFETY: as above.
        unsafe {
            for ([low, high], number) in pairs.into_iter().zip(pair.read_unaligned()) {
                a = vmlal_n_s16(a, vget_low_s16(low), number);
                b = vmlal_high_n_s16(b, low, number);
                c = vmlal_n_s16(c, vget_low_s16(high), number);
                d = vmlal_high_n_s16(d, high, number);
            }
        }
        [a, b, c, d]
    }

    #[inline(always)]
    unsafe fn of_sums(sums: Self::Sums) -> Self {
        let [a, b, c, d] = sums;
        // SAFETY: as above.
        Self(unsafe { [vcvtq_f32_s32(a), vcvtq_f32_s32(b), vcvtq_f32_s32(c), vcvtq_f32_s32(d)] })
    }
}
