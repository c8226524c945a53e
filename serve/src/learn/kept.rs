//! The lines of a request for predictions, as its labels will need them.

use super::csv;
use super::form::LineForm;

/// A line for each example of a text that was scored: JSON if `is_json`, else lines of the model's own format. `None`:
/// the text cannot be kept.
pub fn kept_lines(form: LineForm, is_json: bool, delimiter: Option<u8>, text: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(text).ok()?;
    let own = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match (form, is_json) {
        (LineForm::Json, false) => csv::objects(text, delimiter).ok(),
        (LineForm::Json, true) => Some(own.map(str::to_owned).collect()),
        (_, false) => Some(own.filter(|line| !line.starts_with('#')).map(str::to_owned).collect()),
        (_, true) => None,
    }
}
