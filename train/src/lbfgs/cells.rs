//! The cells over which workers keep step: what the chief asks for, what came of it at each worker, who is there, and what
//! a chief that is started again goes on from.
//!
//! A command has a stamp of its own, larger than any before; all its cells bear it, and so do the answers and the sums of the
//! pass. So whatever a life that is over still sends is of an older stamp, or is refused because a later life took its place.

use crate::backend::BackendError;
use crate::lbfgs::{Columns, CommandCell};

/// Cells of a worker; those of the chief's commands come first, and behind them its memory.
const BLOCK: u64 = 16;
const COMMANDS: u64 = 0;
const MEMORY: u64 = 1;
const WORKERS: u64 = 2;

/// What the chief asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {
    /// Say that you are here.
    Roll,
    /// Compute margins at the weights of a half, loss and gradient there.
    Begin { half: usize },
    /// Move by a step along the direction that was; take the new one; loss, slope and gradient at step 1.
    Direction { moved: f64 },
    /// Loss and slope at a step.
    Try { step: f64 },
    /// Loss, slope and gradient at a step.
    Gradient { step: f64 },
    /// Sum the curvature that each weight has at most.
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

    /// For messages.
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

    /// A step, when it has one, rounded to what a cell keeps: everybody moves by the same.
    pub fn kept(x: f64) -> f64 {
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

/// The values of cells that are all of one writing.
fn whole(cells: &[CommandCell]) -> Option<u64> {
    let stamp = cells.first()?.stamp;
    (stamp > 0 && cells.iter().all(|cell| cell.stamp == stamp)).then_some(stamp)
}

/// Writes a command.
pub fn command(columns: &mut impl Columns, stamp: u64, command: Command) -> Result<(), BackendError> {
    columns.write_cells(stamp, &cells(COMMANDS, &command.numbers()))
}

/// The last command, and its stamp.
pub fn commanded(columns: &mut impl Columns) -> Result<Option<(u64, Command)>, BackendError> {
    let cells = columns.read_cells(&keys(COMMANDS, 2))?;
    let command = Command::of([cells[0].value, cells[1].value]);
    Ok(whole(&cells).zip(command))
}

/// What a worker answers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FollowerAnswer {
    pub loss: f64,
    pub slope: f64,
}

/// A worker says that it begins, or, with a negative number twice as large, that it goes, under the stamp of the last command
/// that it saw: the cell becomes another, and negative in the end, whatever stood in it.
pub fn arrive(columns: &mut impl Columns, worker: u32, stamp: u64, birth: f64) -> Result<(), BackendError> {
    columns.write_cells(stamp.max(1), &[((WORKERS + u64::from(worker)) * BLOCK + 8, birth)])
}

/// A worker answers a command.
pub fn answer(
    columns: &mut impl Columns,
    worker: u32,
    stamp: u64,
    answer: FollowerAnswer,
) -> Result<(), BackendError> {
    columns.write_cells(stamp, &cells(WORKERS + u64::from(worker), &[answer.loss, answer.slope]))
}

/// A worker as the chief sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FollowerView {
    /// What it wrote when it began.
    pub arrived: CommandCell,
    /// Its last answer, and to which command.
    pub answered: Option<(u64, FollowerAnswer)>,
}

/// Workers 1 to `workers - 1`.
pub fn seen(columns: &mut impl Columns, workers: u32) -> Result<Vec<FollowerView>, BackendError> {
    let blocks = (1..u64::from(workers)).map(|worker| (WORKERS + worker) * BLOCK);
    let keys: Vec<u64> = blocks.flat_map(|first| [first, first + 1, first + 8]).collect();
    let cells = columns.read_cells(&keys)?;
    let seen = cells.chunks_exact(3).map(|c| {
        let answer = FollowerAnswer { loss: c[0].value, slope: c[1].value };
        FollowerView { arrived: c[2], answered: whole(&c[..2]).map(|stamp| (stamp, answer)) }
    });
    Ok(seen.collect())
}

/// What a chief goes on from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FollowerMemory {
    pub half: usize,
    /// The slot of the next pair, and pairs before it that count.
    pub next: usize,
    pub pairs: usize,
    pub iterations: u64,
    pub l1: f64,
    pub l2: f64,
    pub intercept: bool,
}

/// Keeps it.
pub fn remember(columns: &mut impl Columns, stamp: u64, m: &FollowerMemory) -> Result<(), BackendError> {
    let counts = [m.half as f64, m.next as f64, m.pairs as f64, m.iterations as f64];
    let settings = [m.l1, m.l2, f64::from(u8::from(m.intercept))];
    columns.write_cells(stamp, &cells(MEMORY, &[&counts[..], &settings[..]].concat()))
}

/// What was kept last.
pub fn recall(columns: &mut impl Columns) -> Result<Option<FollowerMemory>, BackendError> {
    let cells = columns.read_cells(&keys(MEMORY, 7))?;
    let v: Vec<f64> = cells.iter().map(|cell| cell.value).collect();
    let memory = FollowerMemory {
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

/// The largest stamp that a command or memory has.
pub fn last_stamp(columns: &mut impl Columns) -> Result<u64, BackendError> {
    let cells = columns.read_cells(&[keys(COMMANDS, 2), keys(MEMORY, 7)].concat())?;
    Ok(cells.iter().map(|cell| cell.stamp).max().unwrap_or(0))
}
