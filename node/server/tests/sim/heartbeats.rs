//! Heartbeats of a worker over real links: they continue while a fence takes long. And which worker saves at the end.

use gannet_server::{Server, ServerConfig};
use gannet_transport::tcp::Tcp;
use gannet_wire::{JobPlan, JobStatus, PlanFile, RunId, RunIntent, SplitGrant, WorkerIncarnation};
use gannet_worker::{FenceFn, Heartbeat, JobClient, RunClient, RunRequest, WorkerConfig};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The longest time that a test waits for anything.
const LIMIT: Duration = Duration::from_secs(30);

fn plan() -> JobPlan {
    let file = PlanFile { name: "data".into(), bytes: 40, print: 1, whole: false };
    let (worker_timeout_ms, settings) = (1_000, Vec::new());
    JobPlan {
        workers: 2,
        files: vec![file],
        task_bytes: 10,
        batch: 4,
        epochs: 1,
        worker_timeout_ms,
        settings,
    }
}

fn served() -> Server {
    Server::start(Tcp::new(), ServerConfig { threads: 1, ..ServerConfig::new("127.0.0.1:0") }).unwrap()
}

/// A worker that sends heartbeats.
fn member(
    config: &WorkerConfig,
    rank: u32,
    plan: JobPlan,
    fence: FenceFn,
) -> (RunClient<Tcp>, Heartbeat<Tcp>) {
    let (settings, tables, notes) = (Vec::new(), Vec::new(), String::new());
    let (name, want, at, worker_timeout) = ("job".to_owned(), RunIntent::Auto, 0, plan.worker_timeout());
    let request = RunRequest { name, want, settings, tables, at, notes, worker_timeout };
    let run = RunClient::join(Tcp::new(), config, rank, request).unwrap();
    let job = JobClient::join_beside(run.session(), plan).unwrap();
    run.note_job(job.joined()).unwrap();
    let heartbeat = Heartbeat::begin(&run, job, fence, Arc::default()).unwrap();
    (run, heartbeat)
}

fn config(addr: &str, rank: u32) -> WorkerConfig {
    WorkerConfig::new([addr.to_owned()], u64::from(rank) + 1, 7)
}

fn status(addr: &str) -> JobStatus {
    let run = Some(RunId { name: "job".into(), generation: 1, rows_since: 1, birth: 0 });
    let config = WorkerConfig { run, ..WorkerConfig::new([addr.to_owned()], 99, 1) };
    JobClient::status_of(Tcp::new(), config).unwrap().unwrap()
}

/// Waits until `is` holds for the job's status.
fn until(addr: &str, what: &str, is: impl Fn(&JobStatus) -> bool) {
    let start = Instant::now();
    loop {
        let job = status(addr);
        if is(&job) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "{what}: {job:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_worker_gave_no_sign_of_life_while_it_fenced_another() {
    let served = served();
    let addr = served.addr().to_owned();
    let (run, dead) = member(&config(&addr, 1), 1, plan(), Box::new(|_| Ok(())));
    let Some(SplitGrant::Task { index: lost, .. }) = dead.take(&|| false).unwrap() else { panic!("no task") };
    // It dies: nothing more is heard of it.
    drop((run, dead));
    let ((fence_begins, begins), (ready, waits)) = (channel(), channel());
    // A fence that waits, as at a server that does not answer.
    let fence: FenceFn = Box::new(move |incarnation| {
        fence_begins.send(incarnation).unwrap();
        waits.recv_timeout(LIMIT * 2).unwrap();
        Ok(())
    });
    let (_run, heartbeat) = member(&config(&addr, 0), 0, plan(), fence);
    let incarnation = begins.recv_timeout(LIMIT).unwrap();
    assert_eq!(incarnation, WorkerIncarnation { rank: 1, incarnation: 7 });
    for examples in 1..=10 {
        heartbeat.tell(|progress| progress.examples = examples);
        until(&addr, "no sign of life", |job| job.members[0].progress.examples == examples);
    }
    assert_eq!((heartbeat.lost(), begins.try_recv().ok()), (None, None));
    ready.send(()).unwrap();
    until(&addr, "not fenced", |job| job.unfenced.is_empty() && job.tasks_returned == 1);
    let Some(SplitGrant::Task { index, .. }) = heartbeat.take(&|| false).unwrap() else { panic!("no task") };
    assert_eq!(index, lost);
    heartbeat.leave().unwrap();
    served.stop().unwrap();
}

/// All splits are trained. One worker must save; the other waits for it, and learns at the end that there is a model.
#[test]
fn two_workers_ended_without_waiting_for_the_one_that_saves() {
    let served = served();
    let addr = served.addr().to_owned();
    let fence = || -> FenceFn { Box::new(|_| Ok(())) };
    let attend = |rank| member(&config(&addr, rank), rank, plan(), fence());
    let ((_first_run, first), (_second_run, second)) = (attend(0), attend(1));
    while let Some(SplitGrant::Task { index, .. }) = first.take(&|| false).unwrap() {
        first.done(index, 10).unwrap();
    }
    assert_eq!(second.take(&|| false), Ok(None));
    assert_eq!(first.sum_up(&|| false), Ok(true));
    assert!(second.saved().unwrap_err().contains("was not the one to do so"));
    let (say, said) = channel();
    let other = std::thread::spawn(move || {
        say.send(second.sum_up(&|| false)).unwrap();
        second.leave().unwrap();
    });
    until(&addr, "it does not wait", |job| {
        job.work.get(1).is_some_and(|work| work.doing == gannet_wire::ActivityKind::Ending)
    });
    assert!(said.try_recv().is_err(), "it has not waited");
    first.saved().unwrap();
    assert_eq!(said.recv_timeout(LIMIT).unwrap(), Ok(false));
    other.join().unwrap();
    first.leave().unwrap();
    let job = status(&addr);
    assert!(job.saved && !job.live, "{job:?}");
    served.stop().unwrap();
}

#[test]
fn a_scheduler_that_died_after_the_last_task_left_nobody_to_save_and_no_error() {
    let served = served();
    let config = WorkerConfig {
        peer_timeout: Duration::from_millis(500),
        ..WorkerConfig::new([served.addr().to_owned()], 1, 7)
    };
    let (_run, heartbeat) = member(&config, 0, plan(), Box::new(|_| Ok(())));
    while let Some(SplitGrant::Task { index, .. }) = heartbeat.take(&|| false).unwrap() {
        heartbeat.done(index, 10).unwrap();
    }
    served.stop().unwrap();
    let why = heartbeat.sum_up(&|| false).unwrap_err();
    assert!(why.contains("127.0.0.1"), "{why}");
}

/// Once, a worker requested a task while another of its threads reported that a task was done. The scheduler
/// counted a task that it had already taken back, and refused the request: "3 tasks are held; 2 are possible".
#[test]
fn tasks_are_taken_while_others_are_done() {
    let served = served();
    let file = PlanFile { bytes: 8_000, ..plan().files.remove(0) };
    let plan = JobPlan { workers: 1, files: vec![file], ..plan() };
    let of_it = config(served.addr(), 0);
    let (_run, heartbeat) = member(&of_it, 0, plan.clone(), Box::new(|_| Ok(())));
    let (taken_tasks, trained) = channel();
    std::thread::scope(|scope| {
        let heartbeat = &heartbeat;
        scope.spawn(move || {
            for index in trained {
                heartbeat.acked(index, 1);
                heartbeat.report_now().unwrap();
                heartbeat.done(index, 4).unwrap();
            }
        });
        let mut taken = 0;
        while let Some(SplitGrant::Task { index, .. }) = heartbeat.take(&|| false).unwrap() {
            taken += 1;
            taken_tasks.send(index).unwrap();
        }
        drop(taken_tasks);
        assert_eq!(taken, plan.tasks());
    });
    heartbeat.leave().unwrap();
    served.stop().unwrap();
}
