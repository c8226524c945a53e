//! A request for predictions whose features are kept for its labels (`--join-window`).

use super::app::App;
use crate::learn::{Learning, LineForm, kept_lines};
use crate::models::ServedModel;

/// Where the features of a request are kept, and under which id.
#[derive(Clone, Copy)]
pub struct Keeping<'a> {
    learning: &'a Learning,
    id: &'a str,
}

impl<'a> Keeping<'a> {
    /// `None`: features are not kept, the request has no id, or the model has lines of another form than the one that
    /// learns.
    pub fn of(app: &'a App, id: Option<&'a str>, model: &ServedModel) -> Option<Keeping<'a>> {
        let learning = app.learning.as_deref().filter(|learning| learning.keeps())?;
        let is_alike = LineForm::of(&model.saved.reading) == Ok(learning.form());
        Some(Keeping { learning, id: id.filter(|_| is_alike)? })
    }

    /// The lines of the request's examples.
    pub fn lines(&self, is_json: bool, delimiter: Option<u8>, text: &[u8]) -> Vec<String> {
        kept_lines(self.learning.form(), is_json, delimiter, text).unwrap_or_default()
    }

    /// Keeps these lines if there is one for each prediction. Returns how many are kept.
    pub fn keep(&self, lines: Vec<String>, predictions: usize) -> usize {
        if lines.len() == predictions { self.learning.keep(self.id, lines) } else { 0 }
    }
}
