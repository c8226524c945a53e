//! In-graph training: one client has the data and sends it to two workers that have none. The model is logistic
//! regression of invented clicks. `gannet train --job-name client` and `--job-name worker --feed` do the same with
//! processes (docs/jobs.md).
use gannet::job::{DataLink, DataServerConfig, FeedStatus, Heartbeat, JobClient, JobPlan};
use gannet::optim::Ftrl;
use gannet::runs::{RunClient, RunIntent, RunRequest};
use gannet::train::{
    Data, FileDataSource, FileFingerprint, Options, RemoteBackend, RemoteTexts, Scheduled, plan_files, train,
};
use gannet::{Rule, Schema, Server, ServerConfig, Transports, Worker, WorkerConfig};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Lines of invented clicks. Whether a line is clicked depends on its first feature.
fn clicks() -> String {
    (0..50_000u64).fold(String::new(), |mut text, i| {
        let (who, what) = (gannet::table::mix(i) % 10, 10 + gannet::table::mix(i + (1 << 32)) % 100);
        let clicked = u64::from(gannet::table::mix(i + (1 << 33)) % 10 < who);
        let _ = writeln!(text, "{clicked} {who}:1 {what}:1");
        text
    })
}

/// A worker: it knows two addresses and has no file.
fn work(server: &str, client: &str, schema: &Schema, rank: u32) -> Result<u64, Failed> {
    // The server and the client must know the worker under the same incarnation.
    let numbered = WorkerConfig::builder([server]).worker(rank).build();
    let incarnation = Worker::allocate_incarnation(Transports::new(), &numbered)?;
    let config = |at: &str| WorkerConfig::builder([at]).worker(rank).incarnation(incarnation).build();
    let mut link = DataLink::connect(Transports::new(), config(client))?;
    let plan = link.offer()?.plan;
    // The server keeps the registry of runs, which decides whether a worker lives. The client hands out the splits.
    let request = RunRequest {
        name: "in-graph".into(),
        want: RunIntent::Auto,
        settings: Vec::new(),
        tables: Vec::new(),
        at: 0,
        notes: String::new(),
        worker_timeout: plan.worker_timeout(),
    };
    let run = RunClient::join(Transports::new(), &config(server), rank, request)?;
    let of_run = WorkerConfig { run: Some(run.id().clone()), ..config(client) };
    let job = JobClient::join(Transports::new(), of_run, rank, plan.clone())?;
    let started = job.joined().started;
    run.note_job(job.joined())?;
    let worker = Worker::connect(Transports::new(), config(server))?;
    let (address, table_schema) = (server.to_owned(), schema.clone());
    // Fences a dead incarnation of a worker.
    let fence = Box::new(move |dead: gannet::job::WorkerIncarnation| {
        let mut worker = Worker::connect(
            Transports::new(),
            WorkerConfig::builder([&address]).worker(rank).incarnation(incarnation).build(),
        )?;
        let table = worker.open_table(&table_schema)?;
        worker.fence(table, u64::from(dead.rank) + 1, dead.incarnation)
    });
    let heartbeat = Heartbeat::begin(&run, job, fence, worker.shared_counters())?;
    let files: Vec<String> = plan.files.iter().map(|file| file.name.clone()).collect();
    let fingerprints =
        plan.files.iter().map(|file| FileFingerprint::remote(file.bytes, file.print, file.whole)).collect();
    let mut options = Options { batch: plan.batch as usize, ..Options::new(Data::of(files)) };
    let texts = RemoteTexts::new(link, plan.files);
    options.splits = Some((Arc::new(Scheduled::remote(heartbeat, started, texts)), fingerprints));
    let mut rows = RemoteBackend::open(worker, schema, 1)?;
    Ok(train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {})?.examples)
}

fn main() -> Result<(), Failed> {
    let path = std::env::temp_dir().join(format!("gannet-fed-{}.svm", std::process::id()));
    std::fs::write(&path, clicks())?;
    let files = vec![path.to_string_lossy().into_owned()];
    let fingerprints = vec![FileFingerprint::of(&files[0])?];
    let plan = JobPlan {
        workers: 2,
        files: plan_files(&files, &fingerprints),
        task_bytes: 64 << 10,
        batch: 256,
        epochs: 1,
        worker_timeout_ms: 10_000,
        settings: Vec::new(),
    };
    let (files_to_send, status) =
        (Arc::new(FileDataSource::new(&Data::of(files), &fingerprints)), Arc::<FeedStatus>::default());
    let data_server =
        DataServerConfig { plan, reading: String::new(), source: files_to_send, status: status.clone() };
    let only = ServerConfig { threads: 1, scheduler_only: true, ..ServerConfig::new("127.0.0.1:0") };
    let client = Server::start(Transports::new(), ServerConfig { data_server: Some(data_server), ..only })?;
    let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    let schema = Schema::scalar("clicks", Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }));
    std::thread::scope(|scope| -> Result<(), Failed> {
        let work = |rank| work(server.addr(), client.addr(), &schema, rank);
        let other = scope.spawn(move || work(1));
        let examples = work(0)?;
        println!("worker 0: {examples} examples");
        println!("worker 1: {} examples", other.join().expect("no panic")?);
        Ok(())
    })?;
    let mut reader = Worker::connect(Transports::new(), WorkerConfig::reader([server.addr()]))?;
    let table = reader.open_table(&schema)?;
    let (keys, mut weights) = ((0..10).collect::<Vec<u64>>(), [0.0; 10]);
    reader.pull(table, &keys, gannet::Read::Weights, &mut weights)?;
    println!("fed {} bytes; weights {weights:.2?}", status.served().bytes);
    std::fs::remove_file(path)?;
    Ok(())
}
