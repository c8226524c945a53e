//! The notes of a saved model: how its data was read, and how its training ended.

use crate::input;
use crate::model::{kept_names, saves};
use crate::train::normalize;
use gannet::storage::CheckpointWriter;
use gannet::train::saved::{CROSSES, INTERCEPT, LETTER_CROSSES, SCALE};
use gannet::train::{Columns, Counts, Crosses};

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
