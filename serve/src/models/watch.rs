//! Looks at the sources of models, and loads what is new in them.

use super::catalog::Catalog;
use super::origin::Mark;
use super::slot::Slot;
use crate::limits::{LOOK_EVERY, RELOAD_AFTER};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// What a source had when it was looked at.
struct Seen {
    mark: Option<Mark>,
    looked: Instant,
    /// When the model there could not be loaded.
    failed: Option<Instant>,
}

/// A thread that looks. Dropping it ends the thread.
pub struct ModelWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ModelWatch {
    /// Starts to look at the sources of all models. `catalog` has loaded them just now.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(catalog: Arc<Catalog>) -> io::Result<ModelWatch> {
        let (stop, stopped) = channel();
        let first = |slot: &Arc<Slot>| Seen { mark: slot.first, looked: Instant::now(), failed: None };
        let mut all: Vec<Seen> = catalog.slots().iter().map(first).collect();
        let run = move || {
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                for (slot, seen) in catalog.slots().iter().zip(&mut all) {
                    if seen.looked.elapsed() >= slot.origin.look_every() {
                        look(slot, seen);
                        seen.looked = Instant::now();
                    }
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

/// Loads the model of a source if there is a new one. One that cannot be loaded is named, and the former one stays. It
/// is tried again after a while: the reason may have been one of the moment.
fn look(slot: &Slot, seen: &mut Seen) {
    let (mark, name) = (slot.origin.mark(), &slot.name);
    if mark == seen.mark && seen.failed.is_none_or(|failed| failed.elapsed() < RELOAD_AFTER) {
        return;
    }
    match slot.origin.load() {
        // Another save began meanwhile: the next look finds it.
        Ok(_) if slot.origin.mark() != mark => return,
        Ok(model) => {
            slot.is_behind.store(false, Relaxed);
            seen.failed = None;
            let former = slot.current().version.clone();
            if model.version != former {
                tracing::info!(name, version = model.version, former, "a new model is served");
                slot.replaced.fetch_add(1, Relaxed);
            }
            // One with the same content may be of a later save.
            slot.replace(model);
        }
        Err(error) => {
            slot.refused.fetch_add(1, Relaxed);
            slot.is_behind.store(true, Relaxed);
            seen.failed = Some(Instant::now());
            let version = &slot.current().version;
            tracing::error!(name, version, %error, "the new model cannot be loaded: the former one is served");
        }
    }
    seen.mark = mark;
}
