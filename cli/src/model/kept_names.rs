//! `--keep-names`: the names of features in the notes of a saved model. A name is a text of the data, which training
//! does not keep, so the process that saves reads the data once more.

use crate::failure::Failure;
use crate::flags::TrainArgs;
use crate::input;
use crate::model::labels;
use gannet::storage::CheckpointWriter;
use gannet::train::limits::{NAMES_KEPT_BYTES_MAX, NAMES_KEPT_MAX};
use gannet::train::saved::NAMES;
use gannet::train::{Data, FeatureNames};
use std::sync::OnceLock;

/// The data of the training, if its model is to keep names.
static DATA: OnceLock<Data> = OnceLock::new();

/// The note, when the first save has made it. `None`: the data could not be read again.
static LINES: OnceLock<Option<String>> = OnceLock::new();

/// Keeps in mind which data names the features, if the flags ask for names.
///
/// # Errors
/// The data can be read only once.
pub fn prepare(args: &TrainArgs) -> Result<(), Failure> {
    if !args.output.keep_names {
        return Ok(());
    }
    let mut data = input::data(&args.data.files, &args.data.input, !args.data.no_intercept)?;
    data.labels = labels::labels(&args.model, &args.data.input, data.labels)?;
    data.must_be_files("--keep-names").map_err(|error| Failure::input(error.to_string()))?;
    let _ = DATA.set(data);
    Ok(())
}

/// Writes the note, if names are kept. A model is saved without names rather than not at all.
pub fn note(writer: &mut CheckpointWriter) {
    let Some(data) = DATA.get() else { return };
    let lines = LINES.get_or_init(|| match FeatureNames::of_first(data, NAMES_KEPT_MAX) {
        Ok(names) => {
            let lines = names.lines(NAMES_KEPT_BYTES_MAX);
            let kept = lines.lines().count();
            if kept == 0 {
                notice!("gannet: --keep-names: the features of this data have ids, and no names that could be kept");
            } else if names.len() == NAMES_KEPT_MAX || kept < names.len() {
                notice!("gannet: --keep-names: the model keeps the names of {kept} features; the others have their keys");
            }
            Some(lines)
        }
        Err(error) => {
            notice!("gannet: --keep-names: the model is saved without names: reading the data again: {error}");
            None
        }
    });
    if let Some(lines) = lines {
        writer.note(NAMES, lines);
    }
}
