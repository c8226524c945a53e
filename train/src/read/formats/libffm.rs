//! libffm text: `label field:id:value field:id:value ...`, one example a line. Ids count over all fields, as in
//! libffm: a feature's key is its id, as in libsvm. `# ...` to the end of the line is a comment.

use crate::limits::FEATURES_PER_EXAMPLE_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::fields::example_fields::ExampleFields;
use crate::read::fields::field::FieldId;
use crate::read::formats::libsvm::{LibsvmFault, Lines, feature_value, label, next_line};
use crate::read::formats::number::{blank, unsigned};
use crate::read::formats::repeated_keys::RepeatedKeys;

const FIELD: &str = "expected field:id:value (field and id are whole numbers from 0)";
const FIELD_MAX: &str = "expected a field of at most 65535";
const TOO_MANY: &str = "expected at most 262143 features";
const _: () = assert!(FEATURES_PER_EXAMPLE_MAX == 262_144);

/// Reads lines of the format.
#[derive(Clone, Debug)]
pub(crate) struct Libffm {
    pub lines: Lines,
    fields: ExampleFields,
    /// The fields by their numbers, as far as they are known.
    known: Vec<FieldId>,
    repeats: RepeatedKeys,
}

impl Libffm {
    pub fn new(lines: Lines, fields: ExampleFields) -> Libffm {
        Libffm { lines, fields, known: Vec::new(), repeats: RepeatedKeys::default() }
    }

    /// The field of this number, whose name is the number.
    fn field(&mut self, number: u64) -> FieldId {
        let from = self.known.len() as u64;
        self.known.extend((from..=number).map(|number| FieldId::of(number.to_string().as_bytes())));
        self.known[number as usize]
    }

    /// Appends the example whose text begins at `p` and returns the start of the next line. `buf` has a newline at or
    /// after `p`, and 16 readable bytes after that.
    ///
    /// # Errors
    /// The block may then have features of the line: [`Block::undo`] removes them.
    pub fn example(&mut self, buf: &[u8], p: usize, block: &mut Block) -> Result<usize, LibsvmFault> {
        let (label, mut p) = label(buf, p, self.lines)?;
        if self.lines.intercept {
            block.keys.push(INTERCEPT_KEY);
            block.values.push(1.0);
        }
        let start = block.keys.len();
        self.fields.undo();
        loop {
            while matches!(byte(buf, p), b' ' | b'\t' | b'\r') {
                p += 1;
            }
            match byte(buf, p) {
                b'\n' => break p += 1,
                b'#' => break p = next_line(buf, p),
                _ => {}
            }
            let (field, colon) = number(buf, p)?;
            if field > u64::from(u16::MAX) {
                return Err(LibsvmFault { at: p, expected: FIELD_MAX });
            }
            let (key, end) = number(buf, colon + 1)?;
            let (value, end) = feature_value(buf, end + 1)?;
            if key == INTERCEPT_KEY || !blank(byte(buf, end)) {
                return Err(LibsvmFault { at: p, expected: FIELD });
            }
            p = end;
            block.keys.push(key);
            block.values.push(value);
            if self.fields.is_used() {
                let field = self.field(field);
                self.fields.add(field, block);
            }
        }
        self.fields.end(block, start).map_err(|expected| LibsvmFault { at: p - 1, expected })?;
        block.may_repeat |= self.repeats.any(&block.keys[start..]);
        if block.keys.len() - start >= FEATURES_PER_EXAMPLE_MAX {
            return Err(LibsvmFault { at: p - 1, expected: TOO_MANY });
        }
        block.end(label);
        Ok(p)
    }
}

/// Whether a line, without blanks before it, is one of this format: its first feature has two colons.
pub(crate) fn is_like(line: &[u8]) -> bool {
    let mut tokens = line.split(|&b| blank(b)).filter(|token| !token.is_empty());
    let is_feature = |token: &[u8]| {
        let mut parts = token.split(|&b| b == b':');
        let whole = |part: Option<&[u8]>| {
            part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
        };
        whole(parts.next())
            && whole(parts.next())
            && parts.next().is_some_and(|value| !value.is_empty())
            && parts.next().is_none()
    };
    match tokens.next() {
        // Without a label the line begins with a feature.
        Some(first) => is_feature(first) || tokens.next().is_some_and(is_feature),
        None => false,
    }
}

/// The number at `p`, and the position of the colon behind it.
fn number(buf: &[u8], p: usize) -> Result<(u64, usize), LibsvmFault> {
    match unsigned(buf, p) {
        Ok((number, end)) if byte(buf, end) == b':' => Ok((number, end)),
        _ => Err(LibsvmFault { at: p, expected: FIELD }),
    }
}

fn byte(buf: &[u8], p: usize) -> u8 {
    buf.get(p).copied().unwrap_or(b'\n')
}
