//! A table of sums as a map, and random batches for it. Tests compare the servers with it. Values are small
//! whole numbers, so that every sum is exact in any order.

use gannet_core::{Admission, Init, Schema, Store};
use gannet_optim::{Add, GradientTransform, Rule};
use gannet_server::{LocalServer, ServerConfig, SessionLimits};
use gannet_sim::Sim;
use gannet_transport::Prng;
use std::collections::HashMap;

/// The sums of one table.
pub struct Model {
    pub schema: Schema,
    rows: HashMap<u64, Vec<f32>>,
}

#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn schema(name: &str, dim: u32, shards: u32) -> Schema {
    Schema {
        name: name.into(),
        dim,
        rule: Rule::Add(Add),
        shaping: GradientTransform::NONE,
        init: Init::Zero,
        seed: 0,
        shards,
        admission: Admission::All,
        more: Vec::new(),
    }
}

#[allow(dead_code, reason = "each test file uses what it needs")]
impl Model {
    pub fn new(schema: Schema) -> Model {
        Model { schema, rows: HashMap::new() }
    }

    pub fn push(&mut self, keys: &[u64], values: &[f32]) {
        let dim = self.schema.dim as usize;
        for (key, value) in keys.iter().zip(values.chunks_exact(dim)) {
            let row = self.rows.entry(*key).or_insert_with(|| vec![0.0; dim]);
            row.iter_mut().zip(value).for_each(|(sum, value)| *sum += value);
        }
    }

    pub fn pull(&self, keys: &[u64]) -> Vec<f32> {
        let zero = vec![0.0; self.schema.dim as usize];
        keys.iter().flat_map(|key| self.rows.get(key).unwrap_or(&zero).clone()).collect()
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    pub fn sorted(&self) -> Vec<(u64, Vec<f32>)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(key, row)| (*key, row.clone())).collect();
        rows.sort_by_key(|row| row.0);
        rows
    }
}

/// Random keys below `space`; a key may occur twice.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn random_keys(prng: &mut Prng, count: usize, space: u64) -> Vec<u64> {
    (0..count).map(|_| prng.below(space) * 0x1_0000_0001).collect()
}

/// Random keys below `space`, each once.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn unique_keys(prng: &mut Prng, count: usize, space: u64) -> Vec<u64> {
    let mut keys = random_keys(prng, count, space);
    keys.sort_unstable();
    keys.dedup();
    (1..keys.len()).rev().for_each(|i| keys.swap(i, prng.below(i as u64 + 1) as usize));
    keys
}

#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn random_values(prng: &mut Prng, count: usize) -> Vec<f32> {
    (0..count).map(|_| prng.below(9) as f32 - 4.0).collect()
}

/// A simulated server on `store`: its actor and its address.
#[allow(dead_code)]
pub fn start(sim: &Sim, addr: &str, store: &Store, threads: usize) -> (u64, String) {
    start_within(sim, addr, store, threads, SessionLimits::default())
}

/// One of nine settings of a server's session limits.
#[allow(dead_code)]
pub fn limits(draw: u64) -> SessionLimits {
    SessionLimits {
        credit_frames: [16, 40, 1024][draw as usize % 3],
        keyset_bytes: [0, 4 << 10, 1 << 30][draw as usize / 3 % 3],
        ..SessionLimits::default()
    }
}

/// A simulated server whose sessions have these limits.
#[allow(dead_code)]
pub fn start_within(
    sim: &Sim,
    addr: &str,
    store: &Store,
    threads: usize,
    limits: SessionLimits,
) -> (u64, String) {
    let config = ServerConfig { threads, store: store.clone(), limits, ..ServerConfig::new(addr) };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    (sim.add_actor(move || server.run().unwrap()), addr)
}
