//! Rows of a table as a whole: deletion, and checkpoints that a worker writes and reads.

use crate::error::WorkerError;
use crate::requests::names::TableId;
use crate::worker::Worker;
use gannet_core::{Checkpoint, CheckpointWriter, RowType, Schema, Write, own_files};
use gannet_transport::Net;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A load begins a push as soon as it has this many rows.
const LOAD_KEYS: usize = 1 << 16;

/// Locks the folder of a save, as a training locks that of `--out`, until the file is closed. What is wrong with the
/// folder, the save says. A file system may lock no folders, such as NFS.
fn hold(folder: &Path) -> Result<Option<File>, WorkerError> {
    let Ok(opened) = std::fs::create_dir_all(folder).and_then(|()| File::open(folder)) else {
        return Ok(None);
    };
    match own_files::lock_exclusive(&opened) {
        Ok(false) => Err(WorkerError::Call(format!(
            "{}: another process saves a model in this folder now: wait until it has ended, or name another folder",
            folder.display()
        ))),
        Ok(true) | Err(_) => Ok(Some(opened)),
    }
}

impl<N: Net> Worker<N> {
    /// Deletes the rows of these keys and waits for the acknowledgement. The keys then read as their initial values. A
    /// key without a row stays without one.
    ///
    /// A deletion is applied exactly once, like a push, and in order with the pushes of this worker. A later push of
    /// any worker makes a new row.
    ///
    /// ```
    /// use gannet_core::{Read, Schema, Write};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// use gannet_optim::{Add, Rule};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0])?;
    /// worker.delete(table, &[7])?;
    ///
    /// let mut clicks = [9.0; 2];
    /// worker.pull(table, &[7, 8], Read::Weights, &mut clicks)?;
    /// assert_eq!(clicks, [0.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The worker has joined the table in synchronous steps (`bsp`). Otherwise as [`Worker::push`].
    pub fn delete(&mut self, table: TableId, keys: &[u64]) -> Result<(), WorkerError> {
        self.push(table, keys, Write::Delete, &[])
    }

    /// Writes every row of a table, with its optimizer state, into a checkpoint in `folder`. Returns the number of
    /// rows. The checkpoint replaces an older one in the folder as a whole, when it is complete.
    ///
    /// Pushes that other workers make meanwhile may be in the checkpoint or not. A key that another worker deletes and
    /// pushes again meanwhile may be in it twice; [`Worker::load`] then stores the newer row. The rows stay in this
    /// process's memory until they are written.
    ///
    /// ```
    /// use gannet_core::{Read, Schema, Write};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// use gannet_optim::{Add, Rule};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// # let folder = tempfile::tempdir()?;
    /// let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0])?;
    /// assert_eq!(worker.save(table, folder.path())?, 2);
    ///
    /// worker.delete(table, &[7, 8])?;
    /// assert_eq!(worker.load(table, folder.path())?, 2);
    /// let mut clicks = [0.0; 2];
    /// worker.pull(table, &[7, 8], Read::Weights, &mut clicks)?;
    /// assert_eq!(clicks, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The folder cannot be written, or a peer is lost for good.
    pub fn save(&mut self, table: TableId, folder: &Path) -> Result<u64, WorkerError> {
        let _held = hold(folder)?;
        let mut writer = CheckpointWriter::create(folder, self.schema(table))?;
        self.scan(table, |keys, rows| writer.add(keys, rows))?;
        Ok(writer.finish()?)
    }

    /// Stores the rows of the checkpoint in `folder` into a table and waits for the acknowledgement. Returns the number
    /// of rows. They replace existing rows, and rows of other keys stay. Weights become those of the table's row type:
    /// the nearest ones, where it has 2 bytes. [`Worker::save`] has an example.
    ///
    /// # Errors
    /// The folder holds no sound checkpoint. The rows of the checkpoint have another shape or another rule than the
    /// table, or they cannot be rows of its rule. The worker has joined the table in synchronous steps (`bsp`).
    /// Otherwise as [`Worker::push`]. After an error a part of the rows may be in the table.
    pub fn load(&mut self, table: TableId, folder: &Path) -> Result<u64, WorkerError> {
        let checkpoint = Checkpoint::open_to_read(folder)?;
        must_fit(checkpoint.schema(), self.schema(table), folder)?;
        let (saved, schema) = (checkpoint.schema().clone(), self.schema(table).clone());
        let (mut keys, mut rows, mut loaded) = (Vec::new(), Vec::new(), Ok(()));
        let (mut unsound, mut wide, mut block) = (0, Vec::new(), Vec::new());
        checkpoint.read(|block_keys, block_rows| {
            let block_rows = match saved.row_type() == schema.row_type() {
                true => block_rows,
                false => {
                    block.clear();
                    for row in block_rows.chunks_exact(saved.floats()) {
                        wide.clear();
                        saved.put_f32_row(row, &mut wide);
                        schema.put_row_of_f32(&wide, &mut block);
                    }
                    &block
                }
            };
            let each = block_keys.iter().zip(block_rows.chunks_exact(schema.floats()));
            unsound += each.filter(|(key, row)| !schema.is_sound_row(**key, row)).count();
            if unsound > 0 || loaded.is_err() {
                return;
            }
            keys.extend_from_slice(block_keys);
            rows.extend_from_slice(block_rows);
            if keys.len() >= LOAD_KEYS {
                loaded = begin_load(self, table, &mut keys, &mut rows);
            }
        })?;
        loaded?;
        if unsound > 0 {
            return Err(WorkerError::Call(format!(
                "{}: {unsound} of {} rows have values that rule {} cannot make in rows of {}{}; load another checkpoint",
                folder.display(),
                checkpoint.rows(),
                schema.rule.name(),
                schema.row_type().name(),
                wrong_values(schema.row_type())
            )));
        }
        begin_load(self, table, &mut keys, &mut rows)?;
        self.drain()?;
        Ok(checkpoint.rows())
    }
}

/// Begins a push of these rows, and empties the two lists.
fn begin_load<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    keys: &mut Vec<u64>,
    rows: &mut Vec<f32>,
) -> Result<(), WorkerError> {
    if !keys.is_empty() {
        let cut = Arc::new(worker.cut(table, keys));
        let mut sorted = worker.spare.take();
        cut.rows_by_shard(rows, worker.schema(table).floats(), &mut sorted);
        let seq = worker.next_seq(table);
        worker.begin_push(table, cut, Write::Row, sorted, None, seq)?;
    }
    keys.clear();
    rows.clear();
    Ok(())
}

/// An example of values that rows of this type cannot have.
fn wrong_values(row_type: RowType) -> &'static str {
    match row_type {
        RowType::F16 => " (such as NaN, or weights beyond 65504)",
        RowType::F32 | RowType::Bf16 => " (such as NaN)",
    }
}

/// Refuses a checkpoint whose rows are not rows of the table.
fn must_fit(saved: &Schema, table: &Schema, folder: &Path) -> Result<(), WorkerError> {
    let shape = |schema: &Schema| -> Vec<_> {
        schema.segments().map(|segment| format!("{} of dim {}", segment.rule.name(), segment.dim)).collect()
    };
    let (saved, ours) = (shape(saved), shape(table));
    if saved == ours {
        return Ok(());
    }
    Err(WorkerError::Call(format!(
        "{}: its rows are {}, but the rows of table {:?} are {}; open a table with the rule and dim of the checkpoint",
        folder.display(),
        saved.join(" and "),
        table.name,
        ours.join(" and ")
    )))
}
