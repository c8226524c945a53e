//! Measures the cost of opening tables in a folder, and of inserting keys beside keys whose hashes agree.
//!
//! `cargo run -p gannet-core --example costs -- [FOLDER] [ROWS]`

use gannet_core::*;
use gannet_optim::{Add, Rule};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

fn schema(shards: u32) -> Schema {
    Schema { shards, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn fill(table: &mut Shards, keys: &[u64], seq: &mut u64) -> Result<(), Box<dyn Error>> {
    for keys in keys.chunks(10_000) {
        let mut keys = keys.to_vec();
        keys.sort_by_key(|&key| shard_of(hash(key), table.schema().shards));
        *seq += 1;
        let name = PushName { pusher: 1, incarnation: 1, seq: *seq, row: 0 };
        table.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()])?;
    }
    Ok(())
}

/// 64 shards: made, reopened as they are, and reopened after an orderly close.
fn opening(folder: &std::path::Path, rows: u64) -> Result<(), Box<dyn Error>> {
    let store = Store::open_dir(folder)?;
    let start = Instant::now();
    let mut table = Shards::open(&store, &schema(64), 0..64)?;
    println!("64 shards made in {}: {:?}", folder.display(), start.elapsed());
    fill(&mut table, &(0..rows).map(mix).collect::<Vec<_>>(), &mut 0)?;
    for closed in [false, true] {
        if closed {
            let start = Instant::now();
            table.mark_clean()?;
            println!("closed: {:?}", start.elapsed());
        }
        drop(table);
        let start = Instant::now();
        table = Shards::open(&store, &schema(64), 0..64)?;
        println!("opened with {} rows, closed in order {closed}: {:?}", table.stats().rows, start.elapsed());
    }
    Ok(())
}

/// 100,000 inserts, alone and beside 300 and 60,000 keys whose hashes agree in the low 16 bits.
fn inserting() -> Result<(), Box<dyn Error>> {
    for crafted in [0, 300, 60_000] {
        let mut table = Shards::open(&Store::memory(), &schema(1), 0..1)?;
        let (mut seq, start) = (0, Instant::now());
        let keys: Vec<u64> = (1u64 << 40..).filter(|&key| hash(key) & 0xffff == 0).take(crafted).collect();
        let found = start.elapsed();
        fill(&mut table, &keys, &mut seq)?;
        println!("{crafted} crafted keys: {:?}", start.elapsed() - found);
        let start = Instant::now();
        fill(&mut table, &(0..100_000).collect::<Vec<_>>(), &mut seq)?;
        println!("100,000 inserts beside them: {:?}", start.elapsed());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "costs".into()));
    let rows = arguments.next().map_or(Ok(4_000_000), |rows| rows.parse())?;
    inserting()?;
    opening(&folder, rows)
}
