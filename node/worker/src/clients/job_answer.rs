//! What a scheduler answers to a worker that joins its job.

use gannet_wire::messages::member::WorkerIncarnation;

/// What a worker learns when it joins a job. [`JobClient`](crate::clients::job_client::JobClient) has an example.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobAnswer {
    /// The number of the job: larger than that of any earlier job of this scheduler.
    pub started: u64,
    /// Tasks that were trained before.
    pub done: u64,
    /// Tasks of all passes.
    pub tasks: u64,
    /// Incarnations whose places others have taken.
    /// [`RunSession::note_job`](crate::clients::run_session::RunSession::note_job) has them fenced.
    pub unfenced: Vec<WorkerIncarnation>,
}
