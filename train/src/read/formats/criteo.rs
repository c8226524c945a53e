//! Criteo's click logs (the Kaggle challenge's train.txt and test.txt, the terabyte's day_0 to day_23). They have no
//! header, and tabs between fields: a label 0 or 1, 13 whole numbers I1 to I13 (mostly counts), and 26 hashed
//! categories C1 to C26. Numbers and categories may be empty. The keys are those of a CSV file with these column
//! names.
//!
//! By default a number becomes a category, as the winners of the challenge did (Y.-C. Juan, Y. Zhuang, W.-S. Chin, "3
//! Idiots' Approach for Display Advertising Challenge", 2014). For x above 2 it is the category floor(ln(x)^2), for
//! any other x it is "SP" and x itself. Or it becomes the number ln(1 + max(x, 0)), as in DLRM (M. Naumov et al.,
//! 2019). An empty number is the column's "missing" key.

use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::fields::example_fields::ExampleFields;
use crate::read::fields::field::FieldId;
use crate::read::formats::number::{NotANumber, load, unsigned};
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::text_key::ColumnKeys;
use std::sync::LazyLock;

/// The features that the numbers of Criteo's logs become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// Categories: x itself up to 2, floor(ln(x)^2) for larger x.
    #[default]
    Buckets,
    /// Numbers: ln(1 + max(x, 0)).
    Log,
}

const NUMBERS: usize = 13;
const CATEGORIES: usize = 26;
/// Fields of a line with a label.
const FIELDS: usize = 1 + NUMBERS + CATEGORIES;
/// A table has the bucket and logarithm of numbers below this.
const TABLED: usize = 4096;
/// The least number with a precomputed key.
const LEAST: i64 = -16;
/// One more than the bucket of `i64::MAX`.
const BUCKETS: usize = 1907;

/// Reads lines of the format.
#[derive(Clone)]
pub(crate) struct Criteo {
    intercept: bool,
    unlabelled: bool,
    counts: Counts,
    tables: &'static CriteoTables,
    fields: ExampleFields,
    repeats: RepeatedKeys,
}

/// Tables for all files. They take a quarter of a megabyte and a few milliseconds to compute.
struct CriteoTables {
    numbers: [Number; NUMBERS],
    categories: [ColumnKeys; CATEGORIES],
    /// The bucket of each number.
    buckets: Vec<u16>,
    /// The logarithm of each number.
    logarithms: Vec<f32>,
    /// The columns.
    columns: Vec<FieldId>,
}

static TABLES: LazyLock<CriteoTables> = LazyLock::new(|| CriteoTables {
    numbers: std::array::from_fn(Number::new),
    categories: std::array::from_fn(|i| ColumnKeys::new(&format!("C{}", i + 1))),
    buckets: (0..TABLED as i64).map(|x| if x > 2 { bucket(x) } else { 0 }).collect(),
    logarithms: (0..TABLED as i64).map(logarithm).collect(),
    columns: columns().map(|name| FieldId::of(name.as_bytes())).collect(),
});

/// The names of the columns, without the label.
pub(crate) fn columns() -> impl Iterator<Item = String> {
    let numbers = (1..=NUMBERS).map(|i| format!("I{i}"));
    numbers.chain((1..=CATEGORIES).map(|i| format!("C{i}")))
}

/// The keys of a column of numbers.
struct Number {
    keys: ColumnKeys,
    /// The keys of the numbers from LEAST to 2, then of the buckets from 0 on.
    ready: Vec<u64>,
    missing: u64,
    numeric: u64,
}

/// What a wrong line should have had.
pub(crate) type CriteoFault = String;

/// floor(ln(x)^2), for x above 2.
fn bucket(x: i64) -> u16 {
    let log = (x as f64).ln();
    (log * log) as u16
}

fn logarithm(x: i64) -> f32 {
    (x.max(0) as f64).ln_1p() as f32
}

impl Number {
    fn new(column: usize) -> Number {
        let keys = ColumnKeys::new(&format!("I{}", column + 1));
        let small = (LEAST..=2).map(|x| Number::small(&keys, x));
        let buckets = (0..BUCKETS).map(|b| keys.categorical(b.to_string().as_bytes()));
        let ready = small.chain(buckets).collect();
        Number { keys, ready, missing: keys.missing(), numeric: keys.numeric() }
    }

    /// The key of a number up to 2.
    fn small(keys: &ColumnKeys, x: i64) -> u64 {
        keys.categorical(format!("SP{x}").as_bytes())
    }

    #[inline(always)]
    fn bucketed(&self, x: i64, buckets: &[u16]) -> u64 {
        let at = if x > 2 {
            let bucket = buckets.get(x as usize).copied().unwrap_or_else(|| bucket(x));
            (3 - LEAST) as usize + bucket as usize
        } else if x >= LEAST {
            (x - LEAST) as usize
        } else {
            return Number::small(&self.keys, x);
        };
        self.ready[at]
    }
}

/// The category of a number, where numbers become buckets.
pub(crate) fn bucket_text(x: i64) -> String {
    if x > 2 { bucket(x).to_string() } else { format!("SP{x}") }
}

impl Criteo {
    pub fn new(intercept: bool, unlabelled: bool, counts: Counts, fields: ExampleFields) -> Criteo {
        Criteo { intercept, unlabelled, counts, tables: &TABLES, fields, repeats: RepeatedKeys::default() }
    }

    /// Appends the example of the line at `p` and returns the start of the next line.
    ///
    /// # Errors
    /// The block may then have features of the line: [`Block::undo`] removes them.
    #[inline(always)]
    pub fn example(&mut self, buf: &[u8], p: usize, block: &mut Block) -> Result<usize, CriteoFault> {
        let (label, mut p) = self.label(buf, p)?;
        let CriteoTables { numbers, categories, buckets, logarithms, columns } = self.tables;
        if self.intercept {
            block.keys.push(INTERCEPT_KEY);
            block.values.push(1.0);
        }
        let start = block.keys.len();
        for (column, number) in numbers.iter().enumerate() {
            let (x, end) = match whole(buf, p) {
                Ok(found) => found,
                Err(why) => return Err(wrong_number(buf, p, column, why)),
            };
            let (key, value) = match (x, self.counts) {
                (None, _) => (number.missing, 1.0),
                (Some(x), Counts::Buckets) => (number.bucketed(x, buckets), 1.0),
                (Some(x), Counts::Log) => {
                    let tabled = logarithms.get(x.max(0) as usize);
                    (number.numeric, tabled.copied().unwrap_or_else(|| logarithm(x)))
                }
            };
            block.keys.push(key);
            block.values.push(value);
            p = end + 1;
        }
        for (column, keys) in categories.iter().enumerate() {
            let last = column + 1 == CATEGORIES;
            let end = category_end(buf, p);
            let ends_line = byte(buf, end) == b'\n';
            if ends_line != last {
                return Err(wrong_fields(1 + NUMBERS + column + 1, ends_line));
            }
            let length = end - p - usize::from(ends_line && end > p && buf[end - 1] == b'\r');
            block.keys.push(keys.at(buf, p, length));
            block.values.push(1.0);
            p = end + 1;
        }
        self.fields.end_row(block, start, columns)?;
        block.may_repeat |= self.repeats.any(&block.keys[start..]);
        block.end(label);
        Ok(p)
    }

    #[inline(always)]
    fn label(&self, buf: &[u8], p: usize) -> Result<(f32, usize), CriteoFault> {
        if self.unlabelled && !has_label(buf, p) {
            return Ok((f32::NAN, p));
        }
        match (byte(buf, p), byte(buf, p + 1), byte(buf, p + 2)) {
            (b'0', b'\t', _) => Ok((0.0, p + 2)),
            (b'1', b'\t', _) => Ok((1.0, p + 2)),
            (b'-', b'1', b'\t') => Ok((-0.0, p + 3)),
            (b'+', b'1', b'\t') => Ok((1.0, p + 3)),
            (b'\t', ..) if self.unlabelled => Ok((f32::NAN, p + 1)),
            _ => Err("expected a label 0, 1, +1 or -1 and a tab".into()),
        }
    }
}

/// Whether a line has a label: it does not have exactly one field less than a full line.
fn has_label(buf: &[u8], p: usize) -> bool {
    let line = buf.get(p..).unwrap_or_default().iter().take_while(|&&b| b != b'\n');
    line.filter(|&&b| b == b'\t').count() + 1 != FIELDS - 1
}

/// The whole number at `p`, `None` when the field is empty, and the position of the tab after it.
#[inline(always)]
fn whole(buf: &[u8], p: usize) -> Result<(Option<i64>, usize), NotANumber> {
    let first = byte(buf, p);
    if first == b'\t' {
        return Ok((None, p));
    }
    let negative = first == b'-';
    let (size, end) = unsigned(buf, p + usize::from(negative))?;
    if byte(buf, end) != b'\t' {
        return Err(NotANumber::Missing);
    }
    let size = i64::try_from(size).map_err(|_| NotANumber::Range)?;
    Ok((Some(if negative { -size } else { size }), end))
}

/// The position of the tab or newline after a category.
#[inline(always)]
fn category_end(buf: &[u8], p: usize) -> usize {
    // The common case: eight characters, none of which is a tab or a newline.
    let c = load(buf, p);
    let below = c.wrapping_sub(0x2121_2121_2121_2121) & !c & 0x8080_8080_8080_8080;
    if below == 0 && matches!(byte(buf, p + 8), b'\t' | b'\n') {
        return p + 8;
    }
    let rest = buf.get(p..).unwrap_or_default();
    p + rest.iter().position(|&b| b == b'\t' || b == b'\n').unwrap_or(rest.len())
}

#[inline(always)]
fn byte(buf: &[u8], p: usize) -> u8 {
    buf.get(p).copied().unwrap_or(b'\n')
}

#[cold]
fn wrong_number(buf: &[u8], p: usize, column: usize, why: NotANumber) -> CriteoFault {
    let rest = buf.get(p..).unwrap_or_default();
    let end = rest.iter().position(|&b| b == b'\t' || b == b'\n').unwrap_or(rest.len());
    if rest.get(end) != Some(&b'\t') {
        return wrong_fields(1 + column + 1, true);
    }
    let range = if why == NotANumber::Range { " that fits 64 bits" } else { "" };
    format!("expected a whole number{range}, or nothing, in column I{}", column + 1)
}

/// The error for a line with `seen` fields, counted with the label.
#[cold]
fn wrong_fields(seen: usize, too_few: bool) -> CriteoFault {
    let found = if too_few { seen.to_string() } else { "more".into() };
    format!("expected {FIELDS} fields by tabs (a label, 13 numbers, 26 categories), found {found}")
}

/// Whether a file's first line has this format, with or without a label. One of its categories must have a letter, so
/// that a line of libsvm ids does not match.
pub(crate) fn like(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut fields: Vec<&[u8]> = line.split(|&b| b == b'\t').collect();
    if fields.len() == FIELDS && matches!(fields[0], b"0" | b"1" | b"-1" | b"+1" | b"") {
        fields.remove(0);
    }
    if fields.len() != FIELDS - 1 {
        return false;
    }
    let (numbers, categories) = fields.split_at(NUMBERS);
    let number = |f: &&[u8]| {
        let digits = f.strip_prefix(b"-").unwrap_or(f);
        f.is_empty() || (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
    };
    numbers.iter().all(number)
        && categories.iter().all(|f| f.len() <= 16 && f.iter().all(u8::is_ascii_hexdigit))
        && categories.iter().any(|f| f.iter().any(u8::is_ascii_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_the_recipe_for_every_size() {
        assert_eq!((bucket(3), bucket(20), bucket(1382), bucket(i64::MAX)), (1, 8, 52, BUCKETS as u16 - 1));
        let keys = ColumnKeys::new("I2");
        let of = |x: i64| TABLES.numbers[1].bucketed(x, &TABLES.buckets);
        for (x, text) in [
            (0, "SP0"),
            (2, "SP2"),
            (-1, "SP-1"),
            (-16, "SP-16"),
            (-17, "SP-17"),
            (3, "1"),
            (1382, "52"),
            (i64::MAX, "1906"),
            (4095, "69"),
            (4096, "69"),
            (i64::MIN + 1, "SP-9223372036854775807"),
        ] {
            assert_eq!(of(x), keys.categorical(text.as_bytes()), "{x}");
        }
    }

    #[test]
    fn the_shape_is_known() {
        let categories = ["68fd1e64"; 26].join("\t");
        for (head, like_it) in [
            ("0\t1\t\t-1\t5\t6\t7\t8\t9\t10\t11\t12\t13\t14", true),
            ("1\t\t\t\t\t\t\t\t\t\t\t\t\t", true),
            ("1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13", true), // without a label
            ("0\t1.5\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13", false),
            ("2\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13", false),
            ("label\tI1\tI2\tI3\tI4\tI5\tI6\tI7\tI8\tI9\tI10\tI11\tI12\tI13", false),
            ("0\t1", false),
        ] {
            assert_eq!(like(format!("{head}\t{categories}\r\n").as_bytes()), like_it, "{head}");
        }
        let ids: Vec<String> = (0..40).map(|i| (i % 2).to_string()).collect();
        assert!(!like(ids.join("\t").as_bytes()), "libsvm ids");
    }
}
