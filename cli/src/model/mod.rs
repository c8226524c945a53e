//! Models: their flags, and their folders.

pub mod folder;
pub mod kinds;
pub mod labels;
pub mod lr;
pub mod notes;
pub mod optimizer;
pub mod out_folder;
pub mod reading;
pub mod row_state;
pub mod row_type;
pub mod saved;
pub mod saves;
pub mod shape;
pub mod warm_source;
pub mod warm_start;
