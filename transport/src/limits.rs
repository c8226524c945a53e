//! Every limit of the transport, and the relations between them, which are compile-time facts.

use std::time::Duration;

/// Bytes of a frame's head on the wire.
pub const HEAD_BYTES: usize = 64;
/// The most payload that one frame may carry: a part of 256 KiB and 4 KiB for what goes around it.
pub const FRAME_BYTES_MAX: usize = (256 << 10) + (4 << 10);
/// The receive buffer of a link. Taken when bytes come; pages that are never touched cost nothing.
pub const RECEIVE_BYTES: usize = 512 << 10;
/// The out buffer of a link: heads of posted frames, and replies written in place.
pub const TRANSMIT_BYTES: usize = 1 << 20;
/// The most memory that the buffers of one link take.
pub const LINK_BYTES_MAX: usize = RECEIVE_BYTES + TRANSMIT_BYTES + STREAM_BYTES_MAX;
/// The most that a link's stream takes besides: records of TLS, or a ring of shared memory.
const STREAM_BYTES_MAX: usize = if TLS_BYTES > RING_BYTES { TLS_BYTES } else { RING_BYTES };
/// The most entries (runs of buffered bytes and lent frames) that wait on one link.
pub const TRANSMIT_ITEMS_MAX: usize = 4096;
/// The most parts given to one system call.
pub const PARTS_MAX: usize = 32;
/// Payloads are a multiple of this, and stand aligned to it in the receive buffer.
pub const PAYLOAD_ALIGN: usize = 8;
/// Below this much free space behind the bytes received, they are moved to the front of the buffer.
pub const RECEIVE_TAIL_MIN: usize = 64 << 10;
/// The most events one wait reports; the others are reported by the next.
pub const EVENTS_MAX: usize = 256;
/// Operations handed to a ring of io_uring in one system call.
pub const URING_ENTRIES: u32 = 256;
/// Completions that a ring holds; what is more waits in the kernel.
pub const URING_COMPLETIONS: u32 = 4096;
/// Buffers that a ring's multishot receives share, and the bytes of each. When none is free, receives are plain.
pub const URING_RECEIVE_BUFFERS: u16 = 1024;
/// See [`URING_RECEIVE_BUFFERS`].
pub const URING_RECEIVE_BYTES: usize = 2 << 10;
/// Buffers that a ring's sends share. When none is free, sends are plain.
pub const URING_SEND_BUFFERS: u16 = 128;
/// The most that a stream holds back for the next system call; what is larger is sent at once, from where it stands.
pub const URING_SEND_BYTES: usize = 8 << 10;
/// Sends that wait for the next system call before they are reason enough for one.
pub const URING_SENDS_HELD: usize = 64;
/// This much unread of one stream ends its multishot receive: plain ones bring bulk to where it is wanted.
pub const URING_HOARD_BYTES: usize = 8 << 10;
/// After this many turns of fewer bytes than this, a stream's receives are multishot again.
pub const URING_SMALL_TURNS: u32 = 8;
/// See [`URING_SMALL_TURNS`].
pub const URING_SMALL_BYTES: usize = 4 << 10;
/// Records received and not yet opened, of a link with TLS.
pub const TLS_BYTES: usize = 64 << 10;
/// Open files that the other side of a stream gave and that were not taken: more of them end the stream.
pub const GIVEN_FILES_MAX: usize = 1024;
/// Bytes of each of the two rings of a session over shared memory. Pages are taken as they are first used, and given back
/// when a session rests.
pub const RING_BYTES: usize = 512 << 10;
/// What a worker accepts of a server's rings.
pub const RING_BYTES_LIMITS: std::ops::RangeInclusive<usize> = (64 << 10)..=(4 << 20);
/// So much of a ring is taken from the system at once.
pub const RING_STEP_BYTES: usize = 64 << 10;
/// So much is shown to the reader before the rest is written.
pub const RING_PUBLISH_BYTES: usize = 16 << 10;
/// A writer that found no room is woken when one of so many parts of the ring is free.
pub const RING_ROOM_PARTS: usize = 4;
/// Bytes of a packet of the control socket.
pub const PACKET_BYTES_MAX: usize = 1024;
/// Packets that may have come over a control socket since the last look: files, and a nudge for each sleep.
pub const PACKETS_PER_LOOK: usize = 2 * GIVEN_FILES_MAX;
/// How long a poll of several transports may only look at memory before it asks the system for the rest.
pub const LOOK_TIME: Duration = Duration::from_micros(10);
/// A transport that failed where another may serve is not tried again for so long.
pub const AGAIN_TIME: Duration = Duration::from_secs(30);
/// Twice as long after each time that whoever offered shared memory had not proved to be the server, so many
/// times at most.
pub const DOUBTS_MAX: u32 = 5;
/// Warnings about workers that were refused are so far apart.
pub const WARNING_EVERY: std::time::Duration = std::time::Duration::from_secs(10);
/// Connections that may wait to be accepted.
pub const BACKLOG: usize = 1024;
/// TCP: a connection on which nothing moves is probed after this many seconds, again every so many, and ends after so
/// many probes without an answer: a machine that has gone or a cable that is out, whatever the process there did.
pub const KEEPALIVE_SECONDS: (u32, u32, u32) = (20, 5, 4);
/// TCP: sent bytes that the other machine has not acknowledged (or has had no room for) for so long end the connection.
pub const UNACKNOWLEDGED_MS_MAX: u32 = 60_000;
/// RDMA: each side of a session writes into a ring of so many bytes at the other, from a staging ring as large here.
pub const VERBS_RING_BYTES: usize = 512 << 10;
/// RDMA: the most bytes of one message.
pub const VERBS_MESSAGE_BYTES: usize = 64 << 10;
/// RDMA: messages with bytes that a side may have sent without having heard that they were taken in.
pub const VERBS_MESSAGES_MAX: usize = 128;
/// RDMA: work requests that the send queue of a session holds.
pub const VERBS_SENDS_MAX: usize = 256;
/// RDMA: of those, how many are kept for giving credit back; and the receives for as many such messages.
pub const VERBS_CREDIT_SENDS: usize = 32;
/// RDMA: at least every so many messages one reports its completion, for those before it too.
pub const VERBS_SIGNAL_EVERY: usize = 16;
/// RDMA: bytes that go into a work request itself, where the device takes them.
pub const VERBS_INLINE_BYTES: usize = 256;
/// RDMA: memory for the rings of all sessions of a process, in regions of [`VERBS_REGION_BYTES`]. Mapped when the device is
/// opened; a session's part is pinned while it lives. Further sessions are refused.
pub const VERBS_MEMORY_BYTES: usize = 512 << 20;
/// See [`VERBS_MEMORY_BYTES`].
pub const VERBS_REGION_BYTES: usize = 64 << 20;
/// RDMA: READs that a session holds, where the device's queues do.
pub const VERBS_READS_MAX: usize = 1024;
/// RDMA: READs under way on the wire at once, where the device does as many.
pub const VERBS_READS_AT_ONCE: u32 = 16;
/// RDMA: who waits for READs looks for so long before it sleeps.
pub const VERBS_READ_SPIN: Duration = Duration::from_micros(50);
/// RDMA: how long a side may take to answer who connects.
pub const VERBS_CONNECT_TIME: Duration = Duration::from_secs(3);
/// RDMA: a peer that was reached before and cannot be now is left to other transports for so long.
pub const VERBS_TURN: Duration = Duration::from_secs(1);
/// RDMA: how long the last bytes of a session that was dropped may take.
pub const VERBS_LINGER: Duration = Duration::from_secs(1);
/// RDMA: of that time, how long who drops it waits; the rest is waited for elsewhere.
pub const VERBS_SETTLE: Duration = Duration::from_millis(2);
/// RDMA: sessions that broke while their port was down are taken apart when it is up again, which is looked for so often...
pub const VERBS_PORT_LOOK: Duration = Duration::from_millis(250);
/// RDMA: ... and at the latest after so long.
pub const VERBS_PORT_TIME: Duration = Duration::from_secs(120);
/// RDMA: sessions that end at once; further ones lose what they have not sent.
pub const VERBS_ENDING_MAX: usize = 1024;

const _: () = {
    assert!(VERBS_RING_BYTES.is_multiple_of(64));
    assert!(VERBS_RING_BYTES >= 4 * VERBS_MESSAGE_BYTES);
    assert!(VERBS_REGION_BYTES.is_multiple_of(VERBS_RING_BYTES));
    assert!(VERBS_MEMORY_BYTES.is_multiple_of(VERBS_REGION_BYTES));
    assert!(HEAD_BYTES.is_multiple_of(PAYLOAD_ALIGN));
    assert!(FRAME_BYTES_MAX.is_multiple_of(PAYLOAD_ALIGN));
    assert!(FRAME_BYTES_MAX <= u32::MAX as usize);
    assert!(RECEIVE_BYTES >= HEAD_BYTES + FRAME_BYTES_MAX + RECEIVE_TAIL_MIN);
    assert!(TRANSMIT_BYTES >= 2 * (HEAD_BYTES + FRAME_BYTES_MAX));
    assert!(PARTS_MAX >= 8);
    assert!(RING_BYTES.is_power_of_two() && RING_STEP_BYTES.is_power_of_two());
    assert!(RING_BYTES >= *RING_BYTES_LIMITS.start() && RING_BYTES <= *RING_BYTES_LIMITS.end());
    // Steps are the bits of a word, and a step fits the smallest ring.
    assert!(RING_STEP_BYTES * 64 >= *RING_BYTES_LIMITS.end());
    assert!(RING_STEP_BYTES <= *RING_BYTES_LIMITS.start());
    assert!(URING_RECEIVE_BUFFERS.is_power_of_two());
    assert!(URING_HOARD_BYTES >= 2 * URING_RECEIVE_BYTES);
    // One stream cannot hold more than an eighth of the buffers before it is told to stop.
    assert!(URING_HOARD_BYTES * 8 <= URING_RECEIVE_BUFFERS as usize * URING_RECEIVE_BYTES);
    assert!(URING_SMALL_BYTES < URING_HOARD_BYTES);
};

/// `bytes` rounded up to a payload's alignment.
pub const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(PAYLOAD_ALIGN)
}
