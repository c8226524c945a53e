//! The place of one name: the model that has it now.

use super::served::ServedModel;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};

/// The model with a name. A request takes the [current](Self::current) one and keeps it until its answer is whole.
pub struct Slot {
    /// The name.
    pub name: String,
    /// Where the model comes from.
    pub folder: PathBuf,
    current: RwLock<Arc<ServedModel>>,
    /// How often a new model took the place of another.
    pub replaced: AtomicU64,
    /// How often a new model could not be loaded.
    pub refused: AtomicU64,
    /// Whether what is in the folder now could not be loaded.
    pub is_behind: AtomicBool,
}

impl Slot {
    /// A slot with its first model.
    pub fn new(name: &str, folder: PathBuf, model: ServedModel) -> Slot {
        Slot {
            name: name.to_owned(),
            folder,
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
        self.replaced.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
