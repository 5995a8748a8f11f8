//! Paragraph styles: which are headings, which are lists.

use std::{collections::HashMap, io::Read};

use crate::{
    FormatError,
    xml::{Node, XmlReader},
};

/// Longer chains of styles do not occur; a cycle does.
const MAX_CHAIN: usize = 64;

#[derive(Default)]
pub(super) struct Styles {
    by_id: HashMap<String, Style>,
}

#[derive(Default)]
struct Style {
    name: String,
    based_on: Option<String>,
    outline_level: Option<u8>,
    numbering: Numbering,
}

/// A paragraph's place in a list, as it or its style says.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbering {
    /// `Some(false)` takes the paragraph out of its style's list.
    pub listed: Option<bool>,
    pub level: Option<u8>,
}

impl Numbering {
    /// Takes in a child of `w:numPr`.
    pub(super) fn note(&mut self, name: &str, value: Option<&str>) {
        match name {
            "ilvl" => self.level = value.and_then(|value| value.parse().ok()),
            "numId" => self.listed = Some(value.is_some_and(|value| value != "0")),
            _ => {}
        }
    }

    fn or(self, other: Self) -> Self {
        Self { listed: self.listed.or(other.listed), level: self.level.or(other.level) }
    }
}

impl Styles {
    pub(super) fn read<R: Read>(mut xml: XmlReader<R>) -> Result<Self, FormatError> {
        let mut styles = Self::default();
        let mut open: Option<(String, Style)> = None;
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            match (element.name.as_str(), &mut open) {
                ("style", _) => {
                    if let Some((id, style)) = open.take() {
                        styles.by_id.insert(id, style);
                    }
                    open = element.attribute("styleId").map(|id| (id.to_owned(), Style::default()));
                }
                ("name", Some((_, style))) => {
                    style.name = element.value().unwrap_or_default().trim().to_ascii_lowercase()
                }
                ("basedOn", Some((_, style))) => style.based_on = element.value().map(str::to_owned),
                ("outlineLvl", Some((_, style))) => {
                    style.outline_level = element.value().and_then(|value| value.parse().ok());
                }
                (name @ ("ilvl" | "numId"), Some((_, style))) => style.numbering.note(name, element.value()),
                _ => {}
            }
        }
        styles.by_id.extend(open);
        Ok(styles)
    }

    fn chain(&self, id: &str) -> impl Iterator<Item = &Style> {
        let first = self.by_id.get(id);
        std::iter::successors(first, |style| self.by_id.get(style.based_on.as_deref()?)).take(MAX_CHAIN)
    }

    /// The heading level, 1 to 9, of a style or of the nearest style it is based on. Names are always English, ids are not.
    pub(super) fn heading_level(&self, id: &str) -> Option<u8> {
        for style in self.chain(id) {
            if style.name == "title" {
                return Some(1);
            }
            if let Some(level) = style.name.strip_prefix("heading ").and_then(|level| level.parse().ok()) {
                return (1..=9).contains(&level).then_some(level);
            }
            // A table of contents' title is based on heading 1 and set to body level, so as not to be one.
            if style.outline_level == Some(9) {
                return None;
            }
        }
        None
    }

    /// The list level of a paragraph, counted from 0, by its own properties and its style's.
    pub(super) fn list_level(&self, own: Numbering, id: Option<&str>) -> Option<u8> {
        let all = id.into_iter().flat_map(|id| self.chain(id)).fold(own, |found, style| found.or(style.numbering));
        (all.listed == Some(true)).then(|| all.level.unwrap_or(0).min(8))
    }
}
