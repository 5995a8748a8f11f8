//! What groups of RTF inherit, and what their control words stand for.

use crate::docx::symbols;

/// Where a text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    Body,
    /// Nowhere.
    Skipped,
    Fonts,
    Styles,
    /// The code of a field.
    Code,
    /// A fact about the document, by its name.
    Fact(&'static str),
}

/// What a group inherits, and what ends with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub destination: Destination,
    pub font: i32,
    /// How many characters after one of Unicode stand in for it.
    pub substitutes: usize,
    pub is_hidden: bool,
    pub is_deleted: bool,
    /// It stands above the line.
    pub is_raised: bool,
    pub is_note: bool,
    pub is_in_table: bool,
    pub list: Option<u8>,
    pub outline: Option<u8>,
    pub style: i32,
}

impl State {
    /// The state in which a document begins.
    pub(super) const FIRST: Self = Self {
        destination: Destination::Body,
        font: 0,
        substitutes: 1,
        is_hidden: false,
        is_deleted: false,
        is_raised: false,
        is_note: false,
        is_in_table: false,
        list: None,
        outline: None,
        style: 0,
    };
}

/// The style that is being defined.
#[derive(Default)]
pub(super) struct Style {
    pub number: i32,
    pub outline: Option<u8>,
    pub name: String,
}

impl Style {
    /// The level of the style, if it is that of a heading: by its outline, or by its name.
    pub(super) fn level(&self) -> Option<u8> {
        let name = self.name.trim().trim_end_matches(';').to_ascii_lowercase();
        let of_name = name.strip_prefix("heading ").and_then(|level| level.parse::<u8>().ok());
        let level = self.outline.or(of_name).or((name == "title").then_some(1));
        level.filter(|level| (1..=9).contains(level))
    }
}

/// The font of symbols that has a name.
pub(super) fn symbol_font(name: &str) -> Option<&'static str> {
    ["Symbol", "Wingdings", "Wingdings 2", "Wingdings 3", "Webdings"].into_iter().find(|font| *font == name)
}

/// The character that the code of a field shows, such as `SYMBOL 109 \f "Symbol"`.
pub(super) fn symbol_of_code(code: &str) -> Option<char> {
    let (name, rest) = code.trim().split_once(' ')?;
    if !name.eq_ignore_ascii_case("SYMBOL") {
        return None;
    }
    let rest = rest.trim_start();
    let (number, switches) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    let font = switches.split_once("\\f").map(|(_, font)| font.trim_start()).unwrap_or_default();
    let font = match font.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => font.split(' ').next(),
    };
    let is_known = |shown: &char| !('\u{E000}'..='\u{F8FF}').contains(shown);
    symbols::glyph(font.unwrap_or_default(), number).filter(is_known)
}

/// The character that a control word stands for.
pub(super) fn character(name: &str) -> Option<char> {
    Some(match name {
        "tab" => '\t',
        "emdash" => '—',
        "endash" => '–',
        "lquote" => '‘',
        "rquote" => '’',
        "ldblquote" => '“',
        "rdblquote" => '”',
        "bullet" => '•',
        "emspace" | "enspace" | "qmspace" => ' ',
        _ => return None,
    })
}
