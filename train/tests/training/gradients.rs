//! Compares training by gradients with the plainest learner: progressive loss and weights agree for every rule, batch
//! and depth, over each backend. The backends agree with each other bit by bit.

use crate::model;

use gannet_core::{Schema, Store};
use gannet_optim::{
    AdaGrad, Adam, Add, AmsGrad, Decay, Ftrl, GradientTransform, GroupFtrl, Momentum, RmsProp, RowAdaGrad,
    Rule, Schedule, Sgd,
};
use gannet_server::{Server, ServerConfig};
use gannet_train::{
    Backend, Data, Embedded, FlatTable, Options, PushContent, Reduce, RemoteBackend, Report, train,
};
use gannet_transport::tcp::Tcp;
use gannet_worker::{Worker, WorkerConfig};
use model::{Batched, Example, MapRows, examples, file, libsvm};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

const EPOCHS: u32 = 2;

/// Rules that can replay come first.
fn rules() -> Vec<Rule> {
    vec![
        Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.3, l2: 0.5 }),
        Rule::GroupFtrl(GroupFtrl { alpha: 0.1, beta: 1.0, l1: 0.1, l2: 0.5, l21: 0.3 }),
        Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-6, initial_accumulator: 0.1 }),
        Rule::RowAdaGrad(RowAdaGrad { lr: 0.1, eps: 1e-6, initial_accumulator: 1.0 }),
        Rule::Sgd(Sgd { lr: 0.05 }),
        Rule::Momentum(Momentum { lr: 0.005, momentum: 0.9, nesterov: false }),
        Rule::Momentum(Momentum { lr: 0.005, momentum: 0.9, nesterov: true }),
        Rule::RmsProp(RmsProp { lr: 0.01, rho: 0.9, eps: 1e-4 }),
        Rule::Adam(Adam { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-4, decay: 0.0 }),
        Rule::Adam(Adam { lr: 0.01, beta1: 0.8, beta2: 0.99, eps: 1e-4, decay: 0.1 }),
        Rule::AmsGrad(AmsGrad { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-4, decay: 0.0 }),
    ]
}
const REPLAYING: usize = 5;

/// Tables of each rule, and some with transforms of the gradient.
fn schemas() -> Vec<Schema> {
    let mut all: Vec<Schema> = rules().into_iter().map(|rule| Schema::scalar("lr", rule)).collect();
    let exponential = Decay::Exponential { rate: 0.5, steps: 7 };
    let schedule = Schedule { warmup: 3, decay: exponential };
    let shaping = GradientTransform { schedule, clip_value: Some(2.0), l2: 0.01, ..GradientTransform::NONE };
    let rules = rules();
    all.extend([4, 7, 8].map(|n| Schema { shaping, ..Schema::scalar("lr", rules[n]) }));
    let clipped = GradientTransform { clip_norm: Some(1.0), ..GradientTransform::NONE };
    all.push(Schema { shaping: clipped, ..Schema::scalar("lr", rules[0]) });
    all
}

fn run<B: Backend>(backend: &mut B, path: &str, batch: usize, reduce: Option<Reduce>) -> Report {
    let push = Some(PushContent::Gradient);
    let options = Options { batch, epochs: EPOCHS, push, reduce, ..Options::new(Data::new(path)) };
    train(&options, backend, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn rows_of<B: Backend>(backend: &mut B) -> HashMap<u64, Vec<f32>> {
    let (floats, mut all) = (backend.schema().floats(), HashMap::new());
    backend
        .scan(&mut |keys, rows| {
            all.extend(keys.iter().copied().zip(rows.chunks(floats).map(<[f32]>::to_vec)));
        })
        .unwrap();
    all
}

/// Checks that the progressive loss of the first pass, and every weight after the last, agree with the plain learner.
fn check<B: Backend>(backend: &mut B, data: &[Example], path: &str, batch: usize, delay: usize) {
    check_reduced(backend, data, path, batch, delay, None);
}

fn check_reduced<B: Backend>(
    backend: &mut B,
    data: &[Example],
    path: &str,
    batch: usize,
    delay: usize,
    reduce: Option<Reduce>,
) {
    let schema = backend.schema().clone();
    let mean = reduce.map_or(matches!(schema.rule, Rule::Sgd(_) | Rule::Momentum(_)), |r| r == Reduce::Mean);
    let what =
        format!("{:?} {:?} batch {batch} depth {delay} {}", schema.rule, schema.shaping, backend.transport());
    let mut plain = Batched::new(&schema, delay, mean);
    plain.learn(data, batch);
    let want = plain.log_loss();
    (1..EPOCHS).for_each(|_| plain.learn(data, batch));
    plain.apply(0);
    let report = run(backend, path, batch, reduce);
    let got = report.progressive.as_ref().unwrap().loss();
    assert!((got / want - 1.0).abs() < 1e-5, "{what}: log loss {got}, {want} is right");
    assert_eq!((report.push, report.not_finite), (PushContent::Gradient, 0), "{what}");
    assert_eq!((report.examples, report.rows), (data.len() as u64 * 2, plain.rows.len() as u64), "{what}");
    // In shard order, as every call needs it.
    let mut keys: Vec<u64> = rows_of(backend).into_keys().collect();
    let mut weights = vec![0.0; keys.len()];
    keys.sort_by_key(|&key| gannet_core::shard_of(gannet_core::hash(key), backend.schema().shards));
    backend.weights(&keys, &mut weights).unwrap();
    for (&key, &got) in keys.iter().zip(&weights) {
        let want = plain.weight(key);
        assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{what}: key {key} {got}, {want} is right");
    }
}

#[test]
fn every_rule_batch_and_depth() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(1_500, 1);
    let path = file(&folder, "a.svm", libsvm(&data).as_bytes());
    for schema in schemas() {
        for (batch, delay) in [(1, 2), (64, 0), (64, 1), (256, 3), (1024, 1)] {
            check(&mut MapRows::of(schema.clone(), delay, false), &data, &path, batch, delay);
        }
    }
}

#[test]
fn sums_and_means() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(1_500, 4);
    let path = file(&folder, "a.svm", libsvm(&data).as_bytes());
    for (rule, reduce) in [(rules()[0], Reduce::Mean), (rules()[8], Reduce::Mean)] {
        check_reduced(&mut MapRows::new(rule, 1, false), &data, &path, 100, 1, Some(reduce));
    }
    let gentle = Rule::Sgd(Sgd { lr: 0.003 });
    check_reduced(&mut MapRows::new(gentle, 1, false), &data, &path, 100, 1, Some(Reduce::Sum));
}

#[test]
fn every_backend() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(1_500, 2);
    let path = file(&folder, "a.svm", libsvm(&data).as_bytes());
    let start = || Server::start(Tcp::new(), ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") });
    let servers = [start().unwrap(), start().unwrap()];
    for (number, schema) in schemas().into_iter().enumerate() {
        let rule = schema.rule;
        let mut flat = FlatTable::new(&schema).unwrap();
        check(&mut flat, &data, &path, 256, 0);
        let mut embedded = Embedded::open(&Store::memory(), &schema, 1).unwrap();
        check(&mut embedded, &data, &path, 256, 0);
        assert!(rows_of(&mut flat) == rows_of(&mut embedded), "{}", rule.name());
        for depth in 0..3 {
            let addrs = servers.iter().map(Server::addr);
            let worker = Worker::connect(Tcp::new(), WorkerConfig::new(addrs, 1, 1)).unwrap();
            let schema = Schema { name: format!("lr-{number}-{depth}"), ..schema.clone() };
            let mut remote = RemoteBackend::open(worker, &schema, depth).unwrap();
            check(&mut remote, &data, &path, 256, depth);
            assert_eq!(rows_of(&mut remote) == rows_of(&mut flat), depth == 0, "{} {depth}", rule.name());
        }
    }
}

/// With batches of one example, gradients and replay are both the online learner.
#[test]
fn batches_of_one_are_replay() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(1_000, 3);
    let path = file(&folder, "a.svm", libsvm(&data).as_bytes());
    for rule in rules().into_iter().take(REPLAYING) {
        let (mut by_gradients, mut by_replay) = (
            FlatTable::new(&Schema::scalar("lr", rule)).unwrap(),
            FlatTable::new(&Schema::scalar("lr", rule)).unwrap(),
        );
        let loss = run(&mut by_gradients, &path, 1, None).progressive.unwrap().loss();
        let options = Options { epochs: EPOCHS, ..Options::new(Data::new(&path)) };
        let report = train(&options, &mut by_replay, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(report.push, PushContent::Replay);
        let want = report.progressive.unwrap().loss();
        assert!((loss / want - 1.0).abs() < 1e-6, "{}: {loss} {want}", rule.name());
    }
}

/// An example whose margin is NaN takes nothing from its batch. A row that would overflow is left unchanged.
#[test]
fn one_bad_example_does_not_spoil_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    // Keys 1 and 2 get weights of opposite sign; then their products overflow to both infinities.
    let path = file(&folder, "a.svm", b"1 1:1 3:1\n0 2:1 3:1\n1 1:3e38 2:3e38 4:1\n1 5:1\n");
    let rule = Rule::Sgd(Sgd { lr: 8.0 });
    let options = Options { batch: 2, push: Some(PushContent::Gradient), ..Options::new(Data::new(&path)) };
    let mut flat = FlatTable::new(&Schema::scalar("lr", rule)).unwrap();
    let report = train(&options, &mut flat, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(report.not_finite, 4); // with the intercept
    let mut weights = [0.0; 5];
    flat.weights(&[1, 2, 3, 4, 5], &mut weights).unwrap();
    assert_eq!(weights, [4.0, -4.0, 0.0, 0.0, 4.0]);
    // The weight would exceed the largest float.
    let path = file(&folder, "b.svm", b"1 1:1e38 2:1\n");
    let mut embedded = Embedded::open(&Store::memory(), &Schema::scalar("lr", rule), 1).unwrap();
    let options = Options { data: Data::new(&path), ..options };
    let mut flat = FlatTable::new(&Schema::scalar("lr", rule)).unwrap();
    for report in [
        train(&options, &mut embedded, &AtomicBool::new(false), &mut |_| {}).unwrap(),
        train(&options, &mut flat, &AtomicBool::new(false), &mut |_| {}).unwrap(),
    ] {
        assert_eq!(report.not_finite, 1);
    }
    let mut weights = [0.0; 2];
    flat.weights(&[1, 2], &mut weights).unwrap();
    assert_eq!(weights, [0.0, 4.0]);
}

#[test]
fn what_cannot_be_pushed_is_refused() {
    let schema = |rule| Schema::scalar("lr", rule);
    for (i, rule) in rules().into_iter().enumerate() {
        let replays = i < REPLAYING;
        let (chosen, requested) = (
            PushContent::choose(None, &schema(rule)),
            PushContent::choose(Some(PushContent::Replay), &schema(rule)),
        );
        assert_eq!(chosen.unwrap() == PushContent::Replay, replays, "{}", rule.name());
        assert_eq!(requested.is_ok(), replays, "{}", rule.name());
        if let Err(error) = requested {
            let error = error.to_string();
            assert!(error.contains(rule.name()) && error.contains("--push gradient"), "{error}");
        }
        assert_eq!(
            PushContent::choose(Some(PushContent::Gradient), &schema(rule)).unwrap(),
            PushContent::Gradient
        );
    }
    let clipped = GradientTransform { clip_value: Some(1.0), ..GradientTransform::NONE };
    let clipped = Schema { shaping: clipped, ..schema(rules()[4]) };
    assert_eq!(PushContent::choose(None, &clipped).unwrap(), PushContent::Gradient);
    let error = PushContent::choose(Some(PushContent::Replay), &clipped).unwrap_err().to_string();
    assert!(error.contains("sgd cannot replay") && error.contains("clipping"), "{error}");
    for requested in [None, Some(PushContent::Replay), Some(PushContent::Gradient)] {
        let error = PushContent::choose(requested, &schema(Rule::Add(Add))).unwrap_err().to_string();
        assert!(error.contains("add") && error.contains("ftrl"), "{error}");
        assert!(PushContent::choose(requested, &Schema { dim: 2, ..schema(rules()[0]) }).is_err());
    }
}
