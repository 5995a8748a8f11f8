//! Constraints that a field's type cannot express, each declared once: `check` enforces it and the contract shows it.
use crate::Failure;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use std::ops::Range;

/// What a field takes beyond its type.
#[derive(Clone, Copy, Debug)]
pub enum Constraint {
    /// A whole number between two bounds, inclusive.
    Whole(i64, i64),
    /// A number between two bounds, inclusive.
    Number(f64, f64),
    /// A number above this one.
    Above(f64),
    /// A text whose length in characters is between two bounds, in this form.
    Text(usize, usize, Form),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list whose length is between two bounds, with a constraint for each entry.
    List(usize, usize, Option<&'static Constraint>),
    /// A time that PostgreSQL can hold and RFC 3339 can write.
    Moment,
}

/// The microseconds since 1970 of the years -4711 to 9999. A leap second counts as the second after it, as PostgreSQL keeps it.
const MOMENTS: Range<i64> = -210_831_897_600_000_000..253_402_300_800_000_000;

/// The form of a text.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Any,
    /// At least one character that is not white space.
    NotBlank,
    /// The same on one line, without control characters, as in titles.
    Line,
    /// Letters, digits and `_-:.`, as in the names of usetypes and task types.
    Name,
    /// The same, and maybe an asterisk at the end, for all names that begin so.
    Prefix,
    /// Letters, digits and `_-.`, as in the namespaces of predicates.
    Word,
    /// The tag of a language (BCP 47), such as `de-CH`.
    Language,
    /// An absolute IRI (RFC 3987), such as `https://schema.org/author`.
    Iri,
    /// A place in a list, as `next_cursor` gives it.
    Cursor,
}

impl Form {
    /// A regular expression of ECMA-262, as JSON Schema demands.
    fn pattern(self) -> Option<&'static str> {
        match self {
            Form::Any => None,
            Form::NotBlank => Some(r"\S"),
            Form::Line => Some(r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"),
            Form::Name => Some("^[a-zA-Z0-9_:.-]+$"),
            Form::Prefix => Some(r"^([a-zA-Z0-9_:.-]+\*?|\*)$"),
            Form::Word => Some("^[a-zA-Z0-9_.-]+$"),
            Form::Language => Some("^[a-zA-Z]+(-[a-zA-Z0-9]+)*$"),
            Form::Iri => Some(r#"^[a-zA-Z][a-zA-Z0-9+.-]*:[^\x00-\x20\x7f-\x9f<>"{}|\\^`]*$"#),
            Form::Cursor => Some(r"^-?[0-9]{1,19}(\.[0-9]{1,19})*$"),
        }
    }

    fn misfit(self, text: &str) -> Option<&'static str> {
        let fits = match self {
            Form::Any => true,
            Form::NotBlank => text.chars().any(|character| !character.is_whitespace()),
            Form::Line => Form::NotBlank.misfit(text).is_none() && !text.contains(char::is_control),
            Form::Name => text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-:.".contains(&byte)),
            Form::Prefix => {
                let name = text.strip_suffix('*').unwrap_or(text);
                text == "*" || !name.is_empty() && Form::Name.misfit(name).is_none()
            }
            Form::Word => text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)),
            Form::Language => is_language(text),
            Form::Iri => is_iri(text),
            Form::Cursor => {
                let digits = |part: &str| (1..=19).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
                text.strip_prefix('-').unwrap_or(text).split('.').all(digits)
            }
        };
        (!fits).then_some(match self {
            Form::Any => "takes any text",
            Form::NotBlank => "must not be blank",
            Form::Line => "takes one line that is not blank, without line breaks and other control characters",
            Form::Name => "takes only the characters a-z A-Z 0-9 _ - : .",
            Form::Prefix => "takes only the characters a-z A-Z 0-9 _ - : . and an asterisk at the end",
            Form::Word => "takes only the characters a-z A-Z 0-9 _ - .",
            Form::Language => "takes the tag of a language, such as en or de-CH",
            Form::Iri => "takes an absolute IRI of at most 2,048 bytes, such as https://schema.org/author",
            Form::Cursor => "takes a next_cursor from this list",
        })
    }
}

/// Whether a text is the tag of a language.
fn is_language(text: &str) -> bool {
    let mut parts = text.split('-');
    let is_first = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_other = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    parts.next().is_some_and(is_first) && parts.all(is_other)
}

/// Whether a text is an absolute IRI that an index can hold.
fn is_iri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte))
    };
    // RFC 3987 allows blanks other than the space, and a scheme with nothing behind it.
    let fits = |character: char| !character.is_control() && !" <>\"{}|\\^`".contains(character);
    text.len() <= 2048 && text.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && rest.chars().all(fits))
}

/// The rows in one page of a list.
pub const PAGE: Constraint = Constraint::Whole(1, 1000);
/// Where a page begins; the place in a subtree has a number for each level.
pub const CURSOR: Constraint = Constraint::Text(1, 5_200, Form::Cursor);
/// The range of the priority of an upload or a creation.
pub const PRIORITY: Constraint = Constraint::Whole(-100, 100);
/// The title of a document, at whatever door.
pub const TITLE: Constraint = Constraint::Text(1, 1000, Form::Line);
/// The name of a usetype or of a task type.
pub const NAME: Constraint = Constraint::Text(1, 100, Form::Name);

/// What something calls itself, as [`TITLE`] takes it; empty if it says nothing.
pub fn as_title(text: &str) -> String {
    let is_between = |character: char| character.is_whitespace() || character.is_control();
    let words: Vec<&str> = text.split(is_between).filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(1000).collect()
}

/// What somebody says that a file is, as a header can hold it: at most 255 characters, none of them a control character. `None` if nothing is left.
pub fn as_media_type(text: &str) -> Option<String> {
    let said: String = text.chars().filter(|character| !character.is_control()).collect();
    let said: String = said.trim().chars().take(255).collect();
    (!said.is_empty()).then(|| said.trim_end().to_owned())
}

impl Constraint {
    /// Returns the 422 that names the field if the value breaks this constraint.
    pub fn check<T: Constrained>(&self, field: &str, value: &T) -> Result<(), Failure> {
        value.meets(self).map_err(|reason| Failure::field(field, reason))
    }

    /// The same constraint in keywords of JSON Schema.
    pub fn keywords(&self) -> Map<String, Value> {
        let keywords = match self {
            Constraint::Whole(least, most) => json!({"minimum": least, "maximum": most}),
            Constraint::Number(least, most) => json!({"minimum": least, "maximum": most}),
            Constraint::Above(least) => json!({"exclusiveMinimum": least}),
            Constraint::Text(least, most, form) => match form.pattern() {
                Some(pattern) => json!({"minLength": least, "maxLength": most, "pattern": pattern}),
                None => json!({"minLength": least, "maxLength": most}),
            },
            Constraint::OneOf(words) => json!({"enum": words}),
            Constraint::List(least, most, each) => {
                json!({"minItems": least, "maxItems": most, "items": each.map(Constraint::keywords).unwrap_or_default()})
            }
            // The format `date-time` stands there already, and JSON Schema has no bounds of times.
            Constraint::Moment => json!({}),
        };
        match keywords {
            Value::Object(keywords) => keywords,
            _ => Map::new(),
        }
    }

    fn number(&self, value: f64) -> Result<(), String> {
        let (fits, takes) = match self {
            Constraint::Whole(least, most) => {
                let fits = (*least as f64..=*most as f64).contains(&value) && value.fract() == 0.0;
                (fits, format!("takes {least} to {most}"))
            }
            Constraint::Number(least, most) => ((*least..=*most).contains(&value), format!("takes {least} to {most}")),
            Constraint::Above(least) => (value.is_finite() && value > *least, format!("must be above {least}")),
            _ => (false, "does not take a number".to_owned()),
        };
        if fits { Ok(()) } else { Err(takes) }
    }

    fn text(&self, text: &str) -> Result<(), String> {
        match self {
            Constraint::Text(least, most, form) => match text.chars().count() {
                0 if *least > 0 => Err("must not be empty".to_owned()),
                count if count < *least => Err(format!("takes at least {least} characters, got {count}")),
                count if count > *most => Err(format!("takes at most {most} characters, got {count}")),
                _ => form.misfit(text).map_or(Ok(()), |reason| Err(reason.to_owned())),
            },
            Constraint::OneOf(words) if words.contains(&text) => Ok(()),
            Constraint::OneOf(words) => Err(format!("takes {}, got `{text}`", words.join(", "))),
            _ => Err("does not take a text".to_owned()),
        }
    }
}

/// A value that a constraint can apply to.
pub trait Constrained {
    /// Returns what the constraint takes if the value breaks it.
    fn meets(&self, constraint: &Constraint) -> Result<(), String>;
}

macro_rules! numbers { ($($type:ty),*) => { $(
    impl Constrained for $type {
        fn meets(&self, constraint: &Constraint) -> Result<(), String> {
            constraint.number(f64::from(*self))
        }
    }
)* } }
numbers!(i32, u32, f64);

/// Ids, of which only a list has a constraint.
impl Constrained for i64 {
    fn meets(&self, _: &Constraint) -> Result<(), String> {
        Ok(())
    }
}

impl Constrained for DateTime<Utc> {
    fn meets(&self, constraint: &Constraint) -> Result<(), String> {
        match constraint {
            Constraint::Moment if MOMENTS.contains(&self.timestamp_micros()) => Ok(()),
            Constraint::Moment => Err("takes the years -4711 to 9999".to_owned()),
            _ => Err("does not take a time".to_owned()),
        }
    }
}

impl Constrained for String {
    fn meets(&self, constraint: &Constraint) -> Result<(), String> {
        constraint.text(self)
    }
}

impl<T: Constrained> Constrained for Option<T> {
    fn meets(&self, constraint: &Constraint) -> Result<(), String> {
        self.as_ref().map_or(Ok(()), |value| value.meets(constraint))
    }
}

impl<T: Constrained> Constrained for Vec<T> {
    fn meets(&self, constraint: &Constraint) -> Result<(), String> {
        let Constraint::List(least, most, each) = constraint else { return Err("does not take a list".to_owned()) };
        match self.len() {
            0 if *least > 0 => return Err("must not be empty".to_owned()),
            count if count < *least => return Err(format!("takes at least {least} entries, got {count}")),
            count if count > *most => return Err(format!("takes at most {most} entries, got {count}")),
            _ => {}
        }
        let Some(each) = each else { return Ok(()) };
        let misfit =
            |(place, entry): (usize, &T)| entry.meets(each).err().map(|reason| format!("entry {place} {reason}"));
        self.iter().enumerate().find_map(misfit).map_or(Ok(()), Err)
    }
}

/// A value that is kept as JSON, such as an ingest option.
impl Constrained for Value {
    fn meets(&self, constraint: &Constraint) -> Result<(), String> {
        match self {
            Value::Number(number) => constraint.number(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => constraint.text(text),
            _ => Err("takes a number or a text".to_owned()),
        }
    }
}

/// Declares the constraints of a type's fields, with the name on the wire if that differs; writes `constraints` and
/// `check`.
macro_rules! constrain {
    ($($field:ident $(as $name:literal)?: $constraint:expr),* $(,)?) => {
        constrain!($($field $(as $name)?: $constraint),*; |_| Ok(()));
    };
    ($($field:ident $(as $name:literal)?: $constraint:expr),*; $more:expr) => {
        fn constraints() -> Vec<(&'static str, $crate::constraint::Constraint)> {
            vec![$((constrain!(@name $field $($name)?), $constraint)),*]
        }
        fn check(&self) -> Result<(), $crate::Failure> {
            $($constraint.check(constrain!(@name $field $($name)?), &self.$field)?;)*
            let more: fn(&Self) -> Result<(), $crate::Failure> = $more;
            more(self)
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}
pub(crate) use constrain;

/// What a body says of its member `include_embed`, in its `impl Wire`.
macro_rules! shows_embed {
    () => {
        const SHOWS_EMBED: bool = true;
        fn show_embed(&mut self) {
            self.include_embed = true;
        }
    };
}
pub(crate) use shows_embed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_made_of_whatever_something_calls_itself() {
        for (text, title) in [(" a\r\n\tb ", "a b"), ("a\u{1b}[2Jb", "a [2Jb"), (" \u{9b}\n", ""), ("", "")] {
            assert_eq!(as_title(text), title);
        }
        assert!(as_title(&"ä ".repeat(900)).meets(&TITLE).is_ok());
    }

    #[test]
    fn what_a_file_is_said_to_be_fits_a_header() {
        for (said, kept) in [
            (" text/plain; charset=utf 8\r", Some("text/plain; charset=utf 8")),
            ("text\u{1}/\u{85}plain\0", Some("text/plain")),
            ("naïve", Some("naïve")),
            ("\u{7f} \t", None),
        ] {
            assert_eq!(as_media_type(said).as_deref(), kept, "{said:?}");
        }
        assert_eq!(as_media_type(&"ä ".repeat(300)).unwrap().chars().count(), 255);
    }

    #[test]
    fn what_is_declared_is_enforced_at_its_edges() {
        for (value, constraint, fits) in [
            (json!(1), PAGE, true),
            (json!(1000), PAGE, true),
            (json!(0), PAGE, false),
            (json!(1001), PAGE, false),
            (json!(1.5), PAGE, false),
            (json!(0.0), Constraint::Above(0.0), false),
            (json!(1e-9), Constraint::Above(0.0), true),
            (json!("a:b"), NAME, true),
            (json!(""), NAME, false),
            (json!("a b"), NAME, false),
            (json!("ä"), NAME, false),
            (json!("a.b"), Constraint::Text(1, 9, Form::Word), true),
            (json!("a:b"), Constraint::Text(1, 9, Form::Word), false),
            (json!("https://schema.org/author"), Constraint::Text(1, 2048, Form::Iri), true),
            (json!("urn:x:ä"), Constraint::Text(1, 2048, Form::Iri), true),
            (json!("author"), Constraint::Text(1, 2048, Form::Iri), false),
            (json!("1a:b"), Constraint::Text(1, 2048, Form::Iri), false),
            (json!("a:"), Constraint::Text(1, 2048, Form::Iri), true),
            (json!("http://e/New\u{a0}York/\u{3000}"), Constraint::Text(1, 2048, Form::Iri), true),
            (json!("a:\u{85}"), Constraint::Text(1, 2048, Form::Iri), false),
            (json!("a:b c"), Constraint::Text(1, 2048, Form::Iri), false),
            (json!("a:<b>"), Constraint::Text(1, 2048, Form::Iri), false),
            (json!(format!("a:{}", "ä".repeat(1030))), Constraint::Text(1, 2048, Form::Iri), false),
            (json!("7"), CURSOR, true),
            (json!("-7.9"), CURSOR, true),
            (json!("7.9.11"), CURSOR, true),
            (json!("7..9"), CURSOR, false),
            (json!("7."), CURSOR, false),
            (json!("x"), CURSOR, false),
            (json!(" \n\u{a0}"), Constraint::Text(1, 10, Form::NotBlank), false),
            (json!(" ä "), Constraint::Text(1, 3, Form::NotBlank), true),
            (json!(" äa "), Constraint::Text(1, 3, Form::NotBlank), false),
            (json!(" ä b "), TITLE, true),
            (json!(" "), TITLE, false),
            (json!("a\nb"), TITLE, false),
            (json!("a\u{1b}[2Jb"), TITLE, false),
            (json!("a\u{9b}b"), TITLE, false),
            (json!("b"), Constraint::OneOf(&["a", "b"]), true),
            (json!("c"), Constraint::OneOf(&["a", "b"]), false),
        ] {
            assert_eq!(value.meets(&constraint).is_ok(), fits, "{value} {constraint:?}");
        }
        for (time, fits) in [
            ("2024-02-29T10:00:00Z", true),
            ("-4711-01-01T00:00:00Z", true),
            ("-4712-12-31T23:59:59Z", false),
            ("9999-12-31T23:59:59.999999999Z", true),
            ("9999-12-31T23:59:60Z", false),
            ("+10000-01-01T00:00:00Z", false),
            ("+262000-01-01T00:00:00Z", false),
            ("-010000-01-01T00:00:00Z", false),
        ] {
            let time: DateTime<Utc> = time.parse().expect(time);
            assert_eq!(time.meets(&Constraint::Moment).is_ok(), fits, "{time}");
        }
        let list = Constraint::List(1, 2, Some(&NAME));
        let of = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>().meets(&list);
        assert!(of(&["a"]).is_ok() && of(&[]).is_err() && of(&["a", "b", "c"]).is_err());
        assert_eq!(of(&["a", ""]).expect_err("an empty name"), "entry 1 must not be empty");
    }
}
