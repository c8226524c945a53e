//! Limits of the process that serves.

use std::time::Duration;

/// What clients may take at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads that answer requests and score.
    pub threads: usize,
    /// Connections at once. A further one gets status 503 and is closed.
    pub connections: usize,
    /// Requests at once, also those that wait. A further one gets status 503.
    pub requests: usize,
    /// Bytes of a request's body, and of the same unpacked.
    pub body_bytes: usize,
    /// Bytes of the bodies of all requests together.
    pub bodies_bytes: usize,
    /// The time of a request, from its head to its answer. A longer one gets status 504. An answer of which the client
    /// reads nothing for so long ends the connection.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            connections: 1024,
            requests: 256,
            body_bytes: 8 << 20,
            bodies_bytes: 256 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// Bodies up to this size are scored at once. Larger ones wait for a thread, so that they do not delay small ones.
pub const SMALL_BODY_BYTES: usize = 32 << 10;

/// Bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long a connection may wait for a request, or take to send the head of one.
pub const HEAD_TIME: Duration = Duration::from_secs(30);

/// Requests at once over one connection of HTTP/2.
#[cfg(feature = "grpc")]
pub const STREAMS_MAX: u32 = 100;

/// The most bytes of an answer, in bodies of the largest size.
pub const ANSWER_BODIES: usize = 8;

/// How deep lists and objects may be inside each other.
pub const DEPTH_MAX: usize = 128;

/// How long a TLS handshake may take.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// How long a client may take to send what is left of a request that is refused.
pub const REST_TIME: Duration = Duration::from_secs(2);

/// What a client that gets status 503 should wait, in seconds.
pub const RETRY_AFTER: &str = "1";

/// How often the folder of a model is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often a model takes over the changes of servers that it follows.
pub const FOLLOW_EVERY: Duration = Duration::from_millis(250);

/// The longest time between two tries to follow servers that do not answer.
pub const FOLLOW_RETRY_MAX: Duration = Duration::from_secs(4);

/// How long changes wait for requests that still use the copy of the model into which they go.
pub const COPY_WAIT: Duration = Duration::from_millis(100);

/// Bytes of changed rows that wait for such requests at most. With more, all rows are read anew.
pub const FOLLOW_BEHIND_BYTES_MAX: usize = 256 << 20;

/// How often a failure to follow is logged.
pub const FOLLOW_LOG_EVERY: Duration = Duration::from_secs(30);

/// How often checkpoints are listed.
pub const LIST_EVERY: Duration = Duration::from_secs(2);

/// When a model that could not be loaded is tried again.
pub const RELOAD_AFTER: Duration = Duration::from_secs(30);

/// Elements of one tensor of a request.
pub const ELEMENTS_MAX: usize = 4 << 20;

/// Bytes of the id of an example.
pub const ID_BYTES_MAX: usize = 256;

/// A part of the journal with so many bytes gets no more examples.
pub const PART_BYTES: u64 = 8 << 20;

/// Files of learned examples that are kept, so that a job that goes back to a checkpoint trains them again. It is less
/// than the names that a job knows one by one.
pub const KEPT_FILES: usize = 1000;

/// Bytes of these files.
pub const KEPT_FILE_BYTES: u64 = 1 << 30;

/// Requests with examples that are written to the disk together.
pub const GROUP_REQUESTS: usize = 256;

/// Requests with examples that wait to be written.
pub const LEARN_QUEUE: usize = 256;

/// How often the job is asked how far it is while examples wait.
pub const ASK_JOB_EVERY: Duration = Duration::from_millis(100);

/// How often it is asked while none does.
pub const ASK_JOB_IDLE: Duration = Duration::from_secs(5);
