//! Joins lines to paragraphs.

use super::{
    Laid, LaidLine,
    hyphens::{Join, Words},
    row_text::Line,
};

/// The distance of a paragraph's lines, in font sizes, if the page does not tell.
const LEADING: f64 = 1.2;
/// How much more than that, in font sizes, begins a paragraph.
const EXTRA: f64 = 0.3;
/// A line this much larger than its neighbour is a title.
const SIZE_CHANGE: f64 = 1.15;
/// The size of an indent, in font sizes.
const INDENT: std::ops::Range<f64> = 0.7..6.0;
/// A column is justified if at least this share of its lines end where it ends.
const JUSTIFIED: f64 = 0.6;
/// Fewer lines tell nothing about their column.
const FEWEST: usize = 5;

/// Appends runs of lines to the text of a page.
pub(super) fn write(laid: &mut Laid, leaves: Vec<Vec<Line>>) {
    let leading = leading(leaves.iter().flat_map(|leaf| steps(leaf))).unwrap_or(LEADING);
    let text: Vec<Vec<String>> =
        leaves.iter().map(|leaf| leaf.iter().map(|line| line.text.clone()).collect()).collect();
    let words = Words::new(text.iter().flatten().map(String::as_str));
    let mut before: Option<Line> = None;
    let mut is_first = true;
    for leaf in leaves {
        let column = Column::new(&leaf, leading);
        let breaks: Vec<bool> = (0..leaf.len()).map(|index| column.breaks_before(&leaf, index)).collect();
        for (line, breaks) in leaf.into_iter().zip(breaks) {
            let breaks = match &before {
                _ if is_first => true,
                // The first line of a column may continue a sentence of the last column.
                Some(last) if breaks => !(line.baseline < last.baseline && goes_on(last, &line)),
                Some(_) => false,
                None => true,
            };
            is_first = false;
            append(laid, &words, before.as_ref(), &line, breaks);
            before = Some(line);
        }
    }
    if let Some(last) = laid.lines.last_mut() {
        last.last = true;
    }
}

fn append(laid: &mut Laid, words: &Words<'_>, before: Option<&Line>, line: &Line, breaks: bool) {
    if breaks {
        if let Some(last) = laid.lines.last_mut() {
            last.last = true;
        }
        if !laid.text.is_empty() {
            laid.text.push_str("\n\n");
        }
    } else {
        match before.and_then(|before| words.join(&before.text, &line.text)) {
            Some(Join::Without) => {
                laid.text.pop();
            }
            Some(Join::With) => {}
            None => laid.text.push('\n'),
        }
    }
    let start = laid.text.len();
    laid.text.push_str(&line.text);
    let range = start..laid.text.len();
    // The line before may have lost its hyphen.
    if let Some(last) = laid.lines.last_mut() {
        last.range.end = last.range.end.min(start);
    }
    if let Some((_, last)) = laid.contents.last_mut() {
        last.end = last.end.min(start);
    }
    laid.contents.extend(line.contents.iter().map(|(id, part)| (*id, start + part.start..start + part.end)));
    laid.lines.push(LaidLine { range, size: line.size, bold: line.bold, first: breaks, last: false });
}

/// Whether a sentence of one column continues in the next.
fn goes_on(last: &Line, line: &Line) -> bool {
    let is_alike = last.bold == line.bold && alike(last, line);
    let is_open = !last.text.ends_with(['.', '!', '?', ':', ';', '”', '"']);
    is_alike && is_open && line.text.chars().next().is_some_and(char::is_lowercase)
}

fn alike(one: &Line, other: &Line) -> bool {
    one.size.max(other.size) < SIZE_CHANGE * one.size.min(other.size)
}

/// The distances of successive lines of one size, in font sizes.
fn steps(leaf: &[Line]) -> impl Iterator<Item = f64> {
    leaf.windows(2)
        .filter(|pair| alike(&pair[0], &pair[1]))
        .map(|pair| (pair[1].baseline - pair[0].baseline) / pair[0].size.max(pair[1].size))
}

/// The most common distance of lines: the lower quartile, because the gaps between paragraphs are larger.
fn leading(steps: impl Iterator<Item = f64>) -> Option<f64> {
    let mut steps: Vec<f64> = steps.filter(|step| *step > 0.5 && *step < 3.5).collect();
    if steps.len() < 3 {
        return None;
    }
    let quarter = steps.len() / 4;
    Some(*steps.select_nth_unstable_by(quarter, f64::total_cmp).1)
}

/// How the lines of a column are set.
struct Column {
    leading: f64,
    /// Where its lines end, if they are justified.
    end: Option<f64>,
    left: f64,
    right: f64,
}

impl Column {
    fn new(leaf: &[Line], page_leading: f64) -> Self {
        let leading = if leaf.len() > FEWEST { leading(steps(leaf)) } else { None };
        let right = leaf.iter().map(|line| line.end).fold(f64::NEG_INFINITY, f64::max);
        let left = leaf.iter().map(|line| line.start).fold(f64::INFINITY, f64::min);
        let mut ends: Vec<f64> = leaf.iter().map(|line| line.end).collect();
        let end = (ends.len() >= FEWEST).then(|| {
            let nearly_last = ends.len() * 9 / 10;
            *ends.select_nth_unstable_by(nearly_last, f64::total_cmp).1
        });
        let end = end.filter(|end| {
            let full = leaf.iter().filter(|line| (line.end - end).abs() < 0.7 * line.size).count();
            full as f64 >= JUSTIFIED * leaf.len() as f64
        });
        // Lists and verse have their own leading, but no column is set closer than it can be read.
        Self { leading: leading.unwrap_or(page_leading).max(0.9), end, left, right }
    }

    fn breaks_before(&self, leaf: &[Line], index: usize) -> bool {
        let line = &leaf[index];
        let Some(last) = index.checked_sub(1).map(|before| &leaf[before]) else { return true };
        let step = (line.baseline - last.baseline) / last.size.max(line.size);
        if step > self.leading + EXTRA || step < -1.5 || !alike(last, line) {
            return true;
        }
        // A line level with the last one is set beside it.
        if step < 0.4 {
            return false;
        }
        let short = |line: &Line| line.end < self.right - 0.1 * (self.right - self.left);
        if last.bold != line.bold && (short(last) || short(line)) {
            return true;
        }
        let ends = last.text.ends_with(['.', '!', '?', ':', '”', '"', ')']);
        if self.end.is_some_and(|end| last.end < end - 3.0 * last.size) && ends {
            return true;
        }
        // This is a line further in than those before and after it.
        let further = |other: &Line| INDENT.contains(&((line.start - other.start) / line.size));
        match leaf.get(index + 1) {
            Some(next) if alike(line, next) => further(last) && further(next),
            _ => further(last) && ends && short(last),
        }
    }
}
