//! Every limit of calls to buckets.

use std::time::Duration;

/// The longest time that a call of a bucket takes, with all of its retries.
pub const BUCKET_CALL: Duration = Duration::from_secs(120);

/// The longest time that one request to a bucket takes. A part of a file has to pass within it.
pub const BUCKET_REQUEST: Duration = Duration::from_secs(30);

/// The longest time for a connection to a bucket.
pub const BUCKET_CONNECT: Duration = Duration::from_secs(5);

/// How often a request to a bucket is sent again.
pub const BUCKET_RETRIES: usize = 5;

/// Before a request whose answer was lost is sent again.
pub const BUCKET_RETRY_AFTER: Duration = Duration::from_millis(500);

/// Requests to a bucket that remove objects at a time.
pub const BUCKET_CALLS_AT_ONCE: usize = 16;

/// Bytes of a part of a file in a bucket, which are in memory while they are on their way.
pub const BUCKET_PART_BYTES: usize = 8 << 20;

/// Parts or ranges of a file that are on their way at a time.
pub const BUCKET_PARTS_AT_ONCE: usize = 3;

/// Parts of a file. S3 allows no more.
pub const BUCKET_PARTS_MAX: usize = 10_000;

/// Bytes that a reader of a file in a bucket asks for at a time.
pub const BUCKET_RANGE_BYTES: u64 = 2 << 20;

/// How often a wait for an answer looks at the flag that ends it.
pub const BUCKET_LOOK: Duration = Duration::from_millis(100);

/// Bytes of the first range that a reader of data asks for, and of the first behind a jump. Each next one has four
/// times as many, up to the reader's limit.
pub const OBJECT_FIRST_BYTES: u64 = 64 << 10;

/// Ranges that have arrived and that a reader of data keeps: decoders step back a little.
pub const OBJECT_RANGES_KEPT: usize = 2;
