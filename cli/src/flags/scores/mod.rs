//! The flags of the commands that look at a trained model.

pub mod export;
pub mod inspect;
pub mod predict;

pub use export::ModelExportArgs;
pub use inspect::InspectArgs;
pub use predict::PredictArgs;
