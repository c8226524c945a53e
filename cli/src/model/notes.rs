//! The notes of a saved model: how its data was read, and how its training ended.

use crate::failure::Failure;
use crate::flags::DataArgs;
use crate::input;
use crate::model::{kept_names, saves};
use crate::train::normalize;
use gannet::storage::CheckpointWriter;
use gannet::train::saved::{CROSSES, INTERCEPT, LETTER_CROSSES, SCALE};
use gannet::train::{Columns, Counts, Crosses, Data, Reader};

/// The run of a job whose best model this is so far, and its validation loss.
pub const BEST: &str = "best-validation";

/// The note `scale` of a job without `--scale`.
pub const NOT_SCALED: &str = "none";

/// The notes in a saved model.
pub struct Notes<'a> {
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'a str,
    /// The columns of a CSV file.
    pub columns: Option<&'a Columns>,
    /// The features that the numbers of Criteo's logs became.
    pub counts: Counts,
    /// Products of features.
    pub crosses: Crosses,
    /// Whether the model has an intercept.
    pub intercept: bool,
    /// How its training ended, if it ended early.
    pub ended: Option<String>,
    /// The note [`BEST`].
    pub best: Option<String>,
}

/// What a job on servers says about its model, for who scores with its rows: its structure, and how data is read. Rows
/// alone do not show it. Empty: the model does not score, or the data comes only once and nobody has seen it.
pub fn of_job(
    flags: &DataArgs,
    data: &Data,
    shape: &[(&'static str, String)],
) -> Result<Vec<(String, String)>, Failure> {
    // What is wrong with the data, the training says.
    let Some(found) = Reader::look(data).ok().flatten().filter(|_| !shape.is_empty()) else {
        return Ok(Vec::new());
    };
    let reading = Notes {
        format: found.format,
        columns: found.columns.as_ref(),
        counts: input::counts(&flags.input),
        crosses: input::crosses(&flags.input)?,
        intercept: !flags.no_intercept,
        ended: None,
        best: None,
    };
    let mut notes: Vec<(String, String)> =
        shape.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    reading.write_reading(&mut |name, value| notes.push((name.to_owned(), value.to_owned())));
    Ok(notes)
}

/// How a training ended, if a signal stopped it or workers are missing.
pub fn ended_how(stopped: bool, examples: u64, missing: &[u32]) -> Option<String> {
    let ranks = || missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match (stopped, missing) {
        (true, _) => Some(format!("a signal stopped it after {examples} examples")),
        (false, []) => None,
        (false, [_]) => Some(format!("worker {} did not train its share of the data", ranks())),
        (false, _) => Some(format!("workers {} did not train their shares of the data", ranks())),
    }
}

impl Notes<'_> {
    /// Writes all notes of a saved model.
    pub fn write(&self, writer: &mut CheckpointWriter) {
        self.write_reading(&mut |name, value| writer.note(name, value));
        if let Some(best) = &self.best {
            writer.note(BEST, best);
        }
        normalize::note(writer);
        kept_names::note(writer);
        saves::note(writer, self.ended.as_deref());
    }

    /// Passes on the notes about how the data was read: names and values.
    pub fn write_reading(&self, note: &mut dyn FnMut(&str, &str)) {
        note("format", self.format);
        note(INTERCEPT, if self.intercept { "1" } else { "0" });
        if self.format == "criteo" {
            note("criteo-counts", if self.counts == Counts::Log { "log" } else { "buckets" });
        }
        let (named, lettered) = self.crosses.texts();
        for (name, texts) in [(CROSSES, named), (LETTER_CROSSES, lettered)] {
            if !texts.is_empty() {
                note(name, &texts.join("\n"));
            }
        }
        if let Some(columns) = self.columns {
            note("label", columns.label.as_deref().unwrap_or_default());
            for (name, column) in [("offset", &columns.offset), ("importance", &columns.importance)] {
                if let Some(column) = column {
                    note(name, column);
                }
            }
            note("categorical", &columns.categorical.join("\n"));
            note("numeric", &columns.numeric.join("\n"));
            note("both", &columns.both.join("\n"));
            if columns.others {
                note("others", "1");
                note("ignored", &columns.ignored.join("\n"));
            }
            // A line for each column, in the order of `numeric`: its center and spread.
            note(SCALE, columns.scale.kind.name());
            note("scale-columns", &columns.scale.lines());
        }
        if let Some(two) = input::known_two() {
            note("positive", two.positive());
            note("negative", &two.other().unwrap_or_default());
        }
    }
}
