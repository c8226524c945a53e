//! Looks at the sources of models, and loads what is new in them.

use super::catalog::Catalog;
use super::follow::Following;
use super::origin::{Mark, ModelOrigin, locked};
use super::slot::Slot;
use crate::limits::{FOLLOW_EVERY, FOLLOW_LOG_EVERY, FOLLOW_RETRY_MAX, LOOK_EVERY, RELOAD_AFTER};
use gannet::train::saved::SavedModelError;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

/// What a source had when it was looked at.
struct Seen {
    mark: Option<Mark>,
    looked: Instant,
    /// When the model there could not be loaded.
    failed: Option<Instant>,
}

/// Threads that look: one at folders and checkpoints, and one for each model that follows servers. Dropping it ends
/// them.
pub struct ModelWatch {
    threads: Vec<(Sender<()>, JoinHandle<()>)>,
}

impl ModelWatch {
    /// Starts to look at the sources of all models. `catalog` has loaded them just now.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(catalog: Arc<Catalog>) -> io::Result<ModelWatch> {
        let mut watch = ModelWatch { threads: Vec::new() };
        for slot in catalog.slots().iter().cloned() {
            if let ModelOrigin::Servers(servers) = slot.origin.clone() {
                watch.spawn("gannet-follow", move |stopped| follow(&slot, &servers, &stopped))?;
            }
        }
        let slots = catalog.slots().iter().filter(|slot| !slot.origin.follows());
        let first = |slot: &Arc<Slot>| {
            (slot.clone(), Seen { mark: slot.first, looked: Instant::now(), failed: None })
        };
        let mut all: Vec<(Arc<Slot>, Seen)> = slots.map(first).collect();
        watch.spawn("gannet-models", move |stopped| {
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                for (slot, seen) in &mut all {
                    if seen.looked.elapsed() >= slot.origin.look_every() {
                        look(slot, seen);
                        seen.looked = Instant::now();
                    }
                }
            }
        })?;
        Ok(watch)
    }

    /// Starts a thread that ends when it hears nothing more from here.
    fn spawn(&mut self, name: &str, run: impl FnOnce(Receiver<()>) + Send + 'static) -> io::Result<()> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(stopped))?;
        self.threads.push((stop, thread));
        Ok(())
    }
}

impl Drop for ModelWatch {
    fn drop(&mut self) {
        for (stop, thread) in self.threads.drain(..) {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("a thread that loads models has panicked");
            }
        }
    }
}

/// Takes over the next changes of servers. A panic is a failure like others: all rows are read anew.
fn next(slot: &Slot, following: &mut Following) -> Result<u64, SavedModelError> {
    let taken = catch_unwind(AssertUnwindSafe(|| following.next(slot)));
    taken.unwrap_or_else(|_| {
        following.begin_anew();
        Err(SavedModelError::Job(format!("{}: its changes ended in a panic: report it", following.place())))
    })
}

/// Takes over the changes of servers until it is stopped. When they do not answer, the model of before is served.
fn follow(slot: &Slot, servers: &Mutex<Following>, stopped: &Receiver<()>) {
    let (mut pause, mut logged) = (FOLLOW_EVERY, None::<Instant>);
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let began = Instant::now();
        match next(slot, &mut locked(servers)) {
            Ok(commands) => {
                if slot.is_behind.swap(false, Relaxed) {
                    tracing::info!(name = slot.name, "the servers are followed again");
                }
                slot.taken_over.fetch_add(1, Relaxed);
                slot.lag_commands.store(commands, Relaxed);
                (pause, logged) = (FOLLOW_EVERY.saturating_sub(began.elapsed()), None);
            }
            Err(error) => {
                slot.refused.fetch_add(1, Relaxed);
                slot.is_behind.store(true, Relaxed);
                if logged.is_none_or(|at| at.elapsed() >= FOLLOW_LOG_EVERY) {
                    let age = SystemTime::now().duration_since(slot.current().saved_at).unwrap_or_default();
                    let age = format!("{:.1} s", age.as_secs_f64());
                    tracing::warn!(name = slot.name, age, %error, "the rows of before are served");
                    logged = Some(Instant::now());
                }
                pause = (pause.max(FOLLOW_EVERY) * 2).min(FOLLOW_RETRY_MAX);
            }
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
            drop(slot.replace(model));
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
