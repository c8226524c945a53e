//! Bytes a row (headers, indexes and rows) of a table of 64 shards that grows to 4,000,000 rows, and again after a
//! quarter of the rows was freed and as many new ones were made. It measures dim 1 with FTRL and dim 16 with AdaGrad.
//!
//! `cargo run --release -p gannet-bench --example bytes_a_row`

use gannet_bench::{cut, key};
use gannet_core::{PushName, SHARDS_DEFAULT, Schema, Shards, Store, Write};
use gannet_optim::{AdaGrad, Ftrl, Rule};

const ROWS: u64 = 4_000_000;
const BATCH: u64 = 50_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5 });
    let adagrad = Rule::AdaGrad(AdaGrad { lr: 0.01, eps: 1e-10, initial_accumulator: 0.1 });
    for (rule, dim) in [(ftrl, 1), (adagrad, 16)] {
        let schema = Schema { dim, ..Schema::scalar("bytes", rule) };
        let mut shards = Shards::open(&Store::memory(), &schema, 0..SHARDS_DEFAULT)?;
        let empty = shards.stats().bytes;
        println!("{} dim {dim}: stride {}, empty table {empty} bytes", rule.name(), schema.stride());
        let values = vec![0.5; BATCH as usize * dim as usize];
        let mut seq = 0;
        let mut fill = |shards: &mut Shards, from: u64, to: u64| -> Result<f64, gannet_core::PushError> {
            let mut most = 0.0f64;
            for first in (from..to).step_by(BATCH as usize) {
                seq += 1;
                let keys = cut((first..first + BATCH).map(key).collect(), SHARDS_DEFAULT);
                let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
                shards.push(&name, Write::Gradient, &keys, None, &values)?;
                most = most.max(a_row(shards));
            }
            Ok(most)
        };
        for million in 0..ROWS / 1_000_000 {
            let most = fill(&mut shards, million * 1_000_000, (million + 1) * 1_000_000)?;
            println!(
                "  {:>9} rows: {:.2} bytes a row; most on the way {most:.2}",
                shards.stats().rows,
                a_row(&shards)
            );
        }
        for n in 0..ROWS / 4 {
            assert!(shards.free(key(n * 4)));
        }
        let most = fill(&mut shards, ROWS, ROWS + ROWS / 4)?;
        println!(
            "  {:>9} rows: {:.2} bytes a row after a quarter was freed and made anew; most {most:.2}",
            shards.stats().rows,
            a_row(&shards)
        );
    }
    Ok(())
}

fn a_row(shards: &Shards) -> f64 {
    let stats = shards.stats();
    stats.bytes as f64 / stats.rows as f64
}
