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
    /// Whether the newest model of the source could not be loaded.
    pub is_behind: AtomicBool,
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
        }
    }

    /// The model that answers now.
    pub fn current(&self) -> Arc<ServedModel> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another model in its place. Requests that have begun end with the former one.
    pub fn replace(&self, model: ServedModel) {
        let model = Arc::new(model);
        let former =
            std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), model);
        // Outside the lock: this may free much memory.
        drop(former);
    }
}
