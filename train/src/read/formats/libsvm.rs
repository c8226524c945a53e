//! libsvm text: `label id:value id:value ...`, one example a line. A lone `id` means `id:1`, and `# ...` to the end
//! of the line is a comment. One pass, no copy of the line. Runs of common features are parsed in windows
//! (features.rs). `qid:N` behind the label, the group of a ranking file, is read over.
//!
//! A repeated id is kept each time. De-duplication adds up the values (batch/dedup.rs).

use crate::limits::FEATURES_PER_EXAMPLE_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::formats::features::{IdOrder, features};
use crate::read::formats::labels::Labels;
use crate::read::formats::number::{
    NotANumber, blank, digits, digits_value, float, load, short_float, unsigned,
};
use std::sync::Once;

/// The position where a line goes wrong, and what was expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LibsvmFault {
    /// Position in the buffer.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl LibsvmFault {
    /// The message for a line that begins at `p`, with this kind of labels.
    #[cold]
    pub fn from(self, buf: &[u8], p: usize, labels: Labels) -> String {
        let found = buf.get(self.at..).unwrap_or_default().split(|&b| blank(b)).next().unwrap_or_default();
        let more = labels.more(self.expected, found);
        format!("{}, at character {}{more}", self.expected, self.at.saturating_sub(p) + 1)
    }
}

const ID: &str = "expected id:value (id a whole number from 0)";
const ID_RANGE: &str = "expected an id of at most 18446744073709551614 (one more is the intercept's)";
const VALUE: &str = "expected a number after the colon";
const VALUE_RANGE: &str = "expected a finite number that fits f32";
const TOO_MANY: &str = "expected at most 262143 features";
const _: () = assert!(FEATURES_PER_EXAMPLE_MAX == 262_144);

/// How to read lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    /// Whether each example gets an intercept.
    pub intercept: bool,
    /// Whether a line may begin with its first feature. Its label is then NaN.
    pub unlabelled: bool,
    /// The kind of labels.
    pub labels: Labels,
}

/// The first position at or after `p` that is not a blank. The byte there is a newline or `#` when the line has no
/// example.
#[inline(always)]
pub(crate) fn text_at(buf: &[u8], mut p: usize) -> usize {
    while matches!(buf.get(p), Some(b' ' | b'\t' | b'\r')) {
        p += 1;
    }
    p
}

/// Whether the text at `p` (see [`text_at`]) is not an example: an empty line or a comment.
#[inline(always)]
pub(crate) fn nothing(buf: &[u8], p: usize) -> bool {
    matches!(buf.get(p), None | Some(b'\n' | b'#'))
}

/// The position after the newline that ends the line of `p`.
#[inline(always)]
pub(crate) fn next_line(buf: &[u8], p: usize) -> usize {
    const STEP: usize = 32;
    let mut at = p;
    // One vector comparison finds whether a whole step has a newline.
    while let Some(step) = buf.get(at..).and_then(|b| b.first_chunk::<STEP>()) {
        if step.iter().fold(false, |any, &b| any | (b == b'\n')) {
            break;
        }
        at += STEP;
    }
    let rest = buf.get(at..).unwrap_or_default();
    at + rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |n| n + 1)
}

/// Appends the example whose text begins at `p` and returns the start of the next line. `buf` has a newline at or
/// after `p`, and 16 readable bytes after that.
///
/// # Errors
/// The block may then have features of the line: [`Block::undo`] removes them.
#[inline(always)]
pub(crate) fn example(buf: &[u8], p: usize, lines: Lines, block: &mut Block) -> Result<usize, LibsvmFault> {
    let (label, mut p) = label(buf, p, lines)?;
    if lines.intercept {
        block.keys.push(INTERCEPT_KEY);
        block.values.push(1.0);
    }
    let start = block.keys.len();
    let mut order = IdOrder::new();
    loop {
        p += usize::from(byte(buf, p) == b' ');
        p = features(buf, p, &mut order, block);
        let mut b = byte(buf, p);
        while b == b' ' || b == b'\t' {
            p += 1;
            b = byte(buf, p);
        }
        let (key, end) = match unsigned(buf, p) {
            Ok((key, end)) if key != INTERCEPT_KEY => (key, end),
            Err(NotANumber::Missing) => match b {
                b'\n' => break p += 1,
                b'#' => break p = next_line(buf, p),
                b'\r' => {
                    p += 1;
                    continue;
                }
                b'q' if block.keys.len() == start => {
                    p = group(buf, p)?;
                    continue;
                }
                _ => return Err(LibsvmFault { at: p, expected: ID }),
            },
            _ => return Err(LibsvmFault { at: p, expected: ID_RANGE }),
        };
        let after = byte(buf, end);
        let value;
        (value, p) = if after == b':' {
            feature_value(buf, end + 1)?
        } else if blank(after) {
            (1.0, end)
        } else {
            return Err(LibsvmFault { at: end, expected: ID });
        };
        order.add(key);
        block.keys.push(key);
        block.values.push(value);
    }
    block.may_repeat |= !order.ascending;
    if block.keys.len() - start >= FEATURES_PER_EXAMPLE_MAX {
        return Err(LibsvmFault { at: p - 1, expected: TOO_MANY });
    }
    block.end(label);
    Ok(p)
}

/// Reads over the group at `p`. Returns the position behind it.
#[cold]
fn group(buf: &[u8], p: usize) -> Result<usize, LibsvmFault> {
    static NOTE: Once = Once::new();
    let rest = buf.get(p..).unwrap_or_default();
    let number = rest.strip_prefix(b"qid:").map(|_| unsigned(buf, p + 4));
    match number {
        Some(Ok((_, end))) if blank(byte(buf, end)) => {
            NOTE.call_once(|| tracing::warn!("qid: is read over: groups of ranking files are not learned"));
            Ok(end)
        }
        _ => Err(LibsvmFault { at: p, expected: ID }),
    }
}

/// Parses a feature in the most common form, if one begins at `p`: an id of at most 7 digits, a colon, a value that
/// [`short_float`] can parse, one space. Returns the feature and the position after the space.
#[inline(always)]
pub(crate) fn short(buf: &[u8], p: usize) -> Option<(u64, f32, usize)> {
    const ONE: u64 = u64::from_le_bytes(*b":1 \0\0\0\0\0");
    let window = buf.get(p..)?.first_chunk::<16>()?;
    let id = u64::from_le_bytes(*window.first_chunk()?);
    let n = digits(id);
    if n == 0 || n == 8 {
        return None;
    }
    let rest = u64::from_le_bytes(*window[n as usize..].first_chunk()?);
    let (value, length) = if rest & 0xff_ffff == ONE {
        (1.0, 2)
    } else if rest as u8 == b':' {
        let (value, length) = short_float(load(buf, p + n as usize + 1))?;
        (value, length + 1)
    } else {
        return None;
    };
    Some((digits_value(id, n), value, p + (n + length) as usize + 1))
}

#[inline(always)]
fn byte(buf: &[u8], p: usize) -> u8 {
    buf.get(p).copied().unwrap_or(b'\n')
}

#[inline(always)]
pub(crate) fn feature_value(buf: &[u8], p: usize) -> Result<(f32, usize), LibsvmFault> {
    if byte(buf, p) == b'1' && blank(byte(buf, p + 1)) {
        return Ok((1.0, p + 1));
    }
    match float(buf, p) {
        Ok((value, end)) => Ok((value, end)),
        Err(NotANumber::Missing) => Err(LibsvmFault { at: p, expected: VALUE }),
        Err(NotANumber::Range) => Err(LibsvmFault { at: p, expected: VALUE_RANGE }),
    }
}

#[inline(always)]
pub(crate) fn label(buf: &[u8], p: usize, lines: Lines) -> Result<(f32, usize), LibsvmFault> {
    let first = byte(buf, p);
    let signed = first == b'-' || first == b'+';
    let end = p + usize::from(signed) + 1;
    let digit = byte(buf, end - 1);
    if lines.labels == Labels::Signs && blank(byte(buf, end)) {
        match (first, digit) {
            (b'-', b'1') => return Ok((-0.0, end)),
            (b'0', _) => return Ok((0.0, end)),
            (b'+' | b'1', b'1') => return Ok((1.0, end)),
            _ => {}
        }
    }
    if lines.unlabelled && matches!(unsigned(buf, p), Ok((_, end)) if byte(buf, end) == b':') {
        return Ok((f32::NAN, p));
    }
    any_label(buf, p, lines.labels)
}

/// Parses the label from `p` up to a blank.
#[inline(never)]
fn any_label(buf: &[u8], p: usize, labels: Labels) -> Result<(f32, usize), LibsvmFault> {
    let rest = buf.get(p..).unwrap_or_default();
    let text = rest.split(|&b| blank(b)).next().unwrap_or_default();
    match labels.parse(text) {
        Ok(label) => Ok((label, p + text.len())),
        Err(expected) => Err(LibsvmFault { at: p, expected }),
    }
}
