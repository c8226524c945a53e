//! The tasks of a worker: it takes them from the scheduler, and reports them as trained. It also reports what is new in
//! a source that grows.

use crate::clients::heartbeat::Heartbeat;
use crate::clients::logged_wait::LoggedWait;
use crate::clients::shared::lock_shared;
use crate::limits::ASK_EVERY;
use gannet_transport::Net;
use gannet_wire::messages::growing::{Found, SourceStand};
use gannet_wire::messages::jobs::SplitGrant;

impl<N: Net> Heartbeat<N> {
    /// The next task. While other workers hold the last tasks, waits in case they return some, until `stop`. `None`:
    /// all tasks are done, or `stop`.
    ///
    /// # Errors
    /// Why this worker cannot go on.
    pub fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<SplitGrant>, String> {
        let mut wait = LoggedWait::begin();
        loop {
            if stop() {
                return Ok(None);
            }
            match self.take_now()? {
                SplitGrant::Over => return Ok(None),
                SplitGrant::Wait => {
                    if wait.is_to_be_logged() {
                        let seconds = wait.seconds();
                        tracing::info!(seconds, "no task is free: others hold the last ones");
                    }
                    std::thread::sleep(ASK_EVERY);
                }
                grant => return Ok(Some(grant)),
            }
        }
    }

    /// The next task, or what the scheduler answers if none is free.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_now(&self) -> Result<SplitGrant, String> {
        self.moved();
        // Holds the client's lock throughout. So a task that another thread reports as done is out of `held_tasks`
        // before the scheduler grants another.
        self.ask(|client| {
            let held_tasks = lock_shared(&self.shared.state).held_tasks.clone();
            let grant = client.take(&held_tasks)?;
            if let SplitGrant::Task { index, .. } | SplitGrant::Grown { index, .. } = grant {
                lock_shared(&self.shared.state).held_tasks.push(index);
            }
            Ok(grant)
        })
    }

    /// Reports what this worker found in the source of the data, which grows. Returns what the scheduler knows of it.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn found(&self, found: &Found) -> Result<SourceStand, String> {
        self.moved();
        self.ask(|client| client.found(found.clone()))
    }

    /// Reports that a task of so many records is trained and its pushes are acknowledged.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.ask(|client| {
            client.done(index, examples)?;
            let mut state = lock_shared(&self.shared.state);
            state.held_tasks.retain(|held| *held != index);
            state.report.acked.retain(|(held, _)| *held != index);
            Ok(())
        })
    }

    /// Notes that the first `batches` of a task are acknowledged.
    pub fn acked(&self, index: u64, batches: u64) {
        let mut state = lock_shared(&self.shared.state);
        state.report.acked.retain(|(held, _)| *held != index);
        state.report.acked.push((index, batches));
    }
}
