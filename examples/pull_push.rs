//! A server and a worker in one program: create a table, pull rows, push gradients.
use gannet::optim::Ftrl;
use gannet::{Read, Rule, Schema, Server, ServerConfig, Transports, Worker, WorkerConfig, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;

    // Worker 0 of a job. The server gives it an incarnation, which names its pushes.
    let config = WorkerConfig::builder([server.addr()]).worker(0).build();
    let mut worker = Worker::connect(Transports::new(), config)?;
    let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
    let table = worker.open_table(&Schema::scalar("clicks", rule))?;

    let keys = [7, 1_000_000_007, 42];
    worker.push(table, &keys, Write::Gradient, &[0.5, -1.0, 2.0])?;

    let mut weights = [0.0; 3];
    worker.pull(table, &keys, Read::Weights, &mut weights)?;
    assert!(weights[0] < 0.0 && weights[1] > 0.0 && weights[2] < 0.0);
    println!("weights {weights:?}, rows {}", worker.status(table)?.stats.rows);

    server.stop()?;
    Ok(())
}
