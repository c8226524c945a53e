//! The table in which a training keeps its [normalization](Normalization), beside those of its model. All workers of a
//! job have the same, also when the training goes on later, with other data or from a checkpoint.
//!
//! The first worker that has surveyed examples decides. It writes its features under a name made of what they say, and
//! then a row that chooses this name. The push of that row has the same number whoever makes it, so the shard applies
//! only the first one. A worker that dies in between leaves rows that nothing chooses; the next one writes its own.

use crate::backend::error::BackendError;
use crate::backend::tables::{LocalTables, Tables};
use crate::read::normalization::{AgreedNormalization, Normalization, NormalizedFeature};
use gannet_core::{Read, Schema, Store, Write, mix};
use gannet_optim::{Add, Rule};
use gannet_transport::Net;
use gannet_wire::RunId;
use gannet_wire::share_pushers::share_pusher;
use gannet_worker::{DataName, TableId, Worker, WorkerConfig, WorkerError};
use std::sync::Arc;

/// The key of the row that chooses a name.
const CHOSEN: u64 = 0;

/// Floats of a row. Of a feature: its center, its factor, a part of the name, and 1, or the unit of its logarithm with
/// a minus sign.
const FLOATS: usize = 4;

/// Rows of a push.
const ROWS: usize = 4096;

/// The push that chooses a name, whoever makes it. No worker has a share of this number.
fn choice_name() -> DataName {
    DataName { pusher: share_pusher(u64::from(u32::MAX)), incarnation: 1, seq: 1, clock: 0 }
}

/// The schema of the table for the normalization of a model with this table. One shard has all its rows.
pub fn norm_schema(model: &str) -> Schema {
    Schema { dim: FLOATS as u32, shards: 1, ..Schema::scalar(&norm_table(model), Rule::Add(Add)) }
}

/// The name of that table.
pub fn norm_table(model: &str) -> String {
    format!("{model}-norm")
}

/// The name of features, by what they say. No feature has it for a key.
fn name_of(features: &[NormalizedFeature]) -> u64 {
    let add = |name: u64, f: &NormalizedFeature| {
        let sizes = u64::from(f.center.to_bits()) << 32 | u64::from(f.factor.to_bits());
        mix(mix(mix(name ^ f.key) ^ sizes) ^ u64::from(f.unit.to_bits()))
    };
    let mut name = features.iter().fold(1, add);
    while features.binary_search_by_key(&name, |f| f.key).is_ok() || name == CHOSEN {
        name = mix(name.wrapping_add(1));
    }
    name
}

/// A part of a name that a float holds exactly.
fn tag(name: u64) -> f32 {
    (name >> 40) as f32
}

/// The rows of features with this name: their keys, and their floats.
fn rows_of(features: &[NormalizedFeature], name: u64) -> (Vec<u64>, Vec<f32>) {
    let keys = features.iter().map(|feature| feature.key ^ name).collect();
    let last = |f: &NormalizedFeature| if f.unit > 0.0 { -f.unit } else { 1.0 };
    (keys, features.iter().flat_map(|f| [f.center, f.factor, tag(name), last(f)]).collect())
}

/// The row that chooses a name.
pub(crate) fn choice(name: u64) -> [f32; FLOATS] {
    let part = |at: u32| (name >> at & 0x3f_ffff) as f32;
    [part(0), part(22), part(44), 1.0]
}

/// The name in such a row. `None`: no worker has decided yet.
pub(crate) fn chosen(row: &[f32]) -> Option<u64> {
    let part = |at: usize| row[at] as u64;
    (row[3] != 0.0).then(|| part(0) | part(1) << 22 | part(2) << 44)
}

/// Receives pages of keys and their rows.
pub type NormRows<'a> = &'a mut dyn FnMut(&[u64], &[f32]);

/// The normalization in rows of the table, as [`norm_schema`] describes it. `scan` passes all rows, and is called
/// twice. `None`: none is decided there.
///
/// # Errors
/// Those of `scan`.
pub fn normalization_of(
    scan: &mut dyn FnMut(NormRows<'_>) -> Result<(), BackendError>,
) -> Result<Option<Normalization>, BackendError> {
    let mut name = None;
    scan(&mut |keys, rows| {
        if let Some(at) = keys.iter().position(|&key| key == CHOSEN) {
            name = chosen(&rows[at * FLOATS..][..FLOATS]);
        }
    })?;
    let Some(name) = name else { return Ok(None) };
    let mut features = Vec::new();
    scan(&mut |keys, rows| {
        let of_name = keys.iter().zip(rows.chunks_exact(FLOATS)).filter(|(_, row)| row[2] == tag(name));
        let feature = |(key, row): (&u64, &[f32])| NormalizedFeature {
            key: key ^ name,
            center: row[0],
            factor: row[1],
            unit: (-row[3]).max(0.0),
        };
        features.extend(of_name.filter(|(key, _)| **key != CHOSEN).map(feature));
    })?;
    Ok(Some(Normalization::new(features)))
}

/// The table on the servers of a job, over connections of its own.
pub struct NormAtServers<N: Net> {
    net: N,
    config: WorkerConfig,
    schema: Schema,
}

impl<N: Net> NormAtServers<N> {
    /// The table beside that of a model, for this worker.
    pub fn new(net: N, config: WorkerConfig, model: &str) -> NormAtServers<N> {
        NormAtServers { net, config, schema: norm_schema(model) }
    }

    /// What the job has decided. `None`: nothing yet.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn decided(&self) -> Result<Option<Normalization>, BackendError> {
        let (mut worker, table) = self.connect()?;
        normalization_of(&mut |page| Ok(worker.scan(table, page)?))
    }

    /// Writes features, as far as a worker comes that dies before it has chosen them.
    ///
    /// # Errors
    /// The servers are lost.
    #[doc(hidden)]
    pub fn write(&self, own: &Normalization) -> Result<(), BackendError> {
        let (mut worker, table) = self.connect()?;
        write(&mut worker, table, own)?;
        Ok(())
    }

    fn connect(&self) -> Result<(Worker<N>, TableId), WorkerError> {
        let mut worker = Worker::connect(self.net.clone(), self.config.clone())?;
        let table = worker.open_table_exactly(&self.schema)?;
        Ok((worker, table))
    }

    /// Pushes `own` and its name, unless the job has decided, and returns what it has decided.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn decide(&self, own: &Normalization) -> Result<Normalization, BackendError> {
        let (mut worker, table) = self.connect()?;
        let mut row = [0.0; FLOATS];
        worker.pull(table, &[CHOSEN], Read::State, &mut row)?;
        if chosen(&row).is_none() {
            let name = write(&mut worker, table, own)?;
            choose(&mut worker, table, name)?;
        }
        let decided = normalization_of(&mut |page| Ok(worker.scan(table, page)?))?;
        decided.ok_or(BackendError::Order("the servers have not kept the normalization"))
    }
}

/// Writes features. Returns their name.
fn write<N: Net>(worker: &mut Worker<N>, table: TableId, own: &Normalization) -> Result<u64, WorkerError> {
    let all = own.all();
    let name = name_of(&all);
    let (keys, rows) = rows_of(&all, name);
    for (keys, rows) in keys.chunks(ROWS).zip(rows.chunks(ROWS * FLOATS)) {
        worker.push(table, keys, Write::Row, rows)?;
    }
    Ok(name)
}

/// Chooses a name, unless another worker was faster.
fn choose<N: Net>(worker: &mut Worker<N>, table: TableId, name: u64) -> Result<(), WorkerError> {
    let (cut, seq) = (Arc::new(worker.cut(table, &[CHOSEN])), worker.next_seq(table));
    let row = choice(name).to_vec();
    let push = worker.begin_push_named(table, cut, Write::Row, row, None, (seq, Some(choice_name())))?;
    worker.finish_push(push)
}

impl<N: Net + Send + Sync> AgreedNormalization for NormAtServers<N> {
    fn agree(&self, own: Normalization) -> Result<Normalization, String> {
        self.decide(&own).map_err(|error| error.to_string())
    }
}

/// The table in a store of this process.
pub struct NormInStore {
    store: Store,
    run: Option<RunId>,
    schema: Schema,
}

impl NormInStore {
    /// The table beside that of a model, in a run of this store.
    pub fn new(store: &Store, run: Option<&RunId>, model: &str) -> NormInStore {
        NormInStore { store: store.clone(), run: run.cloned(), schema: norm_schema(model) }
    }

    /// What an earlier training here has decided. `None`: nothing yet.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub fn decided(&self) -> Result<Option<Normalization>, BackendError> {
        let (tables, decided) = self.look()?;
        tables.close()?;
        Ok(decided)
    }

    fn look(&self) -> Result<(LocalTables, Option<Normalization>), BackendError> {
        let mut tables = LocalTables::of_run(self.store.clone(), self.run.clone(), 1);
        let table = tables.open(&self.schema)?;
        let decided = normalization_of(&mut |page| tables.scan(table, page))?;
        Ok((tables, decided))
    }

    /// Keeps `own`, unless something is decided, and returns what is decided.
    fn decide(&self, own: Normalization) -> Result<Normalization, BackendError> {
        let (mut tables, decided) = self.look()?;
        if decided.is_none() {
            let all = own.all();
            let name = name_of(&all);
            let (keys, rows) = rows_of(&all, name);
            tables.restore(0, &keys, &rows)?;
            tables.restore(0, &[CHOSEN], &choice(name))?;
        }
        tables.close()?;
        Ok(decided.unwrap_or(own))
    }
}

impl AgreedNormalization for NormInStore {
    fn agree(&self, own: Normalization) -> Result<Normalization, String> {
        self.decide(own).map_err(|error| error.to_string())
    }
}
