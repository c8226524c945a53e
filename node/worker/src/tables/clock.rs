//! A worker's clock over a table, and what it asks of the step that the worker is in.

use crate::error::WorkerError;
use crate::limits::WAITS_SILENCE;
use crate::tables::table::Tables;
use gannet_wire::sync::{SyncConfig, SyncMode};
use std::time::Duration;

/// How a worker keeps step over one table.
pub(crate) struct TableClock {
    pub(crate) sync: SyncConfig,
    /// The step that the worker is in.
    pub(crate) clock: u64,
    /// Pushes of a synchronous step have begun, and the step has not ended.
    pub(crate) open: bool,
    /// Pushes that arrived too late for their step, until a call takes them.
    pub(crate) late: Vec<u64>,
}

impl TableClock {
    /// The clock of a pull for the step that is `ahead` steps after this one.
    pub(crate) fn of_pull(&self, ahead: u64) -> Result<u64, WorkerError> {
        let mode = &self.sync.mode;
        if ahead > mode.ahead_max() {
            return Err(WorkerError::Call(format!(
                "a pull {ahead} steps ahead of its worker would wait for that worker: {} allows {}",
                mode.name(),
                mode.ahead_max()
            )));
        }
        Ok(self.clock + ahead)
    }

    /// The clock that the slowest worker must have for a pull at `clock`.
    fn least(&self, clock: u64) -> u64 {
        match self.sync.mode {
            SyncMode::Asp => 0,
            SyncMode::Ssp(bound) => clock.saturating_sub(u64::from(bound)),
            SyncMode::Bsp(_) => clock,
        }
    }
}

impl Tables {
    fn clocks(&self) -> impl Iterator<Item = &TableClock> {
        self.iter().filter_map(|table| table.group.as_ref())
    }

    /// A synchronous step is open over some table.
    pub(crate) fn is_in_step(&self) -> bool {
        self.clocks().any(|clock| clock.open)
    }

    /// The worker makes synchronous steps over some table.
    pub(crate) fn is_any_bsp(&self) -> bool {
        self.clocks().any(|clock| clock.sync.mode.is_bsp())
    }

    /// Fails in the middle of a synchronous step, because the answer would wait for its end.
    pub(crate) fn must_have_ticked(&self, what: &str) -> Result<(), WorkerError> {
        if self.is_in_step() {
            let text =
                format!("{what} in the middle of a synchronous step would wait for ever: call tick first");
            return Err(WorkerError::Call(text));
        }
        Ok(())
    }

    /// The clock of a pull, if the worker has joined.
    pub(crate) fn pull_clock(&self, table: usize, ahead: u64) -> Result<Option<u64>, WorkerError> {
        self.must_have_ticked("a pull")?;
        self[table].group.as_ref().map(|clock| clock.of_pull(ahead)).transpose()
    }

    /// The clock that the slowest worker must have for a pull at `clock`.
    pub(crate) fn least(&self, table: usize, clock: Option<u64>) -> u64 {
        self[table].group.as_ref().zip(clock).map_or(0, |(group, clock)| group.least(clock))
    }

    /// The shortest time after which a silent worker counts as dead, if this one keeps step over any table.
    pub(crate) fn worker_timeout(&self) -> Option<Duration> {
        self.clocks().map(|clock| clock.sync.worker_timeout).min()
    }

    /// How long a server may be silent. A server at which a worker waits for others reports that in time.
    pub(crate) fn patience(&self, peer_timeout: Duration) -> Duration {
        let waits = self.clocks().any(|clock| clock.sync.mode != SyncMode::Asp);
        peer_timeout.max(if waits { WAITS_SILENCE } else { Duration::ZERO })
    }
}
