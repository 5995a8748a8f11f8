//! A file's text with its anchors.

use crate::{FormatError, Limit, Limits, Pattern, Patterns, ReadLine, Table, tables::has_tables};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The text of a file, and where in it pages and headings begin. All offsets are byte offsets into `text`, on character
/// boundaries and ascending.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// The text has no NUL and its lines end in `\n`; chunks are slices of it.
    pub text: String,
    /// Empty if the format has no pages.
    pub pages: Vec<Page>,
    #[serde(default)]
    pub page_kind: PageKind,
    /// In order of appearance.
    pub headings: Vec<Heading>,
    /// What declared the headings: `markdown`, `html`, `mail`, `json`, `xml`, `outline`, `tags`, `font_sizes`, `styles`, `slides`,
    /// `sheets` or `members`.
    pub headings_from: Option<String>,
    /// The outline of a file with pages that only OCR can read, whose titles may stand where no text is yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outline: Vec<OutlineEntry>,
    /// The tables that are drawn on the pages of a PDF. Other readers write theirs into the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The lines that were read on pictures of pages, one behind the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_lines: Vec<ReadLine>,
    /// The encoding of a text file or web page: its name in the Encoding Standard, or `UTF-32LE` or `UTF-32BE`.
    pub charset: Option<String>,
    /// Further facts for the evidence: counts and warnings.
    pub facts: BTreeMap<String, Value>,
}

/// What a page of the extraction is in its file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageKind {
    #[default]
    Page,
    Slide,
}

/// A page, counted from 1, with its text `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    pub number: u32,
    pub start: usize,
    pub end: usize,
}

/// A declared heading, level 1 (outermost) to 9. `start` is where its line or its page begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    pub level: u8,
    pub title: String,
    pub start: usize,
}

/// An entry of an outline. `level` counts from 1 and stops at 9; `page` is an index, absent if the target is not in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutlineEntry {
    pub level: u8,
    pub title: String,
    pub page: Option<usize>,
}

impl Extraction {
    /// The number of the page that holds byte `offset`; for a gap between pages, the page before it.
    pub fn page_at(&self, offset: usize) -> Option<u32> {
        let after = self.pages.partition_point(|page| page.start <= offset);
        after.checked_sub(1).map(|index| self.pages[index].number)
    }

    /// What a text with headings shows of itself.
    pub(crate) fn patterns(&self) -> Patterns {
        Patterns::default()
            .with(Pattern::HasTextLayer, !self.text.is_empty())
            .with(Pattern::HasHeadings, !self.headings.is_empty())
            .with(Pattern::HasTables, has_tables(&self.text))
    }

    /// Refuses what the limits of the text do not allow.
    pub(crate) fn within(self, limits: &Limits) -> Result<Self, FormatError> {
        check_text(self.text.len(), limits)?;
        if self.headings.len() > limits.headings as usize {
            return Err(FormatError::over(Limit::Headings, format_args!("over {} headings", limits.headings)));
        }
        Ok(self)
    }
}

/// Checks the length of the text. Readers call it as they go, so that the text never exceeds its limit by much.
pub(crate) fn check_text(length: usize, limits: &Limits) -> Result<(), FormatError> {
    if length as u64 > limits.text_bytes {
        return Err(FormatError::over(Limit::TextBytes, format_args!("over {} bytes of text", limits.text_bytes)));
    }
    Ok(())
}
