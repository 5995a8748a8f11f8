use super::exp;

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

/// x times the logistic function of x.
#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x.clamp(-87.0, 87.0)))
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
    /// Adds `bias` to each row and applies GELU.
    add_bias_gelu, add_bias_gelu_body, (rows: &mut [f32], bias: &[f32]));

#[inline(always)]
fn gated(wide: &[f32], out: &mut [f32], width: usize, function: impl Fn(f32) -> f32) {
    for (row, out) in wide.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
        let (first, second) = row.split_at(width);
        for ((out, x), y) in out.iter_mut().zip(first).zip(second) {
            *out = function(*x) * y;
        }
    }
}

#[inline(always)]
fn gated_gelu_body(wide: &[f32], out: &mut [f32], width: usize) {
    gated(wide, out, width, gelu);
}
dispatch!(
    /// Writes GELU of the first half of each row of `wide`, times the second half, to rows of `width`.
    gated_gelu, gated_gelu_body, (wide: &[f32], out: &mut [f32], width: usize));

#[inline(always)]
fn gated_silu_body(wide: &[f32], out: &mut [f32], width: usize) {
    gated(wide, out, width, silu);
}
dispatch!(
    /// Writes SiLU of the first half of each row of `wide`, times the second half, to rows of `width`.
    gated_silu, gated_silu_body, (wide: &[f32], out: &mut [f32], width: usize));

#[cfg(test)]
mod tests {
    use super::{super::samples::*, *};
    use proptest::prelude::*;

    #[test]
    fn gelu_follows_erf_over_its_whole_range() {
        for step in -2000..=2000 {
            let x = step as f32 / 200.0;
            let want = 0.5 * f64::from(x) * (1.0 + erf(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2));
            assert!((f64::from(gelu(x)) - want).abs() < 1e-6, "gelu({x}) = {} where {want} was due", gelu(x));
        }
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
        assert!(exp(f32::NAN).is_nan() && exp(-f32::NAN).is_nan());
    }

    #[test]
    fn silu_follows_its_definition_over_its_whole_range() {
        for step in -4000..=4000 {
            let x = step as f32 / 20.0;
            let want = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(silu(x)) - want).abs() < 1e-6 * want.abs().max(1.0), "silu({x}) = {}", silu(x));
        }
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
        fn gated_rows_are_those_of_the_scalar_body(rows in 1usize..5, width in 1usize..70, seed: u32) {
            let wide = values(rows * 2 * width, seed);
            let of = |function: &dyn Fn(f64) -> f64| -> Vec<f64> {
                wide.chunks(2 * width)
                    .flat_map(|row| (0..width).map(|i| function(f64::from(row[i])) * f64::from(row[width + i])))
                    .collect()
            };
            let mut got = vec![f32::NAN; rows * width];
            gated_gelu(&wide, &mut got, width);
            close(&got, &of(&|x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))), 8e-6)?;
            gated_silu(&wide, &mut got, width);
            close(&got, &of(&|x| x / (1.0 + (-x).exp())), 8e-6)?;
        }
    }
}
