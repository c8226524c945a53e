//! What the benchmarks in benches/ share: how long they run, the rules, keys in cut order.
//!
//! `cargo bench -p gannet-bench` measures; `cargo test -p gannet-bench --benches` runs each once, on small tables.
#![forbid(unsafe_code)]

use criterion::Criterion;
use gannet_core::{hash, mix, shard_of};
use gannet_optim::{AdaGrad, Add, Ftrl, Rule, Sgd};
use std::time::Duration;

/// Dimensions that are measured.
pub const DIMS: [u32; 3] = [1, 16, 64];

/// Criterion's settings: short, since ratios within a run are what is read.
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
pub fn rules() -> [Rule; 4] {
    [
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr: 0.01 }),
        Rule::AdaGrad(AdaGrad { lr: 0.01, eps: 1e-10, initial_accumulator: 0.1 }),
        Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5 }),
    ]
}

/// The key of row `n`: spread as hashed features are.
pub fn key(n: u64) -> u64 {
    mix(n ^ 0x1234_5678)
}

/// These keys in cut order: by ascending shard, as a push wants them.
pub fn cut(mut keys: Vec<u64>, shards: u32) -> Vec<u64> {
    keys.sort_by_cached_key(|&key| shard_of(hash(key), shards));
    keys
}

/// `count` batches of `size` keys each, uniform over the rows `0..rows`, in cut order.
pub fn batches(count: usize, size: usize, rows: u64, shards: u32) -> Vec<Vec<u64>> {
    let mut random = 1;
    let mut next = || {
        random = mix(random);
        key(random % rows)
    };
    (0..count).map(|_| cut((0..size).map(|_| next()).collect(), shards)).collect()
}
