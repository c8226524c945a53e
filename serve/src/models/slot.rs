//! The place of one name: the model that has it now.

use super::origin::{Mark, ModelOrigin};
use super::served::ServedModel;
use gannet::train::saved::SavedModelError;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};

/// The model with a name. A request takes the [current](Self::current) one and keeps it until its answer is whole.
pub struct Slot {
    /// The name.
    pub name: String,
    /// Where the model comes from.
    pub origin: ModelOrigin,
    /// What the source had before the first model was loaded.
    pub first: Option<Mark>,
    current: RwLock<Arc<ServedModel>>,
    /// How often a new model took the place of another.
    pub replaced: AtomicU64,
    /// How often a new model could not be loaded.
    pub refused: AtomicU64,
    /// Whether the newest model of the source could not be loaded, or the servers are not followed now.
    pub is_behind: AtomicBool,
    /// Of a model that follows servers: how often it took over changes.
    pub taken_over: AtomicU64,
    /// Of a model that follows servers: the commands that it lacked before it took over changes the last time.
    pub lag_commands: AtomicU64,
}

impl Slot {
    /// A slot with the model that its source has now.
    ///
    /// # Errors
    /// As for [`ModelOrigin::load`].
    pub fn load(name: &str, origin: ModelOrigin) -> Result<Slot, SavedModelError> {
        let (first, model) = (origin.mark(), origin.load()?);
        Ok(Slot::new(name, origin, first, model))
    }

    fn new(name: &str, origin: ModelOrigin, first: Option<Mark>, model: ServedModel) -> Slot {
        Slot {
            name: name.to_owned(),
            origin,
            first,
            current: RwLock::new(Arc::new(model)),
            replaced: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
            taken_over: AtomicU64::new(0),
            lag_commands: AtomicU64::new(0),
        }
    }

    /// The model that answers now.
    pub fn current(&self) -> Arc<ServedModel> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another model in its place, and returns the former one. Requests that have begun end with that.
    pub fn replace(&self, model: ServedModel) -> Arc<ServedModel> {
        let model = Arc::new(model);
        // The caller drops it outside the lock: this may free much memory.
        std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), model)
    }
}
