//! Processes of the simulation whose calls wait, such as several workers at once. Each has a stack of its own. A wait
//! switches back to the simulation, which goes on with the process when the wait may be over. All of them run on one
//! thread, one at a time, in the same order in each step: a seed decides everything.
#![allow(unsafe_code)]

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

/// Bytes of a process's stack. Only the used part takes memory.
const STACK_BYTES: usize = 8 << 20;

thread_local! {
    /// How the process that runs now switches back; null outside of processes.
    static CURRENT: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A process of a simulation. [`Sim::spawn`](super::Sim::spawn) has an example.
#[derive(Debug, Clone)]
pub struct SimProcess {
    pub(super) actor: u64,
    ended: Rc<Cell<bool>>,
}

impl SimProcess {
    /// The number of its actor, for [`Sim::pause`](super::Sim::pause).
    pub fn actor(&self) -> u64 {
        self.actor
    }

    /// Whether its function has returned.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }
}

/// Restores what ran before a process, also when the process panics.
struct Current(*const Yielder<(), ()>);

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Makes a process of a function. The returned closure runs it until its next wait.
pub(super) fn make(actor: u64, body: impl FnOnce() + 'static) -> (SimProcess, impl FnMut() + 'static) {
    let ended = Rc::<Cell<bool>>::default();
    let own = Rc::new(Cell::new(ptr::null::<Yielder<(), ()>>()));
    let begun = own.clone();
    let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
    let mut coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        begun.set(yielder);
        CURRENT.set(yielder);
        body();
    });
    let done = ended.clone();
    let run = move || {
        if done.get() {
            return;
        }
        let _before = Current(CURRENT.replace(own.get()));
        done.set(matches!(coroutine.resume(()), CoroutineResult::Return(())));
    };
    (SimProcess { actor, ended }, run)
}

/// Whether a process runs now.
pub(super) fn is_running() -> bool {
    !CURRENT.get().is_null()
}

/// Switches from the running process to the simulation. Returns when the simulation goes on with the process.
pub(super) fn suspend() {
    let current = CURRENT.get();
    assert!(!current.is_null(), "only a process can be suspended");
    // SAFETY: CURRENT is not null only while `run` above resumes the coroutine that was given this yielder. The
    // coroutine keeps the yielder on its stack until its body returns, and this call is made from that body.
    unsafe { &*current }.suspend(());
}
