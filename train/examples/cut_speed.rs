//! Measures how long it takes to put a batch's keys into shard order: microseconds for 65,536 keys and 64 shards, on
//! one thread.
//!
//! `cargo run --release --workspace --example cut_speed -- SERVER_ADDRESS`. The server only opens the table.

use gannet_core::{SHARDS_DEFAULT, Schema, hash, mix, shard_of};
use gannet_optim::{Add, Rule};
use gannet_transport::tcp::Tcp;
use gannet_wire::ShardedKeys;
use gannet_worker::{Worker, WorkerConfig};
use std::hint::black_box;
use std::time::Instant;

const KEYS: u64 = 65_536;
const ROUNDS: usize = 501;

/// Minimum and median in microseconds.
fn time(name: &str, mut work: impl FnMut()) {
    let mut taken: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    println!("{name:32} minimum {:7.1} us  median {:7.1} us", taken[0], taken[ROUNDS / 2]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: cut_speed SERVER_ADDRESS")?;
    let incarnation = u64::from(std::process::id());
    let config = WorkerConfig::builder([address]).worker(7).incarnation(incarnation).build();
    let mut worker = Worker::connect(Tcp::new(), config)?;
    let table = worker.open_table(&Schema::scalar("cut-speed", Rule::Add(Add)))?;
    let keys: Vec<u64> = (0..KEYS).map(mix).collect();
    let mut sorted = keys.clone();
    sorted.sort_by_key(|&key| shard_of(hash(key), SHARDS_DEFAULT));
    let below = |shard: u32| sorted.partition_point(|&key| shard_of(hash(key), SHARDS_DEFAULT) < shard);
    let starts: Vec<u32> = (0..=SHARDS_DEFAULT).map(|shard| below(shard) as u32).collect();
    let mut cut = ShardedKeys::default();
    for _ in 0..3 {
        time("cut_into, keys in any order", || worker.cut_into(table, black_box(&keys), &mut cut));
        time("cut_into, keys in shard order", || worker.cut_into(table, black_box(&sorted), &mut cut));
        time("cut_sorted_into", || {
            let done = worker.cut_sorted_into(table, black_box(&sorted), black_box(&starts), &mut cut);
            assert!(done.is_ok(), "{done:?}");
        });
    }
    Ok(())
}
