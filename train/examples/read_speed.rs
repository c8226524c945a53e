//! Measures how fast a data file of any format is read, on one thread: MB/s of the file and examples/s of the reader
//! alone.
//!
//! `cargo run --release -p gannet-train --example read_speed -- FILE [BATCH]`

use gannet_train::{Block, Data, Reader, Share};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: read_speed FILE [BATCH]")?;
    let batch: usize = args.next().map_or(Ok(256), |b| b.parse())?;
    for share in [Share::ALL, Share::ALL, Share::ALL, Share { worker: 0, workers: 1000 }] {
        let start = Instant::now();
        let mut reader = Reader::open(&Data::new(&path), batch, share)?;
        let (mut block, mut examples, mut features) = (Block::default(), 0, 0);
        while reader.next(&mut block)? {
            examples += block.len();
            features += block.keys.len();
        }
        let seconds = start.elapsed().as_secs_f64();
        let megabytes = reader.position().bytes_read() as f64 / 1e6;
        println!(
            "{}, share {}/{}: {:.0} MB/s, {:.0} k examples/s, {examples} examples, {features} features",
            reader.format(),
            share.worker,
            share.workers,
            megabytes / seconds,
            examples as f64 / seconds / 1e3,
        );
    }
    Ok(())
}
