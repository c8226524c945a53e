//! How a job's data comes to its workers, and how long they may be silent.

use super::memory::size;
use bytesize::ByteSize;
use clap::{Args, ValueEnum};

/// What `--tasks` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TasksName {
    /// On wherever it can be had, off elsewhere; standard error says which, and why.
    Auto,
    /// The scheduler hands out pieces of the files; those of a worker that dies go to others.
    On,
    /// Worker i of n takes every n-th batch, from the i-th on.
    Off,
}

/// Data tasks of a job.
#[derive(Args, Debug, Clone)]
pub struct TaskArgs {
    /// Job: on: a scheduler hands out the data in pieces; off: each worker takes a fixed share. The same for all of its workers.
    #[arg(long, value_enum, default_value = "auto")]
    pub tasks: TasksName,
    /// Job: bytes of a piece. Default: a sixteenth of a worker's part of the data, from 64 KiB to 4 MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub task_bytes: Option<ByteSize>,
    /// Job with --tasks on: train from when all workers have come (for at most --peer-timeout), not each from when it comes.
    #[arg(long)]
    pub start_together: bool,
    /// Job: the server that is its scheduler, or a `gannet scheduler`. Default: the one of --ps-hosts whose
    /// text comes first in alphabetical order.
    #[arg(long, value_name = "HOST:PORT")]
    pub scheduler: Option<String>,
}
