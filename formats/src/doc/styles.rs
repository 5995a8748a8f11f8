//! The styles: which of those of paragraphs are headings or items of lists, and which hide or raise their text.

use super::properties::{Look, Paragraph};
use crate::compound::short;

/// The numbers of styles that every document has.
const TITLE: u16 = 62;
const OF_PARAGRAPHS: u16 = 1;
const OF_CHARACTERS: u16 = 2;
/// How many styles a style is based on are looked at.
const DEPTH: usize = 12;

pub(super) struct Styles(Vec<Style>);

/// A style, which says of paragraphs and characters what they do not say themselves.
#[derive(Default)]
struct Style {
    paragraph: Paragraph,
    look: Look,
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

    /// Whether a style hides its text; `None` if neither it nor those that it is based on say so.
    pub(super) fn hide(&self, number: usize) -> Option<bool> {
        self.say(number, |look| look.switches.hide())
    }

    /// Whether a style raises its text above the line; `None` if neither it nor those that it is based on say so.
    pub(super) fn raise(&self, number: usize) -> Option<bool> {
        self.say(number, |look| look.is_raised)
    }

    /// What a style, or the first of those that it is based on, says of its text.
    fn say(&self, number: usize, of: impl Fn(&Look) -> Option<bool>) -> Option<bool> {
        let mut number = number;
        for _ in 0..DEPTH {
            let style = self.0.get(number)?;
            if let Some(said) = of(&style.look) {
                return Some(said);
            }
            number = style.base;
        }
        None
    }
}

impl Style {
    fn read(bytes: &[u8], fixed: usize) -> Option<Self> {
        let (kind, base) = (short(bytes, 2)? & 0xF, short(bytes, 2)? >> 4);
        let mut style = Self { base: base.into(), ..Self::default() };
        let mut lists = Self::lists(bytes, fixed);
        match kind {
            OF_PARAGRAPHS => {
                // The number of the style comes first.
                let list = lists.next().unwrap_or_default();
                style.paragraph.change(list.get(2..).unwrap_or_default());
                match short(bytes, 0)? & 0xFFF {
                    level @ 1..=9 => style.paragraph.level = Some(level as u8),
                    TITLE => style.paragraph.level = Some(1),
                    _ => {}
                }
            }
            OF_CHARACTERS => {}
            _ => return None,
        }
        style.look = Look::of(lists.next().unwrap_or_default());
        Some(style)
    }

    /// The lists of changes, which come after the name: a style of paragraphs has one for paragraphs, and then, as a style of
    /// characters does, one for characters.
    fn lists(bytes: &[u8], fixed: usize) -> impl Iterator<Item = &[u8]> {
        // The name ends with a zero that its length leaves out.
        let mut after = short(bytes, fixed).map(|name| fixed + 2 + (usize::from(name) + 1) * 2);
        std::iter::from_fn(move || {
            let at = after?.next_multiple_of(2);
            let length = usize::from(short(bytes, at)?);
            after = Some(at + 2 + length);
            bytes.get(at + 2..at + 2 + length)
        })
    }
}
