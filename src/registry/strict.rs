//! A deserializer around another, which holds requests to the contract where serde's derive is lenient: an object is
//! never written as a list of its values, no text contains a NUL (PostgreSQL stores none), no body holds more values than
//! it may, and errors describe what is taken in words of JSON.
use crate::admission::amount::Amount;
use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
        VariantAccess, Visitor,
    },
};
use std::fmt;
use svc_client::UnknownWord;

/// Wraps a deserializer, or anything that returns one.
pub(super) struct Strict<'a, T> {
    inner: T,
    /// All values are texts that must be parsed, as in a query string.
    text: bool,
    /// What may still be read; a query string is short.
    amount: Option<&'a Amount>,
}

impl<'a, T> Strict<'a, T> {
    /// Wraps a deserializer of JSON.
    pub(super) fn json(inner: T, amount: &'a Amount) -> Strict<'a, T> {
        Strict { inner, text: false, amount: Some(amount) }
    }

    /// Wraps a deserializer of a query string.
    pub(super) fn text(inner: T) -> Strict<'a, T> {
        Strict { inner, text: true, amount: None }
    }

    /// Counts what takes much more memory than its text.
    fn count<E: Error>(&self) -> Result<(), E> {
        self.amount.map_or(Ok(()), Amount::take)
    }
}

/// Up to here a float holds every whole number exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What a type takes, in words of JSON.
#[derive(Clone, Copy)]
enum Wanted {
    /// The inner visitor's own words.
    Own,
    /// A text that the inner visitor parses.
    Parsed,
    Flag,
    Whole(i128, i128),
    Number,
    Text,
    Object,
    List,
    OneOf(&'static [&'static str]),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Own | Wanted::Parsed => f.write_str("another value"),
            Wanted::Flag => f.write_str("true or false"),
            // Nobody reads bounds of twenty digits.
            Wanted::Whole(0, most) if *most > i64::MAX.into() => f.write_str("a whole number from 0 to 2^64 - 1"),
            Wanted::Whole(_, most) if *most == i64::MAX.into() => f.write_str("a whole number below 2^63"),
            Wanted::Whole(least, most) => write!(f, "a whole number from {least} to {most}"),
            Wanted::Number => f.write_str("a number"),
            Wanted::Text => f.write_str("a string"),
            Wanted::Object => f.write_str("an object"),
            Wanted::List => f.write_str("a list"),
            Wanted::OneOf(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

/// A visitor that checks values before the inner one gets them.
struct Asked<'a, V> {
    inner: V,
    wanted: Wanted,
    text: bool,
    amount: Option<&'a Amount>,
}

impl<'a, V> Asked<'a, V> {
    fn strict<T>(&self, inner: T) -> Strict<'a, T> {
        Strict { inner, text: self.text, amount: self.amount }
    }

    fn readable<E: Error>(&self, text: &str) -> Result<(), E> {
        // A text may have megabytes, and a loop of this crate is slow without optimisation.
        if memchr::memchr(0, text.as_bytes()).is_some() {
            Err(E::custom("must not contain the character U+0000 (NUL)"))
        } else {
            Ok(())
        }
    }
}

impl<'de, V: Visitor<'de>> Asked<'_, V> {
    /// Whether the inner visitor parses a time.
    fn wants_time(&self) -> bool {
        let Wanted::Parsed = self.wanted else { return false };
        (self as &dyn Expected).to_string().contains("RFC 3339")
    }
}

/// The parser of times says only at which character it stopped.
fn no_time<E: Error>(text: &str) -> E {
    let text: String = text.chars().take(64).collect();
    E::custom(format_args!("takes a time of RFC 3339 with its offset, such as 2020-01-01T00:00:00Z, got `{text}`"))
}

impl Expected for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! ask { ($($method:ident($($argument:ident: $type:ty),*) $wanted:expr $(, $count:ident)?;)*) => { $(
    fn $method<V: Visitor<'de>>(self $(, $argument: $type)*, visitor: V) -> Result<V::Value, Self::Error> {
        $( self.$count::<Self::Error>()?; )?
        let (wanted, text, amount) = ($wanted, self.text, self.amount);
        let read = self.inner.$method($($argument,)* Asked { inner: visitor, wanted, text, amount });
        if text { read.map_err(|error| in_words(error, wanted)) } else { read }
    }
)* } }

/// The parsers of a query string speak of digits and types; what they expected is clearer.
fn in_words<E: Error>(error: E, wanted: Wanted) -> E {
    match wanted {
        Wanted::Flag | Wanted::Whole(..) | Wanted::Number => E::custom(format_args!("takes {wanted}")),
        _ => error,
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<'_, D> {
    type Error = D::Error;

    ask! {
        deserialize_any() Wanted::Own, count;
        deserialize_bool() Wanted::Flag;
        deserialize_i8() Wanted::Whole(i8::MIN.into(), i8::MAX.into());
        deserialize_i16() Wanted::Whole(i16::MIN.into(), i16::MAX.into());
        deserialize_i32() Wanted::Whole(i32::MIN.into(), i32::MAX.into());
        deserialize_i64() Wanted::Whole(i64::MIN.into(), i64::MAX.into());
        deserialize_u8() Wanted::Whole(0, u8::MAX.into());
        deserialize_u16() Wanted::Whole(0, u16::MAX.into());
        deserialize_u32() Wanted::Whole(0, u32::MAX.into());
        deserialize_u64() Wanted::Whole(0, u64::MAX.into());
        deserialize_f32() Wanted::Number;
        deserialize_f64() Wanted::Number;
        deserialize_char() Wanted::Text;
        // Words and similar types parse themselves from a text, and describe best what is wrong with one.
        deserialize_str() Wanted::Parsed;
        deserialize_string() Wanted::Text;
        deserialize_bytes() Wanted::Own;
        deserialize_byte_buf() Wanted::Own;
        deserialize_unit() Wanted::Own;
        deserialize_unit_struct(name: &'static str) Wanted::Own;
        deserialize_newtype_struct(name: &'static str) Wanted::Own;
        deserialize_seq() Wanted::List;
        deserialize_tuple(len: usize) Wanted::List;
        deserialize_tuple_struct(name: &'static str, len: usize) Wanted::List;
        deserialize_map() Wanted::Object, count;
        deserialize_identifier() Wanted::Own;
        deserialize_ignored_any() Wanted::Own;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        // A named parameter has a value, even if that is empty.
        if self.text {
            return visitor.visit_some(self);
        }
        let amount = self.amount;
        self.inner.deserialize_option(Asked { inner: visitor, wanted: Wanted::Own, text: false, amount })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        // It is read as a map, because for a struct serde_json would accept a list of the values in the order of the
        // fields.
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        // Every enum of the contract is a word.
        self.inner.deserialize_str(Asked {
            inner: Word(visitor, variants),
            wanted: Wanted::OneOf(variants),
            text: self.text,
            amount: self.amount,
        })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Reads a variant from its name.
struct Word<V>(V, &'static [&'static str]);
impl<'de, V: Visitor<'de>> Visitor<'de> for Word<V> {
    type Value = V::Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        if !self.1.contains(&name) {
            return Err(E::custom(UnknownWord::new(name, self.1)));
        }
        self.0.visit_enum(IntoDeserializer::<E>::into_deserializer(name))
    }
}

macro_rules! numbers { ($($method:ident $type:ty, $unexpected:expr;)*) => { $(
    fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
        let wanted = self.wanted;
        match wanted {
            Wanted::Own | Wanted::Parsed => self.inner.$method::<E>(value),
            _ => self.inner.$method::<E>(value).map_err(|_| E::invalid_type($unexpected(value), &wanted)),
        }
    }
)* } }

impl<'de, V: Visitor<'de>> Visitor<'de> for Asked<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wanted {
            Wanted::Own | Wanted::Parsed => self.inner.expecting(f),
            wanted => fmt::Display::fmt(&wanted, f),
        }
    }

    numbers! {
        visit_bool bool, Unexpected::Bool;
        visit_i64 i64, Unexpected::Signed;
        visit_u64 u64, Unexpected::Unsigned;
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        let wanted = self.wanted;
        match wanted {
            Wanted::Own | Wanted::Parsed => self.inner.visit_f64(value),
            // JSON Schema knows one kind of numbers, so 2.0 is a whole one.
            Wanted::Whole(..) if value.fract() == 0.0 && value.abs() <= EXACT => {
                self.inner.visit_i64(value as i64).map_err(|_: E| E::invalid_type(Unexpected::Float(value), &wanted))
            }
            _ => self.inner.visit_f64(value).map_err(|_: E| E::invalid_type(Unexpected::Float(value), &wanted)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.readable(text)?;
        match self.wants_time() {
            false => self.inner.visit_str(text),
            true => self.inner.visit_str(text).map_err(|_: E| no_time(text)),
        }
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.readable(text)?;
        match self.wants_time() {
            false => self.inner.visit_borrowed_str(text),
            true => self.inner.visit_str(text).map_err(|_: E| no_time(text)),
        }
    }
    fn visit_string<E: Error>(self, text: String) -> Result<V::Value, E> {
        self.readable(&text)?;
        match self.wants_time() {
            false => self.inner.visit_string(text),
            true => self.inner.visit_str(&text).map_err(|_: E| no_time(&text)),
        }
    }
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<V::Value, E> {
        self.inner.visit_bytes(bytes)
    }
    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<V::Value, E> {
        self.inner.visit_borrowed_bytes(bytes)
    }
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.strict(inner);
        self.inner.visit_some(inner)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.strict(inner);
        self.inner.visit_newtype_struct(inner)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let inner = self.strict(inner);
        self.inner.visit_seq(inner)
    }
    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let inner = self.strict(inner);
        self.inner.visit_map(inner)
    }
    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let inner = self.strict(inner);
        self.inner.visit_enum(inner)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<'_, S> {
    type Value = S::Value;
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Strict { inner, text: self.text, amount: self.amount })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<'_, A> {
    type Error = A::Error;
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(Strict { inner, text: self.text, amount: self.amount })
    }
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<'_, A> {
    type Error = A::Error;
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_key_seed(Strict { inner, text: self.text, amount: self.amount })
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(Strict { inner, text: self.text, amount: self.amount })
    }
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'a, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<'a, A> {
    type Error = A::Error;
    type Variant = Strict<'a, A::Variant>;
    fn variant_seed<S: DeserializeSeed<'de>>(self, inner: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (text, amount) = (self.text, self.amount);
        let (value, inner) = self.inner.variant_seed(Strict { inner, text, amount })?;
        Ok((value, Strict { inner, text, amount }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<'_, A> {
    type Error = A::Error;
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, inner: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Strict { inner, text: self.text, amount: self.amount })
    }
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, inner: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, Asked { inner, wanted: Wanted::List, text: self.text, amount: self.amount })
    }
    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], inner: V) -> Result<V::Value, A::Error> {
        let (text, amount) = (self.text, self.amount);
        self.inner.struct_variant(fields, Asked { inner, wanted: Wanted::Object, text, amount })
    }
}

#[cfg(test)]
mod tests;
