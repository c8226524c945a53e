//! What the benchmarks in benches/ share: how long they run, the rules, keys in shard order, and links that send
//! requests and answer them.
//!
//! `cargo bench -p gannet-bench` measures; `cargo test -p gannet-bench --benches` runs each once, on small tables.
#![forbid(unsafe_code)]

pub mod links;

use criterion::Criterion;
use gannet_core::{hash, mix, shard_of};
use gannet_optim::{AdaGrad, Adam, Add, AmsGrad, Ftrl, GroupFtrl, Momentum, RmsProp, RowAdaGrad, Rule, Sgd};
use std::time::Duration;

/// Dimensions that are measured.
pub const DIMS: [u32; 3] = [1, 16, 64];

/// Criterion's settings: short, because only ratios within a run matter.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1200))
        .configure_from_args()
}

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

/// The key of row `n`: spread as hashed features are.
pub fn key(n: u64) -> u64 {
    mix(n ^ 0x1234_5678)
}

/// These keys in shard order: by ascending shard, as a push requires.
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
