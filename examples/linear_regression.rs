//! Linear regression: y = 2x + 10 with noise. Two workers learn it over two servers, without waiting for each other.
use gannet::optim::{AdaGrad, GradientTransform};
use gannet::table::{Admission, RowType};
use gannet::train::models::{Linear, Model, ModelSettings, fit};
use gannet::train::{
    ColumnChoice, ColumnKeys, Data, INTERCEPT_KEY, Labels, Options, RemoteTables, Share, Tables, WeightTables,
};
use gannet::{Rule, Server, ServerConfig, Transports, Worker, WorkerConfig};
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn model() -> Linear {
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.5, eps: 1e-8, initial_accumulator: 1.0 });
    let (shaping, admission) = (GradientTransform::NONE, Admission::All);
    Linear::new(ModelSettings {
        rule,
        row_type: RowType::F32,
        shaping,
        admission,
        seed: 1,
        deviation: 0.0,
        l2: 0.0,
    })
}

/// 20,000 examples as CSV. The noise is a sum of uniform numbers with a deviation of 0.3.
fn examples() -> String {
    let (mut text, mut state) = ("y,x\n".to_owned(), 1u64);
    let mut uniform = || {
        state += 1;
        (gannet::table::mix(state) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    for _ in 0..20_000 {
        let (x, noise) = (4.0 * uniform(), (0..12).map(|_| 0.3 * uniform()).sum::<f64>());
        let _ = writeln!(text, "{:.4},{x:.4}", 2.0 * x + 10.0 + noise);
    }
    text
}

fn work(servers: &[String], data: Data, worker: u32) -> Result<(), Failed> {
    let config = WorkerConfig::builder(servers).worker(worker).build();
    let mut tables = RemoteTables::new(Worker::connect(Transports::new(), config)?);
    let options = Options { batch: 16, share: Share { worker, workers: 2 }, ..Options::new(data) };
    let fitted = fit(&options, &mut model(), &mut tables, &AtomicBool::new(false), &mut |_| {})?;
    println!("worker {worker}: {} examples over {}", fitted.examples, fitted.transport);
    Ok(())
}

fn main() -> Result<(), Failed> {
    let path = std::env::temp_dir().join(format!("gannet-line-{}.csv", std::process::id()));
    std::fs::write(&path, examples())?;
    let columns =
        ColumnChoice { label: Some("y".into()), numeric: vec!["x".into()], ..ColumnChoice::default() };
    let data = Data { labels: Labels::Numbers, columns, ..Data::new(&path.to_string_lossy()) };
    let start = || Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"));
    let servers = [start()?, start()?];
    let hosts: Vec<String> = servers.iter().map(|server| server.addr().to_string()).collect();
    std::thread::scope(|scope| {
        let workers = [0, 1].map(|worker| {
            let (hosts, data) = (&hosts, data.clone());
            scope.spawn(move || work(hosts, data, worker))
        });
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| "a worker panicked")?)
    })?;
    let mut tables = RemoteTables::new(Worker::connect(Transports::new(), WorkerConfig::reader(&hosts))?);
    tables.open(&model().sparse())?;
    let mut weights = Vec::new();
    tables.weights(0, &[ColumnKeys::new("x").numeric(), INTERCEPT_KEY], &mut weights)?;
    println!("y = {:.3} x + {:.3}", weights[0], weights[1]);
    std::fs::remove_file(path)?;
    Ok(())
}
