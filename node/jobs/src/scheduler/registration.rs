//! How a worker registers in a job, and when that begins another job.

use crate::limits::LATE_TIME;
use crate::scheduler::job_state::{JobState, JobStateError};
use crate::scheduler::requests::{Scheduler, SchedulerRefusal};
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::messages::job_plan::JobPlan;
use gannet_wire::messages::jobs::SchedulerReplyV1;
use gannet_wire::messages::member::{SplitCounts, WorkerIncarnation};
use gannet_wire::messages::runs::JobRun;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

impl Scheduler {
    /// Brings a worker into the job, or begins a job with it.
    pub fn register(
        &mut self,
        worker: WorkerIncarnation,
        plan: JobPlan,
        run: &JobRun,
        session: u32,
        now: Duration,
    ) -> Result<SchedulerReplyV1, SchedulerRefusal> {
        if worker.incarnation == NO_INCARNATION {
            let rank = worker.rank;
            let text = format!("worker {rank} has no incarnation (0): allocate one when it starts");
            return Err((Refusal::Name, text));
        }
        if let Some(difference) = self.data_server.as_ref().and_then(|data_server| data_server.differs(&plan))
        {
            return Err(JobStateError::Differs(difference).into());
        }
        self.check_run(worker.rank, run)?;
        if self.is_for_another_job(worker.rank, &plan, run, now) {
            self.begin_job(worker, &plan, run, now)?;
        }
        let is_linked = self.has_linked();
        let Some(job) = &mut self.job else { return Ok(SchedulerReplyV1::Wait) };
        // A job that failed, and that every worker has left, goes on with the next worker: the cause may be gone.
        if run.generation > 0 && !is_linked {
            job.forgive();
        }
        job.register(worker, &plan)?;
        tracing::info!(worker = worker.rank, of = plan.workers, "a worker is in the job");
        let (started, SplitCounts { done, tasks, .. }) = (job.started(), job.counts());
        let unfenced = job.unfenced_in_a_reply();
        self.links.insert(session, worker);
        self.save_job()?;
        Ok(SchedulerReplyV1::RegisteredV2 { started, done, tasks, unfenced })
    }

    /// Whether a worker of the job has a session here.
    pub(crate) fn has_linked(&self) -> bool {
        let is_live = |of: &WorkerIncarnation| self.job.as_ref().is_some_and(|job| job.is_live(*of));
        self.links.values().any(is_live)
    }

    /// Whether the job is of the run with this birth. It is if there is no job yet.
    fn is_of_run(&self, birth: u64) -> bool {
        self.job.as_ref().is_none_or(|job| job.birth == birth)
    }

    /// Refuses a worker of a run that a lost registry knew, and one of an older generation than the job's.
    fn check_run(&self, rank: u32, run: &JobRun) -> Result<(), SchedulerRefusal> {
        let &JobRun { generation, birth, .. } = run;
        if generation == 0 {
            return Ok(());
        }
        let same_run = self.is_of_run(birth);
        if !same_run && self.has_linked() {
            let text = format!(
                "worker {rank} is of a run that a registry began after it had lost the one whose workers are still in this job: \
                 end those workers first, or give this job a name of its own (--run NAME)"
            );
            return Err((Refusal::Fenced, text));
        }
        let known = self.job.as_ref().filter(|_| same_run).map_or(0, |job| job.generation);
        if known > generation {
            let text = format!(
                "worker {rank} is of generation {generation} of its run, and the scheduler is at {known}: start the worker \
                 again, or the scheduler without its job state file"
            );
            return Err((Refusal::Fenced, text));
        }
        Ok(())
    }

    /// Whether this worker registers for another job than the present one.
    fn is_for_another_job(&self, rank: u32, plan: &JobPlan, run: &JobRun, now: Duration) -> bool {
        let Some(job) = &self.job else { return true };
        // The registry of runs decides when a job begins. Without a registry the job's state tells a new job from an
        // old one.
        if run.generation > 0 {
            return !self.is_of_run(run.birth) || job.generation < run.generation;
        }
        if self.data_server.is_some() {
            // A data server serves one job: another job begins with another data server.
            return false;
        }
        let same = job.plan().differs(plan).is_none();
        // A worker that missed the end of a job that has just ended is late for that job, and does not begin it again.
        let since = now.saturating_sub(self.over_since.unwrap_or(now));
        let late = same && job.was_missed_by(rank) && since < LATE_TIME;
        !self.has_linked() && if job.has_ended() { !late } else { !same }
    }

    /// Begins a job. Its name is the incarnation of the worker that begins it, so pushes of a later job have larger
    /// names.
    fn begin_job(
        &mut self,
        WorkerIncarnation { rank, incarnation: number }: WorkerIncarnation,
        plan: &JobPlan,
        run: &JobRun,
        now: Duration,
    ) -> Result<(), SchedulerRefusal> {
        if let Some(before) = self.job.as_ref().map(JobState::started).filter(|before| *before >= number) {
            let text = format!(
                "worker {rank} would begin a job with its incarnation {number}, and the job before was begun \
                 with {before}: start the worker again, so that it gets a new one"
            );
            return Err((Refusal::Fenced, text));
        }
        let before = self.job.take();
        let mut job = JobState::new(plan.clone(), number)?;
        (job.generation, job.birth) = (run.generation, run.birth);
        if let Some(before) = &before {
            job.inherit(before);
            let SplitCounts { done, tasks, .. } = before.counts();
            if done < tasks
                && let Some(kept_back) = self.log_limiter.allow(now)
            {
                tracing::warn!(
                    done,
                    tasks,
                    kept_back,
                    "the job before was left by all its workers; another begins"
                );
            }
        }
        (self.job, self.over_since) = (Some(job), None);
        Ok(())
    }
}
