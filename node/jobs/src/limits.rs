//! Every limit of the scheduler, the registry of runs and the coordinators.

use gannet_transport::limits::FRAME_BYTES_MAX;
use gannet_wire::limits::{
    JOB_WORKERS_MAX, PLAN_BYTES_MAX, READ_TIME_MIN, RUN_NAME_BYTES_MAX, TEXT_BYTES_MAX, WORKER_TIMEOUT_MAX,
};
use std::time::Duration;

/// Tables of a job that its scheduler knows.
pub const JOB_TABLES_MAX: usize = 256;
/// Runs that a server knows of.
pub const RUNS_MAX: usize = 256;
/// A run without rows of which nothing was heard for so long is forgotten when another run needs its place.
pub const RUN_FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Tables of a run.
pub const RUN_TABLES_MAX: usize = 16;
/// Workers of a run that its status names.
pub const RUN_MEMBERS_LISTED: usize = 32;
/// Workers that a failure detector remembers though nothing was heard of them for [`DETECTOR_MEMORY`].
pub const DETECTOR_WORKERS: usize = 4096;
/// After so long without a sign a failure detector may forget a worker.
pub const DETECTOR_MEMORY: Duration = Duration::from_secs(2 * 86_400);
/// How often it looks for such workers.
pub const DETECTOR_TIDIED: Duration = Duration::from_secs(3600);
/// One live worker fences the dead ones. If a dead one is not fenced after so long, it is the turn of another.
pub const FENCE_TURN: Duration = Duration::from_secs(5);
/// Tasks that a worker may hold: the one that it trains and the one that it reads ahead.
pub const HELD_MAX: usize = 2;
/// Barriers with waiting workers.
pub const BARRIERS_MAX: usize = 64;
/// Bytes of a barrier's name.
pub const BARRIER_BYTES_MAX: usize = 64;
/// Dead incarnations that a registry of runs has fenced at a time, and that a reply of a scheduler names. A job with so
/// many admits no more workers.
pub const UNFENCED_MAX: usize = 2048;
/// A worker that missed the end of a job counts as late within this time after the end. Later it begins another job.
pub const LATE_TIME: Duration = Duration::from_secs(60);
/// Worker timeouts without progress after which the scheduler gives up a worker that sends heartbeats and holds tasks:
/// a thread of it hangs. A batch on a slow machine may take as long as that.
pub const PROGRESS_TIMEOUTS: u32 = 5;
/// The least progress timeout.
pub const PROGRESS_TIME_MIN: Duration = Duration::from_secs(30);
/// Leases of a coordinator that a scheduler keeps.
pub const COORDINATOR_LEASES_MAX: usize = 4096;
/// Bytes of one of its keys, together with the value.
pub const COORDINATOR_BYTES_MAX: usize = 16 << 10;
/// Keys of a page that it lists.
pub const COORDINATOR_PAGE_KEYS: usize = 64;
/// Bytes of keys and values behind which a page ends.
pub const COORDINATOR_PAGE_BYTES: usize = 64 << 10;
/// The shortest and the longest time of its leases.
pub const LEASE_TIMES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(7 * 86_400));
/// The part of a lease that counts of each time in which the coordinator hears nobody.
pub const UNHEARD_PART: u32 = 32;
/// Members of a cluster of etcd that a client is told.
pub const ETCD_MEMBERS_MAX: usize = 16;

const _: () = {
    assert!(DETECTOR_MEMORY.as_secs() > WORKER_TIMEOUT_MAX.as_secs());
    // A worker reports a reader that hangs before the scheduler gives the worker up.
    assert!(PROGRESS_TIMEOUTS > 2 && PROGRESS_TIME_MIN.as_secs() > 2 * READ_TIME_MIN.as_secs());
    // A job's status fits one frame: its workers, their tasks, its dead, why it failed.
    assert!(
        JOB_WORKERS_MAX as usize * (128 + HELD_MAX * 48) + UNFENCED_MAX * 16 + TEXT_BYTES_MAX + 1024
            <= FRAME_BYTES_MAX
    );
    // Each worker, and each split that it may hold, is a pusher to every shard.
    assert!(JOB_WORKERS_MAX as usize * (1 + HELD_MAX) < gannet_core::limits::PUSHERS_MAX);
    assert!(PLAN_BYTES_MAX <= FRAME_BYTES_MAX && UNFENCED_MAX >= 2 * JOB_WORKERS_MAX as usize);
    // The list of all runs fits one frame.
    assert!(RUNS_MAX * (64 + RUN_NAME_BYTES_MAX + RUN_MEMBERS_LISTED * 24) + 1024 <= FRAME_BYTES_MAX);
};
