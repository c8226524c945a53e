//! A worker that reads rows in place (mapped images, or RDMA) from a server that is stopped, continued or
//! killed. The values of each row identify it.

use gannet::optim::Sgd;
use gannet::table::TableId;
use gannet::worker::WorkerError;
use gannet::{Read, Rule, Schema, Transports, Worker, WorkerConfig, Write};
use std::time::Duration;

/// The lease that docs/consistency.md promises.
pub const LEASE: Duration = Duration::from_secs(2);

/// A worker and a table of its own.
pub struct Reader {
    pub worker: Worker<Transports>,
    table: TableId,
    keys: Vec<u64>,
}

impl Reader {
    /// Connects over `transport` and pushes this many rows.
    pub fn new(wires: Transports, config: WorkerConfig, transport: &str, keys: u64) -> Reader {
        let mut worker = Worker::connect(wires, config).unwrap();
        assert_eq!(worker.transport(), transport);
        let rule = Rule::Sgd(Sgd { lr: 1.0 });
        let table = worker.open_table(&Schema { dim: 3, ..Schema::scalar("near", rule) }).unwrap();
        let keys: Vec<u64> = (0..keys).collect();
        let gradients: Vec<f32> = keys.iter().flat_map(|&key| [-(key as f32); 3]).collect();
        worker.push(table, &keys, Write::Gradient, &gradients).unwrap();
        Reader { worker, table, keys }
    }

    /// Pulls every row and checks its values. Returns how many were read in place.
    pub fn pull(&mut self) -> Result<u64, WorkerError> {
        let before = self.worker.counters().near_rows;
        let mut out = vec![0.0; self.keys.len() * 3];
        self.worker.pull(self.table, &self.keys, Read::Weights, &mut out)?;
        for (&key, row) in self.keys.iter().zip(out.chunks_exact(3)) {
            assert_eq!(row, [key as f32; 3]);
        }
        Ok(self.worker.counters().near_rows - before)
    }
}
