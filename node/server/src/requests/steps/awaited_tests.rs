//! What the deciding thread says of workers that it has not heard of yet.

use crate::counters::server::ServerCounters;
use crate::limits::INCARNATION_NAMED_MAX;
use crate::requests::steps::awaited;
use crate::requests::steps::awaited::{dead_member, *};
use crate::requests::steps::joins::fence_worker;
use crate::steps::clocks::Joiner;
use crate::steps::step_budget::StepBudgetShare;
use crate::tables::identities::{Identities, IdentityClaim};
use gannet_core::{DATA_PUSHERS, NO_CLOCK, Schema, Store, TableIdentity, TableUid};
use gannet_jobs::failure_detector::WorkerLimits;
use gannet_optim::{Add, Rule};
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::share_pushers::AGGREGATE;
use gannet_wire::sync::{SyncConfig, SyncMode};
use proptest::prelude::*;
use std::sync::Arc;

const SECOND: Duration = Duration::from_secs(1);

const TIMEOUT: Duration = Duration::from_secs(10);

fn open(tables: &mut ServerTables, name: &str, uid: u8) {
    let identity = TableIdentity { uid: TableUid([uid; 16]), server: 0, servers: 1 };
    let schema = Schema { shards: 2, ..Schema::scalar(name, Rule::Add(Add)) };
    assert!(tables.open(schema, IdentityClaim { identity, make_in: 1 }).is_ok());
}

/// A deciding thread with an open table.
fn deciding_thread() -> ServerTables {
    let store = Store::memory();
    let identities = Arc::new(Identities::new(store.clone(), 1, None));
    let mut tables = ServerTables::new(store, identities, 0, ServerCounters::new(1));
    open(&mut tables, "t", 1);
    tables
}

/// The join of a worker is read here.
fn join(tables: &mut ServerTables, rank: u32, incarnation: u64, now: Duration) -> bool {
    join_over(tables, 0, rank, incarnation, now)
}

fn join_over(tables: &mut ServerTables, table: usize, rank: u32, incarnation: u64, now: Duration) -> bool {
    join_as(tables, table, &of_group(rank, 2, false), incarnation, now)
}

fn of_group(rank: u32, workers: u32, strict: bool) -> SyncConfig {
    SyncConfig { rank, workers, mode: SyncMode::Ssp(2), worker_timeout: TIMEOUT, strict }
}

fn join_as(
    tables: &mut ServerTables,
    table: usize,
    config: &SyncConfig,
    incarnation: u64,
    now: Duration,
) -> bool {
    let rank = config.rank;
    let joiner = Joiner { rank, pusher: u64::from(rank) + 1, incarnation, session: rank + 1 };
    let since = tables.detector.clock(now);
    let request = config.request(NO_CLOCK, 0);
    let joined = tables.all[table].join(joiner, &request, StepBudgetShare::default, since).is_ok();
    tables.detector.begin(WorkerIncarnation { rank, incarnation }, WorkerLimits::of(TIMEOUT), now);
    joined
}

fn ask(tables: &mut ServerTables, incarnation: u64, now: Duration) -> Option<DeadMemberV1> {
    ask_for(tables, (1, 2, incarnation), now).expect("no refusal")
}

/// Asks about a rank, a pusher and an incarnation. `Err`: it is refused.
fn ask_for(
    tables: &mut ServerTables,
    (rank, pusher, incarnation): (u32, u64, u64),
    now: Duration,
) -> Result<Option<DeadMemberV1>, Refusal> {
    tables.detector.wake(now);
    let of = AwaitV1 { table: "t".into(), rank, pusher, incarnation };
    dead_member(tables, &of, now).map_err(|failure| match failure {
        RequestFailure::Refused(refusal, _) => refusal,
        _ => panic!("an answer that waits"),
    })
}

/// These live workers are heard, each over the session that keeps step.
fn hear(tables: &ServerTables, live: &[u32], now: Duration) {
    tables.detector.wake(now);
    for worker in live.iter().map(|&rank| WorkerIncarnation { rank, incarnation: 7 }) {
        assert!(tables.detector.hear(worker, now));
        tables.detector.hear_training(worker, now);
    }
}

/// No worker is fenced here that has joined as incarnation 7.
fn are_free(tables: &mut ServerTables, live: &[u32]) -> bool {
    let pushers = tables.all[0].shards.as_ref().map_or(Vec::new(), |shards| shards.pushers());
    let clocks = &tables.all[0].group.as_ref().expect("a group").clocks;
    let is_free = |&rank: &u32| {
        let of_it = |of: &gannet_core::PusherStatus| of.pusher == u64::from(rank) + 1;
        let is_refused = pushers.iter().filter(|of| of_it(of)).any(|of| of.incarnation > 7);
        let is_here = matches!(clocks.ranks[rank as usize].state, ClockState::Here(_));
        is_here && !clocks.is_fenced(rank, 7) && !is_refused
    };
    live.iter().all(is_free)
}

/// A worker that was started again had joined at another server, and its join was still under way to the deciding
/// thread. Others waited for it there, and asked. The group was old by then, so the worker was fenced at once.
#[test]
fn a_worker_whose_join_was_under_way_to_the_deciding_thread_was_fenced() {
    let mut tables = deciding_thread();
    tables.detector.wake(SECOND);
    assert!(join(&mut tables, 0, 7, SECOND) && join(&mut tables, 1, 7, SECOND));
    for second in 2..=100 {
        tables.detector.wake(SECOND * second);
        tables.detector.hear(WorkerIncarnation { rank: 1, incarnation: 7 }, SECOND * second);
    }
    assert_eq!(ask(&mut tables, 8, SECOND * 101), None, "nobody could hear of it here yet");
    assert!(join(&mut tables, 1, 8, SECOND * 102), "it is alive, and its join comes");
}

/// One that died before it had joined here is given up, though this thread never hears of it.
#[test]
fn a_worker_that_had_joined_at_some_threads_and_died_is_given_up() {
    let mut tables = deciding_thread();
    tables.detector.wake(SECOND);
    assert!(join(&mut tables, 0, 7, SECOND));
    let asked = (2..=60).map(|second| (second, ask(&mut tables, 8, SECOND * second)));
    let dead =
        asked.into_iter().find_map(|(second, dead)| dead.map(|dead| (second, dead.rank, dead.incarnation)));
    let (second, rank, incarnation) = dead.expect("it is given up");
    assert!((rank, incarnation) == (1, 8) && second <= 2 * TIMEOUT.as_secs() as u32, "{second}");
}

/// A model has two tables. A dead worker was fenced over the first. The other one's pull of the first waited for the
/// end of its own step, which was behind a request over the second. It was told that it waits for itself, and asked
/// about nobody else: it waited without end.
#[test]
fn a_worker_that_waited_for_itself_over_one_table_was_not_told_for_whom_it_waits_over_another() {
    let mut tables = deciding_thread();
    open(&mut tables, "u", 2);
    tables.detector.wake(SECOND);
    for table in 0..2 {
        assert!(join_over(&mut tables, table, 0, 7, SECOND) && join_over(&mut tables, table, 1, 7, SECOND));
    }
    // The other one has ended its first step over the second table, and not yet over the first.
    tables.all[1].group.as_mut().expect("both keep step").clocks.tick(0, 1);
    assert!(fence_worker(&mut tables, 0, 1, 2, 7, SECOND).is_ok());
    let (introduced, ranks) = (Vec::new(), Vec::new());
    let mut pusher = Pusher { pusher: 1, incarnation: 7, introduced, session: 1, blocked: false, ranks };
    (0..2).for_each(|table| pusher.enter(table, 0));
    let payload = awaited::waits_message(&tables, 0, &pusher).expect("it waits");
    let waits: WaitsV2 = control::open_as(2, &payload).unwrap();
    assert_eq!((waits.table, waits.rank), (1, 1));
}

/// A worker asked for an incarnation that is newer than the live one. After the worker timeout the deciding thread took
/// it for dead. The fence on it, and all before it, ended the live one.
#[test]
fn a_question_about_a_newer_incarnation_ended_the_live_one() {
    let mut tables = deciding_thread();
    hear(&tables, &[], SECOND);
    assert!(join(&mut tables, 0, 7, SECOND) && join(&mut tables, 1, 7, SECOND));
    for second in 2..=100 {
        hear(&tables, &[0, 1], SECOND * second);
        assert_eq!(ask(&mut tables, 9, SECOND * second), None, "after {second} s");
    }
    assert!(are_free(&mut tables, &[0, 1]));
    // The live one dies. Nobody waits for longer than before.
    for second in 101..=112 {
        hear(&tables, &[0], SECOND * second);
    }
    assert!(ask(&mut tables, 9, SECOND * 112).is_some_and(|dead| dead.incarnation == 9));
    assert!(are_free(&mut tables, &[0]) && !are_free(&mut tables, &[1]));
}

/// A worker asked for a rank that has not come, with the pusher of a live worker: the live one was fenced.
#[test]
fn a_question_with_the_pusher_of_another_rank_ended_that_one() {
    let mut tables = deciding_thread();
    hear(&tables, &[], SECOND);
    (0..2).for_each(|rank| assert!(join_as(&mut tables, 0, &of_group(rank, 3, false), 7, SECOND)));
    for second in 2..=100 {
        hear(&tables, &[0, 1], SECOND * second);
        assert_eq!(ask_for(&mut tables, (2, 1, 9), SECOND * second), Ok(None), "after {second} s");
    }
    assert!(are_free(&mut tables, &[0, 1]));
    assert_eq!(ask_for(&mut tables, (2, 3, u64::MAX), SECOND * 100), Err(Refusal::Name), "no worker's start");
}

/// A group that needs every worker: whoever waits for a dead one learns that, and nobody is fenced. It may come back.
#[test]
fn a_dead_worker_of_a_strict_group_is_named_and_not_fenced() {
    let mut tables = deciding_thread();
    hear(&tables, &[], SECOND);
    (0..2).for_each(|rank| assert!(join_as(&mut tables, 0, &of_group(rank, 2, true), 7, SECOND)));
    for second in 2..=12 {
        hear(&tables, &[0], SECOND * second);
    }
    let dead = ask(&mut tables, 7, SECOND * 12).expect("it is dead");
    assert_eq!((dead.rank, dead.pusher, dead.incarnation, dead.silent_ms), (1, 2, 7, 11_000));
    assert!(are_free(&mut tables, &[0, 1]) && tables.waits.fenced.is_empty());
    // Its supervisor has started it again. Others still wait for the old one, at threads that the new one has not
    // reached: once that ended them.
    assert!(join_as(&mut tables, 0, &of_group(1, 2, true), 8, SECOND * 13));
    assert_eq!(ask(&mut tables, 7, SECOND * 14), None, "a newer one is here");
}

/// Any pusher and incarnation, most of them near those that there are.
fn numbers(near: std::ops::Range<u64>) -> impl Strategy<Value = u64> {
    let special = prop_oneof![
        Just(u64::MAX),
        Just(AGGREGATE),
        Just(DATA_PUSHERS | 7),
        Just(INCARNATION_NAMED_MAX),
        any::<u64>()
    ];
    prop_oneof![4 => near, 1 => special]
}

proptest! {
    /// A wild peer asks for whatever it likes. Of four workers one is dead, one has yet to come, and two live.
    #[test]
    fn whatever_is_asked_for_no_live_worker_is_fenced_and_memory_is_bounded(
        asked in prop::collection::vec((0u32..6, numbers(0..5), numbers(5..10), 0u32..4), 1..300),
    ) {
        let (mut tables, mut now) = (deciding_thread(), SECOND);
        hear(&tables, &[], now);
        (0..3).for_each(|rank| assert!(join_as(&mut tables, 0, &of_group(rank, 4, false), 7, now)));
        for (rank, pusher, incarnation, seconds) in asked {
            for _ in 0..seconds {
                now += SECOND;
                hear(&tables, &[0, 1], now);
            }
            if let Ok(Some(dead)) = ask_for(&mut tables, (rank, pusher, incarnation), now) {
                prop_assert!(dead.rank > 1, "{dead:?}");
            }
            prop_assert!(are_free(&mut tables, &[0, 1]), "{rank} {pusher} {incarnation}");
        }
        let pushers = tables.all[0].shards.as_ref().expect("shards").pushers();
        let asked = tables.all[0].group.as_ref().expect("a group").asked.len();
        prop_assert!(asked <= 4 && pushers.len() <= 4, "{asked} {pushers:?}");
        // At most the dead incarnation 7 is fenced: others may come.
        prop_assert!(pushers.iter().all(|of| of.incarnation <= 8), "{pushers:?}");
        // The dead one is given up all the same.
        (1..=11).for_each(|second| hear(&tables, &[0, 1], now + SECOND * second));
        now += SECOND * 11;
        prop_assert!(ask_for(&mut tables, (2, 3, 7), now).is_ok_and(|dead| dead.is_some()));
        prop_assert!(join_as(&mut tables, 0, &of_group(2, 4, false), 8, now), "the next start of the dead one");
        prop_assert!(join_as(&mut tables, 0, &of_group(3, 4, false), 1, now), "the one that has yet to come");
    }
}
