//! The models that are served: which one has a name now, and how a new one takes its place.

mod catalog;
mod follow;
mod origin;
mod served;
mod slot;
mod watch;

pub use catalog::{Catalog, Chosen};
pub use follow::{FollowedServers, Following, NotesOfRun};
pub use origin::ModelOrigin;
pub use served::{ServedModel, TextForm};
pub use slot::Slot;
pub use watch::ModelWatch;
