//! The key of a text, which names the row of a categorical value of a CSV column. It must never change, because saved
//! models depend on it (docs/checkpoint.md).

use crate::read::block::INTERCEPT_KEY;
use crate::read::formats::number::load;

const A: u64 = 0x9E37_79B9_7F4A_7C15;
const B: u64 = 0xD6E8_FEB8_6659_FD93;

/// Combines both halves of a 64x64 -> 128 bit product (wyhash's "mum").
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The key of `text` under `seed`. It mixes in the length first, then eight bytes a step (little-endian, the last
/// padded with zeros). Never [`INTERCEPT_KEY`].
#[inline]
pub fn text_key(seed: u64, text: &[u8]) -> u64 {
    let mut h = seed ^ (text.len() as u64 + 1).wrapping_mul(B);
    let (words, rest) = text.as_chunks::<8>();
    for word in words {
        h = fold(h ^ u64::from_le_bytes(*word), A);
    }
    h = fold(fold(h ^ last_word(rest), A) ^ B, A);
    if h == INTERCEPT_KEY { h - 1 } else { h }
}

/// Fewer than eight bytes as a little-endian number. Reads overlap, so that there is no loop.
#[inline(always)]
fn last_word(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    let at = |i: usize| u64::from(bytes[i]) << (8 * i);
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(&first), Some(&last)) => {
            u64::from(u32::from_le_bytes(first)) | u64::from(u32::from_le_bytes(last)) << (8 * (n - 4))
        }
        _ if n == 0 => 0,
        _ => at(0) | at(n / 2) | at(n - 1),
    }
}

/// [`text_key`] of the `length` bytes at `p`, in a buffer with 8 readable bytes after them.
#[inline(always)]
pub(crate) fn text_key_at(seed: u64, buf: &[u8], mut p: usize, length: usize) -> u64 {
    let mut h = seed ^ (length as u64 + 1).wrapping_mul(B);
    let end = p + (length & !7);
    while p < end {
        h = fold(h ^ load(buf, p), A);
        p += 8;
    }
    let last = load(buf, p) & ((1u64 << (8 * (length & 7))) - 1);
    h = fold(fold(h ^ last, A) ^ B, A);
    if h == INTERCEPT_KEY { h - 1 } else { h }
}

/// The key of the cross of features with these keys. It must never change. Never [`INTERCEPT_KEY`].
pub fn cross_key(keys: &[u64]) -> u64 {
    let begin = keys.len() as u64 ^ B;
    let h = keys.iter().fold(begin, |h, &key| fold(fold(h ^ key, A) ^ B, A));
    if h == INTERCEPT_KEY { h - 1 } else { h }
}

/// The keys of one CSV column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnKeys {
    seed: u64,
    /// Whether the values are numbers, too, so that `5.0` is the value `5`.
    of_numbers: bool,
}

impl ColumnKeys {
    /// The keys of the column of this name.
    pub fn new(column: &str) -> ColumnKeys {
        ColumnKeys { seed: text_key(0, column.as_bytes()), of_numbers: false }
    }

    /// The keys of a column whose values are numbers and categories. A number is one category, whether it is written as
    /// `5`, `5.0` or `5e0`: programs write it in different ways, and a table that gets a missing value has floats in
    /// place of integers.
    pub(crate) fn of_numbers(column: &str) -> ColumnKeys {
        ColumnKeys { of_numbers: true, ..ColumnKeys::new(column) }
    }

    /// The key of a categorical value. An empty text is a value too.
    #[inline(always)]
    pub fn categorical(&self, value: &[u8]) -> u64 {
        if self.of_numbers && value.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
            return self.of_decimal(value);
        }
        text_key(self.seed, value)
    }

    /// The key of a text that may be a number with a decimal point or an exponent, of which there are several texts.
    #[cold]
    fn of_decimal(&self, value: &[u8]) -> u64 {
        let text = std::str::from_utf8(value).ok();
        match text.and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite()) {
            Some(number) => text_key(self.seed, number.to_string().as_bytes()),
            None => text_key(self.seed, value),
        }
    }

    /// The [categorical](Self::categorical) key of the `length` bytes at `p`, in a buffer with 8 readable bytes after
    /// them.
    #[inline(always)]
    pub(crate) fn at(&self, buf: &[u8], p: usize, length: usize) -> u64 {
        text_key_at(self.seed, buf, p, length)
    }

    /// The key of a numeric column, whose feature's value is the number.
    pub fn numeric(&self) -> u64 {
        text_key(!self.seed, b"value")
    }

    /// The key of a missing number of the column. Its feature has value 1.
    pub fn missing(&self) -> u64 {
        text_key(!self.seed, b"missing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_have_one_key_in_a_column_of_numbers() {
        let (plain, numbers) = (ColumnKeys::new("a"), ColumnKeys::of_numbers("a"));
        for (text, as_text) in [
            ("5.0", "5"),
            ("5.00", "5"),
            ("-12.0", "-12"),
            ("0.0", "0"),
            ("0.50", "0.5"),
            (".5", "0.5"),
            ("1e-07", "0.0000001"),
            ("1E+20", "100000000000000000000"),
            ("1e20", "100000000000000000000"),
        ] {
            assert_eq!(numbers.categorical(text.as_bytes()), plain.categorical(as_text.as_bytes()), "{text}");
        }
        for text in ["5", "x.0", "1.5.0", "5.1", "", "1e3.0", "e", "1e400", "007", "-"] {
            assert_eq!(numbers.categorical(text.as_bytes()), plain.categorical(text.as_bytes()), "{text}");
        }
        assert_ne!(plain.categorical(b"5.0"), plain.categorical(b"5"));
    }

    /// Golden: a change here makes every saved CSV model predict nonsense.
    #[test]
    fn frozen_values() {
        let carrier = ColumnKeys::new("carrier");
        let seen = [
            text_key(0, b""),
            text_key(0, b"carrier"),
            text_key(7, b"exactly8exactly8!"),
            carrier.categorical(b"UA"),
            carrier.numeric(),
            carrier.missing(),
        ];
        assert_eq!(seen, FROZEN);
    }
    const FROZEN: [u64; 6] = [
        13369802524118334360,
        6600953826408457436,
        7824563418855675835,
        6339875604109709366,
        2555736424503905479,
        3127313014034788281,
    ];

    #[test]
    fn in_a_buffer_as_alone() {
        let buf: Vec<u8> = (0..200u8).map(|b| b.wrapping_mul(151)).collect();
        for (start, length) in (0..20).flat_map(|start| (0..100).map(move |length| (start, length))) {
            let text = &buf[start..start + length];
            assert_eq!(text_key_at(length as u64, &buf, start, length), text_key(length as u64, text));
        }
    }

    #[test]
    fn no_collisions_among_short_texts() {
        let mut seen = HashSet::new();
        for column in ["a", "b", "hour", "hour2"] {
            let keys = ColumnKeys::new(column);
            assert!(seen.insert(keys.numeric()) && seen.insert(keys.missing()));
            for v in 0..50_000u32 {
                assert!(seen.insert(keys.categorical(v.to_string().as_bytes())), "{column} {v}");
            }
            // The length distinguishes zero bytes from zero padding.
            for text in [&b""[..], b"\0", b"\0\0", b"\0\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\0\0"] {
                assert!(seen.insert(keys.categorical(text)), "{text:?}");
            }
        }
    }
}
