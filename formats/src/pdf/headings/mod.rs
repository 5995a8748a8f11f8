//! Finds headings: from the outline if it points into the file, else from the tags, else from the size and weight of
//! type.

mod outline;
mod sizes;
mod tags;
mod titles;

use super::{document::Document, layout::Laid};
use crate::{Extraction, FormatError, Heading, Limits, OutlineEntry};
pub(super) use outline::place;

/// What declares a file's headings; this is decided before its pages are read.
pub(super) enum Headings {
    Outline(Vec<OutlineEntry>),
    Tags(tags::Tags),
    FontSizes(sizes::Sizes),
}

impl Headings {
    /// Decides what declares the headings, and tells whether there is an outline. Elements of the structure tree beyond
    /// `most_elements` are ignored.
    ///
    /// # Errors
    /// The outline exceeds the limit of headings.
    pub(super) fn find(
        document: &Document,
        most_elements: usize,
        limits: &Limits,
    ) -> Result<(Self, bool), FormatError> {
        let outline = outline::read(document, limits)?;
        let has_outline = !outline.is_empty();
        // A title without a target heads nothing.
        if outline.iter().any(|entry| entry.page.is_some()) {
            return Ok((Self::Outline(outline), has_outline));
        }
        let tags = tags::Tags::read(document, most_elements, limits.headings as usize);
        let found = if tags.is_empty() { Self::FontSizes(sizes::Sizes::default()) } else { Self::Tags(tags) };
        Ok((found, has_outline))
    }

    /// Takes in a page whose text begins at `start`.
    pub(super) fn add_page(&mut self, index: usize, laid: &Laid, start: usize) {
        match self {
            Self::Outline(_) => {}
            Self::Tags(tags) => tags.add_page(index, laid, start),
            Self::FontSizes(sizes) => sizes.add_page(index, laid, start),
        }
    }

    /// Whether there will be headings, judging by the pages so far: an outline and tags stand for the whole file.
    pub(super) fn are_likely(self) -> bool {
        match self {
            Self::Outline(_) | Self::Tags(_) => true,
            Self::FontSizes(sizes) => !sizes.finish().is_empty(),
        }
    }

    /// The entries of the outline, if it declares the headings.
    pub(super) fn outline(&self) -> &[OutlineEntry] {
        match self {
            Self::Outline(entries) => entries,
            Self::Tags(_) | Self::FontSizes(_) => &[],
        }
    }

    /// The headings in the order of the text, and what declared them.
    pub(super) fn finish(self, extraction: &Extraction) -> (Vec<Heading>, &'static str) {
        match self {
            Self::Outline(entries) => (place(&entries, extraction), "outline"),
            Self::Tags(tags) => (tags.finish(), "tags"),
            Self::FontSizes(sizes) => (sizes.finish(), "font_sizes"),
        }
    }
}
