//! What the threads of a client share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, also after a thread has panicked that had it locked: each change of these values is whole.
pub(crate) fn lock_shared<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
