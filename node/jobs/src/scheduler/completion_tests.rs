//! Which worker saves at the end: single replies that matter.
//! (scheduler_model_tests.rs compares the job state with a model.)

use crate::limits::LATE_TIME;
use crate::scheduler::job_state::{JobState, JobStateError};
use crate::scheduler::requests::Scheduler;
use gannet_wire::limits::OWN_SLEEP;
use gannet_wire::messages::control;
use gannet_wire::messages::job_plan::{JobPlan, PlanFile};
use gannet_wire::messages::jobs::{SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV3, SplitGrant};
use gannet_wire::messages::member::{Activity, ActivityKind, Progress, WorkerIncarnation};
use std::time::Duration;

fn plan(workers: u32, tasks: u64) -> JobPlan {
    let file = PlanFile { name: "data".into(), bytes: tasks * 10, print: 1, whole: false };
    let (worker_timeout_ms, settings) = (20_000, Vec::new());
    JobPlan { workers, files: vec![file], task_bytes: 10, batch: 4, epochs: 1, worker_timeout_ms, settings }
}

fn incarnation(rank: u32, incarnation: u64) -> WorkerIncarnation {
    WorkerIncarnation { rank, incarnation }
}

struct CompletionModel {
    job: JobState,
}

impl CompletionModel {
    /// A job with these workers in it.
    fn of(workers: u32, tasks: u64, ranks: &[u32]) -> CompletionModel {
        let job = JobState::new(plan(workers, tasks), 1).unwrap();
        let mut model = CompletionModel { job };
        ranks.iter().for_each(|&rank| model.come(incarnation(rank, 1)));
        model
    }

    fn come(&mut self, incarnation: WorkerIncarnation) {
        let plan = self.job.plan().clone();
        self.job.register(incarnation, &plan).unwrap();
    }

    fn take(&mut self, incarnation: WorkerIncarnation) -> u64 {
        let SplitGrant::Task { index, .. } = self.job.take(incarnation, &[]).unwrap() else {
            panic!("no task is free")
        };
        index
    }

    /// Whether the worker must save.
    fn is_chief(&mut self, incarnation: WorkerIncarnation) -> bool {
        let orders = self.job.report(incarnation, Progress::default()).unwrap();
        orders.chief && orders.trained && !orders.saved
    }
}

#[test]
fn two_workers_were_chief_at_the_end_when_one_with_a_lower_index_came_late() {
    let mut model = CompletionModel::of(3, 1, &[1, 2]);
    let index = model.take(incarnation(2, 1));
    model.job.done(incarnation(2, 1), index, 10).unwrap();
    assert!(model.is_chief(incarnation(1, 1)) && !model.is_chief(incarnation(2, 1)));
    model.come(incarnation(0, 1));
    assert!(!model.is_chief(incarnation(0, 1)), "worker 1 saves");
    assert!(model.is_chief(incarnation(1, 1)));
    assert_eq!(model.job.saved(incarnation(0, 1)), Err(JobStateError::NotChief(incarnation(0, 1))));
    model.job.saved(incarnation(1, 1)).unwrap();
    model.job.leave(incarnation(1, 1)).unwrap();
    assert!(!model.is_chief(incarnation(0, 1)) && !model.is_chief(incarnation(2, 1)), "it is saved");
}

#[test]
fn a_job_that_has_trained_enough_ends_with_the_splits_that_are_held() {
    let mut model = CompletionModel::of(2, 9, &[0, 1]);
    let (chief, other) = (incarnation(0, 1), incarnation(1, 1));
    let (first, held) = (model.take(chief), model.take(other));
    model.job.done(chief, first, 10).unwrap();
    assert_eq!(model.job.train_no_more(other), Err(JobStateError::NotChief(other)));
    model.job.train_no_more(chief).unwrap();
    assert_eq!(model.job.take(chief, &[]), Ok(SplitGrant::Wait), "worker 1 holds a split");
    assert!(!model.job.is_trained() && !model.is_chief(chief));
    // It dies: its split is trained by the other one.
    model.come(incarnation(1, 2));
    assert!(model.job.fenced(other, &[]));
    let SplitGrant::Task { index, .. } = model.job.take(chief, &[]).unwrap() else { panic!("it is free") };
    assert_eq!(index, held);
    model.job.done(chief, held, 10).unwrap();
    model.job.train_no_more(chief).unwrap();
    assert_eq!(model.job.take(incarnation(1, 2), &[]), Ok(SplitGrant::Over));
    assert!(model.is_chief(chief) && model.job.counts().examples == 20);
}

#[test]
fn nobody_saved_when_the_lowest_worker_had_left_before_the_end() {
    let mut model = CompletionModel::of(2, 1, &[0, 1]);
    model.job.leave(incarnation(0, 1)).unwrap();
    let index = model.take(incarnation(1, 1));
    model.job.done(incarnation(1, 1), index, 10).unwrap();
    assert!(model.is_chief(incarnation(1, 1)));
    // Also when it left later without having saved: it was stopped, and knew of no end.
    model.come(incarnation(0, 2));
    model.job.leave(incarnation(1, 1)).unwrap();
    assert!(model.is_chief(incarnation(0, 2)));
}

#[test]
fn a_chief_that_dies_before_it_has_saved_is_followed_by_one_worker_when_it_is_fenced() {
    let mut model = CompletionModel::of(3, 1, &[0, 1, 2]);
    let index = model.take(incarnation(0, 1));
    model.job.done(incarnation(0, 1), index, 10).unwrap();
    assert!(model.is_chief(incarnation(0, 1)));
    let others = [1, 2].map(|rank| model.is_chief(incarnation(rank, 1)));
    assert_eq!(others, [false; 2], "the first may be alive");
    assert!(model.job.fenced(incarnation(0, 1), &[]));
    assert!(model.is_chief(incarnation(1, 1)) && !model.is_chief(incarnation(2, 1)));
    // A worker that was only asleep gets the same reply.
    assert_eq!(model.job.saved(incarnation(0, 1)), Err(JobStateError::Fenced(incarnation(0, 1))));
    assert!(!model.job.has_ended());
}

#[test]
fn a_job_that_nobody_saved_was_trained_again_by_who_came_later_than_a_minute() {
    let (mut scheduler, mut now) = (Scheduler::default(), Duration::ZERO);
    let mut ask = |of: WorkerIncarnation, what: SchedulerActionV1, now: Duration| {
        scheduler.answer(SchedulerRequestV3::of_no_run(of, what), of.rank, now).map_err(|(_, text)| text)
    };
    let register = || SchedulerActionV1::Register { plan: plan(1, 1) };
    ask(incarnation(0, 1), register(), now).unwrap();
    ask(incarnation(0, 1), SchedulerActionV1::Take { holding: Vec::new() }, now).unwrap();
    ask(incarnation(0, 1), SchedulerActionV1::Done { index: 0, examples: 10 }, now).unwrap();
    // It dies before it has saved, and is started again after another worker has noticed.
    while now < LATE_TIME * 3 {
        now += OWN_SLEEP;
        ask(incarnation(u32::MAX, 0), SchedulerActionV1::Status, now).unwrap();
        let _ = ask(incarnation(0, 0), SchedulerActionV1::Leave, now);
    }
    let reply = ask(incarnation(0, 2), register(), now);
    let unfenced = vec![incarnation(0, 1)];
    assert_eq!(reply, Ok(SchedulerReplyV1::RegisteredV2 { started: 1, done: 1, tasks: 1, unfenced }));
    let report = || SchedulerActionV1::ReportV3 { progress: Progress::default(), work: Activity::default() };
    let reply = ask(incarnation(0, 2), report(), now);
    assert!(
        matches!(reply, Ok(SchedulerReplyV1::OrdersV3 { chief: false, saver: Some(0), trained: true, .. })),
        "its former incarnation is not fenced: {reply:?}"
    );
    let fenced = SchedulerActionV1::FencedV2 { dead: incarnation(0, 1), acked: Vec::new() };
    ask(incarnation(0, 2), fenced, now).unwrap();
    let reply = ask(incarnation(0, 2), report(), now);
    assert!(
        matches!(reply, Ok(SchedulerReplyV1::OrdersV3 { chief: true, trained: true, saved: false, .. })),
        "{reply:?}"
    );
    ask(incarnation(0, 2), SchedulerActionV1::Saved, now).unwrap();
    ask(incarnation(0, 2), SchedulerActionV1::Leave, now).unwrap();
    let reply = ask(incarnation(0, 3), register(), now).unwrap();
    assert!(
        matches!(reply, SchedulerReplyV1::RegisteredV2 { done: 0, .. }),
        "what is saved is over: {reply:?}"
    );
}

#[test]
fn golden_bytes() {
    let work = Activity { doing: ActivityKind::Saving, progress: 0x0102_0304_0506_0708 };
    let mut want = vec![1, 0, 0, 0, 16, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    want.extend([8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(control::seal(&work), want);
}
