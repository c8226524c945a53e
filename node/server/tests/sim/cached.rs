//! Pulls through a worker's cache, in a whole simulated cluster from one seed. Cached rows may miss only a
//! bounded number of other workers' pushes, and must include all of the worker's own, whichever links break and
//! servers restart.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{Read, Schema, Store, Write};
use gannet_optim::{Ftrl, Rule};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_wire::{SyncConfig, SyncMode};
use gannet_worker::{CacheConfig, CacheUse, RowCache, SeenPushes, Staleness, TableId, Worker, WorkerConfig};
use model::{Model, random_values, schema, start};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

fn connect(sim: &Sim, servers: &[String], pusher: u64) -> Worker<Sim> {
    Worker::connect(sim.clone(), WorkerConfig::new(servers.to_vec(), pusher, 1)).unwrap()
}

/// Keys out of some thousand. A few of them are requested most of the time. No key occurs twice.
fn skewed(prng: &mut Prng, count: usize, keys: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count)
        .map(|_| {
            let below = [keys, keys / 16, keys / 256][prng.below(3) as usize].max(1);
            prng.below(below) * 0x9E37_79B9
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The other worker's pushes to each key: the sums so far, and when each was acknowledged (as a number of begun
/// pulls).
#[derive(Default)]
struct Others(HashMap<u64, Vec<(f32, usize)>>);

impl Others {
    fn push(&mut self, keys: &[u64], values: &[f32], pulls: usize) {
        for (&key, value) in keys.iter().zip(values.chunks_exact(2)) {
            let sums = self.0.entry(key).or_default();
            let before = sums.last().map_or(0.0, |last| last.0);
            sums.push((before + value[1], pulls));
        }
    }

    /// Lets this worker push to some keys.
    fn push_by(&mut self, (worker, table): (&mut Worker<Sim>, TableId), prng: &mut Prng, pulls: usize) {
        let keys = skewed(prng, 200, 3_000);
        let values: Vec<f32> = keys.iter().flat_map(|_| [0.0, 1.0 + prng.below(9) as f32]).collect();
        worker.push(table, &keys, Write::Gradient, &values).unwrap();
        self.push(&keys, &values, pulls);
    }

    /// Whether a row with this sum includes all pushes that were acknowledged before pull `since` began.
    fn allows(&self, key: u64, sum: f32, since: usize) -> bool {
        let sums = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        let least = sums.iter().rev().find(|(_, at)| *at < since).map_or(0.0, |sum| sum.0);
        sum == least || sums.iter().any(|&(previous, at)| previous == sum && at >= since)
    }
}

/// Runs a worker with a cache and one without. The first pulls and pushes (pipelined); the second pushes to the
/// same keys. A row has two sums: of the first worker's pushes and of the second's.
fn bounded(
    sim: &Sim,
    seed: u64,
    staleness: u64,
    bytes: u64,
    durable: bool,
    active: Option<Duration>,
) -> [u64; 4] {
    let mut prng = Prng::new(seed);
    let folder = crate::folder_in_memory();
    let store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
    let (mut actor, addr) = start(sim, "sim:0", &store, 1 + seed as usize % 3);
    let servers = vec![addr.clone(), start(sim, "sim:0", &Store::memory(), 1).1];
    let (mut first, mut second) = (connect(sim, &servers, 1), connect(sim, &servers, 2));
    let schema = schema("t", 2, 16);
    let config = CacheConfig {
        bytes,
        when: [CacheUse::Always, CacheUse::Auto][(seed / 2) as usize % 2],
        staleness: Staleness::Pulls(staleness),
        incremental: !seed.is_multiple_of(4),
        active,
    };
    let tables: Vec<TableId> =
        [&mut first, &mut second].into_iter().map(|worker| worker.open_table(&schema).unwrap()).collect();
    let rows = Arc::new(RowCache::new(&schema, Read::State, config).unwrap());
    first.cache_rows(tables[0], rows.clone()).unwrap();
    let (mut own, mut others) = (Model::new(schema), Others::default());
    let mut under_way = std::collections::VecDeque::new();
    for pulls in 0..60 {
        // More keys in some rounds, so that the cache overflows.
        let keys = skewed(&mut prng, 200, if bytes > 2 << 20 { 3_000 } else { 100_000 });
        let cut = Arc::new(first.cut(tables[0], &keys));
        let id = first.begin_pull(tables[0], cut.clone(), Read::State, Vec::new(), true).unwrap();
        let sums = own.pull(cut.keys());
        under_way.push_back((id, cut, sums, pulls, first.next_seq(tables[0]) - 1));
        if prng.below(2) == 0 {
            others.push_by((&mut second, tables[1]), &mut prng, pulls);
        }
        if under_way.len() < 2 {
            continue;
        }
        let (id, cut, sums, pulled_at, seq) = under_way.pop_front().unwrap();
        let pulled =
            first.finish_pull(id).unwrap_or_else(|error| panic!("seed {seed} pull {pulls}: {error}"));
        for SeenPushes { rows, seq: saw } in &pulled.saw {
            for i in rows.start as usize..rows.end as usize {
                let (key, row) = (cut.keys()[i], &pulled.values[2 * i..2 * i + 2]);
                // A pull that was resent reports that it has seen later pushes.
                assert!(*saw > seq || row[0] == sums[2 * i], "seed {seed} pull {pulls} key {key}: {row:?}");
                let since = pulled_at.saturating_sub(staleness as usize);
                assert!(others.allows(key, row[1], since), "seed {seed} pull {pulls} key {key}: {row:?}");
            }
        }
        let mut values = random_values(&mut prng, cut.keys().len() * 2);
        values.chunks_exact_mut(2).for_each(|value| value[1] = 0.0);
        own.push(cut.keys(), &values);
        let (write, seq) = ([Write::Change, Write::Gradient][pulls % 2], first.next_seq(tables[0]));
        first.begin_push(tables[0], cut, write, values, Some(id), seq).unwrap();
        if durable && pulls % 20 == 19 {
            sim.remove_actor(actor);
            sim.reset_all(&addr);
            actor = start(sim, &addr, &store, 1 + seed as usize % 3).0;
        }
    }
    first.drain().unwrap();
    assert!(rows.rows() <= rows.rows_max());
    let counters = first.counters();
    [counters.cache_hits, counters.cache_same, counters.links_lost, counters.cache_refreshed]
}

fn faults(seed: u64) -> Faults {
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

#[test]
fn a_row_that_is_had_was_so_within_its_staleness() {
    within_staleness(None);
}

/// As above, while servers send changes.
#[test]
fn so_was_one_that_its_server_keeps_fresh() {
    let [.., refreshed] = within_staleness(Some(Duration::from_millis(2)));
    assert!(refreshed > 1_000, "{refreshed} rows refreshed: the test shows nothing");
}

fn within_staleness(active: Option<Duration>) -> [u64; 4] {
    let mut sums = [0; 4];
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30);
    for seed in 0..seeds {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let (staleness, bytes) = ([0, 1, 4, 20][seed as usize % 4], [1 << 20, 8 << 20][seed as usize % 2]);
        let counts = bounded(&sim, seed, staleness, bytes, seed % 3 == 1, active);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [cached, same, lost, _] = sums;
    assert!(
        cached > 10_000 && lost > 20,
        "{cached} rows cached, {same} unchanged, {lost} links lost: the test shows nothing"
    );
    sums
}

/// Rows that a worker follows are not requested again, however long it caches them. The server sends their changes.
#[test]
fn what_is_followed_comes_unasked() {
    let sim = Sim::new(8, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 2);
    let servers = vec![addr];
    let (mut reader, mut writer) = (connect(&sim, &servers, 1), connect(&sim, &servers, 2));
    let schema = schema("t", 2, 16);
    let (table, to) = (reader.open_table(&schema).unwrap(), writer.open_table(&schema).unwrap());
    let active = Some(Duration::from_millis(2));
    let config = CacheConfig {
        bytes: 4 << 20,
        when: CacheUse::Always,
        staleness: Staleness::Pulls(4),
        incremental: true,
        active,
    };
    reader.cache_rows(table, Arc::new(RowCache::new(&schema, Read::Weights, config).unwrap())).unwrap();
    let (mut model, mut prng) = (Model::new(schema), Prng::new(8));
    let keys: Vec<u64> = (0..2_000).map(|i| i * 31).collect();
    let mut out = vec![0.0; keys.len() * 2];
    for round in 0..60u64 {
        let before = reader.counters();
        // Keys of some of these rows are new; keys of others never get a row.
        let changed: Vec<u64> = keys.iter().copied().filter(|key| key % 40 == round % 20).collect();
        let values = random_values(&mut prng, changed.len() * 2);
        model.push(&changed, &values);
        writer.push(to, &changed, Write::Gradient, &values).unwrap();
        sim.run(Duration::from_millis(50));
        reader.pull(table, &keys, Read::Weights, &mut out).unwrap();
        let after = reader.counters();
        if round >= 20 {
            assert!(out == model.pull(&keys), "round {round}");
            assert_eq!(after.cache_requested, before.cache_requested, "round {round}");
            assert!(after.cache_refreshed >= before.cache_refreshed + changed.len() as u64, "round {round}");
            assert!(
                after.bytes_received - before.bytes_received < 50 * changed.len() as u64,
                "round {round}"
            );
        }
    }
    // After a lost link and a long time without a request, rows are requested once and then followed again.
    sim.reset_all(&servers[0]);
    sim.run(Duration::from_secs(5));
    for _ in 0..20 {
        sim.run(Duration::from_millis(50));
        reader.pull(table, &keys, Read::Weights, &mut out).unwrap();
    }
    let requested = reader.counters().cache_requested;
    sim.run(Duration::from_millis(50));
    reader.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys) && reader.counters().cache_requested == requested);
    // A worker that follows without another may push, and its cache cannot be shared.
    let config = CacheConfig { bytes: 4 << 20, ..config };
    let rows = Arc::new(RowCache::new(&model.schema, Read::Weights, config).unwrap());
    reader.cache_rows(table, rows.clone()).unwrap();
    let error = writer.cache_rows(to, rows).unwrap_err();
    assert!(error.to_string().contains("one worker's"), "{error}");
}

#[test]
fn only_what_has_changed_comes_again() {
    let sim = Sim::new(5, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 2);
    let servers = vec![addr];
    let (mut reader, mut writer) = (connect(&sim, &servers, 1), connect(&sim, &servers, 2));
    let schema = schema("t", 3, 16);
    let (table, to) = (reader.open_table(&schema).unwrap(), writer.open_table(&schema).unwrap());
    let config = CacheConfig {
        bytes: 1 << 20,
        when: CacheUse::Always,
        staleness: Staleness::Pulls(0),
        incremental: true,
        active: None,
    };
    let rows = Arc::new(RowCache::new(&schema, Read::Weights, config).unwrap());
    reader.cache_rows(table, rows).unwrap();
    let mut model = Model::new(schema);
    let keys: Vec<u64> = (0..1000).map(|i| i * 77).collect();
    let mut prng = Prng::new(5);
    for round in 0..6u64 {
        let changed: Vec<u64> = keys.iter().copied().filter(|key| key % 10 == round).collect();
        let values = random_values(&mut prng, changed.len() * 3);
        model.push(&changed, &values);
        writer.push(to, &changed, Write::Gradient, &values).unwrap();
        let before = reader.counters();
        let mut out = vec![0.0; keys.len() * 3];
        reader.pull(table, &keys, Read::Weights, &mut out).unwrap();
        assert!(out == model.pull(&keys), "round {round}");
        let after = reader.counters();
        // The cache stores a row at the second pull of its key.
        let want = if round < 2 { 0 } else { keys.len() - changed.len() };
        assert_eq!(after.cache_same - before.cache_same, want as u64, "round {round}");
        let bytes = after.bytes_received - before.bytes_received;
        assert!(round < 2 || bytes < 100 * 12 + 600, "round {round}: {bytes} bytes");
    }
    assert_eq!(reader.counters().cache_hits, 0);
    // Within the staleness, the row is not requested at all.
    let time = Staleness::Time(Duration::from_secs(1));
    let config = CacheConfig {
        bytes: 1 << 20,
        when: CacheUse::Always,
        staleness: time,
        incremental: false,
        active: None,
    };
    reader.cache_rows(table, Arc::new(RowCache::new(&model.schema, Read::Weights, config).unwrap())).unwrap();
    let mut out = vec![0.0; keys.len() * 3];
    for pull in 0..6 {
        let before = reader.counters();
        reader.pull(table, &keys, Read::Weights, &mut out).unwrap();
        assert!(out == model.pull(&keys));
        let after = reader.counters();
        assert_eq!(
            after.cache_hits - before.cache_hits,
            if pull == 2 || pull == 3 || pull == 5 { 1000 } else { 0 },
            "pull {pull}"
        );
        if pull == 3 {
            sim.run(Duration::from_millis(1500));
        }
    }
}

/// The bound of ssp holds for cached rows: a worker that is ahead uses no cached row without a push that it must see.
#[test]
fn the_bound_of_ssp_holds_for_rows_that_are_had() {
    let mut cached = 0;
    for seed in 0..8 {
        let _seed = Seed::begin(seed);
        // Frames of the second worker are processed only while the first one waits for it.
        let sim = Sim::new(seed, Faults { reset_per_million: 0, ..faults(seed) });
        let (_, addr) = start(&sim, "sim:0", &Store::memory(), 2);
        let servers = vec![addr];
        let (mut first, mut second) = (connect(&sim, &servers, 1), connect(&sim, &servers, 2));
        let schema = schema("t", 1, 8);
        let (table, to) = (first.open_table(&schema).unwrap(), second.open_table(&schema).unwrap());
        let bound = seed as u32 % 3;
        let member = |rank| SyncConfig {
            rank,
            workers: 2,
            mode: SyncMode::Ssp(bound),
            worker_timeout: Duration::from_secs(60),
            strict: false,
        };
        first.join(table, member(0)).unwrap();
        second.join(to, member(1)).unwrap();
        let config = CacheConfig {
            bytes: 4 << 20,
            when: CacheUse::Always,
            staleness: Staleness::Pulls(1 << 40),
            incremental: true,
            active: None,
        };
        first.cache_rows(table, Arc::new(RowCache::new(&schema, Read::State, config).unwrap())).unwrap();
        let keys: Vec<u64> = (0..200).collect();
        let mut prng = Prng::new(seed);
        let mut steps_of_second = 0;
        for clock in 0..40u64 {
            // The second worker adds one to each key in each step. It is as far behind as the bound allows, or less.
            while steps_of_second + u64::from(bound) < clock
                || prng.below(3) == 0 && steps_of_second < clock + 2
            {
                second.push(to, &keys, Write::Gradient, &[1.0; 200]).unwrap();
                second.tick(to).unwrap();
                second.status(to).unwrap();
                steps_of_second += 1;
            }
            let cut = Arc::new(first.cut(table, &keys));
            let id = first.begin_pull(table, cut, Read::State, Vec::new(), false).unwrap();
            let pulled = first.finish_pull(id).unwrap();
            let lowest = pulled.lowest.unwrap();
            assert!(lowest + u64::from(bound) >= clock, "seed {seed} clock {clock}: {lowest}");
            let least = lowest.min(steps_of_second) as f32;
            assert!(
                pulled.values.iter().all(|&sum| sum >= least && sum <= steps_of_second as f32),
                "seed {seed} clock {clock}"
            );
            first.tick(table).unwrap();
        }
        cached += first.counters().cache_hits;
    }
    assert!(cached > 2_000, "{cached} rows cached: the test shows nothing");
}

/// Only the rule knows the effect of a gradient. So a pull through the cache must read the same as a pull that
/// bypasses it.
#[test]
fn gradients_make_rows_uncertain() {
    let sim = Sim::new(9, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 1);
    let ftrl = Ftrl { alpha: 0.5, beta: 1.0, l1: 0.1, l2: 0.0 };
    let schema = Schema { shards: 4, ..Schema::scalar("t", Rule::Ftrl(ftrl)) };
    let servers = vec![addr];
    let (mut cached, mut plain) = (connect(&sim, &servers, 1), connect(&sim, &servers, 2));
    let (table, other) = (cached.open_table(&schema).unwrap(), plain.open_table(&schema).unwrap());
    let config = CacheConfig {
        bytes: 1 << 20,
        when: CacheUse::Always,
        staleness: Staleness::Pulls(100),
        incremental: true,
        active: None,
    };
    cached.cache_rows(table, Arc::new(RowCache::new(&schema, Read::Weights, config).unwrap())).unwrap();
    let mut prng = Prng::new(9);
    for _ in 0..30 {
        let keys = skewed(&mut prng, 50, 200);
        let (mut weights, mut want) = (vec![0.0; keys.len()], vec![0.0; keys.len()]);
        cached.pull(table, &keys, Read::Weights, &mut weights).unwrap();
        plain.pull(other, &keys, Read::Weights, &mut want).unwrap();
        assert_eq!(weights, want);
        let half = &keys[..keys.len() / 2];
        let gradients = random_values(&mut prng, half.len());
        cached.push(table, half, Write::Gradient, &gradients).unwrap();
    }
    assert!(cached.counters().cache_hits > 100 && sim.now() > Duration::ZERO);
}

#[test]
fn a_cache_that_is_shared_is_for_reading() {
    let sim = Sim::new(3, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 1);
    let schema = schema("t", 1, 4);
    let servers = vec![addr];
    let (mut one, mut two) = (connect(&sim, &servers, 1), connect(&sim, &servers, 2));
    let tables = [one.open_table(&schema).unwrap(), two.open_table(&schema).unwrap()];
    two.push(tables[1], &[1, 2, 3], Write::Gradient, &[1.0, 2.0, 3.0]).unwrap();
    let config = CacheConfig {
        bytes: 1 << 20,
        when: CacheUse::Always,
        staleness: Staleness::Pulls(100),
        incremental: true,
        active: None,
    };
    let rows = Arc::new(RowCache::new(&schema, Read::Weights, config).unwrap());
    one.cache_rows(tables[0], rows.clone()).unwrap();
    two.cache_rows(tables[1], rows.clone()).unwrap();
    let mut out = [0.0; 3];
    for worker in [0, 1, 0, 1] {
        let (by, table) = if worker == 0 { (&mut one, tables[0]) } else { (&mut two, tables[1]) };
        by.pull(table, &[1, 2, 3], Read::Weights, &mut out).unwrap();
        assert_eq!(out, [1.0, 2.0, 3.0]);
    }
    assert_eq!((one.counters().cache_hits, two.counters().cache_hits), (3, 3), "{rows:?}");
    let refused = one.push(tables[0], &[1], Write::Gradient, &[1.0]).unwrap_err();
    assert!(refused.to_string().contains("shared"), "{refused}");
    drop(one);
    two.push(tables[1], &[1], Write::Gradient, &[1.0]).unwrap();
    two.pull(tables[1], &[1, 2, 3], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [2.0, 2.0, 3.0]);
    let small = CacheConfig { bytes: 100, ..config };
    assert!(RowCache::new(&schema, Read::Weights, small).is_err());
}
