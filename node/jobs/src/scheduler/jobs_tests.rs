//! Jobs that fill a scheduler, and how they go.

use crate::limits::{RUN_FORGOTTEN_AFTER, RUNS_MAX};
use crate::scheduler::jobs::Schedulers;
use crate::scheduler::requests::SchedulerRefusal;
use gannet_wire::messages::job_plan::{JobPlan, PlanFile};
use gannet_wire::messages::jobs::{SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV3};
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn ask(
    schedulers: &mut Schedulers,
    (run, session): (&str, u32),
    what: SchedulerActionV1,
    now: Duration,
) -> Result<SchedulerReplyV1, SchedulerRefusal> {
    let incarnation = WorkerIncarnation { rank: 0, incarnation: 1 + u64::from(session) };
    let run = run.into();
    schedulers.answer(SchedulerRequestV3 { run, generation: 1, birth: 1, incarnation, what }, session, now)
}

fn register(schedulers: &mut Schedulers, of: (&str, u32), now: Duration) -> Result<(), SchedulerRefusal> {
    let file = PlanFile { name: "data".into(), bytes: 100, print: 1, whole: false };
    let (worker_timeout_ms, settings) = (1_000, Vec::new());
    let plan = JobPlan {
        workers: 1,
        files: vec![file],
        task_bytes: 50,
        batch: 4,
        epochs: 1,
        worker_timeout_ms,
        settings,
    };
    ask(schedulers, of, SchedulerActionV1::Register { plan }, now).map(|_| ())
}

#[test]
fn jobs_of_one_peer_locked_every_new_job_out_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let mut schedulers = Schedulers::open(Some(folder.path()), None, Duration::ZERO).unwrap();
    for n in 0..RUNS_MAX as u32 {
        register(&mut schedulers, (&format!("n{n}"), n), Duration::ZERO).unwrap();
        if n == 0 {
            // Something of it is trained.
            let take = SchedulerActionV1::Take { holding: Vec::new() };
            ask(&mut schedulers, ("n0", n), take, Duration::ZERO).unwrap();
            let done = SchedulerActionV1::Done { index: 0, examples: 5 };
            ask(&mut schedulers, ("n0", n), done, Duration::ZERO).unwrap();
        }
        schedulers.closed(n);
    }
    let (refusal, text) = register(&mut schedulers, ("new", 900), SECOND).unwrap_err();
    assert!(refusal == Refusal::Limit && text.contains("gannet forget --run NAME"), "{text}");
    for second in 1..=RUN_FORGOTTEN_AFTER.as_secs() as u32 {
        schedulers.tick(SECOND * second);
    }
    let files = || {
        let names = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().is_some_and(|name| name.ends_with(".book"))).count()
    };
    assert_eq!(files(), RUNS_MAX);
    register(&mut schedulers, ("new", 900), RUN_FORGOTTEN_AFTER).unwrap();
    assert_eq!(files(), RUNS_MAX);
    // A job of which something is trained stays until its run is deleted, also at the backups of this server.
    assert!(schedulers.snapshot("n0").is_some());
    schedulers.forget("n0");
    assert!(schedulers.snapshot("n0").is_none() && files() == RUNS_MAX - 1);
    let mut gone = Vec::new();
    schedulers.take_changed(|run, bytes| gone.extend(bytes.is_empty().then(|| run.to_owned())));
    assert!(gone.len() == 2 && gone[1] == "n0", "{gone:?}");
}
