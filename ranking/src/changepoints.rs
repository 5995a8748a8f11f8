//! Where a sequence of vectors changes its subject: PELT (Killick, Fearnhead and Eckley 2012, "Optimal detection of
//! changepoints with a linear computational cost") with the cosine cost.
//!
//! The cost of a segment is the sum of `1 - cos` between each of its vectors and their mean, which for vectors of length 1 is their
//! number less the length of their sum. Up to [`WINDOW`] vectors the result is the optimum. A longer sequence is cut window by
//! window: the last segment of a window is decided again with the next window, and where an edge had to be a boundary, both sides are
//! joined again if that costs less. So time and memory are linear in the number of vectors, whatever they hold.
use std::ops::Range;

/// The most vectors of one exact search, unless four of the shortest segments are more.
pub const WINDOW: usize = 512;

/// A stretch of vectors that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The places of its vectors in the sequence.
    pub range: Range<usize>,
    /// The sum of its vectors, each scaled to length 1.
    sum: Vec<f32>,
    /// The segment ends at the edge of a window, and not because the subject changes there.
    is_cut: bool,
}

impl Segment {
    /// The direction of its vectors, of length 1; zeros if they cancel out.
    pub fn mean(&self) -> Vec<f32> {
        let length = length(&self.sum);
        let scale = if length > 0.0 { length.recip() } else { 0.0 };
        self.sum.iter().map(|x| (f64::from(*x) * scale) as f32).collect()
    }

    fn cost(&self) -> f64 {
        cost(self.range.len(), length(&self.sum))
    }

    fn join(&mut self, next: &Segment) {
        self.range.end = next.range.end;
        self.sum.iter_mut().zip(&next.sum).for_each(|(sum, more)| *sum += more);
        self.is_cut = next.is_cut;
    }
}

fn length(vector: &[f32]) -> f64 {
    vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

fn cost(count: usize, length: f64) -> f64 {
    (count as f64 - length).max(0.0)
}

/// Cuts a sequence of vectors into the segments with the least sum of costs and penalties, one penalty a boundary. A sequence shorter
/// than two of the shortest segments is one segment.
pub fn changepoints<V: AsRef<[f32]>>(
    vectors: impl IntoIterator<Item = V>,
    penalty: f64,
    min_segment: usize,
) -> Vec<Segment> {
    let mut segmenter = Segmenter::new(penalty, min_segment);
    for vector in vectors {
        segmenter.push(vector.as_ref());
    }
    segmenter.finish()
}

/// Does the same for vectors that come one by one, of which it holds only a window.
#[derive(Debug)]
pub struct Segmenter {
    penalty: f64,
    min_segment: usize,
    window: usize,
    /// The number of components of a vector, known from the first one.
    width: usize,
    /// The open vectors, of length 1, one after the other.
    open: Vec<f64>,
    /// How many vectors are open, and how many segments hold the others.
    count: usize,
    closed: usize,
    segments: Vec<Segment>,
}

impl Segmenter {
    pub fn new(penalty: f64, min_segment: usize) -> Segmenter {
        let min_segment = min_segment.max(1);
        let window = WINDOW.max(min_segment.saturating_mul(4));
        Segmenter {
            penalty,
            min_segment,
            window,
            width: 0,
            open: Vec::new(),
            count: 0,
            closed: 0,
            segments: Vec::new(),
        }
    }

    /// Adds the next vector, whose length does not matter. A vector of zeros, or with a component that is no number, has no direction
    /// and fits every segment alike. All have as many components as the first; missing ones are zeros.
    pub fn push(&mut self, vector: &[f32]) {
        if self.closed + self.count == 0 {
            self.width = vector.len();
        }
        let norm = length(vector);
        let scale = if norm.is_finite() && norm > 0.0 { norm.recip() } else { 0.0 };
        let components = vector.iter().map(|x| if scale > 0.0 { f64::from(*x) * scale } else { 0.0 });
        self.open.extend(components.chain(std::iter::repeat(0.0)).take(self.width));
        self.count += 1;
        if self.count >= self.window {
            self.decide(false);
        }
    }

    pub fn finish(mut self) -> Vec<Segment> {
        if self.count > 0 {
            self.decide(true);
        }
        let mut joined: Vec<Segment> = Vec::new();
        for segment in self.segments {
            match joined.last_mut() {
                Some(before) if belongs(before, &segment, self.penalty, self.min_segment) => before.join(&segment),
                _ => joined.push(segment),
            }
        }
        joined
    }

    /// Cuts the open vectors and closes the segments, all but the last one unless `all`.
    fn decide(&mut self, all: bool) {
        let sums = sums(&self.open, self.count, self.width);
        let ends = optimum(&sums, self.count, self.penalty, self.min_segment);
        let last = ends.len() - 1;
        let mut start = 0;
        for (at, end) in ends.into_iter().enumerate() {
            // A long last segment is closed too, or a window could take in vectors one by one.
            if at == last && !all && self.count - start <= self.window / 2 {
                break;
            }
            let sum = difference(&sums, self.width, start, end);
            let range = self.closed + start..self.closed + end;
            self.segments.push(Segment { range, sum, is_cut: at == last });
            start = end;
        }
        self.open.drain(..start * self.width);
        self.count -= start;
        self.closed += start;
    }
}

/// Whether two neighbours are parted only by the edge of a window.
fn belongs(before: &Segment, next: &Segment, penalty: f64, min_segment: usize) -> bool {
    if before.range.len() < min_segment || next.range.len() < min_segment {
        return true;
    }
    let together = Segment {
        range: before.range.start..next.range.end,
        sum: before.sum.iter().zip(&next.sum).map(|(one, other)| one + other).collect(),
        is_cut: false,
    };
    before.is_cut && together.cost() <= before.cost() + next.cost() + penalty
}

/// The sums of the first 0, 1, 2.. vectors, one after the other.
fn sums(vectors: &[f64], count: usize, width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; (count + 1) * width];
    for at in 0..count * width {
        sums[at + width] = sums[at] + vectors[at];
    }
    sums
}

/// The sum of the vectors between two places.
fn difference(sums: &[f64], width: usize, start: usize, end: usize) -> Vec<f32> {
    let (start, end) = (&sums[start * width..][..width], &sums[end * width..][..width]);
    end.iter().zip(start).map(|(end, start)| (end - start) as f32).collect()
}

/// The length of the sum of the vectors between two places, summed in lanes that the compiler can turn into vector instructions.
fn length_between(sums: &[f64], width: usize, start: usize, end: usize) -> f64 {
    let (start, end) = (&sums[start * width..][..width], &sums[end * width..][..width]);
    let (starts, start_rest) = start.as_chunks::<8>();
    let (ends, end_rest) = end.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for (start, end) in starts.iter().zip(ends) {
        for lane in 0..8 {
            let change = end[lane] - start[lane];
            lanes[lane] += change * change;
        }
    }
    let rest = start_rest.iter().zip(end_rest).map(|(start, end)| (end - start).powi(2));
    (lanes.iter().sum::<f64>() + rest.sum::<f64>()).sqrt()
}

/// A place where the last segment may begin.
struct Candidate {
    start: usize,
    /// From this end on, another place is at least as good.
    until: usize,
}

/// The ends of the segments with the least cost. The last one is the number of vectors.
fn optimum(sums: &[f64], count: usize, penalty: f64, min_segment: usize) -> Vec<usize> {
    let width = sums.len() / (count + 1);
    if width == 0 || count < 2 * min_segment {
        return vec![count];
    }
    // The least cost of the vectors before each place, and where the last segment of that begins.
    let mut best = vec![f64::INFINITY; count + 1];
    let mut begins = vec![0; count + 1];
    best[0] = -penalty;
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut costs = Vec::new();
    for end in min_segment..=count {
        candidates.retain(|candidate| candidate.until > end);
        let start = end - min_segment;
        if best[start].is_finite() {
            candidates.push(Candidate { start, until: usize::MAX });
        }
        costs.clear();
        costs.extend(candidates.iter().map(|candidate| {
            let length = length_between(sums, width, candidate.start, end);
            best[candidate.start] + cost(end - candidate.start, length)
        }));
        for (candidate, cost) in candidates.iter().zip(&costs) {
            if cost + penalty < best[end] {
                (best[end], begins[end]) = (cost + penalty, candidate.start);
            }
        }
        // Cutting never costs more than the whole, so a place that is worse than this end now stays worse. Others can begin at this
        // end only once there is room for the shortest segment.
        for (candidate, cost) in candidates.iter_mut().zip(&costs) {
            if *cost >= best[end] {
                candidate.until = candidate.until.min(end + min_segment);
            }
        }
    }
    let mut ends = vec![count];
    let mut at = begins[count];
    while at > 0 {
        ends.push(at);
        at = begins[at];
    }
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn total(vectors: &[Vec<f32>], ends: &[usize], penalty: f64) -> f64 {
        let mut start = 0;
        let costs = ends.iter().map(|end| {
            let mut sum = vec![0.0; vectors[0].len()];
            for vector in &vectors[start..*end] {
                let norm = length(vector);
                for (sum, x) in sum.iter_mut().zip(vector) {
                    *sum += if norm > 0.0 { f64::from(*x) / norm } else { 0.0 };
                }
            }
            let cost = (end - start) as f64 - sum.iter().map(|x| x * x).sum::<f64>().sqrt();
            start = *end;
            cost
        });
        costs.sum::<f64>() + penalty * (ends.len() - 1) as f64
    }

    /// The least cost over every way to cut.
    fn oracle(vectors: &[Vec<f32>], penalty: f64, min_segment: usize) -> f64 {
        let count = vectors.len();
        let mut least = total(vectors, &[count], penalty);
        for mask in 0..1u32 << (count - 1) {
            let ends: Vec<usize> = (1..count).filter(|end| mask & (1 << (end - 1)) != 0).chain([count]).collect();
            let starts = [0].into_iter().chain(ends.iter().copied());
            if starts.zip(&ends).all(|(start, end)| end - start >= min_segment) {
                least = least.min(total(vectors, &ends, penalty));
            }
        }
        least
    }

    fn ends(segments: &[Segment]) -> Vec<usize> {
        segments.iter().map(|segment| segment.range.end).collect()
    }

    /// A vector near one of the axes, different at each place.
    fn near(axis: usize, at: usize) -> Vec<f32> {
        (0..12).map(|c| if c == axis { 1.0 } else { ((at * 31 + c * 17) % 13) as f32 * 0.01 }).collect()
    }

    proptest! {
        #[test]
        fn a_short_sequence_is_cut_at_the_least_cost(
            vectors in prop::collection::vec(prop::collection::vec(-1.0f32..1.0, 3), 1..12),
            penalty in 0.01f64..1.5, min_segment in 1usize..4,
        ) {
            let segments = changepoints(&vectors, penalty, min_segment);
            let ends = ends(&segments);
            prop_assert!(segments.len() == 1 || segments.iter().all(|segment| segment.range.len() >= min_segment), "{ends:?}");
            let (found, least) = (total(&vectors, &ends, penalty), oracle(&vectors, penalty, min_segment));
            prop_assert!(found <= least + 1e-9, "{} above {} by {:?}", found, least, ends);
        }

        #[test]
        fn a_sequence_of_any_length_is_covered_once_in_order(count in 0usize..2600, period in 1usize..900, min_segment in 1usize..200) {
            let vectors = (0..count).map(|at| near(at / period % 12, at));
            let segments = changepoints(vectors, 1.0, min_segment);
            let mut next = 0;
            for segment in &segments {
                prop_assert_eq!(segment.range.start, next);
                prop_assert!(segments.len() == 1 || segment.range.len() >= min_segment);
                next = segment.range.end;
            }
            prop_assert_eq!(next, count);
        }
    }

    #[test]
    fn changes_are_found_and_edges_of_windows_are_none() {
        let subjects = [700, 703, 1500, 2200, 5000];
        let axis = |at: usize| subjects.iter().filter(|end| **end <= at).count();
        let found = ends(&changepoints((0..5000).map(|at| near(axis(at), at)), 1.0, 3));
        assert_eq!(found, subjects);
        assert_eq!(ends(&changepoints((0..5000).map(|at| near(0, at)), 1.0, 3)), [5000]);
    }

    #[test]
    fn what_has_no_direction_breaks_nothing() {
        let odd = [vec![0.0; 3], vec![f32::NAN, 1.0, 0.0], vec![f32::INFINITY; 3], vec![1.0], vec![1.0, 0.0, 0.0, 9.0]];
        assert_eq!(ends(&changepoints(odd, 1.0, 1)), [5]);
        assert!(changepoints(Vec::<Vec<f32>>::new(), 1.0, 3).is_empty());
        assert_eq!(ends(&changepoints([Vec::new(), Vec::new()], 1.0, 1)), [2]);
        let mean = changepoints([vec![3.0, 4.0]], 1.0, 3)[0].mean();
        assert!((mean[0] - 0.6).abs() < 1e-6 && (mean[1] - 0.8).abs() < 1e-6);
    }
}
