//! The registry beside a job's state, as their thread has them: who is given up, who fences it, and that no split is
//! with two workers that could both push. Workers die, sleep and come back in every order; the registry's server is
//! restarted.

use crate::failure_detector::{FailureDetector, WorkerLimits};
use crate::limits::{FENCE_TURN, UNFENCED_MAX};
use crate::runs::registry::Registry;
use crate::runs::registry_model_tests::{NOW, ask, beat_of, come_at, incarnation};
use crate::scheduler::job_state::JobState;
use gannet_wire::limits::{OWN_SLEEP, RUN_BYTES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::job_plan::{JobPlan, PlanFile};
use gannet_wire::messages::jobs::SplitGrant;
use gannet_wire::messages::member::{Activity, Progress, WorkerIncarnation};
use gannet_wire::messages::runs::{DeadWorker, RunActionV1, RunBeatV2, RunDecision, RunIntent, RunReplyV1};
use gannet_wire::refusal::Refusal;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(20);

fn plan(splits: u64) -> JobPlan {
    let file = PlanFile { name: "data".into(), bytes: splits * 10, print: 1, whole: false };
    let (worker_timeout_ms, settings) = (TIMEOUT.as_millis() as u64, Vec::new());
    JobPlan {
        workers: 3,
        files: vec![file],
        task_bytes: 10,
        batch: 4,
        epochs: 1,
        worker_timeout_ms,
        settings,
    }
}

/// A run with the job that trains it, on a server that may be restarted.
struct World {
    folder: tempfile::TempDir,
    detector: FailureDetector,
    registry: Registry,
    job: JobState,
    now: Duration,
    generation: u32,
    /// What each worker got done.
    progress: BTreeMap<WorkerIncarnation, u64>,
}

impl World {
    fn new(splits: u64) -> World {
        let (folder, detector) = (tempfile::tempdir().unwrap(), FailureDetector::default());
        let registry = Registry::open(Some(folder.path()), &detector, NOW).unwrap();
        let job = JobState::new(plan(splits), 1).unwrap();
        World { folder, detector, registry, job, now: NOW, generation: 1, progress: BTreeMap::new() }
    }

    /// A process comes to the run and its job. Whether it was let in.
    fn come(&mut self, worker: WorkerIncarnation) -> bool {
        self.registry.detector.wake(self.now);
        let Ok((decided, generation, _)) = come_at(&mut self.registry, worker, RunIntent::Auto, 3, self.now)
        else {
            return false;
        };
        assert!(decided != RunDecision::Late);
        self.generation = generation;
        let plan = self.job.plan().clone();
        self.job.register(worker, &plan).unwrap();
        self.report(worker) && self.beat(worker, true).is_some()
    }

    /// A worker reports to the scheduler, and passes on to the registry which dead workers the reply names.
    fn report(&mut self, worker: WorkerIncarnation) -> bool {
        let unfenced = self.job.report(worker, Progress::default()).unwrap().unfenced;
        let bytes = control::seal(&unfenced).len();
        assert!(bytes < RUN_BYTES_MAX, "{bytes} bytes");
        let job = RunActionV1::JobV2 { generation: self.generation, number: 1, unfenced };
        ask(&mut self.registry, worker, job, self.now).is_ok()
    }

    /// A heartbeat. `moves`: the worker has got something done. Returns what it must fence, or nothing if it is
    /// refused.
    fn beat(&mut self, worker: WorkerIncarnation, moves: bool) -> Option<Vec<DeadWorker>> {
        let progress = self.progress.entry(worker).or_default();
        *progress += u64::from(moves);
        let work = Activity { progress: *progress, ..Activity::default() };
        let acked =
            self.job.leases().filter(|(_, of)| of.incarnation == worker).map(|(at, _)| (at, 1)).collect();
        let progress = Some(Progress { acked, ..Progress::default() });
        let beat = RunBeatV2 { batches: 0, timeout_ms: TIMEOUT.as_millis() as u64, work, progress };
        let what = RunActionV1::BeatV2 { generation: self.generation, beat };
        match ask(&mut self.registry, worker, what, self.now) {
            Ok(RunReplyV1::OrdersV2 { fence, .. }) => Some(fence),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    /// A worker has fenced a dead one everywhere, and reports it.
    fn fenced(&mut self, by: WorkerIncarnation, DeadWorker { incarnation, acked }: &DeadWorker) {
        self.job.fenced(*incarnation, acked);
        let what = RunActionV1::Fenced { generation: self.generation, dead: *incarnation };
        ask(&mut self.registry, by, what, self.now).unwrap();
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += SECOND;
            self.detector.wake(self.now);
            self.registry.give_up_dead_workers(self.now).unwrap();
        }
    }

    /// The server is killed and started again on its folder.
    fn restart(&mut self) {
        self.detector = FailureDetector::default();
        self.registry = Registry::open(Some(self.folder.path()), &self.detector, self.now).unwrap();
        self.detector.wake(self.now);
    }

    fn unfenced(&self) -> Vec<WorkerIncarnation> {
        self.registry.runs["r"].unfenced.iter().copied().collect()
    }
}

/// What happens. The number is a rank; `true` means the incarnation before the present one, which was only asleep.
#[derive(Debug, Clone)]
enum Event {
    Come(u32),
    Unlink(u32),
    Beat(u32, bool),
    Take(u32, bool),
    Done(u32, bool),
    /// It fences what it was last told to.
    Fence(u32, bool),
    Leave(u32),
    Pass(u64),
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let who = || (0u32..3, any::<bool>());
    let event = prop_oneof![
        2 => (0u32..3).prop_map(Event::Come),
        1 => (0u32..3).prop_map(Event::Unlink),
        4 => who().prop_map(|(rank, old)| Event::Beat(rank, old)),
        4 => who().prop_map(|(rank, old)| Event::Take(rank, old)),
        4 => who().prop_map(|(rank, old)| Event::Done(rank, old)),
        3 => who().prop_map(|(rank, old)| Event::Fence(rank, old)),
        1 => (0u32..3).prop_map(Event::Leave),
        1 => (1u64..30).prop_map(Event::Pass),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..150)
}

/// What the workers think, beside the world.
#[derive(Default)]
struct Workers {
    /// The incarnations of each rank.
    ranks: [Vec<WorkerIncarnation>; 3],
    held: BTreeMap<WorkerIncarnation, Vec<u64>>,
    told: BTreeMap<WorkerIncarnation, Vec<DeadWorker>>,
    fenced: Vec<WorkerIncarnation>,
    done: BTreeMap<u64, u32>,
    started: u64,
}

impl Workers {
    fn which(&self, rank: u32, old: bool) -> Option<WorkerIncarnation> {
        let all = &self.ranks[rank as usize];
        all.len().checked_sub(if old { 2 } else { 1 }).map(|at| all[at])
    }

    fn run(&mut self, world: &mut World, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Come(rank) => {
                self.started += 1;
                let me = incarnation(rank, self.started);
                if world.come(me) {
                    self.ranks[rank as usize].push(me);
                }
            }
            Event::Unlink(rank) => {
                if let Some(me) = self.which(rank, false) {
                    world.registry.closed(me.rank * 1000 + me.incarnation as u32);
                }
            }
            Event::Beat(rank, old) => {
                if let Some(me) = self.which(rank, old)
                    && let Some(fence) = world.beat(me, true)
                {
                    prop_assert!(!self.fenced.contains(&me), "{:?} is fenced and gets orders", me);
                    prop_assert!(fence.iter().all(|dead| dead.incarnation != me));
                    self.told.insert(me, fence);
                }
            }
            Event::Take(rank, old) => self.take(world, rank, old)?,
            Event::Done(rank, old) => {
                let Some(me) = self.which(rank, old) else { return Ok(()) };
                if let Some(split) = self.held.get_mut(&me).and_then(Vec::pop)
                    && world.job.done(me, split, 10).is_ok()
                {
                    *self.done.entry(split).or_default() += 1;
                    prop_assert_eq!(self.done[&split], 1);
                }
            }
            Event::Fence(rank, old) => {
                let Some(me) = self.which(rank, old) else { return Ok(()) };
                for dead in self.told.remove(&me).unwrap_or_default() {
                    // The servers believe whoever fences. The scheduler and the registry hear only members.
                    self.fenced.push(dead.incarnation);
                    if world.job.is_live(me) && world.beat(me, true).is_some() {
                        world.fenced(me, &dead);
                    }
                }
            }
            Event::Leave(rank) => {
                if let Some(me) = self.which(rank, false)
                    && world.job.leave(me).is_ok()
                {
                    self.held.remove(&me);
                    let what = RunActionV1::Leave { generation: world.generation };
                    let _ = ask(&mut world.registry, me, what, world.now);
                }
            }
            Event::Pass(seconds) => world.pass(seconds),
            Event::Restart => world.restart(),
        }
        Ok(())
    }

    fn take(&mut self, world: &mut World, rank: u32, old: bool) -> Result<(), TestCaseError> {
        let Some(me) = self.which(rank, old) else { return Ok(()) };
        let holding = self.held.get(&me).cloned().unwrap_or_default();
        let Ok(SplitGrant::Task { index, .. }) = world.job.take(me, &holding) else { return Ok(()) };
        for (other, held) in &self.held {
            let may_push = *other != me && held.contains(&index) && !self.fenced.contains(other);
            prop_assert!(!may_push, "split {} is with {:?} and {:?}", index, other, me);
        }
        self.held.entry(me).or_default().push(index);
        Ok(())
    }
}

proptest! {
    /// A split is never with two workers that could both push, and it is done once. Whoever lives long enough learns
    /// whom it must fence, and trains all that is left.
    #[test]
    fn every_split_is_trained_once_whoever_dies_and_whoever_decides_it(events in events()) {
        let (mut world, mut workers) = (World::new(6), Workers::default());
        for event in events {
            workers.run(&mut world, event)?;
        }
        world.restart();
        let me = incarnation(0, 1000);
        let mut turns = 0;
        while !world.come(me) {
            turns += 1;
            prop_assert!(turns < 100, "it is not let in");
            world.pass(1);
        }
        while !world.job.is_trained() {
            turns += 1;
            prop_assert!(turns < 400, "splits are left: {:?}", world.job.counts());
            world.pass(1);
            for dead in world.beat(me, true).expect("it lives") {
                workers.fenced.push(dead.incarnation);
                world.fenced(me, &dead);
            }
            while let SplitGrant::Task { index, .. } = world.job.take(me, &[]).unwrap() {
                world.job.done(me, index, 10).unwrap();
                *workers.done.entry(index).or_default() += 1;
            }
        }
        prop_assert_eq!(workers.done.into_values().collect::<Vec<_>>(), vec![1; 6]);
    }
}

/// Two detectors, of the registry and of the scheduler, gave a worker up at different times. Now the registry decides.
#[test]
fn a_worker_that_beats_without_progress_is_given_up_and_its_split_is_free_when_it_is_fenced() {
    let mut world = World::new(2);
    let (hangs, works) = (incarnation(0, 1), incarnation(1, 2));
    assert!(world.come(hangs) && world.come(works));
    let SplitGrant::Task { index, .. } = world.job.take(hangs, &[]).unwrap() else { panic!("no task") };
    let limit = WorkerLimits::of(TIMEOUT).progress;
    let begin = world.now;
    let dead = loop {
        assert!(world.now < begin + limit + SECOND * 3, "it has held a task for {:?}", world.now - begin);
        world.pass(1);
        if world.beat(hangs, false).is_none() {
            break world.beat(works, true).unwrap();
        }
        world.beat(works, true).unwrap();
    };
    assert!(world.now > begin + limit);
    // Its last report comes with the order, so nobody learns its first batch again.
    assert_eq!(dead, [DeadWorker { incarnation: hangs, acked: vec![(index, 1)] }]);
    assert_ne!(world.job.take(works, &[]), Ok(SplitGrant::Over));
    assert!(!matches!(world.job.take(works, &[1]), Ok(SplitGrant::Task { .. })), "it is not fenced");
    world.fenced(works, &dead[0]);
    let SplitGrant::Task { index: 0, from: 1, .. } = world.job.take(works, &[1]).unwrap() else {
        panic!("its split is free")
    };
    assert!(world.beat(works, true).unwrap().is_empty() && world.unfenced().is_empty());
}

/// A worker whose batches take nearly as long as its limit keeps its place, also when the server sleeps.
#[test]
fn a_worker_that_gets_something_done_within_the_limit_keeps_its_place() {
    let mut world = World::new(4);
    let me = incarnation(0, 1);
    assert!(world.come(me));
    let limit = WorkerLimits::of(TIMEOUT).progress;
    for _ in 0..5 {
        let until = world.now + limit - SECOND * 2;
        while world.now < until {
            world.pass(1);
            assert!(world.beat(me, false).is_some(), "its batch takes long");
        }
        assert!(world.beat(me, true).is_some());
    }
    // While the server slept it could not hear of progress.
    world.now += limit.max(OWN_SLEEP * 4);
    world.pass(1);
    assert!(world.beat(me, false).is_some());
}

/// Once, only the live worker with the lowest index was told to fence a dead one. If that one could not reach a server,
/// or hung, the splits of the dead one stayed where they were.
#[test]
fn fences_go_to_one_worker_after_another() {
    let mut world = World::new(4);
    let (a, b, dead) = (incarnation(0, 1), incarnation(1, 2), incarnation(2, 3));
    assert!(world.come(a) && world.come(b) && world.come(dead));
    let (mut told, begin) = (Vec::new(), world.now);
    while world.now < begin + TIMEOUT + FENCE_TURN * 6 {
        world.pass(1);
        let of_it: Vec<u32> = [a, b]
            .into_iter()
            .filter(|of| !world.beat(*of, true).unwrap().is_empty())
            .map(|of| of.rank)
            .collect();
        assert_eq!(of_it.len(), usize::from(world.now > begin + TIMEOUT), "{of_it:?}");
        told.extend(of_it);
    }
    told.dedup();
    assert!(told.contains(&0) && told.contains(&1) && told.len() >= 6, "each again and again: {told:?}");
    // A restart of the server forgets neither who is dead nor who must be fenced.
    world.restart();
    assert_eq!(world.unfenced(), [dead]);
    assert!(world.beat(dead, true).is_none(), "it stays dead");
    let orders: Vec<_> = [a, b].into_iter().flat_map(|of| world.beat(of, true).unwrap()).collect();
    assert_eq!(orders.len(), 1);
    world.fenced(a, &orders[0]);
    assert!([a, b].into_iter().all(|of| world.beat(of, true).unwrap().is_empty()));
    assert!(world.beat(dead, true).is_none(), "it stays dead when it is fenced");
}

/// A worker that has left is waited for by nobody, and a job's client holds no splits.
#[test]
fn who_has_left_and_the_client_of_a_job_are_not_given_up() {
    let mut world = World::new(4);
    let (stays, leaves, client) =
        (incarnation(0, 1), incarnation(1, 2), incarnation(gannet_wire::messages::runs::CLIENT, 3));
    assert!(world.come(stays) && world.come(leaves));
    come_at(&mut world.registry, client, RunIntent::Auto, 3, NOW).unwrap();
    ask(&mut world.registry, leaves, RunActionV1::Leave { generation: 1 }, world.now).unwrap();
    for _ in 0..200 {
        world.pass(1);
        assert_eq!(world.beat(stays, true).unwrap(), []);
        ask(&mut world.registry, client, beat_of(1, 20_000), world.now).unwrap();
    }
    assert!(world.unfenced().is_empty());
}

/// Processes that die and are started again, one after another, while nobody fences: the dead have a limit.
#[test]
fn the_dead_of_a_run_have_a_limit() {
    let mut world = World::new(4);
    for started in 1..=UNFENCED_MAX as u64 + 1 {
        assert!(world.come(incarnation(0, started)));
        world.registry.closed(started as u32);
    }
    let next = incarnation(0, UNFENCED_MAX as u64 + 2);
    let refused = come_at(&mut world.registry, next, RunIntent::Auto, 3, NOW).unwrap_err();
    assert!(refused.contains("not yet fenced at every server"), "{refused}");
    // The one that is in it may go on, and fences.
    let me = incarnation(0, UNFENCED_MAX as u64 + 1);
    let orders = world.beat(me, true).unwrap();
    assert_eq!(orders.len(), UNFENCED_MAX);
    world.fenced(me, &orders[0]);
    world.registry.closed(me.incarnation as u32);
    assert!(world.come(next));
}

/// A scheduler knew of more dead workers than the registry takes. The registry dropped the others: it took only those
/// that it had already.
#[test]
fn dead_workers_above_the_limit_of_the_registry_were_not_fenced() {
    let (mut world, me) = (World::new(4), incarnation(0, 1 << 20));
    // Two jobs before this one, in which workers died and were started again, while nobody could fence.
    for (rank, most) in [(1, UNFENCED_MAX as u64), (2, 300)] {
        let mut before = JobState::new(plan(4), 1).unwrap();
        (1..=most).for_each(|started| before.register(incarnation(rank, started), &plan(4)).unwrap());
        world.job.inherit(&before);
    }
    let all: BTreeSet<_> = world.job.unfenced().collect();
    assert_eq!(all.len(), UNFENCED_MAX + 300);
    assert!(world.come(me));
    let mut fenced = BTreeSet::new();
    for at_once in [10, 290] {
        assert_eq!(world.unfenced().len(), UNFENCED_MAX, "it has room for more");
        for dead in world.beat(me, true).unwrap().iter().take(at_once) {
            world.fenced(me, dead);
            fenced.insert(dead.incarnation);
        }
        world.report(me);
    }
    fenced.extend(world.unfenced());
    assert!(fenced == all);
}

/// The next generation of a run that its workers left without a word fences them, and so does a new job of it.
#[test]
fn workers_of_the_generation_before_are_fenced_by_the_next() {
    let mut world = World::new(1);
    let (before, other) = (incarnation(0, 1), incarnation(1, 2));
    assert!(world.come(before) && world.come(other));
    ask(&mut world.registry, other, RunActionV1::Leave { generation: 1 }, world.now).unwrap();
    let finish = RunActionV1::Finish { generation: 1, rows: 1, at: 1, missing: Vec::new() };
    ask(&mut world.registry, before, finish, world.now).unwrap();
    let next = come_at(&mut world.registry, incarnation(0, 3), RunIntent::Continue, 3, NOW).unwrap();
    assert_eq!((next.0, next.1), (RunDecision::Continued, 2));
    assert_eq!(world.unfenced(), [before]);
    let (refusal, _) = ask(&mut world.registry, before, beat_of(1, 0), world.now).unwrap_err();
    assert_eq!(refusal, Refusal::Fenced);
}

/// The worker that saved the model was killed after that, before it had left the job. Its supervisor started it again,
/// and it ended with an error: the run is finished.
#[test]
fn a_worker_that_was_killed_after_the_end_of_its_job_is_late_once_and_not_refused() {
    for leaves in [false, true] {
        let mut world = World::new(1);
        let saves = incarnation(0, 1);
        assert!(world.come(saves));
        let finish = RunActionV1::Finish { generation: 1, rows: 1, at: 1, missing: Vec::new() };
        ask(&mut world.registry, saves, finish, world.now).unwrap();
        if leaves {
            ask(&mut world.registry, saves, RunActionV1::Leave { generation: 1 }, world.now).unwrap();
        }
        world.registry.closed(1);
        // However long that takes, and also when the server was restarted.
        world.pass(3_600);
        world.restart();
        let mut come =
            |number| come_at(&mut world.registry, incarnation(0, number), RunIntent::Auto, 3, world.now);
        match leaves {
            true => assert!(come(2).unwrap_err().contains("is finished")),
            false => assert_eq!(come(2), Ok((RunDecision::Late, 1, 1))),
        }
        assert!(come(3).unwrap_err().contains("is finished"), "a user who runs it again is told");
    }
}

/// The first worker of a job died before the registry had heard of the job. The next one has its place, and the
/// scheduler waited for a fence that nobody was asked for.
#[test]
fn a_worker_that_died_before_the_registry_knew_of_its_job_is_fenced() {
    let mut world = World::new(1);
    let (dies, next) = (incarnation(0, 1), incarnation(0, 2));
    come_at(&mut world.registry, dies, RunIntent::Auto, 3, NOW).unwrap();
    world.job.register(dies, &plan(1)).unwrap();
    world.registry.closed(1);
    assert!(world.come(next));
    let orders = world.beat(next, true).unwrap();
    assert_eq!(orders, [DeadWorker { incarnation: dies, acked: Vec::new() }]);
    world.fenced(next, &orders[0]);
    assert!(world.job.unfenced().next().is_none() && world.unfenced().is_empty());
}
