//! `gannet launch`: starts the servers and workers of a job, on this machine or over ssh on others, and watches them
//! until the job has ended.
//!
//! Each process is a `gannet` with the flags of the job. Its standard input is a pipe of the launcher. A line asks it
//! to stop. The end of the pipe, which comes with the death of the launcher, ends it (launched.rs).

pub mod addresses;
pub mod command_line;
pub mod hosts;
pub mod output;
pub mod place;
pub mod ports;
pub mod process;
pub mod report;
pub mod role;
pub mod supervisor;

use crate::failure::Failure;
use crate::flags::LaunchArgs;
use crate::launch::addresses::Addresses;
use crate::launch::command_line::JobCommand;
use crate::launch::hosts::Hosts;
use crate::launch::output::Output;
use crate::launch::place::{ProcessPlace, Remote};
use crate::launch::process::Process;
use crate::launch::role::system;
use crate::launch::supervisor::Supervisor;
use crate::signals;
use std::sync::Arc;

/// Runs the command.
pub fn run_launch(args: &LaunchArgs) -> Result<(), Failure> {
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
    if hosts.is_none() {
        job.check_worker()?;
    }
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
