//! The flags of `gannet launch`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// `gannet launch`.
#[derive(Args, Debug)]
#[command(
    override_usage = "gannet launch [--servers N] [--workers N] [OPTIONS] -- train DATA [OPTIONS OF TRAIN]",
    after_help = "The launcher adds the flags that say which process of the job each one is. With --backups and without \
--coordinator it starts a coordinator, too.\nExit codes: 0 all workers have ended well; 130 stopped by Ctrl-C; else \
that of the process that ended the job."
)]
pub struct LaunchArgs {
    /// Server processes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub servers: u32,
    /// Worker processes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,
    /// Keep the shards of server N in DIR/ps-N, so that it goes on with its rows when it is started again.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Start a process that has died again, at most so many times each.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub restarts: u32,
    /// Write what each process prints into a file of this folder (ps-0.log, worker-0.log and so on). Without it,
    /// standard error has all lines, each with the name of its process.
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
    /// Start the processes on the hosts that this file names, over ssh. Each line is a host: [USER@]HOST [slots=N]
    /// [addr=ADDRESS]. Servers, and then workers, are dealt to the hosts in turn; one with slots=N gets N in each
    /// round. ADDRESS is where the other hosts reach it. DATA and all folders are paths on the hosts.
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// The command of ssh, with its options.
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "hosts")]
    pub ssh: String,
    /// The folder in which processes start on the hosts [default: that of the launcher]
    #[arg(long, value_name = "DIR", requires = "hosts")]
    pub remote_dir: Option<PathBuf>,
    /// The gannet on the hosts [default: the path of this program]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    pub remote_program: Option<PathBuf>,
    /// The command of the job: train DATA .., as for a training in one process.
    #[arg(last = true, required = true, value_name = "train DATA ..")]
    pub command: Vec<OsString>,
}

/// `gannet claim-ports`: what a launcher runs on each host.
#[derive(Args, Debug)]
pub struct ClaimPortsArgs {
    /// An address of this machine.
    #[arg(long, value_name = "ADDRESS")]
    pub at: String,
    /// How many ports.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=512))]
    pub count: u32,
}
