/// Rotary positions: in each head, component `i` and component `i + half` are rotated as a pair, by an angle that grows
/// with the token's position and falls with `i`.
pub(crate) struct Rotary {
    half: usize,
    /// `[positions, half]`
    pub cosines: Vec<f32>,
    /// `[positions, half]`
    pub sines: Vec<f32>,
}

impl Rotary {
    /// Angles are rounded to f32 where transformers rounds them, because the models were trained with these.
    pub fn new(theta: f64, head_width: usize, positions: usize) -> Self {
        let half = head_width / 2;
        let frequencies: Vec<f32> = (0..half)
            .map(|i| {
                let exponent = (2 * i) as f32 / head_width as f32;
                1.0 / theta.powf(f64::from(exponent)) as f32
            })
            .collect();
        let angles = (0..positions).flat_map(|position| frequencies.iter().map(move |step| position as f32 * step));
        let (cosines, sines) =
            angles.map(|angle| (f64::from(angle).cos() as f32, f64::from(angle).sin() as f32)).unzip();
        Self { half, cosines, sines }
    }
}

#[inline(always)]
fn rotate_body(rows: &mut [f32], width: usize, turned: usize, positions: &[u32], rotary: &Rotary) {
    let half = rotary.half;
    for (row, &position) in rows.chunks_exact_mut(width).zip(positions) {
        let at = position as usize * half..(position as usize + 1) * half;
        let (cosines, sines) = (&rotary.cosines[at.clone()], &rotary.sines[at]);
        for head in row[..turned].chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            for (((x, y), cosine), sine) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                (*x, *y) = (*x * cosine - *y * sine, *y * cosine + *x * sine);
            }
        }
    }
}
dispatch!(
    /// Rotates the heads in the first `turned` components of each row of `width` by the row's position.
    rotate, rotate_body, (rows: &mut [f32], width: usize, turned: usize, positions: &[u32], rotary: &Rotary));

#[cfg(test)]
mod tests {
    use super::{super::samples::*, *};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_rotation_turns_each_pair_by_its_angle(half in 1usize..40, heads in 1usize..4, rest in 0usize..20, seed: u32) {
            let rotary = Rotary::new(1000.0, 2 * half, 300);
            let (turned, positions) = (heads * 2 * half, [0u32, 1, 57, 299]);
            let width = turned + rest;
            let rows = values(positions.len() * width, seed);
            let mut want: Vec<f64> = rows.iter().map(|&x| f64::from(x)).collect();
            for (row, position) in want.chunks_mut(width).zip(positions) {
                for head in row[..turned].chunks_mut(2 * half) {
                    for i in 0..half {
                        let angle = f64::from(position) * 1000f64.powf(-(i as f64) / half as f64);
                        let (x, y) = (head[i], head[i + half]);
                        head[i] = x * angle.cos() - y * angle.sin();
                        head[i + half] = x * angle.sin() + y * angle.cos();
                    }
                }
            }
            let mut got = rows;
            rotate(&mut got, width, turned, &positions, &rotary);
            close(&got, &want, 5e-4)?;
        }
    }
}
