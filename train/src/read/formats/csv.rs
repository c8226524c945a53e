//! CSV and TSV (RFC 4180) with a header: makes features of fields by the columns' roles. A field without a quote at
//! its start is read in place. A quoted field may contain the delimiter, doubled quotes and line breaks.
//!
//! A categorical value is a feature of value 1, whose key is made of the column's name and the value. A number is a
//! feature with the column's key. An empty field or `NA` is the column's "missing" key with value 1.

use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::fields::example_fields::ExampleFields;
use crate::read::fields::field::FieldId;
use crate::read::formats::columns::{ExampleNumbers, Role, number_feature, parse_number, unnamed};
use crate::read::formats::labels::Labels;
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::scale::Scaling;
use memchr::memchr_iter;

/// What a wrong record should have had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvFault {
    /// What was expected, and in which column.
    pub expected: String,
}

/// Reads records of the format.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub delimiter: u8,
    pub intercept: bool,
    pub labels: Labels,
    /// Whether no flag chose the label's column, so that the first column is the label.
    pub label_as_first: bool,
    pub header: Vec<String>,
    pub roles: Vec<Role>,
    /// The scaling of each column. Empty: no column is scaled.
    pub scaling: Vec<Scaling>,
    /// The current quoted field without its quotes.
    pub scratch: Vec<u8>,
    pub fields: ExampleFields,
    /// The columns of features.
    pub features: Vec<FieldId>,
    /// Line breaks inside quotes so far.
    pub breaks: u64,
    pub repeats: RepeatedKeys,
}

/// The end of an unquoted field: the first delimiter or newline at or after `p`.
#[inline(always)]
fn field_end(buf: &[u8], p: usize, delimiter: u8) -> usize {
    let rest = buf.get(p..).unwrap_or_default();
    p + rest.iter().position(|&b| b == delimiter || b == b'\n').unwrap_or(rest.len())
}

/// The field without the carriage return of a line's end.
#[inline(always)]
fn trimmed(field: &[u8]) -> &[u8] {
    field.strip_suffix(b"\r").unwrap_or(field)
}

/// Reads the quoted field whose quote is at `p` into `out`. Returns the position of the delimiter or newline after
/// it.
#[inline(never)]
fn quoted(buf: &[u8], mut p: usize, delimiter: u8, out: &mut Vec<u8>) -> Result<usize, &'static str> {
    out.clear();
    loop {
        p += 1;
        match buf.get(p) {
            None => return Err("expected the closing quote of a field before the end of the file"),
            Some(b'"') if buf.get(p + 1) == Some(&b'"') => {
                out.push(b'"');
                p += 1;
            }
            Some(b'"') => break,
            Some(&b) => out.push(b),
        }
    }
    p += 1;
    if buf.get(p) == Some(&b'\r') && matches!(buf.get(p + 1), None | Some(b'\n')) {
        p += 1;
    }
    match buf.get(p) {
        None | Some(b'\n') => Ok(p),
        Some(&b) if b == delimiter => Ok(p),
        Some(_) => Err("expected the delimiter after the closing quote"),
    }
}

/// Whether the line at `p` is empty, and so not a record.
#[inline(always)]
pub(crate) fn nothing(buf: &[u8], p: usize) -> bool {
    matches!((buf.get(p), buf.get(p + 1)), (None | Some(b'\n'), _) | (Some(b'\r'), None | Some(b'\n')))
}

/// The names in the header at `p`.
///
/// # Errors
/// A quoted name does not end correctly.
pub(crate) fn header(buf: &[u8], p: usize, delimiter: u8) -> Result<Vec<String>, CsvFault> {
    let mut p = if buf.get(p..).is_some_and(|b| b.starts_with(b"\xEF\xBB\xBF")) { p + 3 } else { p };
    let (mut names, mut scratch) = (Vec::new(), Vec::new());
    loop {
        let end = if buf.get(p) == Some(&b'"') {
            let end = quoted(buf, p, delimiter, &mut scratch);
            end.map_err(|e| CsvFault { expected: format!("{e}, in the header") })?
        } else {
            let end = field_end(buf, p, delimiter);
            scratch.clear();
            let field = &buf[p..end];
            scratch.extend_from_slice(if buf.get(end) == Some(&delimiter) { field } else { trimmed(field) });
            end
        };
        let name = String::from_utf8_lossy(&scratch).trim().to_owned();
        names.push(if name.is_empty() { unnamed(names.len()) } else { name });
        if buf.get(end) != Some(&delimiter) {
            return Ok(names);
        }
        p = end + 1;
    }
}

/// Appends the record at `p` and returns the start of the next one. `buf` ends with the record or with a later one.
///
/// # Errors
/// The block may then have features of the record: [`Block::undo`] removes them.
pub(crate) fn record(
    buf: &[u8],
    p: usize,
    records: &mut Records,
    block: &mut Block,
) -> Result<usize, CsvFault> {
    let Records {
        delimiter,
        intercept,
        labels,
        label_as_first,
        header,
        roles,
        scaling,
        scratch,
        breaks,
        fields,
        features,
        repeats,
    } = records;
    let delimiter = *delimiter;
    let (mut label, mut numbers) = (f32::NAN, ExampleNumbers::default());
    if *intercept {
        block.keys.push(INTERCEPT_KEY);
        block.values.push(1.0);
    }
    let (mut p, first) = (p, block.keys.len());
    for (at, role) in roles.iter().enumerate() {
        let (field, end) = if buf.get(p) == Some(&b'"') {
            let end = quoted(buf, p, delimiter, scratch).map_err(|e| wrong(e, header, at))?;
            *breaks += memchr_iter(b'\n', scratch).count() as u64;
            (&scratch[..], end)
        } else {
            let end = field_end(buf, p, delimiter);
            let last = buf.get(end) != Some(&delimiter);
            (if last { trimmed(&buf[p..end]) } else { &buf[p..end] }, end)
        };
        let more = buf.get(end) == Some(&delimiter);
        if more == (at + 1 == roles.len()) {
            let found = if more { "more".to_owned() } else { (at + 1).to_string() };
            return Err(CsvFault { expected: format!("expected {} fields, found {found}", roles.len()) });
        }
        match role {
            Role::Skipped => {}
            Role::Categorical(keys) => push(block, (keys.categorical(field), 1.0)),
            Role::Numeric(key, missing) => {
                let number = numeric(field, *key, *missing, scaling.get(at));
                push(block, number.map_err(|e| wrong(e, header, at))?);
            }
            Role::Both(keys, key, missing) => {
                push(block, (keys.categorical(field), 1.0));
                push(block, lenient_feature(field, *key, *missing, scaling.get(at)));
            }
            Role::OfExample(which) => {
                numbers.set(*which, which.parse(field).map_err(|e| wrong(e, header, at))?);
            }
            Role::Label => {
                let text = field.trim_ascii();
                label = labels.parse(text).map_err(|e| CsvFault {
                    expected: labels.wrong_in(&header[at], e, text, *label_as_first),
                })?;
            }
        }
        p = end + 1;
    }
    fields.end_row(block, first, features).map_err(|e| CsvFault { expected: e.into() })?;
    block.may_repeat |= repeats.any(&block.keys[first..]);
    block.end_with(label, numbers.importance, numbers.base);
    Ok(p)
}

#[inline(always)]
fn push(block: &mut Block, (key, value): (u64, f32)) {
    block.keys.push(key);
    block.values.push(value);
}

/// The key and the value of a field that is a number.
fn numeric(
    field: &[u8],
    key: u64,
    missing: u64,
    scaling: Option<&Scaling>,
) -> Result<(u64, f32), &'static str> {
    let (found, value) = number_feature(parse_number(field)?, key, missing);
    let value = match scaling {
        Some(scaling) if found == key => scaling.of(value),
        _ => value,
    };
    if value.is_finite() { Ok((found, value)) } else { Err(SCALED) }
}

/// The key and the value of a field that is also a category: what is no number is missing.
pub(crate) fn lenient_feature(field: &[u8], key: u64, missing: u64, scaling: Option<&Scaling>) -> (u64, f32) {
    numeric(field, key, missing, scaling).unwrap_or((missing, 1.0))
}

const SCALED: &str = "expected a number that fits f32 when it is scaled (--scale)";

/// Calls `each` with the fields of the record at `p` and their indices in the header. The record must be
/// [valid](record).
pub(crate) fn fields(buf: &[u8], p: usize, records: &mut Records, mut each: impl FnMut(usize, &[u8])) {
    let Records { delimiter, roles, scratch, .. } = records;
    let mut p = p;
    for at in 0..roles.len() {
        let end = match buf.get(p) {
            Some(b'"') => match quoted(buf, p, *delimiter, scratch) {
                Ok(end) => {
                    each(at, scratch);
                    end
                }
                Err(_) => return,
            },
            _ => {
                let end = field_end(buf, p, *delimiter);
                each(at, trimmed(&buf[p..end]));
                end
            }
        };
        p = end + 1;
    }
}

#[cold]
fn wrong(expected: &str, header: &[String], at: usize) -> CsvFault {
    CsvFault { expected: format!("{expected}, in column {:?}", header[at]) }
}
