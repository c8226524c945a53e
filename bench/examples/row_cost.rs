//! What a key costs the one thread that owns its rows: CPU milliseconds for a million keys of a push or a pull.
//! scripts/row_cost.py runs it for two commits in turn, and under callgrind to count instructions.
//!
//! `cargo run --release -p gannet-bench --example row_cost -- push|slots|pull ROUNDS DIM SHARDS [FOLDER]`: "push"
//! finds each key in the index, "slots" has a keyset. A round is 60,000 keys. The table is in memory, or in FOLDER.

use gannet_core::{PushName, Read, Schema, Shards, Store, Write, hash, mix, shard_of};
use gannet_optim::{AdaGrad, Ftrl, Rule};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::path::Path;

const KEYS: u64 = 60_000;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: row_cost push|slots|pull ROUNDS DIM SHARDS [FOLDER]";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, rounds, dim, shards, folder @ ..] = &arguments[..] else { return Err(usage.into()) };
    if !["push", "slots", "pull"].contains(&what.as_str()) {
        return Err(usage.into());
    }
    let (rounds, dim, count): (u64, u32, u32) = (rounds.parse()?, dim.parse()?, shards.parse()?);
    let rule = match dim {
        1 => Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }),
        _ => Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 }),
    };
    let schema = Schema { dim, shards: count, ..Schema::scalar("cost", rule) };
    let store = match folder.first() {
        Some(folder) => Store::open_dir(Path::new(folder))?,
        None => Store::memory(),
    };
    let mut shards = Shards::open(&store, &schema, 0..count)?;
    let mut keys: Vec<u64> = (0..KEYS).map(mix).collect();
    keys.sort_by_key(|&key| shard_of(hash(key), count));
    let values = vec![0.01f32; keys.len() * dim as usize];
    let mut out = vec![0f32; values.len()];
    let (mut seq, mut slots) = (0, Vec::new());
    let mut push = |shards: &mut Shards, slots: Option<&mut [u32]>| {
        seq += 1;
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        shards.push(&name, Write::Gradient, &keys, slots, &values)
    };
    push(&mut shards, None)?;
    shards.pull(&keys, Read::Weights, &mut out, Some(&mut slots))?;
    let before = cpu_seconds();
    for _ in 0..rounds {
        match what.as_str() {
            "push" => drop(push(&mut shards, None)?),
            "slots" => drop(push(&mut shards, Some(&mut slots))?),
            _ => shards.pull(&keys, Read::Weights, &mut out, None)?,
        }
    }
    let keys = (rounds * KEYS).max(1) as f64;
    println!("{:.4}", (cpu_seconds() - before) * 1e3 / (keys / 1e6));
    Ok(())
}

/// CPU seconds of this process. Valgrind cannot follow the system's clocks: scripts/row_cost.py then sets a variable.
fn cpu_seconds() -> f64 {
    if std::env::var_os("ROW_COST_WITHOUT_CLOCK").is_some() {
        return 0.0;
    }
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
