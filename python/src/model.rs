//! Saved models, which score data in this process. A call reads the data on a thread of its own, without the GIL.

use crate::arrow_source::ArrowSource;
use crate::batches::{Inside, skipped};
use crate::dataset::{Dataset, unreadable};
use crate::failure::CallFailure;
use crate::model_data::{ModelData, table_settings, unscored, unusable};
use crate::waiting::{Joins, on_thread};
use gannet::train::models::{Explained, Objective};
use gannet::train::saved::{SavedModel, intercept_of, load_model};
use gannet::train::{BadLines, Data, FeatureNames, INTERCEPT_KEY, TrainError};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The thread that reads a model, or scores data with it.
const THREAD: &str = "gannet-predict";

/// A saved model.
#[pyclass(module = "gannet._native", frozen)]
pub struct Model {
    saved: Arc<SavedModel>,
}

/// Why the scoring of data ended.
enum ScoringEnd {
    Failed(TrainError),
    /// Nobody waits for it any more.
    Stopped,
}

impl From<TrainError> for ScoringEnd {
    fn from(error: TrainError) -> ScoringEnd {
        ScoringEnd::Failed(error)
    }
}

impl ScoringEnd {
    fn failure(self) -> CallFailure {
        match self {
            ScoringEnd::Failed(error) => unscored(&error),
            // Nobody sees it.
            ScoringEnd::Stopped => CallFailure::input("stopped"),
        }
    }
}

fn go_on(stop: &AtomicBool) -> Result<(), ScoringEnd> {
    if stop.load(Relaxed) { Err(ScoringEnd::Stopped) } else { Ok(()) }
}

/// The outputs of all examples, and what to warn of.
fn outputs(
    saved: &SavedModel,
    data: &Data,
    predicts: bool,
    stop: &AtomicBool,
) -> Result<(Vec<f32>, BadLines), ScoringEnd> {
    let (task, mut all) = (saved.task(), Vec::new());
    let (_, _, bad_lines) = saved.outputs(data, |outputs| {
        let from = all.len();
        all.extend_from_slice(outputs);
        if predicts {
            all[from..].chunks_exact_mut(task.outputs()).for_each(|outputs| task.predict(outputs));
        }
        go_on(stop)
    })?;
    Ok((all, bad_lines))
}

/// What the features of examples contribute. Example `i` has the features `offsets[i]..offsets[i + 1]`.
#[derive(Default)]
struct Explanations {
    /// The class of the margin; 0 where there are no classes.
    outputs: Vec<i64>,
    /// The margin without contributions.
    bases: Vec<f64>,
    offsets: Vec<i64>,
    keys: Vec<u64>,
    contributions: Vec<f64>,
}

impl Explanations {
    fn add(&mut self, explained: &Explained<'_>) {
        let Explained { keys, base, contributions, .. } = explained;
        self.outputs.push(contributions.output as i64);
        self.bases.push(f64::from(*base) + contributions.rest);
        self.keys.extend_from_slice(keys);
        self.contributions.extend_from_slice(&contributions.features);
        self.offsets.push(self.keys.len() as i64);
    }

    /// Explains all examples.
    fn of(
        saved: &SavedModel,
        data: &Data,
        stop: &AtomicBool,
    ) -> Result<(Explanations, BadLines), ScoringEnd> {
        let mut all = Explanations { offsets: vec![0], ..Explanations::default() };
        let bad_lines = saved.explain(data, |explained| {
            all.add(&explained);
            go_on(stop)
        })?;
        Ok((all, bad_lines))
    }
}

/// The names of these features in data.
fn names_of(data: &Data, keys: &HashSet<u64>) -> Result<HashMap<u64, String>, CallFailure> {
    let is_wanted = |key: u64| keys.contains(&key);
    let names = FeatureNames::of(data, &is_wanted).map_err(|error| unreadable(&error))?;
    Ok(keys.iter().map(|&key| (key, names.name(key))).collect())
}

/// The columns that the features of a model come from, by their roles: label, categorical, numeric, both.
type Roles = (Option<String>, Vec<String>, Vec<String>, Vec<String>);

/// Explanations in arrays: outputs, bases, offsets, keys, contributions; the names of keys, and a warning.
type Explaining<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<f64>>,
    HashMap<u64, String>,
    Option<String>,
);

/// What a feature has learned: name, weight, key, length of the factors, class, and the weight per unit of the data.
type Learned = (String, f32, u64, f32, usize, Option<f64>);

#[pymethods]
impl Model {
    /// Reads a model.
    #[new]
    fn load(py: Python<'_>, folder: PathBuf) -> PyResult<Model> {
        let _inside = Inside::enter_or_refuse()?;
        let load = move |_| load_model(&folder).map_err(|error| unusable(&error));
        Ok(Model { saved: Arc::new(on_thread(py, (THREAD, Joins::No), load, || Ok(()))?) })
    }

    /// Its kind, as `--model` names it.
    #[getter]
    fn kind(&self) -> &str {
        &self.saved.shape().model
    }

    /// What it predicts: "probability", "margin", "number" or "class".
    #[getter]
    fn predicts(&self) -> &'static str {
        match self.saved.task() {
            Objective::Click => "probability",
            Objective::Separation => "margin",
            Objective::Number(_) => "number",
            Objective::Class(_) => "class",
        }
    }

    /// The number of outputs of an example.
    #[getter]
    fn outputs(&self) -> usize {
        self.saved.task().outputs()
    }

    /// The settings of its structure, by their flags.
    #[getter]
    fn settings(&self) -> Vec<(&'static str, String)> {
        self.saved.shape().settings()
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.saved.rows
    }

    /// The format of its data.
    #[getter]
    fn format(&self) -> &'static str {
        self.saved.reading.format_name()
    }

    /// The weight of the intercept, for values as the data has them.
    #[getter]
    fn intercept(&self, py: Python<'_>) -> Option<f32> {
        py.detach(|| intercept_of(&self.saved.learned(), &self.saved.reading))
    }

    /// How its training ended, if it ended early.
    #[getter]
    fn ended(&self) -> Option<String> {
        self.saved.reading.ended.clone()
    }

    /// The labels that mean 1 and 0, if they are not these numbers.
    #[getter]
    fn labels(&self) -> Option<(String, Option<String>)> {
        self.saved.reading.two.map(|two| (two.positive().to_owned(), two.other()))
    }

    #[getter]
    fn columns(&self) -> Option<Roles> {
        let columns = self.saved.reading.columns.clone()?;
        Some((columns.label, columns.categorical, columns.numeric, columns.both))
    }

    /// A table with the columns of the model. The arguments are those of `Dataset.of_table`.
    fn table(
        &self,
        py: Python<'_>,
        object: Py<PyAny>,
        look: Option<Py<PyAny>>,
        name: String,
    ) -> PyResult<Dataset> {
        let _inside = Inside::enter_or_refuse()?;
        let source = ArrowSource::new(py, object, look, name, table_settings(&self.saved, None)?)?;
        Ok(Dataset::of_rows(source.map_err(|error| unscored(&error.into()))?))
    }

    /// The outputs of all examples, float32 (n, outputs), or what they predict; and a warning.
    fn score<'py>(
        &self,
        py: Python<'py>,
        dataset: &Dataset,
        predicts: bool,
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Option<String>)> {
        let _inside = Inside::enter_or_refuse()?;
        let (saved, ModelData { data, .. }) = (self.saved.clone(), ModelData::of(py, &self.saved, dataset)?);
        let work = move |stop: Arc<AtomicBool>| {
            let data = Data { stop: stop.clone().into(), ..data };
            outputs(&saved, &data, predicts, &stop).map_err(ScoringEnd::failure)
        };
        let (all, bad_lines) = on_thread(py, (THREAD, Joins::Yes), work, || Ok(()))?;
        let width = self.saved.task().outputs();
        let shape = [all.len() / width, width];
        Ok((all.into_pyarray(py).reshape(shape)?, skipped(&bad_lines)))
    }

    /// What the features of all examples contribute to their outputs.
    fn explain<'py>(&self, py: Python<'py>, dataset: &Dataset) -> PyResult<Explaining<'py>> {
        let _inside = Inside::enter_or_refuse()?;
        let (saved, ModelData { data, named }) =
            (self.saved.clone(), ModelData::of(py, &self.saved, dataset)?);
        let work = move |stop: Arc<AtomicBool>| {
            let of = |data| Data { stop: stop.clone().into(), ..data };
            let explained = Explanations::of(&saved, &of(data), &stop);
            let (all, bad_lines) = explained.map_err(ScoringEnd::failure)?;
            let keys = all.keys.iter().copied().collect();
            Ok((names_of(&of(named), &keys)?, all, bad_lines))
        };
        let (names, all, bad_lines) = on_thread(py, (THREAD, Joins::Yes), work, || Ok(()))?;
        let Explanations { outputs, bases, offsets, keys, contributions } = all;
        let (outputs, bases, offsets) =
            (outputs.into_pyarray(py), bases.into_pyarray(py), offsets.into_pyarray(py));
        let (keys, contributions) = (keys.into_pyarray(py), contributions.into_pyarray(py));
        Ok((outputs, bases, offsets, keys, contributions, names, skipped(&bad_lines)))
    }

    /// The model as a file of ONNX.
    fn onnx<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let saved = self.saved.clone();
        let write = move |_| saved.onnx().map_err(|error| CallFailure::input(error.to_string()));
        let bytes = on_thread(py, (THREAD, Joins::No), write, || Ok(()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The features that can matter most, at most so many, without the intercept. Names are those in the data set.
    fn weights(&self, py: Python<'_>, most: usize, dataset: Option<&Dataset>) -> PyResult<Vec<Learned>> {
        let _inside = Inside::enter_or_refuse()?;
        let named = dataset.map(|dataset| ModelData::of(py, &self.saved, dataset)).transpose()?;
        let saved = self.saved.clone();
        let work = move |stop: Arc<AtomicBool>| {
            let named = named.map(|of| Data { stop: stop.into(), ..of.named });
            learned(&saved, most, named.as_ref())
        };
        on_thread(py, (THREAD, Joins::Yes), work, || Ok(()))
    }
}

fn learned(saved: &SavedModel, most: usize, named: Option<&Data>) -> Result<Vec<Learned>, CallFailure> {
    let mut all = saved.learned();
    // A cross has the names of what it crosses, so all are named.
    let keys: HashSet<u64> = all.iter().map(|feature| feature.key).collect();
    let names = match named {
        Some(data) => names_of(data, &keys)?,
        None => saved
            .names()
            .map_err(|error| unusable(&error))?
            .map_or_else(HashMap::new, |kept| keys.iter().map(|&key| (key, kept.name(key))).collect()),
    };
    all.retain(|feature| feature.key != INTERCEPT_KEY && feature.size() > 0.0);
    all.truncate(most);
    let known = saved.reading.normalization_of_data();
    let each = all.into_iter().map(|feature| {
        let key = feature.key;
        let name = names.get(&key).cloned().unwrap_or_else(|| key.to_string());
        let normalized = known.and_then(|known| known.feature(key));
        let per_unit = normalized.map(|of| f64::from(feature.weight) * f64::from(of.factor));
        (name, feature.weight, key, feature.length, feature.class, per_unit)
    });
    Ok(each.collect())
}
