//! Measures how fast this process learns logistic regression: examples/s, progressive log loss, rows.
//!
//! `cargo run --release -p gannet-train --example train_speed -- FILE [flat|shards|tcp|tcp:HOST:PORT] [BATCH] [DEPTH]`
//! (`tcp` alone starts a server of one thread in this process.)

use gannet_core::{Schema, Store};
use gannet_optim::{Ftrl, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_train::models::Measured;
use gannet_train::{Backend, Data, Embedded, FlatTable, Options, RemoteBackend, TrainError, train};
use gannet_transport::tcp::Tcp;
use gannet_worker::{Worker, WorkerConfig};
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path =
        args.next().ok_or("usage: train_speed FILE [flat|shards|tcp|tcp:HOST:PORT] [BATCH] [DEPTH]")?;
    let rows = args.next().unwrap_or_else(|| "flat".into());
    let batch: usize = args.next().map_or(Ok(256), |b| b.parse())?;
    let depth: usize = args.next().map_or(Ok(1), |d| d.parse())?;
    let config = ServerConfig { threads: 1, ..ServerConfig::new("127.0.0.1:0") };
    let own = if rows == "tcp" { Some(Server::start(Tcp::new(), config)?) } else { None };
    let options = Options { batch, ..Options::new(Data::new(&path)) };
    for round in 1..=3 {
        let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.5 });
        let schema = Schema::scalar(&format!("lr{round}"), rule);
        match rows.as_str() {
            "flat" => run(&options, FlatTable::new(&schema)?)?,
            "shards" => run(&options, Embedded::open(&Store::memory(), &schema, 1)?)?,
            other => {
                let named = other.strip_prefix("tcp:").or(own.as_ref().map(Server::addr));
                let address = named.ok_or("flat, shards, tcp or tcp:HOST:PORT")?;
                let worker =
                    Worker::connect(Tcp::new(), WorkerConfig::builder([address]).incarnation(round).build())?;
                run(&options, RemoteBackend::open(worker, &schema, depth)?)?;
            }
        }
    }
    Ok(())
}

fn run<B: Backend>(options: &Options, mut backend: B) -> Result<(), TrainError> {
    let report = train(options, &mut backend, &AtomicBool::new(false), &mut |_| {})?;
    let progressive = report.progressive.as_ref().and_then(Measured::click);
    println!(
        "{} batch {}: {:.0} k examples/s, log loss {:.6}, auc {:.5}, {} rows of {:.1} bytes",
        report.transport,
        options.batch,
        report.examples_per_second() / 1e3,
        progressive.map_or(f64::NAN, |q| q.log_loss),
        progressive.and_then(|q| q.auc).unwrap_or(f64::NAN),
        report.rows,
        report.bytes as f64 / report.rows as f64,
    );
    Ok(())
}
