//! One element of a tensor, and how JSON has it.

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;

/// An element of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// `null`: there is no value.
    Missing,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Signed(i64),
    /// A whole number that may be larger.
    Unsigned(u64),
    /// A number of 32 bits.
    Single(f32),
    /// A number.
    Double(f64),
    /// A text.
    Text(String),
}

/// The elements of a tensor in row-major order. JSON may nest them or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elements(pub Vec<Datum>);

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Elements, D::Error> {
        let mut elements = Elements::default();
        deserializer.deserialize_any(Collect(&mut elements.0))?;
        Ok(elements)
    }
}

/// Appends what it visits.
struct Collect<'a>(&'a mut Vec<Datum>);

impl Collect<'_> {
    fn put<E>(self, datum: Datum) -> Result<(), E> {
        self.0.push(datum);
        Ok(())
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Collect<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, texts, truth values or null, in lists")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Collect(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.put(Datum::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.put(Datum::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.put(Datum::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.put(Datum::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.put(Datum::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<(), E> {
        self.put(Datum::Text(value))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.put(Datum::Missing)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.put(Datum::Missing)
    }
}
