//! A worker's seat kept up over real links: signs of life while a fence takes long, and who may save at the end.

use gannet_node::{
    FenceFn, Heartbeat, JobClient, JobPlan, JobStatus, PlanFile, Server, ServerConfig, SplitGrant,
    WorkerConfig, WorkerIncarnation,
};
use gannet_transport::tcp::Tcp;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Nothing that these tests wait for takes longer.
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

fn seat(addr: &str, rank: u32) -> JobClient<Tcp> {
    let config = WorkerConfig::new([addr.to_owned()], u64::from(rank) + 1, 7);
    JobClient::join(Tcp::new(), config, rank, plan()).unwrap()
}

fn status(addr: &str) -> JobStatus {
    JobStatus::of(Tcp::new(), WorkerConfig::new([addr.to_owned()], 99, 1)).unwrap().unwrap()
}

/// Waits until the job is so.
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
    let mut dead = seat(&addr, 1);
    let SplitGrant::Task { index: lost, .. } = dead.take(&[]).unwrap() else { panic!("no task") };
    let ((begun, begins), (ready, waits)) = (channel(), channel());
    // A server that does not answer.
    let hands: FenceFn = Box::new(move |incarnation| {
        begun.send(incarnation).unwrap();
        waits.recv_timeout(LIMIT * 2).unwrap();
        Ok(())
    });
    let attendance = Heartbeat::begin(seat(&addr, 0), hands, Default::default()).unwrap();
    let incarnation = begins.recv_timeout(LIMIT).unwrap();
    assert_eq!(incarnation, WorkerIncarnation { rank: 1, incarnation: 7 });
    for examples in 1..=10 {
        attendance.tell(|told| told.examples = examples);
        until(&addr, "no sign of life", |job| job.members[0].told.examples == examples);
    }
    assert_eq!((attendance.lost(), begins.try_recv().ok()), (None, None));
    ready.send(()).unwrap();
    until(&addr, "not fenced", |job| job.unfenced.is_empty() && job.tasks_returned == 1);
    let Some(SplitGrant::Task { index, .. }) = attendance.take(&|| false).unwrap() else { panic!("no task") };
    assert_eq!(index, lost);
    attendance.leave().unwrap();
    served.stop().unwrap();
}

/// All is trained: one is told to save, the other waits for it, and knows at its end that there is a model.
#[test]
fn two_workers_ended_without_waiting_for_the_one_that_saves() {
    let served = served();
    let addr = served.addr().to_owned();
    let hands = || -> FenceFn { Box::new(|_| Ok(())) };
    let attend = |rank| Heartbeat::begin(seat(&addr, rank), hands(), Default::default()).unwrap();
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
    let seat = JobClient::join(Tcp::new(), config, 0, plan()).unwrap();
    let hands: FenceFn = Box::new(|_| Ok(()));
    let attendance = Heartbeat::begin(seat, hands, Default::default()).unwrap();
    while let Some(SplitGrant::Task { index, .. }) = attendance.take(&|| false).unwrap() {
        attendance.done(index, 10).unwrap();
    }
    served.stop().unwrap();
    let why = attendance.sum_up(&|| false).unwrap_err();
    assert!(why.contains("127.0.0.1"), "{why}");
}

/// Under load a worker asked for a task while another of its threads said that one was done: what the scheduler had
/// taken off it counted as held, and the request was refused: "3 tasks are held; 2 are possible".
#[test]
fn tasks_are_taken_while_others_are_done() {
    let served = served();
    let file = PlanFile { bytes: 8_000, ..plan().files.remove(0) };
    let plan = JobPlan { workers: 1, files: vec![file], ..plan() };
    let config = WorkerConfig::new([served.addr().to_owned()], 1, 7);
    let seat = JobClient::join(Tcp::new(), config, 0, plan.clone()).unwrap();
    let attendance = Heartbeat::begin(seat, Box::new(|_| Ok(())), Default::default()).unwrap();
    let (given, trained) = channel();
    std::thread::scope(|scope| {
        let attendance = &attendance;
        scope.spawn(move || {
            for index in trained {
                attendance.acked(index, 1);
                attendance.beat_now().unwrap();
                attendance.done(index, 4).unwrap();
            }
        });
        let mut taken = 0;
        while let Some(SplitGrant::Task { index, .. }) = attendance.take(&|| false).unwrap() {
            taken += 1;
            given.send(index).unwrap();
        }
        drop(given);
        assert_eq!(taken, plan.tasks());
    });
    attendance.leave().unwrap();
    served.stop().unwrap();
}
