//! A report. Each number stands once, with its name in the object of `--json` and its place in the text.

use crate::report::words::counted;
use serde_json::{Map, Value};
use std::fmt::{Display, Write as _};

/// A report that is printed as text or as one object.
#[derive(Default)]
pub struct Numbers {
    object: Map<String, Value>,
    text: String,
}

impl Numbers {
    /// Adds a number that the text does not have.
    pub fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.object.insert(name.to_owned(), value.into());
    }

    /// Begins a line of the text.
    pub fn line(&mut self, head: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        if !head.is_empty() {
            self.words(format_args!("{head:<12} "));
        }
    }

    /// Adds words that the object does not have.
    pub fn words(&mut self, words: impl Display) {
        let _ = write!(self.text, "{words}");
    }

    /// Adds a number or a name to both, and the words behind it to the text.
    pub fn show<V: Display + Into<Value>>(&mut self, name: &str, value: V, behind: &str) {
        self.words(format_args!("{value}{behind}"));
        self.add(name, value);
    }

    /// Adds a number that the text has with so many digits behind the point.
    pub fn show_float(&mut self, name: &str, value: f64, digits: usize, behind: &str) {
        self.words(format_args!("{value:.digits$}{behind}"));
        self.add(name, value);
    }

    /// Adds a number, and its noun in the text.
    pub fn show_count(&mut self, name: &str, value: u64, one: &str, many: &str) {
        self.words(counted(value, one, many));
        self.add(name, value);
    }

    /// Prints the report.
    pub fn print(self, as_json: bool) {
        match as_json {
            true => say!("{}", Value::Object(self.object)),
            false => say!("{}", self.text),
        }
    }
}
