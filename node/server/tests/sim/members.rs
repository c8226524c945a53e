//! A worker's session in a run, and its job: what a program with a `RunClient` and a `Heartbeat` has, without threads.

use gannet_core::Schema;
use gannet_sim::Sim;
use gannet_transport::Net;
use gannet_wire::{Activity, JobPlan, Progress, RunIntent};
use gannet_worker::{JobClient, RunRequest, RunSession, Worker, WorkerConfig, WorkerError};
use std::time::Duration;

/// Comes to run "job" of these servers.
pub(crate) fn join_run<N: Net>(
    net: N,
    config: &WorkerConfig,
    rank: u32,
    worker_timeout: Duration,
) -> Result<RunSession<N>, WorkerError> {
    let (settings, tables, notes) = (Vec::new(), Vec::new(), String::new());
    let (name, want, at) = ("job".to_owned(), RunIntent::Auto, 0);
    let request = RunRequest { name, want, settings, tables, at, notes, worker_timeout };
    RunSession::join(net, config, rank, request)
}

/// A worker of a job.
pub(crate) struct JobMember {
    pub(crate) run: RunSession<Sim>,
    pub(crate) job: JobClient<Sim>,
}

impl JobMember {
    /// Joins a run, and the job whose splits its server hands out.
    pub(crate) fn join(
        sim: &Sim,
        config: &WorkerConfig,
        rank: u32,
        plan: JobPlan,
    ) -> Result<JobMember, WorkerError> {
        let run = join_run(sim.clone(), config, rank, plan.worker_timeout())?;
        let job = JobClient::join_beside(&run, plan)?;
        run.note_job(job.joined())?;
        Ok(JobMember { run, job })
    }

    /// Sends a heartbeat, and has `fence` fence the workers that the reply names.
    pub(crate) fn beat(
        &mut self,
        work: Activity,
        mut fence: impl FnMut(u64, u64) -> Result<(), WorkerError>,
    ) -> Result<(), WorkerError> {
        for dead in self.run.beat(0, work, Some(Progress::default()))?.fence {
            fence(u64::from(dead.incarnation.rank) + 1, dead.incarnation.incarnation)?;
            self.job.fenced(dead.incarnation, &dead.acked)?;
            self.run.fenced(dead.incarnation)?;
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) -> Result<(), WorkerError> {
        self.job.leave()?;
        self.run.leave()
    }
}

/// Fences a pusher of a table, over links of its own: those of the training may be waiting.
pub(crate) fn fence(
    sim: &Sim,
    config: &WorkerConfig,
    schema: &Schema,
    (pusher, incarnation): (u64, u64),
) -> Result<(), WorkerError> {
    let mut fencer = Worker::connect(sim.clone(), config.clone())?;
    let table = fencer.open_table(schema)?;
    fencer.fence(table, pusher, incarnation)
}
