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
        _ if is_exact(left) && is_exact(right) => both::<xsd::Decimal>(one, other),
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
