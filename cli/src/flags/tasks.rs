//! How the data of a job is divided among its workers.

use crate::flags::memory::size;
use bytesize::ByteSize;
use clap::{Args, ValueEnum};

/// What `--tasks` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TasksName {
    /// On if the data and the flags allow it, otherwise off. If it is off, standard error says why.
    Auto,
    /// The scheduler hands out splits of the files. The splits of a worker that dies go to others.
    On,
    /// Worker i of n takes every n-th batch, beginning with the i-th.
    Off,
}

/// The splits of a job, and who hands them out.
#[derive(Args, Debug, Clone)]
pub struct TaskArgs {
    /// Job: whether a scheduler hands out splits of the data (on), or each worker takes a fixed share (off). All
    /// workers need the same value.
    #[arg(long, value_enum, default_value = "auto")]
    pub tasks: TasksName,
    /// Job: bytes of a split. Default: a sixteenth of a worker's part of the data, from 64 KiB to 4 MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub task_bytes: Option<ByteSize>,
    /// Job with --tasks on: begin to train when all workers have joined. They wait for at most --peer-timeout.
    #[arg(long)]
    pub start_together: bool,
    /// Job: the scheduler: one of the servers, or a `gannet scheduler`. Default: the server that keeps the registry of
    /// the run. For a new run it is the one whose address comes first in alphabetical order.
    #[arg(long, value_name = "HOST:PORT")]
    pub scheduler: Option<String>,
}
