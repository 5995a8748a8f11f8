//! The lines that were read on pictures of pages, and where on their pages they stand.

use crate::Extraction;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The most boxes that a range of the text resolves to.
const MOST_BOXES: usize = 64;

/// A line of the text that was read on the picture of a page.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredLine", into = "StoredLine")]
pub struct ReadLine {
    /// Byte range of the text.
    pub start: usize,
    pub end: usize,
    /// The number of its paragraph on the page.
    pub paragraph: u32,
    pub area: Area,
}

/// A line as it is stored: a book has tens of thousands, so that names would take most of the room.
type StoredLine = (usize, usize, u32, [f64; 4]);

impl From<StoredLine> for ReadLine {
    fn from((start, end, paragraph, [left, top, width, height]): StoredLine) -> Self {
        Self { start, end, paragraph, area: Area { left, top, width, height } }
    }
}

impl From<ReadLine> for StoredLine {
    fn from(ReadLine { start, end, paragraph, area: Area { left, top, width, height } }: ReadLine) -> Self {
        (start, end, paragraph, [left, top, width, height])
    }
}

impl ReadLine {
    /// The line where its page begins at another byte of the text.
    pub(crate) fn moved(self, from: usize, to: usize) -> Self {
        let at = |offset: usize| to + offset.saturating_sub(from);
        Self { start: at(self.start), end: at(self.end), ..self }
    }
}

/// A rectangle on a page, from its left and its top: in points, or in pixels of a file that is a picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    /// The smallest rectangle that holds both.
    fn with(self, other: Self) -> Self {
        let (left, top) = (self.left.min(other.left), self.top.min(other.top));
        let right = (self.left + self.width).max(other.left + other.width);
        let bottom = (self.top + self.height).max(other.top + other.height);
        // The places have one decimal, and so have their differences.
        let side = |length: f64| (length * 10.0).round() / 10.0;
        Self { left, top, width: side(right - left), height: side(bottom - top) }
    }
}

impl Extraction {
    /// Where on their pages the lines of a range of the text were read: a box for each stretch of lines of a paragraph, with the number
    /// of its page, in the order of the text. Where that would be over 64, each page has one, and the first 64 pages count. Empty where
    /// nothing was read on a picture.
    pub fn boxes(&self, range: Range<usize>) -> Vec<(u32, Area)> {
        let first = self.read_lines.partition_point(|line| line.end <= range.start);
        let within = self.read_lines[first..].iter().take_while(|line| line.start < range.end);
        let placed = within.filter_map(|line| Some((self.page_at(line.start)?, line.paragraph, line.area)));
        let mut boxes: Vec<(u32, u32, Area)> = Vec::new();
        for (page, paragraph, area) in placed {
            match boxes.last_mut() {
                Some((at, of, whole)) if (*at, *of) == (page, paragraph) => *whole = whole.with(area),
                _ => boxes.push((page, paragraph, area)),
            }
        }
        let is_one_a_page = boxes.len() > MOST_BOXES;
        let mut shown: Vec<(u32, Area)> = Vec::new();
        for (page, _, area) in boxes {
            match shown.last_mut() {
                Some((at, whole)) if is_one_a_page && *at == page => *whole = whole.with(area),
                _ => shown.push((page, area)),
            }
        }
        shown.truncate(MOST_BOXES);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Page;

    fn area(left: f64, top: f64, width: f64, height: f64) -> Area {
        Area { left, top, width, height }
    }

    /// Pages of lines of ten bytes each, a line a paragraph number.
    fn extraction(pages: &[&[u32]]) -> Extraction {
        let mut extraction = Extraction::default();
        for (number, paragraphs) in (1..).zip(pages) {
            let start = extraction.text.len();
            for (line, paragraph) in paragraphs.iter().enumerate() {
                let at = extraction.text.len();
                extraction.text.push_str("nine more\n");
                let area = area(10.5, 20.1 * line as f64, 100.0 + line as f64, 12.0);
                extraction.read_lines.push(ReadLine { start: at, end: at + 9, paragraph: *paragraph, area });
            }
            extraction.pages.push(Page { number, start, end: extraction.text.len() });
        }
        extraction
    }

    #[test]
    fn a_range_has_a_box_for_each_stretch_of_a_paragraph_on_a_page() {
        let read = extraction(&[&[0, 0, 1], &[], &[0]]);
        assert_eq!(read.boxes(0..20), [(1, area(10.5, 0.0, 101.0, 32.1))]);
        assert_eq!(read.boxes(12..13), [(1, area(10.5, 20.1, 101.0, 12.0))], "a part of a line has the line's box");
        let of_both = [(1, area(10.5, 40.2, 102.0, 12.0)), (3, area(10.5, 0.0, 100.0, 12.0))];
        assert_eq!(read.boxes(19..40), of_both, "neither the end of the line before it nor another page's paragraph");
        assert!(read.boxes(9..10).is_empty(), "between lines");
        assert!(Extraction { text: read.text, ..Extraction::default() }.boxes(0..20).is_empty());
    }

    #[test]
    fn many_boxes_become_one_a_page_and_are_never_more_than_allowed() {
        let scattered: Vec<u32> = (0..50).collect();
        let read = extraction(&[&scattered, &scattered]);
        assert_eq!(read.boxes(0..500).len(), 50);
        let whole = area(10.5, 0.0, 149.0, 996.9);
        assert_eq!(read.boxes(0..1000), [(1, whole), (2, whole)]);
        let single: Vec<&[u32]> = vec![&[0][..]; 100];
        assert_eq!(extraction(&single).boxes(0..1000).len(), MOST_BOXES);
    }

    #[test]
    fn a_line_is_stored_without_names_and_comes_back() {
        let line = ReadLine { start: 3, end: 9, paragraph: 2, area: area(1.5, 2.0, 30.0, 4.0) };
        let stored = serde_json::to_value(line).unwrap();
        assert_eq!(stored, serde_json::json!([3, 9, 2, [1.5, 2.0, 30.0, 4.0]]));
        assert_eq!(serde_json::from_value::<ReadLine>(stored).unwrap(), line);
    }
}
