//! How far a caller knows the store, which keeps a standby from answering it with less.
use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The header of an answer that says how far its caller knows the store from then on: a [`Position`].
pub const POSITION_HEADER: &str = "svc-position";
/// The header of a request that is to be answered from no older a store: a [`Position`], or [`NOW`].
pub const AFTER_HEADER: &str = "svc-after";
/// The value of [`AFTER_HEADER`] for the moment of the request.
pub const NOW: &str = "now";

/// A position in the write-ahead log of the database, such as `0/16B3748`. A later one is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

/// A text that names no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPosition;

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Position, NoPosition> {
        let half = |digits: &str| {
            let fits = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u32::from_str_radix(digits, 16).ok().filter(|_| fits).map(u64::from).ok_or(NoPosition)
        };
        let (high, low) = text.split_once('/').ok_or(NoPosition)?;
        Ok(Position((half(high)? << 32) | half(low)?))
    }
}

/// The latest position that a client and its clones were told of.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<AtomicU64>);

impl Known {
    pub fn note(&self, position: Position) {
        self.0.fetch_max(position.0, Ordering::AcqRel);
    }

    /// `None` before the first.
    pub fn latest(&self) -> Option<Position> {
        Some(Position(self.0.load(Ordering::Acquire))).filter(|position| position.0 > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_never_goes_back() {
        let known = Known::default();
        assert_eq!(known.latest(), None);
        for position in [7, 9, 8] {
            known.clone().note(Position(position));
        }
        assert_eq!(known.latest(), Some(Position(9)));
    }

    #[test]
    fn a_position_reads_back_as_it_is_written_and_sorts_by_the_log() {
        for (text, position) in [("0/0", 0), ("0/16B3748", 0x16B_3748), ("2/A", (2 << 32) | 10)] {
            assert_eq!((Position(position).to_string().as_str(), text.parse()), (text, Ok(Position(position))));
        }
        assert_eq!("ffffffff/ffffffff".parse(), Ok(Position(u64::MAX)));
        assert!(Position(0x1_0000_0000) > Position(0xFFFF_FFFF));
        for other in ["", "now", "/", "0/", "/0", "0/123456789", "0/-1", "+1/0", "0/0/0", "0/ 1", "g/0"] {
            assert_eq!(other.parse::<Position>(), Err(NoPosition), "{other}");
        }
    }
}
