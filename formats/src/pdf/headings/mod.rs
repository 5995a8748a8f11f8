//! Headings: of the outline where it points into the file, else of the tags, else by the sizes of fonts.

mod outline;
mod sizes;
mod tags;

use super::{document::Document, layout::Laid};
use crate::{Extraction, FormatError, Heading, Limits};

/// What declares a file's headings, found before its pages are read.
pub(super) enum Headings {
    Outline(Vec<outline::Entry>),
    Tags(tags::Tags),
    FontSizes(sizes::Sizes),
}

impl Headings {
    /// Decides by what the headings are found, and tells whether there is an outline. Elements of the structure tree beyond
    /// `most_elements` are not looked at.
    ///
    /// # Errors
    /// An outline over the limit of headings.
    pub(super) fn find(
        document: &Document,
        most_elements: usize,
        limits: &Limits,
    ) -> Result<(Self, bool), FormatError> {
        let outline = outline::read(document, limits)?;
        let has_outline = !outline.is_empty();
        // A title that points nowhere heads nothing.
        if outline.iter().any(|entry| entry.page.is_some()) {
            return Ok((Self::Outline(outline), has_outline));
        }
        let tags = tags::Tags::read(document, most_elements, limits.headings as usize);
        let found = if tags.is_empty() { Self::FontSizes(sizes::Sizes::default()) } else { Self::Tags(tags) };
        Ok((found, has_outline))
    }

    /// Takes note of a page whose text begins at `start`.
    pub(super) fn add_page(&mut self, index: usize, laid: &Laid, start: usize) {
        match self {
            Self::Outline(_) => {}
            Self::Tags(tags) => tags.add_page(index, laid, start),
            Self::FontSizes(sizes) => sizes.add_page(index, laid, start),
        }
    }

    /// Whether there will be some, as far as the pages seen so far tell: an outline's and the tags' stand for the whole file.
    pub(super) fn are_likely(self) -> bool {
        match self {
            Self::Outline(_) | Self::Tags(_) => true,
            Self::FontSizes(sizes) => !sizes.finish().is_empty(),
        }
    }

    /// The headings, in the order of the text, and what they come from.
    pub(super) fn finish(self, extraction: &Extraction) -> (Vec<Heading>, &'static str) {
        match self {
            Self::Outline(entries) => (outline::place(entries, extraction), "outline"),
            Self::Tags(tags) => (tags.finish(), "tags"),
            Self::FontSizes(sizes) => (sizes.finish(), "font_sizes"),
        }
    }
}
