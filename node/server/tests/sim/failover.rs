//! A server that dies for good, or whose lease ends, is replaced by one of its backups, while several workers call and
//! wait.

mod coordinator_away;
mod decider;
mod dropped;
mod folders;
mod forgotten;
mod former_owner;
mod reader;
mod replaced;
mod states;
mod strangers;
mod taken;
mod taken_back;
mod two_deaths;

use crate::blocking::{Book, Program, Pushes};
use crate::cluster::Cluster;
use crate::model::schema;
use crate::simulated::faults;
use crate::stepping::{Seed, are_all, seeds_from};

use gannet_server::ReplicationMode;
use gannet_sim::{Sim, SimProcess};
use gannet_transport::Net;
use gannet_wire::{Merge, StepReduce, SyncMode};
use gannet_worker::{OneSided, Places};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// How a run has ended.
#[derive(Debug, PartialEq)]
struct End {
    /// How many owners and other servers have failed meanwhile.
    failed: [u64; 2],
    /// When, and what the coordinator knew then.
    state: (Duration, String),
}

/// Runs a cluster while workers push. `replaces`: new servers come, until no server of the beginning is left.
fn run(seed: u64, replaces: bool, replication: ReplicationMode) -> End {
    let sim = Sim::new(seed, faults(seed));
    let mut cluster = Cluster::replicated(&sim, seed, replication);
    if replaces {
        cluster.replace_servers();
    }
    // A push that an owner cannot acknowledge stops all its replies. With one writer, whose link breaks, nobody
    // pushes to an owner whose lease has ended: only its silence keeps the reader from old rows.
    let workers = if seed % 4 == 3 { 1 } else { 2 };
    let mode = match seed / 2 % 3 {
        0 => None,
        1 => Some(SyncMode::Ssp(seed as u32 % 4)),
        _ => Some(SyncMode::Bsp(StepReduce { aggregate: workers, merge: Merge::Sum })),
    };
    let book: Book = Rc::new(RefCell::new(vec![Pushes::default(); workers as usize]));
    let table = schema("t", workers, 8);
    let places = Places { coordinator: cluster.reach(), job: "job".into() };
    let servers = cluster.servers();
    // The workers come first, or when the servers have become backups of each other.
    if seed % 4 < 2 {
        sim.run(Duration::from_secs(1 + seed % 5));
    }
    let hosts: Vec<Sim> = (0..=workers).map(|rank| cluster.host(&format!("worker {rank}"))).collect();
    let program = |rank: u32| Program {
        sim: hosts[rank as usize].clone(),
        servers: servers.clone(),
        table: table.clone(),
        rank,
        workers,
        incarnation: 1,
        mode,
        book: book.clone(),
        seed,
        places: Some(places.clone()),
        one_sided: OneSided::Auto,
    };
    let processes: Vec<SimProcess> = (0..workers)
        .map(|rank| {
            let program = program(rank);
            sim.spawn(move || program.run())
        })
        .collect();
    // In steps a push is acknowledged before it is applied.
    let reader = mode.is_none().then(|| {
        let (servers, table, places) = (servers.clone(), table.clone(), places.clone());
        let sim = hosts[workers as usize].clone();
        let reader = reader::Reader { sim: sim.clone(), servers, table, book: book.clone(), places, seed };
        sim.spawn(move || reader.run())
    });
    let failed = cluster.run(|| processes.iter().any(|worker| !worker.has_ended()));
    reader.iter().for_each(|reader| sim.kill(reader));
    if replaces {
        cluster.replace_all();
    }
    reader::check(&cluster, &table, workers, &book.borrow(), &places, &servers);
    End { failed, state: (sim.now(), cluster.state()) }
}

/// Otherwise the seed of a failure would say nothing.
#[test]
fn a_seed_always_runs_in_the_same_way() {
    for seed in seeds_from(902, 3) {
        let end = || {
            let _seed = Seed::begin(seed);
            run(seed, seed % 2 == 0, ReplicationMode::Sync)
        };
        assert_eq!(end(), end());
    }
}

#[test]
fn any_server_may_die_for_good() {
    run_seeds(seeds_from(900, 12), ReplicationMode::Sync);
}

/// Rows are read before the backups have them. What was acknowledged is there all the same, and what was not is sent
/// again: each push is in the sums once.
#[test]
fn any_server_may_die_for_good_whose_rows_are_read_at_once() {
    run_seeds(seeds_from(1_004, 12), ReplicationMode::Async);
}

fn run_seeds(all: Range<u64>, replication: ReplicationMode) {
    let mut failed = [0; 2];
    for seed in all {
        let _seed = Seed::begin(seed);
        let of_this = run(seed, false, replication).failed;
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
    }
    assert!(!are_all() || failed.iter().all(|&count| count > 3), "{failed:?}: the test shows nothing");
}
