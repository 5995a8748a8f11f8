//! How much a JSON text of a caller may hold, counted while it is read: an object, or a value whose type the caller chooses, takes many
//! times the memory of its text.
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{cell::Cell, fmt};

/// A text may hold one value for so many of the bytes that it may have.
const BYTES_OF_A_VALUE: u64 = 64;
/// What a text of any length may hold: as much as one object of the caller's own.
const LEAST: usize = 100_000;

/// What a text may still hold.
pub struct Amount {
    most: usize,
    left: Cell<usize>,
}

impl Amount {
    /// The amount for a text of at most so many bytes.
    pub fn of_bytes(most_bytes: u64) -> Amount {
        let most = usize::try_from(most_bytes / BYTES_OF_A_VALUE).unwrap_or(usize::MAX).max(LEAST);
        Amount { most, left: Cell::new(most) }
    }

    /// Counts a value.
    pub fn take<E: Error>(&self) -> Result<(), E> {
        let most = self.most;
        let left = self.left.get().checked_sub(1).ok_or_else(|| {
            E::custom(format_args!("with it there are more than {most} objects and values; send less at a time"))
        })?;
        self.left.set(left);
        Ok(())
    }

    /// Counts the values of a JSON text and keeps none; an error about data says that they are too many.
    pub fn check(&self, json: &[u8]) -> serde_json::Result<()> {
        Each(self).deserialize(&mut serde_json::Deserializer::from_slice(json))
    }
}

/// A value that is counted, with those in it.
struct Each<'a>(&'a Amount);

impl<'de> DeserializeSeed<'de> for Each<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.take::<D::Error>()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Each<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Each(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<IgnoredAny>()?.is_some() {
            members.next_value_seed(Each(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_however_they_are_nested() {
        let list = |values: usize| format!("[{}0]", r#"{"a":0},"#.repeat(values / 2 - 1));
        let check = |json: &str, most_bytes| Amount::of_bytes(most_bytes).check(json.as_bytes());
        assert!(check(&list(LEAST), 0).is_ok());
        let refused = check(&list(LEAST + 2), 0).expect_err("too many");
        assert!(refused.is_data() && refused.to_string().contains("more than 100000 objects and values"), "{refused}");
        assert!(check(&list(LEAST + 2), 16 << 20).is_ok(), "a text that may be longer may hold more");
        assert!(check(&format!("\"{}\"", "x".repeat(1 << 20)), 0).is_ok(), "a text is one value");
        let amount = Amount::of_bytes(0);
        assert!(amount.check(list(LEAST).as_bytes()).is_ok());
        assert!(amount.check(b"1").is_err(), "an amount is that of all that is read with it");
    }
}
