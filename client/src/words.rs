//! Closed sets of words: enums in Rust, and words on the wire, in the database and in messages.
use std::{error::Error, fmt};

/// A word that is not in its set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    word: String,
    known: &'static [&'static str],
}

impl UnknownWord {
    #[doc(hidden)]
    pub fn new(word: &str, known: &'static [&'static str]) -> UnknownWord {
        // The word comes from outside, so only its beginning is shown.
        UnknownWord { word: word.chars().take(64).collect(), known }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "takes {}, got `{}`", self.known.join(", "), self.word)
    }
}

impl Error for UnknownWord {}

/// Reads a value from its word.
#[doc(hidden)]
pub struct ReadWord<T> {
    pub known: &'static [&'static str],
    pub read: fn(&str) -> Result<T, UnknownWord>,
}

impl<T> serde::de::Visitor<'_> for ReadWord<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.known.join(", "))
    }
    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<T, E> {
        (self.read)(word).map_err(E::custom)
    }
}

/// Declares enums whose values are these words. Values are ordered as their words are.
#[macro_export]
macro_rules! words { ($( $(#[doc = $doc:literal])* $vis:vis $name:ident { $( $(#[doc = $vdoc:literal])* $variant:ident = $text:literal, )* } )*) => { $(
    $(#[doc = $doc])*
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    $vis enum $name { $( $(#[doc = $vdoc])* $variant, )* }

    impl $name {
        /// Every word.
        pub const WORDS: &[&str] = &[$($text),*];

        /// The word.
        pub const fn as_str(self) -> &'static str {
            match self { $( Self::$variant => $text, )* }
        }
    }

    impl ::std::fmt::Display for $name {
        fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
            f.pad(self.as_str())
        }
    }

    impl ::std::str::FromStr for $name {
        type Err = $crate::UnknownWord;
        fn from_str(word: &str) -> Result<Self, $crate::UnknownWord> {
            match word {
                $( $text => Ok(Self::$variant), )*
                other => Err($crate::UnknownWord::new(other, Self::WORDS)),
            }
        }
    }

    impl Ord for $name {
        fn cmp(&self, other: &Self) -> ::std::cmp::Ordering {
            self.as_str().cmp(other.as_str())
        }
    }

    impl PartialOrd for $name {
        fn partial_cmp(&self, other: &Self) -> Option<::std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    impl ::serde::Serialize for $name {
        fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(self.as_str())
        }
    }

    impl<'de> ::serde::Deserialize<'de> for $name {
        fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_str($crate::ReadWord { known: Self::WORDS, read: str::parse })
        }
    }
)* } }

/// Declares words of the contract, which describe themselves there.
macro_rules! wire_words { ($( $(#[doc = $doc:literal])* $name:ident { $($values:tt)* } )*) => { $(
    $crate::words! { $(#[doc = $doc])* pub $name { $($values)* } }

    // Written by hand, because utoipa's derive cannot read a name that a macro passes on.
    #[cfg(feature = "openapi")]
    impl utoipa::PartialSchema for $name {
        fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
            utoipa::openapi::ObjectBuilder::new()
                .schema_type(utoipa::openapi::Type::String)
                .description(Some([$($doc),*].join(" ").trim_ascii()))
                .enum_values(Some(Self::WORDS.iter().copied()))
                .into()
        }
    }
    #[cfg(feature = "openapi")]
    impl utoipa::ToSchema for $name {}
)* } }
pub(crate) use wire_words;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use std::collections::BTreeMap;

    words! {
        /// A set of words.
        Colour { Red = "red", DarkBlue = "dark_blue", }
    }

    #[test]
    fn a_value_is_its_word_everywhere() {
        for word in Colour::WORDS {
            let value: Colour = word.parse().expect("a word of the set");
            assert_eq!((value.as_str(), value.to_string().as_str()), (*word, *word));
            assert_eq!(serde_json::to_value(value).expect("JSON"), json!(word));
            assert_eq!(serde_json::from_value::<Colour>(json!(word)).expect("a value"), value);
        }
        assert_eq!(format!("{:<5}|", Colour::Red), "red  |");
        let counts = BTreeMap::from([(Colour::Red, 1), (Colour::DarkBlue, 2)]);
        assert_eq!(serde_json::to_string(&counts).expect("JSON"), r#"{"dark_blue":2,"red":1}"#);
        assert_eq!(serde_json::from_str::<BTreeMap<Colour, i32>>(r#"{"red":1,"dark_blue":2}"#).expect("a map"), counts);
    }

    #[test]
    fn an_unknown_word_is_named_with_those_that_are_known() {
        let refused = "green".parse::<Colour>().expect_err("not in the set").to_string();
        assert_eq!(refused, "takes red, dark_blue, got `green`");
        assert_eq!(serde_json::from_value::<Colour>(json!("green")).expect_err("not in the set").to_string(), refused);
        let number = serde_json::from_value::<Colour>(json!(1)).expect_err("no text").to_string();
        assert!(number.contains("one of red, dark_blue"), "{number}");
        assert!("x".repeat(10_000).parse::<Colour>().expect_err("too long").to_string().len() < 200);
    }
}
