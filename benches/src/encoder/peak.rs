//! How many operations the processor can do at most, so that a figure tells how near to that an encoder is.
use crate::figure::BoxError;
use pulp::{Arch, Simd, WithSimd};
use std::{hint::black_box, thread, time::Instant};

/// Results that do not wait for each other, so that the processor always has the next multiplication to begin.
const CHAINS: usize = 12;
const STEPS: usize = 50_000_000;
/// A multiplication and an addition.
const OPERATIONS: usize = 2;

struct Chains;

impl WithSimd for Chains {
    /// How many numbers were multiplied and added at once.
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let (factor, summand) = (simd.splat_f32s(black_box(0.999)), simd.splat_f32s(black_box(0.001)));
        let mut sums = [simd.splat_f32s(0.5); CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, factor, summand);
            }
        }
        black_box(sums);
        S::F32_LANES
    }
}

/// The operations in f32 that these threads do in a second if they wait for no memory.
pub fn operations_per_second(threads: usize) -> Result<f64, BoxError> {
    let start = Instant::now();
    let threads: Vec<_> = (0..threads).map(|_| thread::spawn(|| Arch::new().dispatch(Chains))).collect();
    let mut operations = 0;
    for thread in threads {
        let lanes = thread.join().map_err(|_| "a thread of the multiplications panicked")?;
        operations += lanes * CHAINS * STEPS * OPERATIONS;
    }
    Ok(operations as f64 / start.elapsed().as_secs_f64())
}

/// The operations in f32 of the products of matrices that MiniLM takes for texts of these many tokens.
pub fn operations_of_minilm(tokens: &[usize]) -> f64 {
    const LAYERS: usize = 6;
    const WIDTH: usize = 384;
    const INNER: usize = 1536;
    let of_text = |&tokens: &usize| {
        let weights = 4 * WIDTH * WIDTH + 2 * WIDTH * INNER;
        let attention = 2 * tokens * WIDTH;
        LAYERS * tokens * (weights + attention) * OPERATIONS
    };
    tokens.iter().map(of_text).sum::<usize>() as f64
}
