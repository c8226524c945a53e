//! The simple calls: each waits for its answer. Keys may be in any order and may repeat.

use crate::calls::one_sided::pull_one_sided;
use crate::calls::pipeline::read_floats;
use crate::error::WorkerError;
use crate::requests::names::TableId;
use crate::worker::Worker;
use gannet_core::{Read, Segments, Write};
use gannet_transport::Net;
use gannet_wire::sharded_keys::ShardedKeys;
use std::sync::Arc;

impl<N: Net> Worker<N> {
    /// Reads a row for each key into `out`, in the order of the keys.
    ///
    /// ```
    /// # use gannet_core::{Read, Schema, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// worker.push(table, &[7], Write::Gradient, &[1.5])?;
    /// let mut clicks = [9.0; 3];
    /// worker.pull(table, &[7, 8, 7], Read::Weights, &mut clicks)?;
    /// assert_eq!(clicks, [1.5, 0.0, 1.5]); // key 8 has no row, and reads as its initial value
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `out` has the wrong length, the request was refused, or a peer is lost for good.
    pub fn pull(
        &mut self,
        table: TableId,
        keys: &[u64],
        read: Read,
        out: &mut [f32],
    ) -> Result<(), WorkerError> {
        self.pull_segments(table, keys, read, Segments::ALL, out)
    }

    /// [`Worker::pull`] of some segments of each row, one after another. The other segments do not travel. [`Segments`]
    /// has an example.
    ///
    /// # Errors
    /// As [`Worker::pull`]; or rows of the table do not have these segments.
    pub fn pull_segments(
        &mut self,
        table: TableId,
        keys: &[u64],
        read: Read,
        segments: Segments,
        out: &mut [f32],
    ) -> Result<(), WorkerError> {
        let floats = read_floats(self.schema(table), read, segments)?;
        if out.len() != keys.len() * floats {
            let (got, want) = (out.len(), keys.len() * floats);
            return Err(WorkerError::Call(format!(
                "{got} floats for the rows of {} keys, but {want} are needed",
                keys.len()
            )));
        }
        if pull_one_sided(self, table, keys, read, segments, out)? {
            return Ok(());
        }
        let cut = own_cut(self, table, keys);
        let values = self.spare.take();
        let id = self.begin_pull_segments(table, cut.clone(), read, segments, values, false)?;
        let pulled = self.finish_pull(id)?;
        cut.rows_as_given(&pulled.values, floats, out);
        self.spare.keep(pulled.values);
        self.spare.cut = cut;
        Ok(())
    }

    /// Pushes a row of values for each key and waits for the acknowledgement. A repeated key is applied each time, in
    /// order.
    ///
    /// ```
    /// # use gannet_core::{Read, Schema, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// worker.push(table, &[7, 8, 7], Write::Gradient, &[1.0, 2.0, 3.0])?;
    /// let mut clicks = [0.0; 2];
    /// worker.pull(table, &[7, 8], Read::Weights, &mut clicks)?;
    /// assert_eq!(clicks, [4.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `values` has the wrong length, the push was refused, or a peer is lost for good.
    pub fn push(
        &mut self,
        table: TableId,
        keys: &[u64],
        write: Write,
        values: &[f32],
    ) -> Result<(), WorkerError> {
        let floats = self.schema(table).write_floats(write);
        if values.len() != keys.len() * floats {
            let (got, want) = (values.len(), keys.len() * floats);
            return Err(WorkerError::Call(format!(
                "a push of {} keys carries {got} floats, but needs {want}",
                keys.len()
            )));
        }
        let cut = own_cut(self, table, keys);
        let mut rows = self.spare.take();
        cut.rows_by_shard(values, floats, &mut rows);
        let seq = self.next_seq(table);
        let id = self.begin_push(table, cut.clone(), write, rows, None, seq)?;
        self.spare.cut = cut;
        self.finish_push(id)
    }
}

/// Cuts these keys, in the memory of the previous cut if nothing else uses that.
fn own_cut<N: Net>(worker: &mut Worker<N>, table: TableId, keys: &[u64]) -> Arc<ShardedKeys> {
    let mut cut = std::mem::take(&mut worker.spare.cut);
    match Arc::get_mut(&mut cut) {
        Some(own) => worker.cut_into(table, keys, own),
        None => cut = Arc::new(worker.cut(table, keys)),
    }
    cut
}
