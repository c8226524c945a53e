//! Which workers of a run are dead, and which of the living must fence them. Only here is that decided for a run whose
//! data a scheduler hands out.
//!
//! ```text
//! live -- silent, or without progress --> dead, to be fenced --> fenced
//! live -- a newer incarnation came ------> replaced, to be fenced --> fenced
//! live -- it has left --> left
//! ```
//! An incarnation that is dead stays dead. It is refused, and may come back as a new incarnation.

use crate::failure_detector::Verdict;
use crate::limits::{FENCE_TURN, UNFENCED_MAX};
use crate::runs::registry::{Registry, RunAdmission, RunRecord, RunRefusal};
use gannet_wire::messages::member::{WorkerIncarnation, WorkerState};
use gannet_wire::messages::runs::{CLIENT, DeadWorker};
use gannet_wire::refusal::Refusal;
use std::time::Duration;

impl RunRecord {
    /// Whether others wait for a member in any case: while it trains its share, or until it has left the job whose
    /// splits a scheduler hands out.
    pub(crate) fn awaits(&self, member: &RunAdmission) -> bool {
        member.state == WorkerState::Live && (self.job != 0 || !member.done)
    }

    /// The members whose splits others can take. The client of a job is not one.
    pub(super) fn in_job(&self) -> impl Iterator<Item = WorkerIncarnation> {
        let is_of_it = |(rank, of): &(&u32, &RunAdmission)| {
            self.job != 0 && **rank != CLIENT && of.state == WorkerState::Live
        };
        let members = self.members.iter().filter(is_of_it);
        members.map(|(&rank, of)| WorkerIncarnation { rank, incarnation: of.incarnation })
    }

    /// The incarnations that must be fenced before others go on with these rows: those that are dead, and those that
    /// may still push.
    pub(crate) fn to_fence(&self) -> impl Iterator<Item = WorkerIncarnation> {
        self.unfenced.iter().copied().chain(self.in_job())
    }

    /// Adds a process to the run. The one whose place it takes must be fenced.
    pub(crate) fn admit(&mut self, rank: u32, admission: RunAdmission) {
        let before = self.in_job().find(|of| of.rank == rank && of.incarnation != admission.incarnation);
        self.unfenced.extend(before);
        self.members.insert(rank, admission);
    }
}

impl Registry {
    /// Gives up the workers that the failure detector takes for dead. Called once a second.
    ///
    /// # Errors
    /// The registry cannot be saved. The next call tries it again.
    pub fn give_up_dead_workers(&mut self, now: Duration) -> Result<(), RunRefusal> {
        let mut saved = Ok(());
        for (name, worker, verdict) in self.dead_workers(now) {
            let changed = self.change(&name, |run| {
                if let Some(member) = run.members.get_mut(&worker.rank) {
                    member.state = WorkerState::Dead;
                }
                run.unfenced.insert(worker);
            });
            if changed.is_ok() {
                let ((time, why), worker) = (verdict.in_words(), worker.rank);
                tracing::warn!(run = name, worker, seconds = time.as_secs_f64(), why, "a worker is given up");
            }
            saved = saved.and(changed);
        }
        saved
    }

    fn dead_workers(&self, now: Duration) -> Vec<(String, WorkerIncarnation, Verdict)> {
        let mut dead = Vec::new();
        for ((name, _), presence) in &self.presences {
            let Some(run) = self.runs.get(name).filter(|run| run.finished.is_none()) else { continue };
            if !run.in_job().any(|member| member == presence.worker) {
                continue;
            }
            // A worker of the job that has no split reports progress while it asks for one.
            let verdict = self.detector.verdict(presence.worker, presence.in_job, now);
            if verdict.is_dead() {
                dead.push((name.clone(), presence.worker, verdict));
            }
        }
        dead
    }

    /// The dead workers that a member must fence now. One member at a time has the turn. If it has not fenced one in
    /// [`FENCE_TURN`], the next member gets it, too.
    pub(crate) fn fences_of(&self, name: &str, worker: WorkerIncarnation, now: Duration) -> Vec<DeadWorker> {
        let Some(run) = self.runs.get(name).filter(|run| !run.unfenced.is_empty()) else { return Vec::new() };
        let live: Vec<u32> =
            run.in_job().map(|of| of.rank).filter(|&rank| self.can_fence(name, rank, now)).collect();
        let is_its = |dead: &&WorkerIncarnation| {
            let turns = self.detector.silence(**dead, now).as_secs() / FENCE_TURN.as_secs();
            live.get(turns as usize % live.len().max(1)) == Some(&worker.rank)
        };
        let of = |&incarnation: &WorkerIncarnation| {
            let acked = self.acked.get(&(name.to_owned(), incarnation)).cloned().unwrap_or_default();
            DeadWorker { incarnation, acked }
        };
        run.unfenced.iter().filter(is_its).map(of).collect()
    }

    /// Whether a worker is in the job, and so asks for what it must fence.
    fn can_fence(&self, name: &str, rank: u32, now: Duration) -> bool {
        let presence = self.presences.get(&(name.to_owned(), rank));
        presence.is_some_and(|presence| presence.in_job) && self.is_live(name, rank, now)
    }

    /// The scheduler of a run's job knows of incarnations whose places others have taken. One of them may have come to
    /// the job before the registry had heard of the job, or belong to a run that another registry has lost. The
    /// registry takes as many as it has room for. The scheduler names the others again with the next report.
    pub(crate) fn note_unfenced(
        &mut self,
        name: &str,
        dead: Vec<WorkerIncarnation>,
    ) -> Result<(), RunRefusal> {
        self.change(name, |run| {
            let members: Vec<WorkerIncarnation> = run.in_job().collect();
            let room = UNFENCED_MAX.saturating_sub(run.unfenced.len());
            let is_news = |of: &WorkerIncarnation| !members.contains(of) && !run.unfenced.contains(of);
            let news: Vec<WorkerIncarnation> = dead.into_iter().filter(is_news).take(room).collect();
            run.unfenced.extend(news);
        })
    }

    /// A member reports that every owner of shards refuses a dead incarnation.
    pub fn fenced(&mut self, name: &str, dead: WorkerIncarnation) -> Result<(), RunRefusal> {
        self.change(name, |run| {
            run.unfenced.remove(&dead);
        })?;
        self.acked.remove(&(name.to_owned(), dead));
        Ok(())
    }

    /// A member leaves the job. All its pushes are acknowledged.
    pub fn leave(&mut self, name: &str, worker: WorkerIncarnation) -> Result<(), RunRefusal> {
        self.change(name, |run| {
            if let Some(member) = run.members.get_mut(&worker.rank) {
                member.state = WorkerState::Left;
            }
        })?;
        self.acked.remove(&(name.to_owned(), worker));
        Ok(())
    }

    /// Refuses a process whose place would add to too many dead incarnations.
    pub(crate) fn check_unfenced(&self, name: &str, worker: WorkerIncarnation) -> Result<(), RunRefusal> {
        let Some(run) = self.runs.get(name).filter(|run| run.unfenced.len() >= UNFENCED_MAX) else {
            return Ok(());
        };
        match run.members.get(&worker.rank) {
            Some(known) if known.incarnation == worker.incarnation => Ok(()),
            _ => {
                let dead = run.unfenced.len();
                let text = format!(
                    "run {name:?}: {dead} workers that died are not yet fenced at every server: see that the servers \
                     answer, then start it again"
                );
                Err((Refusal::Limit, text))
            }
        }
    }
}
