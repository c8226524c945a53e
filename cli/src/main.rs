//! The `gannet` command: parses the command line, sets up logs, and ends with a documented exit code.
#![forbid(unsafe_code)]

/// Prints a line on standard output. A closed standard output (`| head`) is ignored, so this does not panic.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

/// Prints a line on standard error, as JSON with `--log-json`.
macro_rules! notice {
    ($($line:tt)*) => {
        $crate::command::log::notice(format_args!($($line)*))
    };
}

mod command;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = command::args::Cli::read().unwrap_or_else(|error| command::log::misused(&error));
    match command::log::start(&cli.log).and_then(|()| command::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            command::log::fail(&failure);
            ExitCode::from(failure.code)
        }
    }
}
