//! The job state beside a map of who trains what, and single replies that matter.

use crate::limits::{BARRIERS_MAX, UNFENCED_MAX};
use crate::scheduler::job_state::{JobState, JobStateError};
use crate::scheduler::requests::Scheduler;
use gannet_transport::limits::FRAME_BYTES_MAX;
use gannet_wire::limits::{JOB_WORKERS_MAX, PLAN_BYTES_MAX, RUN_BYTES_MAX, TEXT_BYTES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::job_plan::{JobPlan, PlanFile};
use gannet_wire::messages::jobs::{
    JobOrders, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV3, SplitGrant,
};
use gannet_wire::messages::member::{Activity, Progress, WorkerIncarnation};
use gannet_wire::refusal::Refusal;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

fn plan(workers: u32, tasks: u64) -> JobPlan {
    let file = PlanFile { name: "data".into(), bytes: tasks * 10, print: 1, whole: false };
    let (worker_timeout_ms, settings) = (TIMEOUT.as_millis() as u64, Vec::new());
    JobPlan { workers, files: vec![file], task_bytes: 10, batch: 4, epochs: 1, worker_timeout_ms, settings }
}

fn worker(rank: u32, incarnation: u64) -> WorkerIncarnation {
    WorkerIncarnation { rank, incarnation }
}

fn report() -> SchedulerActionV1 {
    SchedulerActionV1::ReportV3 { progress: Progress::default(), work: Activity::default() }
}

/// What happens. The number is the rank of a worker; `true` means its incarnation before the present one.
#[derive(Debug, Clone)]
enum WorkerAction {
    Start(u32),
    Report(u32, bool),
    Take(u32, bool),
    Done(u32, bool),
    Leave(u32),
    Saved(u32, bool),
    /// The registry of runs has given this worker up, and another has fenced it.
    Die(u32),
    /// Another worker has fenced the incarnations whose places others have taken.
    Fence,
}

fn actions() -> impl Strategy<Value = Vec<WorkerAction>> {
    let rank = 0u32..3;
    let step = prop_oneof![
        1 => rank.clone().prop_map(WorkerAction::Start),
        1 => (rank.clone(), any::<bool>()).prop_map(|(r, old)| WorkerAction::Report(r, old)),
        4 => (rank.clone(), any::<bool>()).prop_map(|(r, old)| WorkerAction::Take(r, old)),
        4 => (rank.clone(), any::<bool>()).prop_map(|(r, old)| WorkerAction::Done(r, old)),
        1 => rank.clone().prop_map(WorkerAction::Leave),
        1 => (rank.clone(), any::<bool>()).prop_map(|(r, old)| WorkerAction::Saved(r, old)),
        1 => rank.prop_map(WorkerAction::Die),
        2 => Just(WorkerAction::Fence),
    ];
    prop::collection::vec(step, 1..200)
}

/// A job beside a map of who trains what.
struct JobModel {
    job: JobState,
    /// For each worker its incarnations, each with the splits that it thinks it has.
    incarnations: Vec<Vec<(u64, Vec<u64>)>>,
    fenced: BTreeSet<WorkerIncarnation>,
    /// How often each split was done.
    done: Vec<u64>,
    /// The workers that were told to save, those that have left, and the one that has reported that it saved.
    told_to_save: BTreeSet<WorkerIncarnation>,
    left: BTreeSet<WorkerIncarnation>,
    saved: Option<WorkerIncarnation>,
}

impl JobModel {
    fn new(splits: u64) -> JobModel {
        JobModel {
            job: JobState::new(plan(3, splits), 1).unwrap(),
            incarnations: vec![Vec::new(); 3],
            fenced: BTreeSet::new(),
            done: vec![0; splits as usize],
            told_to_save: BTreeSet::new(),
            left: BTreeSet::new(),
            saved: None,
        }
    }

    /// The present incarnation of a worker, or (`old`) the one before it, and what it thinks it has.
    fn which(&mut self, rank: u32, old: bool) -> Option<(WorkerIncarnation, &mut Vec<u64>)> {
        let all = &mut self.incarnations[rank as usize];
        let at = all.len().checked_sub(if old { 2 } else { 1 })?;
        let (incarnation, held) = &mut all[at];
        Some((worker(rank, *incarnation), held))
    }

    fn run(&mut self, action: WorkerAction) -> Result<(), TestCaseError> {
        match action {
            WorkerAction::Start(rank) => self.start(rank)?,
            WorkerAction::Report(rank, old) => self.report(rank, old)?,
            WorkerAction::Take(rank, old) => self.take(rank, old)?,
            WorkerAction::Done(rank, old) => self.done(rank, old)?,
            WorkerAction::Leave(rank) => {
                if let Some((me, _)) = self.which(rank, false)
                    && self.job.leave(me).is_ok()
                {
                    // A worker that has left pushes no more.
                    self.which(rank, false).unwrap().1.clear();
                    self.left.insert(me);
                }
            }
            WorkerAction::Saved(rank, old) => self.save(rank, old)?,
            WorkerAction::Fence => {
                let dead: Vec<WorkerIncarnation> = self.job.unfenced().collect();
                self.fenced.extend(&dead);
                for dead in dead {
                    prop_assert!(self.job.fenced(dead, &[]) && !self.job.fenced(dead, &[]));
                }
            }
            WorkerAction::Die(rank) => {
                if let Some((me, _)) = self.which(rank, false) {
                    self.fenced.insert(me);
                    self.job.fenced(me, &[(7, 1)]);
                    prop_assert!(!self.job.is_live(me));
                }
            }
        }
        let counts = self.job.counts();
        prop_assert_eq!(counts.done, self.done.iter().sum::<u64>());
        prop_assert_eq!(counts.examples, counts.done * 10);
        Ok(())
    }

    fn start(&mut self, rank: u32) -> Result<(), TestCaseError> {
        let all = &mut self.incarnations[rank as usize];
        let (incarnation, plan) = (all.len() as u64 + 1, plan(3, self.done.len() as u64));
        self.job.register(worker(rank, incarnation), &plan).unwrap();
        all.push((incarnation, Vec::new()));
        Ok(())
    }

    fn report(&mut self, rank: u32, old: bool) -> Result<(), TestCaseError> {
        let Some((me, _)) = self.which(rank, old) else { return Ok(()) };
        let reply = self.job.report(me, Progress::default());
        if let Ok(JobOrders { chief: true, trained: true, .. }) = reply {
            self.told_to_save.insert(me);
            for other in &self.told_to_save {
                let may_not = self.fenced.contains(other) || self.left.contains(other);
                prop_assert!(*other == me || may_not, "{:?} and {:?} save", other, me);
            }
            prop_assert!(self.saved.is_none_or(|saved| saved == me) && self.job.unfenced().next().is_none());
        }
        Ok(())
    }

    fn take(&mut self, rank: u32, old: bool) -> Result<(), TestCaseError> {
        let Some((me, held)) = self.which(rank, old) else { return Ok(()) };
        let holding = held.clone();
        let granted = self.job.take(me, &holding);
        let Ok(SplitGrant::Task { index, .. }) = granted else { return Ok(()) };
        for (other, incarnations) in self.incarnations.iter().enumerate() {
            for (incarnation, held) in incarnations {
                let them = worker(other as u32, *incarnation);
                prop_assert!(
                    them == me || !held.contains(&index) || self.fenced.contains(&them),
                    "split {} is with {:?} and {:?}",
                    index,
                    them,
                    me
                );
            }
        }
        prop_assert_eq!(self.done[index as usize], 0);
        prop_assert!(!self.fenced.contains(&me));
        self.which(rank, old).unwrap().1.push(index);
        Ok(())
    }

    fn done(&mut self, rank: u32, old: bool) -> Result<(), TestCaseError> {
        let Some((me, held)) = self.which(rank, old) else { return Ok(()) };
        if held.is_empty() {
            return Ok(());
        }
        let index = held.remove(0);
        if self.job.done(me, index, 10).is_ok() {
            self.done[index as usize] += 1;
            prop_assert_eq!(self.done[index as usize], 1);
            // The reply was lost, so the worker says it again.
            prop_assert_eq!(self.job.done(me, index, 10), Ok(()));
        }
        Ok(())
    }

    fn save(&mut self, rank: u32, old: bool) -> Result<(), TestCaseError> {
        let Some((me, _)) = self.which(rank, old) else { return Ok(()) };
        if self.told_to_save.contains(&me) && self.job.saved(me).is_ok() {
            prop_assert!(self.saved.is_none_or(|saved| saved == me) && !self.fenced.contains(&me));
            self.saved = Some(me);
        } else if !self.told_to_save.contains(&me) && !self.job.is_trained() {
            prop_assert!(self.job.saved(me).is_err());
        }
        Ok(())
    }
}

proptest! {
    /// A split is never with two incarnations that could both still push, and it is done once. When a worker goes on
    /// long enough, all splits are done. When all are trained, one worker is told to save. Another is told so only
    /// after the first has left, or is dead and fenced, and has not said that it saved.
    #[test]
    fn every_task_is_trained_once_whoever_dies(actions in actions()) {
        let mut model = JobModel::new(6);
        for action in actions {
            model.run(action)?;
        }
        // One more worker, which comes after all others are dead and fences them, trains what is left.
        let JobModel { mut job, mut done, saved, .. } = model;
        let me = worker(0, 1000);
        job.register(me, &plan(3, 6)).unwrap();
        let others: Vec<_> = job.unfenced().chain(job.live_incarnations()).filter(|of| *of != me).collect();
        others.into_iter().for_each(|dead| assert!(job.fenced(dead, &[])));
        while let SplitGrant::Task { index, .. } = job.take(me, &[]).unwrap() {
            job.done(me, index, 10).unwrap();
            done[index as usize] += 1;
        }
        prop_assert_eq!(done, vec![1; 6]);
        prop_assert!(!job.has_ended() || saved.is_some());
        // It saves too, unless another worker has saved.
        let reply = job.report(me, Progress::default()).unwrap();
        prop_assert_eq!((reply.chief, reply.trained, reply.saved), (saved.is_none(), true, saved.is_some()));
        if reply.chief {
            job.saved(me).unwrap();
        }
        job.leave(me).unwrap();
        prop_assert!(job.has_ended() && !job.is_live(me));
    }
}

#[test]
fn whoever_takes_the_place_of_a_worker_waits_for_its_splits_until_that_is_fenced() {
    let mut job = JobState::new(plan(2, 1), 1).unwrap();
    job.register(worker(1, 5), &plan(2, 1)).unwrap();
    let first = job.take(worker(1, 5), &[]).unwrap();
    job.register(worker(1, 6), &plan(2, 1)).unwrap();
    assert_eq!(job.unfenced().collect::<Vec<_>>(), [worker(1, 5)]);
    let refused = job.report(worker(1, 5), Progress::default());
    assert_eq!(refused, Err(JobStateError::Fenced(worker(1, 5))));
    assert_eq!(job.register(worker(1, 5), &plan(2, 1)), Err(JobStateError::Fenced(worker(1, 5))));
    assert_eq!(job.take(worker(1, 6), &[]), Ok(SplitGrant::Wait));
    // Whoever fences it says how far it was.
    assert!(job.fenced(worker(1, 5), &[(0, 3)]));
    let SplitGrant::Task { index: 0, task, from: 3 } = job.take(worker(1, 6), &[]).unwrap() else {
        panic!("its split is free, from batch 3")
    };
    assert_eq!(first, SplitGrant::Task { index: 0, task, from: 0 });
    let index = job.register(worker(2, 1), &plan(2, 1));
    assert_eq!(index, Err(JobStateError::Index { rank: 2, workers: 2 }));
    let other = job.register(worker(0, 1), &plan(2, 5));
    assert!(matches!(other, Err(JobStateError::Differs(_))));
}

#[test]
fn barriers_wait_for_who_is_to_come_and_not_for_the_dead() {
    let mut job = JobState::new(plan(3, 4), 1).unwrap();
    for rank in 0..2 {
        job.register(worker(rank, 1), &plan(3, 4)).unwrap();
    }
    assert_eq!(job.meet(worker(0, 1), "begin"), Ok(vec![1, 2]));
    assert_eq!(job.meet(worker(1, 1), "begin"), Ok(vec![2]));
    job.register(worker(2, 1), &plan(3, 4)).unwrap();
    assert_eq!(job.meet(worker(0, 1), "begin"), Ok(vec![2]));
    assert!(job.fenced(worker(2, 1), &[]));
    assert_eq!(job.meet(worker(0, 1), "begin"), Ok(vec![]));
    for n in 0..BARRIERS_MAX * 3 {
        let name = format!("step {n}");
        assert_eq!(job.meet(worker(0, 1), &name), Ok(vec![1]));
        assert_eq!(job.meet(worker(1, 1), &name), Ok(vec![]));
    }
}

/// A scheduler, and its replies to a worker.
struct SchedulerModel(Scheduler, Duration);

impl SchedulerModel {
    fn ask(
        &mut self,
        of: WorkerIncarnation,
        what: SchedulerActionV1,
    ) -> Result<SchedulerReplyV1, (Refusal, String)> {
        self.0.answer(SchedulerRequestV3::of_no_run(of, what), of.rank, self.1)
    }
}

/// A worker is restarted, by hand or by a supervisor, after the others have finished.
#[test]
fn whoever_died_and_comes_back_when_all_is_trained_does_not_begin_the_job_again() {
    let register = || SchedulerActionV1::Register { plan: plan(2, 4) };
    let mut model = SchedulerModel(Scheduler::default(), Duration::ZERO);
    let (whole, dies) = (worker(0, 1), worker(1, 1));
    model.ask(whole, register()).unwrap();
    model.ask(dies, register()).unwrap();
    model.ask(whole, SchedulerActionV1::FencedV2 { dead: dies, acked: Vec::new() }).unwrap();
    model.0.closed(dies.rank);
    for index in 0..4 {
        model.ask(whole, SchedulerActionV1::Take { holding: Vec::new() }).unwrap();
        model.ask(whole, SchedulerActionV1::Done { index, examples: 10 }).unwrap();
    }
    model.ask(whole, SchedulerActionV1::Saved).unwrap();
    model.ask(whole, SchedulerActionV1::Leave).unwrap();
    model.0.closed(whole.rank);
    let unfenced = Vec::new();
    let trained = Ok(SchedulerReplyV1::RegisteredV2 { started: 1, done: 4, tasks: 4, unfenced });
    assert_eq!(model.ask(worker(1, 2), register()), trained);
    assert_eq!(
        model.ask(worker(1, 2), SchedulerActionV1::Take { holding: Vec::new() }),
        Ok(SchedulerReplyV1::Over)
    );
    model.ask(worker(1, 2), SchedulerActionV1::Leave).unwrap();
    model.0.closed(1);
    // A worker that was there at the end begins another job.
    let reply = model.ask(worker(0, 2), register()).unwrap();
    assert!(matches!(reply, SchedulerReplyV1::RegisteredV2 { done: 0, .. }), "{reply:?}");
}

#[test]
fn what_is_said_has_limits() {
    let mut model = SchedulerModel(Scheduler::default(), Duration::ZERO);
    let me = worker(0, 1);
    model.ask(me, SchedulerActionV1::Register { plan: plan(2, 4) }).unwrap();
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    let progress = Progress { acked: vec![(0, 0); 3], ..Progress::default() };
    let too_much = [
        SchedulerActionV1::ReportV3 { progress, work: Activity::default() },
        SchedulerActionV1::FencedV2 { dead: me, acked: vec![(0, 0); 3] },
        SchedulerActionV1::Take { holding: vec![0; 3] },
        SchedulerActionV1::Meet { name: long.clone() },
        SchedulerActionV1::Fail { why: long },
    ];
    for what in too_much {
        let refused = model.ask(me, what).unwrap_err();
        assert!(refused.0 == Refusal::Limit && refused.1.contains("are possible"), "{refused:?}");
    }
    assert!(model.ask(me, report()).is_ok());
}

/// A job at its limits: all workers, each with two tasks, the longest plan and reason, and as many dead.
#[test]
fn the_largest_status_is_one_frame() {
    let tasks = u64::from(JOB_WORKERS_MAX) * 4;
    let mut plan = plan(JOB_WORKERS_MAX, tasks);
    plan.files[0].name = "x".repeat(PLAN_BYTES_MAX - 1000);
    let mut model = SchedulerModel(Scheduler::default(), Duration::ZERO);
    let mut incarnations: Vec<WorkerIncarnation> = (0..JOB_WORKERS_MAX).map(|rank| worker(rank, 1)).collect();
    let mut limited = None;
    for round in 0..4 {
        for now in &mut incarnations {
            *now = worker(now.rank, round + 2);
            if let Err(refused) = model.ask(*now, SchedulerActionV1::Register { plan: plan.clone() }) {
                limited = Some(refused);
                *now = worker(now.rank, round + 1);
                continue;
            }
            for held in [vec![], vec![0; 1]] {
                model.ask(*now, SchedulerActionV1::Take { holding: held }).unwrap();
            }
            let progress =
                Progress { acked: vec![(1, 1); 2], waits_for: Some((1, 1)), ..Progress::default() };
            model.ask(*now, SchedulerActionV1::ReportV3 { progress, work: Activity::default() }).unwrap();
            model.0.closed(now.rank);
        }
    }
    let limited = limited.expect("the dead have a limit");
    assert!(limited.0 == Refusal::Limit && limited.1.contains("not yet fenced"), "{limited:?}");
    model.ask(incarnations[0], SchedulerActionV1::Fail { why: "x".repeat(TEXT_BYTES_MAX) }).unwrap();
    let status = model.ask(worker(u32::MAX, 0), SchedulerActionV1::Status).unwrap();
    let SchedulerReplyV1::StatusV2(Some(job)) = &status else { panic!("no status") };
    assert_eq!((job.members.len(), job.unfenced.len()), (JOB_WORKERS_MAX as usize, UNFENCED_MAX));
    let bytes = control::seal(&status).len();
    assert!(bytes > 100 << 10 && bytes <= FRAME_BYTES_MAX, "{bytes} bytes");
    let reply = model.ask(incarnations[0], report()).unwrap();
    assert!(control::seal(&reply).len() <= FRAME_BYTES_MAX);
}

/// Jobs one after another left dead workers that nobody had fenced. A reply named all of them, and the request with
/// which a worker passes them on was too large for the registry: no worker could join any more.
#[test]
fn a_reply_names_as_many_dead_workers_as_the_registry_takes_and_then_the_others() {
    let plan = plan(3, 1);
    let mut job = JobState::new(plan.clone(), 4).unwrap();
    for rank in 0..3 {
        let mut before = JobState::new(plan.clone(), 1).unwrap();
        (1..=UNFENCED_MAX as u64).for_each(|of| before.register(worker(rank, of), &plan).unwrap());
        job.inherit(&before);
    }
    let (all, mut named) = (job.unfenced().collect::<Vec<_>>(), Vec::new());
    assert_eq!(all.len(), 3 * UNFENCED_MAX);
    for _ in 0..3 {
        let unfenced = job.unfenced_in_a_reply();
        assert!(control::seal(&unfenced).len() + 1024 <= RUN_BYTES_MAX);
        unfenced.iter().for_each(|dead| assert!(job.fenced(*dead, &[])));
        named.extend(unfenced);
    }
    assert!(named == all && job.unfenced().next().is_none());
}
