//! Literals as shapes compare them.
use oxsdatatypes as xsd;
use std::{cmp::Ordering, str::FromStr};

const XSD: &str = "http://www.w3.org/2001/XMLSchema#";

/// A value with its datatype; equal to another one if all of it is, to the letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    pub value: String,
    /// The whole IRI.
    pub datatype: String,
    /// In small letters.
    pub language: Option<String>,
}

/// Whole numbers of any type of XML Schema.
const WHOLE: [&str; 13] = [
    "integer",
    "nonNegativeInteger",
    "positiveInteger",
    "nonPositiveInteger",
    "negativeInteger",
    "long",
    "int",
    "short",
    "byte",
    "unsignedLong",
    "unsignedInt",
    "unsignedShort",
    "unsignedByte",
];

/// Compares two literals as the operators of SPARQL do; `None` if these have no order.
pub fn compare(one: &Literal, other: &Literal) -> Option<Ordering> {
    let (left, right) = (one.datatype.strip_prefix(XSD)?, other.datatype.strip_prefix(XSD)?);
    fn both<T: FromStr + PartialOrd>(one: &Literal, other: &Literal) -> Option<Ordering> {
        let (one, other): (T, T) = (one.value.parse().ok()?, other.value.parse().ok()?);
        one.partial_cmp(&other)
    }
    let is_whole = |name: &str| WHOLE.contains(&name);
    let is_exact = |name: &str| name == "decimal" || is_whole(name);
    let is_number = |name: &str| is_exact(name) || name == "double" || name == "float";
    match (left, right) {
        _ if is_exact(left) && is_exact(right) => compare_exact(&one.value, &other.value),
        _ if is_number(left) && is_number(right) => both::<xsd::Double>(one, other),
        ("string", "string") => Some(one.value.cmp(&other.value)),
        ("boolean", "boolean") => both::<xsd::Boolean>(one, other),
        ("dateTime" | "dateTimeStamp", "dateTime" | "dateTimeStamp") => both::<xsd::DateTime>(one, other),
        ("date", "date") => both::<xsd::Date>(one, other),
        ("time", "time") => both::<xsd::Time>(one, other),
        ("gYear", "gYear") => both::<xsd::GYear>(one, other),
        ("gYearMonth", "gYearMonth") => both::<xsd::GYearMonth>(one, other),
        ("gMonth", "gMonth") => both::<xsd::GMonth>(one, other),
        ("gMonthDay", "gMonthDay") => both::<xsd::GMonthDay>(one, other),
        ("gDay", "gDay") => both::<xsd::GDay>(one, other),
        (
            "duration" | "yearMonthDuration" | "dayTimeDuration",
            "duration" | "yearMonthDuration" | "dayTimeDuration",
        ) => both::<xsd::Duration>(one, other),
        _ => None,
    }
}

/// Compares exact numbers of any length by their digits, because a type of a fixed size holds only some of them; `None` if one is none.
fn compare_exact(one: &str, other: &str) -> Option<Ordering> {
    let (one, other) = (Exact::read(one)?, Exact::read(other)?);
    Some(match (one.is_negative, other.is_negative) {
        (false, false) => one.size().cmp(&other.size()),
        (true, true) => other.size().cmp(&one.size()),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    })
}

/// The digits of an exact number before and after its point, without the zeros that say nothing.
struct Exact<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl Exact<'_> {
    fn read(value: &str) -> Option<Exact<'_>> {
        let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !are_digits(whole) || !are_digits(fraction) {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let is_zero = whole.is_empty() && fraction.is_empty();
        Some(Exact { is_negative: value.starts_with('-') && !is_zero, whole, fraction })
    }

    /// What has the order of the number without its sign.
    fn size(&self) -> (usize, &str, &str) {
        (self.whole.len(), self.whole, self.fraction)
    }
}

/// Whether a language is one of a range, such as `en-GB` of `en`; both in small letters (RFC 4647, section 3.3.1).
pub fn is_of_range(language: &str, range: &str) -> bool {
    match language.strip_prefix(range) {
        Some(rest) => rest.is_empty() || rest.starts_with('-'),
        None => range == "*",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(value: &str, datatype: &str) -> Literal {
        Literal { value: value.to_owned(), datatype: format!("{XSD}{datatype}"), language: None }
    }

    #[test]
    fn values_of_one_kind_have_an_order_and_others_have_none() {
        for (one, other, is) in [
            (("9", "integer"), ("10", "byte"), Some(Ordering::Less)),
            (("10.0", "decimal"), ("10", "integer"), Some(Ordering::Equal)),
            // Of any length, also where no number of 128 bits holds them.
            (("300000000000000000001", "integer"), ("+0300000000000000000000", "decimal"), Some(Ordering::Greater)),
            (("-300000000000000000001", "integer"), ("-300000000000000000000.5", "decimal"), Some(Ordering::Less)),
            (("0.10000000000000000000000001", "decimal"), (".1", "decimal"), Some(Ordering::Greater)),
            (("-.25", "decimal"), ("-0.3", "decimal"), Some(Ordering::Greater)),
            (("-0.0", "decimal"), ("0", "integer"), Some(Ordering::Equal)),
            (("-1", "integer"), ("0.5", "decimal"), Some(Ordering::Less)),
            (("1", "integer"), ("-2", "integer"), Some(Ordering::Greater)),
            ((".", "decimal"), ("1", "integer"), None),
            (("1e3", "decimal"), ("1", "integer"), None),
            (("300000000000000000000", "integer"), ("1e20", "double"), Some(Ordering::Greater)),
            (("1e1", "double"), ("9.5", "decimal"), Some(Ordering::Greater)),
            (("NaN", "double"), ("1", "integer"), None),
            (("b", "string"), ("a", "string"), Some(Ordering::Greater)),
            (("b", "string"), ("1", "integer"), None),
            (("soon", "date"), ("2024-01-01", "date"), None),
            (("2024-01-01", "date"), ("2024-01-02", "date"), Some(Ordering::Less)),
            (("2024-01-01T00:00:00Z", "dateTime"), ("2024-01-01T01:00:00+01:00", "dateTime"), Some(Ordering::Equal)),
            // Within 14 hours of a time without a zone nothing is said.
            (("2024-01-01T00:00:00", "dateTime"), ("2024-01-01T01:00:00Z", "dateTime"), None),
        ] {
            let shown = format!("{one:?} {other:?}");
            assert_eq!(compare(&literal(one.0, one.1), &literal(other.0, other.1)), is, "{shown}");
        }
    }

    #[test]
    fn a_language_is_of_the_ranges_that_it_begins_with() {
        for (language, range, is) in
            [("en", "en", true), ("en-gb", "en", true), ("eng", "en", false), ("de", "*", true), ("en", "en-gb", false)]
        {
            assert_eq!(is_of_range(language, range), is, "{language} {range}");
        }
    }
}
