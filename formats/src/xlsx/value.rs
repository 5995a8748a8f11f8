//! What a cell holds, typed.

use serde::{Deserialize, Serialize};

/// A cell's value. Whether a stored number is a date or a duration is decided by the cell's number format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum Value {
    Text(String),
    /// Finite; integers are exact up to 2^53.
    Number(f64),
    Boolean(bool),
    /// ISO 8601 without a zone: `2021-01-01T00:00:00`, or a time of day alone: `15:10:10`.
    Date(String),
    Duration(Duration),
    /// `#DIV/0!`, `#N/A` and their like.
    Error(String),
}

impl Value {
    /// What it is, as it stands on the wire: `text`, `number`, `boolean`, `date`, `duration` or `error`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Number(_) => "number",
            Self::Boolean(_) => "boolean",
            Self::Date(_) => "date",
            Self::Duration(_) => "duration",
            Self::Error(_) => "error",
        }
    }
}

/// A span of time in milliseconds; negative where the sheet's is. Prints as ISO 8601: `P10DT15H10M10S`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration {
    pub milliseconds: i64,
}
