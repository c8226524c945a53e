//! Heartbeats of a worker over real links: they continue while a fence takes long. And which worker saves at the end.

use crate::members::join_run;
use crate::model::schema;
use gannet_core::Write;
use gannet_server::{Server, ServerConfig};
use gannet_transport::tcp::Tcp;
use gannet_wire::{JobPlan, JobStatus, PlanFile, Refusal, RunId, RunIntent, SplitGrant, WorkerIncarnation};
use gannet_worker::{
    FenceFn, Heartbeat, JobClient, RunClient, RunRequest, Worker, WorkerConfig, WorkerError,
};
use std::collections::BTreeSet;
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

/// A worker that dies before it has told the registry anything of the job: only the scheduler knows of it.
fn die_early(net: &Tcp, config: &WorkerConfig, scheduler: Option<&WorkerConfig>) {
    let rank = (config.pusher - 1) as u32;
    let run = join_run(net.clone(), config, rank, plan().worker_timeout()).unwrap();
    let job = match scheduler {
        Some(of) => {
            let (run, incarnation) = (Some(run.id().clone()), config.incarnation);
            JobClient::join(net.clone(), WorkerConfig { run, incarnation, ..of.clone() }, rank, plan())
        }
        None => JobClient::join_beside(&run, plan()),
    };
    drop(job.unwrap());
}

/// Two incarnations of worker 1 die before they report the job to the registry. The first one has the place of nobody
/// in the run, so only the scheduler knows of it, and worker 0 had joined before. Returns whom worker 0 fences.
fn fenced_by_the_other(scheduler: Option<&str>, servers: &[String], fence: FenceFn) -> Heartbeat<Tcp> {
    let net = Tcp::new();
    let of = |rank: u32, incarnation| WorkerConfig::new(servers.to_vec(), u64::from(rank) + 1, incarnation);
    let (settings, tables, notes) = (Vec::new(), Vec::new(), String::new());
    let (name, want, worker_timeout) = ("job".to_owned(), RunIntent::Auto, plan().worker_timeout());
    let request = RunRequest { name, want, settings, tables, at: 0, notes, worker_timeout };
    let run = RunClient::join(net.clone(), &of(0, 7), 0, request).unwrap();
    let of_scheduler = |rank: u32, incarnation| {
        let of = of(rank, incarnation);
        scheduler.map(|addr| WorkerConfig { servers: vec![addr.to_owned()], ..of })
    };
    let job = match of_scheduler(0, 7) {
        Some(of) => {
            let run = Some(run.id().clone());
            JobClient::join(net.clone(), WorkerConfig { run, ..of }, 0, plan())
        }
        None => JobClient::join_beside(run.session(), plan()),
    };
    let job = job.unwrap();
    assert!(job.joined().unfenced.is_empty());
    for incarnation in [1, 2] {
        die_early(&net, &of(1, incarnation), of_scheduler(1, incarnation).as_ref());
    }
    run.note_job(job.joined()).unwrap();
    let heartbeat = Heartbeat::begin(&run, job, fence, Arc::default()).unwrap();
    // It goes on until the process ends.
    std::mem::forget(run);
    heartbeat
}

/// The scheduler is in another server. Only its replies to reports named a dead worker, and nobody passed that on: its
/// splits stayed with it.
#[test]
fn a_dead_worker_that_only_a_report_named_was_fenced_nowhere() {
    let (first, second, scheduler) = (served(), served(), served());
    let servers = [first.addr().to_owned(), second.addr().to_owned()];
    let schema = schema("t", 1, 8);
    let (fenced, whom) = channel();
    let (of, table) = (servers.clone(), schema.clone());
    let fence: FenceFn = Box::new(move |dead| {
        let mut worker = Worker::connect(Tcp::new(), WorkerConfig::new(of.clone(), 1, 7))?;
        let table = worker.open_table(&table)?;
        worker.fence(table, u64::from(dead.rank) + 1, dead.incarnation)?;
        fenced.send(dead).unwrap();
        Ok(())
    });
    // The first incarnation has opened the table.
    let open = |_| {
        let mut worker = Worker::connect(Tcp::new(), WorkerConfig::new(servers.to_vec(), 2, 1)).unwrap();
        let table = worker.open_table(&schema).unwrap();
        (worker, table)
    };
    let links: Vec<_> = (0..16).map(open).collect();
    let heartbeat = fenced_by_the_other(Some(scheduler.addr()), &servers, fence);
    let mut all = [whom.recv_timeout(LIMIT).unwrap(), whom.recv_timeout(LIMIT).unwrap()];
    all.sort();
    assert_eq!(all, [1, 2].map(|incarnation| WorkerIncarnation { rank: 1, incarnation }));
    until(scheduler.addr(), "not fenced", |job| job.unfenced.is_empty());
    // It wakes up, and every shard of every server refuses it.
    let mut refused = BTreeSet::new();
    for (key, (mut woken, table)) in links.into_iter().enumerate() {
        match woken.push(table, &[key as u64], Write::Gradient, &[1.0]).unwrap_err() {
            WorkerError::Refused { peer, refusal: Refusal::Fenced, .. } => refused.insert(peer.to_string()),
            other => panic!("{other}"),
        };
    }
    assert_eq!(refused.len(), 2, "{refused:?}");
    heartbeat.leave().unwrap();
    [first, second, scheduler].into_iter().for_each(|served| assert!(served.stop().is_ok()));
}

/// The scheduler is in the registry's server, and knew of a dead worker of which the registry did not. A worker reports
/// to it after each fence. Before that, it named the dead one when a worker joined, and then at the end of the job.
#[test]
fn a_dead_worker_that_only_the_scheduler_knew_of_waited_for_the_end_of_the_job() {
    let served = served();
    let servers = [served.addr().to_owned()];
    let (fenced, whom) = channel();
    let fence: FenceFn = Box::new(move |dead| {
        fenced.send(dead).unwrap();
        Ok(())
    });
    let heartbeat = fenced_by_the_other(None, &servers, fence);
    // The second one is silent in the run. When it is fenced, the first one follows.
    for incarnation in [2, 1] {
        assert_eq!(whom.recv_timeout(LIMIT).unwrap(), WorkerIncarnation { rank: 1, incarnation });
    }
    until(&servers[0], "not fenced", |job| job.unfenced.is_empty());
    heartbeat.leave().unwrap();
    served.stop().unwrap();
}
