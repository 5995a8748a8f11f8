//! What groups of RTF inherit, and what their control words stand for.

/// Where a text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    Body,
    /// Nowhere.
    Skipped,
    Fonts,
    Styles,
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
