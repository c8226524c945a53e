//! The health of a server's threads. If one dies, the whole server ends: the other threads end as a kill would end
//! them, the sessions close, and whoever waits for the end learns which thread it was, and why.

use crate::error::ServerError;
use crate::limits::DEATH_TIME;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

type EndHook = Box<dyn FnOnce(&str) + Send>;

/// What to do when a thread has died.
const AGAIN: &str =
    "images in a data folder are as a kill leaves them: start the server again on the same folder";

/// Waits for the end of a thread.
pub(crate) fn join_thread<T>(handle: JoinHandle<Result<T, ServerError>>) -> Result<T, ServerError> {
    let name = handle.thread().name().unwrap_or("of the server").to_owned();
    handle.join().map_err(|_| ServerError::Died(format!("thread {name} panicked"))).flatten()
}

/// What the threads of a server share about their end.
#[derive(Default)]
pub(crate) struct ThreadHealth {
    /// Every thread must end.
    ending: AtomicBool,
    /// A thread has died: the server does not end in order.
    dead: AtomicBool,
    state: Mutex<HealthState>,
    changed: Condvar,
}

#[derive(Default)]
struct HealthState {
    /// Threads that have begun and not ended.
    running: usize,
    /// Which thread died first, and why.
    why: Option<String>,
    /// Each wakes one thread from its sleep.
    wakers: Vec<Box<dyn Fn() + Send>>,
    hooks: Vec<EndHook>,
}

impl ThreadHealth {
    pub(crate) fn new() -> Arc<ThreadHealth> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, HealthState> {
        // Nothing panics while this is locked: hooks run after it is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the threads must end, in order or not.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Acquire)
    }

    /// Whether a thread has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Acquire)
    }

    /// Adds the function that wakes a thread.
    pub(crate) fn add_waker(&self, wake: impl Fn() + Send + 'static) {
        let mut state = self.state();
        if self.is_ending() {
            wake();
        }
        state.wakers.push(Box::new(wake));
    }

    /// Tells all threads to end.
    pub(crate) fn end(&self) {
        self.ending.store(true, Release);
        self.state().wakers.iter().for_each(|wake| wake());
    }

    fn die(&self, why: String) {
        let mut state = self.state();
        let first = state.why.is_none();
        if first {
            tracing::error!(
                why,
                "a server thread died: the server ends, its images stay as a kill leaves them"
            );
            state.why = Some(why.clone());
        }
        self.dead.store(true, Release);
        self.ending.store(true, Release);
        state.wakers.iter().for_each(|wake| wake());
        let hooks = std::mem::take(&mut state.hooks);
        drop(state);
        hooks.into_iter().for_each(|hook| hook(&why));
    }

    /// Runs a thread. A panic becomes an error that names the thread. Any error ends the server.
    pub(crate) fn run<T>(
        &self,
        name: &str,
        body: impl FnOnce() -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        self.state().running += 1;
        // Half-done work is dropped here. If it was in an image, the journal undoes it when the image is opened again.
        let done = match catch_unwind(AssertUnwindSafe(body)) {
            Ok(done) => done.map_err(|error| match &error {
                ServerError::Deposed(_) => (error.to_string(), error),
                _ => (format!("thread {name}: {error}; {AGAIN}"), error),
            }),
            Err(panic) => {
                let why = format!("thread {name} panicked: {}; {AGAIN}", words(&*panic));
                Err((why.clone(), ServerError::Died(why)))
            }
        };
        let done = done.map_err(|(why, error)| {
            self.die(why);
            error
        });
        self.state().running -= 1;
        self.changed.notify_all();
        done
    }

    /// Which thread died, and why, if one did.
    pub(crate) fn why(&self) -> Option<String> {
        self.state().why.clone()
    }

    /// Calls `hook` once a thread has died; at once if one has.
    pub(crate) fn on_death(&self, hook: EndHook) {
        let mut state = self.state();
        match state.why.clone() {
            None => state.hooks.push(hook),
            Some(why) => {
                drop(state);
                hook(&why);
            }
        }
    }

    /// Waits until all threads have ended, at most for `limit`. Returns whether they have.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> bool {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, limit, |state| state.running > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.running == 0
    }

    /// Waits until a thread has died, at most for `limit`. Returns which thread, and why.
    pub(crate) fn wait_for_death(&self, limit: Duration) -> Option<String> {
        let (state, ends) = (self.state(), |state: &mut HealthState| state.why.is_none());
        let waited = self.changed.wait_timeout_while(state, limit, ends);
        waited.unwrap_or_else(PoisonError::into_inner).0.why.clone()
    }

    /// Waits for the threads of a server that died. Returns `true` if some go on for too long: they are left behind.
    pub(crate) fn leave_behind(&self) -> bool {
        let ended = self.wait_for_end(DEATH_TIME);
        if !ended {
            let running = self.state().running;
            tracing::error!(running, "threads of a server that died go on: end the process");
        }
        !ended
    }
}

/// The text of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}
