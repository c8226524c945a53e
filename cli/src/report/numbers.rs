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

    /// Adds a line of words that the object does not have.
    pub fn say(&mut self, words: impl Display) {
        self.line("");
        self.words(words);
    }

    /// Adds words that the object does not have.
    pub fn words(&mut self, words: impl Display) {
        let _ = write!(self.text, "{words}");
    }

    /// Adds a number or a name to both, and the words behind it to the text.
    pub fn show<V: Display + Into<Value>>(&mut self, name: &str, value: V, behind: &str) {
        self.words(format_args!("{}{behind}", printable(&value.to_string())));
        self.add(name, value);
    }

    /// Adds a number that the text has with so many digits behind the point.
    pub fn show_float(&mut self, name: &str, value: f64, digits: usize, behind: &str) {
        self.words(format_args!("{value:.digits$}{behind}"));
        self.add(name, value);
    }

    /// Adds a number that the text has only if `is_shown`, and otherwise as `-`.
    pub fn show_if(&mut self, is_shown: bool, name: &str, value: u64, behind: &str) {
        match is_shown {
            true => self.show(name, value, behind),
            false => {
                self.words(format_args!("-{behind}"));
                self.add(name, value);
            }
        }
    }

    /// Adds a number that may be unknown: null, and `-` in the text.
    pub fn show_known(&mut self, name: &str, value: Option<f64>, digits: usize, behind: &str) {
        match value {
            Some(value) => self.show_float(name, value, digits, behind),
            None => {
                self.words(format_args!("-{behind}"));
                self.add(name, Value::Null);
            }
        }
    }

    /// Adds a number, and its noun in the text.
    pub fn show_count(&mut self, name: &str, value: u64, one: &str, many: &str) {
        self.words(counted(value, one, many));
        self.add(name, value);
    }

    /// Adds the lines of a part. Returns its object.
    pub fn take(&mut self, part: Numbers) -> Value {
        if !part.text.is_empty() {
            self.say(part.text);
        }
        Value::Object(part.object)
    }

    /// Adds a part: an object in the object, and its lines.
    pub fn part(&mut self, name: &str, part: Numbers) {
        let object = self.take(part);
        self.add(name, object);
    }

    /// Adds parts: objects in a list, and their lines.
    pub fn list(&mut self, name: &str, parts: impl Iterator<Item = Numbers>) {
        let objects: Vec<Value> = parts.map(|part| self.take(part)).collect();
        self.add(name, objects);
    }

    /// The object.
    pub fn object(&self) -> Value {
        Value::Object(self.object.clone())
    }

    /// Adds an object of numbers that the text does not have.
    pub fn add_all(&mut self, numbers: Value) {
        if let Value::Object(numbers) = numbers {
            self.object.extend(numbers);
        }
    }

    /// The text.
    pub fn text(self) -> String {
        self.text
    }

    /// Prints the report.
    pub fn print(self, as_json: bool) {
        match as_json {
            true => say!("{}", Value::Object(self.object)),
            false => say!("{}", self.text),
        }
    }
}

/// A name on one line: names come from data, and must not move the cursor of a terminal or make lines of their own.
fn printable(name: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    name.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_is_the_same_in_the_text_and_in_the_object() {
        let mut part = Numbers::default();
        part.show_known("rate", None, 0, "/s, ");
        part.show_if(false, "clock", 0, "");
        let mut report = Numbers::default();
        report.line("");
        report.show_count("examples", 1, "example", "examples");
        report.words(" in ");
        report.show_float("seconds", 0.126, 2, " s");
        report.line("table");
        report.show("rows", 7u64, " rows");
        report.add("stopped", false);
        report.list("workers", [part].into_iter());
        assert_eq!(report.text, "1 example in 0.13 s\ntable        7 rows\n-/s, -");
        let workers = json!([{"rate": null, "clock": 0}]);
        let object =
            json!({"examples": 1, "seconds": 0.126, "rows": 7, "stopped": false, "workers": workers});
        assert_eq!(report.object(), object);
    }
}
