//! Buffers of rows, and numpy arrays that show the rows of a buffer without a copy.
#![allow(unsafe_code)]

use numpy::ndarray::Array2;
use numpy::{PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

/// The most buffers of rows that are kept for later calls, and the most floats of all of them (256 MiB).
const BUFFERS_MAX: usize = 16;
const BUFFER_FLOATS_MAX: usize = 64 << 20;

/// Buffers of rows: made by one call, and used again by later ones.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Vec<Vec<f32>>>);

impl Buffers {
    /// A buffer for so many floats, with any content. At most half of it stays unused.
    pub fn take(&self, floats: usize) -> Vec<f32> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &Vec<f32>| buffer.capacity() >= floats && buffer.capacity() / 2 <= floats;
        // The latest one is the likeliest to be in the processor's cache.
        all.iter().rposition(fits).map(|at| all.remove(at)).unwrap_or_default()
    }

    /// Keeps a buffer, in place of the oldest ones if too much is kept. While another thread has the buffers it is
    /// freed instead: in a forked process that thread may not exist, so nothing waits for it.
    pub fn keep(&self, buffer: Vec<f32>) {
        let mut all = match self.0.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(all)) => all.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if buffer.capacity() == 0 || buffer.capacity() > BUFFER_FLOATS_MAX {
            return;
        }
        all.push(buffer);
        let floats = |all: &[Vec<f32>]| all.iter().map(Vec::capacity).sum::<usize>();
        while all.len() > BUFFERS_MAX || floats(&all) > BUFFER_FLOATS_MAX {
            all.remove(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_fit_and_are_limited() {
        let buffers = Buffers::default();
        let capacities = || buffers.0.lock().unwrap().iter().map(Vec::capacity).collect::<Vec<usize>>();
        for floats in [100, 150, 100_000] {
            buffers.keep(Vec::with_capacity(floats));
        }
        assert_eq!(buffers.take(1_000).capacity(), 0);
        assert_eq!(buffers.take(40).capacity(), 0);
        assert_eq!(buffers.take(90).capacity(), 150);
        assert_eq!(buffers.take(90).capacity(), 100);
        assert_eq!(capacities(), [100_000]);
        (1..30).for_each(|floats| buffers.keep(Vec::with_capacity(floats)));
        assert_eq!(capacities(), (14..30).collect::<Vec<usize>>());
        buffers.keep(Vec::with_capacity(BUFFER_FLOATS_MAX - 50));
        assert_eq!(capacities(), [28, 29, BUFFER_FLOATS_MAX - 50][1..]);
        buffers.keep(Vec::with_capacity(BUFFER_FLOATS_MAX + 1));
        assert_eq!(capacities().len(), 2);
    }
}
