//! Why a saved model cannot be read.

use super::notes::NORMALIZED_FEATURES;
use gannet_core::CheckpointError;

/// Why a saved model cannot be read, or not for this data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedModelError {
    /// The folder has no model, or a file of it cannot be read or is damaged.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A newer version wrote the model.
    #[error(
        "{folder}: was trained on {format}, a format that this version of gannet does not know; use the version that \
         wrote it"
    )]
    UnknownFormat {
        /// The folder of the model.
        folder: String,
        /// The name of the format.
        format: String,
    },
    /// A note is damaged: that of the crosses.
    #[error("{folder}: the crosses: {what}")]
    Crosses {
        /// The folder of the model.
        folder: String,
        /// What is wrong with them.
        what: String,
    },
    /// A note is damaged: that of the normalization.
    #[error(
        "{folder}: the note {NORMALIZED_FEATURES} is damaged, so values cannot be normalized as they were in the \
         training; use another copy of the model"
    )]
    Normalization {
        /// The folder of the model.
        folder: String,
    },
    /// The tables do not fit the notes, or each other.
    #[error("{folder}: {what}; the model cannot be used, take another")]
    Unfit {
        /// The folder of the model.
        folder: String,
        /// What does not fit.
        what: String,
    },
    /// A checkpoint of a job has no such model, or cannot be read: in words.
    #[error("{0}")]
    Job(String),
    /// The model is of a kind that the caller cannot use.
    #[error("{folder}: holds {kind} of dim {dim}; {readable}")]
    OtherKind {
        /// The folder of the model.
        folder: String,
        /// The kind of the model.
        kind: String,
        /// The weights of the first segment of a row.
        dim: u32,
        /// Which models the caller can use.
        readable: &'static str,
    },
    /// The features of the data mean nothing in the model.
    #[error(
        "{data} is {found}, and the model in {folder} was trained on {own}: the features of one mean nothing in the \
         other; score {own}, or say --format {own} if it is that"
    )]
    OtherFormat {
        /// The folder of the model.
        folder: String,
        /// The name of the data.
        data: String,
        /// The format of the data.
        found: &'static str,
        /// The format that the model was trained on.
        own: &'static str,
    },
}
