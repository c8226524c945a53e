//! vw's JSON lines: an object a line. Objects inside it are namespaces, and other names are features of the namespace
//! without a name. The features are those of the same example in vw's text: `"ns": {"size": 2, "color": "red"}` means
//! `|ns size:2 color:red`.
//!
//! `_label` is the label, or an object with `Label`, `Weight` (the importance) and `Initial` (the base). `_text` has
//! words with blanks between them. Other names that begin with `_` are read over.

use crate::limits::{FEATURES_PER_EXAMPLE_MAX, JSON_DEPTH_MAX};
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::fields::example_fields::ExampleFields;
use crate::read::fields::field::FieldId;
use crate::read::formats::json::{json_fault, walk_object};
use crate::read::formats::labels::Labels;
use crate::read::formats::libsvm::Lines;
use crate::read::formats::number::parse_float;
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::text_key::text_key;
use crate::read::formats::vw::note_unlabelled;
use sonic_rs::{JsonType, JsonValueTrait, LazyValue, to_array_iter};

/// Reads lines of the format.
#[derive(Clone, Debug)]
pub(crate) struct VwJson {
    lines: Lines,
    fields: ExampleFields,
    repeats: RepeatedKeys,
}

/// What a line says besides its features.
struct VwHead {
    label: Option<f32>,
    importance: f32,
    base: f32,
}

impl VwJson {
    pub fn new(lines: Lines, fields: ExampleFields) -> VwJson {
        VwJson { lines, fields, repeats: RepeatedKeys::default() }
    }

    /// Appends the example of the object in `line`.
    ///
    /// # Errors
    /// What was expected. The block may then have features of the line.
    pub fn example(&mut self, line: &[u8], block: &mut Block) -> Result<(), String> {
        let labels = self.lines.labels;
        let mut head = VwHead { label: None, importance: 1.0, base: 0.0 };
        if self.lines.intercept {
            block.keys.push(INTERCEPT_KEY);
            block.values.push(1.0);
        }
        let first = block.keys.len();
        self.fields.undo();
        let nameless = FieldId::of(b"");
        walk_object(line, &mut |name, value| match name {
            "_label" => head.take(&value, labels),
            _ if name.starts_with("_label") || OF_SEVERAL.contains(&name) => Err(format!(
                "expected one label, in \"_label\"; examples of several (contextual bandits, ccb, slates) are not \
                 learned; found {name:?}"
            )),
            _ => self.add(nameless, name, &value, JSON_DEPTH_MAX, block),
        })?;
        if head.label.is_none() && !self.lines.unlabelled {
            note_unlabelled();
            block.undo();
            return Ok(());
        }
        self.fields.end(block, first)?;
        if block.keys.len() - first >= FEATURES_PER_EXAMPLE_MAX {
            return Err(format!("expected at most {} features", FEATURES_PER_EXAMPLE_MAX - 1));
        }
        block.may_repeat |= self.repeats.any(&block.keys[first..]);
        block.end_with(head.label.unwrap_or(f32::NAN), head.importance, head.base);
        Ok(())
    }

    /// Adds what a name of a namespace means.
    fn add(
        &mut self,
        namespace: FieldId,
        name: &str,
        value: &LazyValue<'_>,
        depth: usize,
        block: &mut Block,
    ) -> Result<(), String> {
        if name == "_text" {
            let text = value.as_str().ok_or("expected a text in \"_text\"")?;
            for word in text.split_ascii_whitespace() {
                push(block, text_key(namespace.id, word.as_bytes()), 1.0);
            }
            self.fields.add(namespace, block);
            return Ok(());
        }
        if name.starts_with('_') {
            return Ok(());
        }
        match value.get_type() {
            JsonType::Null => {}
            JsonType::Boolean if value.as_raw_str() == "false" => {}
            JsonType::Boolean => push(block, key_of(namespace, name), 1.0),
            JsonType::Number => push(block, key_of(namespace, name), number(name, value)?),
            JsonType::String => {
                let text = value.as_str().ok_or_else(|| format!("expected a valid string, in {name:?}"))?;
                push(block, text_key(key_of(namespace, name), text.as_bytes()), 1.0);
            }
            JsonType::Array => {
                self.fields.add(namespace, block);
                return self.add_list(FieldId::of(name.as_bytes()), name, value, block);
            }
            JsonType::Object if depth == 0 => {
                return Err(format!(
                    "expected at most {JSON_DEPTH_MAX} objects inside each other, in {name:?}"
                ));
            }
            JsonType::Object => {
                self.fields.add(namespace, block);
                let inner = FieldId::of(name.as_bytes());
                let raw = value.as_raw_str().as_bytes();
                return walk_object(raw, &mut |name, value| self.add(inner, name, &value, depth - 1, block));
            }
        }
        self.fields.add(namespace, block);
        Ok(())
    }

    /// Adds a list, which is a namespace: numbers are the values of the features 0, 1, 2 and so on, and texts are
    /// features of value 1.
    fn add_list(
        &mut self,
        namespace: FieldId,
        name: &str,
        list: &LazyValue<'_>,
        block: &mut Block,
    ) -> Result<(), String> {
        for (at, element) in to_array_iter(list.as_raw_str()).enumerate() {
            let element = element.map_err(json_fault)?;
            match element.get_type() {
                JsonType::Null => {}
                JsonType::Number => {
                    let key = text_key(namespace.id, at.to_string().as_bytes());
                    push(block, key, number(name, &element)?);
                }
                JsonType::String => {
                    let text =
                        element.as_str().ok_or_else(|| format!("expected a valid string, in {name:?}"))?;
                    push(block, text_key(namespace.id, text.as_bytes()), 1.0);
                }
                _ => return Err(format!("expected numbers or texts in the list {name:?}")),
            }
        }
        self.fields.add(namespace, block);
        Ok(())
    }
}

impl VwHead {
    /// Takes the label.
    fn take(&mut self, value: &LazyValue<'_>, labels: Labels) -> Result<(), String> {
        match value.get_type() {
            JsonType::Object => {
                let raw = value.as_raw_str().as_bytes();
                walk_object(raw, &mut |name, value| match name {
                    "Label" | "label" => self.take_label(&value, labels),
                    "Weight" | "weight" => {
                        self.importance = number(name, &value)?;
                        match self.importance >= 0.0 {
                            true => Ok(()),
                            false => Err("expected an importance that is not negative, in \"Weight\"".into()),
                        }
                    }
                    "Initial" | "initial" => {
                        self.base = number(name, &value)?;
                        Ok(())
                    }
                    _ => Err(format!("expected Label, Weight and Initial in \"_label\"; found {name:?}")),
                })?;
            }
            _ => self.take_label(value, labels)?,
        }
        match labels {
            Labels::Classes(_) if self.base != 0.0 => {
                Err("expected no base: an example of several classes has several margins".into())
            }
            _ => Ok(()),
        }
    }

    fn take_label(&mut self, value: &LazyValue<'_>, labels: Labels) -> Result<(), String> {
        let text = match value.get_type() {
            JsonType::Number => value.as_raw_str(),
            JsonType::String => value.as_str().unwrap_or_default(),
            JsonType::Null => return Ok(()),
            _ => return Err("expected a number or a text in \"_label\"".into()),
        };
        if self.label.is_some() {
            return Err("expected one label, not a second one".into());
        }
        let parsed = labels.parse(text.trim_ascii().as_bytes());
        let wrong = |expected| labels.wrong_in("_label", expected, text.as_bytes(), false);
        self.label = Some(parsed.map_err(wrong)?);
        Ok(())
    }
}

/// Names of examples that have several labels.
const OF_SEVERAL: [&str; 4] = ["_multi", "_slot", "_slots", "_outcomes"];

/// Whether a line of JSON is of this format: it has a name `_label`.
pub(crate) fn is_like(line: &[u8]) -> bool {
    let mut found = false;
    let walked = walk_object(line, &mut |name, _| {
        found |= name == "_label";
        Ok(())
    });
    walked.is_ok() && found
}

/// The key of a name. In the namespace without a name a whole number is its own key, as in vw's text.
fn key_of(namespace: FieldId, name: &str) -> u64 {
    let is_plain = namespace == FieldId::of(b"") && name.bytes().all(|b| b.is_ascii_digit());
    match name.parse::<u64>() {
        Ok(number) if is_plain && number != INTERCEPT_KEY => number,
        _ => text_key(namespace.id, name.as_bytes()),
    }
}

fn number(name: &str, value: &LazyValue<'_>) -> Result<f32, String> {
    let expected = || format!("expected a finite number that fits f32, in {name:?}");
    match value.get_type() {
        JsonType::Number => parse_float(value.as_raw_str().as_bytes()).map_err(|_| expected()),
        _ => Err(expected()),
    }
}

fn push(block: &mut Block, key: u64, value: f32) {
    block.keys.push(key);
    block.values.push(value);
}
