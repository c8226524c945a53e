//! How the values of a frame's features are brought to one size, as the command does it. The first examples of an
//! estimator's first call decide; its later calls and its predictions follow.

use super::examples::{ExampleArrays, values};
use crate::failure::CallFailure;
use gannet::train::{
    Block, Data, InterceptStart, Normalization as Known, Normalize, NormalizedFeature, Reader, Share,
    SurveyQuestions,
};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use std::sync::Arc;

/// The keys of features, and the center, factor and unit of each.
type FeatureArrays<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<f32>>,
);

/// The normalization of one problem of an estimator.
#[pyclass(frozen, module = "gannet._native")]
pub struct Normalization(Normalize);

impl Normalization {
    /// The normalization, for readers of data.
    pub fn shared(&self) -> Normalize {
        self.0.clone()
    }

    fn known(&self) -> &Known {
        static NOTHING: std::sync::LazyLock<Known> = std::sync::LazyLock::new(Known::default);
        self.0.known().unwrap_or(&NOTHING)
    }
}

#[pymethods]
impl Normalization {
    /// By examples that [`settle`](Self::settle) or a training looks at first. `odds`: the intercept starts at the log
    /// odds of labels that are 1 and 0, if one of them is rare.
    #[new]
    fn new(odds: bool) -> Normalization {
        let start = if odds { InterceptStart::OddsOfRare } else { InterceptStart::Zero };
        Normalization(Normalize::by_first_examples(SurveyQuestions { logarithms: true, start }))
    }

    /// The normalization that [`features`](Self::features) described.
    #[staticmethod]
    fn of(
        keys: PyReadonlyArray1<'_, u64>,
        centers: PyReadonlyArray1<'_, f32>,
        factors: PyReadonlyArray1<'_, f32>,
        units: PyReadonlyArray1<'_, f32>,
    ) -> PyResult<Normalization> {
        let (keys, centers) = (values(&keys)?, values(&centers)?);
        let numbers = centers.into_iter().zip(values(&factors)?).zip(values(&units)?);
        let features = keys.into_iter().zip(numbers);
        let feature = |(key, ((center, factor), unit))| NormalizedFeature { key, center, factor, unit };
        Ok(Normalization(Normalize::by(Known::new(features.map(feature).collect()))))
    }

    /// Lets the first of these examples decide, unless something is decided. They are read in batches of `batch`.
    fn settle(&self, py: Python<'_>, examples: ExampleArrays<'_>, batch: usize) -> PyResult<()> {
        let (rows, normalize) = (examples.copy()?, self.shared());
        let settled = py.detach(move || {
            let data = Data { normalize, ..Data::rows(Arc::new(rows.check()?)) };
            let mut reader = Reader::open(&data, batch, Share::ALL).map_err(failed)?;
            reader.next(&mut Block::default()).map(drop).map_err(failed)
        });
        Ok(settled?)
    }

    /// Where the margin of an example without features starts.
    #[getter]
    fn start(&self) -> f32 {
        self.known().start()
    }

    /// What these values of the features with these keys become, float32 (n,).
    fn values<'py>(
        &self,
        py: Python<'py>,
        keys: PyReadonlyArray1<'_, u64>,
        given: PyReadonlyArray1<'_, f32>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (known, pairs) = (self.known(), keys.as_slice()?.iter().zip(given.as_slice()?));
        let normalized: Vec<f32> = pairs.map(|(&key, &value)| known.of(key, value)).collect();
        Ok(normalized.into_pyarray(py))
    }

    /// The features, as [`of`](Self::of) takes them.
    fn features<'py>(&self, py: Python<'py>) -> FeatureArrays<'py> {
        let all = self.known().all();
        let numbers =
            |of: fn(&NormalizedFeature) -> f32| all.iter().map(of).collect::<Vec<f32>>().into_pyarray(py);
        let keys: Vec<u64> = all.iter().map(|feature| feature.key).collect();
        let (centers, factors) = (numbers(|feature| feature.center), numbers(|feature| feature.factor));
        (keys.into_pyarray(py), centers, factors, numbers(|feature| feature.unit))
    }

    /// Copies and pickles have what is decided.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, FeatureArrays<'py>)> {
        Ok((py.get_type::<Normalization>().getattr("of")?, self.features(py)))
    }
}

fn failed(error: gannet::train::ReadError) -> CallFailure {
    CallFailure::input(error.to_string())
}
