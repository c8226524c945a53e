//! A worker that is not the chief: does what the cells ask for, and answers.

use crate::backend::BackendError;
use crate::lbfgs::cells::{self, Command, FollowerAnswer};
use crate::lbfgs::examples::{Losses, Pass};
use crate::lbfgs::layout::{DIRECTION_SEGMENT, WEIGHTS_SEGMENT};
use crate::lbfgs::{Columns, Examples, LbfgsError};
use crate::limits::{LBFGS_LOOK_MAX, LBFGS_LOOK_MIN, LBFGS_WAIT_LOGGED};
use gannet_optim::lbfgs::join;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a worker did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowerReport {
    /// Passes over its examples.
    pub passes: u64,
    /// Steps that were looked at on the margins alone.
    pub tries: u64,
    /// A signal ended it.
    pub stopped: bool,
}

/// Follows the chief until it says that the training is over. `incarnation` is that of this worker, by which the
/// chief tells its lives apart.
///
/// # Errors
/// The chief is silent for `patience`, or the servers are lost.
pub fn follow(
    columns: &mut impl Columns,
    examples: &mut Examples,
    (worker, incarnation): (u32, u64),
    patience: Duration,
    stop: &AtomicBool,
) -> Result<FollowerReport, LbfgsError> {
    let (mut done, mut ready, mut memory) = (FollowerReport::default(), false, PassBuffers::default());
    let mut last = cells::commanded(columns)?.map_or(0, |(stamp, _)| stamp);
    let birth = birth(incarnation);
    cells::arrive(columns, worker, last, birth)?;
    loop {
        let mut look = CellPoll::new(patience);
        let (stamp, command) = loop {
            match cells::commanded(columns)? {
                Some((stamp, command)) if stamp > last => break (stamp, command),
                _ if stop.load(Relaxed) => {
                    cells::arrive(columns, worker, last, -2.0 * birth)?;
                    return Ok(FollowerReport { stopped: true, ..done });
                }
                _ if look.over() => return Err(LbfgsError::ChiefLost { waited: patience }),
                _ => look.pause(|waited| tracing::warn!(waited, "waiting for the chief (worker 0)")),
            }
        };
        last = stamp;
        let answer = match command {
            Command::End => return Ok(done),
            Command::Roll => FollowerAnswer { loss: examples.importance(), slope: examples.len() as f64 },
            // Whoever began in the middle has no margins: the chief begins anew once it has seen who came.
            _ if !ready && !matches!(command, Command::Begin { .. } | Command::Curvature) => continue,
            command => {
                ready |= matches!(command, Command::Begin { .. });
                match command {
                    Command::Try { .. } => done.tries += 1,
                    _ => done.passes += 1,
                }
                let Losses { loss, slope } = memory.obey(columns, examples, stamp, command)?;
                FollowerAnswer { loss, slope }
            }
        };
        cells::answer(columns, worker, stamp, answer)?;
    }
}

/// What a life of a worker writes when it arrives: positive, exact in 48 bits, and another one for each life.
fn birth(incarnation: u64) -> f64 {
    1.0 + (incarnation % (1 << 40)) as f64
}

/// Looks at cells: often at first, then less so, with a limit.
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

    /// Sleeps; `log` is called after a while, and then at ever longer intervals, with the seconds so far.
    pub(super) fn pause(&mut self, log: impl FnOnce(u64)) {
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LBFGS_LOOK_MAX);
        if self.since.elapsed() >= self.logged {
            self.logged *= 2;
            log(self.since.elapsed().as_secs());
        }
    }
}

/// Memory for passes.
#[derive(Default)]
pub(super) struct PassBuffers {
    rows: Vec<f32>,
    column: Vec<f64>,
}

impl PassBuffers {
    /// Does a worker's part of a command that is about its examples.
    pub(super) fn obey(
        &mut self,
        columns: &mut impl Columns,
        examples: &mut Examples,
        stamp: u64,
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
                columns.add(stamp, examples.keys(), examples.curvatures())?;
                return Ok(Losses::default());
            }
            Command::Roll | Command::End => return Ok(Losses::default()),
        };
        let losses = examples.pass(pass, &self.column);
        if !matches!(pass, Pass::Try { .. }) {
            columns.add(stamp, examples.keys(), examples.gradient())?;
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
