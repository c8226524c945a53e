//! The `gannet` command: parses the command line, sets up logs, and ends with a documented exit code.
#![forbid(unsafe_code)]

/// A line on standard output; whoever should read it may have gone (`| head`), which is no reason to panic.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

/// The same on standard error.
macro_rules! complain {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($line)*);
    }};
}

mod command;

use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = command::args::Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("GANNET_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
    match command::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain!("gannet: {failure}");
            ExitCode::from(failure.code)
        }
    }
}
