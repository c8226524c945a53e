//! Workers of a simulated cluster that wait for one that has died or sends nothing. Errors and logs name it,
//! and after a while the others continue without it. Also calls that would wait for themselves.

use crate::{model, stepping};

use gannet_core::{Read, Segments, Store, Write};
use gannet_server::SessionLimits;
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_wire::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{Worker, WorkerConfig, WorkerError};
use model::{schema, start_within};
use std::sync::Arc;
use std::time::Duration;
use stepping::*;

/// With a time limit that suits a test.
fn soon(member: SyncConfig) -> SyncConfig {
    SyncConfig { worker_timeout: Duration::from_secs(40), ..member }
}

/// One of three workers stops in the middle and does not return. The others name it, and continue without it.
fn one_stops(mode: SyncMode, silent: bool) {
    for seed in 0..4 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let servers = Servers::new(&sim, 1 + seed % 2, 2);
        let (addrs, table) = (servers.addrs(), schema("t", 3, 8));
        let mut steppers: Vec<_> = (0..3)
            .map(|rank| Stepper::new(&sim, &addrs, &table, soon(member(rank, 3, mode)), 10, 0))
            .collect();
        if seed == 0 {
            // Pulls of several frames a link. All of them wait before the fence.
            steppers.iter_mut().for_each(|stepper| stepper.keys_max = 40_000);
        }
        let (mut prng, space) = (Prng::new(seed), if seed == 0 { 100_000 } else { 20 });
        let stops = seed as usize % 3;
        let mut named = false;
        let mut parked = None;
        let mut turns = 0;
        while steppers.iter().any(|stepper| !stepper.done) {
            turns += 1;
            assert!(turns < 100_000, "seed {seed}: no end");
            sim.run(Duration::from_millis(prng.below(20)));
            for stepper in &mut steppers {
                let rank = stepper.member.rank as usize;
                if rank == stops && stepper.made == 4 && !stepper.done {
                    stepper.done = true;
                    parked = Some(stepper.worker.counters());
                }
                if rank == stops && stepper.done {
                    continue;
                }
                named |= stepper.worker.waiting_for().is_some_and(|waits| waits.rank as usize == stops);
                if stepper.done {
                    stepper.worker.poll().unwrap();
                    continue;
                }
                if let Some((cut, _, pull)) = stepper.turn(&mut prng, space).unwrap() {
                    let values = vec![1.0; cut.keys().len() * 3];
                    stepper.push(&cut, pull.id, values).unwrap();
                    stepper.done = stepper.made == stepper.steps;
                }
            }
            if !silent && parked.take().is_some() {
                let stopped = steppers.remove(stops);
                drop(stopped);
            }
        }
        assert!(named, "seed {seed}: the worker that stopped was not named");
        if silent {
            // It continues, and learns that it was fenced.
            let Stepper { worker, table, .. } = &mut steppers[stops];
            let woken = (0..200).find_map(|_| {
                sim.run(Duration::from_millis(10));
                worker.poll().and_then(|_| worker.tick(*table)).err()
            });
            let error = woken.expect("a fenced worker that wakes is refused");
            assert!(
                matches!(&error, WorkerError::Refused { text, .. } if text.contains("start it again")),
                "seed {seed}: {error}"
            );
        }
    }
}

#[test]
fn a_worker_that_dies_is_named_and_not_waited_for_under_ssp() {
    one_stops(SyncMode::Ssp(2), false);
}

#[test]
fn nor_is_one_that_is_silent_under_ssp() {
    one_stops(SyncMode::Ssp(2), true);
}

#[test]
fn a_worker_that_dies_is_fenced_under_bsp() {
    one_stops(SyncMode::Bsp(StepReduce { aggregate: 3, merge: Merge::Mean }), false);
}

#[test]
fn so_is_one_that_is_silent_under_bsp() {
    one_stops(SyncMode::Bsp(StepReduce { aggregate: 3, merge: Merge::Mean }), true);
}

/// One of four workers stops. At some time around the report of that, another one is killed or hangs: it may have been
/// told to fence the first, and have done so at some threads. A server is killed and restarted then, too, with other
/// threads. The two that are left must go on.
fn two_are_left(mode: SyncMode) {
    let (mut all, mut kills) = (0, 0);
    for seed in seeds_from(100, 12) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let mut servers = Servers::new(&sim, 1 + seed % 3, 1 + seed as usize % 3);
        let (addrs, table) = (servers.addrs(), schema("t", 3, 8));
        let stepper = |rank| Stepper::new(&sim, &addrs, &table, soon(member(rank, 4, mode)), 10, 0);
        let mut steppers: Vec<_> = (0..4).map(stepper).collect();
        let mut prng = Prng::new(seed);
        let stops = prng.below(4) as u32;
        let killed = (stops + 1 + prng.below(3) as u32) % 4;
        // The time limit is 40 s. The thread that waits looks at it once a second.
        let killed_after = Duration::from_millis(39_500 + prng.below(2_500));
        let restarted_after = Duration::from_millis(30_000 + prng.below(30_000));
        let (mut stopped_at, mut is_killed, mut is_restarted, mut turns) = (None, false, false, 0);
        while steppers.iter().any(|stepper| !stepper.done) {
            turns += 1;
            let state: Vec<_> = if turns < 200_000 {
                Vec::new()
            } else {
                steppers.iter().map(|s| (s.member.rank, s.done, s.place())).collect()
            };
            assert!(
                turns < 200_000,
                "seed {seed}: no end: {stops} stops, {killed} is killed {is_killed}: {state:?}"
            );
            sim.run(Duration::from_millis(prng.below(20)));
            let since = stopped_at.map_or(Duration::ZERO, |at| sim.now().saturating_sub(at));
            if since > killed_after && !std::mem::replace(&mut is_killed, true) {
                let hangs = seed % 2 == 1;
                steppers.retain(|stepper| hangs || stepper.member.rank != killed);
            }
            if since > restarted_after && !std::mem::replace(&mut is_restarted, true) {
                servers.kill_one(&sim, seed as usize, Some(1 + prng.below(4) as usize));
            }
            for stepper in &mut steppers {
                let is_stopped = stepper.member.rank == stops && stepper.made == 4;
                if is_stopped && !stepper.done {
                    (stepper.done, stopped_at) = (true, Some(sim.now()));
                }
                let hangs = is_killed && stepper.member.rank == killed;
                stepper.done |= hangs;
                if is_stopped || hangs {
                    continue;
                }
                if stepper.done {
                    stepper.worker.poll().unwrap();
                    stepper.leave_if_acked();
                    continue;
                }
                if let Some((cut, _, pull)) = stepper.turn(&mut prng, 20).unwrap() {
                    let values = vec![1.0; cut.keys().len() * 3];
                    stepper.push(&cut, pull.id, values).unwrap();
                    stepper.done = stepper.made == stepper.steps;
                }
            }
        }
        // Two time limits, if the second one hangs, and the restart of a server.
        let took = stopped_at.map_or(Duration::ZERO, |at| sim.now().saturating_sub(at));
        assert!(took < Duration::from_secs(130), "seed {seed}: the others went on after {took:?}");
        (all, kills) = (all + 1, kills + u64::from(is_killed));
    }
    assert!(!are_all() || kills * 2 > all, "{kills} of {all} seeds killed a worker before the end");
}

#[test]
fn the_worker_that_is_told_of_a_dead_one_may_die_too() {
    two_are_left(SyncMode::Ssp(2));
    two_are_left(SyncMode::Bsp(StepReduce { aggregate: 4, merge: Merge::Mean }));
}

/// All workers learn a batch that takes longer than the time limit, and none waits for another. Once the servers gave
/// all of them up.
#[test]
fn workers_for_which_nobody_waits_keep_their_places() {
    for mode in [SyncMode::Ssp(1), SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Mean })] {
        let sim = Sim::new(1, Faults::none());
        let servers = Servers::new(&sim, 2, 2);
        let stepper = |rank| {
            Stepper::new(&sim, &servers.addrs(), &schema("t", 3, 8), soon(member(rank, 2, mode)), 4, 0)
        };
        let mut steppers = [stepper(0), stepper(1)];
        let (mut prng, mut turns) = (Prng::new(1), 0);
        while steppers.iter().any(|stepper| stepper.made < stepper.steps) {
            turns += 1;
            assert!(turns < 100_000, "no end");
            for stepper in &mut steppers {
                sim.run(Duration::from_millis(1));
                if stepper.made == stepper.steps {
                    stepper.worker.poll().unwrap();
                } else if let Some((cut, _, pull)) = stepper.turn(&mut prng, 20).unwrap() {
                    let values = vec![1.0; cut.keys().len() * 3];
                    stepper.push(&cut, pull.id, values).unwrap();
                }
            }
            // Both have their rows, and learn for 70 s.
            if turns == 50 {
                sim.run(Duration::from_secs(70));
            }
        }
    }
}

/// A pull of the next steps waited for a worker that never came. The push behind it stayed in the receive buffer, and
/// the fence behind both was never read: the only worker waited without end.
#[test]
fn a_push_behind_a_pull_that_waits_kept_a_server_from_reading_the_fence() {
    for seed in seeds_from(0, 8) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let servers = Servers::new(&sim, 1 + seed % 2, 2);
        // The other worker never joins.
        let of_two = soon(member(0, 2, SyncMode::Ssp(2)));
        let mut stepper = Stepper::new(&sim, &servers.addrs(), &schema("t", 3, 8), of_two, 10, 1 + seed % 2);
        let (mut prng, mut turns) = (Prng::new(seed), 0);
        while stepper.made < stepper.steps {
            turns += 1;
            assert!(turns < 100_000, "seed {seed}: no end: {:?}", stepper.place());
            sim.run(Duration::from_millis(prng.below(20)));
            if let Some((cut, _, pull)) = stepper.turn(&mut prng, 20).unwrap() {
                let values = vec![1.0; cut.keys().len() * 3];
                stepper.push(&cut, pull.id, values).unwrap();
            }
        }
    }
}

/// Requests behind a waiting push are ahead of the fence for which that push waits. The server must read the
/// fence all the same.
#[test]
fn a_fence_is_heard_behind_requests_that_wait() {
    let sim = Sim::new(1, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 2);
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([addr], 1, 1)).unwrap();
    let table = worker.open_table(&schema("t", 1, 4)).unwrap();
    // The other worker never joins.
    let bsp = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });
    worker.join(table, soon(member(0, 2, bsp))).unwrap();
    let cut = Arc::new(worker.cut(table, &[1, 2]));
    let values: Vec<f32> = cut.keys().iter().map(|&key| key as f32).collect();
    worker.begin_push(table, cut, Write::Gradient, values, None, 1).unwrap();
    worker.tick(table).unwrap();
    assert_eq!(worker.status(table).unwrap().stats.rows, 2);
    let mut rows = 0;
    worker.scan(table, |keys, _| rows += keys.len()).unwrap();
    assert_eq!(rows, 2);
}

/// Once, requests that waited for a dead worker used all credit, so the fence for which they waited was never sent.
#[test]
fn a_fence_goes_out_though_what_waits_for_it_takes_all_credit() {
    let sim = Sim::new(1, Faults::none());
    let limits = SessionLimits { credit_frames: 8, ..SessionLimits::default() };
    let (_, addr) = start_within(&sim, "sim:0", &Store::memory(), 1, limits);
    let bsp = SyncMode::Bsp(StepReduce { aggregate: 3, merge: Merge::Sum });
    // The other workers never join.
    let of_three = soon(member(0, 3, bsp));
    let mut stepper = Stepper::new(&sim, &[addr], &schema("t", 1, 4), of_three, 0, 0);
    let (worker, table) = (&mut stepper.worker, stepper.table);
    let cut = Arc::new(worker.cut(table, &[1, 2, 3]));
    for seq in 1..=4 {
        worker.begin_push(table, cut.clone(), Write::Gradient, vec![1.0; 3], None, seq).unwrap();
    }
    worker.tick(table).unwrap();
    let read = (Read::Weights, Segments::ALL);
    let mut pull = || worker.begin_pull_ahead(table, cut.clone(), read, Vec::new(), true, 0).unwrap();
    let last = [pull(), pull(), pull(), pull(), pull()][4];
    let mut turns = 0;
    while !worker.is_pulled(last) {
        turns += 1;
        assert!(turns < 20_000, "no end: {:?}", worker.waiting_for());
        sim.run(Duration::from_millis(20));
        worker.poll().unwrap();
    }
    assert_eq!(worker.finish_pull(last).unwrap().values, [4.0; 3]);
}

/// Once, a single worker waited for itself, because its push used the only request that it could have in flight.
#[test]
fn a_credit_that_no_synchronous_step_can_do_with_is_refused_by_name() {
    let sim = Sim::new(1, Faults::none());
    let limits = SessionLimits { credit_frames: 3, ..SessionLimits::default() };
    let (_, addr) = start_within(&sim, "sim:0", &Store::memory(), 1, limits);
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([addr], 1, 1)).unwrap();
    let table = worker.open_table(&schema("t", 1, 4)).unwrap();
    let bsp = SyncMode::Bsp(StepReduce { aggregate: 1, merge: Merge::Sum });
    let refused = worker.join(table, member(0, 1, bsp)).unwrap_err().to_string();
    assert!(refused.contains("--credit-requests 4 or more") && refused.contains("sim:"), "{refused}");
}

/// Once, a server did not read a fence that came after a pull, because it had no memory for the pull's keys.
/// All workers waited without end for a dead one.
#[test]
fn a_fence_is_read_when_there_is_no_memory_for_the_pulls_before_it() {
    for (keys_max, ends) in [(30, true), (3_000_000, false)] {
        let sim = Sim::new(1, Faults::none());
        let limits = SessionLimits { keyset_bytes: 0, ..SessionLimits::default() };
        let (_, addr) = start_within(&sim, "sim:0", &Store::memory(), 1, limits);
        let bsp = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });
        // The other worker never joins.
        let mut stepper = Stepper::new(&sim, &[addr], &schema("t", 1, 4), soon(member(0, 2, bsp)), 3, 0);
        stepper.keys_max = keys_max;
        let (mut prng, mut turns) = (Prng::new(3), 0);
        let refused = loop {
            turns += 1;
            assert!(turns < 20_000, "no end: {:?}", stepper.place());
            sim.run(Duration::from_millis(20));
            match stepper.turn(&mut prng, 4_000_000) {
                Ok(Some((cut, _, pull))) => {
                    stepper.push(&cut, pull.id, vec![1.0; cut.keys().len()]).unwrap();
                    if stepper.made == stepper.steps {
                        break None;
                    }
                }
                Ok(None) => {}
                Err(error) => break Some(error.to_string()),
            }
        };
        match refused {
            None => assert!(ends, "pulls beyond what every session may put aside are refused"),
            Some(why) => assert!(!ends && why.contains("--keyset-memory"), "{why}"),
        }
    }
}

#[test]
fn calls_that_would_wait_for_ever_are_errors() {
    let sim = Sim::new(1, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 1);
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([addr], 1, 1)).unwrap();
    let call = |result: Result<(), WorkerError>, part: &str| {
        assert!(matches!(&result, Err(WorkerError::Call(text)) if text.contains(part)), "{part}: {result:?}");
    };
    let synchronous = worker.open_table(&schema("a", 1, 4)).unwrap();
    let bound = worker.open_table(&schema("b", 1, 4)).unwrap();
    call(worker.tick(synchronous).map(drop), "has not joined");
    let bsp = SyncMode::Bsp(StepReduce { aggregate: 1, merge: Merge::Mean });
    call(worker.join(synchronous, member(2, 2, bsp)).map(drop), "worker 2 of 2");
    assert_eq!(worker.join(synchronous, member(0, 1, bsp)).unwrap(), 0);
    call(worker.join(synchronous, member(0, 1, bsp)).map(drop), "joined before");
    assert_eq!(worker.join(bound, member(0, 1, SyncMode::Ssp(1))).unwrap(), 0);
    let cut = Arc::new(worker.cut(bound, &[1, 2]));
    let ahead = worker.begin_pull_ahead(bound, cut, (Read::Weights, Segments::ALL), Vec::new(), false, 2);
    call(ahead.map(drop), "wait for that worker");
    let cut = Arc::new(worker.cut(synchronous, &[1, 2]));
    let values: Vec<f32> = cut.keys().iter().map(|&key| key as f32).collect();
    worker.begin_push(synchronous, cut, Write::Gradient, values, None, 1).unwrap();
    call(worker.drain(), "call tick first");
    call(worker.pull(bound, &[1], Read::Weights, &mut [0.0]), "call tick first");
    call(worker.status(bound).map(drop), "call tick first");
    assert_eq!(worker.tick(synchronous).unwrap(), 1);
    worker.drain().unwrap();
    let mut out = [0.0; 2];
    worker.pull(synchronous, &[1, 2], Read::Weights, &mut out).unwrap();
    assert_eq!((out, worker.clock(synchronous), worker.clock(bound)), ([1.0, 2.0], Some(1), Some(0)));
    worker.leave(synchronous).unwrap();
    assert_eq!(worker.clock(synchronous), None);
}

/// A worker that joins over several tables begins at one clock in all of them. A step over several tables is
/// made either by all workers or by none.
#[test]
fn tables_of_one_step_begin_at_one_clock() {
    let sim = Sim::new(1, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 2);
    let connect = |pusher| Worker::connect(sim.clone(), WorkerConfig::new([&addr], pusher, 1)).unwrap();
    let mut first = connect(1);
    let tables = ["a", "b", "c"].map(|name| first.open_table(&schema(name, 1, 4)).unwrap());
    let some = SyncMode::Bsp(StepReduce { aggregate: 1, merge: Merge::Mean });
    let refused = first.join_all(&tables, member(0, 2, some));
    assert!(
        matches!(&refused, Err(WorkerError::Call(text)) if text.contains("need all 2 workers, not 1")),
        "{refused:?}"
    );
    assert_eq!(first.join_all(&tables, member(0, 2, SyncMode::Asp)).unwrap(), 0);
    for (table, ticks) in tables.into_iter().zip([3, 1, 2]) {
        let clocks: Vec<u64> = (0..ticks).map(|_| first.tick(table).unwrap()).collect();
        assert_eq!(clocks.last(), Some(&ticks));
    }
    // The reply to a later request shows that the server has read the ticks.
    first.status(tables[0]).unwrap();
    let mut second = connect(2);
    let tables = ["a", "b", "c"].map(|name| second.open_table(&schema(name, 1, 4)).unwrap());
    assert_eq!(second.join_all(&tables, member(1, 2, SyncMode::Asp)).unwrap(), 3);
    assert_eq!(tables.map(|table| second.clock(table)), [Some(3); 3]);
}
