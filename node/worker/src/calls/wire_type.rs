//! How the floats of a table travel: as f32, or weights and gradients as f16.

use crate::error::WorkerError;
use crate::limits::ROUNDING_BYTES_MAX;
use crate::requests::names::TableId;
use crate::requests::push_rows::PushRows;
use crate::tables::rounding_errors::RoundingErrors;
use crate::worker::Worker;
use gannet_core::Write;
use gannet_optim::Rule;
use gannet_transport::Net;
use gannet_wire::frames::f16;

/// How a worker's pulls of weights and pushes of gradients travel. Whole rows, state and changes of state are always
/// f32. [`Worker::set_wire_type`] sets it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WireType {
    /// 4 bytes a float.
    #[default]
    F32,
    /// 2 bytes a float: IEEE 754 binary16. The range is 65,504, with 11 bits of precision.
    F16,
}

impl<N: Net> Worker<N> {
    /// Says how this worker's pulls of weights and pushes of gradients of a table travel. Other workers of the table
    /// may choose otherwise. Call it before the first pull. With [`WireType::F16`]
    /// - a pull returns weights that are rounded to the nearest f16, also where the worker reads them without a request
    ///   or has them in its cache. A weight beyond the range of f16 stays as it is;
    /// - a push rounds its gradients to the nearest f16. The worker keeps what the rounding left out, and adds it to
    ///   the key's next gradient (error feedback: Seide and others, 1-Bit Stochastic Gradient Descent, 2014). The
    ///   memory for that has a limit, [`ROUNDING_BYTES_MAX`](crate::limits::ROUNDING_BYTES_MAX). Keys for which there
    ///   is no more memory are rounded by chance, which is right on average;
    /// - a push travels as f32 if one of its gradients is not finite, or is beyond the range of f16.
    ///
    /// What the rounding left out of the last gradient of each key is dropped with the worker, or by a further call.
    ///
    /// ```
    /// # use gannet_core::{Read, Schema, Write};
    /// # use gannet_optim::{Rule, Sgd};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{WireType, Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// let table = worker.open_table(&Schema::scalar("clicks", Rule::Sgd(Sgd { lr: 1.0 })))?;
    /// worker.set_wire_type(table, WireType::F16)?;
    /// for _ in 0..1000 {
    ///     worker.push(table, &[7], Write::Gradient, &[-0.001])?;
    /// }
    /// let mut weight = [0.0];
    /// worker.pull(table, &[7], Read::Weights, &mut weight)?;
    /// assert_eq!(weight, [1.0]); // although no f16 is 0.001
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A rule of the table is [`Add`](gannet_optim::Add): what is summed up so must stay exact.
    ///
    /// # Panics
    /// When the table is another worker's.
    pub fn set_wire_type(&mut self, table: TableId, wire: WireType) -> Result<(), WorkerError> {
        let known = &mut self.tables[table.0];
        if wire == WireType::F16
            && known.schema.segments().any(|segment| matches!(segment.rule, Rule::Add(_)))
        {
            return Err(WorkerError::Call(format!(
                "table {:?} adds up what is pushed (rule add), which must stay exact: its floats cannot travel as f16",
                known.schema.name
            )));
        }
        let floats = known.schema.weights();
        known.rounding = match wire {
            WireType::F32 => None,
            WireType::F16 => Some(RoundingErrors::new(floats, ROUNDING_BYTES_MAX)),
        };
        Ok(())
    }
}

/// Rounds the values of a push to f16, in the first half of their memory. `false`: they travel as f32, unchanged.
pub(crate) fn narrow_push<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    write: Write,
    keys: &[u64],
    seq: u64,
    values: &mut PushRows,
) -> bool {
    let Some(rounding) = &mut worker.tables[table.0].rounding else { return false };
    if write != Write::Gradient {
        return false;
    }
    if !f16::fit_f16(values) {
        worker.links.counters.wide_pushes.add(1);
        return false;
    }
    let by_chance = rounding.narrow(keys, seq, values.to_mut());
    worker.links.counters.rounded_by_chance.add(by_chance as u64);
    true
}
