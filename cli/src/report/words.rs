//! Numbers and their nouns, and sizes, in words.

/// A number and its noun, in the singular or plural.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Below this number of rows the fixed size of a table dominates, so bytes a row say nothing about larger tables.
const ROWS_TO_MEASURE: u64 = 10_000;

/// The size of a table in words.
pub fn size_in_words(rows: u64, bytes_per_row: f64) -> String {
    match rows >= ROWS_TO_MEASURE {
        true => format!("{rows} rows, {bytes_per_row:.1} bytes a row"),
        false => format!("{rows} rows"),
    }
}
