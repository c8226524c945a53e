//! What a label may be: a click or none, one of two values, a number, or a class.

use crate::read::number::parse_float;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the labels of examples are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// 1 for a click; 0, or else -1, for none: they become 1 and 0. A file has 0 or -1, not both.
    #[default]
    Signs,
    /// One of two values, whatever they are; they become 1 and 0.
    Two(TwoLabels),
    /// Any finite number.
    Numbers,
    /// A class: a whole number from 0 to one below this.
    Classes(u32),
}

/// Two values that labels have: the one that stands for 1, and the other one, which is the first that is seen. Copies
/// have both in common.
#[derive(Clone, Copy)]
pub struct TwoLabels(&'static Values);

struct Values {
    positive: Box<str>,
    other: OnceLock<Other>,
    /// A label was the positive one.
    occurred: AtomicBool,
}

/// The value that stands for 0.
#[derive(PartialEq, Eq)]
struct Other {
    text: Box<[u8]>,
    /// It was said, not seen.
    told: bool,
}

impl PartialEq for TwoLabels {
    fn eq(&self, other: &TwoLabels) -> bool {
        self.positive() == other.positive() && self.0.other == other.0.other
    }
}

impl Eq for TwoLabels {}

impl fmt::Debug for TwoLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} and {:?}", self.positive(), self.other())
    }
}

impl TwoLabels {
    /// Of these values. They are kept as long as the process lives, since every reader of its data shares them: to
    /// be made once.
    pub fn new(positive: &str, other: Option<&str>) -> TwoLabels {
        let values =
            Values { positive: positive.into(), other: OnceLock::new(), occurred: AtomicBool::new(false) };
        let two = TwoLabels(Box::leak(Box::new(values)));
        other.into_iter().for_each(|other| two.settle(other));
        two
    }

    /// The value that stands for 0 is this one, unless there was another.
    pub fn settle(self, other: &str) {
        self.0.other.get_or_init(|| Other { text: other.as_bytes().into(), told: true });
    }

    /// The value that stands for 1.
    pub fn positive(self) -> &'static str {
        &self.0.positive
    }

    /// The value that stands for 0, once there was one.
    pub fn other(self) -> Option<String> {
        self.0.other.get().map(|other| String::from_utf8_lossy(&other.text).into_owned())
    }

    /// Whether a label was the value that stands for 1.
    pub fn positive_occurred(self) -> bool {
        self.0.occurred.load(Relaxed)
    }

    fn parse(self, text: &[u8]) -> Result<f32, &'static str> {
        if same(text, self.0.positive.as_bytes()) {
            if !self.positive_occurred() {
                self.0.occurred.store(true, Relaxed);
            }
            return Ok(1.0);
        }
        if is_missing(text) {
            return Err(MISSING);
        }
        // What stands in another file's first field is no label.
        if text.contains(&b',') {
            return Err(NOT_OF_TWO);
        }
        let other = self.0.other.get_or_init(|| Other { text: text.into(), told: false });
        if same(text, &other.text) { Ok(0.0) } else { Err(NOT_OF_TWO) }
    }

    /// What there is to say of a label that is neither.
    fn neither(self, found: &str) -> String {
        let positive = self.positive();
        let Some(other) = self.other() else { return format!("found {found:?}") };
        if self.positive_occurred() || self.0.other.get().is_some_and(|other| other.told) {
            return format!("found a third, {found:?}, beside {positive:?} (--positive) and {other:?}");
        }
        let meant = [other.as_str(), found].into_iter().find(|seen| seen.eq_ignore_ascii_case(positive));
        let meant = meant.map_or("VALUE".to_owned(), shell);
        format!(
            "{positive:?} (--positive) does not occur before this line: the labels seen are {other:?} and {found:?}; \
             say which value means 1 with --positive {meant}"
        )
    }
}

/// Whether two texts are one value: the same text, or the same number.
fn same(a: &[u8], b: &[u8]) -> bool {
    a == b || matches!((parse_float(a), parse_float(b)), (Ok(a), Ok(b)) if a == b)
}

/// Whether there is no label, as there is no number in a feature like this.
fn is_missing(text: &[u8]) -> bool {
    text.is_empty() || text == b"NA"
}

/// What was expected, where there may have been nothing.
fn unless_missing(text: &[u8], expected: &'static str) -> &'static str {
    if is_missing(text) { MISSING } else { expected }
}

const MISSING: &str = "expected a label";
const NOT_A_SIGN: &str = "expected a label 0, 1, +1 or -1";
const NOT_OF_TWO: &str = "expected one of two labels";

impl Labels {
    /// The label that `text` says, without blanks around it. A -1 that stands for 0 is the float -0, so that a reader
    /// can tell it from 0.
    ///
    /// # Errors
    /// What was expected; [`Labels::more`] says more.
    #[inline]
    pub(crate) fn parse(self, text: &[u8]) -> Result<f32, &'static str> {
        match self {
            Labels::Signs => match text {
                b"1" | b"+1" => Ok(1.0),
                b"0" => Ok(0.0),
                b"-1" => Ok(-0.0),
                _ => sign(text),
            },
            Labels::Two(two) => two.parse(text),
            Labels::Numbers => {
                parse_float(text).map_err(|_| unless_missing(text, "expected a finite number as the label"))
            }
            Labels::Classes(classes) => {
                let class = parse_float(text).ok();
                let class = class.filter(|c| c.fract() == 0.0 && (0.0..classes as f32).contains(c));
                class.ok_or_else(|| {
                    unless_missing(
                        text,
                        "expected a class as the label: a whole number from 0 and below --classes",
                    )
                })
            }
        }
    }

    /// Whether a text that stands where a column's name is expected is a label.
    pub(crate) fn are_like(self, text: &str) -> bool {
        match self {
            Labels::Two(two) => same(text.as_bytes(), two.0.positive.as_bytes()),
            labels => labels.parse(text.as_bytes()).is_ok(),
        }
    }

    /// What there is to say of what [`parse`](Self::parse) found, behind what it expected.
    #[cold]
    pub(crate) fn more(self, expected: &str, found: &[u8]) -> String {
        let missing = !found.is_empty() && is_missing(found);
        let found = String::from_utf8_lossy(found);
        match self {
            _ if missing && expected.starts_with(MISSING) => {
                format!("; found {found:?}: the line has no label")
            }
            // Of every format, where a label stands.
            Labels::Signs if expected.starts_with("expected a label ") && !found.starts_with(['|', '\'']) => {
                format!("; found {found:?}: {}", which_is_positive(&found))
            }
            Labels::Two(two) if expected == NOT_OF_TWO => format!("; {}", two.neither(&found)),
            _ => String::new(),
        }
    }

    /// What is wrong where [`parse`](Self::parse) found no label in a column of a CSV file; `as_first`: nobody said
    /// that it is the label's, and it is the first.
    #[cold]
    pub(crate) fn wrong_in(self, column: &str, expected: &str, found: &[u8], as_first: bool) -> String {
        let text = String::from_utf8_lossy(found);
        let what = match self {
            _ if found.is_empty() => format!("column {column:?} is empty: the line has no label"),
            _ if is_missing(found) => format!("column {column:?} has {text:?}: the line has no label"),
            Labels::Signs => {
                let remedy = which_is_positive(&text);
                format!("column {column:?} has {text:?}, which is not 0, 1 or -1: {remedy}")
            }
            Labels::Two(two) => format!("{expected}, in column {column:?}: {}", two.neither(&text)),
            _ => format!("{expected}, in column {column:?}"),
        };
        match as_first {
            true => format!(
                "--label names no column, so the first is taken for the label (--label COLUMN names another): {what}"
            ),
            false => what,
        }
    }
}

/// 1.0, 0.0 and the like.
#[inline(never)]
fn sign(text: &[u8]) -> Result<f32, &'static str> {
    match parse_float(text) {
        Ok(1.0) => Ok(1.0),
        Ok(0.0) if !text.starts_with(b"-") => Ok(0.0),
        Ok(-1.0) => Ok(-0.0),
        _ => Err(unless_missing(text, NOT_A_SIGN)),
    }
}

/// The remedy where a label is another value than 0, 1 and -1.
fn which_is_positive(found: &str) -> String {
    let positive = positive_of(found).map_or("VALUE".to_owned(), |value| shell(&value));
    format!("say which value means 1 with --positive {positive}")
}

/// The value that is probably the positive one where there is this one.
fn positive_of(found: &str) -> Option<String> {
    const PAIRS: [(&str, &str); 8] = [
        ("yes", "no"),
        ("true", "false"),
        ("y", "n"),
        ("t", "f"),
        ("positive", "negative"),
        ("pos", "neg"),
        ("on", "off"),
        ("2", "1"),
    ];
    let lower = found.to_lowercase();
    let (positive, _) = PAIRS.into_iter().find(|&(yes, no)| lower == yes || lower == no)?;
    if lower == positive {
        return Some(found.to_owned());
    }
    // In the case of the other.
    let capital = found.starts_with(char::is_uppercase);
    Some(match found.len() > 1 && found == found.to_uppercase() {
        true => positive.to_uppercase(),
        false if capital => positive[..1].to_uppercase() + &positive[1..],
        false => positive.to_owned(),
    })
}

/// A value as a shell wants it.
fn shell(value: &str) -> String {
    if value.contains(char::is_whitespace) { format!("{value:?}") } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_labels_are() {
        let (signs, numbers, classes) = (Labels::Signs, Labels::Numbers, Labels::Classes(10));
        let sign = |t: &str| signs.parse(t.as_bytes()).unwrap();
        assert_eq!(["0", "-1", "1", "+1"].map(sign), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(["0.0", "-1.0", "1.0", "+1.00", "1e0"].map(sign), [0.0, 0.0, 1.0, 1.0, 1.0]);
        assert_eq!(
            ["0", "-1", "-1.0", "0.0"].map(|t| sign(t).is_sign_negative()),
            [false, true, true, false]
        );
        assert_eq!(
            ["0", "-1", "3.5", "1e3"].map(|t| numbers.parse(t.as_bytes()).unwrap()),
            [0.0, -1.0, 3.5, 1e3]
        );
        assert_eq!(["0", "9", "9.0"].map(|t| classes.parse(t.as_bytes()).unwrap()), [0.0, 9.0, 9.0]);
        for (labels, bad) in [
            (signs, &["", "2", "x", "-0", "-0.0", "nan", "0.5"][..]),
            (numbers, &["", "x", "inf", "nan", "1e99", "1 2"]),
            (classes, &["", "10", "-1", "1.5", "x", "nan"]),
        ] {
            bad.iter().for_each(|t| assert!(labels.parse(t.as_bytes()).is_err(), "{labels:?} {t}"));
        }
    }

    #[test]
    fn two_values_and_no_third() {
        let two = TwoLabels::new("2", None);
        let labels = Labels::Two(two);
        assert_eq!(
            ["2", "2.0", "1", "1.0", "2"].map(|t| labels.parse(t.as_bytes())),
            [1, 1, 0, 0, 1].map(|x| Ok(x as f32))
        );
        assert_eq!(two.other().as_deref(), Some("1"));
        let third = labels.parse(b"3").unwrap_err();
        let why = labels.more(third, b"3");
        assert!(["\"2\"", "\"1\"", "\"3\""].iter().all(|value| why.contains(value)), "{why}");
        assert!(labels.parse(b"").is_err());
        for missing in [&b""[..], b"NA"] {
            assert_eq!(labels.parse(missing), Err(MISSING), "it is never a class");
        }
        let told = Labels::Two(TwoLabels::new("yes", Some("no")));
        assert!(told.parse(b"maybe").is_err() && told.parse(b"no") == Ok(0.0));
    }

    #[test]
    fn the_positive_value_is_guessed_by_its_other() {
        for (found, positive) in
            [("yes", "yes"), ("no", "yes"), ("No", "Yes"), ("FALSE", "TRUE"), ("N", "Y"), ("2", "2")]
        {
            assert_eq!(positive_of(found).as_deref(), Some(positive), "{found}");
        }
        assert_eq!(positive_of("red"), None);
    }
}
