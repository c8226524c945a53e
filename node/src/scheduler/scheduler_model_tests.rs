//! The book beside a map of who trains what, and the answers that matter one by one.

use super::heartbeat_times::HeartbeatTimes;
use super::job_plan::{JobPlan, PlanFile};
use super::job_state::{HeartbeatReply, JobState, JobStateError};
use super::leases::SplitGrant;
use super::member::{Activity, Progress, WorkerIncarnation};
use super::requests::{Scheduler, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV1};
use crate::error::Refusal;
use crate::frames::control;
use crate::limits::{BARRIERS_MAX, JOB_WORKERS_MAX, OWN_SLEEP, PLAN_BYTES_MAX, TEXT_BYTES_MAX, UNFENCED_MAX};
use gannet_transport::limits::FRAME_BYTES_MAX;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

fn plan(workers: u32, tasks: u64) -> JobPlan {
    let file = PlanFile { name: "data".into(), bytes: tasks * 10, print: 1, whole: false };
    let (worker_timeout_ms, settings) = (TIMEOUT.as_millis() as u64, Vec::new());
    JobPlan { workers, files: vec![file], task_bytes: 10, batch: 4, epochs: 1, worker_timeout_ms, settings }
}

fn life(rank: u32, incarnation: u64) -> WorkerIncarnation {
    WorkerIncarnation { rank, incarnation }
}

/// What a worker says that has got so much done.
fn told(progress: u64) -> (Progress, Activity) {
    (Progress::default(), Activity { progress, ..Activity::default() })
}

/// What a step does: worker `rank`'s present life (or, `old`, the one before it) does something.
#[derive(Debug, Clone)]
enum WorkerAction {
    Start(u32),
    Unlink(u32),
    Beat(u32, bool),
    Take(u32, bool),
    Done(u32, bool),
    Leave(u32),
    Saved(u32, bool),
    Fence,
    Pass(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<WorkerAction>> {
    let rank = 0u32..3;
    let step = prop_oneof![
        1 => rank.clone().prop_map(WorkerAction::Start),
        1 => rank.clone().prop_map(WorkerAction::Unlink),
        1 => (rank.clone(), any::<bool>()).prop_map(|(r, old)| WorkerAction::Beat(r, old)),
        4 => (rank.clone(), any::<bool>()).prop_map(|(r, old)| WorkerAction::Take(r, old)),
        4 => (rank.clone(), any::<bool>()).prop_map(|(r, old)| WorkerAction::Done(r, old)),
        1 => rank.clone().prop_map(WorkerAction::Leave),
        1 => (rank, any::<bool>()).prop_map(|(r, old)| WorkerAction::Saved(r, old)),
        2 => Just(WorkerAction::Fence),
        1 => (1u64..30).prop_map(WorkerAction::Pass),
        1 => Just(WorkerAction::Restart),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Beside a map of who trains what: a task is never with two lives of which both could still push, it is done once,
    /// and when somebody goes on long enough all are done. When all is trained one life is told to save, and another
    /// only after the first has left, or is dead and fenced, without having said that it saved.
    #[test]
    fn every_task_is_trained_once_whoever_dies(steps in steps()) {
        let tasks = 6;
        let (mut book, mut now) = (JobState::new(plan(3, tasks), 1).unwrap(), Duration::ZERO);
        let mut heard = HeartbeatTimes::default();
        // For each worker its lives, each with the tasks that it thinks it has.
        let mut incarnations: Vec<Vec<(u64, Vec<u64>)>> = vec![Vec::new(); 3];
        let mut fenced: BTreeSet<WorkerIncarnation> = BTreeSet::new();
        let mut done = vec![0; tasks as usize];
        // Who was told to save, who has left, and who has said that it saved.
        let (mut told_to_save, mut left) = (BTreeSet::new(), BTreeSet::new());
        let mut saved = None;
        let mut progress = 0;
        let which = |incarnations: &Vec<Vec<(u64, Vec<u64>)>>, rank: u32, old: bool| {
            let n = incarnations[rank as usize].len();
            n.checked_sub(if old { 2 } else { 1 }).map(|at| (rank as usize, at))
        };
        for step in steps.into_iter().chain([WorkerAction::Pass(100), WorkerAction::Restart]) {
            match step {
                WorkerAction::Start(rank) => {
                    let incarnation = incarnations[rank as usize].len() as u64 + 1;
                    let there = book.register(&mut heard, life(rank, incarnation), &plan(3, tasks), now);
                    if there.is_ok() {
                        incarnations[rank as usize].push((incarnation, Vec::new()));
                    } else {
                        prop_assert_eq!(there, Err(JobStateError::Taken(rank)));
                    }
                }
                WorkerAction::Unlink(rank) => {
                    if let Some((r, at)) = which(&incarnations, rank, false) {
                        heard.unlink(life(rank, incarnations[r][at].0));
                    }
                }
                WorkerAction::Beat(rank, old) => {
                    if let Some((r, at)) = which(&incarnations, rank, old) {
                        let me = life(rank, incarnations[r][at].0);
                        progress += 1;
                        if let Ok(HeartbeatReply { chief: true, trained: true, .. }) =
                            book.beat(&mut heard, me, told(progress), now)
                        {
                            told_to_save.insert(me);
                            for other in &told_to_save {
                                prop_assert!(
                                    *other == me || fenced.contains(other) || left.contains(other),
                                    "{:?} and {:?} save", other, me
                                );
                            }
                            prop_assert!(saved.is_none_or(|saved| saved == me) && book.unfenced().next().is_none());
                        }
                    }
                }
                WorkerAction::Take(rank, old) => {
                    if let Some((r, at)) = which(&incarnations, rank, old) {
                        let me = life(rank, incarnations[r][at].0);
                        let holding = incarnations[r][at].1.clone();
                        if let Ok(SplitGrant::Task { index, .. }) = book.take(&mut heard, me, &holding, now) {
                            for (other, incarnations) in incarnations.iter().enumerate() {
                                for (incarnation, held) in incarnations {
                                    let them = life(other as u32, *incarnation);
                                    prop_assert!(
                                        them == me || !held.contains(&index) || fenced.contains(&them),
                                        "task {} is with {:?} and {:?}", index, them, me
                                    );
                                }
                            }
                            prop_assert_eq!(done[index as usize], 0);
                            prop_assert!(!fenced.contains(&me));
                            incarnations[r][at].1.push(index);
                        }
                    }
                }
                WorkerAction::Done(rank, old) => {
                    if let Some((r, at)) = which(&incarnations, rank, old)
                        && let Some(&index) = incarnations[r][at].1.first()
                    {
                        let me = life(rank, incarnations[r][at].0);
                        if book.done(me, index, 10).is_ok() {
                            done[index as usize] += 1;
                            prop_assert_eq!(done[index as usize], 1);
                            // The answer was lost: it is said again.
                            prop_assert_eq!(book.done(me, index, 10), Ok(()));
                        }
                        incarnations[r][at].1.remove(0);
                    }
                }
                WorkerAction::Leave(rank) => {
                    if let Some((r, at)) = which(&incarnations, rank, false)
                        && book.leave(life(rank, incarnations[r][at].0)).is_ok()
                    {
                        // Whoever leaves pushes no more.
                        incarnations[r][at].1.clear();
                        left.insert(life(rank, incarnations[r][at].0));
                    }
                }
                WorkerAction::Saved(rank, old) => {
                    if let Some((r, at)) = which(&incarnations, rank, old) {
                        let me = life(rank, incarnations[r][at].0);
                        if told_to_save.contains(&me) && book.saved(me).is_ok() {
                            prop_assert!(saved.is_none_or(|saved| saved == me) && !fenced.contains(&me));
                            saved = Some(me);
                        } else if !told_to_save.contains(&me) && !book.is_trained() {
                            prop_assert!(book.saved(me).is_err());
                        }
                    }
                }
                WorkerAction::Fence => {
                    let dead: Vec<WorkerIncarnation> = book.unfenced().collect();
                    fenced.extend(&dead);
                    for life in dead {
                        prop_assert!(book.fenced(life) && !book.fenced(life));
                    }
                }
                WorkerAction::Pass(seconds) => {
                    now += Duration::from_secs(seconds);
                    book.tick(&mut heard, now);
                }
                WorkerAction::Restart => heard = HeartbeatTimes::of(book.live_lives(), now),
            }
            let counts = book.counts();
            prop_assert_eq!(counts.done, done.iter().sum::<u64>());
            prop_assert_eq!(counts.examples, counts.done * 10);
        }
        // One more worker, after everybody's death, trains what is left.
        now += TIMEOUT * 2;
        book.tick(&mut heard, now);
        let me = life(0, 1000);
        book.register(&mut heard, me, &plan(3, tasks), now).unwrap();
        let orders = book.beat(&mut heard, me, told(0), now).unwrap();
        orders.fence.into_iter().for_each(|life| assert!(book.fenced(life)));
        while let SplitGrant::Task { index, .. } = book.take(&mut heard, me, &[], now).unwrap() {
            book.done(me, index, 10).unwrap();
            done[index as usize] += 1;
        }
        prop_assert_eq!(done, vec![1; tasks as usize]);
        prop_assert!(!book.is_over());
        // And saves, unless somebody did.
        let orders = book.beat(&mut heard, me, told(1), now).unwrap();
        prop_assert_eq!((orders.chief, orders.trained, orders.saved), (saved.is_none(), true, saved.is_some()));
        if orders.chief {
            book.saved(me).unwrap();
        }
        book.leave(me).unwrap();
        prop_assert!(book.is_over());
    }
}

#[test]
fn a_second_process_with_an_index_is_refused_while_the_first_lives() {
    let (mut heard, at) = (HeartbeatTimes::default(), Duration::from_secs(1));
    let mut book = JobState::new(plan(2, 4), 1).unwrap();
    book.register(&mut heard, life(1, 5), &plan(2, 4), at).unwrap();
    let taken = book.register(&mut heard, life(1, 6), &plan(2, 4), at).unwrap_err();
    assert!(taken.to_string().contains("two workers have the same --task-index"), "{taken}");
    // Killed and started again: the link is gone, and nobody waits for the timeout.
    heard.unlink(life(1, 5));
    book.register(&mut heard, life(1, 6), &plan(2, 4), at).unwrap();
    assert_eq!(book.unfenced().collect::<Vec<_>>(), [life(1, 5)]);
    let refused = book.beat(&mut heard, life(1, 5), told(0), at);
    assert_eq!(refused, Err(JobStateError::Fenced(life(1, 5))));
    // The scheduler too: nobody has a link to it before it is heard of again.
    let mut heard = HeartbeatTimes::of(book.live_lives(), at);
    book.register(&mut heard, life(1, 7), &plan(2, 4), at).unwrap();
    let mut heard = HeartbeatTimes::of(book.live_lives(), at);
    book.beat(&mut heard, life(1, 7), told(0), at).unwrap();
    let taken = book.register(&mut heard, life(1, 8), &plan(2, 4), at);
    assert_eq!(taken, Err(JobStateError::Taken(1)));
    let index = book.register(&mut heard, life(2, 1), &plan(2, 4), at);
    assert_eq!(index, Err(JobStateError::Index { rank: 2, workers: 2 }));
    let other = book.register(&mut heard, life(0, 1), &plan(2, 5), at);
    assert!(matches!(other, Err(JobStateError::Differs(_))));
}

#[test]
fn barriers_wait_for_who_is_to_come_and_not_for_the_dead() {
    let (mut heard, at) = (HeartbeatTimes::default(), Duration::ZERO);
    let mut book = JobState::new(plan(3, 4), 1).unwrap();
    for rank in 0..2 {
        book.register(&mut heard, life(rank, 1), &plan(3, 4), at).unwrap();
    }
    assert_eq!(book.meet(&mut heard, life(0, 1), "begin", at), Ok(vec![1, 2]));
    assert_eq!(book.meet(&mut heard, life(1, 1), "begin", at), Ok(vec![2]));
    book.register(&mut heard, life(2, 1), &plan(3, 4), at).unwrap();
    assert_eq!(book.meet(&mut heard, life(0, 1), "begin", at), Ok(vec![2]));
    let later = at + TIMEOUT * 2;
    for rank in 0..2 {
        book.beat(&mut heard, life(rank, 1), told(0), later).unwrap();
    }
    assert_eq!(book.tick(&mut heard, later), [life(2, 1)]);
    assert_eq!(book.meet(&mut heard, life(0, 1), "begin", later), Ok(vec![]));
    for n in 0..BARRIERS_MAX * 3 {
        let name = format!("step {n}");
        assert_eq!(book.meet(&mut heard, life(0, 1), &name, later), Ok(vec![1]));
        assert_eq!(book.meet(&mut heard, life(1, 1), &name, later), Ok(vec![]));
    }
}

/// A scheduler, and what it answers to a life.
struct SchedulerModel(Scheduler, Duration);

impl SchedulerModel {
    fn ask(
        &mut self,
        of: WorkerIncarnation,
        what: SchedulerActionV1,
    ) -> Result<SchedulerReplyV1, (Refusal, String)> {
        self.0.answer(SchedulerRequestV1 { incarnation: of, what }, of.rank, self.1)
    }
}

/// Started again, by hand or by what watches over it, when the others were done sooner.
#[test]
fn whoever_died_and_comes_back_when_all_is_trained_does_not_begin_the_job_again() {
    let register = || SchedulerActionV1::Register { plan: plan(2, 4) };
    let mut asked = SchedulerModel(Scheduler::default(), Duration::ZERO);
    let (whole, dies) = (life(0, 1), life(1, 1));
    asked.ask(whole, register()).unwrap();
    asked.ask(dies, register()).unwrap();
    while asked.1 <= TIMEOUT {
        asked.1 += OWN_SLEEP;
        asked
            .ask(whole, SchedulerActionV1::BeatV2 { told: Progress::default(), work: Activity::default() })
            .unwrap();
    }
    for index in 0..4 {
        asked.ask(whole, SchedulerActionV1::Take { holding: Vec::new() }).unwrap();
        asked.ask(whole, SchedulerActionV1::Done { index, examples: 10 }).unwrap();
    }
    asked.ask(whole, SchedulerActionV1::Saved).unwrap();
    asked.ask(whole, SchedulerActionV1::Leave).unwrap();
    let trained = Ok(SchedulerReplyV1::Registered { started: 1, done: 4, tasks: 4 });
    assert_eq!(asked.ask(life(1, 2), register()), trained);
    assert_eq!(
        asked.ask(life(1, 2), SchedulerActionV1::Take { holding: Vec::new() }),
        Ok(SchedulerReplyV1::Over)
    );
    asked.ask(life(1, 2), SchedulerActionV1::Leave).unwrap();
    // Who was there at the end wants another job.
    let told = asked.ask(life(0, 2), register()).unwrap();
    assert!(matches!(told, SchedulerReplyV1::Registered { done: 0, .. }), "{told:?}");
}

#[test]
fn what_is_said_has_limits() {
    let mut asked = SchedulerModel(Scheduler::default(), Duration::ZERO);
    let me = life(0, 1);
    asked.ask(me, SchedulerActionV1::Register { plan: plan(2, 4) }).unwrap();
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    let told = Progress { acked: vec![(0, 0); 3], ..Progress::default() };
    let too_much = [
        SchedulerActionV1::BeatV2 { told, work: Activity::default() },
        SchedulerActionV1::Take { holding: vec![0; 3] },
        SchedulerActionV1::Meet { name: long.clone() },
        SchedulerActionV1::Fail { why: long },
    ];
    for what in too_much {
        let refused = asked.ask(me, what).unwrap_err();
        assert!(refused.0 == Refusal::Limit && refused.1.contains("are possible"), "{refused:?}");
    }
    assert!(
        asked
            .ask(me, SchedulerActionV1::BeatV2 { told: Progress::default(), work: Activity::default() })
            .is_ok()
    );
}

/// As many workers as a job may have, each with two tasks, a plan as long as may be, a reason as long as may be, and as
/// many dead.
#[test]
fn the_largest_status_is_one_frame() {
    let tasks = u64::from(JOB_WORKERS_MAX) * 4;
    let mut plan = plan(JOB_WORKERS_MAX, tasks);
    plan.files[0].name = "x".repeat(PLAN_BYTES_MAX - 1000);
    let mut asked = SchedulerModel(Scheduler::default(), Duration::ZERO);
    let mut incarnations: Vec<WorkerIncarnation> = (0..JOB_WORKERS_MAX).map(|rank| life(rank, 1)).collect();
    let mut limited = None;
    for round in 0..4 {
        for now in &mut incarnations {
            *now = life(now.rank, round + 2);
            if let Err(refused) = asked.ask(*now, SchedulerActionV1::Register { plan: plan.clone() }) {
                limited = Some(refused);
                *now = life(now.rank, round + 1);
                continue;
            }
            for held in [vec![], vec![0; 1]] {
                asked.ask(*now, SchedulerActionV1::Take { holding: held }).unwrap();
            }
            let told = Progress { acked: vec![(1, 1); 2], waits_for: Some((1, 1)), ..Progress::default() };
            asked.ask(*now, SchedulerActionV1::BeatV2 { told, work: Activity::default() }).unwrap();
            asked.0.closed(now.rank);
        }
    }
    let limited = limited.expect("the dead have a limit");
    assert!(limited.0 == Refusal::Limit && limited.1.contains("not yet fenced"), "{limited:?}");
    asked.ask(incarnations[0], SchedulerActionV1::Fail { why: "x".repeat(TEXT_BYTES_MAX) }).unwrap();
    let status = asked.ask(life(u32::MAX, 0), SchedulerActionV1::Status).unwrap();
    let SchedulerReplyV1::StatusV2(Some(job)) = &status else { panic!("no status") };
    assert_eq!((job.members.len(), job.unfenced.len()), (JOB_WORKERS_MAX as usize, UNFENCED_MAX));
    let bytes = control::seal(&status).len();
    assert!(bytes > 100 << 10 && bytes <= FRAME_BYTES_MAX, "{bytes} bytes");
    let orders = asked
        .ask(
            incarnations[0],
            SchedulerActionV1::BeatV2 { told: Progress::default(), work: Activity::default() },
        )
        .unwrap();
    assert!(control::seal(&orders).len() <= FRAME_BYTES_MAX);
}
