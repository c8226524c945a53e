//! Which worker tests and saves the model when all splits are trained, and which workers are given up because they
//! are silent or make no progress.

use super::job_state::{JobState, JobStateError};
use super::member::{WorkerIncarnation, WorkerState};
use crate::failure_detector::{FailureDetector, Verdict};
use crate::limits::FENCE_TURN;
use std::collections::BTreeSet;
use std::time::Duration;

impl JobState {
    /// The worker that tests and saves: while splits are left, the live worker with the lowest index; later the one on
    /// record. There is none before all dead workers are fenced, because one of them may have been the chief.
    pub fn chief(&self) -> Option<WorkerIncarnation> {
        match self.is_trained() {
            _ if !self.unfenced.is_empty() => None,
            true => self.chief,
            false => self.live_incarnations().next(),
        }
    }

    /// When all is trained, the job's state names one chief. Another worker replaces it only when the first can no
    /// longer save: it has left without having saved, or it is dead and every shard owner refuses it.
    pub(super) fn settle_chief(&mut self) {
        if !self.is_trained() || self.saved {
            return;
        }
        let may_save = |incarnation: &WorkerIncarnation| {
            self.unfenced.contains(incarnation) || self.live_incarnations().any(|live| live == *incarnation)
        };
        if !self.chief.as_ref().is_some_and(may_save) {
            let next = self.live_incarnations().next();
            self.chief = next;
        }
    }

    /// The chief has tested and saved.
    ///
    /// # Errors
    /// It is not the chief, is not in the job, or was given up.
    pub fn saved(&mut self, incarnation: WorkerIncarnation) -> Result<(), JobStateError> {
        self.member(incarnation)?;
        if !self.is_trained() || self.chief != Some(incarnation) {
            return Err(JobStateError::NotChief(incarnation));
        }
        self.saved = true;
        Ok(())
    }

    /// Whether the model is saved.
    pub fn is_saved(&self) -> bool {
        self.saved
    }

    /// The workers that others wait for: those that hold a split, and the one that must save the model.
    fn awaited(&self) -> BTreeSet<WorkerIncarnation> {
        let saver = self.chief.filter(|_| self.is_trained() && !self.saved);
        self.leases.values().map(|lease| lease.incarnation).chain(saver).collect()
    }

    /// Gives up the workers that the failure detector takes for dead at time `now`, and returns them.
    pub fn tick(&mut self, detector: &FailureDetector, now: Duration) -> Vec<(WorkerIncarnation, Verdict)> {
        let (awaited, mut dead) = (self.awaited(), Vec::new());
        for incarnation in self.live_incarnations() {
            let is_awaited = awaited.contains(&incarnation);
            match detector.verdict(incarnation, is_awaited, now) {
                Verdict::Alive if !is_awaited => detector.excuse(incarnation, now),
                Verdict::Alive => {}
                verdict => dead.push((incarnation, verdict)),
            }
        }
        for (incarnation, _) in &dead {
            if let Some(member) = self.members.get_mut(&incarnation.rank) {
                member.state = WorkerState::Dead;
            }
        }
        self.unfenced.extend(dead.iter().map(|(incarnation, _)| incarnation));
        dead
    }

    /// The dead incarnations that a live worker must fence now. One worker at a time has the turn; if it has not
    /// fenced an incarnation in [`FENCE_TURN`], the next one gets it, too.
    pub(super) fn fences_of(
        &self,
        detector: &FailureDetector,
        worker: WorkerIncarnation,
        now: Duration,
    ) -> Vec<WorkerIncarnation> {
        let live: Vec<WorkerIncarnation> = self.live_incarnations().collect();
        let is_its = |dead: &WorkerIncarnation| {
            let turns = detector.silence(*dead, now).as_secs() / FENCE_TURN.as_secs();
            live.get(turns as usize % live.len().max(1)) == Some(&worker)
        };
        self.unfenced.iter().copied().filter(is_its).collect()
    }
}
