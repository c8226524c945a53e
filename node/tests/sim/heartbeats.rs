//! Heartbeats of a worker over real links: they continue while a fence takes long. And which worker saves at the end.

use gannet_core::{Schema, Store};
use gannet_node::{
    FenceFn, Heartbeat, JobClient, JobPlan, JobStatus, PlanFile, Server, ServerConfig, SplitGrant, Worker,
    WorkerConfig, WorkerIncarnation,
};
use gannet_optim::{Add, Rule};
use gannet_transport::tcp::Tcp;
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

fn client(addr: &str, rank: u32) -> JobClient<Tcp> {
    let config = WorkerConfig::new([addr.to_owned()], u64::from(rank) + 1, 7);
    JobClient::join(Tcp::new(), config, rank, plan()).unwrap()
}

fn status(addr: &str) -> JobStatus {
    JobStatus::of(Tcp::new(), WorkerConfig::new([addr.to_owned()], 99, 1)).unwrap().unwrap()
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
    let mut dead = client(&addr, 1);
    let SplitGrant::Task { index: lost, .. } = dead.take(&[]).unwrap() else { panic!("no task") };
    let ((fence_begins, begins), (ready, waits)) = (channel(), channel());
    // A fence that waits, as at a server that does not answer.
    let fence: FenceFn = Box::new(move |incarnation| {
        fence_begins.send(incarnation).unwrap();
        waits.recv_timeout(LIMIT * 2).unwrap();
        Ok(())
    });
    let heartbeat = Heartbeat::begin(client(&addr, 0), fence, Default::default()).unwrap();
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

/// A scheduler was restarted, and heard of a worker only over the links of its training. When that worker died, a new
/// process with its index was refused: "worker 0 is in the job already and alive".
#[test]
fn a_worker_that_dies_behind_a_restart_of_its_scheduler_leaves_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let start = |addr: &str| {
        let config = ServerConfig { threads: 1, store: store.clone(), ..ServerConfig::new(addr) };
        Server::start(Tcp::new(), config).unwrap()
    };
    let plan = JobPlan { worker_timeout_ms: 60_000, ..plan() };
    let join = |addr: &str, incarnation: u64| {
        let config = WorkerConfig::new([addr.to_owned()], 1, incarnation);
        JobClient::join(Tcp::new(), config, 0, plan.clone())
    };
    let served = start("127.0.0.1:0");
    let addr = served.addr().to_owned();
    drop(join(&addr, 7).unwrap());
    let mut training = Worker::connect(Tcp::new(), WorkerConfig::new([addr.clone()], 1, 7)).unwrap();
    let table = training.open_table(&Schema::scalar("t", Rule::Add(Add))).unwrap();
    served.stop().unwrap();
    let served = start(&addr);
    training.status(table).unwrap();
    // The server looks once a second at what it has heard.
    std::thread::sleep(Duration::from_millis(2_500));
    let taken = join(&addr, 8).map(|_| ()).unwrap_err().to_string();
    assert!(taken.contains("is in the job already and alive"), "{taken}");
    drop(training);
    std::thread::sleep(Duration::from_millis(300));
    join(&addr, 9).unwrap();
    served.stop().unwrap();
}

/// All splits are trained. One worker must save; the other waits for it, and learns at the end that there is a model.
#[test]
fn two_workers_ended_without_waiting_for_the_one_that_saves() {
    let served = served();
    let addr = served.addr().to_owned();
    let fence = || -> FenceFn { Box::new(|_| Ok(())) };
    let attend = |rank| Heartbeat::begin(client(&addr, rank), fence(), Default::default()).unwrap();
    let (first, second) = (attend(0), attend(1));
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
        job.work.get(1).is_some_and(|work| work.doing == gannet_node::ActivityKind::Ending)
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
    let client = JobClient::join(Tcp::new(), config, 0, plan()).unwrap();
    let fence: FenceFn = Box::new(|_| Ok(()));
    let heartbeat = Heartbeat::begin(client, fence, Default::default()).unwrap();
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
    let config = WorkerConfig::new([served.addr().to_owned()], 1, 7);
    let client = JobClient::join(Tcp::new(), config, 0, plan.clone()).unwrap();
    let heartbeat = Heartbeat::begin(client, Box::new(|_| Ok(())), Default::default()).unwrap();
    let (taken_tasks, trained) = channel();
    std::thread::scope(|scope| {
        let heartbeat = &heartbeat;
        scope.spawn(move || {
            for index in trained {
                heartbeat.acked(index, 1);
                heartbeat.beat_now().unwrap();
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
