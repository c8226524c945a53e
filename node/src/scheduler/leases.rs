//! The splits of a job: which worker trains which one, and which ones are free again.

use super::heartbeat_times::HeartbeatTimes;
use super::job_plan::Split;
use super::job_state::{JobState, JobStateError};
use super::member::WorkerIncarnation;
use crate::limits::HELD_MAX;
use rkyv::{Archive, Deserialize, Serialize};
use std::time::Duration;

/// Who has a task.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is.
    pub incarnation: WorkerIncarnation,
    /// Batches before this one are trained.
    pub from: u64,
}

/// What a worker is given that asks for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitGrant {
    /// A task: the number over all passes, what it is, and the first of its batches that is to be trained.
    Task {
        /// Its number over all passes.
        index: u64,
        /// What it is.
        task: Split,
        /// The first of its batches that is to be trained.
        from: u64,
    },
    /// None is free, but some may come back.
    Wait,
    /// All are done.
    Over,
}

impl JobState {
    /// Every shard owner refuses this life from now on: what it held is free. `false` when it was known already, or is
    /// not one of the dead.
    pub fn fenced(&mut self, incarnation: WorkerIncarnation) -> bool {
        let news = self.unfenced.remove(&incarnation);
        if news {
            self.take_back(incarnation);
            self.settle_chief();
        }
        news
    }

    /// What a life held is free.
    pub(super) fn take_back(&mut self, incarnation: WorkerIncarnation) {
        let returned = &mut self.returned;
        self.leases.retain(|&index, lease| {
            let lost = lease.incarnation == incarnation;
            if lost {
                returned.insert(index, lease.from);
            }
            !lost
        });
    }

    /// A worker that holds `holding` asks for another task: the first that came back, or the next of the data. One that
    /// it was given and does not know of, since the answer was lost, it is given again.
    ///
    /// # Errors
    /// It is not in the job, or was given up.
    pub fn take(
        &mut self,
        heard: &mut HeartbeatTimes,
        incarnation: WorkerIncarnation,
        holding: &[u64],
        now: Duration,
    ) -> Result<SplitGrant, JobStateError> {
        self.member(incarnation)?;
        heard.hear(incarnation, now);
        let mut held = 0;
        for (&index, &Lease { from, .. }) in self.leases.iter().filter(|(_, l)| l.incarnation == incarnation)
        {
            if !holding.contains(&index) {
                return Ok(SplitGrant::Task { index, task: self.plan.task(index), from });
            }
            held += 1;
        }
        if held >= HELD_MAX {
            return Ok(SplitGrant::Wait);
        }
        let (index, from) = match self.returned.pop_first() {
            Some(returned) => returned,
            None if self.next < self.plan.tasks() => {
                self.next += 1;
                (self.next - 1, 0)
            }
            None if self.leases.is_empty() => return Ok(SplitGrant::Over),
            None => return Ok(SplitGrant::Wait),
        };
        self.leases.insert(index, Lease { incarnation, from });
        Ok(SplitGrant::Task { index, task: self.plan.task(index), from })
    }

    /// A worker has trained a task of `examples` records, and every push of it is acknowledged.
    ///
    /// # Errors
    /// The task is not this life's.
    pub fn done(
        &mut self,
        incarnation: WorkerIncarnation,
        index: u64,
        examples: u64,
    ) -> Result<(), JobStateError> {
        self.member(incarnation)?;
        match self.leases.get(&index) {
            Some(lease) if lease.incarnation == incarnation => {
                self.leases.remove(&index);
                self.examples += examples;
                self.settle_chief();
                Ok(())
            }
            // It was said before, and the answer was lost.
            None if index < self.next && !self.returned.contains_key(&index) => Ok(()),
            _ => Err(JobStateError::NotYours(index, incarnation.rank)),
        }
    }

    /// A task that this life holds.
    ///
    /// # Errors
    /// It does not hold it, is not in the job, or was given up.
    pub fn holds(&mut self, incarnation: WorkerIncarnation, index: u64) -> Result<Split, JobStateError> {
        self.member(incarnation)?;
        match self.leases.get(&index) {
            Some(lease) if lease.incarnation == incarnation => Ok(self.plan.task(index)),
            _ => Err(JobStateError::NotYours(index, incarnation.rank)),
        }
    }

    /// Whether somebody holds a task.
    pub fn is_leased(&self, index: u64) -> bool {
        self.leases.contains_key(&index)
    }

    /// Who holds which task.
    pub fn leases(&self) -> impl Iterator<Item = (u64, Lease)> {
        self.leases.iter().map(|(&index, &lease)| (index, lease))
    }
}
