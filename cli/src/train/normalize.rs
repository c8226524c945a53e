//! `--normalize`: whether the values of features are brought to one size, and by which numbers. A saved model has them
//! in its notes.

use crate::failure::Failure;
use crate::flags::{ModelName, NormalizeName, OptimizerName, TrainArgs};
use crate::model::notes::{NORMALIZE, NORMALIZED_FEATURES};
use gannet::storage::{Checkpoint, CheckpointWriter};
use gannet::train::{Normalization, Normalize};
use std::path::Path;
use std::sync::OnceLock;

/// The normalization of the training of this process, which all its readers share.
static OF_PROCESS: OnceLock<Normalize> = OnceLock::new();

/// The normalization of the training, as its flags say. The first call decides.
pub fn of_training(args: &TrainArgs) -> Normalize {
    let lbfgs = args.optimizer.optimizer == Some(OptimizerName::Lbfgs);
    let learns_online = args.model.model != ModelName::Lda && !lbfgs;
    let of = || match args.data.normalize {
        NormalizeName::On if learns_online => Normalize::by_first_examples(),
        _ => Normalize::off(),
    };
    OF_PROCESS.get_or_init(of).clone()
}

/// Writes the notes of a model that this process has trained.
pub fn note(writer: &mut CheckpointWriter) {
    let known = OF_PROCESS.get().and_then(Normalize::known);
    writer.note(NORMALIZE, if known.is_some() { "on" } else { "off" });
    if let Some(known) = known {
        writer.note(NORMALIZED_FEATURES, &known.lines());
    }
}

/// The normalization in the notes of a model. Models of earlier versions have none.
pub fn noted(checkpoint: &Checkpoint, folder: &Path) -> Result<Normalize, Failure> {
    if checkpoint.note(NORMALIZE) != Some("on") {
        return Ok(Normalize::off());
    }
    let known = Normalization::of_lines(checkpoint.note(NORMALIZED_FEATURES).unwrap_or_default());
    let known = known.ok_or_else(|| {
        let folder = folder.display();
        Failure::input(format!(
            "{folder}: the note {NORMALIZED_FEATURES} is damaged, so values cannot be normalized as they were in the \
             training; use another copy of the model"
        ))
    })?;
    Ok(Normalize::by(known))
}
