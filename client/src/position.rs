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

/// How far a client and its clones know the store.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// The latest position that they were told of; 0 before the first.
    position: AtomicU64,
    /// How many events and answers told them of something without saying where that is.
    told: AtomicU64,
    /// How many of these happened before the position.
    placed: AtomicU64,
}

/// What a request demands of the store that it is answered from.
pub(crate) struct Demand {
    /// The value of [`AFTER_HEADER`], if it demands anything.
    pub after: Option<String>,
    /// How many events and answers without a position were before it.
    told: u64,
}

impl Known {
    /// Notes an event or an answer, and its position if it has one.
    pub fn note(&self, position: Option<Position>) {
        match position {
            Some(position) => self.0.position.fetch_max(position.0, Ordering::AcqRel),
            None => self.0.told.fetch_add(1, Ordering::AcqRel),
        };
    }

    /// What a request demands, so that its answer shows no less than the client knows.
    pub fn demand(&self) -> Demand {
        let told = self.0.told.load(Ordering::Acquire);
        let is_placed = self.0.placed.load(Ordering::Acquire) >= told;
        let after = match self.0.position.load(Ordering::Acquire) {
            _ if !is_placed => Some(NOW.to_owned()),
            0 => None,
            position => Some(Position(position).to_string()),
        };
        Demand { after, told }
    }

    /// Notes the position of an answer to a request with this demand. All that was told before the request happened before that position.
    pub fn answered(&self, demand: &Demand, position: Position) {
        self.0.position.fetch_max(position.0, Ordering::AcqRel);
        self.0.placed.fetch_max(demand.told, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_without_a_position_is_demanded_until_an_answer_to_that_names_one() {
        let known = Known::default();
        let earlier = known.demand();
        assert_eq!(earlier.after, None);
        known.note(None);
        // This answers what was asked before the event.
        known.answered(&earlier, Position(7));
        let demand = known.clone().demand();
        assert_eq!(demand.after.as_deref(), Some(NOW));
        known.note(Some(Position(9)));
        known.answered(&demand, Position(8));
        assert_eq!(known.demand().after.as_deref(), Some("0/9"));
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
