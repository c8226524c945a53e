//! Every limit of the server.

use gannet_transport::limits::{FRAME_BYTES_MAX, HEAD_BYTES, LINK_BYTES_MAX, RECEIVE_BYTES, TRANSMIT_BYTES};
use gannet_wire::limits::{FEED_BYTES_MAX, PART_BYTES_MAX, THREADS_MAX, TICK};
use gannet_worker::limits::{DATA_REQUESTS_MAX, WAITS_SILENCE};
use std::time::Duration;

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

/// Pushers of all tables of a thread that a cut can have.
pub const CUT_PUSHES_MAX: usize = 1 << 17;

/// Pushers without a session of which a thread remembers when the last one ended.
pub const ABSENCES_MAX: usize = 8192;

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

/// How long a follower waits for the server that mirrors its rows.
pub const MIRROR_TIME: Duration = Duration::from_secs(60);

/// The longest time for which a follower may hold pushes back at once.
pub const FOLLOWER_FREEZE_MAX: Duration = Duration::from_millis(500);

/// Followers that read a cut of a thread at once.
pub const FOLLOWERS_MAX: usize = 8;

/// Bytes of rows on one thread that a follower has not read yet and that pushes have changed. Above, its cut ends: a
/// slow follower does not make pushes wait.
pub const FOLLOWER_SAVED_BYTES_MAX: usize = 32 << 20;

/// A table that remembers more pushers than this forgets clients without an index that are closed, or gone for
/// [`CLIENT_FORGOTTEN_AFTER`].
pub const PUSHERS_KEPT: usize = 1024;

/// A table with more than [`PUSHERS_KEPT`] pushers forgets clients that have been gone for this time.
pub const CLIENT_FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// `gannet forget --clients` forgets clients that have been gone for this time. A client waits as long for a server
/// that is away.
pub const CLIENT_FORGOTTEN_ON_REQUEST_AFTER: Duration = Duration::from_secs(60);

/// Clients that a table forgets in a second, or for one request.
pub const CLIENTS_FORGOTTEN_AT_ONCE: usize = 256;

/// Tables on a server thread. A power of two (tables/table_list.rs).
pub const TABLES_MAX: usize = 8192;

/// So many tables of a thread are closed one after another. More are closed by several threads.
pub const CLOSED_ALONE: usize = 16;

/// The number of those threads.
pub const CLOSERS: usize = 8;

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

/// A server thread that has not checked its time limits for so long is stuck. Growing an image takes milliseconds;
/// opening a table's images may take seconds.
pub const STUCK_TIME: Duration = Duration::from_secs(20);

/// How long the other threads of a server may take to end after one has died.
pub const DEATH_TIME: Duration = Duration::from_secs(5);

/// How long a stopping server waits for its peers to take their answers.
pub const STOP_TIME: Duration = Duration::from_secs(2);

/// Refusals by several threads of a server with the same text within this time are logged as one.
pub const REFUSALS_TOGETHER: Duration = Duration::from_secs(1);

/// The clock of each host of a job with a coordinator may be too fast or too slow by one part in this many. In a second
/// of such a clock at most 1/10 s more or less passes.
pub const CLOCK_DRIFT: u32 = 10;

/// The highest clock.
pub const CLOCK_MAX: u64 = 1 << 62;

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

/// Tables that the status of a server names.
pub const STATUS_TABLES_MAX: usize = 1024;

/// Subscribed rows that a thread checks before its other sessions have their turn.
pub const SWEEP_ROWS: usize = 1 << 15;

/// A session that has been silent for so long gets no changes, because it may not take them.
pub const DELTAS_QUIET: Duration = Duration::from_secs(1);

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

/// Bytes of a request to the coordinator of a scheduler: a server writes the backups of up to 64 places at once.
pub const COORDINATOR_REQUEST_BYTES: usize = PART_BYTES_MAX;

/// How long a coordinator knows a run whose rows were in memory only and whose servers are all gone.
pub const RUN_KEPT: Duration = Duration::from_secs(86_400);

/// How often in that time its servers say that they live.
pub const RUN_BEATS: u32 = 32;

/// Bytes of the states of a scheduler that a backup keeps, besides rows.
pub const STATE_BYTES_MAX: usize = 256 << 20;

/// Streams of such states from earlier owners that a backup keeps until the last owner has told all.
pub const STATE_STREAMS_MAX: usize = 8;

/// Streams of copies that a server thread keeps: of each table one for each thread of its owner.
pub const COPIES_MAX: usize = 1 << 16;

/// The pause before a server connects again to a backup that it has lost.
pub const REPLICATOR_PAUSE: Duration = Duration::from_millis(200);

/// How long a backup may be away, or leave commands unanswered, before it is taken as lost.
pub const BACKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an owner of places serves after it has asked for its lease or for more of it. The coordinator gives the
/// place to nobody else in the whole time of the lease.
pub const fn serving_time(lease: Duration) -> Duration {
    Duration::from_nanos((lease.as_nanos() / 4 * 3) as u64)
}

const _: () = {
    assert!(FLUSH_BYTES < TRANSMIT_BYTES);
    assert!(STUCK_TIME.as_secs() > 2 * TICK.as_secs());
    // What an owner serves and what a reader believes after that, by slow clocks, ends before a lease by a fast clock:
    // 13/16 of the lease times (1 + 1/10) is less than 1 - 1/10 of the lease.
    assert!(13 * (CLOCK_DRIFT + 1) <= 16 * (CLOCK_DRIFT - 1));
    assert!(WAITS_SILENCE.as_secs() > WAITS_REPORT_EVERY.as_secs() + 2 * TICK.as_secs());
    assert!(BSP_BYTES_MAX >= 2 * CREDIT_BYTES as usize);
    assert!(STATUS_TABLES_MAX * (gannet_core::limits::TABLE_NAME_BYTES_MAX + 24) + 1024 <= FRAME_BYTES_MAX);
    assert!(FEED_BYTES_MAX <= FRAME_BYTES_MAX && DATA_REQUESTS_MAX <= CREDIT_FRAMES as usize);
    // The receive buffer fits more requests than the credit allows, so an overrun shows while they wait in it.
    assert!(CREDIT_FRAMES as usize * 2 * HEAD_BYTES <= RECEIVE_BYTES);
    assert!(CREDIT_BYTES >= 16 * FRAME_BYTES_MAX as u64);
    assert!(BUFFER_BYTES_TOTAL >= THREADS_MAX * LINK_BYTES_MAX);
    assert!(FRAME_TIME.as_secs() >= STALL_TIME.as_secs());
};
