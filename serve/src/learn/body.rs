//! The body of a request to learn: ids, and the examples or the labels that belong to them.

use super::csv;
use super::form::LineForm;
use crate::depth::check_depth;
use crate::error::RequestError;
use crate::limits::ID_BYTES_MAX;
use sonic_rs::{JsonValueTrait, LazyValue};
use std::collections::HashSet;

const FORM: &str =
    "{\"ids\": [..], \"examples\": [..]}, {\"ids\": [..], \"lines\": [..]} or {\"labels\": {\"ID\": LABEL}}";

/// What a request sends.
#[derive(Debug, PartialEq, Eq)]
pub enum LearnBody {
    /// Lines of examples, each with its id.
    Lines(Vec<(String, String)>),
    /// Labels of predictions by their ids, as JSON.
    Labels(Vec<(String, String)>),
}

fn no_json(error: &sonic_rs::Error) -> RequestError {
    let what = error.to_string();
    RequestError::Bad(format!("the body is no JSON: {}", what.lines().next().unwrap_or_default()))
}

/// An id: a text, or a whole number.
fn id_of(value: &LazyValue<'_>) -> Result<String, RequestError> {
    let id = match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.as_i64().is_some() || value.as_u64().is_some() => value.as_raw_str().to_owned(),
        None => {
            return Err(RequestError::Bad(format!(
                "ids: {} is no id: texts or whole numbers are needed",
                value.as_raw_str()
            )));
        }
    };
    check_id(&id)?;
    Ok(id)
}

/// Checks an id.
///
/// # Errors
/// It is empty or too long.
pub fn check_id(id: &str) -> Result<(), RequestError> {
    match id.len() {
        1..=ID_BYTES_MAX => Ok(()),
        n => Err(RequestError::Bad(format!("an id has {n} bytes; 1 to {ID_BYTES_MAX} are possible"))),
    }
}

fn list<'a>(name: &str, value: &LazyValue<'a>) -> Result<Vec<LazyValue<'a>>, RequestError> {
    if !value.is_array() {
        return Err(RequestError::Bad(format!("{name} is no list; the body is {FORM}")));
    }
    // The text of a lazy value lives as long as the body.
    let all: Result<Vec<LazyValue<'a>>, _> = value.clone().into_array_iter().into_iter().flatten().collect();
    all.map_err(|error| no_json(&error))
}

/// An object in one line. Line breaks are between its members, because none can be in a text.
fn on_one_line(object: &str) -> String {
    object.replace(['\n', '\r'], " ")
}

fn line_of(form: LineForm, name: &str, value: &LazyValue<'_>, number: usize) -> Result<String, RequestError> {
    match (form, name) {
        (LineForm::Json, "examples") if value.is_object() => Ok(on_one_line(value.as_raw_str())),
        (LineForm::Json, "examples") => Err(RequestError::Bad(format!(
            "examples: number {number} is no object with a member for each column"
        ))),
        (_, "lines") => match value.as_str().map(|line| line.strip_suffix('\n').unwrap_or(line)) {
            Some(line) if !line.contains(['\n', '\r']) => Ok(line.to_owned()),
            _ => Err(RequestError::Bad(format!("lines: number {number} is not the text of one line"))),
        },
        _ => {
            let (own, _) = form.names();
            Err(RequestError::Bad(format!(
                "examples: this model reads {own}; send \"lines\": a list of texts"
            )))
        }
    }
}

impl LearnBody {
    /// Reads a body for lines of this form.
    ///
    /// # Errors
    /// It has another form, an id is there twice, or the numbers of ids and examples differ.
    pub fn read(body: &[u8], form: LineForm) -> Result<LearnBody, RequestError> {
        check_depth(body)?;
        let text = std::str::from_utf8(body).map_err(|_| RequestError::bad("the body is not UTF-8"))?;
        let (mut ids, mut examples, mut labels) = (None, None, None);
        if !text.trim_start().starts_with('{') {
            return Err(RequestError::Bad(format!("the body is {FORM}")));
        }
        // Checks the whole text.
        sonic_rs::from_str::<LazyValue<'_>>(text).map_err(|error| no_json(&error))?;
        for member in sonic_rs::to_object_iter(text) {
            let (name, value) = member.map_err(|error| no_json(&error))?;
            let is_again = match &*name {
                "ids" => ids.replace(list("ids", &value)?).is_some(),
                "examples" | "lines" => examples.replace((name.to_string(), list(&name, &value)?)).is_some(),
                "labels" => labels.replace(value).is_some(),
                other => {
                    return Err(RequestError::Bad(format!("{other:?} is not known; the body is {FORM}")));
                }
            };
            if is_again {
                return Err(RequestError::Bad(format!("{name:?} is there twice; the body is {FORM}")));
            }
        }
        let read = match (ids, examples, labels) {
            (Some(ids), Some((name, examples)), None) => of_examples(form, &ids, &name, &examples)?,
            (None, None, Some(labels)) => LearnBody::Labels(of_labels(&labels)?),
            _ => return Err(RequestError::Bad(format!("the body is {FORM}"))),
        };
        read.check_ids()?;
        Ok(read)
    }

    fn check_ids(&self) -> Result<(), RequestError> {
        let (LearnBody::Lines(all) | LearnBody::Labels(all)) = self;
        if all.is_empty() {
            return Err(RequestError::bad("there are no examples in the request"));
        }
        let mut ids = HashSet::new();
        match all.iter().find(|(id, _)| !ids.insert(id)) {
            Some((id, _)) => {
                Err(RequestError::Bad(format!("id {id:?} is there twice: each example has its own")))
            }
            None => Ok(()),
        }
    }
}

fn of_examples(
    form: LineForm,
    ids: &[LazyValue<'_>],
    name: &str,
    examples: &[LazyValue<'_>],
) -> Result<LearnBody, RequestError> {
    let mut rows = None;
    if form == LineForm::Json && name == "lines" {
        rows = Some(rows_of(examples)?);
    }
    let count = rows.as_ref().map_or(examples.len(), Vec::len);
    if ids.len() != count {
        return Err(RequestError::Bad(format!(
            "there are {} ids and {count} {}: each one needs an id",
            ids.len(),
            if rows.is_some() { "rows below the header" } else { name }
        )));
    }
    if let Some(rows) = rows {
        let lines = ids.iter().zip(rows).map(|(id, row)| Ok((id_of(id)?, row)));
        return Ok(LearnBody::Lines(lines.collect::<Result<_, RequestError>>()?));
    }
    let each = (1..).zip(ids.iter().zip(examples));
    let lines = each.map(|(number, (id, value))| Ok((id_of(id)?, line_of(form, name, value, number)?)));
    Ok(LearnBody::Lines(lines.collect::<Result<_, RequestError>>()?))
}

/// Lines of CSV as objects. The first one is the header.
fn rows_of(lines: &[LazyValue<'_>]) -> Result<Vec<String>, RequestError> {
    let text = lines.iter().map(|line| line.as_str()).collect::<Option<Vec<_>>>();
    let text =
        text.ok_or_else(|| RequestError::bad("lines: a list of texts is needed, a header and then rows"))?;
    csv::objects(&text.join("\n"), None).map_err(|what| RequestError::Bad(format!("lines: {what}")))
}

fn of_labels(labels: &LazyValue<'_>) -> Result<Vec<(String, String)>, RequestError> {
    if !labels.is_object() {
        return Err(RequestError::bad("labels is no object: {\"labels\": {\"ID\": LABEL}} is needed"));
    }
    let mut all = Vec::new();
    for member in labels.clone().into_object_iter().into_iter().flatten() {
        let (id, label) = member.map_err(|error| no_json(&error))?;
        check_id(&id)?;
        all.push((id.to_string(), on_one_line(label.as_raw_str())));
    }
    Ok(all)
}
