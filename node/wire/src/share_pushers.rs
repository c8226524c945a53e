//! The pushers of fixed shares of the data. Each worker with a fixed share has one, beside its own pusher. They are
//! pushers of data, like those of splits, which have low numbers.

/// The pusher in the names of synchronous steps. No worker has this number.
pub const AGGREGATE: u64 = u64::MAX - 1;

/// The pusher of the share of this worker's pusher.
pub fn share_pusher(worker: u64) -> u64 {
    AGGREGATE - worker.clamp(1, u64::from(u32::MAX))
}

/// Whether this is the pusher of a fixed share.
pub fn is_share(pusher: u64) -> bool {
    (share_pusher(u64::MAX)..AGGREGATE).contains(&pusher)
}

/// The pusher of the worker whose fixed share has this pusher. `None`: it is not that of a fixed share.
pub fn worker_of_share(pusher: u64) -> Option<u64> {
    is_share(pusher).then(|| AGGREGATE - pusher)
}

#[cfg(test)]
mod tests {
    use super::AGGREGATE;
    use super::is_share;
    use super::{share_pusher, worker_of_share};

    #[test]
    fn shares_have_pushers_of_their_own() {
        let shares = [1, 2, 64, u64::from(u32::MAX)].map(share_pusher);
        assert!(shares.is_sorted_by(|a, b| a > b) && shares.into_iter().all(is_share));
        assert_eq!([1, 2, 64].map(share_pusher).map(worker_of_share), [1, 2, 64].map(Some));
        assert_eq!([1, gannet_core::DATA_PUSHERS | 5, AGGREGATE].map(worker_of_share), [None; 3]);
        assert!(![1, gannet_core::DATA_PUSHERS | 5, AGGREGATE, u64::MAX].into_iter().any(is_share));
    }
}
