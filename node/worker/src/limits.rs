//! Every limit of the worker.

use gannet_transport::limits::FRAME_BYTES_MAX;
use gannet_wire::limits::{LEASE, RUN_BYTES_MAX, WORKER_TIMEOUT};
use std::time::Duration;

/// Finished pulls whose keysets a worker remembers. It forgets the oldest first.
pub const KEPT_PULLS_MAX: usize = 256;

/// Bytes of the rounding errors that a worker keeps for a table whose gradients travel as f16. While the memory grows,
/// the old half is there as well. Gradients of further keys are rounded by chance.
pub const ROUNDING_BYTES_MAX: usize = 256 << 20;

/// A checkpoint whose files have not grown for so long is given up.
pub const CUT_STALL: Duration = Duration::from_secs(60);

/// A pull with at most so many bytes on a link, its answer included, may wait until more follow
/// ([`BATCHED_PULLS_MAX`]).
pub const BATCHED_PULL_BYTES: u32 = 16 << 10;

/// Small pulls that are sent together, while at least [`BUSY_REQUESTS`] requests of the link are unanswered. The next
/// call that waits or polls sends them in any case.
pub const BATCHED_PULLS_MAX: usize = 8;

/// See [`BATCHED_PULLS_MAX`]: so many requests keep the server's thread busy meanwhile.
pub const BUSY_REQUESTS: usize = 4;

/// Longer waits for a peer are logged.
pub const WAIT_LOGGED: Duration = Duration::from_secs(2);

/// The first and the longest pause between attempts to connect.
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The worker pauses after a link that stood for less.
pub const LINK_STANDS: Duration = Duration::from_secs(1);

/// The longest pause after such a link if it has answered a request.
pub const BACKOFF_ANSWERED: Duration = Duration::from_millis(100);

/// How long one attempt to connect and greet may take.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(5);

/// A worker pings a link after so long without an answer, or after a third of the server's limit for silence.
pub const PING_TIME: Duration = Duration::from_secs(10);

/// Links to one server that a worker loses within this time are logged as one.
pub const LOSSES_TOGETHER: Duration = Duration::from_secs(1);

/// A worker that reads rows without requests pings their server so often within `LEASE`.
pub const LEASE_PINGS: u32 = 4;

/// A trial of a share of chunks to read without a request lasts for so many pulls and at least [`TRIAL_TIME`], but for
/// no more than [`TRIAL_PULLS_MAX`]. The pulls before them, which overlap with the trial before, do not count. A trial
/// of a cache of rows is longer, by the time for which its rows may be used.
pub const TRIAL_PULLS: u32 = 8;

/// See [`TRIAL_PULLS`].
pub const TRIAL_PULLS_MAX: u32 = 512;

/// The least time of a trial of a share of chunks to read without a request ([`TRIAL_PULLS`]).
pub const TRIAL_TIME: Duration = Duration::from_millis(3);

/// See [`TRIAL_PULLS`].
pub const TRIAL_SETTLING_PULLS: u32 = 4;

/// After a survey of such trials a worker keeps its choice for at least so many times the survey's duration.
pub const SURVEY_REST_FACTOR_MIN: u32 = 16;

/// See [`SURVEY_REST_FACTOR_MIN`]: the factor doubles up to this one as long as surveys agree.
pub const SURVEY_REST_FACTOR_MAX: u32 = 64;

/// A survey of a table that was not pulled for this time gives way to that of another table.
pub const SURVEY_ABANDONED_AFTER: Duration = Duration::from_secs(1);

/// How often, at most, a worker asks which further shards of a table can be read over RDMA.
pub const REGIONS_EVERY: Duration = Duration::from_secs(1);

/// Bytes of handles (where rows are, for READs) that a worker keeps for a table and a server thread.
pub const HANDLE_BYTES_MAX: usize = 64 << 20;

/// Images that a worker has mapped: each is a file, of which many processes may have 1,024. It requests the rows of
/// further shards.
pub const IMAGES_MAPPED_MAX: usize = 512;

/// How often a worker logs which worker it waits for.
pub const WAITS_LOGGED: Duration = Duration::from_secs(5);

/// A server whose reports of waits come over one link for so long is at work. The time between reports over a shorter
/// link is no silence, but such a link does not end the silence before it.
pub const REPORTS_STAND: Duration = Duration::from_secs(60);

/// The least silence of a server that a worker tolerates while it may wait for others. The server would have reported
/// such a wait by then.
pub const WAITS_SILENCE: Duration = Duration::from_secs(4);

/// Staleness of pulls is counted singly up to so many steps.
pub const STALENESS_BUCKETS: usize = 64;

/// A worker that waits for another one asks this often whether that one is dead.
pub const AWAITED_EVERY: Duration = Duration::from_secs(1);

/// How long that, and a fence, may take.
pub const AWAITED_LIMIT: Duration = Duration::from_secs(5);

/// When it asks again if that failed.
pub const AWAITED_RETRY: Duration = Duration::from_secs(3);

/// Requests in flight that a synchronous step needs on a link.
pub const STEP_CREDIT_MIN: usize = 4;

/// How long a worker waits for the session of an earlier incarnation, or of another process, to end.
pub const TAKEN_PATIENCE: Duration = Duration::from_secs(1);

/// How often it asks meanwhile.
pub const TAKEN_ASKED_EVERY: Duration = Duration::from_millis(50);

/// Heartbeats to the scheduler in a worker timeout.
pub const BEATS: u32 = 5;

/// The longest time between two heartbeats.
pub const BEAT_MAX: Duration = Duration::from_secs(2);

/// How long a chief that has saved the model stays so that the others learn of it.
pub const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Pause between two requests to the scheduler for a task while none is free, or at a barrier.
pub const ASK_EVERY: Duration = Duration::from_millis(20);

/// Time between two attempts of a request that a server refuses because its disk is full.
pub const SPACE_ASKED_EVERY: Duration = Duration::from_millis(200);

/// Requests for a task's bytes that a worker has in flight.
pub const DATA_REQUESTS_MAX: usize = 4;

/// The least bytes of a cache. `RowCache::new` checks it.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;

/// A row that was requested so many pulls ago and has not come is requested again: the worker that requested it is
/// gone.
pub const CACHE_REQUEST_PULLS_MAX: u64 = 4096;

/// Pings to a backup of which nothing else is asked, in the time after which it is taken as lost.
pub const IDLE_PINGS: u32 = 4;

/// How often a worker that has lost a server asks the coordinator who owns its shards.
pub const PLACE_LOOKUP_EVERY: Duration = Duration::from_millis(200);

/// How long a server may leave requests unanswered before the worker asks the coordinator who owns its shards.
pub const PLACE_SILENCE: Duration = Duration::from_secs(1);

/// How long a worker reads rows of a server without a request, from when it sent a request that was answered. A server
/// with a lease may be replaced when the lease has ended. It has answered within `serving_time`, so a quarter of the
/// lease is left. Three quarters of that are for clocks that differ (`CLOCK_DRIFT`).
///
/// ```
/// use gannet_worker::limits::trust_time;
/// use std::time::Duration;
///
/// assert_eq!(trust_time(None), Duration::from_secs(2));
/// assert_eq!(trust_time(Some(Duration::from_secs(2))), Duration::from_millis(125));
/// assert_eq!(trust_time(Some(Duration::from_secs(600))), Duration::from_secs(2));
/// ```
pub fn trust_time(lease: Option<Duration>) -> Duration {
    lease.map_or(LEASE, |lease| LEASE.min(lease / 16))
}

const _: () = {
    assert!(LEASE_PINGS > 2);
    assert!(RUN_BYTES_MAX <= FRAME_BYTES_MAX && WORKER_TIMEOUT.as_secs() > 4 * BEAT_MAX.as_secs());
};

/// The longest wait before the worker checks time limits.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(100);
