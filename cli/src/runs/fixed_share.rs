//! Where a worker begins in its fixed share of the data, in a job with checkpoints.

use crate::failure::Failure;
use crate::flags::JobArgs;
use crate::report::words::counted;
use crate::runs::begin::AGAIN_IN_A_JOB;
use crate::runs::in_run::InRun;
use gannet::runs::RunDecision;
use gannet::table::TableId;
use gannet::worker::SharePlace;
use gannet::{Transports, Worker};

/// The number of batches of worker `rank` of `workers` in all passes. Workers take the batches of a pass in turn.
pub fn share(batches: u64, epochs: u32, rank: u32, workers: u32) -> u64 {
    let (rank, workers) = (u64::from(rank), u64::from(workers.max(1)));
    batches.saturating_sub(rank).div_ceil(workers) * u64::from(epochs)
}

/// Begins this worker's share behind the batches that the checkpoint has, if the servers come from one. `None` without
/// `--checkpoint`: the worker trains its whole share, and its pushes have no names.
pub fn begin(
    job: &JobArgs,
    run: &InRun,
    worker: &mut Worker<Transports>,
    tables: &[TableId],
) -> Result<Option<SharePlace>, Failure> {
    if job.checkpoint.checkpoint.is_none() {
        return Ok(None);
    }
    let (id, decided) = run.decision();
    // In another generation of the run the share is trained anew.
    let resumed = decided == RunDecision::Resumed;
    let share = worker.begin_share(tables, resumed)?;
    run.begins_after(share.batches());
    let (name, rank) = (&id.name, job.task_index);
    match share.batches() {
        0 if resumed => notice!("gannet: run {name:?}: {AGAIN_IN_A_JOB}"),
        0 => {}
        batches => notice!(
            "gannet: run {name:?}: worker {rank} goes on after the first {} of its share, which the checkpoint has",
            counted(batches, "batch", "batches")
        ),
    }
    Ok(Some(share))
}
