//! A process that `gannet launch` has started: it stops when the launcher asks for it, and ends with the launcher.

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use std::io::Read;

/// The variable with the process id of the launcher.
pub const LAUNCHER: &str = "GANNET_LAUNCHER";

/// Whether a launcher has started this process.
pub fn is_launched() -> bool {
    std::env::var_os(LAUNCHER).is_some()
}

/// Watches the launcher, if there is one: standard input is a pipe from it. A line of it asks this process to stop, and
/// its end says that the launcher has died.
pub fn watch() {
    let Ok(launcher) = std::env::var(LAUNCHER) else { return };
    // Also while this process is stopped (SIGSTOP), unless it was stopped before it came here. The system sends the
    // signal when the launcher's main thread ends, which starts all processes.
    let is_parent = |pid: Pid| pid.as_raw_nonzero().get().to_string() == launcher;
    if getppid().is_some_and(is_parent)
        && let Err(error) = set_parent_process_death_signal(Some(Signal::KILL))
    {
        tracing::warn!(%error, "this process may survive its launcher while it is stopped");
    }
    let read = || {
        let mut bytes = [0; 16];
        let signal = loop {
            match std::io::stdin().read(&mut bytes) {
                Ok(0) => break Signal::KILL,
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => break Signal::KILL,
                Ok(_) => drop(kill_process(getpid(), Signal::TERM)),
                Err(_) => {}
            }
        };
        let _ = kill_process(getpid(), signal);
    };
    if let Err(error) = std::thread::Builder::new().name("gannet-launched".into()).spawn(read) {
        tracing::warn!(%error, "this process cannot watch its launcher");
    }
}
