//! One process of a job: its starts, and its end.

use crate::failure::Failure;
use crate::launch::output::Output;
use crate::launch::place::ProcessPlace;
use crate::launch::role::{ProcessRole, system};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// See the module.
pub struct Process {
    pub role: ProcessRole,
    pub place: ProcessPlace,
    words: Vec<OsString>,
    output: Arc<Output>,
    child: Option<Child>,
    readers: Vec<JoinHandle<()>>,
    /// The JSON object that a worker printed last.
    report: Arc<Mutex<Option<Value>>>,
    /// How often it was started again.
    pub restarts: u32,
    /// When it is to be started again.
    pub due: Option<Instant>,
    /// It has ended well, and is not started again.
    pub is_done: bool,
}

impl Process {
    /// A process that has not been started.
    pub fn new(role: ProcessRole, place: ProcessPlace, words: Vec<OsString>, output: Arc<Output>) -> Process {
        let (child, readers, report) = (None, Vec::new(), Arc::default());
        Process { role, place, words, output, child, readers, report, restarts: 0, due: None, is_done: false }
    }

    /// Starts it.
    pub fn start(&mut self) -> Result<(), Failure> {
        let failed = |error| system(&format!("starting {}", self.role.name()), &error);
        let mut command = self.place.command(&self.words).map_err(failed)?;
        // In a group of its own, so that Ctrl-C reaches the launcher alone, which stops workers before servers.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        self.child = Some(child);
        self.due = None;
        let (role, output, report) = (self.role, self.output.clone(), self.report.clone());
        let take = move |line: &str| match serde_json::from_str::<Value>(line) {
            Ok(object @ Value::Object(_)) if role.is_worker() => {
                *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
                true
            }
            _ => false,
        };
        let builder = || std::thread::Builder::new().name("gannet-output".into());
        let also = output.clone();
        if let Some(from) = stdout {
            self.readers.push(builder().spawn(move || output.pass_on(role, from, take)).map_err(failed)?);
        }
        if let Some(from) = stderr {
            self.readers.push(builder().spawn(move || also.pass_on(role, from, |_| false)).map_err(failed)?);
        }
        Ok(())
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Its exit status, once, when it has ended. All that it printed has been passed on then.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status =
            child.try_wait().map_err(|error| system(&format!("waiting for {}", self.role.name()), &error))?;
        if status.is_some() {
            self.child = None;
            self.readers.drain(..).for_each(|reader| drop(reader.join()));
        }
        Ok(status)
    }

    /// Asks it to stop in an orderly way.
    pub fn stop(&mut self) {
        self.due = None;
        // It has ended if the pipe is broken.
        if let Some(input) = self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            let _ = input.write_all(b"stop\n");
        }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.due = None;
        if let Some(pid) = self.child.as_ref().and_then(|child| Pid::from_raw(child.id() as i32)) {
            // It has not been waited for, so its number is not that of another process.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// What a worker has reported.
    pub fn report(&self) -> Option<Value> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts it again after a pause, which is longer each time.
    pub fn start_later(&mut self) {
        let pause = Duration::from_millis(500) * 2u32.pow(self.restarts.min(4));
        self.restarts += 1;
        self.due = Some(Instant::now() + pause);
    }
}
