//! Every limit of the transport. The relations between limits are checked at compile time.

use std::time::Duration;

/// Names that are looked up at once. Further ones wait.
pub const LOOKUPS_MAX: usize = 16;
/// A name that was looked up within this time is not looked up again.
pub const LOOKUP_FRESH: Duration = Duration::from_millis(500);
/// Above so many names those that nobody has looked up for [`NAMES_IDLE`] are forgotten.
pub const NAMES_KNOWN: usize = 4096;
/// Above [`NAMES_KNOWN`] names those that nobody has looked up for this time are forgotten.
pub const NAMES_IDLE: Duration = Duration::from_secs(600);
/// Bytes of a frame's head on the wire.
pub const HEAD_BYTES: usize = 64;
/// The largest payload of one frame: a part of 256 KiB, and 4 KiB for the fields around it.
pub const FRAME_BYTES_MAX: usize = (256 << 10) + (4 << 10);
/// The receive buffer of a link. It is allocated when bytes come; pages that are never touched cost nothing.
pub const RECEIVE_BYTES: usize = 512 << 10;
/// The out buffer of a link: heads of posted frames, and replies that are written in place.
pub const TRANSMIT_BYTES: usize = 1 << 20;
/// The most memory that the buffers of one link take.
pub const LINK_BYTES_MAX: usize = RECEIVE_BYTES + TRANSMIT_BYTES + STREAM_BYTES_MAX;
/// The most memory that a link's stream takes in addition: records of TLS, or a ring of shared memory.
const STREAM_BYTES_MAX: usize = if TLS_BYTES > RING_BYTES { TLS_BYTES } else { RING_BYTES };
/// The most entries (runs of buffered bytes, and lent payloads) in the queue of one link.
pub const TRANSMIT_ITEMS_MAX: usize = 4096;
/// The most slices passed to one system call.
pub const PARTS_MAX: usize = 32;
/// Payloads are a multiple of this, and are aligned to it in the receive buffer.
pub const PAYLOAD_ALIGN: usize = 8;
/// If less space than this is free after the received bytes, they are moved to the front of the buffer.
pub const RECEIVE_TAIL_MIN: usize = 64 << 10;
/// The most events that one wait reports. The next wait reports the others.
pub const EVENTS_MAX: usize = 256;
/// The most operations submitted to an io_uring ring in one system call.
pub const URING_ENTRIES: u32 = 256;
/// Completions that a ring holds. More completions wait in the kernel.
pub const URING_COMPLETIONS: u32 = 4096;
/// Buffers that the multishot receives of a ring share. If none is free, plain receives are used.
pub const URING_RECEIVE_BUFFERS: u16 = 1024;
/// The bytes of each buffer of [`URING_RECEIVE_BUFFERS`].
pub const URING_RECEIVE_BYTES: usize = 2 << 10;
/// Buffers that the sends of a ring share. If none is free, plain sends are used.
pub const URING_SEND_BUFFERS: u16 = 128;
/// The most bytes that a stream holds back for the next system call. Larger sends are made at once, without a copy.
pub const URING_SEND_BYTES: usize = 8 << 10;
/// This many held-back sends cause a system call.
pub const URING_SENDS_HELD: usize = 64;
/// A stream with this many unread bytes ends its multishot receive. Plain receives then copy bulk data directly
/// to its destination.
pub const URING_UNREAD_BYTES: usize = 8 << 10;
/// After this many turns with less than [`URING_SMALL_BYTES`], a stream's receives are multishot again.
pub const URING_SMALL_TURNS: u32 = 8;
/// See [`URING_SMALL_TURNS`].
pub const URING_SMALL_BYTES: usize = 4 << 10;
/// Records of a TLS link that were received and not yet decrypted.
pub const TLS_BYTES: usize = 64 << 10;
/// Open files that the peer of a stream has passed and this side has not taken. More of them end the stream.
pub const GIVEN_FILES_MAX: usize = 1024;
/// Bytes of each of the two rings of a session over shared memory. Pages are allocated when they are first used, and
/// returned when a session is quiet.
pub const RING_BYTES: usize = 512 << 10;
/// The sizes of a server's rings that a worker accepts.
pub const RING_BYTES_LIMITS: std::ops::RangeInclusive<usize> = (64 << 10)..=(4 << 20);
/// A ring is allocated in steps of this size.
pub const RING_STEP_BYTES: usize = 64 << 10;
/// A writer shows this many bytes to the reader before it writes the rest.
pub const RING_PUBLISH_BYTES: usize = 16 << 10;
/// A writer that found the ring full is woken when one of this many parts of the ring is free.
pub const RING_ROOM_PARTS: usize = 4;
/// The largest packet of the control socket.
pub const PACKET_BYTES_MAX: usize = 1024;
/// The most packets that may arrive on a control socket between two reads of it: files, and one wake-up for
/// each sleep.
pub const PACKETS_PER_READ: usize = 2 * GIVEN_FILES_MAX;
/// How long a poll of several transports may check only memory before it asks the system for other events.
pub const MEMORY_POLL_TIME: Duration = Duration::from_micros(10);
/// A transport that failed is not tried again for this long, if another one may serve.
pub const RETRY_AFTER: Duration = Duration::from_secs(30);
/// The time above doubles each time that a peer that offers shared memory fails to prove that it is the server,
/// at most this many times.
pub const FAILED_PROOFS_MAX: u32 = 5;
/// The least time between two warnings about refused workers.
pub const WARNING_EVERY: std::time::Duration = std::time::Duration::from_secs(10);
/// Connections that may wait to be accepted.
pub const BACKLOG: usize = 1024;
/// TCP keepalive: a connection without traffic is probed after this many seconds, then again at this interval.
/// It ends after this many unanswered probes. So a lost machine or cable is detected even if no side sends.
pub const KEEPALIVE_SECONDS: (u32, u32, u32) = (20, 5, 4);
/// TCP: a connection ends if the peer machine has not acknowledged sent bytes, or had no space for them, for this long.
pub const UNACKNOWLEDGED_MS_MAX: u32 = 60_000;
/// RDMA: each side of a session writes into a ring of this size at the peer, from a staging ring of the same size.
pub const VERBS_RING_BYTES: usize = 512 << 10;
/// RDMA: the most bytes of one message.
pub const VERBS_MESSAGE_BYTES: usize = 64 << 10;
/// RDMA: messages with bytes that a side may send before the peer reports that it has read them.
pub const VERBS_MESSAGES_MAX: usize = 128;
/// RDMA: work requests that the send queue of a session holds.
pub const VERBS_SENDS_MAX: usize = 256;
/// RDMA: how many of those are reserved for returning credit, and the number of receives for such messages of
/// the peer.
pub const VERBS_CREDIT_SENDS: usize = 32;
/// RDMA: at least one in this many messages reports a completion, which covers the messages before it.
pub const VERBS_SIGNAL_EVERY: usize = 16;
/// RDMA: messages up to this size are copied into the work request itself, if the device supports it.
pub const VERBS_INLINE_BYTES: usize = 256;
/// RDMA: memory for the rings of all sessions of a process, in regions of [`VERBS_REGION_BYTES`]. It is mapped when the
/// device is opened. A session's part is pinned while the session exists. Sessions beyond this are refused.
pub const VERBS_MEMORY_BYTES: usize = 512 << 20;
/// RDMA: the size of a region of [`VERBS_MEMORY_BYTES`].
pub const VERBS_REGION_BYTES: usize = 64 << 20;
/// RDMA: the most READs that a session queues, if the device's queues are as long.
pub const VERBS_READS_MAX: usize = 1024;
/// RDMA: the most READs of a session in flight, if the device can have as many.
pub const VERBS_READS_AT_ONCE: u32 = 16;
/// RDMA: a thread that waits for READs polls for this long before it sleeps.
pub const VERBS_READ_SPIN: Duration = Duration::from_micros(50);
/// RDMA: how long a side may take to answer a connection request.
pub const VERBS_CONNECT_TIME: Duration = Duration::from_secs(3);
/// RDMA: if a peer that was reached before cannot be reached now, other transports are tried for this long.
pub const VERBS_RETRY_AFTER: Duration = Duration::from_secs(1);
/// RDMA: how long a dropped session may take to send its last bytes.
pub const VERBS_LINGER: Duration = Duration::from_secs(1);
/// RDMA: for this part of that time the thread that drops the session waits. Another thread waits for the rest.
pub const VERBS_SETTLE: Duration = Duration::from_millis(2);
/// RDMA: sessions that broke while their port was down are removed when the port is up again. The port is
/// checked at this interval.
pub const VERBS_PORT_CHECK_EVERY: Duration = Duration::from_millis(250);
/// RDMA: such sessions are removed after this long at the latest.
pub const VERBS_PORT_TIME: Duration = Duration::from_secs(120);
/// RDMA: the most sessions that are being closed at a time. Further sessions lose the bytes that they have not sent.
pub const VERBS_CLOSING_MAX: usize = 1024;

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
    // Steps are the bits of a word, and the smallest ring has at least one step.
    assert!(RING_STEP_BYTES * 64 >= *RING_BYTES_LIMITS.end());
    assert!(RING_STEP_BYTES <= *RING_BYTES_LIMITS.start());
    assert!(URING_RECEIVE_BUFFERS.is_power_of_two());
    assert!(URING_UNREAD_BYTES >= 2 * URING_RECEIVE_BYTES);
    // One stream holds at most an eighth of the buffers before it must stop.
    assert!(URING_UNREAD_BYTES * 8 <= URING_RECEIVE_BUFFERS as usize * URING_RECEIVE_BYTES);
    assert!(URING_SMALL_BYTES < URING_UNREAD_BYTES);
};

/// `bytes` rounded up to a payload's alignment.
pub const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(PAYLOAD_ALIGN)
}
