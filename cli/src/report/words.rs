//! Numbers and their nouns, and sizes, in words.

use crate::report::numbers::Numbers;

/// A number and its noun, in the singular or plural.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Below this number of rows the fixed size of a table dominates, so bytes a row say nothing about larger tables.
const ROWS_TO_MEASURE: u64 = 10_000;

/// Adds the rows of a table, and the bytes of each (0 without rows).
pub fn put_size(report: &mut Numbers, head: &str, rows: u64, bytes: u64) {
    let bytes_per_row = if rows == 0 { 0.0 } else { bytes as f64 / rows as f64 };
    report.line(head);
    report.show("rows", rows, " rows");
    report.add("bytes_per_row", bytes_per_row);
    if rows >= ROWS_TO_MEASURE {
        report.words(format_args!(", {bytes_per_row:.1} bytes a row"));
    }
}

/// The most names that are listed one by one.
pub const NAMES_SHOWN: usize = 40;

/// All names, or the first few and the number of the others.
pub fn first_few(mut all: Vec<String>, between: &str) -> String {
    if all.len() > NAMES_SHOWN {
        let more = all.len() - NAMES_SHOWN;
        all.truncate(NAMES_SHOWN);
        all.push(format!("and {more} more"));
    }
    all.join(between)
}
