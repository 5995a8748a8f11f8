//! Literals: values with a datatype, kept to the letter.
use super::terms;
use crate::store::triples::write::Object;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use oxsdatatypes as xsd;
use std::str::FromStr;
use svc_client::Failure;

const XSD: &str = "http://www.w3.org/2001/XMLSchema#";
const LANG_STRING: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString";

/// What becomes of a value that its type does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IllTyped {
    Refused,
    /// It is a literal of RDF nevertheless.
    Kept,
}

/// Whether a type of XML Schema lacks this value, which is to be the literal of a fact.
pub fn is_ill_typed(value: &str, datatype: &str) -> bool {
    datatype.strip_prefix(XSD).is_some_and(|name| has_value(name, value) == Some(false))
}

/// Reads a literal as a caller sends it. `xsd:` stands for the namespace of XML Schema.
pub fn literal(
    value: &str,
    datatype: Option<&str>,
    language: Option<&str>,
    ill_typed: IllTyped,
) -> Result<Object, Failure> {
    let datatype = match (datatype, language) {
        (None, None) => format!("{XSD}string"),
        (_, Some(_)) => LANG_STRING.to_owned(),
        (Some(datatype), None) => match datatype.strip_prefix("xsd:") {
            Some(name) => format!("{XSD}{name}"),
            None => datatype.to_owned(),
        },
    };
    if datatype == LANG_STRING && language.is_none() {
        return Err(Failure::field("object_language", "is needed for an rdf:langString"));
    }
    terms::check_iri("object_datatype", &datatype)?;
    if let Some(language) = language {
        terms::check_language("object_language", language)?;
    }
    if let (IllTyped::Refused, Some(name)) = (ill_typed, datatype.strip_prefix(XSD)) {
        let shown = |text: &str| text.chars().take(100).collect::<String>();
        match has_value(name, value) {
            Some(true) => {}
            Some(false) => {
                return Err(Failure::field("object_literal", format!("`{}` is no xsd:{name}", shown(value)))
                    .with("remedy", "mend the value, or send it as xsd:string"));
            }
            None => {
                return Err(Failure::field("object_datatype", format!("XML Schema has no type `{}`", shown(name)))
                    .with("remedy", "name a type of XML Schema, such as xsd:string, or one by an IRI of your own"));
            }
        }
    }
    // Languages are equal in any case (RDF 1.1, section 3.3).
    let language = language.map(str::to_ascii_lowercase);
    Ok(Object::Literal { value: value.to_owned(), datatype, language })
}

/// Whether a type of XML Schema has a value; `None` if XML Schema has no type of this name.
fn has_value(name: &str, value: &str) -> Option<bool> {
    fn reads<T: FromStr>(value: &str) -> bool {
        value.parse::<T>().is_ok()
    }
    let whole = |from: i128, to: i128| {
        let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // What an i128 cannot hold is beyond every bounded type.
        is_number
            && match value.parse::<i128>() {
                Ok(number) => (from..=to).contains(&number),
                Err(_) if value.starts_with('-') => from == i128::MIN,
                Err(_) => to == i128::MAX,
            }
    };
    Some(match name {
        "boolean" => reads::<xsd::Boolean>(value),
        "decimal" => {
            let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
            digits.bytes().any(|byte| byte.is_ascii_digit())
                && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
                && digits.matches('.').count() <= 1
        }
        // The crate reads infinities as Rust writes them, too.
        "double" | "float" => match value {
            "INF" | "+INF" | "-INF" | "NaN" => true,
            _ => {
                value.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
                    && reads::<xsd::Double>(value)
            }
        },
        "dateTime" => reads::<xsd::DateTime>(value),
        "dateTimeStamp" => reads::<xsd::DateTime>(value) && has_zone(value),
        "date" => reads::<xsd::Date>(value),
        "time" => reads::<xsd::Time>(value),
        "gYear" => reads::<xsd::GYear>(value),
        "gYearMonth" => reads::<xsd::GYearMonth>(value),
        "gMonth" => reads::<xsd::GMonth>(value),
        "gMonthDay" => reads::<xsd::GMonthDay>(value),
        "gDay" => reads::<xsd::GDay>(value),
        "duration" => reads::<xsd::Duration>(value),
        "yearMonthDuration" => reads::<xsd::YearMonthDuration>(value),
        "dayTimeDuration" => reads::<xsd::DayTimeDuration>(value),
        "integer" => whole(i128::MIN, i128::MAX),
        "nonNegativeInteger" => whole(0, i128::MAX),
        "positiveInteger" => whole(1, i128::MAX),
        "nonPositiveInteger" => whole(i128::MIN, 0),
        "negativeInteger" => whole(i128::MIN, -1),
        "long" => whole(i64::MIN.into(), i64::MAX.into()),
        "int" => whole(i32::MIN.into(), i32::MAX.into()),
        "short" => whole(i16::MIN.into(), i16::MAX.into()),
        "byte" => whole(i8::MIN.into(), i8::MAX.into()),
        "unsignedLong" => whole(0, u64::MAX.into()),
        "unsignedInt" => whole(0, u32::MAX.into()),
        "unsignedShort" => whole(0, u16::MAX.into()),
        "unsignedByte" => whole(0, u8::MAX.into()),
        "hexBinary" => value.len().is_multiple_of(2) && value.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "base64Binary" => is_collapsed(value) && STANDARD.decode(value.replace(' ', "")).is_ok(),
        "normalizedString" => !value.contains(['\t', '\n', '\r']),
        "token" => is_collapsed(value),
        "language" => {
            let mut parts = value.split('-');
            let is_short = |part: &str| (1..=8).contains(&part.len());
            let letters = |part: &str| is_short(part) && part.bytes().all(|byte| byte.is_ascii_alphabetic());
            let others = |part: &str| is_short(part) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
            parts.next().is_some_and(letters) && parts.all(others)
        }
        "Name" => is_name(value),
        "NCName" | "ID" | "IDREF" | "ENTITY" => is_plain_name(value),
        "QName" | "NOTATION" => match value.split_once(':') {
            Some((prefix, name)) => is_plain_name(prefix) && is_plain_name(name),
            None => is_plain_name(value),
        },
        "NMTOKEN" => is_name_token(value),
        "NMTOKENS" => value.split(' ').all(is_name_token),
        "IDREFS" | "ENTITIES" => value.split(' ').all(is_plain_name),
        "string" | "anyURI" | "anyType" | "anySimpleType" | "anyAtomicType" => true,
        _ => return None,
    })
}

/// Whether a text is as XML Schema leaves it where it collapses white space.
fn is_collapsed(text: &str) -> bool {
    !text.contains(['\t', '\n', '\r']) && !text.contains("  ") && !text.starts_with(' ') && !text.ends_with(' ')
}

/// Whether a text is a `Name` of XML.
fn is_name(text: &str) -> bool {
    text.starts_with(begins_name) && text.chars().all(is_of_name)
}

/// Whether a text is a name without a colon, an `NCName`.
fn is_plain_name(text: &str) -> bool {
    is_name(text) && !text.contains(':')
}

/// Whether a text is an `Nmtoken` of XML.
fn is_name_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

/// Whether a name of XML may begin with a character (XML 1.0, section 2.3).
fn begins_name(c: char) -> bool {
    matches!(c,
        ':' | '_' | 'A'..='Z' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
            | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
            | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
            | '\u{10000}'..='\u{effff}')
}

/// Whether a name of XML may have a character after its first one.
fn is_of_name(c: char) -> bool {
    begins_name(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

fn has_zone(value: &str) -> bool {
    value.ends_with('Z') || value.get(value.len().saturating_sub(6)..).is_some_and(|end| end.starts_with(['+', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_its_values_and_no_others() {
        for (name, values, others) in [
            ("boolean", &["true", "0"][..], &["yes", ""][..]),
            ("decimal", &["1.50", "-.5", "+7", "123456789012345678901234567890.1"], &["1e3", ".", "1.2.3", "", "x"]),
            ("integer", &["0", "-12", "+1", "170141183460469231731687303715884105728"], &["1.0", "", "-", "1_0"]),
            (
                "positiveInteger",
                &["1", "340282366920938463463374607431768211456"],
                &["0", "-1", "-340282366920938463463374607431768211456"],
            ),
            ("byte", &["-128", "127"], &["128", "99999999999999999999999999999999999999999"]),
            ("unsignedLong", &["18446744073709551615"], &["18446744073709551616", "-1"]),
            ("double", &["1e3", "NaN", "INF", "-0"], &["1e", "inf", "nan", "infinity", ""]),
            ("date", &["2024-02-29", "2024-01-01Z", "-0044-03-15"], &["2023-02-29", "2024-1-1", "now"]),
            (
                "dateTime",
                &["2024-02-29T10:00:00", "2024-02-29T10:00:00.5+02:00"],
                &["2024-02-29 10:00:00", "2024-02-29T25:00:00"],
            ),
            ("dateTimeStamp", &["2024-02-29T10:00:00Z"], &["2024-02-29T10:00:00"]),
            ("gYear", &["2024"], &["24"]),
            ("duration", &["P1Y2M3DT4H", "-PT5M"], &["1Y", "P"]),
            ("hexBinary", &["0aFF", ""], &["0aF", "xx"]),
            ("base64Binary", &["", "aGVyb24=", "aGVy b24="], &["!!", "aGVyb24", "aGVyb25=x", " aGVy", "aGVy  b24="]),
            ("normalizedString", &["", " a  b "], &["a\nb", "a\tb"]),
            ("token", &["", "a b"], &["a  b", " a", "a ", "a\nb"]),
            ("language", &["en", "de-CH-1996", "x-mine"], &["en_US", "", "1a", "abcdefghij", "en-"]),
            ("Name", &["a", "a:b", "_1", "\u{e4}-."], &["1a", "", "a b", "-a"]),
            ("NCName", &["a", "a.b"], &["a b", "a:b", ""]),
            ("ID", &["a"], &["1"]),
            ("QName", &["a:b", "a"], &["a:b:c", ":a", "a:"]),
            ("NMTOKEN", &["1-a", ":"], &["a b", ""]),
            ("NMTOKENS", &["1 a"], &["", "1  a"]),
            ("IDREFS", &["a b"], &["a 1", ""]),
            ("string", &["", "anything"], &[]),
            ("anyURI", &["a b"], &[]),
        ] {
            for value in values {
                assert_eq!(has_value(name, value), Some(true), "{value} is an xsd:{name}");
            }
            for other in others {
                assert_eq!(has_value(name, other), Some(false), "{other} is no xsd:{name}");
            }
        }
        assert_eq!(has_value("nosuch", "x"), None);
        assert!(!is_ill_typed("x", "http://www.w3.org/2001/XMLSchema#nosuch"), "nothing is known of its values");
    }

    #[test]
    fn a_literal_is_kept_to_the_letter_with_the_whole_name_of_its_type() {
        let read =
            |value, datatype, language| literal(value, datatype, language, IllTyped::Refused).expect("a literal");
        let is = |value: &str, datatype: &str, language: Option<&str>| Object::Literal {
            value: value.to_owned(),
            datatype: datatype.to_owned(),
            language: language.map(str::to_owned),
        };
        assert_eq!(
            read("1.50", Some("xsd:decimal"), None),
            is("1.50", "http://www.w3.org/2001/XMLSchema#decimal", None)
        );
        assert_eq!(read("x", None, None), is("x", "http://www.w3.org/2001/XMLSchema#string", None));
        assert_eq!(read("chat", None, Some("FR-ca")), is("chat", LANG_STRING, Some("fr-ca")));
        assert_eq!(read("o", Some("urn:x:colour"), None), is("o", "urn:x:colour", None));
        for (value, datatype, says) in [
            ("soon", "xsd:date", "`soon` is no xsd:date"),
            ("chat", LANG_STRING, "is needed"),
            ("x", "xsd:nosuch", "XML Schema has no type `nosuch`"),
            ("x", "http://ex/%zz", "is no IRI"),
        ] {
            let refused = literal(value, Some(datatype), None, IllTyped::Refused).expect_err("refused");
            assert!(refused.detail.contains(says), "{}", refused.detail);
        }
    }
}
