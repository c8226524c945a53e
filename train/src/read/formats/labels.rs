//! The allowed labels: click or no click, one of two values, a number, or a class.

use crate::read::formats::columns::is_missing;
use crate::read::formats::number::parse_float;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The kind of labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// 1 for a click, and 0 or -1 for no click: they become 1 and 0. A file has 0 or -1, not both.
    #[default]
    Signs,
    /// One of two values, which become 1 and 0.
    Two(TwoLabels),
    /// Any finite number.
    Numbers,
    /// A finite number from 0.
    Counts,
    /// A class: a whole number from 0 to one below this.
    Classes(u32),
}

/// Two values of labels: the one that means 1, and the other one. Unless it is set, the other one is the first other
/// value that is read. Copies share both values.
#[derive(Clone, Copy)]
pub struct TwoLabels(&'static Values);

struct Values {
    positive: Box<str>,
    other: OnceLock<Other>,
    /// Whether a label was the positive value.
    occurred: AtomicBool,
}

/// The value that means 0.
#[derive(PartialEq, Eq)]
struct Other {
    text: Box<[u8]>,
    /// It was set, not read from a file.
    is_set: bool,
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
    /// Labels of these values. They are leaked, because every reader of the data shares them, so call this once.
    pub fn new(positive: &str, other: Option<&str>) -> TwoLabels {
        let values =
            Values { positive: positive.into(), other: OnceLock::new(), occurred: AtomicBool::new(false) };
        let two = TwoLabels(Box::leak(Box::new(values)));
        other.into_iter().for_each(|other| two.settle(other));
        two
    }

    /// Sets the value that means 0, unless there is one.
    pub fn settle(self, other: &str) {
        self.0.other.get_or_init(|| Other { text: other.as_bytes().into(), is_set: true });
    }

    /// The value that means 1.
    pub fn positive(self) -> &'static str {
        &self.0.positive
    }

    /// The value that means 0, if it is known.
    pub fn other(self) -> Option<String> {
        self.0.other.get().map(|other| String::from_utf8_lossy(&other.text).into_owned())
    }

    /// Whether a label was the value that means 1.
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
        // A first field with a comma is not a label: the line is of another format.
        if text.contains(&b',') {
            return Err(NOT_OF_TWO);
        }
        let other = self.0.other.get_or_init(|| Other { text: text.into(), is_set: false });
        if same(text, &other.text) { Ok(0.0) } else { Err(NOT_OF_TWO) }
    }

    /// The message for a label that is neither value.
    fn neither(self, found: &str) -> String {
        let positive = self.positive();
        let Some(other) = self.other() else { return format!("found {found:?}") };
        if self.positive_occurred() || self.0.other.get().is_some_and(|other| other.is_set) {
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

/// The expected text, or the message for a missing label.
fn unless_missing(text: &[u8], expected: &'static str) -> &'static str {
    if is_missing(text) { MISSING } else { expected }
}

const MISSING: &str = "expected a label";
const NOT_A_SIGN: &str = "expected a label 0, 1, +1 or -1";
const NOT_OF_TWO: &str = "expected one of two labels";

impl Labels {
    /// Parses a label, without blanks around it. A -1 that means 0 becomes the float -0, so that a reader can
    /// distinguish it from 0.
    ///
    /// # Errors
    /// What was expected. [`Labels::more`] says more.
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
            Labels::Counts => {
                let count = parse_float(text).ok().filter(|&count| count >= 0.0);
                let expected = "expected a number from 0 as the label (--loss poisson learns counts)";
                count.ok_or_else(|| unless_missing(text, expected))
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

    /// Whether a text in place of a column's name is a label.
    pub(crate) fn are_like(self, text: &str) -> bool {
        match self {
            Labels::Two(two) => same(text.as_bytes(), two.0.positive.as_bytes()),
            labels => labels.parse(text.as_bytes()).is_ok(),
        }
    }

    /// The message about a label that [`parse`](Self::parse) refused, to append to what it expected.
    #[cold]
    pub(crate) fn more(self, expected: &str, found: &[u8]) -> String {
        let missing = !found.is_empty() && is_missing(found);
        let found = String::from_utf8_lossy(found);
        match self {
            _ if missing && expected.starts_with(MISSING) => {
                format!("; found {found:?}: the line has no label")
            }
            // The texts of all formats where a label is expected.
            Labels::Signs if expected.starts_with("expected a label ") && !found.starts_with(['|', '\'']) => {
                format!("; found {found:?}: {}", which_is_positive(&found))
            }
            Labels::Two(two) if expected == NOT_OF_TWO => format!("; {}", two.neither(&found)),
            _ => String::new(),
        }
    }

    /// The error when [`parse`](Self::parse) refused a label in a column of a CSV file. `as_first`: no flag chose the
    /// column, so the first is the label.
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
                "--label names no column, so the first is the label (--label COLUMN names another): {what}"
            ),
            false => what,
        }
    }
}

/// 1 for a label 0, 2 for a label -0, which becomes 0, and else nothing.
#[inline(always)]
pub(crate) fn zero_bit(label: &mut f32) -> u8 {
    match label {
        label if *label == 0.0 => 1 + u8::from(std::mem::take(label).is_sign_negative()),
        _ => 0,
    }
}

/// Parses 1.0, 0.0 and the like.
#[inline(never)]
fn sign(text: &[u8]) -> Result<f32, &'static str> {
    match parse_float(text) {
        Ok(1.0) => Ok(1.0),
        Ok(0.0) if !text.starts_with(b"-") => Ok(0.0),
        Ok(-1.0) => Ok(-0.0),
        _ => Err(unless_missing(text, NOT_A_SIGN)),
    }
}

/// The remedy for a label other than 0, 1 and -1.
fn which_is_positive(found: &str) -> String {
    let positive = positive_of(found).map_or("VALUE".to_owned(), |value| shell(&value));
    format!("say which value means 1 with --positive {positive}")
}

/// The likely positive value of the pair that has this value.
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
    // In upper or lower case like the other value.
    let capital = found.starts_with(char::is_uppercase);
    Some(match found.len() > 1 && found == found.to_uppercase() {
        true => positive.to_uppercase(),
        false if capital => positive[..1].to_uppercase() + &positive[1..],
        false => positive.to_owned(),
    })
}

/// A value, quoted for a shell if needed.
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
            (Labels::Counts, &["", "-1", "-0.5", "nan", "inf", "x"]),
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
        for missing in [&b""[..], b"NA", b"NaN", b"null"] {
            assert_eq!(labels.parse(missing), Err(MISSING), "it is never a class");
        }
        let both_set = Labels::Two(TwoLabels::new("yes", Some("no")));
        assert!(both_set.parse(b"maybe").is_err() && both_set.parse(b"no") == Ok(0.0));
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
