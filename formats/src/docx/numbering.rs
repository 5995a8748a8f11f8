//! Numbering: the kinds of lists, and the number that each item shows.

use crate::{
    FormatError,
    xml::{Element, Node, XmlReader},
};
use std::{
    collections::{HashMap, HashSet},
    io::Read,
};

/// More lists than Word itself accepts.
const MAX_LISTS: usize = 20_000;

/// A level's pattern is a few characters, such as `%1.%2.`.
const MAX_PATTERN: usize = 64;

/// A paragraph's place in a list, given by itself or its style.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// `Some(0)` takes the paragraph out of its style's list.
    pub list: Option<u32>,
    pub level: Option<u8>,
}

impl Place {
    /// Takes in a child of `w:numPr`.
    pub(super) fn note(&mut self, name: &str, value: Option<&str>) {
        match name {
            "ilvl" => self.level = value.and_then(|value| value.parse().ok()),
            // A list that nothing defines still counts as one.
            "numId" => self.list = Some(value.map_or(0, |value| value.parse().unwrap_or(u32::MAX))),
            _ => {}
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self { list: self.list.or(other.list), level: self.level.or(other.level) }
    }
}

#[derive(Default)]
pub(super) struct Numbering {
    definitions: HashMap<u32, Definition>,
    lists: HashMap<u32, List>,
}

/// `w:abstractNum`: all lists of a definition share one count.
#[derive(Default)]
struct Definition {
    levels: HashMap<u8, Level>,
}

#[derive(Clone)]
struct Level {
    start: u32,
    format: Format,
    pattern: String,
    /// The lowest level, counted from 1, whose items restart this one; 0 means that none does. If absent, all levels
    /// above do.
    restarts_after: Option<u8>,
    /// Shows the levels above in digits, whatever their own format.
    legal: bool,
    style: Option<String>,
}

impl Default for Level {
    fn default() -> Self {
        Self {
            start: 1,
            format: Format::Decimal,
            pattern: String::new(),
            restarts_after: None,
            legal: false,
            style: None,
        }
    }
}

/// `w:num`: a use of a definition.
#[derive(Default)]
struct List {
    definition: u32,
    starts: HashMap<u8, u32>,
    levels: HashMap<u8, Level>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Format {
    Bullet,
    None,
    Decimal,
    DecimalZero,
    LowerLetter,
    UpperLetter,
    LowerRoman,
    UpperRoman,
}

impl Format {
    fn of(name: &str) -> Self {
        match name {
            "bullet" => Self::Bullet,
            "none" => Self::None,
            "decimalZero" => Self::DecimalZero,
            "lowerLetter" => Self::LowerLetter,
            "upperLetter" => Self::UpperLetter,
            "lowerRoman" => Self::LowerRoman,
            "upperRoman" => Self::UpperRoman,
            // The numerals of other scripts are shown as digits.
            _ => Self::Decimal,
        }
    }

    fn show(self, number: u32) -> String {
        match self {
            Self::Bullet | Self::None => String::new(),
            Self::Decimal => number.to_string(),
            Self::DecimalZero => format!("{number:02}"),
            Self::LowerLetter => letters(number, b'a'),
            Self::UpperLetter => letters(number, b'A'),
            Self::LowerRoman => roman(number).to_ascii_lowercase(),
            Self::UpperRoman => roman(number),
        }
    }
}

/// Counts a to z, then aa, bb and so on, as Word does.
fn letters(number: u32, first: u8) -> String {
    let Some(index) = number.checked_sub(1) else { return number.to_string() };
    let letter = char::from(first + (index % 26) as u8);
    std::iter::repeat_n(letter, (index / 26 + 1).min(30) as usize).collect()
}

fn roman(number: u32) -> String {
    const SIGNS: [(u32, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4000).contains(&number) {
        return number.to_string();
    }
    let mut rest = number;
    let mut shown = String::new();
    for (value, sign) in SIGNS {
        while rest >= value {
            shown.push_str(sign);
            rest -= value;
        }
    }
    shown
}

/// What an item shows before its text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub ordered: bool,
    /// For an ordered item, its number at its level.
    pub number: Option<u32>,
    /// For an ordered item, its number as shown, such as `2.1.` or `(b)`.
    pub text: Option<String>,
}

impl Numbering {
    pub(super) fn read<R: Read>(mut xml: XmlReader<R>) -> Result<Self, FormatError> {
        let mut read = Reading::default();
        while let Some(node) = xml.next()? {
            if let Node::Start(element) = node {
                read.start(&element);
            }
        }
        Ok(read.finish())
    }

    fn level(&self, list: u32, level: u8) -> Option<&Level> {
        let list = self.lists.get(&list)?;
        list.levels.get(&level).or_else(|| self.definitions.get(&list.definition)?.levels.get(&level))
    }

    /// The level of a list that names a style as its own.
    pub(super) fn level_of(&self, list: u32, style: &str) -> Option<u8> {
        (0..=8).find(|&level| self.level(list, level).is_some_and(|level| level.style.as_deref() == Some(style)))
    }
}

/// The state while the part is read element by element; what began last is open.
#[derive(Default)]
struct Reading {
    numbering: Numbering,
    definition: Option<u32>,
    list: Option<u32>,
    level: Option<u8>,
    /// Definitions by the style that stands for them, and definitions that refer to such a style.
    by_style: HashMap<String, u32>,
    linked: Vec<(u32, String)>,
}

impl Reading {
    fn start(&mut self, element: &Element) {
        let number = |name: &str| element.attribute(name).and_then(|value| value.parse().ok());
        match element.name.as_str() {
            "abstractNum" if self.numbering.definitions.len() < MAX_LISTS => {
                (self.definition, self.list, self.level) = (number("abstractNumId"), None, None);
                if let Some(id) = self.definition {
                    self.numbering.definitions.insert(id, Definition::default());
                }
            }
            "num" if self.numbering.lists.len() < MAX_LISTS => {
                (self.definition, self.list, self.level) = (None, number("numId"), None);
                if let Some(id) = self.list {
                    self.numbering.lists.insert(id, List::default());
                }
            }
            "abstractNum" | "num" => (self.definition, self.list, self.level) = (None, None, None),
            "abstractNumId" => {
                if let (Some(list), Some(id)) = (self.open_list(), number("val")) {
                    list.definition = id;
                }
            }
            "lvl" | "lvlOverride" => {
                self.level = number("ilvl").and_then(|level| u8::try_from(level).ok()).filter(|&level| level <= 8);
                if element.name == "lvl"
                    && let (Some(level), Some(levels)) = (self.level, self.open_levels())
                {
                    levels.insert(level, Level::default());
                }
            }
            "startOverride" => {
                if let (Some(level), Some(start)) = (self.level, number("val"))
                    && let Some(list) = self.open_list()
                {
                    list.starts.insert(level, start);
                }
            }
            "styleLink" if self.by_style.len() < MAX_LISTS => {
                if let (Some(id), Some(style)) = (self.definition, element.value()) {
                    self.by_style.insert(style.to_owned(), id);
                }
            }
            "numStyleLink" if self.linked.len() < MAX_LISTS => {
                if let (Some(id), Some(style)) = (self.definition, element.value()) {
                    self.linked.push((id, style.to_owned()));
                }
            }
            name => {
                if let Some(level) = self.open_level() {
                    level.note(name, element.value());
                }
            }
        }
    }

    fn open_list(&mut self) -> Option<&mut List> {
        self.numbering.lists.get_mut(&self.list?)
    }

    fn open_levels(&mut self) -> Option<&mut HashMap<u8, Level>> {
        match (self.definition, self.list) {
            (Some(id), _) => self.numbering.definitions.get_mut(&id).map(|definition| &mut definition.levels),
            (None, Some(id)) => self.numbering.lists.get_mut(&id).map(|list| &mut list.levels),
            (None, None) => None,
        }
    }

    fn open_level(&mut self) -> Option<&mut Level> {
        let level = self.level?;
        self.open_levels()?.get_mut(&level)
    }

    fn finish(mut self) -> Numbering {
        for (id, style) in self.linked {
            let source = self.by_style.get(&style).and_then(|source| self.numbering.definitions.get(source));
            if let Some(levels) = source.map(|source| source.levels.clone())
                && let Some(definition) = self.numbering.definitions.get_mut(&id)
                && definition.levels.is_empty()
            {
                definition.levels = levels;
            }
        }
        self.numbering
    }
}

impl Level {
    fn note(&mut self, name: &str, value: Option<&str>) {
        match (name, value) {
            ("start", Some(start)) => self.start = start.parse().unwrap_or(1),
            ("numFmt", Some(format)) => self.format = Format::of(format),
            ("lvlText", Some(pattern)) => {
                self.pattern = pattern[..pattern.floor_char_boundary(MAX_PATTERN)].to_owned();
            }
            ("lvlRestart", Some(level)) => self.restarts_after = level.parse().ok(),
            ("isLgl", value) => self.legal = !matches!(value, Some("0" | "false" | "off")),
            ("pStyle", Some(style)) => self.style = Some(style.to_owned()),
            _ => {}
        }
    }
}

/// Counts the items of all lists, in the order of the document.
pub(super) struct Counter<'a> {
    numbering: &'a Numbering,
    counts: HashMap<u32, [Option<u32>; 9]>,
    /// Lists already met, because a list's own start applies once.
    met: HashSet<u32>,
}

impl<'a> Counter<'a> {
    pub(super) fn new(numbering: &'a Numbering) -> Self {
        Self { numbering, counts: HashMap::new(), met: HashSet::new() }
    }

    /// Counts an item and returns its label.
    pub(super) fn next(&mut self, list: u32, level: u8) -> Label {
        let unordered = Label { ordered: false, number: None, text: None };
        let Some((definition, own)) = self.numbering.lists.get(&list).map(|own| (own.definition, own)) else {
            return unordered;
        };
        let level_of = |level: u8| self.numbering.level(list, level);
        let counts = self.counts.entry(definition).or_default();
        if self.met.insert(list) {
            for &level in own.starts.keys() {
                counts[usize::from(level)] = None;
            }
        }
        let at = usize::from(level.min(8));
        let start = |level: usize| {
            let own = own.starts.get(&(level as u8)).copied();
            own.or_else(|| level_of(level as u8).map(|level| level.start)).unwrap_or(1)
        };
        counts[at] = Some(counts[at].map_or_else(|| start(at), |count| count.saturating_add(1)));
        for (above, count) in counts.iter_mut().enumerate().take(at) {
            count.get_or_insert_with(|| start(above));
        }
        for (below, count) in counts.iter_mut().enumerate().skip(at + 1) {
            let restarts = level_of(below as u8).and_then(|level| level.restarts_after);
            // An item restarts each level below it, unless that level says that only items of higher levels do.
            if restarts.is_none_or(|restarts| at < usize::from(restarts)) {
                *count = None;
            }
        }
        let counts = *counts;
        let Some(level) = level_of(at as u8) else { return unordered };
        if matches!(level.format, Format::Bullet | Format::None) {
            return unordered;
        }
        let text = label(&level.pattern, |shown| {
            let format = match level_of(shown as u8) {
                Some(above) if !level.legal => above.format,
                _ => Format::Decimal,
            };
            format.show(counts[shown].unwrap_or(0))
        });
        Label { ordered: true, number: counts[at], text: Some(text) }
    }
}

/// Fills in `%1` to `%9` of a pattern.
fn label(pattern: &str, show: impl Fn(usize) -> String) -> String {
    let mut label = String::new();
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match characters.peek().and_then(|digit| digit.to_digit(10)) {
            Some(digit @ 1..=9) if character == '%' => {
                characters.next();
                label.push_str(&show(digit as usize - 1));
            }
            _ => label.push(character),
        }
    }
    label.trim().to_owned()
}
