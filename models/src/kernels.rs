//! The operations between the matrix products and between token vectors, on plain slices. They are written so that LLVM vectorises them, and
//! are compiled three times (for AVX-512, for AVX2 with FMA, and for the build's target); the processor decides at run time. Matrix products
//! are written by hand, for AMX too, and for NEON, which the build's target has on ARM. The crate's only other unsafe code is in
//! `weights/mapped.rs`.
#![expect(
    unsafe_code,
    reason = "calls of functions compiled for features checked at run time, and the pointers of matrix products"
)]

/// Lanes of one accumulator: one AVX-512 register, or two of AVX2.
const LANES: usize = 16;

/// Computes exp for x <= 88 within about 2 ulp and without a branch; below -87 it returns exp(-87). What is no number stays none.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 leaves the rounded exponent in the low bits of the mantissa.
    const SHIFT: f32 = 12_582_912.0;
    // The comparison compiles to one instruction, f32::max to three.
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let exponent = shifted - SHIFT;
    // ln 2 is subtracted in two parts, so that the remainder is exact.
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

/// Adds all lanes up by halves, so that no sum waits for fifteen others.
#[inline(always)]
fn sum_of(lanes: [f32; LANES]) -> f32 {
    let (mut eight, mut four) = ([0f32; 8], [0f32; 4]);
    for at in 0..8 {
        eight[at] = lanes[at] + lanes[at + 8];
    }
    for at in 0..4 {
        four[at] = eight[at] + eight[at + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}

/// Finds the greatest lane in the same way. Every lane is a number.
#[inline(always)]
fn greatest_of(lanes: [f32; LANES]) -> f32 {
    let (mut eight, mut four) = ([0f32; 8], [0f32; 4]);
    for at in 0..8 {
        eight[at] = if lanes[at + 8] > lanes[at] { lanes[at + 8] } else { lanes[at] };
    }
    for at in 0..4 {
        four[at] = if eight[at + 4] > eight[at] { eight[at + 4] } else { eight[at] };
    }
    let low = if four[2] > four[0] { four[2] } else { four[0] };
    let high = if four[3] > four[1] { four[3] } else { four[1] };
    if high > low { high } else { low }
}

/// Makes three instances of one body.
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

mod activation;
mod aligned;
#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
mod halves;
mod integers;
mod lanes;
mod nearest;
mod normalise;
mod packed;
mod quads;
mod rotary;
#[cfg(target_arch = "x86_64")]
mod thirds;
mod tile;

pub(crate) use activation::{add_bias, add_bias_gelu, gated_gelu, gated_silu};
pub(crate) use attention::{Attention, RelativeBias};
pub(crate) use nearest::nearest;
pub(crate) use normalise::{LayerNorm, add_normalise, normalise};
pub(crate) use packed::{Packed, ROWS_AT_ONCE, TILE_ROWS};
pub(crate) use rotary::{Rotary, rotate};

#[cfg(test)]
mod samples {
    //! Numbers for comparing kernels.

    use proptest::prelude::*;

    /// Numbers from -4 to 0 and from 0 to 4, the same for the same seed.
    pub fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 * 4.0 - 4.0
            })
            .collect()
    }

    /// Whether two results are equal but for rounding.
    pub fn close(got: &[f32], want: &[f64], tolerance: f64) -> Result<(), TestCaseError> {
        prop_assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            prop_assert!((f64::from(*got) - want).abs() <= tolerance, "{} where {} was due", got, want);
        }
        Ok(())
    }

    /// erf by its series in f64, which is accurate for |x| below 5.
    pub fn erf(x: f64) -> f64 {
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
}
