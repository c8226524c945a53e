//! Plain data as words for messages: the output of `Debug` without Rust's punctuation.

use std::fmt::Debug;

/// `value` in words: names in small letters, fields as `name value`. Fields that are absent or empty are left out, and
/// text is quoted. It is meant for plain data such as rules and schedules.
///
/// ```
/// use gannet_optim::{Ftrl, Rule, in_words};
/// let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
/// assert_eq!(in_words(&rule), "ftrl (alpha 0.1, beta 1.0, l1 0.0, l2 0.0)");
/// assert_eq!(in_words(&None::<f32>), "none");
/// ```
pub fn in_words(value: &dyn Debug) -> String {
    let text: Vec<char> = format!("{value:?}").chars().collect();
    let mut parser = Parser { text: &text, at: 0 };
    let words = parser.value();
    // Output that is no plain data is returned unchanged.
    if parser.at == text.len() { words.text() } else { text.into_iter().collect() }
}

/// A parsed value.
enum RuleWords {
    None,
    Plain(String),
    /// A name, which may be empty, and its parts.
    Parts(String, Vec<String>),
}

impl RuleWords {
    fn text(self) -> String {
        match self {
            RuleWords::None => "none".to_owned(),
            RuleWords::Plain(text) => text,
            RuleWords::Parts(name, parts) if parts.is_empty() => {
                if name.is_empty() {
                    "none".into()
                } else {
                    name
                }
            }
            RuleWords::Parts(name, parts) if name.is_empty() => parts.join(", "),
            RuleWords::Parts(name, parts) => format!("{name} ({})", parts.join(", ")),
        }
    }

    fn is_absent(&self) -> bool {
        match self {
            RuleWords::None => true,
            RuleWords::Parts(name, parts) => name.is_empty() && parts.is_empty(),
            RuleWords::Plain(_) => false,
        }
    }
}

struct Parser<'a> {
    text: &'a [char],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn skip(&mut self, of: &[char]) {
        while self.peek().is_some_and(|c| of.contains(&c)) {
            self.at += 1;
        }
    }

    /// Letters up to a punctuation mark.
    fn word(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|c| !"(){}[],: ".contains(c)) {
            self.at += 1;
        }
        self.text[start..self.at].iter().collect()
    }

    fn quoted(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.peek().filter(|&c| c != '"') {
            self.at += if c == '\\' { 2 } else { 1 };
        }
        self.at = (self.at + 1).min(self.text.len());
        self.text[start..self.at].iter().collect()
    }

    fn value(&mut self) -> RuleWords {
        if self.peek() == Some('"') {
            return RuleWords::Plain(self.quoted());
        }
        let name = self.word();
        if self.peek() == Some(' ') && self.text.get(self.at + 1) == Some(&'{') {
            self.at += 1;
        }
        match self.peek() {
            Some('{') => RuleWords::Parts(named(&name), self.parts('}', true)),
            Some('(') if name == "Some" => {
                let mut parts = self.parts(')', false);
                parts.pop().map_or(RuleWords::None, RuleWords::Plain)
            }
            Some('(') => {
                let parts = self.parts(')', false);
                // `Ftrl(Ftrl { .. })` gives the name once.
                match (parts.len(), named(&name)) {
                    (1, name) if parts[0].starts_with(&name) => RuleWords::Plain(parts[0].clone()),
                    (_, name) => RuleWords::Parts(name, parts),
                }
            }
            Some('[') => RuleWords::Parts(String::new(), self.parts(']', false)),
            _ if name == "None" => RuleWords::None,
            _ => RuleWords::Plain(named(&name)),
        }
    }

    fn parts(&mut self, end: char, with_names: bool) -> Vec<String> {
        let mut parts = Vec::new();
        self.at += 1;
        loop {
            self.skip(&[' ', ',']);
            if self.peek().is_none_or(|c| c == end) {
                self.at = (self.at + 1).min(self.text.len());
                return parts;
            }
            let before = self.at;
            let name = if with_names { self.word() } else { String::new() };
            self.skip(&[':', ' ']);
            let value = self.value();
            if with_names && value.is_absent() {
                continue;
            }
            let text = value.text();
            parts.push(if name.is_empty() { text } else { format!("{} {text}", name.replace('_', " ")) });
            if self.at == before {
                return parts;
            }
        }
    }
}

/// One of our names, as users write it.
fn named(name: &str) -> String {
    match name {
        "RowAdaGrad" => "row-adagrad".to_owned(),
        "GroupFtrl" => "group-ftrl".to_owned(),
        "InverseSqrt" => "inverse-sqrt".to_owned(),
        "GradientTransform" => "gradient transform".to_owned(),
        name => name.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[allow(dead_code)] // read by Debug
    struct Sample {
        first_name: Option<String>,
        all: Vec<u32>,
        pair: (u8, f32),
        on: bool,
    }

    #[test]
    fn data_in_words_has_no_punctuation_of_rust() {
        let sample = Sample { first_name: Some("a, {b\"".into()), all: vec![1, 2], pair: (3, 0.5), on: true };
        assert_eq!(in_words(&sample), r#"sample (first name "a, {b\"", all 1, 2, pair 3, 0.5, on true)"#);
        let sample = Sample { first_name: None, all: vec![], pair: (3, 0.5), on: false };
        assert_eq!(in_words(&sample), "sample (pair 3, 0.5, on false)");
        assert_eq!(in_words(&Some(Some(3))), "3");
        assert_eq!(in_words(&Vec::<u8>::new()), "none");
        assert_eq!(in_words(&()), "none");
        assert_eq!(in_words(&"x"), "\"x\"");
        assert_eq!(in_words(&(-0.5, "y")), "-0.5, \"y\"");
    }
}
