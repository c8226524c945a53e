//! Models: their flags, and their folders.

pub mod folder;
pub mod kept_names;
pub mod labels;
pub mod lr;
pub mod notes;
pub mod optimizer;
pub mod out_folder;
pub mod row_type;
pub mod same_reading;
pub mod saves;
pub mod warm_source;
pub mod warm_start;
