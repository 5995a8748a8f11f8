//! How the characters of a text look: runs of them, which come behind the runs of its paragraphs. A run has the fields that its mask names.

use crate::compound::{long, short};

/// The fields of paragraphs in their order: the bits of the mask, of which one is enough, and the bytes.
const OF_PARAGRAPHS: [(u32, usize); 12] = [
    (0xF, 2),
    (1 << 7, 2),
    (1 << 4, 2),
    (1 << 6, 2),
    (1 << 5, 4),
    (1 << 11, 2),
    (1 << 12, 2),
    (1 << 13, 2),
    (1 << 14, 2),
    (1 << 8, 2),
    (1 << 10, 2),
    (1 << 15, 2),
];
/// The tab stops, which begin with their number, and the fields behind them.
const TAB_STOPS: u32 = 1 << 20;
const BEHIND_TAB_STOPS: [(u32, usize); 3] = [(1 << 16, 2), (7 << 17, 2), (1 << 21, 2)];
/// The fields of characters, and behind them how far above the line they stand.
const OF_CHARACTERS: [(u32, usize); 7] =
    [(0x3EB7, 2), (1 << 16, 2), (1 << 21, 2), (1 << 22, 2), (1 << 23, 2), (1 << 17, 2), (1 << 18, 4)];
const POSITION: u32 = 1 << 19;

/// Where each run of a text of so many UTF-16 units begins, and whether the run is above the line; `None` if the record is damaged. A run of
/// nothing is damage, or a short text could have millions of them.
pub(super) fn raised(looks: &[u8], units: usize) -> Option<Vec<(usize, bool)>> {
    let count = |at: usize| long(looks, at).filter(|count| *count > 0).map(|count| count as usize);
    let (mut at, mut begin) = (0, 0usize);
    // The end of the last paragraph is in a run, too.
    while begin <= units {
        let (length, mask) = (count(at)?, long(looks, at + 6)?);
        at = behind(&OF_PARAGRAPHS, mask, at + 10);
        if mask & TAB_STOPS != 0 {
            at += 2 + usize::from(short(looks, at)?) * 4;
        }
        at = behind(&BEHIND_TAB_STOPS, mask, at);
        begin = begin.saturating_add(length);
    }
    let mut runs = Vec::new();
    begin = 0;
    while begin <= units {
        let (length, mask) = (count(at)?, long(looks, at + 4)?);
        at = behind(&OF_CHARACTERS, mask, at + 8);
        let mut is_raised = false;
        if mask & POSITION != 0 {
            is_raised = short(looks, at)?.cast_signed() > 0;
            at += 2;
        }
        runs.push((begin, is_raised));
        begin = begin.saturating_add(length);
    }
    Some(runs)
}

/// Where those of the fields end that a mask names.
fn behind(fields: &[(u32, usize)], mask: u32, at: usize) -> usize {
    fields.iter().filter(|(bits, _)| mask & bits != 0).fold(at, |at, (_, bytes)| at + bytes)
}
