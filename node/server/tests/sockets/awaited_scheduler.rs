//! What a worker reports while one of its threads waits for a scheduler that is away.

use crate::ports;
use gannet_core::Store;
use gannet_jobs::failure_detector::{FailureDetector, Verdict, WorkerLimits};
use gannet_server::{Server, ServerConfig};
use gannet_transport::tcp::Tcp;
use gannet_wire::{JobPlan, PlanFile, RunIntent, SplitGrant, WorkerIncarnation};
use gannet_worker::{Heartbeat, JobClient, RunClient, RunRequest, WorkerConfig};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);
const PEER_TIMEOUT: Duration = Duration::from_secs(120);

fn plan() -> JobPlan {
    let file = PlanFile { name: "data".into(), bytes: 40, print: 1, whole: false };
    let (worker_timeout_ms, settings) = (WORKER_TIMEOUT.as_millis() as u64, Vec::new());
    JobPlan {
        workers: 1,
        files: vec![file],
        task_bytes: 10,
        batch: 4,
        epochs: 1,
        worker_timeout_ms,
        settings,
    }
}

fn serve(addr: &str, store: Store) -> Server {
    Server::start(Tcp::new(), ServerConfig { threads: 1, store, ..ServerConfig::new(addr) }).unwrap()
}

/// A worker whose registry is in one server, and whose scheduler in another.
fn worker(registry: &str, scheduler: &str) -> (RunClient<Tcp>, Heartbeat<Tcp>) {
    let (settings, tables, notes) = (Vec::new(), Vec::new(), String::new());
    let (name, want, at, worker_timeout) = ("job".to_owned(), RunIntent::Auto, 0, WORKER_TIMEOUT);
    let request = RunRequest { name, want, settings, tables, at, notes, worker_timeout };
    let config = |server: &str| WorkerConfig {
        peer_timeout: PEER_TIMEOUT,
        ..WorkerConfig::new([server.to_owned()], 1, 7)
    };
    let run = RunClient::join(Tcp::new(), &config(registry), 0, request).unwrap();
    let of_job = WorkerConfig { run: Some(run.id().clone()), ..config(scheduler) };
    let job = JobClient::join(Tcp::new(), of_job, 0, plan()).unwrap();
    run.note_job(job.joined()).unwrap();
    let heartbeat = Heartbeat::begin(&run, job, Box::new(|_| Ok(())), Arc::default()).unwrap();
    (run, heartbeat)
}

/// The scheduler was away for longer than the worker timeout, and for less than the peer timeout. The worker that asked
/// it for a split waited, sent heartbeats, and was given up: it made no progress.
#[test]
fn a_worker_that_waited_for_a_scheduler_that_was_away_was_called_stuck() {
    let (folder, addr) = (tempfile::tempdir().unwrap(), ports::free_addr());
    let open = || Store::open_dir(folder.path()).unwrap();
    let (registry, scheduler) = (serve("127.0.0.1:0", Store::memory()), serve(&addr, open()));
    let (_run, heartbeat) = worker(registry.addr(), &addr);
    scheduler.stop().unwrap();
    let asks = || heartbeat.is_asking();
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| heartbeat.take(&|| false));
        while !asks() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // What the registry hears meanwhile, on a clock of the test.
        let (detector, worker) = (FailureDetector::default(), WorkerIncarnation { rank: 0, incarnation: 7 });
        detector.begin(worker, WorkerLimits::of(WORKER_TIMEOUT), Duration::ZERO);
        let says = |now: Duration| {
            detector.wake(now);
            detector.hear(worker, now);
            let work = heartbeat.reported_work();
            detector.note(worker, work, now);
            detector.verdict(worker, true, now)
        };
        let verdicts = (1..PEER_TIMEOUT.as_secs() as u32).map(|second| says(SECOND * second));
        let verdicts: Vec<Verdict> = verdicts.collect();
        let waited = asks();
        let scheduler = serve(&addr, open());
        let taken = taking.join().unwrap();
        assert!(matches!(taken, Ok(Some(SplitGrant::Task { .. }))), "{taken:?}");
        assert!(waited, "it did not wait for the scheduler all the time");
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Alive), "{verdicts:?}");
        scheduler
    })
    .stop()
    .unwrap();
    registry.stop().unwrap();
}
