//! Models that learn one example after the other, and their tables.

use super::kept_rows::{KeptRows, open};
use super::servers::EstimatorServers;
use super::stopping::TrainingWatch;
use crate::failure::{CallFailure, Kind};
use crate::schema::rule;
use gannet::optim::GradientTransform;
use gannet::table::{Admission, RowType, TableId};
use gannet::train::models::{
    DeepFm, FactorizationMachine, Linear, Model, ModelSettings, NumberLoss, Objective, fit,
};
use gannet::train::{
    Backend, BackendError, FlatTable, FlatTables, Labels, Options, RemoteBackend, RemoteTables, Tables,
    TrainError, TrainedRows, WeightTables, train,
};
use gannet::{Read, Rule, Schema, Transports, Worker, Write};
use pyo3::FromPyObject;
use std::sync::atomic::Ordering::Relaxed;

/// Rows of one request to servers.
const PART_KEYS: usize = 1 << 16;

/// What is learned.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Learning {
    /// "lr", "linear", "fm", "fm-numbers" (a machine that learns numbers by least squares) or "deepfm".
    model: String,
    rule: (String, Vec<f32>),
    /// The factor of `|w|^2 / 2` in each example's loss, if the rule has none of its own.
    l2: f32,
    factors: usize,
    /// The standard deviation of the first factors.
    deviation: f32,
    seed: u64,
    /// The units of each hidden layer, and for how many fields the network has a vector.
    hidden: Vec<usize>,
    fields: usize,
}

/// What a training has learned: the weights of some keys, and those of all units of each layer.
pub struct TrainedWeights {
    pub weights: Vec<f32>,
    pub layers: Vec<Vec<f32>>,
    /// Updates that were left out, because they had made a number infinite or NaN.
    pub left_out: u64,
}

/// All rows of a table: their keys, and their floats one row after another.
pub type TableRows = (Vec<u64>, Vec<f32>);

/// A model of several outputs or factors.
type AnyModel = Box<dyn Model + Send>;

/// A model, and where its table is.
pub enum Learner {
    /// Logistic regression in this process.
    Flat(FlatTable),
    /// Another model in this process.
    Local { model: AnyModel, tables: FlatTables },
    /// Logistic regression on servers.
    ServedLr { schema: Schema, servers: EstimatorServers, kept: KeptRows },
    /// Another model on servers.
    Served { model: AnyModel, servers: EstimatorServers, kept: KeptRows },
}

impl Learner {
    /// A model without rows.
    pub fn new(learning: Learning, servers: Option<EstimatorServers>) -> Result<Learner, CallFailure> {
        let Learning { model, rule: (name, numbers), l2, factors, deviation, seed, hidden, fields } =
            learning;
        let rule = rule(&name, &numbers)?;
        if model == "lr" {
            let schema = Schema::scalar("lr", rule);
            schema.check().map_err(|error| CallFailure::input(error.to_string()))?;
            return Ok(match servers {
                Some(servers) => Learner::ServedLr { schema, servers, kept: KeptRows::default() },
                None => Learner::Flat(FlatTable::new(&schema).map_err(table_failed)?),
            });
        }
        let own_l2 = matches!(rule, Rule::Ftrl(_) | Rule::GroupFtrl(_));
        let settings = ModelSettings {
            rule,
            row_type: RowType::F32,
            shaping: GradientTransform::default(),
            admission: Admission::All,
            seed,
            deviation,
            l2: if own_l2 { 0.0 } else { l2 },
        };
        let model: AnyModel = match model.as_str() {
            "linear" => Box::new(Linear::new(settings)),
            "fm" => Box::new(FactorizationMachine::new(settings, factors)),
            "fm-numbers" => {
                let squared = Objective::Number(NumberLoss::Squared);
                Box::new(FactorizationMachine::new(settings, factors).with_objective(squared))
            }
            "deepfm" => Box::new(DeepFm::new(settings, fields.max(1), factors, &hidden)),
            other => return Err(CallFailure::input(format!("model {other:?} is not known"))),
        };
        for (schema, _) in tables_of(&*model) {
            schema.check().map_err(|error| CallFailure::input(error.to_string()))?;
        }
        Ok(match servers {
            Some(servers) => Learner::Served { model, servers, kept: KeptRows::default() },
            None => Learner::Local { model, tables: FlatTables::within(u64::MAX) },
        })
    }

    /// The schemas of the tables: the first has the features, the others a layer each.
    pub fn schemas(&self) -> Vec<Schema> {
        match self {
            Learner::Flat(table) => vec![table.schema().clone()],
            Learner::ServedLr { schema, .. } => vec![schema.clone()],
            Learner::Local { model, .. } | Learner::Served { model, .. } => {
                tables_of(&**model).map(|(schema, _)| schema).collect()
            }
        }
    }

    /// The labels that the model learns.
    pub fn labels(&self) -> Labels {
        match self {
            Learner::Flat(_) | Learner::ServedLr { .. } => Labels::default(),
            Learner::Local { model, .. } | Learner::Served { model, .. } => model.task().labels(),
        }
    }

    /// Learns the examples of `options`, and reads the weights of the keys `wanted` then.
    pub fn train(
        &mut self,
        options: &Options,
        wanted: &[u64],
        watch: &TrainingWatch,
    ) -> Result<TrainedWeights, CallFailure> {
        let TrainingWatch { stop, done } = watch;
        match self {
            Learner::Flat(table) => {
                let before = table.not_finite();
                let report = train(options, table, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = report.map_err(failed)?.not_finite - before;
                let mut weights = vec![0.0; wanted.len()];
                table.weights(wanted, &mut weights).map_err(table_failed)?;
                Ok(TrainedWeights { weights, layers: Vec::new(), left_out })
            }
            Learner::Local { model, tables } => {
                let before = tables.not_finite();
                let fitted =
                    fit(options, &mut **model, tables, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = fitted.map_err(failed)?.not_finite - before;
                let read = |table, keys: &[u64]| {
                    let mut weights = Vec::new();
                    tables.weights(table, keys, &mut weights).map_err(table_failed)?;
                    Ok(weights)
                };
                learned(&**model, wanted, left_out, read)
            }
            Learner::ServedLr { schema, servers, kept } => {
                let mut backend =
                    RemoteBackend::open_alone(servers.connect()?, schema).map_err(table_failed)?;
                let table = backend.table();
                kept.check(backend.worker(), &[(table, &schema.name)], servers)?;
                let report = train(options, &mut backend, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = report.map_err(failed)?.not_finite;
                backend.worker().close_pusher(table)?;
                kept.note(backend.worker(), &[(table, &schema.name)])?;
                let weights = served_weights(backend.worker(), (table, schema), wanted)?;
                Ok(TrainedWeights { weights, layers: Vec::new(), left_out })
            }
            Learner::Served { model, servers, kept } => {
                let mut worker = servers.connect()?;
                let schemas: Vec<Schema> = tables_of(&**model).map(|(schema, _)| schema).collect();
                let opened = open(&mut worker, &schemas)?;
                kept.check(&mut worker, &opened, servers)?;
                let mut tables = RemoteTables::new(worker);
                let fitted =
                    fit(options, &mut **model, &mut tables, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = fitted.map_err(failed)?.not_finite;
                tables.close_pusher().map_err(table_failed)?;
                kept.note(tables.worker(), &opened)?;
                let read = |table: usize, keys: &[u64]| {
                    served_weights(tables.worker(), (opened[table].0, &schemas[table]), keys)
                };
                learned(&**model, wanted, left_out, read)
            }
        }
    }

    /// All rows of each table.
    pub fn rows(&mut self) -> Result<Vec<TableRows>, CallFailure> {
        let schemas = self.schemas();
        let mut all = vec![TableRows::default(); schemas.len()];
        let add = |(keys, rows): &mut TableRows, some: &[u64], of: &[f32]| {
            keys.extend_from_slice(some);
            rows.extend_from_slice(of);
        };
        match self {
            Learner::Flat(table) => {
                table.scan(&mut |keys, rows| add(&mut all[0], keys, rows)).map_err(table_failed)?;
            }
            Learner::Local { tables, .. } => {
                for (schema, all) in schemas.iter().zip(&mut all) {
                    let table = tables.open(schema).map_err(table_failed)?;
                    tables.scan(table, &mut |keys, rows| add(all, keys, rows)).map_err(table_failed)?;
                }
            }
            Learner::ServedLr { servers, kept, .. } | Learner::Served { servers, kept, .. } => {
                let mut worker = servers.connect()?;
                let opened = open(&mut worker, &schemas)?;
                kept.check(&mut worker, &opened, servers)?;
                for (&(table, _), all) in opened.iter().zip(&mut all) {
                    worker.scan(table, |keys, rows| add(all, keys, rows))?;
                }
            }
        }
        Ok(all)
    }

    /// Puts the rows of each table back.
    pub fn restore(&mut self, all: &[TableRows]) -> Result<(), CallFailure> {
        let schemas = self.schemas();
        match self {
            Learner::Flat(table) => {
                all.iter().try_for_each(|(keys, rows)| table.restore(keys, rows)).map_err(table_failed)
            }
            Learner::Local { tables, .. } => {
                let restored = schemas.iter().zip(all).try_for_each(|(schema, (keys, rows))| {
                    let table = tables.open(schema)?;
                    tables.restore(table, keys, rows)
                });
                restored.map_err(table_failed)
            }
            Learner::ServedLr { servers, kept, .. } | Learner::Served { servers, kept, .. } => {
                let mut worker = servers.connect()?;
                let opened = open(&mut worker, &schemas)?;
                for ((&(table, _), schema), (keys, rows)) in opened.iter().zip(&schemas).zip(all) {
                    let floats = schema.floats();
                    for (keys, rows) in keys.chunks(PART_KEYS).zip(rows.chunks(PART_KEYS * floats)) {
                        worker.push(table, keys, Write::Row, rows)?;
                    }
                }
                // Other processes check the first table, so it is closed last.
                opened.iter().rev().try_for_each(|&(table, _)| worker.close_pusher(table))?;
                kept.note(&mut worker, &opened)
            }
        }
    }
}

/// The tables of a model, in its order: their schemas, and the rows of a layer.
fn tables_of(model: &dyn Model) -> impl Iterator<Item = (Schema, u64)> {
    std::iter::once((model.sparse(), 0)).chain(model.dense())
}

/// What `read` says of a model's tables: of some keys, and of all units of its layers.
fn learned(
    model: &dyn Model,
    wanted: &[u64],
    left_out: u64,
    mut read: impl FnMut(usize, &[u64]) -> Result<Vec<f32>, CallFailure>,
) -> Result<TrainedWeights, CallFailure> {
    let weights = read(0, wanted)?;
    let layers = tables_of(model).enumerate().skip(1).map(|(table, (_, units))| {
        let units: Vec<u64> = (0..units).collect();
        read(table, &units)
    });
    Ok(TrainedWeights { weights, layers: layers.collect::<Result<_, _>>()?, left_out })
}

/// Weights of rows on servers, in the order of `keys`.
fn served_weights(
    worker: &mut Worker<Transports>,
    (table, schema): (TableId, &Schema),
    keys: &[u64],
) -> Result<Vec<f32>, CallFailure> {
    let dim = schema.weights();
    let mut weights = vec![0.0; keys.len() * dim];
    for (keys, weights) in keys.chunks(PART_KEYS).zip(weights.chunks_mut(PART_KEYS * dim)) {
        worker.pull(table, keys, Read::Weights, weights)?;
    }
    Ok(weights)
}

/// A failed training.
fn failed(error: TrainError) -> CallFailure {
    match error {
        TrainError::Backend(error) => table_failed(error),
        TrainError::Read(_) | TrainError::Example { .. } => CallFailure::input(error.to_string()),
        other => CallFailure::new(Kind::Machine, other.to_string()),
    }
}

/// A table that failed.
pub fn table_failed(error: BackendError) -> CallFailure {
    match error {
        BackendError::Worker(error) => error.into(),
        BackendError::Schema(text) => CallFailure::input(text),
        other => CallFailure::new(Kind::Machine, other.to_string()),
    }
}
