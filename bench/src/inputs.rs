//! Inputs of the benchmarks in benches/: dimensions, update rules, keys in shard order.

use gannet_core::{hash, mix, shard_of};
use gannet_optim::{AdaGrad, Adam, Add, AmsGrad, Ftrl, GroupFtrl, Momentum, RmsProp, RowAdaGrad, Rule, Sgd};

/// The dimensions that are measured.
pub const DIMS: [u32; 3] = [1, 16, 64];

/// `full` under `cargo bench`, `small` when the benchmarks run once as tests.
pub fn sized(full: usize, small: usize) -> usize {
    if std::env::args().any(|arg| arg == "--bench") { full } else { small }
}

/// Each update rule, with usual hyper-parameters.
pub fn rules() -> [Rule; 10] {
    let (lr, eps, initial_accumulator) = (0.01, 1e-8, 0.1);
    let (beta1, beta2, decay) = (0.9, 0.999, 0.0);
    let (alpha, beta, l1, l2) = (0.1, 1.0, 0.5, 0.5);
    [
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr }),
        Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator }),
        Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        Rule::Momentum(Momentum { lr, momentum: 0.9, nesterov: false }),
        Rule::RmsProp(RmsProp { lr, rho: 0.9, eps }),
        Rule::Adam(Adam { lr, beta1, beta2, eps, decay }),
        Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay }),
        Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator }),
        Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 0.01 }),
    ]
}

/// The key of row `n`, spread like hashed features.
pub fn key(n: u64) -> u64 {
    mix(n ^ 0x1234_5678)
}

/// These keys in shard order (by ascending shard), as a push needs them.
pub fn cut(mut keys: Vec<u64>, shards: u32) -> Vec<u64> {
    keys.sort_by_cached_key(|&key| shard_of(hash(key), shards));
    keys
}

/// `count` batches of `size` keys each, uniform over the rows `0..rows`, in shard order.
pub fn batches(count: usize, size: usize, rows: u64, shards: u32) -> Vec<Vec<u64>> {
    let mut random = 1;
    let mut next = || {
        random = mix(random);
        key(random % rows)
    };
    (0..count).map(|_| cut((0..size).map(|_| next()).collect(), shards)).collect()
}
