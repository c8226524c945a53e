//! The models that are served: which one has a name now, and how a new one takes its place.

mod catalog;
mod served;
mod slot;
mod source;
mod watch;

pub use catalog::{Catalog, Chosen};
pub use served::{ServedModel, TextForm};
pub use slot::Slot;
pub use source::Source;
pub use watch::ModelWatch;
