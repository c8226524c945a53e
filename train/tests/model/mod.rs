//! Shared by the tests: a generator of data, the plain online learner, and rows in a hash map.
#![allow(dead_code)] // each test file uses its part

use gannet_core::{Read, Schema, Stats, Write};
use gannet_optim::{Rule, Update, Visitor, add_change};
use gannet_train::{
    Backend, BackendError, BatchKeys, Block, Data, INTERCEPT_KEY, InSplit, PulledRows, ReadError, Reader,
    Share, TrainedRows,
};
use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
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

/// Examples of a hidden logistic model: a few numbers and skewed categories. One example in ten repeats a key.
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

pub fn zst(bytes: &[u8]) -> Vec<u8> {
    let mut packer = zstd::Encoder::new(Vec::new(), 1).unwrap();
    packer.include_checksum(true).unwrap();
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// A label and its features.
pub type Row = (f32, Vec<(u64, f32)>);

/// Every row of the data, in batches.
pub fn read(data: &Data, batch: usize) -> Result<Vec<Row>, ReadError> {
    let mut reader = Reader::open(data, batch, Share::ALL)?;
    let (mut block, mut rows) = (Block::default(), Vec::new());
    while reader.next(&mut block)? {
        rows.extend(rows_of(&block));
    }
    Ok(rows)
}

/// The rows of a block.
pub fn rows_of(block: &Block) -> Vec<Row> {
    let features = |i| block.range(i).map(|j| (block.keys[j], block.values[j])).collect();
    (0..block.len()).map(|i| (block.labels[i], features(i))).collect()
}

/// The online learner as the papers write it, in f64. It predicts each example, then learns it.
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
                let of = |penalty: f32| if key == INTERCEPT_KEY { 0.0 } else { f64::from(penalty) };
                let (l1, l2) = (of(r.l1), of(r.l2));
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

/// The plainest learner of batches by gradients: rows in a hash map, sums in f64, the rule one coordinate at a time.
/// A batch is computed at the rows of all pushes but the last `delay`.
pub struct Batched {
    schema: Schema,
    applied: u64,
    delay: usize,
    mean: bool,
    pub rows: HashMap<u64, Vec<f32>>,
    pending: VecDeque<HashMap<u64, f64>>,
    loss: f64,
    examples: u64,
}

impl Batched {
    pub fn new(schema: &Schema, delay: usize, mean: bool) -> Batched {
        let (rows, pending) = (HashMap::new(), VecDeque::new());
        Batched { schema: schema.clone(), applied: 0, delay, mean, rows, pending, loss: 0.0, examples: 0 }
    }

    pub fn weight(&self, key: u64) -> f32 {
        self.rows.get(&key).map_or(0.0, |row| weight(&self.schema.rule, row))
    }

    pub fn margin(&self, example: &Example) -> f64 {
        merged(example).iter().map(|(&key, value)| f64::from(self.weight(key)) * value).sum()
    }

    /// One pass in batches of this size.
    pub fn learn(&mut self, data: &[Example], batch: usize) {
        for examples in data.chunks(batch) {
            self.apply(self.delay);
            let (mut gradients, mut counts) = (HashMap::<u64, f64>::new(), HashMap::<u64, f64>::new());
            for example in examples {
                let y = f64::from(example.0);
                let p = 1.0 / (1.0 + (-self.margin(example)).exp());
                self.loss -= if y > 0.5 { p.ln() } else { (1.0 - p).ln() };
                self.examples += 1;
                for (key, value) in merged(example) {
                    *gradients.entry(key).or_default() += (p - y) * value;
                    *counts.entry(key).or_default() += 1.0;
                }
            }
            if self.mean {
                gradients.iter_mut().for_each(|(key, gradient)| *gradient /= counts[key]);
            }
            self.pending.push_back(gradients);
        }
    }

    /// Applies the oldest pushes until `left` are pending.
    pub fn apply(&mut self, left: usize) {
        while self.pending.len() > left {
            self.applied += 1;
            for (key, gradient) in self.pending.pop_front().unwrap() {
                let row = self.rows.entry(key).or_insert_with(|| fresh(&self.schema.rule, key));
                step(&self.schema, self.applied, row, gradient as f32);
            }
        }
    }

    /// Progressive log loss of all examples learned.
    pub fn log_loss(&self) -> f64 {
        self.loss / self.examples as f64
    }
}

/// The features with the intercept. A repeated key is there once, with the sum of its values.
fn merged(example: &Example) -> HashMap<u64, f64> {
    let mut features = HashMap::from([(INTERCEPT_KEY, 1.0)]);
    for &(key, value) in &example.1 {
        *features.entry(key).or_default() += f64::from(value);
    }
    features
}

/// Rows in a hash map behind a simulated network. A pull is answered `depth` pulls later, with the pushes that came
/// before it. With `torn` some of the keys have a later state, as after a lost link.
pub struct MapRows {
    pub schema: Schema,
    pub rows: HashMap<u64, Vec<f32>>,
    pub depth: usize,
    pub torn: bool,
    in_flight: VecDeque<(Vec<u64>, PulledRows, Read)>,
    last: Option<Vec<u64>>,
    pushes: u64,
}

impl MapRows {
    pub fn new(rule: Rule, depth: usize, torn: bool) -> MapRows {
        MapRows::of(Schema { shards: 8, ..Schema::scalar("lr", rule) }, depth, torn)
    }

    pub fn of(schema: Schema, depth: usize, torn: bool) -> MapRows {
        let (in_flight, last) = (VecDeque::new(), None);
        MapRows { schema, rows: HashMap::new(), depth, torn, in_flight, last, pushes: 0 }
    }

    fn row(&self, key: u64) -> Vec<f32> {
        self.rows.get(&key).cloned().unwrap_or_else(|| fresh(&self.schema.rule, key))
    }

    fn read(&self, key: u64, read: Read) -> Vec<f32> {
        match read {
            Read::State => self.row(key),
            Read::Weights => vec![weight(&self.schema.rule, &self.row(key))],
        }
    }
}

/// The row of a key before its first push.
pub fn fresh(rule: &Rule, key: u64) -> Vec<f32> {
    struct Fresh(u64);
    impl Visitor for Fresh {
        type Out = Vec<f32>;
        fn run<U: Update>(self, rule: U) -> Vec<f32> {
            let mut row = vec![0.0; U::floats(1)];
            match self.0 {
                INTERCEPT_KEY => rule.init_free(&[0.0], &mut row),
                _ => rule.init(&[0.0], &mut row),
            }
            row
        }
    }
    rule.visit(Fresh(key))
}

/// The weight of a row.
pub fn weight(rule: &Rule, row: &[f32]) -> f32 {
    struct Weigh<'a>(&'a [f32]);
    impl Visitor for Weigh<'_> {
        type Out = f32;
        fn run<U: Update>(self, rule: U) -> f32 {
            let mut weight = [0.0];
            rule.weights(self.0, &mut weight);
            weight[0]
        }
    }
    rule.visit(Weigh(row))
}

/// Steps one row along one gradient. The push has this clock (from 1 on).
pub fn step(schema: &Schema, clock: u64, row: &mut [f32], gradient: f32) {
    struct Step<'a>(&'a mut [f32], f32);
    impl Visitor for Step<'_> {
        type Out = ();
        fn run<U: Update>(self, rule: U) {
            rule.update(self.0, &[self.1]);
        }
    }
    let shaping = &schema.shaping;
    let mut shaped = [gradient];
    shaping.gradient(&row[..1], &[gradient], &mut shaped);
    schema.rule.at_rate(shaping.schedule.factor(clock)).visit(Step(row, shaped[0]));
}

impl Backend for MapRows {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn begin_pull(&mut self, keys: BatchKeys<'_>, read: Read) -> Result<(), BackendError> {
        let keys = keys.keys;
        let values = keys.iter().flat_map(|&key| self.read(key, read)).collect();
        let saw = vec![(keys.len() as u32, self.pushes)];
        self.in_flight.push_back((keys.to_vec(), PulledRows { values, saw }, read));
        Ok(())
    }

    fn finish_pull(&mut self) -> Result<PulledRows, BackendError> {
        let (keys, mut rows, read) = self.in_flight.pop_front().ok_or(BackendError::Order("no pull"))?;
        if self.torn {
            let (from, to) = (keys.len() / 3, keys.len() / 2);
            let planes = self.schema.read_floats(read);
            let late = keys[from..to].iter().flat_map(|&key| self.read(key, read)).collect::<Vec<_>>();
            rows.values[from * planes..to * planes].copy_from_slice(&late);
            let old = rows.saw[0].1;
            rows.saw = vec![(from as u32, old), (to as u32, self.pushes), (keys.len() as u32, old)];
        }
        self.last = Some(keys);
        Ok(rows)
    }

    fn push(
        &mut self,
        keys: &[u64],
        rows: PulledRows,
        write: Write,
        _split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        assert_eq!(self.last.take().as_deref(), Some(keys), "a push goes to the keys pulled last");
        for (&key, values) in keys.iter().zip(rows.values.chunks(self.schema.write_floats(write))) {
            let mut row = self.row(key);
            match write {
                Write::Change => add_change(&mut row, values),
                Write::Gradient => step(&self.schema, self.pushes + 1, &mut row, values[0]),
                Write::Sum | Write::Damped | Write::Row | Write::Delete => {
                    unreachable!("no table of vectors, none that counts")
                }
            }
            self.rows.insert(key, row);
        }
        self.pushes += 1;
        Ok(())
    }

    fn weights(&mut self, keys: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        for (&key, weight) in keys.iter().zip(weights) {
            *weight = self::weight(&self.schema.rule, &self.row(key));
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
}

impl TrainedRows for MapRows {
    fn transport(&self) -> String {
        "map".to_owned()
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        assert!(self.in_flight.is_empty());
        Ok(())
    }

    fn not_finite(&self) -> u64 {
        0
    }
}
