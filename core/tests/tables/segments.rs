//! Rows of several segments against a naive model: a map from key to one row for each segment, each run by its own
//! rule.

use gannet_core::*;
use gannet_optim::*;
use proptest::prelude::*;
use std::collections::HashMap;

struct Update1<'a>(&'a mut [f32], &'a [f32], u64);
impl Visitor for Update1<'_> {
    type Out = ();
    fn run<U: Update>(self, rule: U) {
        rule.with_chance(self.2).update(self.0, self.1);
    }
}

struct Init1<'a>(&'a [f32]);
impl Visitor for Init1<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut row = vec![0.0; U::floats(self.0.len())];
        rule.init(self.0, &mut row);
        row
    }
}

struct Weights1<'a>(&'a [f32], usize);
impl Visitor for Weights1<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut out = vec![0.0; self.1];
        rule.weights(self.0, &mut out);
        out
    }
}

struct Model {
    schema: Schema,
    rows: HashMap<u64, Vec<Vec<f32>>>,
}

impl Model {
    fn row(&self, key: u64) -> Vec<Vec<f32>> {
        self.rows.get(&key).cloned().unwrap_or_else(|| {
            let (mut rows, mut number) = (Vec::new(), 0);
            for s in self.schema.segments() {
                let seed = if number == 0 { self.schema.seed } else { mix(self.schema.seed ^ number << 32) };
                let mut weights = vec![0.0; s.dim as usize];
                initial_weights(s.init, seed, key, &mut weights);
                rows.push(s.rule.visit(Init1(&weights)));
                number += 1;
            }
            rows
        })
    }

    fn push(&mut self, seq: u64, key: u64, write: Write, value: &[f32]) {
        let (mut row, mut value) = (self.row(key), value);
        let of_push = [9, 1, seq].iter().fold(mix(1 ^ u64::from(b't')), |at, part| mix(at ^ part));
        let chance = mix(key ^ of_push);
        for (number, (s, row)) in (0u64..).zip(self.schema.segments().zip(&mut row)) {
            let n = if write == Write::Change { row.len() } else { s.dim as usize };
            let (own, rest) = value.split_at(n);
            value = rest;
            if write == Write::Change {
                add_change(row, own);
                continue;
            }
            let mut shaped = vec![0.0; n];
            match s.shaping.changes_gradients() {
                true => s.shaping.gradient(&s.rule.visit(Weights1(row, n)), own, &mut shaped),
                false => shaped.copy_from_slice(own),
            }
            s.rule.at_rate(s.shaping.schedule.factor(seq)).visit(Update1(
                row,
                &shaped,
                chance ^ number << 56,
            ));
        }
        self.rows.insert(key, row);
    }

    fn weights(&self, key: u64) -> Vec<f32> {
        let of = |(s, row): (Segment, &Vec<f32>)| s.rule.visit(Weights1(row, s.dim as usize));
        self.schema.segments().zip(&self.row(key)).flat_map(of).collect()
    }
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let adam = Adam { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-6, decay: 0.0 };
    let adagrad = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let rules = [
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr: 0.1 }),
        adagrad,
        Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.1, l2: 0.5 }),
        Rule::Adam(adam),
        adagrad.with_packed_weights(Float16::Bf16).unwrap(),
        Rule::Sgd(Sgd { lr: 0.1 }).with_packed_weights(Float16::F16).unwrap(),
    ];
    let segment =
        (0..7usize, 1u32..20, any::<bool>(), any::<bool>()).prop_map(move |(rule, dim, shape, zero)| {
            let warm = Schedule { warmup: 5, ..GradientTransform::NONE.schedule };
            let shape = shape && !matches!(rule, 0 | 3);
            let shaping = GradientTransform {
                clip_value: Some(0.5),
                schedule: warm,
                l2: 0.1,
                ..GradientTransform::NONE
            };
            Segment {
                dim,
                rule: rules[rule],
                shaping: if shape { shaping } else { GradientTransform::NONE },
                init: if zero { Init::Zero } else { Init::Uniform { low: -0.5, high: 0.5 } },
            }
        });
    prop::collection::vec(segment, 2..=4)
}

fn schema(segments: &[Segment], shards: u32) -> Schema {
    let Segment { dim, rule, shaping, init } = segments[0];
    Schema { dim, shaping, init, seed: 5, shards, more: segments[1..].to_vec(), ..Schema::scalar("t", rule) }
}

fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Pulls every choice of segments of `keys`. A pull must answer exactly the chosen segments, with the model's values.
fn pulls_of_segments_agree(table: &mut Shards, model: &Model, keys: &[u64]) -> Result<(), TestCaseError> {
    let all: Vec<Segment> = model.schema.segments().collect();
    for bits in 1..1u8 << all.len() {
        let chosen: Vec<usize> = (0..all.len()).filter(|n| bits >> n & 1 != 0).collect();
        for read in [Read::Weights, Read::State] {
            let floats = model.schema.read_floats_of(read, Segments::only(&chosen)).unwrap();
            let (mut answer, mut slots) = (vec![0.0; keys.len() * floats], Vec::new());
            table.pull_segments(keys, read, Segments::only(&chosen), &mut answer, Some(&mut slots)).unwrap();
            prop_assert_eq!(slots.len(), keys.len());
            for (key, answer) in keys.iter().zip(answer.chunks(floats)) {
                let row = model.row(*key);
                let segment = |&n: &usize| match read {
                    Read::Weights => all[n].rule.visit(Weights1(&row[n], all[n].dim as usize)),
                    Read::State => row[n].clone(),
                };
                let want: Vec<f32> = chosen.iter().flat_map(segment).collect();
                prop_assert_eq!(answer, &want[..], "key {} segments {:?}", key, chosen);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_map(segments in segments(), shards in prop_oneof![Just(1u32), Just(4)], durable in any::<bool>(),
                         pushes in prop::collection::vec((prop::collection::vec(0..500u64, 1..200), any::<bool>()), 1..12)) {
        let schema = schema(&segments, shards);
        prop_assert_eq!(Schema::decode(&schema.encode()), Some(schema.clone()));
        let folder = tempfile::tempdir().unwrap();
        let store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
        let mut table = Shards::open(&store, &schema, 0..shards).unwrap();
        let mut model = Model { schema: schema.clone(), rows: HashMap::new() };
        for (seq, (mut keys, change)) in (1u64..).zip(pushes) {
            keys.sort_by_key(|&k| shard_of(hash(k), shards));
            let name = PushName { pusher: 9, incarnation: 1, seq, row: 0 };
            let write = if change && schema.replays() { Write::Change } else { Write::Gradient };
            let w = schema.write_floats(write);
            let values: Vec<f32> = (0..keys.len() * w).map(|i| ((i as u64 * 31 + seq) % 17) as f32 / 16.0).collect();
            if !schema.replays() {
                let values = vec![0.0; keys.len() * schema.floats()];
                let refused = table.push(&name, Write::Change, &keys, None, &values);
                prop_assert!(matches!(refused, Err(PushError::NoReplay(..))));
            }
            let mut slots = Vec::new();
            let mut before = vec![0.0; keys.len() * schema.floats()];
            table.pull(&keys, Read::State, &mut before, Some(&mut slots)).unwrap();
            let done = table.push(&name, write, &keys, Some(&mut slots), &values).unwrap();
            prop_assert_eq!(done, Applied { applied: keys.len() as u32, ..Applied::default() });
            for (key, value) in keys.iter().zip(values.chunks(w)) { model.push(seq, *key, write, value); }
            // NaN in any segment drops the whole row.
            let mut bad = vec![0.0; schema.weights()];
            *bad.last_mut().unwrap() = f32::NAN;
            let nan = table.push(&PushName { pusher: 10, ..name }, Write::Gradient, &keys[..1], None, &bad).unwrap();
            prop_assert_eq!(nan, Applied { not_finite: 1, ..Applied::default() });
        }
        if durable {
            drop(table);
            table = Shards::open(&store, &schema, 0..shards).unwrap();
        }
        let mut keys: Vec<u64> = (0..600).collect();
        keys.sort_by_key(|&k| shard_of(hash(k), shards));
        let mut state = vec![0.0; keys.len() * schema.floats()];
        table.pull(&keys, Read::State, &mut state, None).unwrap();
        let mut weights = vec![0.0; keys.len() * schema.weights()];
        table.pull(&keys, Read::Weights, &mut weights, None).unwrap();
        for ((key, state), weights) in keys.iter().zip(state.chunks(schema.floats())).zip(weights.chunks(schema.weights())) {
            prop_assert_eq!(state, &model.row(*key).concat()[..], "key {}", key);
            prop_assert_eq!(weights, &model.weights(*key)[..], "key {}", key);
        }
        prop_assert_eq!(table.stats().rows as usize, model.rows.len());
        pulls_of_segments_agree(&mut table, &model, &keys)?;
        let count = segments.len();
        for wrong in [Segments::of_bits(0), Segments::only(&[count]), Segments::only(&[0, 7])] {
            let refused = table.pull_segments(&keys, Read::Weights, wrong, &mut weights, None);
            let named = matches!(refused, Err(PullError::Segments { .. }));
            prop_assert!(named);
        }
    }
}

#[test]
fn segments_out_of_range_are_refused() {
    let one = Segment { dim: 1, rule: Rule::Add(Add), shaping: GradientTransform::NONE, init: Init::Zero };
    assert_eq!(schema(&[one; 8], 1).check(), Ok(()));
    assert!(matches!(schema(&[one; 9], 1).check(), Err(SchemaError::Segments { segments: 9, .. })));
    assert!(matches!(
        schema(&[one, Segment { dim: 0, ..one }], 1).check(),
        Err(SchemaError::Dim { dim: 0, .. })
    ));
    assert!(matches!(
        schema(&[one, Segment { dim: 4096, ..one }], 1).check(),
        Err(SchemaError::Dim { dim: 4097, .. })
    ));
    let init = Init::Uniform { low: 1.0, high: 0.0 };
    assert!(matches!(schema(&[one, Segment { init, ..one }], 1).check(), Err(SchemaError::Init { .. })));
    let rule = Rule::Sgd(Sgd { lr: -1.0 });
    assert!(matches!(schema(&[one, Segment { rule, ..one }], 1).check(), Err(SchemaError::Rule { .. })));
}

/// Golden: images, checkpoints and the wire carry these bytes.
#[test]
fn the_bytes_of_two_segments() {
    let wide = Segment { dim: 1, rule: Rule::Add(Add), shaping: GradientTransform::NONE, init: Init::Zero };
    let deep = Segment {
        dim: 3,
        rule: Rule::Sgd(Sgd { lr: 0.5 }),
        init: Init::Uniform { low: -1.0, high: 1.0 },
        ..wide
    };
    let bytes = schema(&[wide, deep], 2).encode();
    assert_eq!(bytes.len(), 5 + 16 + 12 + 56 + 12 + 4 + 72);
    let tail = &bytes[5 + 16 + 12 + 56 + 12..];
    assert_eq!(tail[..20], [1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0xBF, 0, 0, 0x80, 0x3F]);
    assert_eq!(tail[20..28], [1, 0, 0, 0, 0, 0, 0, 0x3F]);
    assert_eq!(Schema::decode(&bytes[..bytes.len() - 1]), None);
    let mut nine = bytes.clone();
    nine[5 + 16 + 12 + 56 + 12] = 9;
    assert_eq!(Schema::decode(&nine), None);
}
