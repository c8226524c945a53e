//! How fast logistic regression is learned in this process: examples/s, progressive log loss, rows.
//!
//! `cargo run --release -p gannet-train --example train_speed -- FILE [BATCH]`

use gannet_node::optim::{Ftrl, Rule};
use gannet_node::{Schema, Store};
use gannet_train::{Data, Embedded, Options, train};
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: train_speed FILE [BATCH]")?;
    let batch: usize = args.next().map_or(Ok(256), |b| b.parse())?;
    let options = Options { batch, ..Options::new(Data::new(&path)) };
    for _ in 0..3 {
        let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
        let mut rows = Embedded::open(&Store::memory(), &Schema::scalar("lr", rule), 1)?;
        let report = train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {})?;
        let progressive = report.progressive.ok_or("no examples")?;
        println!(
            "batch {batch}: {:.0} k examples/s, log loss {:.6}, auc {:.5}, {} rows of {:.1} bytes",
            report.examples_per_second / 1e3,
            progressive.log_loss,
            progressive.auc.unwrap_or(f64::NAN),
            report.rows,
            report.bytes_per_row,
        );
    }
    Ok(())
}
