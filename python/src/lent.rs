//! Rows that a push sends from a numpy array, and what happens to the array when the push has ended.
//!
//! The client's thread drops such rows. It never has the GIL, so it may not free an array. PyO3 would keep the array
//! for a thread that has the GIL, behind a lock. A process that is forked meanwhile would have that lock for ever. So
//! the arrays go into a list without a lock. The next call of a client frees them.
#![allow(unsafe_code)]

use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The rows of a numpy array that is lent to a push. Nobody changes them until the push has ended.
pub struct LentArray {
    /// `None` only while this is dropped. Two references: with one, `ndarray.resize` might free the memory, because it
    /// allows for a variable of its caller.
    array: Option<[Py<PyArray2<f32>>; 2]>,
    rows: *const [f32],
}

impl LentArray {
    /// Makes an array read-only, and lends it. `rows` are its rows.
    ///
    /// # Errors
    /// The array does not let itself be made read-only.
    pub fn new(array: &PyReadonlyArray2<'_, f32>, rows: &[f32]) -> PyResult<LentArray> {
        let array: &Bound<'_, PyArray2<f32>> = array;
        array.getattr("flags")?.setattr("writeable", false)?;
        let reference = || array.clone().unbind();
        Ok(LentArray { array: Some([reference(), reference()]), rows })
    }
}

impl AsRef<[f32]> for LentArray {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: `rows` is the memory of `array`, which lives as long as this: numpy frees it with the array, or in
        // `ndarray.resize`, which refuses an array with so many references. The array is read-only, and `Table.push`
        // tells its caller not to change the memory in other ways, with `refcheck=False` among them.
        unsafe { &*self.rows }
    }
}

// SAFETY: the memory is only read, and `drop` gives the references to a thread that has the GIL.
unsafe impl Send for LentArray {}
// SAFETY: as for `Send`; shared references read only.
unsafe impl Sync for LentArray {}

impl Drop for LentArray {
    fn drop(&mut self) {
        if let Some(array) = self.array.take() {
            ENDED.push(array);
        }
    }
}

/// The arrays of pushes that have ended.
static ENDED: EndedArrays = EndedArrays(AtomicPtr::new(null_mut()));

/// Frees the arrays of pushes that have ended.
pub fn free_ended_arrays(gil: Python<'_>) {
    ENDED.free(gil);
}

/// A list without a lock: a process that is forked at any moment has a whole list.
struct EndedArrays(AtomicPtr<Node>);

struct Node {
    _array: [Py<PyArray2<f32>>; 2],
    next: *mut Node,
}

impl EndedArrays {
    fn push(&self, array: [Py<PyArray2<f32>>; 2]) {
        let node = Box::into_raw(Box::new(Node { _array: array, next: self.0.load(Relaxed) }));
        // SAFETY: the node is this thread's until the exchange makes it the list's.
        let next = unsafe { &mut (*node).next };
        while let Err(first) = self.0.compare_exchange_weak(*next, node, Release, Relaxed) {
            *next = first;
        }
    }

    fn free(&self, _gil: Python<'_>) {
        if self.0.load(Relaxed).is_null() {
            return;
        }
        let mut first = self.0.swap(null_mut(), Acquire);
        while !first.is_null() {
            // SAFETY: the swap made all of these nodes this thread's, and each came from `Box::into_raw`.
            let node = unsafe { Box::from_raw(first) };
            first = node.next;
        }
    }
}
