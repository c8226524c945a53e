//! Every limit of the roles, and the relations between them.

use gannet_transport::limits::{
    FRAME_BYTES_MAX, GIVEN_FILES_MAX, HEAD_BYTES, LINK_BYTES_MAX, RECEIVE_BYTES, TRANSMIT_BYTES,
};
use std::time::Duration;

/// Keys, slots and floats of one part: one pull frame, its answer, or one push frame.
pub const PART_BYTES_MAX: usize = 256 << 10;
/// Keys of one part.
pub const PART_KEYS_MAX: usize = 8192;
/// Keysets that a session may keep on a server thread.
pub const KEYSETS_MAX: usize = 4096;
/// Default for the bytes of keysets that a session may keep. Above it the answer to a pull says "not kept".
pub const KEYSET_BYTES_MAX: usize = 64 << 20;
/// Default for the bytes of keysets of all sessions of a server together.
pub const KEYSET_BYTES_TOTAL: usize = 1 << 30;
/// Ticks after which a server forgets a keyset that no push has named.
pub const KEYSET_TICKS_MAX: u32 = 600;
/// Default for the bytes of buffers of all sessions of a server together. It bounds the active sessions; the others
/// rest or wait.
pub const BUFFER_BYTES_TOTAL: usize = 1 << 30;
/// Default credit of a session in requests in flight.
pub const CREDIT_FRAMES: u32 = 1024;
/// Default credit of a session in bytes of requests in flight and of their answers.
pub const CREDIT_BYTES: u64 = 64 << 20;
/// Finished pulls whose keysets a worker remembers. It forgets the oldest first.
pub const KEPT_PULLS_MAX: usize = 256;
/// Bytes of the rounding errors that a worker keeps for a table whose gradients travel as f16. While the memory grows,
/// the old half is there as well. Gradients of further keys are rounded by chance.
pub const ROUNDING_BYTES_MAX: usize = 256 << 20;
/// The longest time for which a cut may hold pushes back.
pub const CUT_FREEZE_MAX: Duration = Duration::from_secs(5);
/// Pushers of all tables of a thread that a cut can have.
pub const CUT_PUSHES_MAX: usize = 1 << 17;
/// Pushers without a session of which a thread remembers when the last one ended.
pub const ABSENCES_MAX: usize = 8192;
/// Bytes of a message of a cut. A longer one travels in parts.
pub const CUT_MESSAGE_BYTES_MAX: usize = PART_BYTES_MAX;
/// Bytes of such a part.
pub const CUT_PART_BYTES: usize = CUT_MESSAGE_BYTES_MAX - 1024;
/// Bytes of a message of a cut that travels in parts.
pub const CUT_BYTES_MAX: usize = 64 << 20;
/// A checkpoint whose files have not grown for so long is given up.
pub const CUT_STALL: Duration = Duration::from_secs(60);
/// A cut whose coordinator has asked nothing for so long may be replaced by that of another one.
pub const CUT_UNASKED: Duration = Duration::from_secs(10);
/// Bytes of the rows of a cut that a turn of a server thread reads.
pub const CUT_SLICE_BYTES: usize = 128 << 10;
/// Blocks between a server thread and the thread that writes its cut.
pub const CUT_QUEUE_BLOCKS: usize = 8;
/// Row files of cuts that a process has written and not yet made durable. Each has a descriptor.
pub const CUT_ENDED_FILES: usize = 64;
/// Bytes of such files of one thread.
pub const CUT_ENDED_BYTES: u64 = 256 << 20;
/// How often a server thread looks whether the thread that writes its cut has caught up.
pub const CUT_RETRY: Duration = Duration::from_millis(1);
/// Bytes of a table's rows on one thread that wait for the writer because pushes changed them. Above, pushes wait.
pub const CUT_SAVED_BYTES_MAX: usize = 8 << 20;
/// A table that remembers more pushers than this forgets clients without an index that are closed, or gone for
/// [`CLIENT_FORGOTTEN_AFTER`].
pub const PUSHERS_KEPT: usize = 1024;
/// See [`PUSHERS_KEPT`].
pub const CLIENT_FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Clients that a table forgets in a second.
pub const CLIENTS_FORGOTTEN_AT_ONCE: usize = 256;
/// Tables on a server thread. A power of two (server/table_list.rs).
pub const TABLES_MAX: usize = 8192;
/// So many tables of a thread are closed one after another. More are closed by several threads.
pub const CLOSED_ALONE: usize = 16;
/// These threads.
pub const CLOSERS: usize = 8;
/// Tables of a job that its scheduler knows.
pub const JOB_TABLES_MAX: usize = 256;
/// Threads of a server.
pub const THREADS_MAX: usize = 256;
/// Links that a server thread serves.
pub const SESSIONS_MAX: usize = 4096;
/// Links that wait between the acceptor and a thread.
pub const INBOX_MAX: usize = 64;
/// Connections whose greeting is not complete.
pub const GREETING_MAX: usize = 256;
/// Peers may name only incarnations below this, so that no request can use up the numbers that are left.
pub const INCARNATION_NAMED_MAX: u64 = 1 << 63;
/// If the file of a counter of incarnations is gone, the counter restarts this far above every incarnation that the
/// images remember. It is more than the incarnations a server can have handed out that have not pushed yet.
pub const INCARNATION_GAP: u64 = 1 << 32;
/// How long a greeting may take.
pub const GREETING_TIME: Duration = Duration::from_secs(5);
/// The least bytes of a token: a shorter one could be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// How long a peer may leave a frame half sent, or leave answers in the out queue.
pub const STALL_TIME: Duration = Duration::from_secs(30);
/// How long a frame may take to arrive, and answers may wait, however steadily bytes trickle.
pub const FRAME_TIME: Duration = Duration::from_secs(60);
/// [`FRAME_TIME`] while other sessions wait for the memory of buffers.
pub const FRAME_TIME_PRESSED: Duration = Duration::from_secs(5);
/// Default for how long a session may be silent.
pub const SILENCE_TIME: Duration = Duration::from_secs(300);
/// After so long without traffic a session gives its buffers back.
pub const REST_TIME: Duration = Duration::from_secs(2);
/// How often a thread checks whether there is memory for waiting sessions.
pub const MEMORY_RETRY: Duration = Duration::from_millis(5);
/// Frames of one link that are handled before the next link has its turn.
pub const FRAMES_PER_TURN: usize = 32;
/// Queued bytes at which answers are flushed before the turn ends.
pub const FLUSH_BYTES: usize = 128 << 10;
/// Bytes of frames that a thread handles between two reads of the clock, which keeps the cost of timing requests low.
/// It also reads the clock at the end of each turn.
pub const CLOCK_BYTES: usize = 4096;
/// How long a thread polls after a small frame before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);
/// A pull with at most so many bytes on a link, its answer included, may wait until more follow
/// ([`BATCHED_PULLS_MAX`]).
pub const BATCHED_PULL_BYTES: u32 = 16 << 10;
/// Small pulls that are sent together, while at least [`BUSY_REQUESTS`] requests of the link are unanswered. The next
/// call that waits or polls sends them in any case.
pub const BATCHED_PULLS_MAX: usize = 8;
/// See [`BATCHED_PULLS_MAX`]: so many requests keep the server's thread busy meanwhile.
pub const BUSY_REQUESTS: usize = 4;
/// A thread that polls and has not looked for so long has lost its core to another thread.
pub const CORE_LOST: Duration = Duration::from_micros(20);
/// After polls that found nothing a thread sleeps at once for at most so many waits, as a power of two.
pub const SPIN_SKIPS_LOG_MAX: u32 = 8;
/// Frames up to this size are small (64 rows of 64 floats with their keys fit): their sender waits for the answer.
/// Larger frames come many at a time, and the core is better left to the peer.
pub const SPIN_FRAME_BYTES: usize = 32 << 10;
/// The longest sleep, and the time between checks of time limits.
pub const TICK: Duration = Duration::from_secs(1);
/// A loop that has not read the clock for so long was stopped itself (SIGSTOP, a machine that slept, a long call of its
/// program). That time does not count as its peers' silence.
pub const OWN_SLEEP: Duration = Duration::from_secs(3);
/// A server thread that has not checked its time limits for so long is stuck. Growing an image takes milliseconds;
/// opening a table's images may take seconds.
pub const STUCK_TIME: Duration = Duration::from_secs(20);
/// How long the other threads of a server may take to end after one has died.
pub const DEATH_TIME: Duration = Duration::from_secs(5);
/// How long a stopping server waits for its peers to take their answers.
pub const STOP_TIME: Duration = Duration::from_secs(2);
/// Longer waits for a peer are logged.
pub const WAIT_LOGGED: Duration = Duration::from_secs(2);
/// The first and the longest pause between attempts to connect.
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long one attempt to connect and greet may take.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(5);
/// A worker pings a link after so long without an answer, or after a third of the server's limit for silence.
pub const PING_TIME: Duration = Duration::from_secs(10);
/// How often a failure is logged that stays as it is.
pub const FAILURE_LOGGED: Duration = Duration::from_secs(60);
/// Warnings about peers that a thread, or the acceptor, logs in [`WARNINGS_TIME`]. Further ones are only counted.
pub const WARNINGS_MAX: u32 = 10;
/// See [`WARNINGS_MAX`].
pub const WARNINGS_TIME: Duration = Duration::from_secs(10);
/// Links to one server that a worker loses within this time are logged as one.
pub const LOSSES_TOGETHER: Duration = Duration::from_secs(1);
/// Refusals by several threads of a server with the same text within this time are logged as one.
pub const REFUSALS_TOGETHER: Duration = Duration::from_secs(1);
/// A worker reads rows without a request only if their server answered within this time, or within a shorter one if the
/// server has a lease ([`trust_time`]). A server that is stopped or unreachable may have been replaced.
pub const LEASE: Duration = Duration::from_secs(2);
/// A worker that reads rows without requests pings their server so often within that time.
pub const LEASE_PINGS: u32 = 4;
/// The clock of each host of a job with a coordinator may be too fast or too slow by one part in this many. In a second
/// of such a clock at most 1/10 s more or less passes.
pub const CLOCK_DRIFT: u32 = 10;
/// A trial of a share of chunks to read without a request lasts for so many pulls and at least [`TRIAL_TIME`], but for
/// no more than [`TRIAL_PULLS_MAX`]. The pulls before them, which overlap with the trial before, do not count. A trial
/// of a cache of rows is longer, by the time for which its rows may be used.
pub const TRIAL_PULLS: u32 = 8;
/// See [`TRIAL_PULLS`].
pub const TRIAL_PULLS_MAX: u32 = 512;
/// See [`TRIAL_PULLS`].
pub const TRIAL_TIME: Duration = Duration::from_millis(3);
/// See [`TRIAL_PULLS`].
pub const TRIAL_SETTLING_PULLS: u32 = 4;
/// After a survey of such trials a worker keeps its choice for at least so many times the survey's duration.
pub const SURVEY_REST_FACTOR_MIN: u32 = 16;
/// See [`SURVEY_REST_FACTOR_MIN`]: the factor doubles up to this one as long as surveys agree.
pub const SURVEY_REST_FACTOR_MAX: u32 = 64;
/// A survey of a table that was not pulled for this time gives way to that of another table.
pub const SURVEY_ABANDONED_AFTER: Duration = Duration::from_secs(1);
/// How often, at most, a worker asks what of a table has been registered since.
pub const REGIONS_EVERY: Duration = Duration::from_secs(1);
/// Shards whose registrations one answer lists. Registering takes the thread some milliseconds for each shard, and
/// other sessions wait.
pub const REGIONS_PER_REQUEST: u32 = 4;
/// Bytes of handles (where rows are, for READs) that a worker keeps for a table and a server thread.
pub const HANDLE_BYTES_MAX: usize = 64 << 20;
/// Images that a server passes for one request.
pub const IMAGES_PER_REQUEST: u32 = 64;
/// Images that a worker has mapped: each is a file, of which many processes may have 1,024. It requests the rows of
/// further shards.
pub const IMAGES_MAPPED_MAX: usize = 512;
/// The highest clock.
pub const CLOCK_MAX: u64 = 1 << 62;
/// Workers that keep step over a table.
pub const GROUP_WORKERS_MAX: u32 = 4096;
/// Workers that train synchronously: a step has a bit for each worker that was in it.
/// [`SyncConfig::workers`](crate::SyncConfig::workers) counts them.
pub const BSP_WORKERS_MAX: u32 = 32;
/// Bytes of pushes that a server without `--memory-limit` keeps for incomplete steps, for each of its threads. All
/// threads and tables share one budget (step_budget.rs).
pub const BSP_BYTES_MAX: usize = 512 << 20;
/// Bytes of waiting requests that a session may put aside even if `--keyset-memory` is used up. The requests may wait
/// for a fence that comes behind them.
pub const ASIDE_BYTES_SPARE: usize = 4 << 20;
/// Past steps for which a server remembers which workers' pushes were in them.
pub const BSP_STEPS_REMEMBERED: usize = 1024;
/// How often a server reports to a worker that its request waits for other workers.
pub const WAITS_REPORT_EVERY: Duration = Duration::from_secs(1);
/// How often a worker logs which worker it waits for.
pub const WAITS_LOGGED: Duration = Duration::from_secs(5);
/// The least silence of a server that a worker tolerates while it may wait for others. The server would have reported
/// such a wait by then.
pub const WAITS_SILENCE: Duration = Duration::from_secs(4);
/// Staleness of pulls is counted singly up to so many steps.
pub const STALENESS_BUCKETS: usize = 64;
/// Tables that the status of a server names.
pub const STATUS_TABLES_MAX: usize = 1024;
/// Pushers that a table's status names.
pub const STATUS_PUSHERS_MAX: usize = 4096;
/// Splits of one pass over the data.
pub const TASKS_MAX: u64 = 1 << 20;
/// Workers of a job with a scheduler. [`JobPlan::workers`](crate::JobPlan::workers) says how many.
pub const JOB_WORKERS_MAX: u32 = 1024;
/// Bytes of a job's plan on the wire; mostly file names.
pub const PLAN_BYTES_MAX: usize = 128 << 10;
/// Bytes of a run's name. With a generation and a table's own name it makes up a table's name.
pub const RUN_NAME_BYTES_MAX: usize = 32;
/// Runs that a server knows of.
pub const RUNS_MAX: usize = 256;
/// A run without rows of which nothing was heard for so long is forgotten when another run needs its place.
pub const RUN_FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Tables of a run.
pub const RUN_TABLES_MAX: usize = 16;
/// Bytes of what a worker says of its run; mostly its flags.
pub const RUN_BYTES_MAX: usize = 64 << 10;
/// Workers of a run that its status names.
pub const RUN_MEMBERS_LISTED: usize = 32;
/// How long a worker may be silent, until it has said how long (`--worker-timeout`).
pub const WORKER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time for which a worker may be silent: `--worker-timeout` has at most a day.
pub const WORKER_TIMEOUT_MAX: Duration = Duration::from_secs(86_400);
/// Workers that a failure detector remembers though nothing was heard of them for [`DETECTOR_MEMORY`].
pub const DETECTOR_WORKERS: usize = 4096;
/// After so long without a sign a failure detector may forget a worker.
pub const DETECTOR_MEMORY: Duration = Duration::from_secs(2 * 86_400);
/// How often it looks for such workers.
pub const DETECTOR_TIDIED: Duration = Duration::from_secs(3600);
/// A worker that waits for another one asks this often whether that one is dead.
pub const AWAITED_EVERY: Duration = Duration::from_secs(1);
/// How long that, and a fence, may take.
pub const AWAITED_LIMIT: Duration = Duration::from_secs(5);
/// When it asks again if that failed.
pub const AWAITED_RETRY: Duration = Duration::from_secs(3);
/// Requests in flight that a synchronous step needs on a link.
pub const STEP_CREDIT_MIN: usize = 4;
/// One live worker fences the dead ones. If a dead one is not fenced after so long, it is the turn of another.
pub const FENCE_TURN: Duration = Duration::from_secs(5);
/// How long a worker waits for the session of an earlier incarnation, or of another process, to end.
pub const TAKEN_PATIENCE: Duration = Duration::from_secs(1);
/// How often it asks meanwhile.
pub const TAKEN_ASKED_EVERY: Duration = Duration::from_millis(50);
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
/// Heartbeats to the scheduler in a worker timeout.
pub const BEATS: u32 = 5;
/// The longest time between two heartbeats.
pub const BEAT_MAX: Duration = Duration::from_secs(2);
/// Worker timeouts without progress after which the scheduler gives up a worker that sends heartbeats and holds tasks:
/// a thread of it hangs. A batch on a slow machine may take as long as that.
pub const PROGRESS_TIMEOUTS: u32 = 5;
/// The least progress timeout.
pub const PROGRESS_TIME_MIN: Duration = Duration::from_secs(30);
/// The least time for which a worker waits for the bytes of its data file. If the worker timeout is longer, that
/// applies.
pub const READ_TIME_MIN: Duration = Duration::from_secs(10);
/// How long a chief that has saved the model stays so that the others learn of it.
pub const FAREWELL_TIME: Duration = Duration::from_secs(1);
/// Pause between two requests to the scheduler for a task while none is free, or at a barrier.
pub const ASK_EVERY: Duration = Duration::from_millis(20);
/// Time between two attempts of a request that a server refuses because its disk is full.
pub const SPACE_ASKED_EVERY: Duration = Duration::from_millis(200);
/// Bytes of a job's data in one frame.
pub const FEED_BYTES_MAX: usize = PART_BYTES_MAX;
/// Requests for a task's bytes that a worker has in flight.
pub const DATA_REQUESTS_MAX: usize = 4;
/// Bytes of the description of how a client's data is read.
pub const READING_BYTES_MAX: usize = 16 << 10;
/// Rows that a session may subscribe to on a server thread.
pub const SUBSCRIBED_ROWS_MAX: usize = 1 << 18;
/// Subscribed rows that a thread checks before its other sessions have their turn.
pub const SWEEP_ROWS: usize = 1 << 15;
/// A session that has been silent for so long gets no changes, because it may not take them.
pub const DELTAS_QUIET: Duration = Duration::from_secs(1);
/// The least bytes of a cache. [`RowCache::new`](crate::RowCache::new) checks it.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;
/// A row that was requested so many pulls ago and has not come is requested again: the worker that requested it is
/// gone.
pub const CACHE_REQUEST_PULLS_MAX: u64 = 4096;
/// Bytes of a refusal's text.
pub const TEXT_BYTES_MAX: usize = 1024;

const _: () = {
    assert!(PART_BYTES_MAX + 8 <= FRAME_BYTES_MAX);
    assert!(PART_KEYS_MAX * 8 <= PART_BYTES_MAX);
    assert!(PART_KEYS_MAX <= gannet_core::limits::KEYS_PER_CALL_MAX);
    // One row of the widest table (four planes and two scalars), with its key and slot, is a part.
    assert!((gannet_core::limits::DIM_MAX as usize * 4 + 2) * 4 + 16 <= PART_BYTES_MAX);
    assert!(FLUSH_BYTES < TRANSMIT_BYTES);
    assert!(STUCK_TIME.as_secs() > 2 * TICK.as_secs());
    assert!(OWN_SLEEP.as_millis() > 2 * TICK.as_millis());
    assert!(KEYSETS_MAX < u32::MAX as usize);
    // The highest bit of a row's number says that there is none.
    assert!(SUBSCRIBED_ROWS_MAX < 1 << 31);
    assert!(IMAGES_PER_REQUEST as usize <= GIVEN_FILES_MAX);
    assert!(LEASE_PINGS > 2);
    // What an owner serves and what a reader believes after that, by slow clocks, ends before a lease by a fast clock:
    // 13/16 of the lease times (1 + 1/10) is less than 1 - 1/10 of the lease.
    assert!(13 * (CLOCK_DRIFT + 1) <= 16 * (CLOCK_DRIFT - 1));
    assert!(WAITS_SILENCE.as_secs() > WAITS_REPORT_EVERY.as_secs() + 2 * TICK.as_secs());
    assert!(BSP_WORKERS_MAX <= u32::BITS);
    assert!(DETECTOR_MEMORY.as_secs() > WORKER_TIMEOUT_MAX.as_secs());
    assert!(BSP_BYTES_MAX >= 2 * CREDIT_BYTES as usize);
    // A worker reports a reader that hangs before the scheduler gives the worker up.
    assert!(PROGRESS_TIMEOUTS > 2 && PROGRESS_TIME_MIN.as_secs() > 2 * READ_TIME_MIN.as_secs());
    // A job's status fits one frame: its workers, their tasks, its dead, why it failed.
    assert!(
        JOB_WORKERS_MAX as usize * (128 + HELD_MAX * 48) + UNFENCED_MAX * 16 + TEXT_BYTES_MAX + 1024
            <= FRAME_BYTES_MAX
    );
    assert!(STATUS_PUSHERS_MAX * 48 + 1024 <= FRAME_BYTES_MAX);
    assert!(STATUS_TABLES_MAX * (gannet_core::limits::TABLE_NAME_BYTES_MAX + 24) + 1024 <= FRAME_BYTES_MAX);
    // Each worker, and each split that it may hold, is a pusher to every shard.
    assert!(JOB_WORKERS_MAX as usize * (1 + HELD_MAX) < gannet_core::limits::PUSHERS_MAX);
    // A client's offer fits one frame: its plan, and how its data is read.
    assert!(PLAN_BYTES_MAX + READING_BYTES_MAX + 1024 <= FRAME_BYTES_MAX);
    assert!(FEED_BYTES_MAX <= FRAME_BYTES_MAX && DATA_REQUESTS_MAX <= CREDIT_FRAMES as usize);
    assert!(PLAN_BYTES_MAX <= FRAME_BYTES_MAX && UNFENCED_MAX >= 2 * JOB_WORKERS_MAX as usize);
    // The list of all runs fits one frame.
    assert!(RUNS_MAX * (64 + RUN_NAME_BYTES_MAX + RUN_MEMBERS_LISTED * 24) + 1024 <= FRAME_BYTES_MAX);
    assert!(RUN_BYTES_MAX <= FRAME_BYTES_MAX && WORKER_TIMEOUT.as_secs() > 4 * BEAT_MAX.as_secs());
    // The receive buffer fits more requests than the credit allows, so an overrun shows while they wait in it.
    assert!(CREDIT_FRAMES as usize * 2 * HEAD_BYTES <= RECEIVE_BYTES);
    assert!(CREDIT_BYTES >= 16 * FRAME_BYTES_MAX as u64);
    assert!(BUFFER_BYTES_TOTAL >= THREADS_MAX * LINK_BYTES_MAX);
    assert!(FRAME_TIME.as_secs() >= STALL_TIME.as_secs());
};

/// The longest time that a call of a bucket takes, with all of its retries.
#[cfg(feature = "cloud")]
pub const BUCKET_CALL: Duration = Duration::from_secs(120);
/// The longest time that one request to a bucket takes. A part of a file has to pass within it.
#[cfg(feature = "cloud")]
pub const BUCKET_REQUEST: Duration = Duration::from_secs(30);
/// The longest time for a connection to a bucket.
#[cfg(feature = "cloud")]
pub const BUCKET_CONNECT: Duration = Duration::from_secs(5);
/// How often a request to a bucket is sent again.
#[cfg(feature = "cloud")]
pub const BUCKET_RETRIES: usize = 5;
/// Before a request whose answer was lost is sent again.
#[cfg(feature = "cloud")]
pub const BUCKET_RETRY_AFTER: Duration = Duration::from_millis(500);
/// Requests to a bucket that remove objects at a time.
#[cfg(feature = "cloud")]
pub const BUCKET_CALLS_AT_ONCE: usize = 16;
/// Bytes of a part of a file in a bucket, which are in memory while they are on their way.
#[cfg(feature = "cloud")]
pub const BUCKET_PART_BYTES: usize = 8 << 20;
/// Parts or ranges of a file that are on their way at a time.
#[cfg(feature = "cloud")]
pub const BUCKET_PARTS_AT_ONCE: usize = 3;
/// Parts of a file. S3 allows no more.
#[cfg(feature = "cloud")]
pub const BUCKET_PARTS_MAX: usize = 10_000;
/// Bytes that a reader of a file in a bucket asks for at a time.
#[cfg(feature = "cloud")]
pub const BUCKET_RANGE_BYTES: u64 = 2 << 20;

/// Bytes of commands that one backup may be behind a server thread. Above that, pushes wait.
pub const REPLICATION_BYTES_MAX: usize = 8 << 20;
/// About how many bytes of rows a server thread tells a backup between two rounds of requests, while it fills it.
pub const FILL_BYTES: usize = 64 << 10;
/// Bytes in the queue for a backup above which no further rows are told to fill it.
pub const FILL_QUEUE_BYTES: usize = 1 << 20;
/// Bytes of a command that travels in several frames, at most.
pub const COMMAND_BYTES_MAX: usize = 256 << 20;
/// How often a server looks for another newest checkpoint, because the one before was pruned while it was read.
pub const RESTORE_LOOKS_MAX: u32 = 100;
/// How long a server that ends because its job goes back waits for its threads to say how far their shards are.
pub const UNDONE_WAIT: Duration = Duration::from_secs(2);
/// A place whose lease nobody has had for so many of its times has lost its rows: its own server begins it again.
pub const ORPHAN_LEASES: u32 = 5;
/// A server that has taken a place acknowledges nothing for so many leases, if it has not filled the other backups
/// until then. Then it goes on without them.
pub const KEPT_LEASES: u32 = 1;
/// A server that finds another job under the name of its own waits so many leases whether the servers of that live.
pub const STRANGER_LEASES: u32 = 3;
/// A backup that has been away from the registry of servers for so many leases loses its slot to another server.
pub const BACKUP_AWAY_LEASES: u32 = 3;
/// So does one that could not be reached or filled so many times, counted for each thread of its owner.
pub const BACKUP_FAILURES_MAX: u64 = 3;
/// Keys of a coordinator that a scheduler keeps.
pub const COORDINATOR_KEYS_MAX: usize = 4096;
/// Leases of such a coordinator.
pub const COORDINATOR_LEASES_MAX: usize = 4096;
/// Bytes of one of its keys together with the value.
pub const COORDINATOR_BYTES_MAX: usize = 16 << 10;
/// Bytes of a request to such a coordinator: a server writes the backups of up to 64 places at once.
pub const COORDINATOR_REQUEST_BYTES: usize = PART_BYTES_MAX;
/// Keys of a page that a coordinator lists.
pub const COORDINATOR_PAGE_KEYS: usize = 64;
/// Keys that one call may write together.
pub const COORDINATOR_WRITES_MAX: usize = 64;
/// Bytes of keys and values behind which a page ends.
pub const COORDINATOR_PAGE_BYTES: usize = 64 << 10;
/// Times of its leases.
pub const LEASE_TIMES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(7 * 86_400));
/// How long a coordinator knows a run whose rows were in memory only and whose servers are all gone.
pub const RUN_KEPT: Duration = Duration::from_secs(86_400);
/// How often in that time its servers say that they live.
pub const RUN_BEATS: u32 = 32;
/// Members of a cluster of etcd that a client is told.
pub const ETCD_MEMBERS_MAX: usize = 16;
/// How long a server or a worker waits for the coordinator's answer.
pub const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(1);
/// Pings to a backup of which nothing else is asked, in the time after which it is taken as lost.
pub const IDLE_PINGS: u32 = 4;
/// Bytes of the states of a scheduler that a backup keeps, besides rows.
pub const STATE_BYTES_MAX: usize = 256 << 20;
/// Streams of such states from earlier owners that a backup keeps until the last owner has told all.
pub const STATE_STREAMS_MAX: usize = 8;
/// Streams of copies that a server thread keeps: of each table one for each thread of its owner.
pub const COPIES_MAX: usize = 1 << 16;
/// The pause before a server connects again to a backup that it has lost.
pub const REPLICATOR_PAUSE: Duration = Duration::from_millis(200);
/// How often a worker that has lost a server asks the coordinator who owns its shards.
pub const PLACE_LOOKUP_EVERY: Duration = Duration::from_millis(200);
/// How long a server may leave requests unanswered before the worker asks the coordinator who owns its shards.
pub const PLACE_SILENCE: Duration = Duration::from_secs(1);
/// How long a backup may be away, or leave commands unanswered, before it is taken as lost.
pub const BACKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an owner of places serves after it has asked for its lease or for more of it. The coordinator gives the
/// place to nobody else in the whole time of the lease.
pub const fn serving_time(lease: Duration) -> Duration {
    Duration::from_nanos((lease.as_nanos() / 4 * 3) as u64)
}

/// How long a worker reads rows of a server without a request, from when it sent a request that was answered. A server
/// with a lease may be replaced when the lease has ended. It has answered within [`serving_time`], so a quarter of the
/// lease is left. Three quarters of that are for clocks that differ ([`CLOCK_DRIFT`]).
///
/// ```
/// use gannet_node::limits::trust_time;
/// use std::time::Duration;
///
/// assert_eq!(trust_time(None), Duration::from_secs(2));
/// assert_eq!(trust_time(Some(Duration::from_secs(2))), Duration::from_millis(125));
/// assert_eq!(trust_time(Some(Duration::from_secs(600))), Duration::from_secs(2));
/// ```
pub fn trust_time(lease: Option<Duration>) -> Duration {
    lease.map_or(LEASE, |lease| LEASE.min(lease / 16))
}

/// Keys of a part of a table whose rows are `floats` floats long: a push may name a slot for each.
pub fn part_keys(floats: usize) -> usize {
    (PART_BYTES_MAX / (12 + 4 * floats)).clamp(1, PART_KEYS_MAX)
}
