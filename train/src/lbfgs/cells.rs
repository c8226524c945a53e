//! The cells: rows of a small table that carry the chief's commands and the workers' answers.
//!
//! The *chief* is worker 0. It leads the training, and the other workers follow it. Cells carry four things: the
//! chief's command, each worker's answer, a sign that each worker has started, and the state from which a restarted
//! chief continues.
//!
//! Each command has a `command_id`, larger than any before. All cells of a command have this id, and so do its
//! answers and the sums of its pass. A message of an earlier incarnation either has a smaller id, or the servers
//! refuse it because a later incarnation has fenced it.

use crate::backend::error::BackendError;
use crate::lbfgs::{Columns, CommandCell};

/// Keys of a block. Block 0 has the chief's command and block 1 the chief's memory. Each worker has a block behind
/// them.
const BLOCK: u64 = 16;
const COMMANDS: u64 = 0;
const MEMORY: u64 = 1;
const WORKERS: u64 = 2;

/// A command of the chief.
///
/// **Why commands are numbers in rows, and not a typed message.** The chief must reach every worker, and a command must
/// survive a kill of any server, any worker, and the chief. The alternatives were these:
/// - *A message to the scheduler, or over the step clocks of ssp and bsp.* The scheduler keeps no such state, and
///   L-BFGS runs without one. A clock carries one number for each worker, and no answer.
/// - *A new frame kind with state on a server.* The state must then be journaled, restored from checkpoints, bound to
///   an incarnation and tested at every kill point: a second table beside the tables.
///
/// A row has all of that already. Its push is applied exactly once, its journal survives a kill, and a replaced
/// incarnation is refused. So the cells survive what the weights survive, with no scheduler, no new frame and no code
/// on the server. The price is polling (50 us to 2 ms, small against a pass over the data) and a conversion of this
/// type to two numbers, which only `numbers` and `of` do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {
    /// Answer with the number and importance of your examples.
    Roll,
    /// Compute the margins, the loss and the gradient at the weights of a half.
    Begin { half: usize },
    /// Move the margins along the last direction, read the new one, and compute loss, slope and gradient at step 1.
    Direction { moved: f64 },
    /// Compute loss and slope at a step.
    Try { step: f64 },
    /// Compute loss, slope and gradient at a step.
    Gradient { step: f64 },
    /// Push an upper bound of each weight's curvature.
    Curvature,
    /// The training is over.
    End,
}

impl Command {
    fn numbers(self) -> [f64; 2] {
        match self {
            Command::Roll => [1.0, 0.0],
            Command::Begin { half } => [2.0, half as f64],
            Command::Direction { moved } => [3.0, moved],
            Command::Try { step } => [4.0, step],
            Command::Gradient { step } => [5.0, step],
            Command::End => [6.0, 0.0],
            Command::Curvature => [7.0, 0.0],
        }
    }

    fn of([kind, x]: [f64; 2]) -> Option<Command> {
        Some(match kind as u64 {
            1 => Command::Roll,
            2 => Command::Begin { half: usize::from(x == 1.0) },
            3 => Command::Direction { moved: x },
            4 => Command::Try { step: x },
            5 => Command::Gradient { step: x },
            6 => Command::End,
            7 => Command::Curvature,
            _ => return None,
        })
    }

    /// The command in words, for logs and errors.
    pub fn name(self) -> &'static str {
        match self {
            Command::Roll => "the roll call",
            Command::Begin { .. } => "the first pass",
            Command::Direction { .. } => "a pass",
            Command::Try { .. } => "a step of the line search",
            Command::Gradient { .. } => "the pass of a line search",
            Command::End => "the end",
            Command::Curvature => "the sums of squares",
        }
    }

    /// Rounds a number to the 48 bits that a cell stores, so that chief and workers move by the same step.
    pub fn rounded(x: f64) -> f64 {
        use gannet_optim::lbfgs::{join, split};
        join(split(x))
    }
}

fn cells(block: u64, values: &[f64]) -> Vec<(u64, f64)> {
    (block * BLOCK..).zip(values.iter().copied()).collect()
}

fn keys(block: u64, count: u64) -> Vec<u64> {
    (block * BLOCK..block * BLOCK + count).collect()
}

/// The command id of cells, if one write wrote them all.
fn whole(cells: &[CommandCell]) -> Option<u64> {
    let command_id = cells.first()?.command_id;
    (command_id > 0 && cells.iter().all(|cell| cell.command_id == command_id)).then_some(command_id)
}

/// Writes a command of the chief.
pub fn command(columns: &mut impl Columns, command_id: u64, command: Command) -> Result<(), BackendError> {
    columns.write_cells(command_id, &cells(COMMANDS, &command.numbers()))
}

/// Reads the last command and its id. `None` while no complete command is written.
pub fn commanded(columns: &mut impl Columns) -> Result<Option<(u64, Command)>, BackendError> {
    let cells = columns.read_cells(&keys(COMMANDS, 2))?;
    let command = Command::of([cells[0].value, cells[1].value]);
    Ok(whole(&cells).zip(command))
}

/// A worker's answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FollowerAnswer {
    pub loss: f64,
    pub slope: f64,
}

/// Writes that a worker starts, or with `-2 * birth` that it leaves, under the id of the latest command that it read.
///
/// Cells add numbers under one id, and a birth is positive. So the cell changes each time, and it is negative after a
/// worker has left, whatever its value was before.
pub fn arrive(
    columns: &mut impl Columns,
    worker: u32,
    command_id: u64,
    birth: f64,
) -> Result<(), BackendError> {
    columns.write_cells(command_id.max(1), &[((WORKERS + u64::from(worker)) * BLOCK + 8, birth)])
}

/// Writes a worker's answer to a command.
pub fn answer(
    columns: &mut impl Columns,
    worker: u32,
    command_id: u64,
    answer: FollowerAnswer,
) -> Result<(), BackendError> {
    columns.write_cells(command_id, &cells(WORKERS + u64::from(worker), &[answer.loss, answer.slope]))
}

/// The cells of a worker, as the chief reads them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FollowerView {
    /// The worker's sign that it has started.
    pub arrived: CommandCell,
    /// Its latest answer, and the id of that command.
    pub answered: Option<(u64, FollowerAnswer)>,
}

/// Reads the cells of workers 1 to `workers - 1`.
pub fn seen(columns: &mut impl Columns, workers: u32) -> Result<Vec<FollowerView>, BackendError> {
    let blocks = (1..u64::from(workers)).map(|worker| (WORKERS + worker) * BLOCK);
    let keys: Vec<u64> = blocks.flat_map(|first| [first, first + 1, first + 8]).collect();
    let cells = columns.read_cells(&keys)?;
    let seen = cells.chunks_exact(3).map(|c| {
        let answer = FollowerAnswer { loss: c[0].value, slope: c[1].value };
        FollowerView { arrived: c[2], answered: whole(&c[..2]).map(|command_id| (command_id, answer)) }
    });
    Ok(seen.collect())
}

/// The state from which a restarted chief continues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChiefMemory {
    pub half: usize,
    /// The slot of the next pair, and the number of valid pairs before it.
    pub next: usize,
    pub pairs: usize,
    pub iterations: u64,
    pub l1: f64,
    pub l2: f64,
    pub intercept: bool,
}

/// Writes the chief's memory.
pub fn remember(columns: &mut impl Columns, command_id: u64, m: &ChiefMemory) -> Result<(), BackendError> {
    let counts = [m.half as f64, m.next as f64, m.pairs as f64, m.iterations as f64];
    let settings = [m.l1, m.l2, f64::from(u8::from(m.intercept))];
    columns.write_cells(command_id, &cells(MEMORY, &[&counts[..], &settings[..]].concat()))
}

/// Reads the chief's memory. `None` when no chief has written it.
pub fn recall(columns: &mut impl Columns) -> Result<Option<ChiefMemory>, BackendError> {
    let cells = columns.read_cells(&keys(MEMORY, 7))?;
    let v: Vec<f64> = cells.iter().map(|cell| cell.value).collect();
    let memory = ChiefMemory {
        half: usize::from(v[0] == 1.0),
        next: v[1] as usize,
        pairs: v[2] as usize,
        iterations: v[3] as u64,
        l1: v[4],
        l2: v[5],
        intercept: v[6] != 0.0,
    };
    Ok(whole(&cells).map(|_| memory))
}

/// The largest id of a command or of the chief's memory.
pub fn last_command_id(columns: &mut impl Columns) -> Result<u64, BackendError> {
    let cells = columns.read_cells(&[keys(COMMANDS, 2), keys(MEMORY, 7)].concat())?;
    Ok(cells.iter().map(|cell| cell.command_id).max().unwrap_or(0))
}
