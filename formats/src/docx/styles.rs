//! Styles: which are headings, which are lists, which hide or raise their text.

use super::numbering::{Numbering, Place};
use crate::{
    FormatError,
    xml::{Element, Node, XmlReader},
};
use std::{collections::HashMap, io::Read};

/// Longer chains of styles do not occur, but cycles do.
const MAX_CHAIN: usize = 64;

/// No producer writes this many styles.
const MAX_STYLES: usize = 50_000;

#[derive(Default)]
pub(super) struct Styles {
    by_id: HashMap<String, Style>,
}

#[derive(Default)]
struct Style {
    name: String,
    based_on: Option<String>,
    outline_level: Option<u8>,
    place: Place,
    hidden: Option<bool>,
    /// Whether its text stands above the line.
    raised: Option<bool>,
}

impl Styles {
    pub(super) fn read<R: Read>(mut xml: XmlReader<R>) -> Result<Self, FormatError> {
        let mut styles = Self::default();
        let mut open: Option<(String, Style)> = None;
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            match (element.name.as_str(), &mut open) {
                ("style", _) => {
                    styles.add(open.take());
                    open = element.attribute("styleId").map(|id| (id.to_owned(), Style::default()));
                }
                // Formats for parts of a table belong to the table, not to the style itself.
                ("tblStylePr", _) => xml.skip()?,
                ("name", Some((_, style))) => {
                    style.name = element.value().unwrap_or_default().trim().to_ascii_lowercase()
                }
                ("basedOn", Some((_, style))) => style.based_on = element.value().map(str::to_owned),
                ("outlineLvl", Some((_, style))) => style.outline_level = outline_level(&element),
                ("vanish", Some((_, style))) => style.hidden = Some(is_on(&element)),
                ("vertAlign", Some((_, style))) => style.raised = Some(element.value() == Some("superscript")),
                (name @ ("ilvl" | "numId"), Some((_, style))) => style.place.note(name, element.value()),
                _ => {}
            }
        }
        styles.add(open);
        Ok(styles)
    }

    fn add(&mut self, style: Option<(String, Style)>) {
        if self.by_id.len() < MAX_STYLES {
            self.by_id.extend(style);
        }
    }

    fn chain<'a>(&'a self, id: &'a str) -> impl Iterator<Item = (&'a str, &'a Style)> {
        let get = |id: &'a str| self.by_id.get(id).map(|style| (id, style));
        std::iter::successors(get(id), move |(_, style)| get(style.based_on.as_deref()?)).take(MAX_CHAIN)
    }

    /// The heading level, 1 to 9, of a style or of the nearest style it is based on: by its name, or by its outline level.
    /// Names are always English, ids are not.
    pub(super) fn heading_level(&self, id: &str) -> Option<u8> {
        for (_, style) in self.chain(id) {
            if style.name == "title" {
                return Some(1);
            }
            if let Some(level) = style.name.strip_prefix("heading ").and_then(|level| level.parse().ok()) {
                return (1..=9).contains(&level).then_some(level);
            }
            // The title of a table of contents is based on heading 1, but set to body level so that it is not a
            // heading.
            if let Some(outline) = style.outline_level {
                return level_of_outline(outline);
            }
        }
        None
    }

    /// Whether the style hides its text.
    pub(super) fn hides(&self, id: &str) -> bool {
        self.chain(id).find_map(|(_, style)| style.hidden).unwrap_or(false)
    }

    /// Whether the style raises its text above the line.
    pub(super) fn raises(&self, id: &str) -> bool {
        self.chain(id).find_map(|(_, style)| style.raised).unwrap_or(false)
    }

    /// The list and level of a paragraph, from its own properties and its style's.
    pub(super) fn list_place(&self, own: Place, id: Option<&str>, numbering: &Numbering) -> Option<(u32, u8)> {
        let mut place = own;
        for (id, style) in id.into_iter().flat_map(|id| self.chain(id)) {
            if place.list.is_none() && style.place.list.is_some() {
                // A style may leave its level to the numbering, which names the style at a level.
                place.level = place.level.or(style.place.level).or_else(|| numbering.level_of(style.place.list?, id));
            }
            place = place.or(style.place);
        }
        let list = place.list.filter(|&list| list != 0)?;
        Some((list, place.level.unwrap_or(0).min(8)))
    }
}

/// The outline level, 0 to 9, that an element sets; the last one is that of body text.
pub(super) fn outline_level(element: &Element) -> Option<u8> {
    element.value().and_then(|value| value.parse().ok()).filter(|level| *level <= 9)
}

/// The level of the headings of an outline level; `None` for body text.
pub(super) fn level_of_outline(outline: u8) -> Option<u8> {
    (outline < 9).then_some(outline + 1)
}

/// Whether a switch such as `w:vanish` is on; it is if it has no value.
pub(super) fn is_on(element: &Element) -> bool {
    !matches!(element.value(), Some("0" | "false" | "off"))
}
