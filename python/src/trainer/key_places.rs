//! The places of keys: an estimator that learns frames has a list of the features that it knows, by their keys.

use super::examples::values;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use std::collections::HashMap;

/// For each key its place in a list.
#[pyclass(frozen, module = "gannet._native")]
#[derive(Clone, Default)]
pub struct KeyPlaces(HashMap<u64, i64>);

/// The grown places, the place of each given key, and where each new key came first.
type Grown<'py> = (KeyPlaces, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

#[pymethods]
impl KeyPlaces {
    /// The places of these keys, each of which is there once.
    #[new]
    fn new(keys: PyReadonlyArray1<'_, u64>) -> PyResult<KeyPlaces> {
        Ok(KeyPlaces(values(&keys)?.into_iter().zip(0..).collect()))
    }

    /// The place of each key, int64 (n,). Of a key that is not known it is -1.
    fn find<'py>(
        &self,
        py: Python<'py>,
        keys: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let keys = keys.as_slice()?;
        let find = || keys.iter().map(|key| self.0.get(key).copied().unwrap_or(-1)).collect::<Vec<i64>>();
        Ok(py.detach(find).into_pyarray(py))
    }

    /// The places with those of new keys, which come behind the others in the order in which they are given; the place
    /// of each given key, int64 (n,); and the index at which each new key is given first, int64 (new,).
    fn with_new<'py>(&self, py: Python<'py>, keys: PyReadonlyArray1<'_, u64>) -> PyResult<Grown<'py>> {
        let keys = keys.as_slice()?;
        let (places, found, first) = py.detach(|| {
            let (mut places, mut first) = (self.0.clone(), Vec::new());
            let mut found = Vec::with_capacity(keys.len());
            for (at, &key) in (0i64..).zip(keys) {
                let next = places.len() as i64;
                let place = places.entry(key).or_insert(next);
                found.push(*place);
                first.extend((*place == next).then_some(at));
            }
            (places, found, first)
        });
        Ok((KeyPlaces(places), found.into_pyarray(py), first.into_pyarray(py)))
    }
}
