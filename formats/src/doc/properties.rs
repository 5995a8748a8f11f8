//! Properties of characters and paragraphs: pages of 512 bytes, each of which has some runs, and the changes that a run
//! makes to what is usual (sprm).

use crate::compound::{long, short};
use std::ops::Range;

const PAGE: usize = 512;
/// The properties of a paragraph begin with their place on the page, and twelve bytes of what it looked like.
const OF_PARAGRAPH: usize = 13;

/// The pages of properties of one kind.
#[derive(Clone, Copy)]
pub(super) struct Pages<'a> {
    main: &'a [u8],
    /// Where the runs of each page begin, and then the numbers of the pages.
    index: &'a [u8],
    count: usize,
    /// The bytes that a run has beside its bounds.
    entry: usize,
}

/// A run of characters with the same properties.
pub(super) struct Run<'a> {
    /// Where its bytes are.
    pub offsets: Range<usize>,
    pub properties: &'a [u8],
}

impl<'a> Pages<'a> {
    pub(super) fn of_characters(main: &'a [u8], index: &'a [u8]) -> Self {
        Self { main, index, count: index.len().saturating_sub(4) / 8, entry: 1 }
    }

    pub(super) fn of_paragraphs(main: &'a [u8], index: &'a [u8]) -> Self {
        Self { entry: OF_PARAGRAPH, ..Self::of_characters(main, index) }
    }

    /// The run that a character is in; `None` if no page knows it.
    pub(super) fn run(&self, offset: usize) -> Option<Run<'a>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            let start = long(self.index, middle * 4)? as usize;
            if start <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let number = long(self.index, (self.count + 1) * 4 + low.checked_sub(1)? * 4)? & 0x003F_FFFF;
        let page = self.main.get(number as usize * PAGE..)?.get(..PAGE)?;
        let runs = usize::from(page[PAGE - 1]);
        let bound = |index: usize| long(page, index * 4).map(|bound| bound as usize);
        let index = (0..runs).find(|index| bound(index + 1).is_some_and(|end| offset < end))?;
        let offsets = bound(index)?..bound(index + 1)?;
        if !offsets.contains(&offset) {
            return None;
        }
        let place = *page.get((runs + 1) * 4 + index * self.entry)?;
        let properties: &[u8] = match place {
            0 => &[],
            _ => self.properties(page, usize::from(place) * 2).unwrap_or_default(),
        };
        Some(Run { offsets, properties })
    }

    /// The properties at a place on a page, after their length.
    fn properties(&self, page: &'a [u8], at: usize) -> Option<&'a [u8]> {
        let length = usize::from(*page.get(at)?);
        let (start, length) = match (self.entry, length) {
            (OF_PARAGRAPH, 0) => (at + 2, usize::from(*page.get(at + 1)?) * 2),
            (OF_PARAGRAPH, words) => (at + 1, words * 2 - 1),
            (_, bytes) => (at + 1, bytes),
        };
        page.get(start..start + length)
    }
}

/// The changes in a list of them, each with its code and its operand.
pub(super) fn changes(list: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// The tables of columns, whose length has two bytes and counts one byte too many.
    const COLUMNS: [u16; 2] = [0xD606, 0xD608];
    let mut rest = list;
    std::iter::from_fn(move || {
        let (code, operand) = (short(rest, 0)?, rest.get(2..)?);
        let (before, length) = match code >> 13 {
            0 | 1 => (0, 1),
            2 | 4 | 5 => (0, 2),
            3 => (0, 4),
            7 => (0, 3),
            _ if COLUMNS.contains(&code) => (2, usize::from(short(operand, 0)?).saturating_sub(1)),
            _ => (1, usize::from(*operand.first()?)),
        };
        let value = operand.get(before..before + length)?;
        rest = &operand[before + length..];
        Some((code, value))
    })
}

/// What the changes say of a paragraph; `None` where they leave it as its style has it.
#[derive(Clone, Copy, Default)]
pub(super) struct Paragraph {
    /// The level of a heading; 0 for none.
    pub level: Option<u8>,
    /// Whether it is an item of a list.
    pub is_item: Option<bool>,
    pub item_level: Option<u8>,
    pub is_in_table: bool,
    /// Whether it is the mark that ends a row.
    pub ends_row: bool,
    /// Where in the stream of data more of its changes are.
    pub more_at: Option<usize>,
}

impl Paragraph {
    pub(super) fn change(&mut self, list: &[u8]) {
        for (code, value) in changes(list) {
            let first = value.first().copied().unwrap_or_default();
            match code {
                0x2416 => self.is_in_table = first != 0,
                0x2417 => self.ends_row = first != 0,
                // Of nine levels the last one has the number 8; what follows it is that of plain text.
                0x2640 => self.level = Some(if first < 9 { first + 1 } else { 0 }),
                0x260A => self.item_level = Some(first.min(8)),
                // Lists have positive numbers.
                0x460B => self.is_item = short(value, 0).map(|list| (1..0x7FF).contains(&list)),
                0x6645 | 0x6646 => self.more_at = long(value, 0).map(|at| at as usize),
                _ => {}
            }
        }
    }
}

/// What the changes say of characters.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    pub switches: Switches,
    /// The number of their style, if they have one besides that of their paragraph.
    pub style: Option<u16>,
    /// The number of their font.
    pub font: Option<u16>,
    /// The number of another font, and the character that it shows in the place of a bracket.
    pub symbol: Option<(u16, u16)>,
    /// Whether they stand above the line.
    pub is_raised: Option<bool>,
}

impl Look {
    pub(super) fn of(list: &[u8]) -> Self {
        let mut look = Self { switches: Switches::of(list), ..Self::default() };
        for (code, value) in changes(list) {
            match code {
                0x2A48 => look.is_raised = Some(value.first() == Some(&1)),
                0x4A30 => look.style = short(value, 0),
                // The font of ASCII, and that of what is neither ASCII nor East Asian.
                0x4A4F | 0x4A51 => look.font = short(value, 0),
                0x6A09 => look.symbol = short(value, 0).zip(short(value, 2)),
                _ => {}
            }
        }
        look
    }
}

/// What changes say of whether characters are seen: the values of the switches, `None` where they leave them as they were.
#[derive(Clone, Copy, Default)]
pub(super) struct Switches {
    deleted: Option<u8>,
    hidden: Option<u8>,
}

impl Switches {
    pub(super) fn of(list: &[u8]) -> Self {
        let mut switches = Self::default();
        for (code, value) in changes(list) {
            match code {
                0x0800 => switches.deleted = value.first().copied(),
                0x083C => switches.hidden = value.first().copied(),
                _ => {}
            }
        }
        switches
    }

    /// The only change of a piece, whose code is cut to a few bits.
    pub(super) fn of_one(code: u8, value: u8) -> Self {
        match code {
            0x41 => Self { deleted: Some(value), ..Self::default() },
            0x5C => Self { hidden: Some(value), ..Self::default() },
            _ => Self::default(),
        }
    }

    /// These switches, and where they leave it so, those below them.
    pub(super) fn over(self, below: Self) -> Self {
        Self { deleted: self.deleted.or(below.deleted), hidden: self.hidden.or(below.hidden) }
    }

    /// Whether a style with these changes hides its text; `None` if that is as in the style that it is based on.
    pub(super) fn hide(self) -> Option<bool> {
        match self.hidden {
            Some(0) => Some(false),
            Some(1 | 0x81) => Some(true),
            _ => None,
        }
    }

    /// Whether characters are neither deleted nor hidden, if their style hides them or not.
    pub(super) fn show(self, style_hides: bool) -> bool {
        !is_on(self.deleted, false) && !is_on(self.hidden, style_hides)
    }
}

/// Whether a switch is on. Values other than 0 and 1 take what is usual, or its opposite.
fn is_on(value: Option<u8>, usual: bool) -> bool {
    match value {
        Some(0) => false,
        Some(1) => true,
        Some(0x81) => !usual,
        _ => usual,
    }
}
