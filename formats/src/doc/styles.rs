//! The styles of paragraphs: which are headings or items of lists.

use super::properties::Paragraph;
use crate::compound::short;

/// The numbers of styles that every document has.
const TITLE: u16 = 62;
const OF_PARAGRAPHS: u16 = 1;
/// How many styles a style is based on are looked at.
const DEPTH: usize = 12;

pub(super) struct Styles(Vec<Style>);

/// A style, which says of paragraphs what they do not say themselves.
#[derive(Default)]
struct Style {
    paragraph: Paragraph,
    /// The number of the style that it is based on.
    base: usize,
}

impl Styles {
    pub(super) fn read(part: &[u8]) -> Self {
        let mut styles = Vec::new();
        let Some(size) = short(part, 0) else { return Self(styles) };
        let count = usize::from(short(part, 2).unwrap_or_default());
        // A name stands behind as many bytes as the program has of everything before it.
        let fixed = short(part, 4).unwrap_or_default();
        let mut rest = part.get(2 + usize::from(size)..).unwrap_or_default();
        while let (true, Some(length)) = (styles.len() < count, short(rest, 0).map(usize::from)) {
            let Some(style) = rest.get(2..2 + length) else { break };
            styles.push(Style::read(style, fixed.into()).unwrap_or_default());
            rest = rest.get(2 + length + length % 2..).unwrap_or_default();
        }
        Self(styles)
    }

    /// Completes what a paragraph says of itself by its style, and those that it is based on.
    pub(super) fn complete(&self, paragraph: &mut Paragraph, number: usize) {
        let mut number = number;
        for _ in 0..DEPTH {
            let Some(style) = self.0.get(number) else { return };
            paragraph.level = paragraph.level.or(style.paragraph.level);
            paragraph.is_item = paragraph.is_item.or(style.paragraph.is_item);
            paragraph.item_level = paragraph.item_level.or(style.paragraph.item_level);
            number = style.base;
        }
    }
}

impl Style {
    fn read(bytes: &[u8], fixed: usize) -> Option<Self> {
        let (kind, base) = (short(bytes, 2)? & 0xF, short(bytes, 2)? >> 4);
        if kind != OF_PARAGRAPHS {
            return None;
        }
        let mut style = Self { paragraph: Paragraph::default(), base: base.into() };
        if let Some(changes) = Self::changes(bytes, fixed) {
            style.paragraph.change(changes);
        }
        match short(bytes, 0)? & 0xFFF {
            level @ 1..=9 => style.paragraph.level = Some(level as u8),
            TITLE => style.paragraph.level = Some(1),
            _ => {}
        }
        Some(style)
    }

    /// The changes to paragraphs, which come after the name and the number of the style.
    fn changes(bytes: &[u8], fixed: usize) -> Option<&[u8]> {
        let name = usize::from(short(bytes, fixed)?);
        // The name ends with a zero that its length leaves out.
        let at = fixed + 2 + (name + 1) * 2;
        let at = at + at % 2;
        let length = usize::from(short(bytes, at)?);
        bytes.get(at + 4..at + 2 + length)
    }
}
