//! The examples of a request: its tensors as the data that the model reads.
//!
//! There are three forms. A tensor for each column of a table, with one element for each example. Or one tensor `line`,
//! with a line of the training format for each example. Or features by their keys: `ids` and `values`, of shape
//! `[examples, features]`, and `fields` for models with vectors by field, as in the ONNX file of the model.

use super::datum::Datum;
use super::tensor::Tensor;
use crate::error::RequestError;
use crate::models::{ServedModel, TextForm};
use gannet::train::{Columns, CsrRows, Data, INTERCEPT_KEY};
use std::io::Write;
use std::sync::Arc;

/// The name of the tensor of lines.
pub const LINE: &str = "line";

/// The data that the inputs of a request say, and how many examples it has.
///
/// # Errors
/// The model has other inputs, or an element cannot be what its input is.
pub fn data_of(model: &ServedModel, inputs: &[Tensor]) -> Result<(Data, usize), RequestError> {
    let find = |name: &str| inputs.iter().find(|tensor| tensor.name == name);
    let columns = model.saved.reading.columns.as_ref().filter(|_| model.saved.reading.format.has_columns());
    if let Some(twice) =
        inputs.iter().enumerate().find(|(at, t)| inputs[..*at].iter().any(|u| u.name == t.name))
    {
        return Err(RequestError::Bad(format!("input {:?} is there twice", twice.1.name)));
    }
    let is_column = |name: &str| columns.is_some_and(|of| columns_of(of).any(|column| column == name));
    match (find("ids"), columns, find(LINE)) {
        (Some(ids), ..) if !is_column("ids") => of_keys(model, ids, inputs),
        (_, Some(columns), _) => of_columns(model, columns, inputs),
        (_, None, Some(line)) if inputs.len() == 1 => of_lines(model, line),
        _ => {
            let own = model.saved.reading.format_name();
            let names: Vec<&str> = inputs.iter().map(|tensor| &*tensor.name).collect();
            Err(RequestError::Bad(format!(
                "the inputs are {names:?}; this model reads {LINE:?} (lines of {own}), or \"ids\" and \"values\""
            )))
        }
    }
}

/// The columns that a request must have.
pub fn columns_of(columns: &Columns) -> impl Iterator<Item = &String> {
    let Columns { categorical, numeric, both, offset, .. } = columns;
    categorical.iter().chain(numeric).chain(both).chain(offset)
}

/// A tensor for each column.
fn of_columns(
    model: &ServedModel,
    columns: &Columns,
    inputs: &[Tensor],
) -> Result<(Data, usize), RequestError> {
    let missing: Vec<&String> =
        columns_of(columns).filter(|name| !inputs.iter().any(|tensor| tensor.name == **name)).collect();
    if !missing.is_empty() {
        return Err(RequestError::Bad(format!(
            "inputs are missing: {missing:?}; a value that is not known is null, NaN, or an empty text"
        )));
    }
    let is_known = |name: &String| columns_of(columns).any(|column| column == name) || columns.takes(name);
    if let Some(other) = inputs.iter().find(|tensor| !is_known(&tensor.name)) {
        let all: Vec<&String> = columns_of(columns).collect();
        return Err(RequestError::Bad(format!(
            "the model has no column {:?}; its columns are {all:?}",
            other.name
        )));
    }
    let mut names = Vec::new();
    let mut examples = None;
    for tensor in inputs {
        let count = tensor.column().filter(|count| examples.is_none_or(|all| all == *count));
        let Some(count) = count else {
            return Err(RequestError::Bad(format!(
                "input {:?} has the shape {:?}; each column has one value an example: [examples] or [examples, 1]",
                tensor.name, tensor.shape
            )));
        };
        examples = Some(count);
        names.push(serde_json::to_string(&tensor.name).unwrap_or_default());
    }
    let mut text = Vec::new();
    for example in 0..examples.unwrap_or(0) {
        let mut open = b'{';
        for (tensor, name) in inputs.iter().zip(&names) {
            let datum = &tensor.elements[example];
            if is_missing(datum) {
                continue;
            }
            text.push(open);
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            put_json(&mut text, datum).map_err(|what| of_element(&tensor.name, example, &what))?;
            open = b',';
        }
        text.extend_from_slice(if open == b'{' { b"{}\n" } else { b"}\n" });
    }
    Ok((model.data(TextForm::Json, text)?, examples.unwrap_or(0)))
}

fn of_element(name: &str, at: usize, what: &str) -> RequestError {
    RequestError::Bad(format!("input {name:?}: element {at} {what}"))
}

fn is_missing(datum: &Datum) -> bool {
    match datum {
        Datum::Missing => true,
        Datum::Single(x) => x.is_nan(),
        Datum::Double(x) => x.is_nan(),
        Datum::Text(text) => text.is_empty(),
        _ => false,
    }
}

/// Appends an element as JSON. A whole number is written without a point, whatever its type.
fn put_json(text: &mut Vec<u8>, datum: &Datum) -> Result<(), String> {
    const WHOLE_MAX: f64 = (1u64 << 53) as f64;
    let mut whole = itoa::Buffer::new();
    let mut number = zmij::Buffer::new();
    let is_whole = |x: f64| x.fract() == 0.0 && x.abs() <= WHOLE_MAX;
    match datum {
        Datum::Missing => text.extend_from_slice(b"null"),
        Datum::Bool(x) => text.extend_from_slice(if *x { b"true" } else { b"false" }),
        Datum::Signed(x) => text.extend_from_slice(whole.format(*x).as_bytes()),
        Datum::Unsigned(x) => text.extend_from_slice(whole.format(*x).as_bytes()),
        Datum::Single(x) if !x.is_finite() => return Err(format!("is {x}: a number must be finite")),
        Datum::Double(x) if !x.is_finite() => return Err(format!("is {x}: a number must be finite")),
        Datum::Single(x) if is_whole(f64::from(*x)) => {
            text.extend_from_slice(whole.format(*x as i64).as_bytes());
        }
        Datum::Double(x) if is_whole(*x) => text.extend_from_slice(whole.format(*x as i64).as_bytes()),
        Datum::Single(x) => text.extend_from_slice(number.format(*x).as_bytes()),
        Datum::Double(x) => text.extend_from_slice(number.format(*x).as_bytes()),
        Datum::Text(x) => serde_json::to_writer(&mut *text, x).map_err(|error| error.to_string())?,
    }
    Ok(())
}

/// A line for each example.
fn of_lines(model: &ServedModel, line: &Tensor) -> Result<(Data, usize), RequestError> {
    if line.column().is_none() {
        let shape = &line.shape;
        return Err(RequestError::Bad(format!("input {LINE:?} has the shape {shape:?}; it is [examples]")));
    }
    let mut text = Vec::new();
    for (at, element) in line.elements.iter().enumerate() {
        let Datum::Text(own) = element else {
            return Err(of_element(LINE, at, "is no text: the type of lines is BYTES"));
        };
        let own = own.strip_suffix('\n').unwrap_or(own);
        if own.trim().is_empty() || own.contains('\n') {
            return Err(of_element(LINE, at, "is not one line"));
        }
        let _ = writeln!(text, "{own}");
    }
    Ok((model.data(TextForm::Own, text)?, line.elements.len()))
}

/// Features by their keys.
fn of_keys(model: &ServedModel, ids: &Tensor, inputs: &[Tensor]) -> Result<(Data, usize), RequestError> {
    let ([examples, width] | [examples, width, 1]) = ids.shape[..] else {
        let shape = &ids.shape;
        return Err(RequestError::Bad(format!(
            "input \"ids\" has the shape {shape:?}; it is [examples, features]"
        )));
    };
    let like_ids = |name: &str| match inputs.iter().find(|tensor| tensor.name == name) {
        Some(tensor) if tensor.shape == ids.shape => Ok(tensor),
        Some(tensor) => Err(RequestError::Bad(format!(
            "input {name:?} has the shape {:?}, and \"ids\" {:?}: they must be equal",
            tensor.shape, ids.shape
        ))),
        None => Err(RequestError::Bad(format!("input {name:?} is missing: each id needs one"))),
    };
    let values = like_ids("values")?;
    let fields = model.saved.reading.fields.is_some().then(|| like_ids("fields")).transpose()?;
    let known = 2 + usize::from(fields.is_some());
    if inputs.len() > known {
        return Err(RequestError::Bad(
            "there are inputs besides \"ids\", \"values\" and, for models with vectors by field, \"fields\""
                .into(),
        ));
    }
    let (examples, width) = (examples as usize, width as usize);
    if width == 0 {
        return Err(RequestError::bad("input \"ids\" has no features: -1 stands for none"));
    }
    if model.saved.reading.columns.as_ref().is_some_and(|columns| columns.offset.is_some()) {
        return Err(RequestError::bad(
            "the model has a column of offsets, which ids do not say: send columns",
        ));
    }
    let (mut indptr, mut keys, mut floats, mut of_fields) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    for example in 0..examples {
        for at in example * width..(example + 1) * width {
            let key = key_of("ids", at, &ids.elements[at])?;
            if key == INTERCEPT_KEY {
                continue;
            }
            keys.push(key);
            floats.push(float_of("values", at, &values.elements[at])?);
            if let Some(fields) = fields {
                of_fields.push(key_of("fields", at, &fields.elements[at])?);
            }
        }
        indptr.push(keys.len() as u64);
    }
    let rows = CsrRows::new(indptr, keys, floats, vec![f32::NAN; examples], Vec::new())
        .and_then(|rows| if fields.is_some() { rows.of_columns(of_fields) } else { Ok(rows) });
    let rows = rows.map_err(RequestError::Bad)?.named("the request");
    Ok((Data { source: Some(Arc::new(rows)), ..model.keys.clone() }, examples))
}

fn key_of(name: &str, at: usize, datum: &Datum) -> Result<u64, RequestError> {
    match datum {
        Datum::Signed(x) => Ok(*x as u64),
        Datum::Unsigned(x) => Ok(*x),
        _ => Err(of_element(name, at, "is no whole number: the type is INT64 or UINT64")),
    }
}

fn float_of(name: &str, at: usize, datum: &Datum) -> Result<f32, RequestError> {
    match datum {
        Datum::Single(x) => Ok(*x),
        Datum::Double(x) => Ok(*x as f32),
        Datum::Signed(x) => Ok(*x as f32),
        Datum::Unsigned(x) => Ok(*x as f32),
        _ => Err(of_element(name, at, "is no number")),
    }
}
