//! JSON lines: an object a line. Names are columns, also those inside objects (`a.b`), and values become the features
//! that a CSV field with the same text becomes. A list is a column with several values. `null` is a missing value.
//!
//! There is no header. So a column is whatever has its name in a line: a category, unless a flag says otherwise. A name
//! that a flag lists and a line has not is a missing value.

use crate::limits::{FEATURES_PER_EXAMPLE_MAX, JSON_DEPTH_MAX, JSON_NESTED_MAX};
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::fields::example_fields::ExampleFields;
use crate::read::fields::field::FieldId;
use crate::read::formats::columns::{
    ColumnChoice, Columns, ExampleNumber, ExampleNumbers, Role, is_index_of_lines, number_feature,
    parse_number,
};
use crate::read::formats::csv::lenient_feature;
use crate::read::formats::labels::Labels;
use crate::read::formats::libsvm::Lines;
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::scale::{Scale, Scaling};
use crate::read::formats::text_key::ColumnKeys;
use sonic_rs::{JsonType, JsonValueTrait, LazyValue, to_array_iter, to_object_iter};
use std::borrow::Cow;
use std::collections::HashMap;

/// Fields whose places are remembered. Lines mostly have the same names in the same order.
const REMEMBERED: usize = 1024;

/// Reads lines of the format.
#[derive(Clone, Debug)]
pub(crate) struct Json {
    intercept: bool,
    unlabelled: bool,
    pub labels: Labels,
    label: String,
    /// The columns that flags list.
    listed: HashMap<String, usize>,
    fields: Vec<Listed>,
    /// Whether other names are categories.
    others: bool,
    /// The names of the last lines, by their place.
    remembered: Vec<(String, Field)>,
    /// The number of lines so far, to tell whether a line has a listed column.
    line: u64,
    example_fields: ExampleFields,
    repeats: RepeatedKeys,
}

/// A column that a flag lists.
#[derive(Clone, Debug)]
struct Listed {
    id: FieldId,
    role: Role,
    scaling: Scaling,
    /// The last line that has it.
    seen: u64,
}

/// What a line says besides its features.
struct LineHead {
    label: Option<f32>,
    numbers: ExampleNumbers,
}

/// What a name means.
#[derive(Clone, Copy, Debug)]
enum Field {
    Label,
    /// A column that a flag lists.
    Listed(usize),
    /// A column of categories.
    Other(FieldId, ColumnKeys),
    Skipped,
}

impl Json {
    /// # Errors
    /// A column is chosen twice, or its scale is unknown: in words.
    pub fn new(
        choice: &ColumnChoice,
        scale: &Scale,
        lines: Lines,
        example_fields: ExampleFields,
    ) -> Result<(Json, Columns), String> {
        let Lines { intercept, unlabelled, labels } = lines;
        let label = choice.label.clone().unwrap_or_else(|| "label".into());
        let count =
            choice.categorical.len() + choice.numeric.len() + choice.both.len() + choice.ignored.len() + 2;
        let (mut listed, mut fields) = (HashMap::with_capacity(count), Vec::with_capacity(count));
        let numeric = choice.numeric.iter().map(|name| (name, Role::numeric(name)));
        let both = choice.both.iter().map(|name| (name, Role::both(name)));
        let categorical =
            choice.categorical.iter().map(|name| (name, Role::Categorical(ColumnKeys::new(name))));
        let ignored = choice.ignored.iter().map(|name| (name, Role::Skipped));
        let offset = choice.offset.iter().map(|name| (name, Role::OfExample(ExampleNumber::Offset)));
        let importance =
            choice.importance.iter().map(|name| (name, Role::OfExample(ExampleNumber::Importance)));
        let of_example = offset.chain(importance);
        for (name, role) in categorical.chain(numeric).chain(both).chain(ignored).chain(of_example) {
            if *name == label || listed.insert(name.clone(), fields.len()).is_some() {
                return Err(format!(
                    "column {name:?} is chosen twice; name it once among --label, --offset, --importance, --categorical, \
                     --numeric, --both and --ignore"
                ));
            }
            let scaling = match role {
                Role::Numeric(..) | Role::Both(..) => scale.known(name)?,
                _ => Scaling::Kept,
            };
            fields.push(Listed { id: FieldId::of(name.as_bytes()), role, scaling, seen: 0 });
        }
        let others = choice.categorical.is_empty() && !choice.only;
        let ColumnChoice { categorical, numeric, both, ignored, offset, importance, .. } = choice.clone();
        let label_name = Some(label.clone());
        let columns = Columns {
            label: label_name,
            categorical,
            numeric,
            both,
            ignored,
            offset,
            importance,
            others,
            ..Columns::default()
        };
        let (remembered, repeats) = (Vec::new(), RepeatedKeys::default());
        let json = Json {
            intercept,
            unlabelled,
            labels,
            label,
            listed,
            fields,
            others,
            remembered,
            line: 0,
            example_fields,
            repeats,
        };
        Ok((json, columns))
    }

    /// Appends the example of the object in `line`.
    ///
    /// # Errors
    /// What was expected. The block may then have features of the line.
    pub fn example(&mut self, line: &[u8], block: &mut Block) -> Result<(), String> {
        self.line += 1;
        if self.intercept {
            block.keys.push(INTERCEPT_KEY);
            block.values.push(1.0);
        }
        let first = block.keys.len();
        let mut head = LineHead { label: None, numbers: ExampleNumbers::default() };
        let mut place = 0;
        self.example_fields.undo();
        walk(line, "", JSON_DEPTH_MAX, &mut |name, value| {
            let Some(value) = value else { return self.may_be_object(name) };
            let field = self.field(name, place);
            place += 1;
            self.add(name, field, &value, &mut head, block)
        })?;
        for listed in self.fields.iter().filter(|listed| listed.seen != self.line) {
            if let Role::OfExample(which) = listed.role {
                // Lines that are scored need no importance.
                if !(self.unlabelled && which == ExampleNumber::Importance) {
                    which.check(None)?;
                }
                continue;
            }
            add_text(listed, None, block)?;
            self.example_fields.add(listed.id, block);
        }
        self.example_fields.end(block, first)?;
        if block.keys.len() - first >= FEATURES_PER_EXAMPLE_MAX {
            return Err(format!("expected at most {} features", FEATURES_PER_EXAMPLE_MAX - 1));
        }
        let Some(label) = head.label.or_else(|| self.unlabelled.then_some(f32::NAN)) else {
            return Err(format!("expected a label in {:?}; name its column with --label", self.label));
        };
        block.may_repeat |= self.repeats.any(&block.keys[first..]);
        block.end_with(label, head.numbers.importance, head.numbers.base);
        Ok(())
    }

    /// Whether a name is inside an object that is left out.
    fn is_left_out(&self, name: &str) -> bool {
        let outer = name.match_indices('.').filter_map(|(end, _)| self.listed.get(&name[..end]));
        outer.into_iter().any(|&at| self.fields[at].role == Role::Skipped)
    }

    /// Refuses an object where a flag says that there is a number.
    fn may_be_object(&self, name: &str) -> Result<(), String> {
        match self.listed.get(name).map(|&at| self.fields[at].role) {
            None | Some(Role::Skipped | Role::Categorical(_)) => Ok(()),
            _ => Err(format!(
                "expected a number, not an object, in {name:?}; its names are columns: {name}.NAME"
            )),
        }
    }

    /// What the name at this place of a line means.
    fn field(&mut self, name: &str, place: usize) -> Field {
        if let Some((known, field)) = self.remembered.get(place)
            && known == name
        {
            return *field;
        }
        let field = match self.listed.get(name) {
            Some(&at) => Field::Listed(at),
            None if name == self.label => Field::Label,
            None if self.others && !is_index_of_lines(name) && !self.is_left_out(name) => {
                Field::Other(FieldId::of(name.as_bytes()), ColumnKeys::new(name))
            }
            None => Field::Skipped,
        };
        match self.remembered.get_mut(place) {
            Some(known) => *known = (name.to_owned(), field),
            None if place < REMEMBERED => self.remembered.push((name.to_owned(), field)),
            None => {}
        }
        field
    }

    /// Adds what a value becomes.
    fn add(
        &mut self,
        name: &str,
        field: Field,
        value: &LazyValue<'_>,
        head: &mut LineHead,
        block: &mut Block,
    ) -> Result<(), String> {
        let in_column = |expected: String| format!("{expected}, in {name:?}");
        match field {
            Field::Skipped => Ok(()),
            Field::Label if head.label.is_some() => Err(in_column("expected one label".into())),
            Field::Label => {
                let flags = if matches!(self.labels, Labels::Two(_)) { FLAGS } else { ["0", "1"] };
                let text = text(value, flags).map_err(in_column)?;
                let text = text.as_deref().unwrap_or_default().trim_ascii();
                let parsed = self.labels.parse(text);
                head.label =
                    Some(parsed.map_err(|expected| self.labels.wrong_in(name, expected, text, false))?);
                Ok(())
            }
            Field::Listed(at) => {
                let is_again = std::mem::replace(&mut self.fields[at].seen, self.line) == self.line;
                if is_again
                    && matches!(self.fields[at].role, Role::Numeric(..) | Role::Both(..) | Role::OfExample(_))
                {
                    return Err(in_column("expected one number, not a second one".into()));
                }
                let listed = &self.fields[at];
                if listed.role == Role::Skipped {
                    return Ok(());
                }
                if let Role::OfExample(which) = listed.role {
                    let text = text(value, FLAGS).map_err(in_column)?;
                    let number = which.parse(text.as_deref().unwrap_or_default());
                    head.numbers.set(which, number.map_err(|expected| in_column(expected.into()))?);
                    return Ok(());
                }
                if value.is_array() && matches!(listed.role, Role::Numeric(..)) {
                    return Err(in_column("expected a number, not a list".into()));
                }
                each(value, |text| add_text(listed, text, block)).map_err(in_column)?;
                self.example_fields.add(listed.id, block);
                Ok(())
            }
            Field::Other(id, keys) => {
                let listed = Listed { id, role: Role::Categorical(keys), scaling: Scaling::Kept, seen: 0 };
                each(value, |text| add_text(&listed, text, block)).map_err(in_column)?;
                self.example_fields.add(id, block);
                Ok(())
            }
        }
    }

    /// Calls `each_text` with the names of a valid line, the texts of their values, and whether these are in a list.
    pub fn texts(line: &[u8], mut each_text: impl FnMut(&str, &[u8], bool)) {
        // A line that is not valid has been refused before.
        let _ = walk(line, "", JSON_DEPTH_MAX, &mut |name, value| {
            let Some(value) = value else { return Ok(()) };
            let is_listed = value.is_array();
            each(&value, |text| {
                each_text(name, text.unwrap_or_default(), is_listed);
                Ok(())
            })
        });
    }
}

/// The texts of false and true, as in a CSV file.
const FLAGS: [&str; 2] = ["false", "true"];

/// Adds the feature of one value of a column. `None`: it is missing.
fn add_text(listed: &Listed, text: Option<&[u8]>, block: &mut Block) -> Result<(), String> {
    let (key, value) = match listed.role {
        Role::Skipped | Role::Label | Role::OfExample(_) => return Ok(()),
        Role::Categorical(keys) => (keys.categorical(text.unwrap_or_default()), 1.0),
        Role::Both(keys, key, missing) => {
            let text = text.unwrap_or_default();
            let (number, value) = lenient_feature(text, key, missing, Some(&listed.scaling));
            block.keys.extend([keys.categorical(text), number]);
            block.values.extend([1.0, value]);
            return Ok(());
        }
        Role::Numeric(key, missing) => {
            let number = match text {
                // As in a CSV file of the same table.
                Some(b"true") => Some(1.0),
                Some(b"false") => Some(0.0),
                text => parse_number(text.unwrap_or_default())?,
            };
            let (found, value) = number_feature(number, key, missing);
            (found, if number.is_some() { listed.scaling.of(value) } else { value })
        }
    };
    if !value.is_finite() {
        return Err("expected a number that fits f32 when it is scaled (--scale)".into());
    }
    block.keys.push(key);
    block.values.push(value);
    Ok(())
}

/// Calls `take` with the text of a value, or with those of a list. `None`: it is null.
fn each(
    value: &LazyValue<'_>,
    mut take: impl FnMut(Option<&[u8]>) -> Result<(), String>,
) -> Result<(), String> {
    if value.get_type() != JsonType::Array {
        return take(text(value, FLAGS)?.as_deref());
    }
    for element in to_array_iter(value.as_raw_str()) {
        take(text(&element.map_err(json_fault)?, FLAGS)?.as_deref())?;
    }
    Ok(())
}

/// The text of a value, as a CSV file would have it. `None`: it is null.
fn text<'a>(value: &'a LazyValue<'_>, flags: [&'static str; 2]) -> Result<Option<Cow<'a, [u8]>>, String> {
    Ok(Some(Cow::Borrowed(match value.get_type() {
        JsonType::Null => return Ok(None),
        JsonType::Boolean => flags[usize::from(value.as_raw_str() == "true")].as_bytes(),
        JsonType::Number => value.as_raw_str().as_bytes(),
        JsonType::String => value.as_str().ok_or("expected a valid string")?.as_bytes(),
        JsonType::Array => return Err("expected no list inside a list".into()),
        JsonType::Object => return Err("expected no object inside a list".into()),
    })))
}

/// Takes a name and its value. `None`: the value is an object, whose names follow.
type TakeValue<'a> = &'a mut dyn FnMut(&str, Option<LazyValue<'_>>) -> Result<(), String>;

/// Calls `each` with every name of an object and its value, and with the names inside of objects.
fn walk(object: &[u8], prefix: &str, depth: usize, each: TakeValue<'_>) -> Result<(), String> {
    walk_object(object, &mut |name, value| {
        let name = if prefix.is_empty() { Cow::Borrowed(name) } else { format!("{prefix}.{name}").into() };
        if value.get_type() != JsonType::Object {
            each(&name, Some(value))
        } else if depth == 0 {
            Err(format!("expected at most {JSON_DEPTH_MAX} objects inside each other, in {name:?}"))
        } else {
            each(&name, None)?;
            walk(value.as_raw_str().as_bytes(), &name, depth - 1, each)
        }
    })
}

/// Calls `each` with every name of an object and its value.
///
/// # Errors
/// The text is not one object, or that of `each`.
pub(crate) fn walk_object(
    object: &[u8],
    each: &mut dyn FnMut(&str, LazyValue<'_>) -> Result<(), String>,
) -> Result<(), String> {
    check_nested(object)?;
    let mut end = None;
    for entry in to_object_iter(object) {
        let (name, value) = entry.map_err(json_fault)?;
        let raw = value.as_raw_str();
        end = Some(raw.as_ptr().addr() + raw.len() - object.as_ptr().addr());
        each(&name, value)?;
    }
    // The iterator does not look behind the object.
    let rest = match end {
        Some(end) => behind_space(&object[end..]).strip_prefix(b"}"),
        None => {
            behind_space(object).strip_prefix(b"{").and_then(|rest| behind_space(rest).strip_prefix(b"}"))
        }
    };
    match rest.map(behind_space) {
        Some([]) => Ok(()),
        _ => Err("expected one JSON object on the line, and nothing behind it".into()),
    }
}

/// Refuses a text that is nested so deeply that the parser would overflow its stack: it calls itself for each object
/// and list that is inside another.
fn check_nested(text: &[u8]) -> Result<(), String> {
    // `[` and `{` differ in one bit. Most lines have few of them.
    let opened = text.iter().filter(|&&byte| byte | 0x20 == b'{').count();
    if opened > JSON_NESTED_MAX && depth(text) > JSON_NESTED_MAX {
        return Err(format!("expected at most {JSON_NESTED_MAX} objects and lists inside each other"));
    }
    Ok(())
}

/// The greatest number of objects and lists inside each other, up to where the text is no JSON.
#[cold]
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut most, mut in_quotes, mut is_escaped) = (0usize, 0, false, false);
    for &byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_quotes => is_escaped = true,
            b'"' => in_quotes = !in_quotes,
            _ if in_quotes => {}
            b'{' | b'[' => {
                depth += 1;
                most = most.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// The text behind JSON's white space, which has no form feed.
fn behind_space(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| b" \t\n\r".contains(byte)).count();
    &text[spaces..]
}

/// The first line of the parser's error: the others draw the text.
#[cold]
pub(crate) fn json_fault(error: sonic_rs::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default().trim_end_matches('.');
    format!("expected a JSON object on the line ({first})")
}
