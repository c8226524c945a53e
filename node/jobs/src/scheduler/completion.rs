//! Which worker tests and saves the model when all splits are trained.

use crate::scheduler::job_state::{JobState, JobStateError};
use gannet_wire::messages::member::WorkerIncarnation;

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
    pub(crate) fn settle_chief(&mut self) {
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

    /// The chief has seen that more training makes the model no better: splits that nobody holds count as trained.
    /// Those that workers hold are trained to their end. Data that grows has an end of its own: nothing changes there.
    ///
    /// # Errors
    /// It is not the chief, is not in the job, or was given up.
    pub fn train_no_more(&mut self, incarnation: WorkerIncarnation) -> Result<(), JobStateError> {
        self.member(incarnation)?;
        if self.growing.is_some() || self.is_trained() {
            return Ok(());
        }
        if self.chief() != Some(incarnation) {
            return Err(JobStateError::NotChief(incarnation));
        }
        self.next = self.plan.tasks();
        self.returned.clear();
        self.settle_chief();
        Ok(())
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
}
