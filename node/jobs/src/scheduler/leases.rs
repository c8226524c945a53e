//! The splits of a job: which worker trains which one, and which ones are free again.

use crate::limits::HELD_MAX;
use crate::scheduler::job_state::{JobState, JobStateError};
use gannet_core::DATA_PUSHERS;
use gannet_wire::messages::job_plan::Split;
use gannet_wire::messages::jobs::SplitGrant;
use gannet_wire::messages::member::{WorkerIncarnation, WorkerState};
use rkyv::{Archive, Deserialize, Serialize};

/// Which worker holds a split.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The worker.
    pub incarnation: WorkerIncarnation,
    /// The first batch that is not known as trained.
    pub from: u64,
}

impl JobState {
    /// A dead incarnation is refused by every shard owner, so the splits that it held are free. `acked`: how many of
    /// their batches it last reported as acknowledged. Returns `false` if that was known already.
    pub fn fenced(&mut self, incarnation: WorkerIncarnation, acked: &[(u64, u64)]) -> bool {
        let member = self.members.get_mut(&incarnation.rank).filter(|of| of.incarnation == incarnation);
        let member = member.filter(|of| of.state == WorkerState::Live);
        let was_live = member.map(|of| of.state = WorkerState::Dead).is_some();
        let news = self.unfenced.remove(&incarnation) || was_live;
        if news {
            self.note_acked(incarnation, acked);
            self.take_back(incarnation);
            self.settle_chief();
        }
        news
    }

    /// Frees the splits that an incarnation holds.
    pub(crate) fn take_back(&mut self, incarnation: WorkerIncarnation) {
        let returned = &mut self.returned;
        self.leases.retain(|&index, lease| {
            let lost = lease.incarnation == incarnation;
            if lost {
                returned.insert(index, lease.from);
            }
            !lost
        });
    }

    /// A worker that holds `holding` asks for another split: the first that was returned, or the next of the data. If
    /// it holds a split that is not in `holding`, the reply was lost, and it gets that split again.
    ///
    /// # Errors
    /// It is not in the job, or was given up.
    pub fn take(
        &mut self,
        incarnation: WorkerIncarnation,
        holding: &[u64],
    ) -> Result<SplitGrant, JobStateError> {
        self.member(incarnation)?;
        let mut held = 0;
        for (&index, &Lease { from, .. }) in self.leases.iter().filter(|(_, l)| l.incarnation == incarnation)
        {
            if !holding.contains(&index) {
                return self.grant(index, from);
            }
            held += 1;
        }
        if held >= HELD_MAX {
            return Ok(SplitGrant::Wait);
        }
        let (index, from) =
            match self.returned.pop_first().or_else(|| self.hand_out().map(|index| (index, 0))) {
                Some(free) => free,
                None if self.is_trained() => return Ok(SplitGrant::Over),
                None => return Ok(SplitGrant::Wait),
            };
        self.leases.insert(index, Lease { incarnation, from });
        self.grant(index, from)
    }

    /// The next split that was never handed out.
    fn hand_out(&mut self) -> Option<u64> {
        let index = match &mut self.growing {
            Some(growing) => growing.hand_out()?,
            None if self.next < self.plan.tasks() => self.next,
            None => return None,
        };
        self.next += 1;
        Some(index)
    }

    /// A split with what it is.
    fn grant(&self, index: u64, from: u64) -> Result<SplitGrant, JobStateError> {
        let Some(growing) = &self.growing else {
            return Ok(SplitGrant::Task { index, task: self.plan.task(index), from });
        };
        let unknown = || JobStateError::Limit(format!("task {index} of the growing data is not known"));
        let task = growing.task(index).ok_or_else(unknown)?.clone();
        Ok(SplitGrant::Grown { index, task, from })
    }

    /// A worker has trained a split of `examples` records, and every push of it is acknowledged.
    ///
    /// # Errors
    /// This incarnation does not hold the split.
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
                if let Some(growing) = &mut self.growing {
                    growing.done(index);
                }
                self.examples += examples;
                self.settle_chief();
                Ok(())
            }
            // The worker has reported this before, and the reply was lost.
            None if self.was_done(index) => Ok(()),
            _ => Err(JobStateError::NotYours(index, incarnation.rank)),
        }
    }

    /// Whether the split whose pushes have this name is done. `pusher` has the pass in its upper half and the number of
    /// the split in its lower half; `incarnation` is the number of the job.
    pub fn is_done(&self, pusher: u64, incarnation: u64) -> bool {
        if let Some(growing) = &self.growing {
            return incarnation == self.started() && growing.is_done(pusher & !DATA_PUSHERS);
        }
        let (epoch, number) = ((pusher & !DATA_PUSHERS) >> 32, pusher & u64::from(u32::MAX));
        let pass = self.plan.tasks_of_a_pass();
        let index = epoch.checked_mul(pass).and_then(|before| before.checked_add(number));
        let Some(index) = index.filter(|_| incarnation == self.started() && number < pass) else {
            return false;
        };
        self.was_done(index)
    }

    /// Whether the split of this number is done.
    fn was_done(&self, index: u64) -> bool {
        match &self.growing {
            Some(growing) => growing.is_done(index),
            None => {
                index < self.next && !self.leases.contains_key(&index) && !self.returned.contains_key(&index)
            }
        }
    }

    /// A split that this incarnation holds.
    ///
    /// # Errors
    /// It does not hold it, is not in the job, or was given up.
    pub fn holds(&mut self, incarnation: WorkerIncarnation, index: u64) -> Result<Split, JobStateError> {
        self.member(incarnation)?;
        match self.leases.get(&index) {
            Some(lease) if lease.incarnation == incarnation && self.growing.is_none() => {
                Ok(self.plan.task(index))
            }
            _ => Err(JobStateError::NotYours(index, incarnation.rank)),
        }
    }

    /// Whether a worker holds a split.
    pub fn is_leased(&self, index: u64) -> bool {
        self.leases.contains_key(&index)
    }

    /// The splits that workers hold.
    pub fn leases(&self) -> impl Iterator<Item = (u64, Lease)> {
        self.leases.iter().map(|(&index, &lease)| (index, lease))
    }
}
