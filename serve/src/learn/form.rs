//! The lines of a folder that learns: how the model's training reads them, and where a label stands in them.

use crate::error::RequestError;
use gannet::train::saved::{DataReading, SavedModel};
use gannet::train::{Block, Data, Format, Reader, Share, TrainError};

/// Examples that are checked at once.
const CHECKED: usize = 1024;

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm {
    /// An object a line, with a member for each column.
    Json,
    /// `label id:value ...`, or `label field:id:value ...`.
    Numbered(Format),
    /// Text of Vowpal Wabbit.
    Vw,
}

impl LineForm {
    /// The form for a model.
    ///
    /// # Errors
    /// The model was trained on a format whose examples cannot be sent one by one. In words.
    pub fn of(reading: &DataReading) -> Result<LineForm, String> {
        match reading.format {
            format if format.has_columns() => {
                let has_label = reading.columns.as_ref().is_some_and(|columns| columns.label.is_some());
                match has_label {
                    true => Ok(LineForm::Json),
                    false => Err("the model does not say which column has the label".to_owned()),
                }
            }
            Format::Vw => Ok(LineForm::Vw),
            Format::Libsvm | Format::Libffm | Format::Auto => Ok(LineForm::Numbered(reading.format)),
            _ => Err(format!(
                "the model was trained on {}; examples are learned in csv, json, parquet and arrow (as JSON), libsvm, \
                 libffm and vw",
                reading.format_name()
            )),
        }
    }

    /// The format that a training of the lines is told, and the ending of its files.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            LineForm::Json => ("json", ".json"),
            LineForm::Numbered(Format::Libffm) => ("libffm", ".ffm"),
            LineForm::Numbered(_) => ("libsvm", ".svm"),
            LineForm::Vw => ("vw", ".vw"),
        }
    }

    fn format(self) -> Format {
        match self {
            LineForm::Json => Format::Json,
            LineForm::Numbered(Format::Libffm) => Format::Libffm,
            LineForm::Numbered(_) => Format::Libsvm,
            LineForm::Vw => Format::Vw,
        }
    }

    /// A line with this label. `label` is JSON: a number, a text, or for columns an object with several of them.
    /// `column` is the one of the label.
    ///
    /// # Errors
    /// The label is something else, in words.
    pub fn with_label(self, column: Option<&str>, line: &str, label: &str) -> Result<String, String> {
        let text = || match serde_json::from_str(label) {
            Ok(serde_json::Value::String(text)) if !text.contains('\n') => Ok(text),
            Ok(serde_json::Value::Number(_)) => Ok(label.to_owned()),
            _ => Err(format!("{label} is no label: a number or a text is needed")),
        };
        match self {
            LineForm::Json => with_members(column.unwrap_or_default(), line, label),
            LineForm::Vw => {
                let features = line.split_once('|').map_or("", |(_, features)| features);
                Ok(format!("{} |{features}", text()?))
            }
            LineForm::Numbered(_) => {
                let (first, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
                let features = if first.contains(':') { line } else { rest };
                Ok(format!("{} {features}", text()?))
            }
        }
    }
}

/// An object with other members: that of the label, or those of an object.
fn with_members(own: &str, line: &str, label: &str) -> Result<String, String> {
    let no_json = |error: sonic_rs::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    let mut set = Vec::new();
    if label.trim_start().starts_with('{') {
        for member in sonic_rs::to_object_iter(label) {
            let (name, value) = member.map_err(no_json)?;
            set.push((name.to_string(), value.as_raw_str().to_owned()));
        }
        if set.iter().all(|(name, _)| name != own) {
            return Err(format!("the object has no member {own:?}"));
        }
    } else {
        set.push((own.to_owned(), label.to_owned()));
    }
    let mut all = String::from("{");
    let mut put = |name: &str, value: &str| {
        all.push_str(if all.len() > 1 { "," } else { "" });
        all.push_str(&serde_json::Value::from(name).to_string());
        all.push(':');
        all.push_str(value);
    };
    for member in sonic_rs::to_object_iter(line) {
        let (name, value) = member.map_err(no_json)?;
        if set.iter().all(|(other, _)| *other != *name) {
            put(&name, value.as_raw_str());
        }
    }
    set.iter().for_each(|(name, value)| put(name, value));
    all.push('}');
    Ok(all)
}

/// How a training reads such lines. `named` is what messages call them.
fn data(model: &SavedModel, form: LineForm, named: &str, text: Vec<u8>) -> Result<Data, RequestError> {
    let mut data = Data { format: form.format(), ..Data::text(named, text) };
    data.intercept = model.reading.intercept;
    model.read_as(&mut data).map_err(|error| RequestError::Failed(error.to_string()))?;
    data.unlabelled = false;
    Ok(data)
}

/// How many examples with labels such lines have.
fn count(data: &Data) -> Result<usize, RequestError> {
    let (mut block, mut examples) = (Block::default(), 0);
    let mut reader = Reader::open(data, CHECKED, Share::ALL).map_err(TrainError::from)?;
    while reader.next(&mut block).map_err(TrainError::from)? {
        examples += block.labels.iter().filter(|label| !label.is_nan()).count();
    }
    Ok(examples)
}

/// Checks that a training can read each of these lines.
///
/// # Errors
/// One of them is no example with a label. The error has its number.
pub fn check(model: &SavedModel, form: LineForm, named: &str, lines: &[&str]) -> Result<(), RequestError> {
    if lines.is_empty() {
        return Ok(());
    }
    let text = lines.join("\n") + "\n";
    if count(&data(model, form, named, text.into_bytes())?)? == lines.len() {
        return Ok(());
    }
    // A line is read over: an empty one, a comment, or one without a label.
    for (number, line) in (1..).zip(lines) {
        let text = format!("{line}\n").into_bytes();
        if !matches!(data(model, form, named, text).and_then(|data| count(&data)), Ok(1)) {
            return Err(RequestError::Bad(format!(
                "{named}:{number}: is no example with a label; the line: {line:?}"
            )));
        }
    }
    Err(RequestError::bad("the lines are not one example each"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label of a line is replaced, or put before a line that has none.
    #[test]
    fn labels_are_put_where_they_stand() {
        let cases = [
            (LineForm::Numbered(Format::Libsvm), "1 3:0.5 4:1", "0", "0 3:0.5 4:1"),
            (LineForm::Numbered(Format::Libsvm), "3:0.5", "-1", "-1 3:0.5"),
            (LineForm::Numbered(Format::Libffm), "0:3:1", "1", "1 0:3:1"),
            (LineForm::Numbered(Format::Libsvm), "1", "0", "0 "),
            (LineForm::Vw, "|a x y:2", "1", "1 |a x y:2"),
            (LineForm::Vw, "-1 2 'tag|a x |b z", "\"1 0.5\"", "1 0.5 |a x |b z"),
        ];
        for (form, line, label, expected) in cases {
            assert_eq!(form.with_label(None, line, label).unwrap(), expected, "{line}");
        }
        for label in ["null", "[1]", "\"a\nb\"", "{\"label\": 1}"] {
            assert!(
                LineForm::Vw.with_label(None, "|a x", label).unwrap_err().contains("is no label"),
                "{label}"
            );
        }
    }

    #[test]
    fn members_are_replaced_and_the_others_stay_as_they_are() {
        let set = |line: &str, label: &str| LineForm::Json.with_label(Some("y"), line, label);
        assert_eq!(set("{\"a\": 1.50, \"y\": 3}", "0").unwrap(), "{\"a\":1.50,\"y\":0}");
        assert_eq!(set("{}", "\"yes\"").unwrap(), "{\"y\":\"yes\"}");
        let both = set("{\"w\": 1, \"b c\": [\"x\"]}", "{\"y\": 1, \"w\": 2}").unwrap();
        assert_eq!(both, "{\"b c\":[\"x\"],\"y\":1,\"w\":2}");
        assert!(set("{}", "{\"w\": 2}").unwrap_err().contains("has no member \"y\""));
    }
}
