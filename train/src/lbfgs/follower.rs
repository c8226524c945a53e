//! A follower: a worker that is not the chief. It polls the cells for commands, runs them, and writes the answers.

use crate::backend::error::BackendError;
use crate::lbfgs::cells::{self, Command, FollowerAnswer};
use crate::lbfgs::examples::{Losses, Pass};
use crate::lbfgs::layout::{DIRECTION_SEGMENT, WEIGHTS_SEGMENT};
use crate::lbfgs::{Columns, Examples, LbfgsError};
use crate::limits::{LBFGS_LOOK_MAX, LBFGS_LOOK_MIN, LBFGS_WAIT_LOGGED};
use gannet_optim::lbfgs::join;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The results of a follower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowerReport {
    /// Passes over the worker's examples.
    pub passes: u64,
    /// Steps of the line search that needed the margins alone.
    pub tries: u64,
    /// Whether the stop flag ended it.
    pub stopped: bool,
}

/// Follows the chief until the training ends. `incarnation` is this worker's. It shows the chief that a worker has
/// restarted.
///
/// # Errors
/// The chief gives no command for `patience`, or the servers are lost.
pub fn follow(
    columns: &mut impl Columns,
    examples: &mut Examples,
    (worker, incarnation): (u32, u64),
    patience: Duration,
    stop: &AtomicBool,
) -> Result<FollowerReport, LbfgsError> {
    let (mut report, mut ready, mut buffers) = (FollowerReport::default(), false, PassBuffers::default());
    let mut last = cells::commanded(columns)?.map_or(0, |(command_id, _)| command_id);
    let birth = birth(incarnation);
    cells::arrive(columns, worker, last, birth)?;
    loop {
        let mut look = CellPoll::new(patience);
        let (command_id, command) = loop {
            match cells::commanded(columns)? {
                Some((command_id, command)) if command_id > last => break (command_id, command),
                _ if stop.load(Relaxed) => {
                    cells::arrive(columns, worker, last, -2.0 * birth)?;
                    return Ok(FollowerReport { stopped: true, ..report });
                }
                _ if look.over() => return Err(LbfgsError::ChiefLost { waited: patience }),
                _ => look
                    .pause(|waited| tracing::warn!(waited, "waiting for a command of the chief (worker 0)")),
            }
        };
        last = command_id;
        let answer = match command {
            Command::End => return Ok(report),
            Command::Roll => FollowerAnswer { loss: examples.importance(), slope: examples.len() as f64 },
            // A worker that joins in the middle has no margins. The chief notices the start and repeats the
            // iteration.
            _ if !ready && !matches!(command, Command::Begin { .. } | Command::Curvature) => continue,
            command => {
                ready |= matches!(command, Command::Begin { .. });
                match command {
                    Command::Try { .. } => report.tries += 1,
                    _ => report.passes += 1,
                }
                let Losses { loss, slope } = buffers.run(columns, examples, command_id, command)?;
                FollowerAnswer { loss, slope }
            }
        };
        cells::answer(columns, worker, command_id, answer)?;
    }
}

/// The number that a worker writes when it starts: positive, exact in 48 bits, and different for each incarnation.
fn birth(incarnation: u64) -> f64 {
    1.0 + (incarnation % (1 << 40)) as f64
}

/// Polls cells: often at first, then less often, until a time limit.
pub(super) struct CellPoll {
    since: Instant,
    patience: Duration,
    pause: Duration,
    logged: Duration,
}

impl CellPoll {
    pub(super) fn new(patience: Duration) -> CellPoll {
        CellPoll { since: Instant::now(), patience, pause: LBFGS_LOOK_MIN, logged: LBFGS_WAIT_LOGGED }
    }

    pub(super) fn over(&self) -> bool {
        self.since.elapsed() > self.patience
    }

    /// Sleeps. Calls `log` with the seconds waited, first after some seconds and then at ever longer intervals.
    pub(super) fn pause(&mut self, log: impl FnOnce(u64)) {
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LBFGS_LOOK_MAX);
        if self.since.elapsed() >= self.logged {
            self.logged *= 2;
            log(self.since.elapsed().as_secs());
        }
    }
}

/// Buffers for passes over the examples.
#[derive(Default)]
pub(super) struct PassBuffers {
    rows: Vec<f32>,
    column: Vec<f64>,
}

impl PassBuffers {
    /// Runs a worker's part of a command: a pass over its examples.
    pub(super) fn run(
        &mut self,
        columns: &mut impl Columns,
        examples: &mut Examples,
        command_id: u64,
        command: Command,
    ) -> Result<Losses, BackendError> {
        let pass = match command {
            Command::Begin { half } => {
                self.pull(columns, examples, WEIGHTS_SEGMENT, 2 * half)?;
                Pass::Weights
            }
            Command::Direction { moved } => {
                self.pull(columns, examples, DIRECTION_SEGMENT, 0)?;
                Pass::Direction { moved }
            }
            Command::Try { step } => Pass::Try { step },
            Command::Gradient { step } => Pass::Gradient { step },
            Command::Curvature => {
                columns.add(command_id, examples.keys(), examples.curvatures())?;
                return Ok(Losses::default());
            }
            Command::Roll | Command::End => return Ok(Losses::default()),
        };
        let losses = examples.pass(pass, &self.column);
        if !matches!(pass, Pass::Try { .. }) {
            columns.add(command_id, examples.keys(), examples.gradient())?;
        }
        Ok(losses)
    }

    /// Reads the f64 at `at` in a segment of each key's row.
    fn pull(
        &mut self,
        columns: &mut impl Columns,
        examples: &Examples,
        segment: usize,
        at: usize,
    ) -> Result<(), BackendError> {
        columns.pull(segment, examples.keys(), &mut self.rows)?;
        let floats = self.rows.len() / examples.keys().len().max(1);
        self.column.clear();
        self.column.extend(self.rows.chunks_exact(floats.max(1)).map(|row| join([row[at], row[at + 1]])));
        Ok(())
    }
}
