//! What the tests share: a generator of data, the plain online learner, and rows in a hash map.
#![allow(dead_code)] // each test file uses its part

use gannet_node::optim::Rule;
use gannet_node::{Schema, Stats};
use gannet_train::{Backend, BackendError, INTERCEPT_KEY, Rows};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::path::PathBuf;

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub type Example = (f32, Vec<(u64, f32)>);

/// Examples of a hidden logistic model: a few numbers and skewed categories; now and then one repeats a key.
pub fn examples(n: usize, seed: u64) -> Vec<Example> {
    let mut rng = Rng(seed);
    let weight = |key: u64| (Rng(key).unit() - 0.5) * 2.0;
    (0..n)
        .map(|_| {
            let mut features: Vec<(u64, f32)> =
                (1..4).map(|id| (id, (rng.below(2000) as f32 - 1000.0) / 500.0)).collect();
            for field in 0..15u64 {
                let value = (rng.unit().powi(4) * 3000.0) as u64;
                features.push((1000 + field * 10_000 + value, 1.0));
            }
            if rng.below(10) == 0 {
                features.push(features[rng.below(18) as usize]);
            }
            let margin: f64 = features.iter().map(|&(k, v)| weight(k) * f64::from(v)).sum::<f64>() - 0.7;
            let label = if rng.unit() < 1.0 / (1.0 + (-margin).exp()) { 1.0 } else { 0.0 };
            (label, features)
        })
        .collect()
}

pub fn libsvm(examples: &[Example]) -> String {
    let mut text = String::new();
    for (label, features) in examples {
        text.push_str(if *label > 0.5 { "1" } else { "-1" });
        for (key, value) in features {
            text.push_str(&if *value == 1.0 { format!(" {key}") } else { format!(" {key}:{value}") });
        }
        text.push('\n');
    }
    text
}

pub fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// The online learner as the papers write it, in f64: each example predicted, then learned.
pub struct Online {
    rule: Rule,
    rows: HashMap<u64, [f64; 2]>,
    pub loss: f64,
    pub examples: u64,
    pub margins: Vec<f64>,
}

impl Online {
    pub fn new(rule: Rule) -> Online {
        Online { rule, rows: HashMap::new(), loss: 0.0, examples: 0, margins: Vec::new() }
    }

    fn fresh(&self) -> [f64; 2] {
        match self.rule {
            Rule::AdaGrad(r) => [0.0, f64::from(r.initial_accumulator)],
            _ => [0.0; 2],
        }
    }

    pub fn weight(&self, key: u64) -> f64 {
        let [a, b] = self.rows.get(&key).copied().unwrap_or(self.fresh());
        match self.rule {
            Rule::Ftrl(r) => {
                let (l1, l2) = (f64::from(r.l1), f64::from(r.l2));
                let beyond = (a.abs() - l1).max(0.0);
                -beyond.copysign(a) / ((f64::from(r.beta) + b.sqrt()) / f64::from(r.alpha) + l2)
            }
            _ => a,
        }
    }

    pub fn margin(&self, example: &Example) -> f64 {
        merged(example).iter().map(|(&key, value)| self.weight(key) * value).sum()
    }

    pub fn learn(&mut self, example: &Example) {
        let features = merged(example);
        let margin: f64 = features.iter().map(|(&key, value)| self.weight(key) * value).sum();
        let p = 1.0 / (1.0 + (-margin).exp());
        let y = f64::from(example.0);
        self.loss -= if y > 0.5 { p.ln() } else { (1.0 - p).ln() };
        self.examples += 1;
        self.margins.push(margin);
        for (key, value) in features {
            let (g, w, fresh) = ((p - y) * value, self.weight(key), self.fresh());
            let row = self.rows.entry(key).or_insert(fresh);
            match self.rule {
                Rule::Ftrl(r) => {
                    let n = row[1] + g * g;
                    row[0] += g - (n.sqrt() - row[1].sqrt()) / f64::from(r.alpha) * w;
                    row[1] = n;
                }
                Rule::AdaGrad(r) => {
                    row[1] += g * g;
                    row[0] -= f64::from(r.lr) * g / (row[1].sqrt() + f64::from(r.eps));
                }
                Rule::Sgd(r) => row[0] -= f64::from(r.lr) * g,
                _ => unreachable!(),
            }
        }
    }

    pub fn log_loss(&self) -> f64 {
        self.loss / self.examples as f64
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }
}

/// The features with the intercept, a repeated key once with the sum of its values.
fn merged(example: &Example) -> HashMap<u64, f64> {
    let mut features = HashMap::from([(INTERCEPT_KEY, 1.0)]);
    for &(key, value) in &example.1 {
        *features.entry(key).or_default() += f64::from(value);
    }
    features
}

/// Rows in a hash map behind a make-believe network: a pull is answered `depth` pulls later, but with the pushes that had
/// come when it was begun, or, where `torn` says so, with a later state in one part of the keys, as after a lost link.
pub struct MapRows {
    pub schema: Schema,
    pub rows: HashMap<u64, Vec<f32>>,
    pub depth: usize,
    pub torn: bool,
    flying: VecDeque<(Vec<u64>, Rows)>,
    last: Option<Vec<u64>>,
    pushes: u64,
}

impl MapRows {
    pub fn new(rule: Rule, depth: usize, torn: bool) -> MapRows {
        let schema = Schema { shards: 8, ..Schema::scalar("lr", rule) };
        let (flying, last) = (VecDeque::new(), None);
        MapRows { schema, rows: HashMap::new(), depth, torn, flying, last, pushes: 0 }
    }

    fn row(&self, key: u64) -> Vec<f32> {
        self.rows.get(&key).cloned().unwrap_or_else(|| match self.schema.rule {
            Rule::AdaGrad(r) => vec![0.0, r.initial_accumulator],
            _ => vec![0.0; self.schema.floats()],
        })
    }
}

impl Backend for MapRows {
    fn transport(&self) -> &'static str {
        "map"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn begin_pull(&mut self, keys: &[u64]) -> Result<(), BackendError> {
        let state = keys.iter().flat_map(|&key| self.row(key)).collect();
        let saw = vec![(keys.len() as u32, self.pushes)];
        self.flying.push_back((keys.to_vec(), Rows { state, saw }));
        Ok(())
    }

    fn finish_pull(&mut self) -> Result<Rows, BackendError> {
        let (keys, mut rows) = self.flying.pop_front().ok_or(BackendError::Order("no pull"))?;
        if self.torn {
            let (from, to) = (keys.len() / 3, keys.len() / 2);
            let planes = self.schema.floats();
            let late = keys[from..to].iter().flat_map(|&key| self.row(key)).collect::<Vec<_>>();
            rows.state[from * planes..to * planes].copy_from_slice(&late);
            let old = rows.saw[0].1;
            rows.saw = vec![(from as u32, old), (to as u32, self.pushes), (keys.len() as u32, old)];
        }
        self.last = Some(keys);
        Ok(rows)
    }

    fn push(&mut self, keys: &[u64], rows: Rows) -> Result<(), BackendError> {
        assert_eq!(self.last.take().as_deref(), Some(keys), "a push goes to the keys pulled last");
        for (&key, change) in keys.iter().zip(rows.state.chunks(self.schema.floats())) {
            let mut row = self.row(key);
            row.iter_mut().zip(change).for_each(|(v, c)| *v += c);
            self.rows.insert(key, row);
        }
        self.pushes += 1;
        Ok(())
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        assert!(self.flying.is_empty());
        Ok(())
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        for (&key, weight) in keys.iter().zip(weights) {
            let row = self.row(key);
            *weight = match self.schema.rule {
                Rule::Ftrl(r) => r.weight(row[0], row[1].sqrt()),
                _ => row[0],
            };
        }
        Ok(())
    }

    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        self.rows.iter().for_each(|(key, row)| page(&[*key], row));
        Ok(())
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(Stats { rows: self.rows.len() as u64, bytes: 0, shards: self.schema.shards })
    }

    fn not_finite(&self) -> u64 {
        0
    }
}
