//! Models: their flags, and their folders.

pub mod lr;
pub mod optimizer;
pub mod out_folder;
pub mod row_state;
pub mod row_type;
pub mod saves;
pub mod tables;
pub mod warm_source;
pub mod warm_start;
