//! The counters of servers and workers, compared with what a simulated job did. Links break, so parts are resent.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{Read, Store, Write};
use gannet_server::{LocalServer, ServerConfig, ServerCounters};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::{Buckets, MetricsSink};
use gannet_worker::{Worker, WorkerConfig};
use model::{Model, random_values, schema, unique_keys};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// All reported numbers, by name and labels.
#[derive(Default)]
struct Numbers {
    counters: BTreeMap<String, f64>,
    gauges: BTreeMap<String, f64>,
    histograms: BTreeMap<String, Buckets>,
}

fn full(name: &str, labels: &[(&'static str, &str)]) -> String {
    let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

impl MetricsSink for Numbers {
    fn counter(&mut self, name: &'static str, _: &'static str, labels: &[(&'static str, &str)], value: f64) {
        *self.counters.entry(full(name, labels)).or_default() += value;
    }

    fn gauge(&mut self, name: &'static str, _: &'static str, labels: &[(&'static str, &str)], value: f64) {
        *self.gauges.entry(full(name, labels)).or_default() += value;
    }

    fn histogram(
        &mut self,
        name: &'static str,
        _: &'static str,
        labels: &[(&'static str, &str)],
        buckets: &Buckets,
    ) {
        self.histograms.entry(full(name, labels)).or_default().add(buckets);
    }
}

impl Numbers {
    fn of(servers: &[Arc<ServerCounters>], workers: &[Worker<Sim>]) -> Numbers {
        let mut numbers = Numbers::default();
        servers.iter().for_each(|server| server.tell(&mut numbers));
        workers.iter().for_each(|worker| worker.shared_counters().tell(&mut numbers));
        numbers
    }

    fn counter(&self, name: &str) -> u64 {
        *self.counters.get(name).unwrap_or_else(|| panic!("{name} in {:?}", self.counters.keys())) as u64
    }

    /// Rows of pushes with this outcome, as the servers count them.
    fn pushed(&self, outcome: &str) -> u64 {
        self.counter(&format!("gannet_table_pushed_rows_total{{table=clicks,outcome={outcome}}}"))
    }

    /// Checks the counters of servers and workers after a job that did `done` and left this many rows.
    fn agree_with(&self, seed: u64, done: &Done, rows: u64) {
        let now = self;
        let server = |outcome| now.pushed(outcome);
        let worker = |outcome| now.counter(&format!("gannet_worker_pushed_rows_total{{outcome={outcome}}}"));
        assert_eq!(server("applied"), done.pushed, "seed {seed}: each row once");
        assert_eq!(worker("applied") + worker("duplicate"), done.pushed, "each part is acknowledged once");
        assert!(server("duplicate") >= worker("duplicate"));
        let table = |name| now.counter(&format!("gannet_table_{name}_total{{table=clicks}}"));
        assert_eq!(table("pushed_parts") - table("duplicate_parts"), done.parts);
        assert!(table("pulled_rows") >= done.pulled, "what went again is counted again");
        assert_eq!(now.gauges["gannet_table_rows{table=clicks}"], rows as f64);
        for kind in ["pull", "push", "open_table"] {
            let took = &now.histograms[&format!("gannet_server_request_seconds{{kind={kind}}}")];
            assert_eq!(took.count(), now.counter(&format!("gannet_server_requests_total{{kind={kind}}}")));
            assert!(took.count() >= 4);
        }
        let trips = |kind| now.histograms[&format!("gannet_worker_round_trip_seconds{{kind={kind}}}")];
        assert_eq!((trips("pull").count(), trips("push").count()), (done.calls, done.calls));
        assert!(trips("pull").sum_nanos > 0);
        assert_eq!(now.gauges["gannet_worker_pushes_in_flight{}"], 0.0);
        assert_eq!(now.gauges["gannet_worker_bytes_in_flight{}"], 0.0);
        assert_eq!(now.gauges["gannet_worker_links_wanted{}"], 8.0);
        let lost = now.counter("gannet_worker_lost_links_total{}");
        let back = now.counter("gannet_worker_reconnects_total{}");
        assert_eq!(now.gauges["gannet_worker_links{}"], 8.0 + back as f64 - lost as f64);
    }

    /// Checks that no counter and no bucket is smaller than before.
    fn grew_from(&self, before: &Numbers) {
        for (name, was) in &before.counters {
            assert!(self.counters[name] >= *was, "{name} was {was}, is {}", self.counters[name]);
        }
        for (name, was) in &before.histograms {
            let is = &self.histograms[name];
            assert!(is.counts.iter().zip(&was.counts).all(|(is, was)| is >= was), "{name}");
            assert!(is.sum_nanos >= was.sum_nanos, "{name}");
        }
    }
}

fn start_server(sim: &Sim, counters: &mut Vec<Arc<ServerCounters>>) -> String {
    let config = ServerConfig { threads: 2, store: Store::memory(), ..ServerConfig::new("sim:0") };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    counters.push(server.shared_counters());
    let addr = server.addr().to_owned();
    sim.add_actor(move || server.run().unwrap());
    addr
}

/// What a job did: rows pushed and pulled, parts of its pushes, and the numbers of pulls and pushes.
struct Done {
    pushed: u64,
    parts: u64,
    pulled: u64,
    calls: u64,
}

#[test]
fn counts_agree_with_what_was_done_also_when_parts_go_again() {
    let mut duplicate = 0;
    for seed in 0..12 {
        let _seed = Seed::begin(seed);
        let faults = Faults { reset_per_million: 20_000, window_bytes: 20_000, ..Faults::none() };
        let sim = Sim::new(seed, faults);
        let mut prng = Prng::new(seed);
        let mut counters = Vec::new();
        let servers: Vec<String> = (0..2).map(|_| start_server(&sim, &mut counters)).collect();
        let mut workers: Vec<_> = (0..2)
            .map(|n| Worker::connect(sim.clone(), WorkerConfig::new(servers.clone(), n, 1)).unwrap())
            .collect();
        let mut model = Model::new(schema("clicks", 1, 16));
        let tables: Vec<_> = workers.iter_mut().map(|w| w.open_table(&model.schema).unwrap()).collect();
        let (mut pushed, mut parts, mut pulled, mut calls) = (0, 0, 0, 0);
        let mut before = Numbers::of(&counters, &workers);
        for _ in 0..20 {
            for (worker, &table) in workers.iter_mut().zip(&tables) {
                let count = 1 + prng.below(400) as usize;
                let keys = unique_keys(&mut prng, count, 3_000);
                let cut = Arc::new(worker.cut(table, &keys));
                let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
                worker.finish_pull(pull).unwrap();
                let values = random_values(&mut prng, cut.keys().len());
                model.push(cut.keys(), &values);
                pushed += cut.keys().len() as u64;
                pulled += cut.keys().len() as u64;
                parts += cut.chunks().len() as u64;
                calls += 1;
                let seq = worker.next_seq(table);
                worker.begin_push(table, cut, Write::Gradient, values, Some(pull), seq).unwrap();
            }
            let now = Numbers::of(&counters, &workers);
            now.grew_from(&before);
            before = now;
        }
        workers.iter_mut().for_each(|worker| worker.drain().unwrap());
        // Servers report sizes at each tick.
        sim.run(Duration::from_secs(2));
        let now = Numbers::of(&counters, &workers);
        now.grew_from(&before);

        now.agree_with(seed, &Done { pushed, parts, pulled, calls }, model.rows() as u64);
        duplicate += now.pushed("duplicate");
    }
    assert!(duplicate > 0, "no part went again: the test shows nothing");
}

#[test]
fn refusals_and_sessions_are_counted_by_reason() {
    let sim = Sim::new(1, Faults::none());
    let config = ServerConfig { threads: 1, ..ServerConfig::new("sim:0") };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let (addr, counters) = (server.addr().to_owned(), server.shared_counters());
    sim.add_actor(move || server.run().unwrap());
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([addr], 1, 1)).unwrap();
    worker.open_table(&schema("t", 1, 4)).unwrap();
    let other = worker.open_table(&schema("t", 2, 4)).unwrap_err();
    assert!(other.to_string().contains("refused"), "{other}");
    let numbers = Numbers::of(std::slice::from_ref(&counters), &[]);
    assert_eq!(numbers.counter("gannet_server_refused_total{reason=mismatch}"), 1);
    assert_eq!(numbers.counter("gannet_server_refused_total{reason=limit}"), 0);
    assert_eq!(numbers.counter("gannet_server_accepted_connections_total{}"), 1);
    assert_eq!(numbers.gauges["gannet_server_sessions{transport=other}"], 1.0);
    drop(worker);
    sim.run(Duration::from_secs(1));
    let numbers = Numbers::of(&[counters], &[]);
    assert_eq!(numbers.gauges["gannet_server_sessions{transport=other}"], 0.0);
    assert_eq!(numbers.counter("gannet_server_sessions_ended_total{}"), 1);
}
