//! The penalties of FTRL and group FTRL do not act on the intercept: with a huge `l1` a model predicts the mean of the
//! labels, however it is trained.

use crate::model::{Rng, file};
use crate::models::{options, servers, settings};

use gannet_core::{Schema, Store};
use gannet_optim::{Ftrl, GroupFtrl, Rule};
use gannet_server::Server;
use gannet_train::models::{FactorizationMachine, Linear, Model, ModelSettings, Softmax, fit, score};
use gannet_train::{
    Backend, Data, Embedded, FlatTable, FlatTables, INTERCEPT_KEY, Labels, LocalTables, Options, PushContent,
    RemoteBackend, RemoteTables, Share, Tables, evaluate, train,
};
use gannet_transport::tcp::Tcp;
use gannet_worker::{Worker, WorkerConfig};
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

const FTRL: Rule = Rule::Ftrl(Ftrl { alpha: 0.3, beta: 1.0, l1: 1e6, l2: 1.0 });
const RULES: [Rule; 3] = [
    FTRL,
    Rule::GroupFtrl(GroupFtrl { alpha: 0.3, beta: 1.0, l1: 0.0, l2: 0.0, l21: 1e6 }),
    // The penalty alone keeps weights finite.
    Rule::Ftrl(Ftrl { alpha: 0.3, beta: 0.0, l1: 1e6, l2: 1e6 }),
];
const PUSHES: [PushContent; 2] = [PushContent::Replay, PushContent::Gradient];
const LINES: usize = 20_000;

/// A tenth of the labels is 1. They depend on the features.
fn clicks(folder: &TempDir) -> (Data, f64) {
    let (mut rng, mut text, mut ones) = (Rng(1), String::new(), 0.0);
    for _ in 0..LINES {
        let (a, b) = (rng.below(4), rng.below(50));
        let label = u64::from(rng.unit() < if a == 0 { 0.25 } else { 0.05 });
        ones += label as f64;
        writeln!(text, "{label} {a} {}:0.5", 10 + b).unwrap();
    }
    let share = ones / LINES as f64;
    assert!((0.09..0.11).contains(&share));
    let of_mean = -share * share.ln() - (1.0 - share) * (1.0 - share).ln();
    (Data::new(&file(folder, "clicks.svm", text.as_bytes())), of_mean)
}

fn lr_options(data: &Data, push: PushContent) -> Options {
    Options { batch: 20, push: Some(push), ..Options::new(data.clone()) }
}

fn learn<B: Backend>(backend: &mut B, options: &Options) {
    let report = train(options, backend, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(report.not_finite, 0);
}

/// Checks that the model predicts the mean, and that only the intercept has a weight.
fn is_the_mean<B: Backend>(backend: &mut B, (data, of_mean): &(Data, f64), what: &str) {
    let loss = evaluate(data, backend).unwrap().unwrap().log_loss;
    assert!((loss / of_mean - 1.0).abs() < 0.02, "{what}: log loss {loss}, that of the mean is {of_mean}");
    let mut weight = [0.0];
    backend.weights(&[1], &mut weight).unwrap();
    assert_eq!(weight, [0.0], "{what}");
}

fn lr(rule: Rule) -> Schema {
    Schema::scalar("lr", rule)
}

#[test]
fn in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder);
    for rule in RULES {
        for push in PUSHES {
            let (what, options) = (format!("{rule:?} {push:?}"), lr_options(&data.0, push));
            let mut flat = FlatTable::new(&lr(rule)).unwrap();
            learn(&mut flat, &options);
            is_the_mean(&mut flat, &data, &what);
            let mut shards = Embedded::open(&Store::memory(), &lr(rule), 1).unwrap();
            learn(&mut shards, &options);
            is_the_mean(&mut shards, &data, &what);
        }
    }
}

/// A second training of rows in a data folder goes on with an intercept without a penalty.
#[test]
fn rows_on_disk_stay_free() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder);
    for push in PUSHES {
        let images = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let store = Store::open_dir(images.path()).unwrap();
            let mut rows = Embedded::open(&store, &lr(FTRL), 1).unwrap();
            learn(&mut rows, &lr_options(&data.0, push));
            is_the_mean(&mut rows, &data, &format!("{push:?}"));
            let mut intercept = Vec::new();
            let mut page = |keys: &[u64], rows: &[f32]| {
                let at = keys.iter().position(|&key| key == INTERCEPT_KEY);
                intercept.extend(at.map(|at| rows[2 * at + 1]));
                let others = keys.iter().zip(rows.chunks(2)).filter(|(key, _)| **key != INTERCEPT_KEY);
                assert!(others.into_iter().all(|(_, row)| row[1] >= 0.0));
            };
            rows.scan(&mut page).unwrap();
            assert!(intercept.len() == 1 && intercept[0] < -1.0, "{intercept:?}");
            rows.close().unwrap();
        }
    }
}

fn connect(servers: &[Server], worker: u64) -> Worker<Tcp> {
    let addrs = servers.iter().map(|server| server.addr().to_string());
    Worker::connect(Tcp::new(), WorkerConfig::new(addrs, worker + 1, 1)).unwrap()
}

/// Two workers of two servers, also with damped pushes.
#[test]
fn on_servers() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder);
    for rule in RULES {
        for (push, damped) in [(PUSHES[0], false), (PUSHES[0], true), (PUSHES[1], false)] {
            let servers = servers(2);
            let open = |worker| {
                let open = if damped { RemoteBackend::open_damped } else { RemoteBackend::open };
                open(connect(&servers, worker), &lr(rule), 1).unwrap()
            };
            std::thread::scope(|scope| {
                for worker in 0..2 {
                    let (open, options) = (&open, lr_options(&data.0, push));
                    scope.spawn(move || {
                        let mut rows = open(u64::from(worker));
                        learn(&mut rows, &Options { share: Share { worker, workers: 2 }, ..options });
                    });
                }
            });
            is_the_mean(&mut open(2), &data, &format!("{rule:?} {push:?} damped {damped}"));
        }
    }
}

/// Trains a model in each kind of tables, and checks the score of its mean.
fn models(rule: Rule, options: &Options, new: &dyn Fn(Rule) -> Box<dyn Model>, of_mean: f64) {
    fn run<T: Tables>(
        options: &Options,
        mut model: Box<dyn Model>,
        tables: &mut T,
        of_mean: f64,
        what: &str,
    ) {
        let report = fit(options, &mut *model, tables, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(report.not_finite, 0, "{what}");
        let loss = score(&options.data, &mut *model, tables).unwrap().unwrap().loss();
        assert!((loss / of_mean - 1.0).abs() < 0.02, "{what}: loss {loss}, that of the mean is {of_mean}");
        let mut weights = Vec::new();
        tables.weights(0, &[1], &mut weights).unwrap();
        assert_eq!(weights[0], 0.0, "{what}");
    }
    for push in PUSHES {
        let options = Options { push: Some(push), batch: 20, ..options.clone() };
        let what = format!("{} {rule:?} {push:?}", new(rule).name());
        run(&options, new(rule), &mut LocalTables::new(Store::memory(), 1), of_mean, &what);
        if push == PushContent::Replay {
            run(&options, new(rule), &mut FlatTables::within(u64::MAX), of_mean, &what);
        }
        let servers = servers(1);
        run(&options, new(rule), &mut RemoteTables::new(connect(&servers, 0)), of_mean, &what);
    }
}

/// Numbers around 101, and three classes of 70%, 20% and 10%.
#[test]
fn of_models() {
    let folder = tempfile::tempdir().unwrap();
    let (data, of_mean) = clicks(&folder);
    let fm = |rule| {
        let settings = ModelSettings { deviation: 0.0, ..settings(rule) };
        Box::new(FactorizationMachine::new(settings, 4)) as Box<dyn Model>
    };
    models(FTRL, &options(&data, Labels::Signs, 1), &fm, of_mean);

    let (mut rng, mut numbers, mut classes) = (Rng(2), String::new(), String::new());
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 3]);
    for _ in 0..LINES {
        let (a, x) = (rng.below(4), 100.0 + 2.0 * rng.unit());
        let class = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][rng.below(10) as usize];
        sums = [sums[0] + x, sums[1] + x * x];
        counts[class] += 1.0;
        writeln!(numbers, "{x} {a}").unwrap();
        writeln!(classes, "{class} {a}").unwrap();
    }
    let lines = LINES as f64;
    let entropy: f64 = counts.iter().map(|n| -n / lines * (n / lines).ln()).sum();
    let classes = Data::new(&file(&folder, "classes.svm", classes.as_bytes()));
    let softmax = |rule| Box::new(Softmax::new(settings(rule), 3)) as Box<dyn Model>;
    for rule in RULES {
        models(rule, &options(&classes, Labels::Classes(3), 1), &softmax, entropy);
    }
    let variance = sums[1] / lines - (sums[0] / lines).powi(2);
    let numbers = Data::new(&file(&folder, "numbers.svm", numbers.as_bytes()));
    let linear = |rule| Box::new(Linear::new(settings(rule))) as Box<dyn Model>;
    let rule = Rule::Ftrl(Ftrl { alpha: 5.0, beta: 1.0, l1: 1e6, l2: 1.0 });
    models(rule, &options(&numbers, Labels::Numbers, 4), &linear, variance.sqrt());
}
