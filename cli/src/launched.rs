//! A process that `gannet launch` or `gannet bench` has started: it stops when the launcher asks for it, and ends with
//! the launcher.

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use std::io::Read;

/// The variable with the process id of the launcher.
pub const LAUNCHER: &str = "GANNET_LAUNCHER";

/// Whether a launcher has started this process.
pub fn is_launched() -> bool {
    std::env::var_os(LAUNCHER).is_some()
}

/// Makes the system kill this process when its launcher ends, if there is one and it has started this process itself.
/// The system does so also while this process is stopped (SIGSTOP), unless it was stopped before it came here. Returns
/// `false` if the launcher has ended already.
pub fn end_with_launcher() -> bool {
    let launcher = std::env::var(LAUNCHER).ok().and_then(|launcher| launcher.parse().ok());
    let Some(launcher) = launcher.and_then(Pid::from_raw) else { return true };
    // The system sends the signal when the launcher's main thread ends, which starts all processes.
    if getppid() == Some(launcher)
        && let Err(error) = set_parent_process_death_signal(Some(Signal::KILL))
    {
        tracing::warn!(%error, "this process may survive its launcher while it is stopped");
    }
    getppid() == Some(launcher)
}

/// Watches the launcher, if there is one: standard input is a pipe from it. A line of it asks this process to stop, and
/// its end says that the launcher has died.
pub fn watch() {
    if !is_launched() {
        return;
    }
    // If the launcher has ended, its pipe says so.
    end_with_launcher();
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
