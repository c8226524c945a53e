//! What the deciding thread says of workers that it has not heard of yet.

use crate::counters::server::ServerCounters;
use crate::steps::clocks::Joiner;
use crate::steps::step_budget::StepBudgetShare;
use crate::tables::identities::{Identities, IdentityClaim};
use crate::thread::heartbeats::*;
use gannet_core::{NO_CLOCK, Schema, Store, TableIdentity, TableUid};
use gannet_jobs::failure_detector::WorkerLimits;
use gannet_optim::{Add, Rule};
use gannet_wire::sync::{SyncConfig, SyncMode};
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
    let mode = SyncMode::Ssp(2);
    let config = SyncConfig { rank, workers: 2, mode, worker_timeout: TIMEOUT, strict: false };
    let joiner = Joiner { rank, pusher: u64::from(rank) + 1, incarnation, session: rank + 1 };
    let since = tables.detector.clock(now);
    let request = config.request(NO_CLOCK, 0);
    let joined = tables.all[table].join(joiner, &request, StepBudgetShare::default, since).is_ok();
    tables.detector.begin(WorkerIncarnation { rank, incarnation }, WorkerLimits::of(TIMEOUT), now);
    joined
}

fn ask(tables: &mut ServerTables, incarnation: u64, now: Duration) -> Option<DeadMemberV1> {
    tables.detector.wake(now);
    let of = AwaitV1 { table: "t".into(), rank: 1, pusher: 2, incarnation };
    tables.dead_member(&of, now).ok().expect("no refusal")
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
    assert!(tables.fence_worker(0, 1, (2, 7), SECOND).is_ok());
    let (introduced, ranks) = (Vec::new(), Vec::new());
    let mut pusher = Pusher { pusher: 1, incarnation: 7, introduced, session: 1, blocked: false, ranks };
    (0..2).for_each(|table| pusher.enter(table, 0));
    let payload = tables.waits(0, &pusher).expect("it waits");
    let waits: WaitsV2 = control::open_as(2, &payload).unwrap();
    assert_eq!((waits.table, waits.rank), (1, 1));
}
