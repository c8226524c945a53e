//! Workers that keep step (SSP, BSP) in a simulated cluster. Links break, servers are killed and restarted, and
//! workers have different speeds. No pull may exceed the bound, each must see exactly what it may, synchronous
//! rows must equal the oracle's bit for bit, and every run must end.

use crate::{model, stepping};

use gannet_core::Read;
use gannet_sim::{Faults, Sim};
use gannet_wire::{Merge, StepReduce, SyncMode};
use model::schema;
use std::collections::BTreeMap;
use stepping::*;

fn bounded(world: impl Fn(u64, Faults) -> Sim, kills: Kills) -> Outcome {
    let mut all = Outcome { lost: 0, near: 0, stale: vec![0; 65], late_rows: 0 };
    for seed in 0..seeds(8) {
        let _seed = Seed::begin(seed);
        let sim = world(seed, faults(seed));
        let (workers, bound) = (2 + seed as u32 % 3, [0, 1, 3][seed as usize % 3]);
        let mut servers = Servers::new(&sim, 1 + seed % 2, 1 + seed as usize / 2 % 2);
        let addrs = servers.addrs();
        let table = schema("t", workers, 8);
        let mut steppers: Vec<_> = (0..workers)
            .map(|rank| {
                let member = member(rank, workers, SyncMode::Ssp(bound));
                let ahead = u64::from(bound).min(u64::from(rank) % 2);
                Stepper::new(&sim, &addrs, &table, member, 15 + u64::from(rank), ahead)
            })
            .collect();
        let mut pushed = Pushed::default();
        run(seed, &sim, &mut servers, &mut steppers, 40, kills, |rank, clock, cut, pull, _| {
            let lowest = pull.lowest.expect("a pull of a group says how far it is");
            assert!(
                clock <= lowest + u64::from(bound),
                "seed {seed}: a pull at {clock} saw {lowest}, the bound is {bound}"
            );
            for (key, row) in cut.keys().iter().zip(pull.values.chunks(workers as usize)) {
                for (of, &count) in (0..).zip(row) {
                    let (least, most) = (pushed.count(*key, of, lowest), pushed.count(*key, of, u64::MAX));
                    assert!(
                        least <= count && count <= most,
                        "seed {seed} worker {rank} at {clock}, lowest {lowest}: key {key} has {count} of worker {of}, {least} to {most}"
                    );
                }
            }
            let one =
                |_: &u64| (0..workers).map(|of| if of == rank { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
            let rows: Vec<(u64, Vec<f32>)> = cut.keys().iter().map(|key| (*key, one(key))).collect();
            let values = rows.iter().flat_map(|(_, row)| row.clone()).collect();
            pushed.0.insert((rank, clock), rows);
            values
        });
        let keys: Vec<u64> = (0..40).map(|n| n * 0x1_0000_0001).collect();
        let mut out = vec![0.0; keys.len() * workers as usize];
        let stepper = &mut steppers[0];
        stepper.worker.pull(stepper.table, &keys, Read::Weights, &mut out).unwrap();
        for (key, row) in keys.iter().zip(out.chunks(workers as usize)) {
            let want: Vec<f32> = (0..workers).map(|of| pushed.count(*key, of, u64::MAX)).collect();
            assert_eq!(row, want, "seed {seed}: key {key}");
        }
        let of_this = sum_up(&steppers);
        all.lost += of_this.lost;
        all.near += of_this.near;
        all.stale.iter_mut().zip(of_this.stale).for_each(|(sum, pulls)| *sum += pulls);
    }
    assert!(all.stale[4..].iter().all(|&pulls| pulls == 0), "{:?}", all.stale);
    assert!(
        all.stale[0] > 0 && all.stale[1] > 0 && all.stale[3] > 0,
        "{:?}: the test shows nothing",
        all.stale
    );
    all
}

#[test]
fn no_pull_exceeds_the_bound_and_each_sees_what_it_must() {
    assert!(bounded(Sim::new, Kills::None).lost > 10);
}

#[test]
fn nor_where_servers_are_killed() {
    assert!(bounded(Sim::new, Kills::Alike).lost > 30);
}

#[test]
fn nor_where_rows_are_read_in_images() {
    assert!(bounded(|seed, faults| Sim::new(seed, faults).near(), Kills::Alike).near > 1_000);
}

#[test]
fn nor_where_rows_are_read_over_rdma() {
    let read = bounded(|seed, faults| Sim::new(seed, faults).far(), Kills::Alike).near;
    assert!(read > 500, "{read} rows were read: the test shows nothing");
}

/// Once, a restart with another number of threads ended every worker.
#[test]
fn nor_where_servers_come_back_with_other_threads() {
    assert!(bounded(Sim::new, Kills::OtherThreads).lost > 30);
}

#[test]
fn nor_where_they_do_and_rows_are_read_in_images() {
    let world = |seed, faults| Sim::new(seed, faults).near();
    assert!(bounded(world, Kills::OtherThreads).near > 1_000);
}

/// The rows of a synchronous table. After step c the servers must have the oracle's rows of steps 0 to c.
struct Oracle {
    rows: BTreeMap<u64, Vec<f32>>,
    applied: u64,
}

impl Oracle {
    /// Applies the steps below `clock`, which all workers have made.
    fn advance(&mut self, clock: u64, pushed: &Pushed, workers: u32, merge: Merge, floats: usize) {
        while self.applied < clock {
            let mut sums = BTreeMap::<u64, (Vec<f32>, f32)>::new();
            for rank in 0..workers {
                for (key, row) in pushed.0.get(&(rank, self.applied)).into_iter().flatten() {
                    match sums.get_mut(key) {
                        None => drop(sums.insert(*key, (row.clone(), 1.0))),
                        Some((sum, ranks)) => {
                            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                            *ranks += 1.0;
                        }
                    }
                }
            }
            for (key, (sum, ranks)) in sums {
                let by = if merge == Merge::Mean { ranks } else { 1.0 };
                let row = self.rows.entry(key).or_insert_with(|| vec![0.0; floats]);
                row.iter_mut().zip(sum).for_each(|(row, sum)| *row += sum / by);
            }
            self.applied += 1;
        }
    }
}

fn together(world: impl Fn(u64, Faults) -> Sim, kills: Kills) -> Outcome {
    const FLOATS: usize = 3;
    let mut all = Outcome { lost: 0, near: 0, stale: vec![0; 65], late_rows: 0 };
    // With seed 413, both workers lose their links while one has made a step and the other has not.
    for seed in (100..100 + seeds(8)).chain([413]) {
        let _seed = Seed::begin(seed);
        let sim = world(seed, faults(seed));
        let workers = 1 + seed as u32 % 4;
        let merge = [Merge::Sum, Merge::Mean][seed as usize % 2];
        let mut servers = Servers::new(&sim, 1 + seed % 2, 1 + seed as usize / 2 % 2);
        let addrs = servers.addrs();
        let table = schema("t", FLOATS as u32, 8);
        let mode = SyncMode::Bsp(StepReduce { aggregate: workers, merge });
        let mut steppers: Vec<_> = (0..workers)
            .map(|rank| Stepper::new(&sim, &addrs, &table, member(rank, workers, mode), 12, 0))
            .collect();
        let mut pushed = Pushed::default();
        let mut oracle = Oracle { rows: BTreeMap::new(), applied: 0 };
        let zero = vec![0.0; FLOATS];
        run(seed, &sim, &mut servers, &mut steppers, 25, kills, |rank, clock, cut, pull, prng| {
            assert_eq!(pull.lowest, Some(clock), "seed {seed}");
            oracle.advance(clock, &pushed, workers, merge, FLOATS);
            for (key, row) in cut.keys().iter().zip(pull.values.chunks(FLOATS)) {
                let want = oracle.rows.get(key).unwrap_or(&zero);
                let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(
                    bits(row),
                    bits(want),
                    "seed {seed} worker {rank} step {clock}: {row:?}, {want:?}"
                );
            }
            let mut value = || (prng.below(1 << 20) as f32 - 5e5) * 1e-4;
            let rows: Vec<(u64, Vec<f32>)> =
                cut.keys().iter().map(|key| (*key, (0..FLOATS).map(|_| value()).collect())).collect();
            let values = rows.iter().flat_map(|(_, row)| row.clone()).collect();
            pushed.0.insert((rank, clock), rows);
            values
        });
        oracle.advance(12, &pushed, workers, merge, FLOATS);
        let keys: Vec<u64> = (0..25).map(|n| n * 0x1_0000_0001).collect();
        let mut out = vec![0.0; keys.len() * FLOATS];
        let stepper = &mut steppers[0];
        stepper.worker.pull(stepper.table, &keys, Read::Weights, &mut out).unwrap();
        for (key, row) in keys.iter().zip(out.chunks(FLOATS)) {
            assert_eq!(row, oracle.rows.get(key).unwrap_or(&zero), "seed {seed}: key {key} at the end");
        }
        let of_this = sum_up(&steppers);
        assert_eq!(of_this.late_rows, 0, "seed {seed}");
        all.lost += of_this.lost;
        all.near += of_this.near;
    }
    all
}

#[test]
fn synchronous_rows_are_the_oracles_bit_for_bit() {
    assert!(together(Sim::new, Kills::None).lost > 10);
}

#[test]
fn also_where_servers_are_killed() {
    assert!(together(Sim::new, Kills::Alike).lost > 20);
}

#[test]
fn also_where_rows_are_read_in_images() {
    let near = together(|seed, faults| Sim::new(seed, faults).near(), Kills::Alike).near;
    assert!(near > 500, "{near} rows read in images: the test shows little");
}

#[test]
fn also_where_rows_are_read_over_rdma() {
    let near = together(|seed, faults| Sim::new(seed, faults).far(), Kills::Alike).near;
    assert!(near > 250, "{near} rows read over RDMA: the test shows little");
}

/// Once, a thread that got the shards of two former threads used the clock of the one that was ahead, and lost
/// the step of the other.
#[test]
fn also_where_servers_come_back_with_other_threads() {
    assert!(together(Sim::new, Kills::OtherThreads).lost > 20);
}

#[test]
fn also_where_they_do_and_rows_are_read_in_images() {
    let world = |seed, faults| Sim::new(seed, faults).near();
    let near = together(world, Kills::OtherThreads).near;
    assert!(near > 500, "{near} rows read in images: the test shows little");
}

#[test]
fn also_where_they_do_and_rows_are_read_over_rdma() {
    let near = together(|seed, faults| Sim::new(seed, faults).far(), Kills::OtherThreads).near;
    assert!(near > 250, "{near} rows read over RDMA: the test shows little");
}

/// If fewer batches are aggregated than there are workers, each row is either applied or reported as late.
#[test]
fn what_comes_too_late_is_dropped_and_counted() {
    let mut late = 0;
    for seed in 0..seeds(8) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let workers = 3;
        let mut servers = Servers::new(&sim, 1 + seed % 2, 1 + seed as usize / 2 % 2);
        let addrs = servers.addrs();
        let table = schema("t", workers, 8);
        let mode = SyncMode::Bsp(StepReduce { aggregate: 1 + seed as u32 % 2, merge: Merge::Sum });
        let mut steppers: Vec<_> = (0..workers)
            .map(|rank| Stepper::new(&sim, &addrs, &table, member(rank, workers, mode), 12, 0))
            .collect();
        let mut rows = vec![0u64; workers as usize];
        run(seed, &sim, &mut servers, &mut steppers, 25, Kills::None, |rank, _, cut, _, _| {
            rows[rank as usize] += cut.keys().len() as u64;
            let one = |of| if of == rank { 1.0 } else { 0.0 };
            cut.keys().iter().flat_map(|_| (0..workers).map(one)).collect()
        });
        let keys: Vec<u64> = (0..25).map(|n| n * 0x1_0000_0001).collect();
        let mut out = vec![0.0; keys.len() * workers as usize];
        let stepper = &mut steppers[0];
        stepper.worker.pull(stepper.table, &keys, Read::Weights, &mut out).unwrap();
        for (rank, stepper) in steppers.iter_mut().enumerate() {
            let applied: f32 = out.chunks(workers as usize).map(|row| row[rank]).sum();
            let counters = stepper.worker.counters();
            assert_eq!(applied as u64 + counters.late_rows, rows[rank], "seed {seed} worker {rank}");
            late += counters.late_rows;
        }
    }
    assert!(late > 100, "{late} rows came too late: the test shows nothing");
}
