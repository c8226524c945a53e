//! Saved models: the folders that `gannet train --out` writes, read to score with. [`load_model`] reads one. Its notes
//! say its [`Shape`] and how its data was read ([`DataReading`]).

mod error;
mod folder;
mod job_checkpoint;
mod job_model;
mod kinds;
mod learned;
mod loss;
mod lr;
mod model;
mod notes;
mod reading;
mod row_state;
mod shape;

pub use error::SavedModelError;
pub use folder::{folder_of_save, table_folder};
pub use job_checkpoint::JobCheckpoint;
pub use job_model::{JobTables, load_job_model};
pub use kinds::{build, schemas_of};
pub use learned::LearnedFeature;
pub use loss::LossName;
pub use lr::{must_be_lr, weight_of};
pub use model::{SavedModel, intercept_of, load_model};
pub use notes::{
    BATCH_TABLES, CROSSES, FIELDS, INTERCEPT, LETTER_CROSSES, ModelNotes, NAMES, NORMALIZE,
    NORMALIZED_FEATURES, OF_MODEL, RunNotes, SCALE, ended, fields_of_note, normalization, note_of_fields,
};
pub use reading::{DataReading, reading};
pub use row_state::{fresh_segment, segment_weights, weights_of_row};
pub use shape::{Shape, generation};
