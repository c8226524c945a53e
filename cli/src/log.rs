//! Standard error: logs through tracing, and lines for the user at every log level (warnings, progress, the reason of
//! a failure). With `--log-json` all of it is JSON, one object a line.

use crate::failure::Failure;
use crate::flags::LogArgs;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};

/// The variable with the filter when `--log` is not given.
const VARIABLE: &str = "GANNET_LOG";

const DEFAULT: &str = "warn";

/// Targets that pass every filter: the lines that are plain text without `--log-json`.
const ALWAYS: [&str; 3] = ["gannet::notice=info", "gannet::progress=info", "gannet::failure=info"];

static JSON: AtomicBool = AtomicBool::new(false);

/// Whether [`notice`] writes nothing.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets up the logs.
///
/// # Errors
/// The filter cannot be read.
pub fn start(args: &LogArgs) -> Result<(), Failure> {
    let filter = filter(args)?;
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr);
    if args.json {
        JSON.store(true, Relaxed);
        let always = ALWAYS.iter().filter_map(|directive| directive.parse().ok());
        let filter = always.fold(filter, EnvFilter::add_directive);
        subscriber.json().flatten_event(true).with_thread_names(true).with_env_filter(filter).init();
        std::panic::set_hook(Box::new(|panic| tracing::error!(target: "gannet::failure", "{panic}")));
    } else {
        let colours = std::io::stderr().is_terminal();
        subscriber.with_env_filter(filter).with_ansi(colours).with_target(false).init();
    }
    Ok(())
}

/// The filter of `--log`, else of the environment, else the default.
fn filter(args: &LogArgs) -> Result<EnvFilter, Failure> {
    let of_environment = || std::env::var(VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let (from, text) = match &args.level {
        Some(text) => ("--log", text.clone()),
        None => (VARIABLE, of_environment().unwrap_or_else(|| DEFAULT.to_owned())),
    };
    let bad = |why: String| {
        Failure::input(format!(
            "{from} {text:?}: {why}; off, error, warn, info, debug or trace is needed, or such a level for parts: \
             warn,gannet_server=debug"
        ))
    };
    // A word that is not a level would be read as the name of a module, and nothing would be logged.
    for part in text.split(',').map(str::trim).filter(|part| !part.contains(['=', '['])) {
        part.parse::<LevelFilter>().map_err(|_| bad(format!("{part:?} is no level")))?;
    }
    EnvFilter::builder().parse(&text).map_err(|error| bad(error.to_string()))
}

/// Whether standard error is JSON.
pub fn is_json() -> bool {
    JSON.load(Relaxed)
}

/// Runs what another process will do again, and say then: its lines are not written.
pub fn without_notices<T>(work: impl FnOnce() -> T) -> T {
    QUIET.store(true, Relaxed);
    let done = work();
    QUIET.store(false, Relaxed);
    done
}

/// Writes a line to standard error at every log level. A closed standard error is ignored, so this does not panic.
pub fn notice(line: fmt::Arguments<'_>) {
    if QUIET.load(Relaxed) {
        return;
    }
    if is_json() {
        let line = line.to_string();
        tracing::warn!(target: "gannet::notice", "{}", line.trim_start_matches("gannet: ").trim());
    } else {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Prints on standard error where something can be reached.
pub fn announce(what: &str, place: &str) {
    if is_json() {
        tracing::info!(target: "gannet::notice", place, "{what}");
    } else {
        let _ = writeln!(std::io::stderr(), "gannet: {what} on {place}");
    }
}

/// Prints why the command failed.
pub fn fail(failure: &Failure) {
    if is_json() {
        tracing::error!(target: "gannet::failure", code = failure.code, "{failure}");
    } else {
        let _ = writeln!(std::io::stderr(), "gannet: {failure}");
    }
}

/// Prints the help or the error of a command line, and exits.
pub fn misused(error: &clap::Error) -> ! {
    let json = LogArgs { json: true, level: None };
    if error.use_stderr() && std::env::args_os().any(|arg| arg == "--log-json") && start(&json).is_ok() {
        fail(&Failure::new(error.exit_code() as u8, error.to_string().trim()));
        std::process::exit(error.exit_code());
    }
    error.exit()
}
