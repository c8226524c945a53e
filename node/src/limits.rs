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
/// Default for the bytes of keysets that a session may keep: over it a pull's answer says "not kept".
pub const KEYSET_BYTES_MAX: usize = 64 << 20;
/// Default for the bytes of keysets of all sessions of a server together.
pub const KEYSET_BYTES_TOTAL: usize = 1 << 30;
/// Ticks after which a keyset that no push has named is forgotten.
pub const KEYSET_TICKS_MAX: u32 = 600;
/// Default for the bytes of buffers of all sessions of a server together: so many are active at once, the others rest
/// or wait.
pub const BUFFER_BYTES_TOTAL: usize = 1 << 30;
/// Default credit of a session in requests under way.
pub const CREDIT_FRAMES: u32 = 1024;
/// Default credit of a session in bytes of requests under way and of their answers.
pub const CREDIT_BYTES: u64 = 64 << 20;
/// Finished pulls whose keysets a worker remembers, the oldest being forgotten first.
pub const KEPT_PULLS_MAX: usize = 256;
/// Tables on a server thread.
pub const TABLES_MAX: usize = 256;
/// Threads of a server.
pub const THREADS_MAX: usize = 256;
/// Links that a server thread serves.
pub const SESSIONS_MAX: usize = 4096;
/// Links between the acceptor and a thread.
pub const INBOX_MAX: usize = 64;
/// Connections that have not said who they are.
pub const GREETING_MAX: usize = 256;
/// Incarnations that peers name are below this: no request can use up the numbers that are left.
pub const INCARNATION_NAMED_MAX: u64 = 1 << 63;
/// How far above all that images remember a counter of incarnations begins anew when its file is gone: more numbers
/// than a server can have handed out that have not pushed yet.
pub const INCARNATION_GAP: u64 = 1 << 32;
/// How long a connection may take to say who it is.
pub const GREETING_TIME: Duration = Duration::from_secs(5);
/// Bytes of a token: fewer could be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// How long a peer may leave a frame half sent, or leave answers in our out queue.
pub const STALL_TIME: Duration = Duration::from_secs(30);
/// How long a frame may be on its way, and answers wait to be taken, however steadily bytes trickle.
pub const FRAME_TIME: Duration = Duration::from_secs(60);
/// The same while other sessions wait for the memory of buffers.
pub const FRAME_TIME_PRESSED: Duration = Duration::from_secs(5);
/// Default for how long a session may say nothing.
pub const SILENCE_TIME: Duration = Duration::from_secs(300);
/// A session on which nothing has moved for so long gives its buffers back.
pub const REST_TIME: Duration = Duration::from_secs(2);
/// How often a thread looks whether there is memory for sessions that wait for it.
pub const MEMORY_RETRY: Duration = Duration::from_millis(5);
/// Frames of one link that are handled before the next link has its turn.
pub const FRAMES_PER_TURN: usize = 32;
/// Queued bytes at which answers are flushed before the turn ends.
pub const FLUSH_BYTES: usize = 128 << 10;
/// Bytes of frames that a thread handles between two looks at the clock, so that timing requests costs next to nothing;
/// it also looks at the end of each turn.
pub const CLOCK_BYTES: usize = 4096;
/// How long a thread looks for more before it sleeps, after a small frame.
pub const SPIN: Duration = Duration::from_micros(50);
/// Frames up to this size (64 rows of 64 floats with their keys among them) are small: whoever sends them waits for the
/// answer. Larger ones come many at a time, and the core is better left to the peer.
pub const SPIN_FRAME_BYTES: usize = 32 << 10;
/// The longest sleep, and the time between looks at time limits.
pub const TICK: Duration = Duration::from_secs(1);
/// A loop that has not looked at the time for so long was stopped itself (SIGSTOP, a machine that slept, a long call of
/// its program): that time is not held against its peers.
pub const OWN_SLEEP: Duration = Duration::from_secs(3);
/// A server thread that has not looked at its time limits for so long is stuck: growing an image takes milliseconds,
/// opening a table's images may take seconds.
pub const STUCK_TIME: Duration = Duration::from_secs(20);
/// How long the threads of a server of which one has died may take to end before they are left behind.
pub const DEATH_TIME: Duration = Duration::from_secs(5);
/// How long a stopping server lets its peers take their answers.
pub const STOP_TIME: Duration = Duration::from_secs(2);
/// A wait for a peer that lasts longer is logged.
pub const WAIT_LOGGED: Duration = Duration::from_secs(2);
/// The first and the longest pause between attempts to connect.
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long one attempt to connect and greet may take.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(5);
/// A link on which a worker has heard nothing for so long, or for a third of what the server bears, is pinged.
pub const PING_TIME: Duration = Duration::from_secs(10);
/// Warnings about what peers do that a thread, or the acceptor, logs in [`WARNINGS_TIME`]; further ones are counted.
pub const WARNINGS_MAX: u32 = 10;
/// See [`WARNINGS_MAX`].
pub const WARNINGS_TIME: Duration = Duration::from_secs(10);
/// Links to one server that a worker loses within this time are logged as one.
pub const LOSSES_TOGETHER: Duration = Duration::from_secs(1);
/// Refusals of several threads of a server in the same words within this time are logged as one.
pub const REFUSALS_TOGETHER: Duration = Duration::from_secs(1);
/// Rows are read without asking their server only while it was heard of within this time: a server that is stopped, or
/// on the other side of a cut, may have been replaced.
pub const LEASE: Duration = Duration::from_secs(2);
/// A server whose rows are read without asking is asked for a sign of life when it was not heard of for so long.
pub const LEASE_PING: Duration = Duration::from_millis(500);
/// Default for [`WorkerConfig::near_kept_bytes_min`](crate::WorkerConfig::near_kept_bytes_min): a cache line.
pub const NEAR_KEPT_BYTES_MIN: usize = 64;
/// How often a worker asks at most what of a table has been registered since.
pub const REGIONS_EVERY: Duration = Duration::from_secs(1);
/// Shards of which a server tells in one answer what it has registered: registering takes the thread some milliseconds
/// a shard, and others wait.
pub const REGIONS_PER_REQUEST: u32 = 4;
/// Bytes of handles (where rows are, for READs) that a worker keeps for a table and a server thread.
pub const HANDLE_BYTES_MAX: usize = 64 << 20;
/// Images that a server gives for one request.
pub const IMAGES_PER_REQUEST: u32 = 64;
/// The highest clock.
pub const CLOCK_MAX: u64 = 1 << 62;
/// Workers that keep step over a table.
pub const GROUP_WORKERS_MAX: u32 = 4096;
/// Of those that train synchronously: a step is named by who was in it, a bit each.
pub const BSP_WORKERS_MAX: u32 = 32;
/// Bytes of pushes that a server without `--memory-limit` keeps for steps that are not complete, for each of its
/// threads: one budget for all threads and tables (step_budget.rs).
pub const BSP_BYTES_MAX: usize = 512 << 20;
/// Bytes of requests of one session that wait for other workers and are put aside though `--keyset-memory` is used up:
/// a fence that they wait for may come behind them.
pub const ASIDE_BYTES_SPARE: usize = 4 << 20;
/// Steps of which it is remembered whose pushes were in them.
pub const BSP_STEPS_REMEMBERED: usize = 1024;
/// How often a request that waits for other workers is told so.
pub const WAITS_TOLD: Duration = Duration::from_secs(1);
/// How often a worker logs whom it waits for.
pub const WAITS_LOGGED: Duration = Duration::from_secs(5);
/// A worker that may have to wait for others bears a server's silence at least so long: then it would have been told.
pub const WAITS_SILENCE: Duration = Duration::from_secs(4);
/// A worker decides for others while it gave a sign within this time.
pub const DECIDER_SILENCE: Duration = Duration::from_secs(12);
/// Steps behind the furthest that are counted apart in a worker's staleness.
pub const STALENESS_BUCKETS: usize = 64;
/// Pushers that a table's status names.
pub const STATUS_PUSHERS_MAX: usize = 4096;
/// Data tasks of one pass over the data.
pub const TASKS_MAX: u64 = 1 << 20;
/// Workers of a job whose data is handed out.
pub const JOB_WORKERS_MAX: u32 = 1024;
/// Bytes of a job's plan as it travels: file names are most of it.
pub const PLAN_BYTES_MAX: usize = 128 << 10;
/// Bytes of a run's name: with a generation and a table's own name it is a table's name.
pub const RUN_NAME_BYTES_MAX: usize = 32;
/// Runs that a server knows of.
pub const RUNS_MAX: usize = 256;
/// Tables of a run.
pub const RUN_TABLES_MAX: usize = 16;
/// Bytes that a worker says of its run: its flags are most of it.
pub const RUN_BYTES_MAX: usize = 64 << 10;
/// Workers of a run that its status names.
pub const RUN_MEMBERS_TOLD: usize = 32;
/// A worker of a run that says nothing for so long is taken for dead.
pub const RUN_SILENCE: Duration = Duration::from_secs(20);
/// How long a worker waits for the session of an earlier life, or of another process, to end.
pub const TAKEN_PATIENCE: Duration = Duration::from_secs(1);
/// Tasks that a worker may hold: the one that it learns and the one that it reads ahead.
pub const HELD_MAX: usize = 2;
/// Barriers at which somebody waits.
pub const BARRIERS_MAX: usize = 64;
/// Bytes of a barrier's name.
pub const BARRIER_BYTES_MAX: usize = 64;
/// Dead lives that not every shard owner is known to refuse: no more workers come into a job that has so many.
pub const UNFENCED_MAX: usize = 2048;
/// A worker that missed the end of a job and comes within this time after it comes late; after that it begins another.
pub const LATE_TIME: Duration = Duration::from_secs(60);
/// Signs of life to the scheduler in a worker timeout.
pub const BEATS: u32 = 5;
/// The longest time between two.
pub const BEAT_MAX: Duration = Duration::from_secs(2);
/// Worker timeouts without progress after which a worker that gives signs of life and has tasks is given up: a thread
/// of it hangs. A batch on a slow machine may take as long as that.
pub const PROGRESS_TIMEOUTS: u32 = 5;
/// The least of that time.
pub const PROGRESS_TIME_MIN: Duration = Duration::from_secs(30);
/// The least time for which a worker waits for the bytes of its data file; otherwise a worker timeout.
pub const READ_TIME_MIN: Duration = Duration::from_secs(10);
/// How long a chief that has saved the model stays for the others to hear of it.
pub const FAREWELL_TIME: Duration = Duration::from_secs(1);
/// Between two questions to the scheduler for a task when none is free, or for those who are still to come to a
/// barrier.
pub const ASK_EVERY: Duration = Duration::from_millis(20);
/// Bytes of a job's data that are fed in one frame.
pub const FEED_BYTES_MAX: usize = PART_BYTES_MAX;
/// Requests for a task's bytes that a worker has under way.
pub const FEEDS_UNDER_WAY: usize = 4;
/// Bytes that say how a client's data is read.
pub const READING_BYTES_MAX: usize = 16 << 10;
/// Rows that a session may have subscribed on a server thread.
pub const SUBSCRIBED_ROWS_MAX: usize = 1 << 18;
/// Subscribed rows that a thread looks at before its other sessions have their turn.
pub const SWEEP_ROWS: usize = 1 << 15;
/// Who has said nothing for so long is not sent what has changed: it may not take it.
pub const DELTAS_QUIET: Duration = Duration::from_secs(1);
/// A cache of fewer bytes is none.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;
/// A row that was asked for so many pulls ago and has not come is asked for again: who asked is gone.
pub const CACHE_ASKED_PULLS_MAX: u64 = 4096;
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
    assert!(LEASE.as_millis() > 2 * LEASE_PING.as_millis());
    assert!(WAITS_SILENCE.as_secs() > WAITS_TOLD.as_secs() + 2 * TICK.as_secs());
    assert!(DECIDER_SILENCE.as_secs() > PING_TIME.as_secs() && BSP_WORKERS_MAX <= u32::BITS);
    assert!(BSP_BYTES_MAX >= 2 * CREDIT_BYTES as usize);
    // A reader that hangs is its worker's to tell of, before the scheduler has to guess.
    assert!(PROGRESS_TIMEOUTS > 2 && PROGRESS_TIME_MIN.as_secs() > 2 * READ_TIME_MIN.as_secs());
    // A job's status is one frame: its workers, what they hold, its dead, why it failed.
    assert!(
        JOB_WORKERS_MAX as usize * (128 + HELD_MAX * 48) + UNFENCED_MAX * 16 + TEXT_BYTES_MAX + 1024
            <= FRAME_BYTES_MAX
    );
    assert!(STATUS_PUSHERS_MAX * 48 + 1024 <= FRAME_BYTES_MAX);
    // Each worker, and each piece of data that it may have, is a pusher to every shard.
    assert!(JOB_WORKERS_MAX as usize * (1 + HELD_MAX) < gannet_core::limits::PUSHERS_MAX);
    // What a client offers is one frame: its plan, and how its data is read.
    assert!(PLAN_BYTES_MAX + READING_BYTES_MAX + 1024 <= FRAME_BYTES_MAX);
    assert!(FEED_BYTES_MAX <= FRAME_BYTES_MAX && FEEDS_UNDER_WAY <= CREDIT_FRAMES as usize);
    assert!(PLAN_BYTES_MAX <= FRAME_BYTES_MAX && UNFENCED_MAX >= 2 * JOB_WORKERS_MAX as usize);
    // What is known of all runs is one frame.
    assert!(RUNS_MAX * (64 + RUN_NAME_BYTES_MAX + RUN_MEMBERS_TOLD * 24) + 1024 <= FRAME_BYTES_MAX);
    assert!(RUN_BYTES_MAX <= FRAME_BYTES_MAX && RUN_SILENCE.as_secs() > 4 * BEAT_MAX.as_secs());
    // More requests than the credit allows are seen while they wait in the receive buffer.
    assert!(CREDIT_FRAMES as usize * 2 * HEAD_BYTES <= RECEIVE_BYTES);
    assert!(CREDIT_BYTES >= 16 * FRAME_BYTES_MAX as u64);
    assert!(BUFFER_BYTES_TOTAL >= THREADS_MAX * LINK_BYTES_MAX);
    assert!(FRAME_TIME.as_secs() >= STALL_TIME.as_secs());
};

/// Keys of a part of a table whose rows are `floats` floats long: a push may name a slot for each.
pub fn part_keys(floats: usize) -> usize {
    (PART_BYTES_MAX / (12 + 4 * floats)).clamp(1, PART_KEYS_MAX)
}
