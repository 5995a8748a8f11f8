//! Number formats, which an open document describes by elements, as the codes of other spreadsheets.

use super::super::markup::{Mark, Markup};
use crate::FormatError;
use std::{borrow::Cow, io::Read};

/// A longer code is cut, because no spreadsheet takes it.
const CODE_BYTES: usize = 500;
/// More digits than any number shows.
const DIGITS: usize = 30;

/// A number format.
#[derive(Debug, Clone, Default)]
pub(super) struct DataStyle {
    code: String,
    /// Conditions, and the names of the formats that then hold.
    maps: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Percentage,
    /// A date or a time; one that is not cut at 24 hours is a span.
    Moment {
        is_span: bool,
    },
    /// It shows what it is given.
    Plain,
}

impl DataStyle {
    /// Reads the element that just began; `None`, without reading further, if it is no number format.
    pub(super) fn read<S: Read>(xml: &mut Markup<S>, empty: bool) -> Result<Option<Self>, FormatError> {
        let kind = match xml.name() {
            "number-style" | "currency-style" => Kind::Number,
            "percentage-style" => Kind::Percentage,
            "date-style" => Kind::Moment { is_span: false },
            "time-style" => {
                Kind::Moment { is_span: xml.attribute("truncate-on-overflow").is_some_and(|value| value == "false") }
            }
            "boolean-style" | "text-style" => Kind::Plain,
            _ => return Ok(None),
        };
        let mut style = Self::default();
        if empty {
            return Ok(Some(style));
        }
        loop {
            match xml.next()? {
                Some(Mark::Start { empty }) => style.element(xml, kind, empty)?,
                Some(Mark::End) | None => return Ok(Some(style)),
                Some(_) => {}
            }
        }
    }

    fn element<S: Read>(&mut self, xml: &mut Markup<S>, kind: Kind, empty: bool) -> Result<(), FormatError> {
        let count = |name: &str| xml.attribute(name).and_then(|count| count.trim().parse::<usize>().ok());
        let is = |name: &str, value: &str| xml.attribute(name).is_some_and(|found| found == value);
        let long = |short: &'static str, long: &'static str| if is("style", "long") { long } else { short };
        let is_span = kind == Kind::Moment { is_span: true };
        // Only the largest unit of a span is not cut.
        let span = |short: &'static str, long_one: &'static str| -> Cow<'static, str> {
            let unit = long(short, long_one);
            if is_span && !self.code.contains('[') { format!("[{unit}]").into() } else { unit.into() }
        };
        let piece: Cow<'_, str> = match xml.name() {
            "number" => number(count, is("grouping", "true")).into(),
            "scientific-number" => {
                let exponent = "0".repeat(count("min-exponent-digits").unwrap_or(2).clamp(1, DIGITS));
                format!("{}E+{exponent}", digits(count, false)).into()
            }
            "fraction" => {
                let wide = |name: &str| "?".repeat(count(name).unwrap_or(1).clamp(1, DIGITS));
                let below = count("denominator-value").map(|value| value.to_string());
                let below = below.unwrap_or_else(|| wide("min-denominator-digits"));
                format!("# {}/{below}", wide("min-numerator-digits")).into()
            }
            "text" | "currency-symbol" => {
                let mut text = String::new();
                if !empty {
                    xml.text(&mut text)?;
                }
                self.push(&literal(&text, kind));
                return Ok(());
            }
            "text-content" => "@".into(),
            "year" => long("yy", "yyyy").into(),
            "month" if is("textual", "true") => long("mmm", "mmmm").into(),
            "month" => long("m", "mm").into(),
            "day" => long("d", "dd").into(),
            "day-of-week" => long("ddd", "dddd").into(),
            "hours" => span("h", "hh"),
            "minutes" => span("m", "mm"),
            "seconds" => match count("decimal-places").unwrap_or(0).min(DIGITS) {
                0 => span("s", "ss"),
                places => format!("{}.{}", span("s", "ss"), "0".repeat(places)).into(),
            },
            "am-pm" => "AM/PM".into(),
            "map" => {
                let attribute = |name: &str| xml.attribute(name).unwrap_or_default().into_owned();
                let (condition, name) = (attribute("condition"), attribute("apply-style-name"));
                if self.maps.len() < 2 {
                    self.maps.push((condition.replace("value()", ""), name));
                }
                "".into()
            }
            _ => "".into(),
        };
        self.push(&piece);
        if !empty {
            xml.skip()?;
        }
        Ok(())
    }

    fn push(&mut self, piece: &str) {
        if self.code.len() + piece.len() <= CODE_BYTES {
            self.code.push_str(piece);
        }
    }

    /// The code, with those that hold for positive and negative numbers before it.
    pub(super) fn code<'a>(&self, named: impl Fn(&str) -> Option<&'a Self>) -> String {
        let of = |condition: &str| {
            let map = self.maps.iter().find(|(found, _)| found == condition)?;
            named(&map.1).map(|style| style.code.as_str())
        };
        match (self.maps.len(), of(">=0"), of(">0"), of("<0")) {
            _ if self.code.is_empty() => "General".to_owned(),
            (1, Some(positive), ..) => format!("{positive};{}", self.code),
            (2, _, Some(positive), Some(negative)) => format!("{positive};{negative};{}", self.code),
            _ => self.code.clone(),
        }
    }
}

/// The digits of a number. One without a number of decimal places shows as many as it has.
fn number(count: impl Fn(&str) -> Option<usize>, is_grouped: bool) -> String {
    let is_plain = count("decimal-places").is_none() && count("min-integer-digits").unwrap_or(1) <= 1 && !is_grouped;
    if is_plain { "General".to_owned() } else { digits(count, is_grouped) }
}

fn digits(count: impl Fn(&str) -> Option<usize>, is_grouped: bool) -> String {
    let whole = "0".repeat(count("min-integer-digits").unwrap_or(1).min(DIGITS));
    let mut code = match whole.len() {
        0 if is_grouped => "#,###".to_owned(),
        0 => "#".to_owned(),
        1..=3 if is_grouped => format!("#,{}{whole}", "#".repeat(3 - whole.len())),
        _ => whole,
    };
    let places = count("decimal-places").unwrap_or(0).min(DIGITS);
    if places > 0 {
        let shown = count("min-decimal-places").unwrap_or(places).min(places);
        code.push('.');
        code.extend(std::iter::repeat_n('0', shown).chain(std::iter::repeat_n('#', places - shown)));
    }
    code
}

/// A text of a format, in quotes where its characters would mean something.
fn literal(text: &str, kind: Kind) -> String {
    let is_plain = |character: char| match kind {
        Kind::Moment { .. } => "-/ :.,".contains(character),
        Kind::Percentage => "-%() ".contains(character),
        Kind::Number | Kind::Plain => "-()$€£¥ ".contains(character),
    };
    if text.chars().all(is_plain) { text.to_owned() } else { format!("\"{}\"", text.replace('"', "")) }
}
