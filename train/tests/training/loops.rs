//! Compares training with the plain online learner: the same log loss at every batch size and depth, for every rule,
//! also over shards and servers.

use crate::model;

use gannet_core::{Admission, Read, Schema, Store, Write};
use gannet_optim::{AdaGrad, Add, Ftrl, Rule, Sgd};
use gannet_server::{Server, ServerConfig};
use gannet_train::{
    Backend, Data, Embedded, FlatTable, Options, ReadError, RemoteBackend, Report, Share, TrainError,
    TrainedRows, Weights, predict, train,
};
use gannet_transport::tcp::Tcp;
use gannet_worker::{Worker, WorkerConfig};
use model::{Example, MapRows, Online, examples, file, libsvm};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FTRL: Rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.3, l2: 0.5 });
const RULES: [Rule; 3] = [
    FTRL,
    Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-6, initial_accumulator: 0.1 }),
    Rule::Sgd(Sgd { lr: 0.05 }),
];

fn run<B: Backend>(backend: &mut B, path: &str, batch: usize, epochs: u32) -> Report {
    let options = Options { batch, epochs, ..Options::new(Data::new(path)) };
    train(&options, backend, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn learned(rule: Rule, data: &[Example], epochs: usize) -> (Online, f64) {
    let mut online = Online::new(rule);
    data.iter().for_each(|e| online.learn(e));
    let first = online.log_loss();
    (1..epochs).for_each(|_| data.iter().for_each(|e| online.learn(e)));
    (online, first)
}

fn assert_close(got: f64, want: f64, within: f64, what: &str) {
    assert!((got / want - 1.0).abs() < within, "{what}: {got}, the online learner has {want}");
}

#[test]
fn replay_is_the_online_learner() {
    let folder = tempfile::tempdir().unwrap();
    let data = examples(10_000, 1);
    let path = file(&folder, "a.svm", libsvm(&data).as_bytes());
    for rule in RULES {
        let (online, want) = learned(rule, &data, 1);
        for batch in [1, 64, 256, 4096] {
            for (depth, torn) in [(0, false), (1, false), (2, false), (2, true), (3, true)] {
                if batch == 1 && depth == 0 {
                    continue;
                }
                let what = format!("{} batch {batch} depth {depth} torn {torn}", rule.name());
                let mut rows = MapRows::new(rule, depth, torn);
                let report = run(&mut rows, &path, batch, 1);
                let progressive = report.progressive.unwrap();
                assert_close(progressive.loss(), want, 1e-6, &what);
                assert_eq!((report.examples, report.rows), (10_000, online.rows() as u64), "{what}");
                assert!(report.repeated_keys > 500 && !report.stopped);
            }
        }
    }
}

#[test]
fn sums_of_stale_rows_would_show() {
    // Shows that the test above can fail: this backend claims pushes that its pulls did not include.
    struct Liar(MapRows);
    impl TrainedRows for Liar {
        fn transport(&self) -> String {
            self.0.transport()
        }
        fn drain(&mut self) -> Result<(), gannet_train::BackendError> {
            self.0.drain()
        }
        fn not_finite(&self) -> u64 {
            0
        }
    }
    impl Backend for Liar {
        fn schema(&self) -> &Schema {
            self.0.schema()
        }
        fn depth(&self) -> usize {
            self.0.depth()
        }
        fn begin_pull(
            &mut self,
            keys: gannet_train::BatchKeys<'_>,
            read: Read,
        ) -> Result<(), gannet_train::BackendError> {
            self.0.begin_pull(keys, read)
        }
        fn finish_pull(&mut self) -> Result<gannet_train::PulledRows, gannet_train::BackendError> {
            let mut rows = self.0.finish_pull()?;
            rows.saw.iter_mut().for_each(|s| s.1 = u64::MAX);
            Ok(rows)
        }
        fn push(
            &mut self,
            keys: &[u64],
            rows: gannet_train::PulledRows,
            write: Write,
            split: Option<&gannet_train::InSplit>,
        ) -> Result<(), gannet_train::BackendError> {
            self.0.push(keys, rows, write, split)
        }
        fn weights(&mut self, keys: &[u64], out: &mut [f32]) -> Result<(), gannet_train::BackendError> {
            self.0.weights(keys, out)
        }
        fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), gannet_train::BackendError> {
            self.0.scan(page)
        }
        fn stats(&mut self) -> Result<gannet_core::Stats, gannet_train::BackendError> {
            self.0.stats()
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let data = examples(5_000, 2);
    let path = file(&folder, "a.svm", libsvm(&data).as_bytes());
    let (_, want) = learned(FTRL, &data, 1);
    let got = run(&mut Liar(MapRows::new(FTRL, 2, false)), &path, 256, 1).progressive.unwrap().loss();
    assert!((got / want - 1.0).abs() > 1e-4, "{got} {want}");
}

/// Weights, rows and held-out quality agree with the online learner's after three epochs.
fn check_backend<B: Backend>(mut backend: B, rule: Rule, batch: usize) -> B {
    let folder = tempfile::tempdir().unwrap();
    let (data, held_out) = (examples(8_000, 3), examples(2_000, 4));
    let path = file(&folder, "train.svm", libsvm(&data).as_bytes());
    let test = file(&folder, "test.svm", libsvm(&held_out).as_bytes());
    let (online, want) = learned(rule, &data, 3);
    let options = Options {
        batch,
        epochs: 3,
        test: Some(Data::new(&test)),
        progress_every: Duration::ZERO,
        ..Options::new(Data::new(&path))
    };
    let mut calls = 0;
    let report = train(&options, &mut backend, &AtomicBool::new(false), &mut |p| {
        calls += 1;
        assert!(p.epoch < 3 && p.loss.is_finite() && Some(p.bytes_read) <= p.bytes_total);
    })
    .unwrap();
    assert!(calls >= 3);
    assert_close(report.progressive.as_ref().unwrap().loss(), want, 1e-6, rule.name());
    assert_eq!((report.examples, report.rows), (24_000, online.rows() as u64));
    assert_eq!(report.not_finite, 0);
    let tested = report.test.unwrap();
    let test_quality = tested.click().unwrap();
    let margins: Vec<f64> = held_out.iter().map(|e| online.margin(e)).collect();
    let loss: f64 = margins
        .iter()
        .zip(&held_out)
        .map(|(m, e)| (1.0 + (if e.0 > 0.5 { -m } else { *m }).exp()).ln())
        .sum::<f64>()
        / 2_000.0;
    assert_close(test_quality.log_loss, loss, 1e-4, "test log loss");
    assert!(test_quality.auc.unwrap() > 0.7 && test_quality.auc_error == 0.0);
    // The exported weights give the same predictions.
    let (mut weights, mut rows) = (Weights::default(), 0);
    let planes = backend.schema().floats();
    backend
        .scan(&mut |keys, states| {
            rows += keys.len();
            for (&key, state) in keys.iter().zip(states.chunks(planes)) {
                weights.insert(key, model::weight(&rule, state));
            }
        })
        .unwrap();
    assert_eq!(rows, online.rows());
    let mut scores = Vec::new();
    let predicted = predict(&Data::new(&test), &weights, |p| {
        scores.extend_from_slice(p);
        Ok::<(), TrainError>(())
    })
    .unwrap();
    assert_eq!((predicted.examples, scores.len()), (2_000, 2_000));
    assert_close(predicted.quality.unwrap().log_loss, test_quality.log_loss, 1e-6, "prediction");
    backend
}

#[test]
fn rows_learned_in_place() {
    for rule in RULES {
        check_backend(FlatTable::new(&Schema::scalar("lr", rule)).unwrap(), rule, 256);
    }
    let wide = Schema { dim: 2, ..Schema::scalar("lr", FTRL) };
    assert!(FlatTable::new(&wide).is_err());
    let choosy = Schema { admission: Admission::Probability(0.5), ..Schema::scalar("lr", FTRL) };
    assert!(FlatTable::new(&choosy).is_err());
}

#[test]
fn embedded_shards() {
    for rule in RULES {
        let schema = Schema::scalar("lr", rule);
        check_backend(Embedded::open(&Store::memory(), &schema, 1).unwrap(), rule, 256).close().unwrap();
    }
}

#[test]
fn embedded_shards_in_a_folder_go_on_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema::scalar("lr", FTRL);
    let store = Store::open_dir(&folder.path().join("data")).unwrap();
    check_backend(Embedded::open(&store, &schema, 1).unwrap(), FTRL, 1000).close().unwrap();
    let mut again = Embedded::open(&store, &schema, 1).unwrap();
    let before = again.stats().unwrap().rows;
    let path = file(&folder, "more.svm", b"1 1 2 3\n0 4 5:0.5\n");
    let report = run(&mut again, &path, 256, 1);
    assert!(
        before > 5_000 && report.rows >= before && report.progressive.unwrap().click().unwrap().examples == 2
    );
}

#[test]
fn servers_over_tcp() {
    for (rule, depth, servers, batch) in
        [(FTRL, 0, 1, 64), (FTRL, 1, 2, 256), (RULES[1], 2, 2, 256), (RULES[2], 1, 1, 8192)]
    {
        let start = |_| {
            let config = ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") };
            Server::start(Tcp::new(), config).unwrap()
        };
        let running: Vec<Server> = (0..servers).map(start).collect();
        let addrs: Vec<&str> = running.iter().map(Server::addr).collect();
        let worker = Worker::connect(Tcp::new(), WorkerConfig::new(addrs, 1, 1)).unwrap();
        let remote = RemoteBackend::open(worker, &Schema::scalar("lr", rule), depth).unwrap();
        drop(check_backend(remote, rule, batch));
        let rows: u64 = running.into_iter().map(|s| s.stop().unwrap()).sum();
        assert!(rows > 5_000);
    }
}

#[test]
fn shares_make_up_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a.svm", libsvm(&examples(3_001, 5)).as_bytes());
    let mut examples = 0;
    for worker in 0..3 {
        let share = Share { worker, workers: 3 };
        let options = Options { share, batch: 100, ..Options::new(Data::new(&path)) };
        let mut rows = MapRows::new(FTRL, 1, false);
        examples += train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {}).unwrap().examples;
    }
    assert_eq!(examples, 3_001);
}

#[test]
fn a_stop_is_honoured_between_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a.svm", libsvm(&examples(20_000, 6)).as_bytes());
    let options =
        Options { batch: 100, progress_every: Duration::ZERO, epochs: 50, ..Options::new(Data::new(&path)) };
    let stop = AtomicBool::new(false);
    let mut rows = MapRows::new(FTRL, 2, false);
    let report = train(&options, &mut rows, &stop, &mut |p| {
        if p.examples >= 25_000 {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert!(report.stopped && (25_000..=25_500).contains(&report.examples), "{}", report.examples);
}

#[test]
fn many_epochs_use_the_same_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a.svm", b"1 1:2\n0 2:3\n");
    let report = run(&mut MapRows::new(FTRL, 2, false), &path, 256, 100);
    assert_eq!(report.examples, 200);
}

#[test]
fn errors_come_through() {
    let folder = tempfile::tempdir().unwrap();
    let never = AtomicBool::new(false);
    let attempt = |options: &Options, rule| {
        train(options, &mut MapRows::new(rule, 1, false), &never, &mut |_| {}).unwrap_err()
    };
    let mut text = libsvm(&examples(2_000, 7));
    text.push_str("1 7:x\n");
    let path = file(&folder, "bad.svm", text.as_bytes());
    let error = attempt(&Options::new(Data::new(&path)), FTRL).to_string();
    assert!(error.contains("bad.svm:2001: ") && error.contains("--skip-bad-lines"), "{error}");
    let error = attempt(&Options::new(Data::new("/no/such.svm")), FTRL).to_string();
    assert!(error.contains("/no/such.svm") && error.contains("cannot read"), "{error}");
    let error = attempt(&Options::new(Data::new(&path)), Rule::Add(Add)).to_string();
    assert!(error.contains("add") && error.contains("ftrl"), "{error}");
    let options = Options { epochs: 2, ..Options::new(Data::new("-")) };
    assert!(matches!(attempt(&options, FTRL), TrainError::Read(ReadError::ReadOnce { .. })));
    let skipping = Data { skip_bad_lines: 3, ..Data::new(&path) };
    let report =
        train(&Options::new(skipping), &mut MapRows::new(FTRL, 1, false), &never, &mut |_| {}).unwrap();
    assert_eq!((report.examples, report.bad_lines.count, report.bad_lines.first[0].line), (2_000, 1, 2_001));
}

/// Any number of threads gives the same bits with every backend, and the same errors.
#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a.svm", libsvm(&examples(5000, 8)).as_bytes());
    fn learn<B: Backend>(mut rows: B, path: &str, threads: usize) -> (Vec<(u64, Vec<u32>)>, [u64; 4]) {
        let options = Options { threads, epochs: 3, batch: 100, ..Options::new(Data::new(path)) };
        let report = train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let mut all = Vec::new();
        rows.scan(&mut |keys, state| {
            let rows = state.chunks(state.len() / keys.len());
            all.extend(keys.iter().copied().zip(rows.map(|row| row.iter().map(|v| v.to_bits()).collect())));
        })
        .unwrap();
        all.sort();
        let log_loss = report.progressive.unwrap().loss().to_bits();
        (all, [report.examples, report.rows, report.repeated_keys, log_loss])
    }
    for rule in RULES {
        let schema = Schema::scalar("lr", rule);
        let flat = |threads| learn(FlatTable::new(&schema).unwrap(), &path, threads);
        let shards = |threads| learn(Embedded::open(&Store::memory(), &schema, 1).unwrap(), &path, threads);
        let (rows, counts) = flat(1);
        assert!(counts[0] == 15_000 && counts[1] == rows.len() as u64 && counts[2] > 0);
        let ahead = |threads| learn(MapRows::new(rule, 2, true), &path, threads);
        for threads in [2, 3, 6] {
            assert!((&rows, counts) == (&flat(threads).0, flat(threads).1), "{threads} threads");
            assert!(shards(1) == shards(threads) && ahead(1) == ahead(threads), "{threads} threads");
        }
    }
    let bad = file(&folder, "bad.svm", format!("{}1 x:1\n", "1 1:1\n".repeat(300)).as_bytes());
    let none = file(&folder, "good.svm", b"1 1:1\n");
    let outcome = |path: &str, threads| {
        let options = Options { threads, ..Options::new(Data::new(path)) };
        let mut rows = FlatTable::new(&Schema::scalar("lr", FTRL)).unwrap();
        train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {})
            .map_err(|e| e.to_string())
            .map(|r| r.examples)
    };
    assert!(outcome(&bad, 1).is_err());
    assert!([2, 3, 6].iter().all(|&threads| outcome(&bad, 1) == outcome(&bad, threads)));
    assert!([1, 2, 3, 6].iter().all(|&threads| outcome(&none, threads) == Ok(1)));
    assert!([0, 257].iter().all(|&threads| outcome(&none, threads).unwrap_err().contains("threads")));
}
