//! A whole cluster in one thread from one seed. Links break at any byte, connects are refused, directions
//! stall, and servers are dropped and restarted on their folders. The sums must be exact.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{Read, Schema, Store, Write};
use gannet_optim::{Adam, Decay, GradientTransform, Rule, Schedule, Update, Visitor};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Listener, Net, Prng};
use gannet_worker::{OneSided, PushRows, SeenPushes, Worker, WorkerConfig, WorkerError};
use model::{Model, limits, random_keys, random_values, schema, start, start_within, unique_keys};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn faults(seed: u64) -> Faults {
    Faults {
        reset_per_million: [0, 3_000, 20_000][seed as usize % 3],
        refuse_per_million: 100_000,
        stall_per_million: [0, 10_000][seed as usize % 2],
        stall_max: Duration::from_secs(3),
        piece_bytes_max: [0, 100, 5_000, 100_000][seed as usize % 4],
        window_bytes: [3_000, 50_000, 300_000][seed as usize % 3],
        ..Faults::none()
    }
}

/// A simulation whose memory can be READ, in words or in lines.
pub(crate) fn far(seed: u64, faults: Faults) -> Sim {
    let sim = Sim::new(seed, faults);
    if seed.is_multiple_of(2) { sim.far() } else { sim.far_lines() }
}

/// A worker of the simulation.
pub(crate) fn connect(sim: &Sim, servers: &[String], pusher: u64) -> Worker<Sim> {
    // All rows are read that can be: nothing is measured first.
    let config =
        WorkerConfig { one_sided: OneSided::Always, ..WorkerConfig::new(servers.to_vec(), pusher, 1) };
    Worker::connect(sim.clone(), config).unwrap()
}

#[test]
fn sums_are_exact_whatever_breaks() {
    sums(Sim::new);
}

/// As above, with workers that read rows in the servers' images and push to the slots that they found.
#[test]
fn sums_are_exact_also_on_one_host() {
    let near = sums(|seed, faults| Sim::new(seed, faults).near());
    assert!(near.0 > 10_000 && near.1 > 10_000, "{near:?}: rows read and requested: the test shows nothing");
}

/// As above, with workers that READ rows in the servers' registered memory.
#[test]
fn sums_are_exact_also_over_rdma() {
    let far = sums(far);
    assert!(far.0 > 10_000 && far.1 > 10_000, "{far:?}: rows read and requested: the test shows nothing");
}

/// Returns how many rows were read without a request, and how many of the same pulls were requested.
fn sums(world: impl Fn(u64, Faults) -> Sim) -> (u64, u64) {
    let (mut lost, mut duplicate, mut near) = (0, 0, (0, 0));
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    for seed in 0..seeds {
        let _seed = Seed::begin(seed);
        let sim = world(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let servers: Vec<_> = (0..1 + seed % 2)
            .map(|_| start(&sim, "sim:0", &Store::memory(), 1 + seed as usize % 3).1)
            .collect();
        let mut workers: Vec<_> =
            (0..1 + seed / 2 % 2).map(|pusher| connect(&sim, &servers, pusher)).collect();
        let mut model = Model::new(schema("t", 1 + seed as u32 % 3, 16));
        let tables: Vec<_> =
            workers.iter_mut().map(|worker| worker.open_table(&model.schema).unwrap()).collect();
        let dim = model.schema.dim as usize;
        for round in 0..30 {
            for (worker, &table) in workers.iter_mut().zip(&tables) {
                let count = 1 + prng.below(400) as usize;
                let keys = unique_keys(&mut prng, count, 3_000);
                let cut = Arc::new(worker.cut(table, &keys));
                let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
                worker.finish_pull(pull).unwrap_or_else(|error| panic!("seed {seed} round {round}: {error}"));
                let values = random_values(&mut prng, cut.keys().len() * dim);
                model.push(cut.keys(), &values);
                let seq = worker.next_seq(table);
                let values = if round % 2 == 0 { values.into() } else { PushRows::lent(values) };
                worker.begin_push(table, cut, Write::Gradient, values, Some(pull), seq).unwrap();
            }
        }
        for worker in &mut workers {
            worker.drain().unwrap();
        }
        for (worker, &table) in workers.iter_mut().zip(&tables) {
            let keys = random_keys(&mut prng, 3_000, 3_000);
            let mut out = vec![0.0; keys.len() * dim];
            worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
            assert!(out == model.pull(&keys), "seed {seed}: the sums are wrong");
            let counters = worker.counters();
            (lost, duplicate) = (lost + counters.links_lost, duplicate + counters.duplicate);
            near = (near.0 + counters.near_rows, near.1 + counters.near_requested_rows);
        }
    }
    assert!(
        lost > 50 && duplicate > 0,
        "{lost} links lost, {duplicate} rows doubled: the test shows nothing"
    );
    near
}

/// One worker with pulls and pushes in flight together. A pull must answer exactly the pushes that it reports
/// to have seen.
#[test]
fn pulls_name_what_they_saw_also_after_a_lost_link() {
    pulls_name_what_they_saw(Sim::new);
}

#[test]
fn so_do_pulls_on_one_host() {
    let near = pulls_name_what_they_saw(|seed, faults| Sim::new(seed, faults).near());
    assert!(near.0 > 10_000 && near.1 > 10_000, "{near:?}: rows read and requested: the test shows nothing");
}

#[test]
fn so_do_pulls_over_rdma() {
    let far = pulls_name_what_they_saw(far);
    assert!(far.0 > 3_000 && far.1 > 10_000, "{far:?}: rows read and requested: the test shows nothing");
}

fn pulls_name_what_they_saw(world: impl Fn(u64, Faults) -> Sim) -> (u64, u64) {
    let (mut differed, mut near) = (0, (0, 0));
    for seed in 100..130 {
        let _seed = Seed::begin(seed);
        let sim = world(seed, Faults { reset_per_million: 30_000, ..faults(seed) });
        let mut prng = Prng::new(seed);
        let (_, addr) = start(&sim, "sim:0", &Store::memory(), 2);
        let mut worker = connect(&sim, &[addr], 3);
        let table = worker.open_table(&schema("t", 1, 4)).unwrap();
        let mut pushes: Vec<(Vec<u64>, Vec<f32>)> = Vec::new();
        let mut under_way = std::collections::VecDeque::new();
        for round in 0..40 {
            let count = 1 + prng.below(300) as usize;
            let keys = unique_keys(&mut prng, count, 500);
            let cut = Arc::new(worker.cut(table, &keys));
            under_way.push_back((
                worker.begin_pull(table, cut.clone(), Read::State, Vec::new(), true).unwrap(),
                cut,
                pushes.len(),
            ));
            let keys = unique_keys(&mut prng, count, 500);
            let cut = Arc::new(worker.cut(table, &keys));
            let values = random_values(&mut prng, cut.keys().len());
            let seq = pushes.len() as u64 + 1;
            worker.begin_push(table, cut.clone(), Write::Change, values.clone(), None, seq).unwrap();
            pushes.push((cut.keys().to_vec(), values));
            if under_way.len() < 3 {
                continue;
            }
            let (id, cut, before) = under_way.pop_front().unwrap();
            let pulled = worker.finish_pull(id).unwrap();
            let ends = pulled.saw.iter().map(|saw| saw.rows.end);
            assert!(
                pulled
                    .saw
                    .iter()
                    .map(|saw| saw.rows.start)
                    .eq([0].into_iter().chain(ends).take(pulled.saw.len()))
            );
            assert_eq!(pulled.saw.last().map(|saw| saw.rows.end as usize), Some(cut.keys().len()));
            for SeenPushes { rows, seq: saw } in pulled.saw {
                let range = rows.start as usize..rows.end as usize;
                assert!(saw >= before as u64);
                differed += u64::from(saw != before as u64);
                let mut expected = Model::new(schema("t", 1, 4));
                pushes[..saw as usize].iter().for_each(|(keys, values)| expected.push(keys, values));
                assert!(
                    pulled.values[range.clone()] == expected.pull(&cut.keys()[range]),
                    "seed {seed} round {round}"
                );
            }
        }
        worker.drain().unwrap();
        let counters = worker.counters();
        near = (near.0 + counters.near_rows, near.1 + counters.near_requested_rows);
    }
    assert!(differed > 10, "{differed}: no pull went again after a push, the test shows nothing");
    near
}

#[test]
fn a_server_killed_and_started_again_loses_and_doubles_nothing() {
    killed_and_started_again(Sim::new, false);
}

#[test]
fn nor_does_one_whose_rows_are_read_where_they_are() {
    assert!(killed_and_started_again(|seed, faults| Sim::new(seed, faults).near(), false) > 1_000);
}

#[test]
fn nor_does_one_whose_rows_are_read_over_rdma() {
    assert!(killed_and_started_again(far, false) > 1_000);
}

/// Once, a restart with another number of threads ended every connected worker.
#[test]
fn nor_does_one_that_comes_back_with_another_number_of_threads() {
    killed_and_started_again(Sim::new, true);
}

#[test]
fn nor_does_one_with_other_threads_whose_rows_are_read_where_they_are() {
    assert!(killed_and_started_again(|seed, faults| Sim::new(seed, faults).near(), true) > 1_000);
}

#[test]
fn nor_does_one_with_other_threads_whose_rows_are_read_over_rdma() {
    assert!(killed_and_started_again(far, true) > 1_000);
}

/// Returns the number of rows that were read without a request.
fn killed_and_started_again(world: impl Fn(u64, Faults) -> Sim, other_threads: bool) -> u64 {
    let mut near = 0;
    for seed in 0..6 {
        let _seed = Seed::begin(seed);
        let sim = world(seed, faults(seed * 3 + 1));
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
        let other = start(&sim, "sim:0", &Store::memory(), 1).1;
        let mut worker = connect(&sim, &[addr.clone(), other], 3);
        let mut model = Model::new(schema("t", 2, 4));
        let table = worker.open_table(&model.schema).unwrap();
        for round in 0..24 {
            let keys = unique_keys(&mut prng, 400, 1_000);
            let cut = Arc::new(worker.cut(table, &keys));
            let values = random_values(&mut prng, cut.keys().len() * 2);
            model.push(cut.keys(), &values);
            worker.begin_push(table, cut, Write::Gradient, values, None, round + 1).unwrap();
            if round % 3 == 2 {
                let mut out = vec![0.0; keys.len() * 2];
                worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
                assert!(out == model.pull(&keys), "seed {seed} round {round}");
            }
            sim.run(Duration::from_micros(prng.below(200)));
            if round % 6 == 5 {
                // As after a kill: the images stay as they are, and connections break.
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                let threads = if other_threads { 1 + prng.below(4) as usize } else { 2 };
                // With each restart its clock goes forward or back.
                let ahead = Duration::from_secs(prng.below(7_200));
                let limits = limits(prng.below(81));
                actor = start_within(&sim.ahead(ahead), &addr, &store, threads, limits).0;
            }
        }
        worker.drain().unwrap();
        let keys = random_keys(&mut prng, 2_000, 1_000);
        let mut out = vec![0.0; keys.len() * 2];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        assert!(out == model.pull(&keys), "seed {seed}");
        near += worker.counters().near_rows;
    }
    near
}

/// Each incarnation of the worker lists the servers in a random order, and finds them with a random number of
/// threads. While it runs, servers are killed and restarted on their folders.
#[test]
fn hosts_in_an_order_that_is_drawn_anew_lose_and_double_nothing() {
    let mut lost = 0;
    for seed in 300..306 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let count = 2 + seed as usize % 2;
        let folders: Vec<_> = (0..count).map(|_| crate::folder_in_memory()).collect();
        let stores: Vec<_> = folders.iter().map(|folder| Store::open_dir(folder.path()).unwrap()).collect();
        let mut model = Model::new(schema("t", 2, 8));
        let mut servers: Vec<(u64, String)> = vec![(0, "sim:0".into()); count];
        for incarnation in 1..=5 {
            let threads: Vec<_> = (0..count).map(|_| 1 + prng.below(3) as usize).collect();
            for (server, (actor, addr)) in servers.iter_mut().enumerate() {
                if incarnation > 1 {
                    sim.remove_actor(*actor);
                    sim.reset_all(addr);
                }
                let limits = limits(prng.below(81));
                (*actor, *addr) = start_within(&sim, addr, &stores[server], threads[server], limits);
            }
            let mut hosts: Vec<String> = servers.iter().map(|(_, addr)| addr.clone()).collect();
            (1..count).rev().for_each(|i| hosts.swap(i, prng.below(i as u64 + 1) as usize));
            let mut worker =
                Worker::connect(sim.clone(), WorkerConfig::new(hosts.clone(), 3, incarnation)).unwrap();
            let table = worker.open_table(&model.schema).unwrap();
            for round in 0..8 {
                let keys = unique_keys(&mut prng, 300, 1_000);
                let cut = Arc::new(worker.cut(table, &keys));
                let values = random_values(&mut prng, cut.keys().len() * 2);
                model.push(cut.keys(), &values);
                let seq = worker.next_seq(table);
                worker.begin_push(table, cut, Write::Gradient, values, None, seq).unwrap();
                sim.run(Duration::from_micros(prng.below(200)));
                if round % 4 == 2 {
                    let server = prng.below(count as u64) as usize;
                    let (actor, addr) = &mut servers[server];
                    sim.remove_actor(*actor);
                    sim.reset_all(addr);
                    *actor = start(&sim, addr, &stores[server], threads[server]).0;
                }
            }
            worker.drain().unwrap();
            let keys = random_keys(&mut prng, 2_000, 1_000);
            let mut out = vec![0.0; keys.len() * 2];
            worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
            assert!(out == model.pull(&keys), "seed {seed}, incarnation {incarnation}, hosts {hosts:?}");
            lost += worker.counters().links_lost;
        }
    }
    assert!(lost > 50, "{lost} links lost: the test shows nothing");
}

/// A rule for which order and rate matter: a resent gradient must be applied in its turn, at the rate of its
/// own name.
#[test]
fn gradients_sent_again_have_the_rate_of_their_name() {
    let schedule = Schedule { warmup: 5, decay: Decay::Exponential { rate: 0.7, steps: 6 } };
    let shaping = GradientTransform { schedule, clip_value: Some(2.0), ..GradientTransform::NONE };
    let adam = Rule::Adam(Adam { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-6, decay: 0.0 });
    let schema = Schema { shards: 4, shaping, ..Schema::scalar("t", adam) };
    let mut resends = 0;
    for seed in 200..212 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults { reset_per_million: 30_000, ..faults(seed) });
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
        let mut worker = connect(&sim, std::slice::from_ref(&addr), 3);
        let table = worker.open_table(&schema).unwrap();
        let mut rows: HashMap<u64, Vec<f32>> = HashMap::new();
        for seq in 1..=24 {
            let keys = unique_keys(&mut prng, 300, 600);
            let cut = Arc::new(worker.cut(table, &keys));
            let values = random_values(&mut prng, cut.keys().len());
            for (key, gradient) in cut.keys().iter().zip(&values) {
                let row = rows.entry(*key).or_insert_with(|| vec![0.0; schema.floats()]);
                adam.at_rate(schedule.factor(seq)).visit(Step(row, gradient.clamp(-2.0, 2.0)));
            }
            worker.begin_push(table, cut, Write::Gradient, values, None, seq).unwrap();
            sim.run(Duration::from_micros(prng.below(200)));
            if seq % 8 == 0 {
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                actor = start(&sim, &addr, &store, 2).0;
            }
        }
        worker.drain().unwrap();
        let keys: Vec<u64> = rows.keys().copied().collect();
        let mut weights = vec![0.0; keys.len()];
        worker.pull(table, &keys, Read::Weights, &mut weights).unwrap();
        for (key, weight) in keys.iter().zip(weights) {
            assert_eq!(weight.to_bits(), rows[key][0].to_bits(), "seed {seed} key {key}");
        }
        resends += worker.counters().resends;
    }
    assert!(resends > 20, "{resends} resends: the test shows nothing");
}

/// Applies one gradient to one row with the rule's own code.
struct Step<'a>(&'a mut [f32], f32);

impl Visitor for Step<'_> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        rule.update(self.0, &[self.1]);
    }
}

#[test]
fn a_cut_off_server_is_waited_for_and_then_named() {
    let sim = Sim::new(1, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 1);
    let mut worker = connect(&sim, std::slice::from_ref(&addr), 1);
    let table = worker.open_table(&schema("t", 1, 4)).unwrap();
    worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    sim.cut_off(&addr, Duration::from_secs(30));
    worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    assert!(worker.counters().links_lost == 1);
    sim.cut_off(&addr, Duration::from_secs(3600));
    let before = sim.now();
    let error = worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap_err();
    let waited = sim.now() - before;
    assert!(waited >= Duration::from_secs(60) && waited < Duration::from_secs(70), "{waited:?}");
    assert!(matches!(&error, WorkerError::PeerLost { peer, .. } if peer.starts_with(&addr)), "{error}");
}

/// A peer that accepts and says nothing, and one that is not there: each is named when the peer timeout has passed, at
/// most one attempt to connect later. tests/sockets/tcp.rs has the same over sockets, without a clock.
#[test]
fn a_peer_that_stalls_or_is_not_there_is_named_in_time() {
    let sim = Sim::new(1, Faults::none());
    let mut listener = sim.listen("sim:0").unwrap();
    let silent = listener.addr().to_owned();
    let mut accepted = Vec::new();
    sim.add_actor(move || accepted.extend(listener.accept().unwrap()));
    for addr in [silent.as_str(), "sim:1"] {
        let timeout = Duration::from_millis(600);
        let config = WorkerConfig { peer_timeout: timeout, ..WorkerConfig::new([addr], 1, 1) };
        let begun = sim.now();
        let error = Worker::connect(sim.clone(), config).err().unwrap();
        let took = sim.now() - begun;
        let WorkerError::PeerLost { peer, waited, .. } = &error else { panic!("{error}") };
        assert!(peer.starts_with(addr) && *waited == took, "{error}, after {took:?}");
        assert!(took >= timeout && took <= timeout * 2 + Duration::from_millis(200), "{addr}: {took:?}");
    }
}
