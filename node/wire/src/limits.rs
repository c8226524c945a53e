//! Limits of the protocol and of what several roles share, and the relations between them. Each role has its own.

use gannet_transport::limits::{FRAME_BYTES_MAX, GIVEN_FILES_MAX};
use std::time::Duration;

/// Keys, slots and floats of one part: one pull frame, its answer, or one push frame.
pub const PART_BYTES_MAX: usize = 256 << 10;
/// Keys of one part.
pub const PART_KEYS_MAX: usize = 8192;
/// Keysets that a session may keep on a server thread.
pub const KEYSETS_MAX: usize = 4096;
/// The longest time for which a cut may hold pushes back.
pub const CUT_FREEZE_MAX: Duration = Duration::from_secs(5);
/// Bytes of a message of a cut. A longer one travels in parts.
pub const CUT_MESSAGE_BYTES_MAX: usize = PART_BYTES_MAX;
/// Bytes of such a part.
pub const CUT_PART_BYTES: usize = CUT_MESSAGE_BYTES_MAX - 1024;
/// Bytes of a message of a cut that travels in parts.
pub const CUT_BYTES_MAX: usize = 64 << 20;
/// Threads of a server.
pub const THREADS_MAX: usize = 256;
/// The least bytes of a token: a shorter one could be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// How long a thread polls after a small frame before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);
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
/// How often a failure is logged that stays as it is.
pub const FAILURE_LOGGED: Duration = Duration::from_secs(60);
/// Warnings about peers that a thread, or the acceptor, logs in [`WARNINGS_TIME`]. Further ones are only counted.
pub const WARNINGS_MAX: u32 = 10;
/// The time in which at most [`WARNINGS_MAX`] warnings about peers are logged.
pub const WARNINGS_TIME: Duration = Duration::from_secs(10);
/// A worker reads rows without a request only if their server answered within this time, or within a shorter one if the
/// server has a lease (`trust_time`). A server that is stopped or unreachable may have been replaced.
pub const LEASE: Duration = Duration::from_secs(2);
/// Shards whose registrations one answer lists. Registering takes the thread some milliseconds for each shard, and
/// other sessions wait.
pub const REGIONS_PER_REQUEST: u32 = 4;
/// Images that a server passes for one request.
pub const IMAGES_PER_REQUEST: u32 = 64;
/// Workers that keep step over a table.
pub const GROUP_WORKERS_MAX: u32 = 4096;
/// Workers that train synchronously: a step has a bit for each worker that was in it.
/// [`SyncConfig::workers`](crate::sync::SyncConfig::workers) counts them.
pub const BSP_WORKERS_MAX: u32 = 32;
/// Pushers that a table's status names.
pub const STATUS_PUSHERS_MAX: usize = 4096;
/// Splits of one pass over the data.
pub const TASKS_MAX: u64 = 1 << 20;
/// Workers of a job with a scheduler. [`JobPlan::workers`](crate::messages::job_plan::JobPlan::workers) says how many.
pub const JOB_WORKERS_MAX: u32 = 1024;
/// Open tasks of a source that grows behind which no more are taken, and the most that one report may name.
pub const FOUND_TASKS_MAX: u64 = 1024;
/// Bytes of names in a report of files, and of the names of files that a scheduler lists one by one.
pub const FOUND_NAME_BYTES_MAX: usize = 64 << 10;
/// Files whose names a scheduler lists one by one: those with the last names.
pub const SEEN_FILES_MAX: usize = 1024;
/// Bytes of the name of a file in a growing folder.
pub const GROWN_FILE_NAME_MAX: usize = 255;
/// Partitions of a topic.
pub const GROWN_PARTITIONS_MAX: u32 = 1 << 10;
/// Offsets of messages are below this. A partition and an offset make up the name of a push.
pub const GROWN_OFFSET_MAX: u64 = 1 << 48;
/// Bytes of a job's plan on the wire; mostly file names.
pub const PLAN_BYTES_MAX: usize = 128 << 10;
/// Bytes of a run's name. With a generation and a table's own name it makes up a table's name.
pub const RUN_NAME_BYTES_MAX: usize = 32;
/// Bytes of what a worker says of its run: mostly its flags, and how it reads its data.
pub const RUN_BYTES_MAX: usize = 160 << 10;
/// How long a worker may be silent, until it has said how long (`--worker-timeout`).
pub const WORKER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time for which a worker may be silent: `--worker-timeout` has at most a day.
pub const WORKER_TIMEOUT_MAX: Duration = Duration::from_secs(86_400);
/// The least time for which a worker waits for the bytes of its data file. If the worker timeout is longer, that
/// applies.
pub const READ_TIME_MIN: Duration = Duration::from_secs(10);
/// Bytes of a job's data in one frame.
pub const FEED_BYTES_MAX: usize = PART_BYTES_MAX;
/// Bytes of the description of how a client's data is read.
pub const READING_BYTES_MAX: usize = 16 << 10;
/// Rows that a session may subscribe to on a server thread.
pub const SUBSCRIBED_ROWS_MAX: usize = 1 << 18;
/// Bytes of a refusal's text.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Keys of a coordinator that a scheduler keeps.
pub const COORDINATOR_KEYS_MAX: usize = 4096;
/// Keys that one call may write together.
pub const COORDINATOR_WRITES_MAX: usize = 64;
/// How long a server or a worker waits for the coordinator's answer.
pub const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(1);

/// Keys of a part of a table whose rows are `floats` floats long: a push may name a slot for each.
pub fn part_keys(floats: usize) -> usize {
    (PART_BYTES_MAX / (12 + 4 * floats)).clamp(1, PART_KEYS_MAX)
}

const _: () = {
    // What a scheduler knows of a growing source, and what a worker found, fit one frame.
    assert!(
        FOUND_NAME_BYTES_MAX + SEEN_FILES_MAX * 64 + GROWN_PARTITIONS_MAX as usize * 48 + 4096
            <= FRAME_BYTES_MAX
    );
    assert!(
        FOUND_NAME_BYTES_MAX + FOUND_TASKS_MAX as usize * 96 + GROWN_PARTITIONS_MAX as usize * 24
            <= FRAME_BYTES_MAX
    );
    assert!(PART_BYTES_MAX + 8 <= FRAME_BYTES_MAX);
    assert!(PART_KEYS_MAX * 8 <= PART_BYTES_MAX);
    assert!(PART_KEYS_MAX <= gannet_core::limits::KEYS_PER_CALL_MAX);
    // One row of the widest table (four planes and two scalars), with its key and slot, is a part.
    assert!((gannet_core::limits::DIM_MAX as usize * 4 + 2) * 4 + 16 <= PART_BYTES_MAX);
    assert!(OWN_SLEEP.as_millis() > 2 * TICK.as_millis());
    assert!(KEYSETS_MAX < u32::MAX as usize);
    // The highest bit of a row's number says that there is none.
    assert!(SUBSCRIBED_ROWS_MAX < 1 << 31);
    assert!(IMAGES_PER_REQUEST as usize <= GIVEN_FILES_MAX);
    assert!(BSP_WORKERS_MAX <= u32::BITS);
    assert!(STATUS_PUSHERS_MAX * 48 + 1024 <= FRAME_BYTES_MAX);
    // A client's offer fits one frame: its plan, and how its data is read.
    assert!(PLAN_BYTES_MAX + READING_BYTES_MAX + 1024 <= FRAME_BYTES_MAX);
};
