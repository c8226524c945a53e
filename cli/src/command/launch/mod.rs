//! `gannet launch`: starts the servers and workers of a job on this machine, and watches them until the job has ended.
//!
//! Each process is a `gannet` with the flags of the job. Its standard input is a pipe of the launcher. A line asks it
//! to stop. The end of the pipe, which comes with the death of the launcher, ends it (launched.rs).

mod command_line;
mod output;
mod ports;
mod process;
mod report;
mod supervisor;

use super::args::LaunchArgs;
use super::failure::SYSTEM;
use super::{Failure, signals};
use command_line::JobCommand;
use output::Output;
use ports::Ports;
use process::Process;
use std::sync::Arc;
use supervisor::Supervisor;

/// Which process of a job a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessRole {
    Coordinator,
    Server(u32),
    Worker(u32),
}

impl ProcessRole {
    /// For people.
    fn name(self) -> String {
        match self {
            ProcessRole::Coordinator => "coordinator".into(),
            ProcessRole::Server(index) => format!("ps {index}"),
            ProcessRole::Worker(index) => format!("worker {index}"),
        }
    }

    fn is_worker(self) -> bool {
        matches!(self, ProcessRole::Worker(_))
    }
}

/// Runs the command.
pub fn run(args: &LaunchArgs) -> Result<(), Failure> {
    let command = JobCommand::of(&args.command)?;
    let stop = signals::stop_flag()?;
    // The ports stay claimed until the job has ended.
    let ports = Ports::claim(args.servers as usize + usize::from(command.needs_coordinator()))?;
    let job = command.job(args, ports.addrs());
    job.check()?;
    let output = Arc::new(Output::new(args.logs.as_deref())?);
    let roles = job.roles();
    let processes: Vec<Process> =
        roles.map(|role| Process::new(role, job.words(role), output.clone())).collect();
    let supervisor = Supervisor::new(processes, (job.keeps_rows(), job.keeps_keys()), args.restarts);
    let ended = supervisor.run(&stop, || job.records());
    ended.print(&job)
}

fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(SYSTEM, format!("{what}: {error}"))
}
