//! Buffers of rows, and numpy arrays that show the rows of a buffer without a copy.
#![allow(unsafe_code)]

use numpy::ndarray::Array2;
use numpy::{PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

/// Buffers of rows that are kept for later calls.
const BUFFERS_MAX: usize = 16;

/// Buffers of rows: made by one call, and used again by later ones.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Vec<Vec<f32>>>);

impl Buffers {
    /// A buffer with any content.
    pub fn take(&self) -> Vec<f32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps a buffer. While another thread has the buffers it is freed instead: in a forked process that thread may
    /// not exist, so nothing waits for it.
    pub fn keep(&self, buffer: Vec<f32>) {
        let mut all = match self.0.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(all)) => all.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if all.len() < BUFFERS_MAX && buffer.capacity() > 0 {
            all.push(buffer);
        }
    }

    /// The rows of a buffer as a numpy array (n, `dim`). When Python frees the array, the buffer is kept for later
    /// calls. Rows that fill less than half of their buffer are copied, so that an array holds no more memory than it
    /// shows.
    ///
    /// # Panics
    /// When `rows` are not rows of `dim` floats.
    pub fn array<'py>(
        self: &Arc<Buffers>,
        py: Python<'py>,
        rows: Vec<f32>,
        dim: usize,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let shape = [rows.len() / dim, dim];
        if rows.is_empty() || rows.capacity() / 2 > rows.len() {
            let copy = numpy::PyArray1::from_slice(py, &rows).reshape(shape)?;
            self.keep(rows);
            return Ok(copy);
        }
        let rows = Array2::from_shape_vec(shape, rows).expect("the rows are whole");
        let owner = Bound::new(py, RowOwner { rows, buffers: Arc::downgrade(self) })?;
        // SAFETY: numpy holds `owner` as the base of the array, so the memory of `rows` lives as long as the array.
        // Nothing reads, writes or moves `rows` before `owner` is dropped, so the array is the only way to the memory.
        Ok(unsafe { PyArray2::borrow_from_array(&owner.get().rows, owner.clone().into_any()) })
    }
}

/// What owns the memory of a numpy array.
#[pyclass(module = "gannet._native", frozen)]
struct RowOwner {
    rows: Array2<f32>,
    buffers: Weak<Buffers>,
}

impl Drop for RowOwner {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.upgrade() {
            buffers.keep(std::mem::take(&mut self.rows).into_raw_vec_and_offset().0);
        }
    }
}
