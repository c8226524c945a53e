//! Numbers of incarnations with a meaning of their own.

/// The incarnation of a session that has none yet or needs none. It may read; its pushes are refused.
/// `WorkerConfig::reader` sets it.
pub const NO_INCARNATION: u64 = 0;

/// Asks `Worker::connect` to take an incarnation from the servers, with `Worker::allocate_incarnation`.
/// `WorkerConfig::builder` sets it.
pub const NEXT_INCARNATION: u64 = u64::MAX;
