//! The shards against a naive model: a map from key to row, with random pulls, pushes, keysets, frees and reopenings.

use gannet_core::*;
use gannet_optim::{
    AdaGrad, Adam, Add, AmsGrad, Cpu, Decay, Float16, Ftrl, GradientTransform, GroupFtrl, Momentum, RmsProp,
    RowAdaGrad, Rule, Schedule, Sgd, Update, Visitor, add_change,
};
use proptest::prelude::*;
use std::collections::HashMap;

fn schema(rule: Rule, dim: u32, shards: u32) -> Schema {
    let init = Init::Uniform { low: -0.5, high: 0.5 };
    Schema {
        name: "t".into(),
        dim,
        rule,
        shaping: GradientTransform::NONE,
        init,
        seed: 11,
        shards,
        admission: Admission::All,
        more: Vec::new(),
    }
}

/// What the table should hold.
struct Model {
    schema: Schema,
    rows: HashMap<u64, Vec<f32>>,
}

/// The chance by which a push rounds the row of a key.
fn chance(name: &PushName, key: u64) -> u64 {
    let of_table = mix(1 ^ u64::from(b't'));
    let of_push = [name.pusher, name.incarnation, name.seq].iter().fold(of_table, |at, part| mix(at ^ part));
    mix(key ^ of_push)
}

struct ModelPush<'a>(&'a mut Model, u64, Write, &'a [f32], u64);
impl Visitor for ModelPush<'_> {
    type Out = ();
    fn run<U: Update>(self, rule: U) {
        let ModelPush(model, key, write, value, chance) = self;
        let mut row = model.row(key);
        let mut shaped = value.to_vec();
        match write {
            Write::Gradient => {
                let mut weights = vec![0.0; value.len()];
                rule.weights(&row, &mut weights);
                model.schema.shaping.gradient(&weights, value, &mut shaped);
                rule.with_chance(chance).update(&mut row, &shaped)
            }
            Write::Change => add_change(&mut row, value),
            Write::Row => row.copy_from_slice(value),
            Write::Delete => {
                model.rows.remove(&key);
                return;
            }
            Write::Sum | Write::Damped => unreachable!("no table of vectors, none that counts"),
        }
        if row.iter().chain(value).all(|x| x.is_finite()) {
            model.rows.insert(key, row);
        }
    }
}

struct ModelWeights<'a>(&'a [f32], &'a [f32]);
impl Visitor for ModelWeights<'_> {
    type Out = ();
    fn run<U: Update>(self, rule: U) {
        let mut weights = vec![0.0; self.1.len()];
        rule.weights(self.0, &mut weights);
        assert_eq!(self.1, weights);
    }
}

struct ModelInit<'a>(&'a Schema, u64);
impl Visitor for ModelInit<'_> {
    type Out = Vec<f32>;
    fn run<U: Update>(self, rule: U) -> Vec<f32> {
        let mut weights = vec![0.0; self.0.dim as usize];
        initial_weights(self.0.init, self.0.seed, self.1, &mut weights);
        let mut row = vec![0.0; self.0.floats()];
        rule.init(&weights, &mut row);
        row
    }
}

impl Model {
    fn row(&self, key: u64) -> Vec<f32> {
        self.rows.get(&key).cloned().unwrap_or_else(|| self.schema.rule.visit(ModelInit(&self.schema, key)))
    }
    fn push(&mut self, key: u64, write: Write, value: &[f32], name: &PushName) {
        let rule = self.schema.rule.at_rate(self.schema.shaping.schedule.factor(name.seq));
        rule.visit(ModelPush(self, key, write, value, chance(name, key)));
    }
    fn check(&self, shards: &mut Shards, keys: &[u64]) {
        let floats = self.schema.floats();
        let mut out = vec![0.0; keys.len() * floats];
        shards.pull(keys, Read::State, &mut out, None).unwrap();
        let bits = |row: &[f32]| row.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
        for (key, row) in keys.iter().zip(out.chunks(floats)) {
            assert!(row == self.row(*key) && bits(row) == bits(&self.row(*key)), "key {key}");
        }
        let dim = self.schema.dim as usize;
        let mut weights = vec![0.0; keys.len() * dim];
        shards.pull(keys, Read::Weights, &mut weights, None).unwrap();
        for (row, weights) in out.chunks(floats).zip(weights.chunks(dim)) {
            self.schema.rule.visit(ModelWeights(row, weights));
        }
        assert_eq!(shards.stats().rows as usize, self.rows.len());
    }
}

fn cut(mut keys: Vec<u64>, shards: u32) -> Vec<u64> {
    keys.sort_by_key(|&k| shard_of(hash(k), shards));
    keys
}

#[derive(Clone, Debug)]
enum Action {
    Push(Vec<u16>, bool, bool),
    BadPush(u16, bool),
    Free(Vec<u16>),
    Delete(Vec<u16>, bool),
    /// Rows are replaced by the rows of other keys.
    Replace(Vec<u16>, u16),
    Reopen,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let keys = || prop::collection::vec(0..3000u16, 1..400);
    prop::collection::vec(
        prop_oneof![
            6 => (keys(), any::<bool>(), any::<bool>()).prop_map(|(k, c, s)| Action::Push(k, c, s)),
            1 => (any::<u16>(), any::<bool>()).prop_map(|(k, n)| Action::BadPush(k % 3000, n)),
            1 => keys().prop_map(Action::Free),
            2 => (keys(), any::<bool>()).prop_map(|(k, s)| Action::Delete(k, s)),
            2 => (keys(), 0..3000u16).prop_map(|(k, from)| Action::Replace(k, from)),
            1 => Just(Action::Reopen),
        ],
        1..25,
    )
}

fn rules() -> impl Strategy<Value = Rule> {
    let (lr, eps, initial_accumulator) = (0.1, 1e-8, 0.1);
    let (beta1, beta2, decay) = (0.5, 0.75, 0.1);
    let (alpha, beta, l1, l2) = (0.1, 1.0, 0.1, 0.5);
    let all = vec![
        Rule::Add(Add),
        Rule::Sgd(Sgd { lr }),
        Rule::AdaGrad(AdaGrad { lr, eps, initial_accumulator }),
        Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        Rule::Momentum(Momentum { lr, momentum: 0.5, nesterov: true }),
        Rule::RmsProp(RmsProp { lr, rho: 0.5, eps }),
        Rule::Adam(Adam { lr, beta1, beta2, eps, decay }),
        Rule::AmsGrad(AmsGrad { lr, beta1, beta2, eps, decay }),
        Rule::RowAdaGrad(RowAdaGrad { lr, eps, initial_accumulator }),
        Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 0.2 }),
    ];
    let formats = [Float16::Bf16, Float16::F16];
    let small: Vec<Rule> = formats
        .iter()
        .flat_map(|&format| all.iter().filter_map(move |rule| rule.with_packed_weights(format).ok()))
        .collect();
    assert_eq!(small.len(), 14);
    prop::sample::select([all, small].concat())
}

fn shapings() -> impl Strategy<Value = GradientTransform> {
    let (clip_value, clip_norm) = (Some(0.5), Some(0.75));
    let schedule = Schedule { warmup: 3, decay: Decay::InverseSqrt { steps: 4 } };
    let none = GradientTransform::NONE;
    prop_oneof![
        3 => Just(none),
        2 => prop::sample::select(vec![
            GradientTransform { clip_value, ..none },
            GradientTransform { clip_norm, ..none },
            GradientTransform { l2: 0.25, ..none },
            GradientTransform { schedule, ..none },
            GradientTransform { schedule, clip_value, clip_norm, l2: 0.25 },
        ]),
    ]
}

fn multiples(keys: &[u16]) -> Vec<u64> {
    keys.iter().map(|&key| u64::from(key) * 7919).collect()
}

fn applied(rows: usize) -> Applied {
    Applied { applied: rows as u32, ..Applied::default() }
}

/// Deletes rows, and deletes them again after another push has made one of them anew.
fn delete(table: &mut Shards, model: &mut Model, name: &PushName, keys: &[u64], slots: Option<&mut [u32]>) {
    let done = table.push(name, Write::Delete, keys, slots, &[]).unwrap();
    assert_eq!(done, applied(keys.len()));
    keys.iter().for_each(|&key| model.push(key, Write::Delete, &[], name));
    let other = PushName { pusher: 10, ..*name };
    let values = vec![1.0; model.schema.dim as usize];
    table.push(&other, Write::Gradient, &keys[..1], None, &values).unwrap();
    model.push(keys[0], Write::Gradient, &values, &other);
    let again = table.push(name, Write::Delete, keys, None, &[]).unwrap();
    assert_eq!(again, Applied { duplicate: keys.len() as u32, ..Applied::default() });
}

/// Replaces rows by the rows of other keys.
fn replace(table: &mut Shards, model: &mut Model, name: &PushName, keys: &[u64], from: u16) {
    let other = |key: u64| (key / 7919 + u64::from(from)) % 3000 * 7919;
    let rows: Vec<f32> = keys.iter().flat_map(|&key| model.row(other(key))).collect();
    assert_eq!(table.push(name, Write::Row, keys, None, &rows).unwrap(), applied(keys.len()));
    let floats = model.schema.floats();
    keys.iter().zip(rows.chunks(floats)).for_each(|(&key, row)| model.push(key, Write::Row, row, name));
}

/// A scan sees every row once.
fn check_scan(table: &mut Shards, model: &Model, shards: u32) {
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    for shard in 0..shards {
        let mut from = Some(0);
        while let Some(at) = from {
            from = table.scan(shard, at, 100, &mut keys, &mut rows);
        }
    }
    assert_eq!(keys.len(), model.rows.len());
    for (key, row) in keys.iter().zip(rows.chunks(model.schema.floats())) {
        assert_eq!(row, &model.rows[key][..]);
    }
}

/// The number of cases that PROPTEST_CASES names (make soak), else `usual`.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_map(actions in actions(), rule in rules(), shaping in shapings(), dim in prop_oneof![Just(1u32), Just(3), Just(10), Just(16), Just(40), Just(64)], cpu in prop::sample::select(Cpu::all()),
                         shards in prop_oneof![Just(1u32), Just(4)], durable in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let open = |store: &Store, schema: &Schema| {
            let mut table = Shards::open(store, schema, 0..shards).unwrap();
            table.set_cpu(cpu);
            table
        };
        // A transform that the rule does not allow is left out.
        let shaping = if shaping.check(&rule).is_ok() { shaping } else { GradientTransform::NONE };
        let schema = Schema { shaping, ..schema(rule, dim, shards) };
        let mut store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
        let mut table = open(&store, &schema);
        let mut model = Model { schema: schema.clone(), rows: HashMap::new() };
        let mut keyset: (Vec<u64>, Vec<u32>) = Default::default();
        let all = cut((0..3000u64).map(|k| k * 7919).collect(), shards);
        for (seq, action) in (1u64..).zip(actions) {
            let name = PushName { pusher: 9, incarnation: 1, seq, row: 0 };
            match action {
                Action::Push(keys, change, by_keyset) => {
                    let write = if change && schema.replays() { Write::Change } else { Write::Gradient };
                    let mut keys = cut(multiples(&keys), shards);
                    // A keyset of an earlier moment: its slots may be stale.
                    let by_keyset = by_keyset && !keyset.0.is_empty();
                    if by_keyset { keys = keyset.0.clone(); }
                    let w = schema.write_floats(write);
                    let values: Vec<f32> = (0..keys.len() * w).map(|i| ((i as u64 * 31 + seq) % 17) as f32 / 16.0).collect();
                    let slots = by_keyset.then_some(&mut keyset.1[..]);
                    let done = table.push(&name, write, &keys, slots, &values).unwrap();
                    prop_assert_eq!(done, applied(keys.len()));
                    for (key, value) in keys.iter().zip(values.chunks(w)) { model.push(*key, write, value, &name); }
                    // A resend under the same name is dropped whole.
                    let again = table.push(&name, write, &keys, None, &values).unwrap();
                    prop_assert_eq!(again, Applied { duplicate: keys.len() as u32, ..Applied::default() });
                    let mut out = vec![0.0; keys.len() * dim as usize];
                    let mut slots = Vec::new();
                    table.pull(&keys, Read::Weights, &mut out, Some(&mut slots)).unwrap();
                    keys.dedup();
                    if keys.len() == slots.len() { keyset = (keys, slots); }
                }
                Action::BadPush(key, nan) => {
                    let bad = if nan { f32::NAN } else { f32::INFINITY };
                    let values = vec![bad; schema.dim as usize];
                    let done = table.push(&name, Write::Gradient, &[u64::from(key) * 7919], None, &values).unwrap();
                    prop_assert_eq!(done, Applied { not_finite: 1, ..Applied::default() });
                }
                Action::Free(keys) => for key in keys {
                    let key = u64::from(key) * 7919;
                    prop_assert_eq!(table.free(key), model.rows.remove(&key).is_some());
                },
                Action::Delete(keys, by_keyset) => {
                    let by_keyset = by_keyset && !keyset.0.is_empty();
                    let keys = if by_keyset { keyset.0.clone() } else { cut(multiples(&keys), shards) };
                    let slots = by_keyset.then_some(&mut keyset.1[..]);
                    delete(&mut table, &mut model, &name, &keys, slots);
                }
                Action::Replace(keys, from) => {
                    replace(&mut table, &mut model, &name, &cut(multiples(&keys), shards), from);
                }
                Action::Reopen => if durable {
                    drop(table);
                    drop(store);
                    store = Store::open_dir(folder.path()).unwrap();
                    table = open(&store, &schema);
                },
            }
            model.check(&mut table, &all);
        }
        check_scan(&mut table, &model, shards);
    }
}

/// Many rows: every bucket split happens, slots are found again, memory stays within the promised bytes a row.
#[test]
fn grows_to_a_million() {
    let schema = Schema {
        shards: 8,
        ..Schema::scalar("big", Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }))
    };
    let store = Store::memory();
    let mut table = Shards::open(&store, &schema, 0..8).unwrap();
    let n = 1_000_000u64;
    for (seq, block) in (0..n).collect::<Vec<_>>().chunks(50_000).enumerate() {
        let keys = cut(block.to_vec(), 8);
        let values: Vec<f32> = keys.iter().flat_map(|&k| [k as f32, 1.0]).collect();
        let name = PushName { pusher: 1, incarnation: 1, seq: seq as u64, row: 0 };
        table.push(&name, Write::Change, &keys, None, &values).unwrap();
    }
    let keys = cut((0..n + 1000).collect(), 8);
    let mut out = vec![0.0; keys.len() * 2];
    for (k, o) in keys.chunks(50_000).zip(out.chunks_mut(100_000)) {
        table.pull(k, Read::State, o, None).unwrap();
    }
    for (&k, row) in keys.iter().zip(out.chunks(2)) {
        assert_eq!(row, if k < n { [k as f32, 1.0] } else { [0.0, 0.0] }, "key {k}");
    }
    let stats = table.stats();
    assert_eq!(stats.rows, n);
    let bytes = stats.bytes as f64 / n as f64;
    assert!(bytes <= 40.0, "{bytes} bytes a row");
}

#[test]
fn refuses_what_it_must() {
    let s = schema(Rule::Add(Add), 2, 4);
    let store = Store::memory();
    let mut table = Shards::open(&store, &s, 1..3).unwrap();
    let of = |shard: u32| (0..).find(|&k| shard_of(hash(k), 4) == shard).unwrap();
    let (k1, k2, k0) = (of(1), of(2), of(0));
    let name = |seq, incarnation| PushName { pusher: 1, incarnation, seq, row: 0 };
    let v4 = [1.0; 4];
    assert!(matches!(
        table.push(&name(1, 5), Write::Gradient, &[k2, k1], None, &v4),
        Err(PushError::Order(1))
    ));
    assert!(matches!(
        table.push(&name(1, 5), Write::Gradient, &[k1, k0], None, &v4),
        Err(PushError::Keys(PullError::WrongShard { shard: 0, .. }))
    ));
    assert!(matches!(
        table.push(&name(1, 5), Write::Gradient, &[k1], None, &v4),
        Err(PushError::Keys(PullError::Length { want: 2, .. }))
    ));
    table.push(&name(1, 5), Write::Gradient, &[k1, k2], None, &v4).unwrap();
    assert!(matches!(
        table.push(&name(9, 4), Write::Gradient, &[k1, k2], None, &v4),
        Err(PushError::Fenced { newer: 5, .. })
    ));
    table.close_pusher(1, 5).unwrap();
    assert!(table.pushers()[0].closed);
    // A pusher that never pushed can be closed too.
    table.close_pusher(2, 9).unwrap();
    assert!(table.pushers().iter().any(|p| (p.pusher, p.incarnation, p.seq, p.closed) == (2, 9, 0, true)));
    // A new incarnation starts its own sequence numbers.
    table.push(&name(1, 6), Write::Gradient, &[k1, k2], None, &v4).unwrap();
    let mut out = [0.0; 2];
    table.pull(&[k1], Read::Weights, &mut out, None).unwrap();
    let mut init = [0.0; 2];
    initial_weights(s.init, s.seed, k1, &mut init);
    assert_eq!(out, [init[0] + 2.0, init[1] + 2.0]);
    for (name, dim, shards) in
        [("", 1, 4), ("../x", 1, 4), ("t", 0, 4), ("t", 1, 3), ("t", 1, 0), ("t", 5000, 4)]
    {
        let bad = Schema { name: name.into(), dim, shards, ..s.clone() };
        assert!(matches!(Shards::open(&store, &bad, 0..1), Err(OpenError::Schema(_))), "{bad:?}");
    }
}

/// A change of state that the rule cannot have made is dropped like NaN: its weight would be NaN.
#[test]
fn an_impossible_state_is_never_stored() {
    let s = Schema::scalar("f", Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }));
    let mut table = Shards::open(&Store::memory(), &s, 0..64).unwrap();
    let mut push = |seq, change: [f32; 2]| {
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        table.push(&name, Write::Change, &[7], None, &change).unwrap()
    };
    assert_eq!(push(1, [1.0, -0.5]), Applied { not_finite: 1, ..Applied::default() });
    assert_eq!(push(2, [1.0, 0.25]), Applied { applied: 1, ..Applied::default() });
    assert_eq!(push(3, [1.0, -0.5]), Applied { not_finite: 1, ..Applied::default() });
    let mut row = [0.0; 2];
    table.pull(&[7], Read::State, &mut row, None).unwrap();
    assert_eq!(row, [1.0, 0.25]);
}

#[test]
fn images_that_are_not_ours_are_refused_by_name() {
    let s = schema(Rule::Add(Add), 2, 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t/shard-0000.image");
    {
        let store = Store::open_dir(folder.path()).unwrap();
        let mut table = Shards::open(&store, &s, 0..1).unwrap();
        let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
        table.push(&name, Write::Gradient, &[5], None, &[1.0, 2.0]).unwrap();
        assert!(matches!(Store::open_dir(folder.path()), Err(OpenError::Locked(_))));
    }
    let store = Store::open_dir_as(folder.path(), [7; 16], GrowthConfig::default()).unwrap();
    let open = |s: &Schema| Shards::open(&store, s, 0..1).map(|_| ());
    // In another boot, an image without the clean flag is refused, and one with it opens.
    assert!(matches!(open(&s), Err(OpenError::OlderBoot { .. })));
    drop(store);
    {
        let store = Store::open_dir(folder.path()).unwrap();
        Shards::open(&store, &s, 0..1).unwrap().mark_clean().unwrap();
    }
    let store = Store::open_dir_as(folder.path(), [7; 16], GrowthConfig::default()).unwrap();
    let open = |s: &Schema| Shards::open(&store, s, 0..1).map(|_| ());
    open(&s).unwrap();
    let other = Schema { seed: 12, ..s.clone() };
    assert!(matches!(open(&other), Err(OpenError::OtherSchema { .. })));
    let good = std::fs::read(&path).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, bad).unwrap();
    };
    with(0, b"SQLite");
    assert!(matches!(open(&s), Err(OpenError::Foreign { .. })));
    with(70, b"x");
    assert!(matches!(open(&s), Err(OpenError::Torn { .. })));
    with(0x540, &9999u64.to_le_bytes()); // more extents than there can be
    assert!(matches!(open(&s), Err(OpenError::Torn { .. })));
    std::fs::write(&path, &good[..good.len() - (2 << 20)]).unwrap(); // an extent is past the end
    assert!(matches!(open(&s), Err(OpenError::Torn { .. })));
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(open(&s), Err(OpenError::Torn { .. })));
}

/// The learning rate belongs to the push's name. A change of state is only for rules that add.
#[test]
fn the_clock_sets_the_rate_and_only_sums_are_replayed() {
    let schedule = Schedule { warmup: 0, decay: Decay::Step { rate: 0.5, steps: 2 } };
    let s = Schema {
        shaping: GradientTransform { schedule, ..GradientTransform::NONE },
        shards: 1,
        ..Schema::scalar("clock", Rule::Sgd(Sgd { lr: 1.0 }))
    };
    let mut table = Shards::open(&Store::memory(), &s, 0..1).unwrap();
    let name = |pusher, seq| PushName { pusher, incarnation: 1, seq, row: 0 };
    // Two pushers have a clock each: rates 1, 1, 1/2 and 1/4.
    for (pusher, seq) in [(1, 1), (2, 2), (1, 3), (2, 5), (2, 5)] {
        table.push(&name(pusher, seq), Write::Gradient, &[7], None, &[-1.0]).unwrap();
    }
    let mut weight = [0.0];
    table.pull(&[7], Read::Weights, &mut weight, None).unwrap();
    assert_eq!(weight, [2.75]);
    let refused = table.push(&name(1, 9), Write::Change, &[7], None, &[1.0]).unwrap_err();
    assert!(
        matches!(refused, PushError::NoReplay(..)) && refused.to_string().contains("gradients"),
        "{refused}"
    );
    let adam = Rule::Adam(Adam { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 });
    assert!(
        !Schema::scalar("a", adam).replays() && Schema::scalar("a", Rule::Sgd(Sgd { lr: 1.0 })).replays()
    );
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
    let e = Schema { rule: ftrl, ..s.clone() }.check().unwrap_err().to_string();
    assert!(e.contains("clock") && e.contains("ftrl takes no schedule"), "{e}");
    assert_eq!(Schema::decode(&s.encode()), Some(s));
}
