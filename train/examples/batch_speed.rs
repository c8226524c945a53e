//! Measures the cost of making batches: ns an example of de-duplication, sorting and links, on one thread.
//!
//! `cargo run --release -p gannet-train --example batch_speed -- FILE [BATCH] [DEPTH]`

use gannet_train::{Batch, Batcher, Data, Reader, Share};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: batch_speed FILE [BATCH] [DEPTH]")?;
    let batch: usize = args.next().map_or(Ok(256), |b| b.parse())?;
    let depth: usize = args.next().map_or(Ok(1), |d| d.parse())?;
    for _ in 0..3 {
        let mut reader = Reader::open(&Data::new(&path), batch, Share::ALL)?;
        let (mut batcher, mut made) = (Batcher::new(64, depth), Batch::default());
        let (mut reading, mut making) = (Duration::ZERO, Duration::ZERO);
        let (mut examples, mut keys) = (0, 0);
        loop {
            let start = Instant::now();
            if !reader.next(&mut made.block)? {
                break;
            }
            let read = Instant::now();
            batcher.complete(&mut made);
            (reading, making) = (reading + (read - start), making + read.elapsed());
            examples += made.block.len();
            keys += made.keys.len();
        }
        let each = |time: Duration| time.as_secs_f64() * 1e9 / examples as f64;
        let unique = keys as f64 / examples as f64;
        println!(
            "reading {:.0} ns, batching {:.0} ns an example, {unique:.1} keys an example",
            each(reading),
            each(making)
        );
    }
    Ok(())
}
