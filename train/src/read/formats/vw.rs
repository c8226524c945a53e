//! Vowpal Wabbit text: `label [importance [base]] ['tag]|namespace[:scale] name[:value] ...`, any number of
//! namespaces a line. Labels are -1, 0 or 1; the importance multiplies the gradient, as in `vw --ftrl`. The base is
//! added to the margin.
//!
//! Keys: in the namespace without a name, a name that is a number (from 0 to 2^64 - 2) is its own key, as in libsvm.
//! Every other name is hashed under its namespace's name. Numbers are not taken modulo 2^b: there is no `-b`. A
//! repeated name is kept each time. De-duplication adds up the values (batch/dedup.rs).

use crate::limits::FEATURES_PER_EXAMPLE_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::fields::example_fields::ExampleFields;
use crate::read::fields::field::FieldId;
use crate::read::formats::labels::Labels;
use crate::read::formats::libsvm::{LibsvmFault, next_line, short};
use crate::read::formats::number::{
    NotANumber, blank, digits, digits_value, float, load, parse_float, unsigned,
};
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::text_key::{text_key, text_key_at};
use std::sync::atomic::{AtomicBool, Ordering};

const LABEL: &str = "expected a label -1, 0 or 1 and a blank (what touches the | is a tag)";
const BAR: &str = "expected a | before the features";
const BANDIT: &str =
    "expected one label -1, 0 or 1; contextual-bandit and cost-sensitive labels (a:b:c) are not learned";
const SHARED: &str =
    "expected one label -1, 0 or 1; examples of several lines (shared, ccb, slates) are not learned";
const LABELS: &str = "expected one label -1, 0 or 1, not several";
const IMPORTANCE: &str = "expected an importance: a finite number that is not negative";
const BASE: &str = "expected a base that is a finite number";
const NO_BASE: &str = "expected no base: an example of several classes has several margins";
const HEAD: &str = "expected at most a label, an importance, a base and a 'tag before the |";
const NAME: &str = "expected a name before the colon";
const CONTROL: &str = "expected a name without control characters";
const VALUE: &str = "expected a number after the colon";
const VALUE_RANGE: &str = "expected a finite number that fits f32";
const TOO_MANY: &str = "expected at most 262143 features";
const _: () = assert!(FEATURES_PER_EXAMPLE_MAX == 262_144);

/// Reads lines of the format.
#[derive(Clone)]
pub(crate) struct Vw {
    intercept: bool,
    unlabelled: bool,
    pub labels: Labels,
    /// The seed of the namespace without a name.
    seed: u64,
    fields: ExampleFields,
    repeats: RepeatedKeys,
}

impl Vw {
    pub fn new(intercept: bool, unlabelled: bool, labels: Labels, fields: ExampleFields) -> Vw {
        Vw { intercept, unlabelled, labels, seed: text_key(0, b""), fields, repeats: RepeatedKeys::default() }
    }

    /// Appends the example whose text begins at `p` and returns the start of the next line. `buf` has a newline at or
    /// after `p`, and 16 readable bytes after that.
    ///
    /// # Errors
    /// The block may then have features of the line: [`Block::undo`] removes them.
    #[inline(always)]
    pub fn example(&mut self, buf: &[u8], p: usize, block: &mut Block) -> Result<usize, LibsvmFault> {
        let LineHead { label, importance, base, bar } = head(buf, p, self.labels)?;
        if label.is_nan() && !self.unlabelled {
            note_unlabelled();
            return Ok(next_line(buf, bar));
        }
        if self.intercept {
            block.keys.push(INTERCEPT_KEY);
            block.values.push(1.0);
        }
        let start = block.keys.len();
        let mut p = bar;
        // Ascending numbers in one namespace cannot repeat.
        let mut ascending = true;
        self.fields.undo();
        while byte(buf, p) == b'|' {
            let namespace = if ends_name(byte(buf, p + 1)) && byte(buf, p + 1) != b':' {
                p += 1;
                ascending &= block.keys.len() == start;
                let numbers;
                (p, numbers) = plain_features(buf, p, block)?;
                ascending &= numbers;
                let field = FieldId { id: self.seed, letter: b' ' };
                if matches!(byte(buf, p), b'\n' | b'|') {
                    self.fields.add(field, block);
                    continue;
                }
                Namespace { field, scale: 1.0, numbers: true }
            } else {
                let (namespace, end) = namespace(buf, p + 1)?;
                p = end;
                namespace
            };
            ascending = false;
            p = features(buf, p, namespace, block)?;
            self.fields.add(namespace.field, block);
        }
        self.fields.end(block, start).map_err(|expected| LibsvmFault { at: p, expected })?;
        if block.keys.len() - start >= FEATURES_PER_EXAMPLE_MAX {
            return Err(LibsvmFault { at: p, expected: TOO_MANY });
        }
        if !ascending {
            block.may_repeat |= self.repeats.any(&block.keys[start..]);
        }
        block.end_with(label, importance, base);
        Ok(p + 1)
    }
}

/// The text before the features, and the position of the first bar.
struct LineHead {
    label: f32,
    importance: f32,
    /// The margin without features.
    base: f32,
    bar: usize,
}

#[inline(always)]
fn head(buf: &[u8], p: usize, labels: Labels) -> Result<LineHead, LibsvmFault> {
    // The common case: a label, a space, a bar.
    let signed = usize::from(matches!(byte(buf, p), b'-' | b'+'));
    let short = byte(buf, p + signed + 1) == b' ' && byte(buf, p + signed + 2) == b'|';
    if short && labels == Labels::Signs {
        let label = match (byte(buf, p), byte(buf, p + signed)) {
            (b'-', b'1') => Some(-0.0),
            (b'0', _) => Some(0.0),
            (_, b'1') => Some(1.0),
            _ => None,
        };
        if let Some(label) = label {
            return Ok(LineHead { label, importance: 1.0, base: 0.0, bar: p + signed + 2 });
        }
    }
    any_head(buf, p, labels)
}

#[inline(never)]
fn any_head(buf: &[u8], p: usize, labels: Labels) -> Result<LineHead, LibsvmFault> {
    let rest = buf.get(p..).unwrap_or_default();
    let end = rest.iter().position(|&b| b == b'|' || b == b'\n').unwrap_or(rest.len());
    if rest.get(end) != Some(&b'|') {
        return Err(LibsvmFault { at: p + end, expected: BAR });
    }
    let text = &rest[..end];
    let mut tokens: Vec<&[u8]> = text.split(|&b| blank(b)).filter(|t| !t.is_empty()).collect();
    // Every token is a slice of the text, so its address gives its position.
    let at = |token: &[u8]| p + token.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    let touches = text.last().is_some_and(|&b| !blank(b));
    if tokens.last().is_some_and(|t| touches || t.starts_with(b"'")) {
        tokens.pop();
    }
    let fault = |token: &[u8], expected| Err(LibsvmFault { at: at(token), expected });
    let label = match tokens.first() {
        None => f32::NAN,
        Some(&t) if t.contains(&b':') => return fault(t, BANDIT),
        Some(&t) if t.contains(&b',') => return fault(t, LABELS),
        Some(&t) if [&b"shared"[..], b"ccb", b"slates"].contains(&t) => return fault(t, SHARED),
        Some(&t) => match labels.parse(t) {
            Ok(label) => label,
            Err(_) if labels == Labels::Signs => return fault(t, LABEL),
            Err(expected) => return fault(t, expected),
        },
    };
    let importance = match tokens.get(1).map(|t| (t, parse_float(t))) {
        None => 1.0,
        Some((_, Ok(importance))) if importance >= 0.0 => importance,
        Some((t, _)) => return fault(t, IMPORTANCE),
    };
    let base = match tokens.get(2).map(|t| (t, parse_float(t))) {
        None => 0.0,
        Some((_, Ok(0.0))) => 0.0,
        Some((t, Ok(_))) if matches!(labels, Labels::Classes(_)) => return fault(t, NO_BASE),
        Some((_, Ok(base))) => base,
        Some((t, Err(_))) => return fault(t, BASE),
    };
    match tokens.get(3) {
        Some(t) => fault(t, HEAD),
        None => Ok(LineHead { label, importance, base, bar: p + end }),
    }
}

#[derive(Clone, Copy)]
struct Namespace {
    field: FieldId,
    scale: f32,
    /// Whether names that are numbers are their own keys.
    numbers: bool,
}

/// Parses the namespace whose name begins at `p`. Returns it and the position after it.
#[inline(always)]
fn namespace(buf: &[u8], p: usize) -> Result<(Namespace, usize), LibsvmFault> {
    let end = name_end(buf, p);
    if end == p {
        return Err(LibsvmFault { at: p, expected: if byte(buf, p) == b':' { NAME } else { CONTROL } });
    }
    let field = FieldId { id: text_key_at(0, buf, p, end - p), letter: byte(buf, p) };
    let (scale, p) = value_after(buf, end)?;
    Ok((Namespace { field, scale, numbers: false }, p))
}

/// Parses features from `p` on, as long as they are numbers of the namespace without a name in the most common form.
/// Returns the position of the first other text, and whether the numbers ascend.
#[inline(always)]
fn plain_features(buf: &[u8], mut p: usize, block: &mut Block) -> Result<(usize, bool), LibsvmFault> {
    let (mut least, mut ascending) = (0, true);
    loop {
        p += usize::from(byte(buf, p) == b' ');
        let id = load(buf, p);
        let n = digits(id);
        let (key, value);
        if n.wrapping_sub(1) < 7 && blank(byte(buf, p + n as usize)) {
            (key, value, p) = (digits_value(id, n), 1.0, p + n as usize);
        } else if let Some((id, v, next)) = short(buf, p) {
            (key, value, p) = (id, v, next);
        } else {
            return Ok((p, ascending));
        }
        ascending &= key >= least;
        least = key + 1;
        block.keys.push(key);
        block.values.push(value);
    }
}

/// Parses the features of a namespace from `p` on. Returns the position of the next bar or newline.
#[inline(always)]
fn features(buf: &[u8], mut p: usize, namespace: Namespace, block: &mut Block) -> Result<usize, LibsvmFault> {
    loop {
        let mut b = byte(buf, p);
        while matches!(b, b' ' | b'\t' | b'\r') {
            p += 1;
            b = byte(buf, p);
        }
        let key;
        let end = match b {
            b'\n' | b'|' => return Ok(p),
            b':' => return Err(LibsvmFault { at: p, expected: NAME }),
            _ => match namespace.numbers.then(|| unsigned(buf, p)) {
                Some(Ok((number, end))) if number != INTERCEPT_KEY && ends_name(byte(buf, end)) => {
                    key = number;
                    end
                }
                _ => {
                    let end = name_end(buf, p);
                    if end == p {
                        return Err(LibsvmFault { at: p, expected: CONTROL });
                    }
                    key = text_key_at(namespace.field.id, buf, p, end - p);
                    end
                }
            },
        };
        let (key, value, next) = match value_after(buf, end) {
            Ok((value, next)) => (key, value, next),
            Err(fault) => text_value(buf, key, fault)?,
        };
        p = next;
        let scaled = value * namespace.scale;
        if !scaled.is_finite() {
            return Err(LibsvmFault { at: end, expected: VALUE_RANGE });
        }
        block.keys.push(key);
        block.values.push(scaled);
    }
}

/// Parses the number after the name that ends at `end`, 1 without a colon. Returns it and the position after it.
#[inline(always)]
fn value_after(buf: &[u8], end: usize) -> Result<(f32, usize), LibsvmFault> {
    match byte(buf, end) {
        b':' => {}
        b if ends_name(b) => return Ok((1.0, end)),
        _ => return Err(LibsvmFault { at: end, expected: CONTROL }),
    }
    let p = end + 1;
    match float(buf, p) {
        Ok(found) => Ok(found),
        Err(_) => odd_value(buf, p),
    }
}

/// Parses a number that a bar ends, or returns the error.
#[inline(never)]
fn odd_value(buf: &[u8], p: usize) -> Result<(f32, usize), LibsvmFault> {
    let rest = buf.get(p..).unwrap_or_default();
    let n = rest.iter().position(|&b| blank(b) || b == b'|').unwrap_or(rest.len());
    match parse_float(&rest[..n]) {
        Ok(value) => Ok((value, p + n)),
        Err(NotANumber::Missing) => Err(LibsvmFault { at: p, expected: VALUE }),
        Err(NotANumber::Range) => Err(LibsvmFault { at: p, expected: VALUE_RANGE }),
    }
}

/// The key, the value and the end of a feature `name:text` of value 1. As in vw, the text is hashed under the key of
/// the name. `fault` is what is wrong with the text as a number.
#[cold]
fn text_value(buf: &[u8], key: u64, fault: LibsvmFault) -> Result<(u64, f32, usize), LibsvmFault> {
    let LibsvmFault { at, expected } = fault;
    let end = name_end(buf, at);
    if expected != VALUE || end == at || !(blank(byte(buf, end)) || byte(buf, end) == b'|') {
        return Err(fault);
    }
    Ok((text_key_at(key, buf, at, end - at), 1.0, end))
}

/// Says once that a training reads over lines without a label.
#[cold]
pub(crate) fn note_unlabelled() {
    static NOTED: AtomicBool = AtomicBool::new(false);
    if !NOTED.swap(true, Ordering::Relaxed) {
        tracing::warn!("lines of vw without a label are read over; `gannet predict` scores them");
    }
}

/// Whether a byte may end a name.
#[inline(always)]
fn ends_name(b: u8) -> bool {
    blank(b) || b == b':' || b == b'|'
}

/// The end of the name that begins at `p`: the first blank or control byte, colon or bar.
#[inline(always)]
fn name_end(buf: &[u8], mut p: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    loop {
        let c = load(buf, p);
        let below = |c: u64, n: u64| c.wrapping_sub(ONES * n) & !c;
        let (colon, bar) = (c ^ (ONES * b':' as u64), c ^ (ONES * b'|' as u64));
        // The lowest set bit is correct. Higher ones may not be.
        let ends = (below(c, 0x21) | below(colon, 1) | below(bar, 1)) & (ONES << 7);
        if ends != 0 {
            return p + (ends.trailing_zeros() >> 3) as usize;
        }
        p += 8;
    }
}

#[inline(always)]
fn byte(buf: &[u8], p: usize) -> u8 {
    buf.get(p).copied().unwrap_or(b'\n')
}

/// Whether a file's first line is an example of this format: it parses, and begins like one (`a|b` has no label).
pub(crate) fn like(buf: &[u8], p: usize) -> bool {
    matches!(byte(buf, p), b'0'..=b'9' | b'-' | b'+' | b'|' | b'\'')
        && Vw::new(false, true, Labels::Signs, ExampleFields::default())
            .example(buf, p, &mut Block::default())
            .is_ok()
}
