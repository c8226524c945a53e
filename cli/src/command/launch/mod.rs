//! `gannet launch`: starts the servers and workers of a job, on this machine or over ssh on others, and watches them
//! until the job has ended.
//!
//! Each process is a `gannet` with the flags of the job. Its standard input is a pipe of the launcher. A line asks it
//! to stop. The end of the pipe, which comes with the death of the launcher, ends it (launched.rs).

mod addresses;
mod command_line;
mod hosts;
mod output;
mod place;
mod ports;
mod process;
mod report;
mod supervisor;

use super::args::LaunchArgs;
use super::failure::SYSTEM;
use super::{Failure, signals};
use addresses::Addresses;
pub use addresses::claim_ports;
use command_line::JobCommand;
use hosts::Hosts;
use output::Output;
use place::{ProcessPlace, Remote};
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
    let hosts = args.hosts.as_deref().map(Hosts::read).transpose()?;
    let of_host =
        |host| Remote::of(host, args).map_err(|error| system("starting processes on hosts", &error));
    let remotes = hosts.iter().flat_map(Hosts::all).map(of_host).collect::<Result<Vec<Remote>, Failure>>()?;
    // The ports stay claimed until the job has ended.
    let addresses = match &hosts {
        Some(hosts) => Addresses::on(hosts, &remotes, args, command.needs_coordinator())?,
        None => Addresses::here(args.servers, command.needs_coordinator())?,
    };
    let job = command.job(args, &addresses);
    job.check()?;
    let place = |role| {
        hosts
            .as_ref()
            .map_or(ProcessPlace::Here, |hosts| ProcessPlace::Remote(remotes[hosts.place(role)].clone()))
    };
    let output = Arc::new(Output::new(args.logs.as_deref())?);
    let roles = job.roles();
    let processes: Vec<Process> =
        roles.map(|role| Process::new(role, place(role), job.words(role), output.clone())).collect();
    let supervisor = Supervisor::new(processes, (job.keeps_rows(), job.keeps_keys()), args.restarts);
    let ended = supervisor.run(&stop, || job.records());
    ended.print(&job)
}

fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(SYSTEM, format!("{what}: {error}"))
}
