//! Vectors of one width, and their projection to few dimensions.
use crate::random::Random;

/// Vectors of one width, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    width: usize,
    values: Vec<f32>,
}

impl Points {
    /// No vector yet, each of this width.
    pub fn new(width: usize) -> Points {
        Points { width: width.max(1), values: Vec::new() }
    }

    /// Adds a vector. A longer one is cut and a shorter one filled with zeros.
    pub fn push(&mut self, vector: &[f32]) {
        let end = self.values.len() + self.width;
        self.values.extend(vector.iter().take(self.width));
        self.values.resize(end, 0.0);
    }

    pub fn len(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.width..(at + 1) * self.width]
    }

    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width.max(1))
    }

    /// These rows, in this order.
    pub fn select(&self, rows: &[usize]) -> Points {
        let mut selected = Points::new(self.width);
        rows.iter().for_each(|row| selected.values.extend_from_slice(self.row(*row)));
        selected
    }

    /// The mean of the rows; zeros if there are none.
    pub fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.width];
        for row in self.rows() {
            mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        let count = self.len().max(1) as f64;
        mean.iter_mut().for_each(|sum| *sum /= count);
        mean
    }
}

/// The inner product of two vectors of one width.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Eight sums at a time, which the compiler keeps in vector registers.
    let mut sums = [0.0f32; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (a, b) in a.zip(b) {
        for ((sum, x), y) in sums.iter_mut().zip(a).zip(b) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// How many more columns than wanted the random range finder takes, and how many power rounds it makes.
const OVERSAMPLING: usize = 8;
const POWER_ROUNDS: usize = 2;

/// The coordinates of the points on their first `dimensions` principal components, by a randomised decomposition with a
/// random matrix of signs (Halko, Martinsson and Tropp, 2011). The order of the components is that of their variance.
/// The time is linear in the points. `None` if `stop` said so.
pub fn principal_components(points: &Points, dimensions: usize, seed: u64, stop: &dyn Fn() -> bool) -> Option<Points> {
    let (n, width) = (points.len(), points.width());
    let dimensions = dimensions.min(width).min(n.saturating_sub(1)).max(1);
    let columns = (dimensions + OVERSAMPLING).min(width).min(n.max(1));
    let mean = points.mean();
    let centred = |row: &[f32]| -> Vec<f64> { row.iter().zip(&mean).map(|(x, m)| f64::from(*x) - m).collect() };
    let mut random = Random::new(seed);
    // The basis lies in the space of the components, a row for each: that is small, however many points there are.
    let mut basis: Vec<Vec<f64>> = (0..columns).map(|_| (0..width).map(|_| random.sign()).collect()).collect();
    for _ in 0..=POWER_ROUNDS {
        orthonormalise(&mut basis);
        let mut next = vec![vec![0.0; width]; columns];
        for (at, row) in points.rows().enumerate() {
            if at % 256 == 0 && stop() {
                return None;
            }
            let row = centred(row);
            for (basis, next) in basis.iter().zip(&mut next) {
                let along = inner(basis, &row);
                next.iter_mut().zip(&row).for_each(|(sum, x)| *sum += along * x);
            }
        }
        basis = next;
    }
    orthonormalise(&mut basis);
    // Within the basis the covariance is small enough to be decomposed exactly.
    let mut covariance = vec![vec![0.0; columns]; columns];
    let mut coordinates = Vec::with_capacity(n);
    for row in points.rows() {
        let row = centred(row);
        let along: Vec<f64> = basis.iter().map(|basis| inner(basis, &row)).collect();
        for (sums, x) in covariance.iter_mut().zip(&along) {
            sums.iter_mut().zip(&along).for_each(|(sum, y)| *sum += x * y);
        }
        coordinates.push(along);
    }
    let axes = eigenvectors(covariance);
    let mut projected = Points::new(dimensions);
    for along in coordinates {
        let row: Vec<f32> = axes.iter().take(dimensions).map(|axis| inner(axis, &along) as f32).collect();
        projected.push(&row);
    }
    Some(projected)
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Makes rows orthonormal by the modified Gram-Schmidt process, twice; a row that depends on those before becomes zero.
fn orthonormalise(rows: &mut [Vec<f64>]) {
    for at in 0..rows.len() {
        let (before, rest) = rows.split_at_mut(at);
        let Some(row) = rest.first_mut() else { return };
        let length = inner(row, row).sqrt();
        for _ in 0..2 {
            for other in before.iter() {
                let along = inner(other, row);
                row.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
            }
        }
        let left = inner(row, row).sqrt();
        let scale = if left > 1e-10 * length.max(f64::MIN_POSITIVE) { 1.0 / left } else { 0.0 };
        row.iter_mut().for_each(|x| *x *= scale);
    }
}

/// The eigenvectors of a symmetric matrix by Jacobi's rotations, that of the largest eigenvalue first.
fn eigenvectors(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = matrix.len();
    let mut vectors: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for _ in 0..60 {
        let off: f64 = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| matrix[i][j].powi(2)).sum();
        let size: f64 = (0..n).map(|i| matrix[i][i].powi(2)).sum();
        if off <= 1e-24 * size.max(f64::MIN_POSITIVE) {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut matrix, &mut vectors, p, q);
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| matrix[*b][*b].total_cmp(&matrix[*a][*a]).then(a.cmp(b)));
    order.into_iter().map(|at| vectors[at].clone()).collect()
}

/// Rotates so that the element at (p, q), where p is less than q, becomes zero; the rows of `vectors` turn along.
fn rotate(matrix: &mut [Vec<f64>], vectors: &mut [Vec<f64>], p: usize, q: usize) {
    if matrix[p][q] == 0.0 {
        return;
    }
    let theta = (matrix[q][q] - matrix[p][p]) / (2.0 * matrix[p][q]);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let t = if theta == 0.0 { 1.0 } else { t };
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for row in matrix.iter_mut() {
        let (x, y) = (row[p], row[q]);
        (row[p], row[q]) = (c * x - s * y, s * x + c * y);
    }
    for rows in [matrix, vectors] {
        let (before, from_q) = rows.split_at_mut(q);
        for (x, y) in before[p].iter_mut().zip(&mut from_q[0]) {
            (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn never() -> bool {
        false
    }

    #[test]
    fn the_components_carry_the_variance_in_their_order() {
        let mut random = Random::new(5);
        let mut points = Points::new(40);
        // Three directions with standard deviations 5, 2 and 1, and a little noise in all.
        for _ in 0..500 {
            let strengths =
                [5.0, 2.0, 1.0].map(|scale| scale * (random.unit() + random.unit() + random.unit() - 1.5) * 2.0);
            let row: Vec<f32> = (0..40)
                .map(|at| {
                    strengths.get(at / 10).map_or(0.0, |strength| strength / 10f64.sqrt()) as f32
                        + 1e-3 * random.unit() as f32
                })
                .collect();
            points.push(&row);
        }
        let projected = principal_components(&points, 4, 1, &never).expect("nobody stops it");
        let spread = |axis: usize| projected.rows().map(|row| f64::from(row[axis]).powi(2)).sum::<f64>() / 500.0;
        for (axis, expected) in [25.0, 4.0, 1.0].into_iter().enumerate() {
            assert!((spread(axis) / expected - 1.0).abs() < 0.25, "axis {axis}: {} and not {expected}", spread(axis));
        }
        assert!(spread(3) < 1e-4, "{}", spread(3));
        assert_eq!(principal_components(&points, 4, 1, &never), Some(projected));
        assert_eq!(principal_components(&points, 4, 1, &|| true), None);
    }

    proptest! {
        #[test]
        fn few_dimensions_hold_everything_if_the_points_lie_in_them(seed in 0u64..1000, n in 3usize..30) {
            let mut random = Random::new(seed);
            let axes: Vec<Vec<f64>> = (0..2).map(|_| (0..12).map(|_| random.unit() - 0.5).collect()).collect();
            let mut points = Points::new(12);
            for _ in 0..n {
                let (a, b) = (random.unit(), random.unit());
                points.push(&(0..12).map(|at| (a * axes[0][at] + b * axes[1][at]) as f32).collect::<Vec<_>>());
            }
            let projected = principal_components(&points, 2, seed, &never).expect("nobody stops it");
            let distance = |points: &Points, i: usize, j: usize| {
                points.row(i).iter().zip(points.row(j)).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>().sqrt()
            };
            for i in 0..n {
                for j in 0..i {
                    prop_assert!((distance(&points, i, j) - distance(&projected, i, j)).abs() < 1e-3);
                }
            }
        }

        #[test]
        fn no_vectors_make_it_panic(rows in prop::collection::vec(prop::collection::vec(-1e3f32..1e3, 0..9), 0..9), dimensions in 0usize..12) {
            let mut points = Points::new(6);
            rows.iter().for_each(|row| points.push(row));
            let projected = principal_components(&points, dimensions, 3, &never).expect("nobody stops it");
            prop_assert_eq!(projected.len(), rows.len());
            prop_assert!(projected.rows().flatten().all(|value| value.is_finite()));
        }
    }
}
