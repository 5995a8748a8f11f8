//! Gaussian mixtures with diagonal covariances, fitted by expectation and maximisation (Dempster, Laird and Rubin, 1977);
//! the Bayesian information criterion (Schwarz, 1978) decides how many components there are.
use crate::{points::Points, random::Random};

/// The most points that decide the number of components and where they are.
const SAMPLE: usize = 2_000;
/// The most rounds of a fit, and the gain of likelihood a point below which it ends.
const ROUNDS: usize = 60;
const GAIN: f64 = 1e-4;
/// How many further components may bring nothing before the search for a better number ends.
const PATIENCE: usize = 6;
/// The least variance of a component, as a share of the variance of all points: what keeps a component from shrinking to
/// one point.
const LEAST_VARIANCE: f64 = 1e-2;

/// A mixture of Gaussian components.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mixture {
    components: Vec<Component>,
}

#[derive(Clone, Debug, PartialEq)]
struct Component {
    /// The logarithm of its share of the points, with the factor of its density.
    log_scale: f64,
    mean: Vec<f64>,
    /// One divided by each variance.
    precision: Vec<f64>,
}

impl Mixture {
    /// The mixture with the least criterion among those with up to `most` components; `None` if `stop` said so.
    pub(crate) fn select(points: &Points, most: usize, seed: u64, stop: &dyn Fn() -> bool) -> Option<Mixture> {
        let mut random = Random::new(seed);
        let sample = random.sample(points.len(), SAMPLE);
        let points = points.select(&sample);
        // A component needs some points of its own.
        let most = most.min(points.len() / 3).max(1);
        let mut best: Option<(f64, usize, Mixture)> = None;
        for count in 1..=most {
            let (mixture, likelihood) = Mixture::fit(&points, count, &mut random, stop)?;
            let parameters = count * 2 * points.width() + count - 1;
            let criterion = parameters as f64 * (points.len().max(1) as f64).ln() - 2.0 * likelihood;
            match &best {
                Some((least, at, _)) if criterion >= *least => {
                    if count - at >= PATIENCE {
                        break;
                    }
                }
                _ => best = Some((criterion, count, mixture)),
            }
        }
        best.map(|(.., mixture)| mixture)
    }

    pub(crate) fn components(&self) -> usize {
        self.components.len()
    }

    /// How probable it is that a point belongs to each component.
    pub(crate) fn responsibilities(&self, point: &[f32]) -> Vec<f64> {
        self.expect(point).1
    }

    /// The logarithm of the density at a point, and each component's share of it.
    fn expect(&self, point: &[f32]) -> (f64, Vec<f64>) {
        let mut shares: Vec<f64> = self.components.iter().map(|component| component.log_density(point)).collect();
        let highest = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        shares.iter_mut().for_each(|share| *share = (*share - highest).exp());
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        (highest + sum.ln(), shares)
    }

    fn fit(points: &Points, count: usize, random: &mut Random, stop: &dyn Fn() -> bool) -> Option<(Mixture, f64)> {
        let floor = floor(points);
        // Each point first belongs to the nearest of the seeds alone.
        let seeds = seeds(points, count, random);
        let mut shares: Vec<Vec<f64>> = points.rows().map(|row| nearest(points, &seeds, row)).collect();
        let mut likelihood = f64::NEG_INFINITY;
        let mut mixture = Mixture::maximise(points, &shares, count, &floor);
        for _ in 0..ROUNDS {
            if stop() {
                return None;
            }
            let mut sum = 0.0;
            for (row, shares) in points.rows().zip(&mut shares) {
                let (log_density, expected) = mixture.expect(row);
                sum += log_density;
                *shares = expected;
            }
            let gain = sum - likelihood;
            likelihood = sum;
            if gain < GAIN * points.len() as f64 {
                break;
            }
            mixture = Mixture::maximise(points, &shares, count, &floor);
        }
        Some((mixture, likelihood))
    }

    fn maximise(points: &Points, shares: &[Vec<f64>], count: usize, floor: &[f64]) -> Mixture {
        let (width, n) = (points.width(), points.len().max(1) as f64);
        let mut weights = vec![1e-9; count];
        let mut means = vec![vec![0.0; width]; count];
        let mut squares = vec![vec![0.0; width]; count];
        for (row, shares) in points.rows().zip(shares) {
            for (component, share) in shares.iter().enumerate().filter(|(_, share)| **share > 1e-12) {
                weights[component] += share;
                for ((mean, square), x) in means[component].iter_mut().zip(&mut squares[component]).zip(row) {
                    let x = f64::from(*x);
                    *mean += share * x;
                    *square += share * x * x;
                }
            }
        }
        let components = weights.iter().zip(means).zip(squares).map(|((weight, mean), squares)| {
            let mean: Vec<f64> = mean.into_iter().map(|sum| sum / weight).collect();
            let variance = squares
                .iter()
                .zip(&mean)
                .zip(floor)
                .map(|((square, mean), floor)| (square / weight - mean * mean).max(*floor));
            let precision: Vec<f64> = variance.map(f64::recip).collect();
            let log_determinant: f64 = precision.iter().map(|precision| precision.ln()).sum();
            let log_scale = (weight / n).ln() + 0.5 * (log_determinant - width as f64 * std::f64::consts::TAU.ln());
            Component { log_scale, mean, precision }
        });
        Mixture { components: components.collect() }
    }
}

impl Component {
    fn log_density(&self, point: &[f32]) -> f64 {
        let distance: f64 = point
            .iter()
            .zip(&self.mean)
            .zip(&self.precision)
            .map(|((x, mean), precision)| {
                let difference = f64::from(*x) - mean;
                difference * difference * precision
            })
            .sum();
        self.log_scale - 0.5 * distance
    }
}

/// The least variance in each dimension.
fn floor(points: &Points) -> Vec<f64> {
    let mean = points.mean();
    let mut squares = vec![0.0; points.width()];
    for row in points.rows() {
        for ((sum, x), mean) in squares.iter_mut().zip(row).zip(&mean) {
            *sum += (f64::from(*x) - mean).powi(2);
        }
    }
    squares.iter().map(|sum| LEAST_VARIANCE * sum / points.len().max(1) as f64 + 1e-12).collect()
}

/// Points that lie apart, each drawn by its squared distance from those before (k-means++, Arthur and Vassilvitskii, 2007).
fn seeds(points: &Points, count: usize, random: &mut Random) -> Vec<usize> {
    let mut seeds = vec![random.below(points.len().max(1))];
    let mut distances = vec![f64::INFINITY; points.len()];
    while seeds.len() < count {
        let last = points.row(seeds[seeds.len() - 1]);
        for (distance, row) in distances.iter_mut().zip(points.rows()) {
            *distance = distance.min(squared_distance(last, row));
        }
        let mut left = random.unit() * distances.iter().sum::<f64>();
        let drawn = distances.iter().position(|distance| {
            left -= distance;
            left < 0.0
        });
        seeds.push(drawn.unwrap_or(points.len() - 1));
    }
    seeds
}

fn nearest(points: &Points, seeds: &[usize], row: &[f32]) -> Vec<f64> {
    let distance = |seed: &usize| squared_distance(points.row(*seed), row);
    let nearest = (0..seeds.len()).min_by(|a, b| distance(&seeds[*a]).total_cmp(&distance(&seeds[*b])));
    (0..seeds.len()).map(|at| f64::from(u8::from(Some(at) == nearest))).collect()
}

fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| f64::from(x - y).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blobs(centres: &[[f32; 2]], each: usize, seed: u64) -> Points {
        let mut random = Random::new(seed);
        let mut points = Points::new(2);
        for centre in centres {
            for _ in 0..each {
                let mut near = || (random.unit() + random.unit() + random.unit() - 1.5) as f32;
                points.push(&[centre[0] + near(), centre[1] + near()]);
            }
        }
        points
    }

    #[test]
    fn the_criterion_finds_as_many_components_as_there_are() {
        let centres = [[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]];
        for count in 1..=4 {
            let points = blobs(&centres[..count], 60, count as u64);
            let mixture = Mixture::select(&points, 20, 7, &|| false).expect("nobody stops it");
            assert_eq!(mixture.components(), count);
            let likeliest = |row: &[f32]| {
                let shares = mixture.responsibilities(row);
                (0..shares.len()).max_by(|a, b| shares[*a].total_cmp(&shares[*b]))
            };
            let of: Vec<_> = points.rows().map(likeliest).collect();
            for blob in of.chunks(60) {
                assert!(blob.iter().all(|component| *component == blob[0]), "{count}: {blob:?}");
            }
        }
        assert_eq!(Mixture::select(&blobs(&centres, 10, 1), 9, 7, &|| true), None);
    }

    proptest! {
        #[test]
        fn any_points_get_shares_that_sum_to_one(rows in prop::collection::vec(prop::array::uniform2(-50f32..50.0), 1..40), most in 1usize..9, seed in 0u64..99) {
            let mut points = Points::new(2);
            // Each point stands there twice: equal points must not make a component without a variance.
            rows.iter().chain(&rows).for_each(|row| points.push(row));
            let mixture = Mixture::select(&points, most, seed, &|| false).expect("nobody stops it");
            for row in points.rows() {
                let shares = mixture.responsibilities(row);
                prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{:?}", shares);
            }
            prop_assert_eq!(Mixture::select(&points, most, seed, &|| false), Some(mixture));
        }
    }
}
