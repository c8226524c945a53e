//! Crosses: products of features of several fields. The cross of the categories `city` and `hour` has a feature for
//! each pair of a city and an hour. Its value is the product of both values.
//!
//! The key of a cross depends on the keys of its features alone, so it is the same in every format. The order in which
//! a flag names the fields does not matter.

use crate::limits::{CROSS_FIELDS_MAX, CROSSES_MAX, FEATURES_PER_EXAMPLE_MAX};
use crate::read::block::Block;
use crate::read::fields::field::{FieldId, FieldRun};
use crate::read::formats::text_key::cross_key;
use std::fmt;

/// What a cross takes its features from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CrossPart {
    /// Every field, `:` as in vw.
    Any,
    /// Every field whose name begins with this byte, as in vw.
    Letter(u8),
    /// The field of this name.
    Field(String, FieldId),
}

impl CrossPart {
    fn has(&self, field: FieldId) -> bool {
        match self {
            CrossPart::Any => true,
            CrossPart::Letter(letter) => field.letter == *letter,
            CrossPart::Field(_, own) => *own == field,
        }
    }
}

/// One cross. Equal parts are beside each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cross {
    parts: Vec<CrossPart>,
}

impl fmt::Display for Cross {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            let between = if at > 0 && matches!(part, CrossPart::Field(..)) { "*" } else { "" };
            match part {
                CrossPart::Any => write!(f, ":")?,
                CrossPart::Letter(letter) => write!(f, "{}", char::from(*letter))?,
                CrossPart::Field(name, _) => write!(f, "{between}{name}")?,
            }
        }
        Ok(())
    }
}

/// The crosses of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crosses {
    list: Vec<Cross>,
}

impl Crosses {
    /// Crosses of these texts. One of `named` has the names of two fields or more, with `,` or `*` between them. One of
    /// `lettered` has a letter for each part, as in vw's `-q`: all fields whose names begin with it, or `:` for all.
    ///
    /// # Errors
    /// A cross has one part or too many, or there are too many crosses: in words.
    pub fn new(named: &[String], lettered: &[String]) -> Result<Crosses, String> {
        let of_names = named.iter().map(|text| {
            let parts = text.split([',', '*']).map(|name| {
                let name = name.trim();
                CrossPart::Field(name.to_owned(), FieldId::of(name.as_bytes()))
            });
            (text, parts.collect::<Vec<_>>())
        });
        let of_letters = lettered.iter().map(|text| {
            let parts = text.bytes().map(|letter| match letter {
                b':' => CrossPart::Any,
                letter => CrossPart::Letter(letter),
            });
            (text, parts.collect())
        });
        let mut list = Vec::new();
        for (text, mut parts) in of_names.chain(of_letters) {
            if !(2..=CROSS_FIELDS_MAX).contains(&parts.len()) {
                return Err(format!(
                    "{text:?} has {} parts; 2 to {CROSS_FIELDS_MAX} are possible",
                    parts.len()
                ));
            }
            if parts.iter().any(|part| matches!(part, CrossPart::Field(name, _) if name.is_empty())) {
                return Err(format!("{text:?} has a part without a name"));
            }
            parts.sort();
            let cross = Cross { parts };
            if list.contains(&cross) {
                return Err(format!("{text:?} is there twice"));
            }
            list.push(cross);
        }
        if list.len() > CROSSES_MAX {
            return Err(format!("{} crosses; at most {CROSSES_MAX} are possible", list.len()));
        }
        list.sort();
        Ok(Crosses { list })
    }

    /// The crosses as [`new`](Self::new) takes them: those of names, and those of letters.
    pub fn texts(&self) -> (Vec<String>, Vec<String>) {
        let is_named = |cross: &&Cross| matches!(cross.parts[..], [.., CrossPart::Field(..)]);
        let (named, lettered): (Vec<_>, Vec<_>) = self.list.iter().partition(is_named);
        let texts = |list: Vec<&Cross>| list.into_iter().map(Cross::to_string).collect();
        (texts(named), texts(lettered))
    }

    /// The names of those of which `is_meant` is true by their number.
    pub(crate) fn names(&self, is_meant: impl Fn(usize) -> bool) -> Vec<String> {
        let meant = self.list.iter().enumerate().filter(|(number, _)| is_meant(*number));
        meant.map(|(_, cross)| cross.to_string()).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first name that is not one of the fields of the data.
    pub(crate) fn unknown(&self, is_field: impl Fn(&str) -> bool) -> Option<&str> {
        let parts = self.list.iter().flat_map(|cross| &cross.parts);
        parts
            .filter_map(|part| match part {
                CrossPart::Field(name, _) => Some(name.as_str()),
                _ => None,
            })
            .find(|name| !is_field(name))
    }

    /// Appends the crossed features of the example whose features begin at `start`. `runs` has its fields. `made` gets
    /// the number of each cross that has a feature.
    ///
    /// # Errors
    /// The example would have too many features.
    pub(crate) fn append(
        &self,
        block: &mut Block,
        start: usize,
        runs: &[FieldRun],
        mut made: impl FnMut(usize),
    ) -> Result<(), &'static str> {
        for (number, cross) in self.list.iter().enumerate() {
            let first = block.keys.len();
            Products::of(cross, block, start, runs, |_, _| {}).with(0, 1.0)?;
            if block.keys.len() > first {
                made(number);
            }
            if !block.fields.is_empty() {
                let id = FieldId::of(cross.to_string().as_bytes()).id;
                block.fields.resize(block.fields.len() + block.keys.len() - first, id);
            }
        }
        Ok(())
    }
}

impl Crosses {
    /// Calls `each` with the key of each crossed feature of an example that begins a block, and the keys of the
    /// features that it crosses.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub(crate) fn each(
        &self,
        block: &mut Block,
        runs: &[FieldRun],
        mut each: impl FnMut(u64, &[u64]),
    ) -> Result<(), &'static str> {
        self.list.iter().try_for_each(|cross| Products::of(cross, block, 0, runs, &mut each).with(0, 1.0))
    }
}

/// The products of one cross in one example.
struct Products<'a, F> {
    parts: &'a [CrossPart],
    block: &'a mut Block,
    /// Gets the key of each product, and those of its features.
    made: F,
    /// Where the example's features begin.
    start: usize,
    runs: &'a [FieldRun],
    /// The feature that was taken for each part so far.
    chosen: [usize; CROSS_FIELDS_MAX],
}

impl<'a, F: FnMut(u64, &[u64])> Products<'a, F> {
    fn of(
        cross: &'a Cross,
        block: &'a mut Block,
        start: usize,
        runs: &'a [FieldRun],
        made: F,
    ) -> Products<'a, F> {
        Products { parts: &cross.parts, block, made, start, runs, chosen: [0; CROSS_FIELDS_MAX] }
    }

    /// Appends the products with the features of the parts from `depth` on. `value` is the product of those before. Of
    /// a field with itself each pair is taken once, and each feature with itself, as in vw.
    fn with(&mut self, depth: usize, value: f32) -> Result<(), &'static str> {
        let Some(part) = self.parts.get(depth) else { return self.append(value) };
        let is_same = depth > 0 && self.parts[depth - 1] == *part;
        let least = if is_same { self.chosen[depth - 1] } else { 0 };
        let mut from = self.start;
        for run in self.runs {
            if part.has(run.field) {
                for at in from.max(least)..run.end {
                    self.chosen[depth] = at;
                    self.with(depth + 1, value * self.block.values[at])?;
                }
            }
            from = run.end;
        }
        Ok(())
    }

    /// Appends the product of the chosen features.
    fn append(&mut self, value: f32) -> Result<(), &'static str> {
        if self.block.keys.len() - self.start >= FEATURES_PER_EXAMPLE_MAX {
            return Err("expected at most 262143 features, with those of crosses");
        }
        if !value.is_finite() {
            return Err("expected numbers whose product fits f32: a cross multiplies them");
        }
        let (mut keys, parts) = ([0; CROSS_FIELDS_MAX], self.parts.len());
        for (key, &at) in keys.iter_mut().zip(&self.chosen[..parts]) {
            *key = self.block.keys[at];
        }
        // The order of features within a field means nothing.
        let mut rest = &mut keys[..parts];
        for same in self.parts.chunk_by(|a, b| a == b) {
            let group = rest.split_off_mut(..same.len());
            group.into_iter().for_each(<[u64]>::sort_unstable);
        }
        let key = cross_key(&keys[..parts]);
        (self.made)(key, &keys[..parts]);
        self.block.keys.push(key);
        self.block.values.push(value);
        Ok(())
    }
}

#[cfg(test)]
#[path = "crosses_tests.rs"]
mod tests;
