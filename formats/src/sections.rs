//! The tree of declared structure.

use crate::Extraction;
use serde::{Deserialize, Serialize};

/// A section of a text. Its own text is `start..text_end`, including the heading line; `start..end` covers its
/// subsections too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    /// The declared level, 1 to 9; skipped levels stay skipped.
    pub level: u8,
    pub start: usize,
    /// Where the first subsection begins, or `end`.
    pub text_end: usize,
    pub end: usize,
    /// The index of the section around it; `None` directly under the root.
    pub parent: Option<usize>,
}

/// The tree of declared structure in pre-order: made from the headings, or from the pages if there are no headings and
/// more than one page. The root is the file itself and not in the list; text before the first section belongs to the
/// root.
pub fn sections(extraction: &Extraction) -> Vec<Section> {
    let end = extraction.text.len();
    if extraction.headings.is_empty() {
        return page_sections(extraction);
    }
    let mut headings: Vec<_> = extraction.headings.iter().collect();
    // An outline may point backwards, but a tree over ranges needs them in order.
    headings.sort_by_key(|heading| heading.start);
    let mut sections: Vec<Section> = Vec::with_capacity(headings.len());
    let mut open: Vec<usize> = Vec::new();
    for heading in headings {
        let start = heading.start.min(end);
        while let Some(&last) = open.last() {
            if sections[last].level < heading.level {
                break;
            }
            sections[last].end = start;
            open.pop();
        }
        let index = sections.len();
        if let Some(before) = index.checked_sub(1) {
            sections[before].text_end = start;
        }
        sections.push(Section {
            title: heading.title.clone(),
            level: heading.level,
            start,
            text_end: end,
            end,
            parent: open.last().copied(),
        });
        open.push(index);
    }
    sections
}

fn page_sections(extraction: &Extraction) -> Vec<Section> {
    if extraction.pages.len() < 2 {
        return Vec::new();
    }
    let section = |page: &crate::Page| Section {
        title: format!("Page {}", page.number),
        level: 1,
        start: page.start,
        text_end: page.end,
        end: page.end,
        parent: None,
    };
    extraction.pages.iter().map(section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heading, Page};

    fn of(levels: &[u8]) -> Vec<Section> {
        let headings = levels
            .iter()
            .enumerate()
            .map(|(index, &level)| Heading { level, title: index.to_string(), start: 10 + index * 10 })
            .collect();
        sections(&Extraction { text: "x".repeat(20 + levels.len() * 10), headings, ..Extraction::default() })
    }

    #[test]
    fn skipped_and_rising_levels_keep_a_tree() {
        let sections = of(&[3, 1, 3, 2, 2, 1]);
        let parents: Vec<_> = sections.iter().map(|section| section.parent).collect();
        assert_eq!(parents, [None, None, Some(1), Some(1), Some(1), None]);
        assert_eq!((sections[1].start, sections[1].text_end, sections[1].end), (20, 30, 60));
        assert_eq!((sections[5].start, sections[5].text_end, sections[5].end), (60, 80, 80));
    }

    #[test]
    fn own_texts_cover_everything_from_the_first_heading_once() {
        let sections = of(&[2, 4, 4, 1, 6, 2, 3, 9, 1]);
        assert_eq!(sections[0].start, 10, "what stands before is the root's");
        for pair in sections.windows(2) {
            assert_eq!(pair[0].text_end, pair[1].start);
        }
        assert_eq!(sections.last().unwrap().text_end, 110);
    }

    #[test]
    fn a_deep_or_flat_hundred_thousand_is_still_a_list() {
        let levels: Vec<u8> = (0..100_000u32).map(|index| (index % 9 + 1) as u8).collect();
        assert_eq!(of(&levels).len(), 100_000);
    }

    #[test]
    fn pages_stand_in_where_no_heading_is_declared() {
        let page = |number, start, end| Page { number, start, end };
        let mut extraction = Extraction {
            text: "one\n\ntwo".into(),
            pages: vec![page(1, 0, 3), page(2, 5, 8)],
            ..Extraction::default()
        };
        let titles: Vec<_> = sections(&extraction).into_iter().map(|section| section.title).collect();
        assert_eq!(titles, ["Page 1", "Page 2"]);
        extraction.pages.pop();
        assert!(sections(&extraction).is_empty(), "a single page is no structure");
    }
}
