//! Looks at the folders of models, and loads what is new in them.

use super::catalog::Catalog;
use super::served::ServedModel;
use super::slot::Slot;
use crate::limits::LOOK_EVERY;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

/// What changes when a folder has another model: the manifest, which a save replaces last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Mark {
    /// `None`: there is no model.
    fn of(folder: &Path) -> Option<Mark> {
        let found = std::fs::metadata(folder.join("MANIFEST")).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        Some(Mark { inode: found.ino(), bytes: found.len(), modified })
    }
}

/// A thread that looks. Dropping it ends the thread.
pub struct ModelWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ModelWatch {
    /// Starts to look at the folders of all models. `catalog` has loaded them just now.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(catalog: Arc<Catalog>) -> io::Result<ModelWatch> {
        let (stop, stopped) = channel();
        // A save between the load and this look is found by its version.
        let mut seen: Vec<Option<Mark>> = vec![None; catalog.slots().len()];
        let run = move || {
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                for (slot, seen) in catalog.slots().iter().zip(&mut seen) {
                    look(slot, seen);
                }
            }
        };
        let thread = std::thread::Builder::new().name("gannet-models".into()).spawn(run)?;
        Ok(ModelWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ModelWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that loads models has panicked");
        }
    }
}

/// Loads the model of a folder if it has changed. One that cannot be loaded is named once, and the former one stays.
fn look(slot: &Slot, seen: &mut Option<Mark>) {
    let mark = Mark::of(&slot.folder);
    if mark == *seen {
        return;
    }
    let name = &slot.name;
    match ServedModel::load(&slot.folder) {
        // Another save began meanwhile: the next look finds it.
        Ok(_) if Mark::of(&slot.folder) != mark => return,
        Ok(model) => {
            slot.is_behind.store(false, Relaxed);
            let former = slot.current().version.clone();
            if model.version != former {
                tracing::info!(name, version = model.version, former, "a new model is served");
                slot.replace(model);
            }
        }
        Err(error) => {
            slot.refused.fetch_add(1, Relaxed);
            slot.is_behind.store(true, Relaxed);
            let version = &slot.current().version;
            tracing::error!(name, version, %error, "the new model cannot be loaded: the former one is served");
        }
    }
    *seen = mark;
}
