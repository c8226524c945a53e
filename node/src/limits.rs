//! Every limit of the roles, and the relations between them.

use gannet_transport::limits::{FRAME_BYTES_MAX, TRANSMIT_BYTES};
use std::time::Duration;

/// Keys and floats of one part: one pull frame, its answer, or one push frame.
pub const PART_BYTES_MAX: usize = 256 << 10;
/// Keys of one part.
pub const PART_KEYS_MAX: usize = 8192;
/// Keysets that a session may keep on a server thread.
pub const KEYSETS_MAX: usize = 4096;
/// Default for the bytes of keysets that a session may keep: over it a pull's answer says "not kept".
pub const KEYSET_BYTES_MAX: usize = 64 << 20;
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
/// How long a connection may take to say who it is.
pub const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long a peer may leave a frame half sent, or leave answers in our out queue.
pub const STALL_TIME: Duration = Duration::from_secs(30);
/// Frames of one link that are handled before the next link has its turn.
pub const FRAMES_PER_TURN: usize = 32;
/// Queued bytes at which answers are flushed before the turn ends.
pub const FLUSH_BYTES: usize = 128 << 10;
/// Bytes of frames that a thread handles between two looks at the clock, so that timing requests costs next to nothing;
/// it also looks at the end of each turn.
pub const CLOCK_BYTES: usize = 4096;
/// How long a thread looks for more before it sleeps, after a small frame.
pub const SPIN: Duration = Duration::from_micros(50);
/// Frames up to this size (64 rows of 64 floats with their keys among them) are small: whoever sends them waits for the answer. Larger ones come many at a time, and
/// the core is better left to the peer.
pub const SPIN_FRAME_BYTES: usize = 32 << 10;
/// The longest sleep, and the time between looks at time limits.
pub const TICK: Duration = Duration::from_secs(1);
/// How long a stopping server lets its peers take their answers.
pub const STOP_TIME: Duration = Duration::from_secs(2);
/// A wait for a peer that lasts longer is logged.
pub const WAIT_LOGGED: Duration = Duration::from_secs(2);
/// The first and the longest pause between attempts to connect.
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long one attempt to connect and greet may take.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(5);
/// Bytes of a refusal's text.
pub const TEXT_BYTES_MAX: usize = 1024;

const _: () = {
    assert!(PART_BYTES_MAX + 8 <= FRAME_BYTES_MAX);
    assert!(PART_KEYS_MAX * 8 <= PART_BYTES_MAX);
    assert!(PART_KEYS_MAX <= gannet_core::limits::KEYS_PER_CALL_MAX);
    // One row of the widest table (four planes and two scalars), with its key, is a part.
    assert!((gannet_core::limits::DIM_MAX as usize * 4 + 2) * 4 + 8 <= PART_BYTES_MAX);
    assert!(FLUSH_BYTES < TRANSMIT_BYTES);
    assert!(KEYSETS_MAX < u32::MAX as usize);
};

/// Keys of a part of a table whose rows are `floats` floats long.
pub fn part_keys(floats: usize) -> usize {
    (PART_BYTES_MAX / (8 + 4 * floats)).clamp(1, PART_KEYS_MAX)
}
