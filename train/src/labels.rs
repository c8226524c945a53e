//! What a label may be: a click or none, a number, or a class.

use crate::number::parse_float;

/// What the labels of examples are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// 0 or -1, and 1 or +1; they become 0 and 1.
    #[default]
    Signs,
    /// Any finite number.
    Numbers,
    /// A class: a whole number from 0 to one below this.
    Classes(u32),
}

impl Labels {
    /// The label that `text` says, without blanks around it.
    ///
    /// # Errors
    /// What was expected.
    pub(crate) fn parse(self, text: &[u8]) -> Result<f32, &'static str> {
        let number = parse_float(text).ok();
        match self {
            Labels::Signs => match text {
                b"1" | b"+1" => Ok(1.0),
                b"0" | b"-1" => Ok(0.0),
                _ => Err("expected a label 0, 1, +1 or -1"),
            },
            Labels::Numbers => number.ok_or("expected a finite number as the label"),
            Labels::Classes(classes) => {
                let class = number.filter(|c| c.fract() == 0.0 && (0.0..classes as f32).contains(c));
                class.ok_or("expected a class as the label: a whole number from 0 and below --classes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_labels_are() {
        let (signs, numbers, classes) = (Labels::Signs, Labels::Numbers, Labels::Classes(10));
        assert_eq!(["0", "-1", "1", "+1"].map(|t| signs.parse(t.as_bytes()).unwrap()), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(
            ["0", "-1", "3.5", "1e3"].map(|t| numbers.parse(t.as_bytes()).unwrap()),
            [0.0, -1.0, 3.5, 1e3]
        );
        assert_eq!(["0", "9", "9.0"].map(|t| classes.parse(t.as_bytes()).unwrap()), [0.0, 9.0, 9.0]);
        for (labels, bad) in [
            (signs, &["", "2", "1.0", "x", "-0"][..]),
            (numbers, &["", "x", "inf", "nan", "1e99", "1 2"]),
            (classes, &["", "10", "-1", "1.5", "x", "nan"]),
        ] {
            bad.iter().for_each(|t| assert!(labels.parse(t.as_bytes()).is_err(), "{labels:?} {t}"));
        }
    }
}
