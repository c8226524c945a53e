//! Watches the processes of a job: starts those that died again, and ends all of them when the job has ended.

use crate::failure::{Failure, INPUT, PEER, STOPPED, SYSTEM};
use crate::launch::place::SSH_FAILED;
use crate::launch::process::Process;
use crate::launch::report::Ended;
use crate::launch::role::{ProcessRole, system};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a process may take to stop before it is killed. A worker saves its model meanwhile.
const STOP_TIME: Duration = Duration::from_secs(30);

/// The same, if the job has failed: a worker may wait for a server that has died.
const FAILED_TIME: Duration = Duration::from_secs(3);

/// See the module.
pub struct Supervisor {
    processes: Vec<Process>,
    /// A server that is started again has its rows, or others have them.
    keeps_rows: bool,
    /// A coordinator that is started again knows what it knew.
    keeps_keys: bool,
    /// How often each process may be started again.
    restarts: u32,
}

impl Supervisor {
    pub fn new(processes: Vec<Process>, keeps: (bool, bool), restarts: u32) -> Supervisor {
        let (keeps_rows, keeps_keys) = keeps;
        Supervisor { processes, keeps_rows, keeps_keys, restarts }
    }

    /// Runs the job to its end. `records`: asks the servers how many records were trained, when all workers are done.
    pub fn run(mut self, stop: &AtomicBool, records: impl FnOnce() -> Option<u64>) -> Ended {
        let begun = Instant::now();
        let outcome = self.watch(stop);
        let seconds = begun.elapsed().as_secs_f64();
        let records = outcome.is_ok().then(records).flatten();
        let time = if matches!(&outcome, Err(why) if why.code != STOPPED) { FAILED_TIME } else { STOP_TIME };
        // Workers first: they say to the servers that they leave, and save.
        let stopped = self.end(ProcessRole::is_worker, time).and_then(|()| self.end(|_| true, STOP_TIME));
        if stopped.is_err() {
            self.processes.iter_mut().for_each(Process::kill);
        }
        let restarts = self.processes.iter().map(|process| (process.role.name(), process.restarts)).collect();
        let reports =
            self.processes.iter().filter(|process| process.role.is_worker()).map(Process::report).collect();
        Ended { outcome: outcome.and(stopped), seconds, records, restarts, reports }
    }

    /// Starts all processes, and watches them until all workers are done.
    fn watch(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        self.processes.iter_mut().try_for_each(Process::start)?;
        while self.processes.iter().any(|process| process.role.is_worker() && !process.is_done) {
            if stop.load(Relaxed) {
                return Err(Failure::new(STOPPED, "stopped by a signal: the launcher has stopped the job"));
            }
            for at in 0..self.processes.len() {
                let process = &mut self.processes[at];
                if process.due.is_some_and(|due| Instant::now() >= due) {
                    process.start()?;
                }
                if let Some(status) = process.ended()? {
                    self.note_end(at, status)?;
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// A process has ended while the job goes on.
    fn note_end(&mut self, at: usize, status: ExitStatus) -> Result<(), Failure> {
        let process = &mut self.processes[at];
        let (name, mut how) = (process.role.name(), in_words(status));
        if let Some(hint) = process.place.hint(status.code()) {
            how = format!("{how} ({hint})");
        }
        if process.role.is_worker() && status.success() {
            process.is_done = true;
            return Ok(());
        }
        let code = match status.code() {
            Some(SSH_FAILED) => PEER,
            Some(code) => code as u8,
            None => SYSTEM,
        };
        let ends =
            |why: &str| Err(Failure::new(code.max(SYSTEM), format!("{name} {how}, and the job ends: {why}")));
        if code == INPUT {
            return ends("what it printed says which input or flag is bad");
        }
        if matches!(process.role, ProcessRole::Server(_)) && !self.keeps_rows {
            return ends(
                "its rows have gone with it; --data-dir DIR keeps them, and so does --backups behind the --",
            );
        }
        if process.role == ProcessRole::Coordinator && !self.keeps_keys {
            return ends("it has forgotten which server owns what; --data-dir DIR keeps that");
        }
        if process.restarts >= self.restarts {
            return ends(&format!("it has been started again {} times (--restarts)", process.restarts));
        }
        process.start_later();
        notice!("gannet: {name} {how}: it is started again ({} of {})", process.restarts, self.restarts);
        Ok(())
    }

    /// Stops the processes of some roles, and waits for their ends. Kills those that take too long.
    fn end(&mut self, of: impl Fn(ProcessRole) -> bool, time: Duration) -> Result<(), Failure> {
        let begun = Instant::now();
        let all = || |process: &&mut Process| of(process.role);
        self.processes.iter_mut().filter(all()).for_each(Process::stop);
        let mut is_killed = false;
        loop {
            for process in self.processes.iter_mut().filter(all()) {
                process.ended()?;
            }
            if !self.processes.iter().any(|process| of(process.role) && process.is_running()) {
                return Ok(());
            }
            if !is_killed && begun.elapsed() > time {
                is_killed = true;
                for process in self.processes.iter_mut().filter(all()).filter(|process| process.is_running())
                {
                    let seconds = time.as_secs();
                    notice!(
                        "gannet: {} has not stopped for {seconds} s: the launcher kills it",
                        process.role.name()
                    );
                    process.kill();
                }
            }
            if begun.elapsed() > time + STOP_TIME {
                let error = std::io::Error::other("a killed process does not end");
                return Err(system("stopping the job", &error));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// How a process has ended.
fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "has ended before the job".into(),
        (Some(code), _) => format!("has ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "has ended".into(),
    }
}
