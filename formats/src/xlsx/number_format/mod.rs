//! Number formats: whether a stored number is a date or a duration, and what the cell shows.
//!
//! This follows ECMA-376 part 1, 18.8.30 and 18.8.31, in the US form; the builtin formats of other languages look like
//! it.

mod builtin;
mod code;
mod decimal;
mod numbers;
mod times;

#[cfg(test)]
mod tests;

use super::moment::{DAY, DateEpoch, Moment};
pub(super) use builtin::builtin;
use code::{Section, Shape};
use std::borrow::Cow;

/// Spreadsheets allow 255 characters.
const MAX_CODE_BYTES: usize = 2_048;

/// A format code, parsed once for all the cells that use it.
#[derive(Debug)]
pub(super) struct NumberFormat {
    /// As the file has it, or the standard's for a builtin one.
    pub code: String,
    /// The sections for numbers: at most three.
    sections: Vec<Section>,
    /// The section for texts, if it does more than show the text.
    text: Option<Section>,
}

/// What a stored number means by its format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reading {
    Number(f64),
    Moment(Moment),
    /// In milliseconds.
    Duration(i64),
}

impl NumberFormat {
    pub(super) fn new(code: &str) -> Self {
        Self::shown_as(code, code)
    }

    /// Makes a code whose cells are shown by another one: some builtin codes stand for the user's own style.
    fn shown_as(code: &str, shown: &str) -> Self {
        let shown = if shown.is_empty() || shown.len() > MAX_CODE_BYTES { "General" } else { shown };
        let mut sections = code::sections(shown);
        let text = match sections.len() {
            4.. => {
                sections.truncate(4);
                sections.pop()
            }
            1.. if sections.last().is_some_and(|last| last.shape == Shape::Text) => {
                // If it is the only section it formats numbers too, as the text they would be.
                if sections.len() == 1 { sections.first().cloned() } else { sections.pop() }
            }
            _ => None,
        };
        Self { code: code.to_owned(), sections, text: text.filter(|section| !section.is_bare_text()) }
    }

    /// What the number means.
    pub(super) fn read(&self, number: f64, epoch: DateEpoch) -> Reading {
        let reading = match self.section(number).0.map(|section| section.shape) {
            Some(Shape::Date) => Moment::from_serial(number, epoch).map(Reading::Moment),
            Some(Shape::Duration) => milliseconds(number).map(Reading::Duration),
            _ => None,
        };
        reading.unwrap_or(Reading::Number(number))
    }

    /// What a time of so many milliseconds means: a span if the format shows one, or if no time of day is as long.
    pub(super) fn read_time(&self, milliseconds: i64, epoch: DateEpoch) -> Reading {
        let number = milliseconds as f64 / DAY as f64;
        let is_span = self.section(number).0.is_some_and(|section| section.shape == Shape::Duration);
        let moment = Moment::from_serial(number, epoch).filter(|_| !is_span && (0..DAY).contains(&milliseconds));
        moment.map_or(Reading::Duration(milliseconds), Reading::Moment)
    }

    /// Appends what a cell shows.
    pub(super) fn show(&self, reading: Reading, number: f64, epoch: DateEpoch, out: &mut String) {
        let (Some(section), signed) = self.section(number) else { return decimal::general(number, out) };
        let start = out.len();
        match (section.shape, reading) {
            (Shape::Date, Reading::Moment(moment)) => times::date(&section.tokens, moment, epoch, out),
            (Shape::Duration, Reading::Duration(span)) => times::duration(&section.tokens, span, out),
            (Shape::Number, _) => numbers::number(section, number, signed, out),
            (_, Reading::Moment(moment)) => out.push_str(&moment.to_string()),
            // This is not a valid day.
            (Shape::Date | Shape::Duration, _) => decimal::general(number, out),
            (Shape::General | Shape::Text, _) => {
                let number = if signed { number } else { number.abs() };
                numbers::around(&section.tokens, out, |out| decimal::general(number, out));
            }
            (Shape::Literal, _) => {
                if signed && number < 0.0 {
                    out.push('-');
                }
                numbers::around(&section.tokens, out, |_| ());
            }
        }
        // Formats leave room for brackets, and for the fill of a cell's width.
        let shown = out[start..].trim_end().len();
        out.truncate(start + shown);
        let blank = out[start..].len() - out[start..].trim_start().len();
        out.replace_range(start..start + blank, "");
    }

    /// What a cell with a text shows.
    pub(super) fn show_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.text {
            None => Cow::Borrowed(text),
            Some(section) => {
                let mut out = String::new();
                numbers::around(&section.tokens, &mut out, |out| out.push_str(text));
                Cow::Owned(out.trim().to_owned())
            }
        }
    }

    /// The section that shows a number, and whether the number's sign must still be shown.
    fn section(&self, number: f64) -> (Option<&Section>, bool) {
        let of = |index: usize| self.sections.get(index);
        let conditional = self.sections.iter().take(2).any(|section| section.condition.is_some());
        if conditional {
            let holds =
                |index: usize| of(index).and_then(|section| section.condition).is_some_and(|rule| rule.holds(number));
            let both = self.sections.iter().take(2).all(|section| section.condition.is_some());
            let index = if holds(0) {
                0
            } else if holds(1) {
                1
            } else if both {
                2
            } else {
                1
            };
            let section = of(index);
            let only_negative =
                section.and_then(|section| section.condition).is_some_and(code::Condition::only_negative);
            return (section, !only_negative);
        }
        match self.sections.len() {
            0 | 1 => (of(0), true),
            2 if number < 0.0 => (of(1), false),
            2 => (of(0), true),
            _ if number > 0.0 => (of(0), true),
            _ if number < 0.0 => (of(1), false),
            _ => (of(2), true),
        }
    }
}

/// Converts days to milliseconds.
fn milliseconds(days: f64) -> Option<i64> {
    let milliseconds = (days * 86_400_000.0).round();
    // The bound is the last day of the year 9999, in either direction.
    (milliseconds.abs() < 2_958_466.0 * 86_400_000.0).then_some(milliseconds as i64)
}
