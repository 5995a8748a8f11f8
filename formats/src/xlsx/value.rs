//! What a cell holds, with its type.

use super::{
    moment::{DAY, DateEpoch, Moment},
    number_format::Reading,
    shared_strings::SharedStrings,
    styles::Styles,
    worksheet::{RawCell, Shown, Stored},
};
use serde::{Deserialize, Serialize, Serializer};
use std::{borrow::Cow, fmt};

/// A cell's value. The cell's number format decides whether a stored number is a date or a duration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum Value {
    Text(String),
    /// Finite. Integers are exact up to 2^53, and are integers in JSON.
    #[serde(serialize_with = "as_integer_if_whole")]
    Number(f64),
    Boolean(bool),
    /// ISO 8601 without a zone: `2021-01-01T00:00:00`, or a time of day alone: `15:10:10`.
    Date(String),
    Duration(Duration),
    /// `#DIV/0!`, `#N/A` and similar.
    Error(String),
}

impl Value {
    /// The type as used on the wire: `text`, `number`, `boolean`, `date`, `duration` or `error`.
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

fn as_integer_if_whole<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}

/// A span of time in milliseconds; negative if the sheet's is. It prints as ISO 8601: `P10DT15H10M10S`, `PT1M30S`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration {
    pub milliseconds: i64,
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, span) = (if self.milliseconds < 0 { "-" } else { "" }, self.milliseconds.unsigned_abs());
        let (days, rest) = (span / DAY as u64, span % DAY as u64);
        let (hours, minutes, seconds, rest) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
        write!(f, "{sign}P")?;
        // Parts that are zero are left out, but one part must remain.
        if days > 0 {
            write!(f, "{days}D")?;
        }
        if days == 0 || span % DAY as u64 > 0 {
            f.write_str("T")?;
        }
        for (count, unit) in [(hours, 'H'), (minutes, 'M')] {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        match rest {
            0 if seconds > 0 || span == 0 => write!(f, "{seconds}S"),
            0 => Ok(()),
            _ => write!(f, "{seconds}.{rest:03}S"),
        }
    }
}

/// A value that still borrows its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen<'a> {
    Text(&'a str),
    Number(f64),
    Boolean(bool),
    Date(Moment),
    /// In milliseconds.
    Duration(i64),
    Error(&'a str),
}

impl Seen<'_> {
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Text(text) => Value::Text((*text).to_owned()),
            Self::Number(number) => Value::Number(*number),
            Self::Boolean(truth) => Value::Boolean(*truth),
            Self::Date(moment) => Value::Date(moment.to_string()),
            Self::Duration(milliseconds) => Value::Duration(Duration { milliseconds: *milliseconds }),
            Self::Error(code) => Value::Error((*code).to_owned()),
        }
    }
}

/// What turns stored cells into values: the workbook's styles, texts and day zero.
pub(super) struct Interpreter {
    pub styles: Styles,
    pub strings: SharedStrings,
    pub epoch: DateEpoch,
}

impl Interpreter {
    /// The value of a cell; `None` if it only has a formula or a style.
    pub(super) fn value<'a>(&'a self, raw: &'a RawCell) -> Option<Seen<'a>> {
        if !raw.has_value {
            return None;
        }
        let text = raw.text.as_str();
        Some(match raw.stored {
            Stored::Text => Seen::Text(text),
            // An invalid index stands for a lost text.
            Stored::Shared => {
                Seen::Text(text.trim().parse().ok().and_then(|index| self.strings.get(index)).unwrap_or_default())
            }
            Stored::Boolean => Seen::Boolean(matches!(text.trim(), "1" | "true" | "TRUE")),
            Stored::Error => Seen::Error(text),
            Stored::Date => Moment::from_iso(text).map_or(Seen::Text(text), Seen::Date),
            Stored::Time => match text.parse() {
                Ok(milliseconds) => match self.styles.format(self.format_of(raw)).read_time(milliseconds, self.epoch) {
                    Reading::Moment(moment) => Seen::Date(moment),
                    _ => Seen::Duration(milliseconds),
                },
                Err(_) => Seen::Text(text),
            },
            Stored::Number => match serial(text) {
                Some(number) => match self.styles.format(self.format_of(raw)).read(number, self.epoch) {
                    Reading::Number(number) => Seen::Number(number),
                    Reading::Moment(moment) => Seen::Date(moment),
                    Reading::Duration(span) => Seen::Duration(span),
                },
                None => Seen::Text(text),
            },
        })
    }

    /// What the cell shows of its value.
    pub(super) fn shown<'a>(&self, raw: &'a RawCell, value: &Seen<'a>) -> Cow<'a, str> {
        match (&raw.shown, value) {
            (Shown::Text(shown), _) => return Cow::Borrowed(shown),
            (Shown::AsStored, Seen::Text(text)) => return Cow::Borrowed(text),
            (Shown::AsStored, _) => return Cow::Owned(raw.text.trim().to_owned()),
            (Shown::ByFormat, _) => {}
        }
        let format = self.styles.format(self.format_of(raw));
        let reading = match *value {
            Seen::Text(text) => return format.show_text(text),
            Seen::Error(code) => return Cow::Borrowed(code),
            Seen::Boolean(truth) => return Cow::Borrowed(if truth { "TRUE" } else { "FALSE" }),
            Seen::Number(number) => Reading::Number(number),
            Seen::Date(moment) => Reading::Moment(moment),
            Seen::Duration(span) => Reading::Duration(span),
        };
        let mut out = String::new();
        // A date written as text has no number; any day in the calendar selects its section.
        format.show(reading, serial(&raw.text).unwrap_or(1.0), self.epoch, &mut out);
        Cow::Owned(out)
    }

    /// The index of the cell's number format.
    pub(super) fn format_of(&self, raw: &RawCell) -> u32 {
        self.styles.format_of(raw.style)
    }
}

pub(super) fn serial(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cross_as_json() {
        let json = |value: &Value| serde_json::to_string(value).unwrap();
        assert_eq!(json(&Value::Number(2019.0)), r#"{"type":"number","value":2019}"#);
        assert_eq!(json(&Value::Number(-0.5)), r#"{"type":"number","value":-0.5}"#);
        let span = Value::Duration(Duration { milliseconds: 918_610_000 });
        assert_eq!(json(&span), r#"{"type":"duration","value":918610000}"#);
        for value in [Value::Number(2019.0), Value::Number(1e300), Value::Boolean(true), span] {
            assert_eq!(serde_json::from_str::<Value>(&json(&value)).unwrap(), value);
        }
    }

    #[test]
    fn durations_print_as_iso() {
        for (milliseconds, expected) in [
            (0, "PT0S"),
            (90_000, "PT1M30S"),
            (918_610_000, "P10DT15H10M10S"),
            (86_400_000, "P1D"),
            (-1_500, "-PT1.500S"),
            (3_600_000, "PT1H"),
        ] {
            assert_eq!(Duration { milliseconds }.to_string(), expected);
        }
    }
}
