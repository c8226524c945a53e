//! Models that learn one example after the other, and their tables.

use super::servers::EstimatorServers;
use super::stopping::TrainingWatch;
use crate::failure::{CallFailure, Kind};
use crate::schema::rule;
use gannet::optim::GradientTransform;
use gannet::table::{Admission, RowType, TableId};
use gannet::train::models::{FactorizationMachine, Linear, Model, ModelSettings, NumberLoss, Objective, fit};
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
    /// "lr", "linear", "fm" or "fm-numbers": a machine that learns numbers by least squares.
    model: String,
    rule: (String, Vec<f32>),
    /// The factor of `|w|^2 / 2` in each example's loss, if the rule has none of its own.
    l2: f32,
    factors: usize,
    /// The standard deviation of the first factors.
    deviation: f32,
    seed: u64,
}

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
    Served { model: AnyModel, schema: Schema, servers: EstimatorServers, kept: KeptRows },
}

/// How many rows a table on servers had at the end of the last call. No call takes a row away, so fewer rows mean that
/// a server has lost some between two calls. (A connection sees by itself what happens while it lasts.)
#[derive(Debug, Default)]
pub struct KeptRows(Option<u64>);

impl KeptRows {
    /// Refuses to go on if rows are gone.
    fn check(
        &self,
        worker: &mut Worker<Transports>,
        table: TableId,
        (schema, servers): (&Schema, &EstimatorServers),
    ) -> Result<(), CallFailure> {
        let Some(before) = self.0 else { return Ok(()) };
        let now = worker.status(table)?.stats.rows;
        if now >= before {
            return Ok(());
        }
        let (table, servers) = (format!("{}.{}", servers.name(), schema.name), servers.addresses());
        Err(CallFailure::new(
            Kind::RowsGone,
            format!(
                "table {table:?} has {now} rows on the servers {servers}, and had {before} at the end of the last \
                 call: a server was started again without its rows; fit anew (warm_start=False), and give the \
                 servers a data_dir"
            ),
        ))
    }

    /// Remembers the number of rows.
    fn note(&mut self, worker: &mut Worker<Transports>, table: TableId) -> Result<(), CallFailure> {
        self.0 = Some(worker.status(table)?.stats.rows);
        Ok(())
    }
}

impl Learner {
    /// A model without rows.
    pub fn new(learning: Learning, servers: Option<EstimatorServers>) -> Result<Learner, CallFailure> {
        let Learning { model, rule: (name, numbers), l2, factors, deviation, seed } = learning;
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
            other => return Err(CallFailure::input(format!("model {other:?} is not known"))),
        };
        let schema = model.sparse();
        schema.check().map_err(|error| CallFailure::input(error.to_string()))?;
        Ok(match servers {
            Some(servers) => Learner::Served { model, schema, servers, kept: KeptRows::default() },
            None => Learner::Local { model, tables: FlatTables::within(u64::MAX) },
        })
    }

    /// The schema of the table.
    pub fn schema(&self) -> Schema {
        match self {
            Learner::Flat(table) => table.schema().clone(),
            Learner::Local { model, .. } => model.sparse(),
            Learner::ServedLr { schema, .. } | Learner::Served { schema, .. } => schema.clone(),
        }
    }

    /// The labels that the model learns.
    pub fn labels(&self) -> Labels {
        match self {
            Learner::Flat(_) | Learner::ServedLr { .. } => Labels::default(),
            Learner::Local { model, .. } | Learner::Served { model, .. } => model.task().labels(),
        }
    }

    /// Learns the examples of `options`, and reads the weights of the keys `wanted` then. Returns also how many updates
    /// were left out, because they had made a number infinite or NaN.
    pub fn train(
        &mut self,
        options: &Options,
        wanted: &[u64],
        watch: &TrainingWatch,
    ) -> Result<(Vec<f32>, u64), CallFailure> {
        let TrainingWatch { stop, done } = watch;
        match self {
            Learner::Flat(table) => {
                let before = table.not_finite();
                let report = train(options, table, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = report.map_err(failed)?.not_finite - before;
                let mut weights = vec![0.0; wanted.len()];
                table.weights(wanted, &mut weights).map_err(table_failed)?;
                Ok((weights, left_out))
            }
            Learner::Local { model, tables } => {
                let before = tables.not_finite();
                let fitted =
                    fit(options, &mut **model, tables, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = fitted.map_err(failed)?.not_finite - before;
                let mut weights = Vec::new();
                tables.weights(0, wanted, &mut weights).map_err(table_failed)?;
                Ok((weights, left_out))
            }
            Learner::ServedLr { schema, servers, kept } => {
                let mut backend =
                    RemoteBackend::open_alone(servers.connect()?, schema).map_err(table_failed)?;
                let table = backend.table();
                kept.check(backend.worker(), table, (schema, servers))?;
                let report = train(options, &mut backend, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = report.map_err(failed)?.not_finite;
                backend.worker().close_pusher(table)?;
                kept.note(backend.worker(), table)?;
                Ok((served_weights(backend.worker(), (table, schema), wanted)?, left_out))
            }
            Learner::Served { model, schema, servers, kept } => {
                let mut worker = servers.connect()?;
                let table = worker.open_table(schema)?;
                kept.check(&mut worker, table, (schema, servers))?;
                let mut tables = RemoteTables::new(worker);
                let fitted =
                    fit(options, &mut **model, &mut tables, stop, &mut |to| done.store(to.examples, Relaxed));
                let left_out = fitted.map_err(failed)?.not_finite;
                tables.close_pusher().map_err(table_failed)?;
                let table = tables.id(0);
                kept.note(tables.worker(), table)?;
                Ok((served_weights(tables.worker(), (table, schema), wanted)?, left_out))
            }
        }
    }

    /// All rows: their keys, and their floats one row after another.
    pub fn rows(&mut self) -> Result<(Vec<u64>, Vec<f32>), CallFailure> {
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        let mut page = |some: &[u64], of: &[f32]| {
            keys.extend_from_slice(some);
            rows.extend_from_slice(of);
        };
        match self {
            Learner::Flat(table) => table.scan(&mut page).map_err(table_failed)?,
            Learner::Local { model, tables } => {
                let table = tables.open(&model.sparse()).map_err(table_failed)?;
                tables.scan(table, &mut page).map_err(table_failed)?;
            }
            Learner::ServedLr { schema, servers, kept } | Learner::Served { schema, servers, kept, .. } => {
                let mut worker = servers.connect()?;
                let table = worker.open_table(schema)?;
                kept.check(&mut worker, table, (schema, servers))?;
                worker.scan(table, page)?;
            }
        }
        Ok((keys, rows))
    }

    /// Puts rows back.
    pub fn restore(&mut self, keys: &[u64], rows: &[f32]) -> Result<(), CallFailure> {
        match self {
            Learner::Flat(table) => table.restore(keys, rows).map_err(table_failed),
            Learner::Local { model, tables } => {
                let table = tables.open(&model.sparse()).map_err(table_failed)?;
                tables.restore(table, keys, rows).map_err(table_failed)
            }
            Learner::ServedLr { schema, servers, kept } | Learner::Served { schema, servers, kept, .. } => {
                let mut worker = servers.connect()?;
                let table = worker.open_table(schema)?;
                let floats = schema.floats();
                for (keys, rows) in keys.chunks(PART_KEYS).zip(rows.chunks(PART_KEYS * floats)) {
                    worker.push(table, keys, Write::Row, rows)?;
                }
                worker.close_pusher(table)?;
                kept.note(&mut worker, table)
            }
        }
    }
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
