//! The notes of a saved model, by their names.

use super::error::SavedModelError;
use crate::read::normalization::{Normalization, Normalize};
use gannet_core::{Checkpoint, JobManifest};
use std::path::Path;

/// What the notes of a model in a checkpoint of a job begin with. The other notes there are the job's.
pub const OF_MODEL: &str = "model.";

/// Notes about a model, by their names.
pub trait ModelNotes {
    /// The value of a note. `None`: there is no such note.
    fn note(&self, name: &str) -> Option<&str>;
}

impl ModelNotes for Checkpoint {
    fn note(&self, name: &str) -> Option<&str> {
        Checkpoint::note(self, name)
    }
}

impl ModelNotes for JobManifest {
    fn note(&self, name: &str) -> Option<&str> {
        let is_this = |of: &str| of.strip_prefix(OF_MODEL) == Some(name);
        self.notes.iter().find(|(of, _)| is_this(of)).map(|(_, value)| value.as_str())
    }
}

/// Notes about the model of a run that trains on servers: names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunNotes(pub Vec<(String, String)>);

impl ModelNotes for RunNotes {
    fn note(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }
}

impl RunNotes {
    /// A line for each note: its name, a blank, and its value, in which `\\` stands for a backslash and `\n` for the
    /// end of a line.
    pub fn lines(&self) -> String {
        let escaped = |value: &str| value.replace('\\', "\\\\").replace('\n', "\\n");
        self.0.iter().map(|(name, value)| format!("{name} {}\n", escaped(value))).collect()
    }

    /// The notes of such lines.
    pub fn of_lines(lines: &str) -> RunNotes {
        let note = |line: &str| {
            let (name, escaped) = line.split_once(' ')?;
            let (mut value, mut signs) = (String::new(), escaped.chars());
            while let Some(sign) = signs.next() {
                value.push(match sign {
                    '\\' if signs.next()? == 'n' => '\n',
                    sign => sign,
                });
            }
            Some((name.to_owned(), value))
        };
        RunNotes(lines.lines().filter_map(note).collect())
    }
}

/// The tables to which each batch pushes, by their names in the run, with blanks between them.
pub const BATCH_TABLES: &str = "batch-tables";

/// The scaling of numbers.
pub const SCALE: &str = "scale";

/// Whether the model has an intercept: 1 or 0.
pub const INTERCEPT: &str = "intercept";

/// Crosses of named columns, a line each.
pub const CROSSES: &str = "crosses";

/// Crosses of letters, a line each.
pub const LETTER_CROSSES: &str = "letter-crosses";

/// The ids of the fields for which the model has vectors, with commas between them.
pub const FIELDS: &str = "fields";

/// Whether the values of features were normalized: on or off.
pub const NORMALIZE: &str = "normalize";

/// What the values of features became, a line each.
pub const NORMALIZED_FEATURES: &str = "normalized-features";

/// The names of features, a line each (`--keep-names`).
pub const NAMES: &str = "feature-names";

/// The note [`FIELDS`] of these fields.
pub fn note_of_fields(ids: &[u64]) -> String {
    ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// The fields in such a note.
pub fn fields_of_note(note: &str) -> Vec<u64> {
    note.split(',').filter_map(|id| id.parse().ok()).collect()
}

/// How the training of a model ended, if it ended early. Models of earlier versions do not say.
pub fn ended(notes: &dyn ModelNotes) -> Option<String> {
    let early = notes.note("complete") == Some("0");
    early.then(|| notes.note("ended").unwrap_or("for a reason that it does not say").to_owned())
}

/// The normalization in the notes of a model. Models of earlier versions have none.
///
/// # Errors
/// The note is damaged.
pub fn normalization(notes: &dyn ModelNotes, folder: &Path) -> Result<Normalize, SavedModelError> {
    if notes.note(NORMALIZE) != Some("on") {
        return Ok(Normalize::off());
    }
    let known = Normalization::of_lines(notes.note(NORMALIZED_FEATURES).unwrap_or_default());
    let damaged = || SavedModelError::Normalization { folder: folder.display().to_string() };
    Ok(Normalize::by(known.ok_or_else(damaged)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn notes_of_a_run_come_back(values in prop::collection::vec("[a-z\\\\ \n\u{e9}]{0,12}", 0..6)) {
            let notes = RunNotes((0..).zip(values).map(|(at, value): (u32, _)| (format!("note{at}"), value)).collect());
            prop_assert_eq!(RunNotes::of_lines(&notes.lines()), notes);
        }
    }
}
