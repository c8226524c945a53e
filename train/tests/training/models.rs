//! The models against known answers, without data from outside, in one process and over servers.

use crate::model;

use gannet_core::{Admission, RowType, Store};
use gannet_optim::{AdaGrad, Adam, GradientTransform, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_train::models::{
    DeepFm, Factorization, FactorizationMachine, Lda, Linear, Measured, Model, ModelSettings, Softmax,
    Topics, fit, score,
};
use gannet_train::{
    ColumnChoice, ColumnKeys, Data, FlatTables, INTERCEPT_KEY, Labels, LocalTables, Options, PushContent,
    RemoteTables, Report, SavedTables, Share, Tables, WeightTables, train,
};
use gannet_transport::tcp::Tcp;
use gannet_wire::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{Worker, WorkerConfig};
use model::{Rng, file};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const ADAGRAD: Rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 1.0 });

pub(crate) fn settings(rule: Rule) -> ModelSettings {
    let (shaping, admission) = (GradientTransform::NONE, Admission::All);
    ModelSettings { rule, row_type: RowType::F32, shaping, admission, seed: 7, deviation: 0.1, l2: 0.0 }
}

fn local() -> LocalTables {
    LocalTables::new(Store::memory(), 1)
}

/// Servers of two threads on loopback.
pub(crate) fn servers(n: usize) -> Vec<Server> {
    let start =
        |_| Server::start(Tcp::new(), ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") });
    (0..n).map(|i| start(i).unwrap()).collect()
}

fn remote(servers: &[Server], worker: u64) -> RemoteTables<Tcp> {
    let addrs = servers.iter().map(|s| s.addr().to_string());
    RemoteTables::new(Worker::connect(Tcp::new(), WorkerConfig::new(addrs, worker + 1, 1)).unwrap())
}

/// The tables of worker `rank` of two that keep step.
fn in_step(servers: &[Server], rank: u32, mode: SyncMode) -> RemoteTables<Tcp> {
    let mut tables = remote(servers, rank.into());
    let worker_timeout = Duration::from_secs(60);
    tables.keep_step(SyncConfig { rank, workers: 2, mode, worker_timeout, strict: false });
    tables
}

pub(crate) fn options(data: &Data, labels: Labels, epochs: u32) -> Options {
    Options { epochs, ..Options::new(Data { labels, ..data.clone() }) }
}

fn run<T: Tables>(options: &Options, model: &mut dyn Model, tables: &mut T) -> Report {
    fit(options, model, tables, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

/// y = 2x + 10 and noise.
fn line(folder: &TempDir) -> Data {
    let (mut rng, mut text) = (Rng(1), "y,x\n".to_owned());
    for _ in 0..20_000 {
        let x = normal(&mut rng);
        writeln!(text, "{:.5},{x:.5}", 2.0 * x + 10.0 + 0.33 * normal(&mut rng)).unwrap();
    }
    let columns = ColumnChoice {
        label: Some("y".into()),
        categorical: Vec::new(),
        numeric: vec!["x".into()],
        ..ColumnChoice::default()
    };
    Data { columns, ..Data::new(&file(folder, "line.csv", text.as_bytes())) }
}

fn close_to_the_line<T: Tables>(tables: &mut T) {
    let mut weights = Vec::new();
    tables.weights(0, &[ColumnKeys::new("x").numeric(), INTERCEPT_KEY], &mut weights).unwrap();
    assert!((weights[0] - 2.0).abs() < 0.05 && (weights[1] - 10.0).abs() < 0.05, "{weights:?}");
}

/// In one process, by replay and by gradients; and with two workers of two servers, which do not wait for each other.
#[test]
fn linear_regression_finds_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = line(&folder);
    let half = Rule::AdaGrad(AdaGrad { lr: 0.5, eps: 1e-8, initial_accumulator: 1.0 });
    for push in [PushContent::Replay, PushContent::Gradient] {
        let options = Options { batch: 16, push: Some(push), ..options(&data, Labels::Numbers, 1) };
        let mut tables = local();
        let fitted = run(&options, &mut Linear::new(settings(half)), &mut tables);
        assert_eq!((fitted.examples, fitted.steps, fitted.rows, fitted.push), (20_000, 1250, 2, push));
        close_to_the_line(&mut tables);

        let servers = servers(2);
        std::thread::scope(|scope| {
            for worker in 0..2 {
                let (servers, mut options) = (&servers, options.clone());
                options.share = Share { worker, workers: 2 };
                scope.spawn(move || {
                    let mut tables = remote(servers, worker.into());
                    let fitted = run(&options, &mut Linear::new(settings(half)), &mut tables);
                    assert_eq!(
                        (fitted.examples, fitted.steps, fitted.transport.as_str()),
                        (10_000, 625, "tcp")
                    );
                });
            }
        });
        let mut tables = remote(&servers, 2);
        tables.open(&Linear::new(settings(half)).sparse()).unwrap();
        close_to_the_line(&mut tables);
    }
}

/// Three classes around three points: no classifier is right more often than the nearest point.
#[test]
fn softmax_regression_is_as_right_as_can_be() {
    const CENTRES: [[f64; 2]; 3] = [[0.0, 1.5], [1.3, -0.75], [-1.3, -0.75]];
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng(3);
    let mut best = 0;
    let mut examples = |n: usize| {
        let (mut text, mut right) = (String::new(), 0);
        for _ in 0..n {
            let class = rng.below(3) as usize;
            let [x, y] = CENTRES[class].map(|c| c + normal(&mut rng));
            let distance = |c: [f64; 2]| (x - c[0]).powi(2) + (y - c[1]).powi(2);
            let nearest = (0..3).min_by(|&a, &b| distance(CENTRES[a]).total_cmp(&distance(CENTRES[b])));
            right += usize::from(nearest == Some(class));
            writeln!(text, "{class} 1:{x:.5} 2:{y:.5}").unwrap();
        }
        best = right;
        text
    };
    let data = Data::new(&file(&folder, "train.svm", examples(20_000).as_bytes()));
    let test = Data::new(&file(&folder, "test.svm", examples(10_000).as_bytes()));
    let labels = Labels::Classes(3);
    let options = Options { test: Some(Data { labels, ..test }), ..options(&data, labels, 2) };
    let fitted = run(&options, &mut Softmax::new(settings(ADAGRAD), 3), &mut local());
    let Some(Measured::Class(test)) = fitted.test else { panic!("{fitted:?}") };
    let best = best as f64 / 10_000.0;
    assert!(test.accuracy > best - 0.01 && test.accuracy < best + 0.01, "{test:?}, the best is {best}");
}

/// Clicks that depend only on whether two categories agree, which no sum of weights can predict.
pub(crate) fn agreeing(folder: &TempDir, name: &str, n: usize, seed: u64) -> Data {
    let (mut rng, mut text) = (Rng(seed), String::new());
    for _ in 0..n {
        let (a, b, c) = (rng.below(2), rng.below(2), rng.below(5));
        writeln!(text, "{} {}:1 {}:1 {}:1", u8::from(a == b), 1 + a, 3 + b, 5 + c).unwrap();
    }
    Data::new(&file(folder, name, text.as_bytes()))
}

#[test]
fn factors_learn_what_pairs_say() {
    let folder = tempfile::tempdir().unwrap();
    let (data, test) = (agreeing(&folder, "train.svm", 4_000, 1), agreeing(&folder, "test.svm", 1_000, 2));
    let options = Options { test: Some(test), ..options(&data, Labels::Signs, 3) };
    let schema = gannet_core::Schema::scalar("lr", ADAGRAD);
    let mut plain = gannet_train::FlatTable::new(&schema).unwrap();
    let plain = train(&options, &mut plain, &AtomicBool::new(false), &mut |_| {}).unwrap().test.unwrap();
    assert!(plain.loss() > 0.68, "{plain:?}");
    let machine = FactorizationMachine::new(settings(ADAGRAD), 4);
    let deep = DeepFm::new(settings(ADAGRAD), 1, 4, &[8, 4]);
    for mut model in [Box::new(machine) as Box<dyn Model>, Box::new(deep)] {
        let fitted = run(&options, &mut *model, &mut local());
        assert!(fitted.test.as_ref().unwrap().loss() < 0.1, "{} {fitted:?}", model.name());
    }
}

/// Ratings of a hidden model of three factors and biases, with noise of deviation 0.1: no error can be smaller than
/// that.
#[test]
fn a_factorization_finds_hidden_factors() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng(5);
    let mut side = |n: usize| -> Vec<[f64; 4]> { (0..n).map(|_| [0; 4].map(|_| normal(&mut rng))).collect() };
    let (users, items) = (side(100), side(80));
    let mut text = ["user\titem\trating\n".to_owned(), "user\titem\trating\n".to_owned()];
    for _ in 0..20_000 {
        let (u, i) = (rng.below(100) as usize, rng.below(80) as usize);
        let product: f64 = (1..4).map(|f| users[u][f] * items[i][f]).sum();
        let rating = 3.0 + 0.5 * (users[u][0] + items[i][0] + product) + 0.1 * normal(&mut rng);
        writeln!(text[usize::from(rng.below(5) == 0)], "u{u}\ti{i}\t{rating:.4}").unwrap();
    }
    let columns = ColumnChoice { label: Some("rating".into()), ..ColumnChoice::default() };
    let data = |name: &str, text: &str| Data {
        columns: columns.clone(),
        labels: Labels::Numbers,
        ..Data::new(&file(&folder, name, text.as_bytes()))
    };
    let test = Some(data("test.tsv", &text[1]));
    let options = Options { test, ..options(&data("train.tsv", &text[0]), Labels::Numbers, 30) };
    let model = ModelSettings { l2: 0.001, deviation: 0.3, ..settings(ADAGRAD) };
    let fitted = run(&options, &mut Factorization::new(model, 4), &mut local());
    let rmse = fitted.test.as_ref().unwrap().loss();
    assert!((0.09..0.14).contains(&rmse), "{fitted:?}");
}

pub(crate) type State = Vec<BTreeMap<u64, Vec<u32>>>;

/// The bits of all rows.
pub(crate) fn state<T: Tables>(tables: &mut T, model: &dyn Model) -> State {
    let floats = |table: usize, tables: &T| tables.schema(table).floats();
    let all = (0..=model.dense().len()).map(|table| {
        let (mut rows, floats) = (BTreeMap::new(), floats(table, tables));
        let page = &mut |keys: &[u64], page: &[f32]| {
            let bits = page.chunks(floats).map(|row| row.iter().map(|x| x.to_bits()).collect());
            rows.extend(keys.iter().copied().zip(bits));
        };
        tables.scan(table, page).unwrap();
        rows
    });
    all.collect()
}

/// One worker of two servers learns the same bits as one process, and a saved model gives the same scores.
#[test]
fn servers_learn_what_one_process_learns() {
    let folder = tempfile::tempdir().unwrap();
    let data = agreeing(&folder, "train.svm", 2_000, 1);
    let adam = Rule::Adam(Adam { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 });
    let models = |s: ModelSettings| -> [Box<dyn Model>; 4] {
        let (linear, softmax) = (Linear::new(s), Softmax::new(s, 2));
        let (machine, deep) = (FactorizationMachine::new(s, 3), DeepFm::new(s, 1, 3, &[4]));
        [Box::new(linear), Box::new(softmax), Box::new(machine), Box::new(deep)]
    };
    for (rule, push) in [(ADAGRAD, PushContent::Replay), (adam, PushContent::Gradient)] {
        for (mut model, mut again) in models(settings(rule)).into_iter().zip(models(settings(rule))) {
            let options = options(&data, model.task().labels(), 2);
            let (mut here, servers) = (local(), servers(2));
            let mut there = remote(&servers, 0);
            let one = run(&options, &mut *model, &mut here);
            let two = run(&options, &mut *again, &mut there);
            assert_eq!((one.push, one.rows, &one.last_pass), (push, two.rows, &two.last_pass));
            let rows = state(&mut here, &*model);
            assert!(rows == state(&mut there, &*model), "{} {push:?}", model.name());
            if push == PushContent::Replay {
                flat_tables_learn_the_same(&options, &mut *again, &one, &rows);
            }

            let mut saved = SavedTables::default();
            for table in 0..rows.len() {
                let schema = here.schema(table).clone();
                saved.add(&schema);
                here.scan(table, &mut |keys, rows| saved.put(table, keys, rows)).unwrap();
            }
            let test = Data { labels: model.task().labels(), ..agreeing(&folder, "test.svm", 500, 2) };
            let scored = score(&test, &mut *model, &mut here).unwrap();
            assert!(scored.is_some() && scored == score(&test, &mut *model, &mut saved).unwrap());
        }
    }
}

/// Tables without shards get the bits of those in shards, with any number of threads. A training goes on from the rows
/// of another one.
fn flat_tables_learn_the_same(options: &Options, model: &mut dyn Model, want: &Report, rows: &State) {
    let mut flat = FlatTables::within(u64::MAX);
    for threads in [1, 3, 6, 2] {
        flat = FlatTables::within(u64::MAX);
        let fitted = run(&Options { threads, ..options.clone() }, model, &mut flat);
        assert_eq!((fitted.rows, &fitted.last_pass), (want.rows, &want.last_pass));
        assert!(state(&mut flat, model) == *rows, "{}, {threads} threads", model.name());
    }

    let (mut again, mut shards) = (FlatTables::within(u64::MAX), local());
    for table in 0..rows.len() {
        let schema = flat.schema(table).clone();
        assert_eq!((again.open(&schema).unwrap(), shards.open(&schema).unwrap()), (table, table));
        flat.scan(table, &mut |keys, rows| {
            again.restore(table, keys, rows).unwrap();
            shards.restore(table, keys, rows).unwrap();
        })
        .unwrap();
        let keys: Vec<u64> = rows[table].keys().copied().chain([1 << 40]).collect();
        let (mut here, mut there) = (Vec::new(), Vec::new());
        again.weights(table, &keys, &mut here).unwrap();
        shards.weights(table, &keys, &mut there).unwrap();
        assert_eq!(here, there);
    }
    let more = [run(options, model, &mut again).last_pass, run(options, model, &mut shards).last_pass];
    assert_eq!(more[0], more[1]);
    assert!(state(&mut again, model) == state(&mut shards, model), "{}", model.name());
}

/// Two workers train a model of four tables on two servers. No pull is staler than its bound. Synchronous batches of
/// 40 give what one process learns in batches of 80, except for the order in which gradients are added.
#[test]
fn workers_keep_step_over_all_tables_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let data = agreeing(&folder, "train.svm", 3_200, 1);
    let deep = || DeepFm::new(settings(ADAGRAD), 1, 3, &[6, 4]);
    let options =
        Options { batch: 40, push: Some(PushContent::Gradient), ..options(&data, Labels::Signs, 2) };
    let together = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });
    let mut learned = None;
    for (mode, bound) in [(SyncMode::Asp, 64), (SyncMode::Ssp(2), 2), (SyncMode::Ssp(0), 0), (together, 0)] {
        let servers = servers(2);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let (servers, mut options) = (&servers, options.clone());
                options.share = Share { worker: rank, workers: 2 };
                scope.spawn(move || {
                    let fitted = run(&options, &mut deep(), &mut in_step(servers, rank, mode));
                    assert_eq!((fitted.examples, fitted.steps, fitted.dropped_late), (3_200, 80, (0, 0)));
                    let pulls = &fitted.pulls_by_staleness;
                    assert_eq!(pulls.iter().sum::<u64>(), 4 * 80, "{mode:?}: a pull a table and step");
                    assert!(pulls.iter().skip(bound + 1).all(|&pulls| pulls == 0), "{mode:?}: {pulls:?}");
                });
            }
        });
        let mut tables = remote(&servers, 2);
        let model = deep();
        for schema in std::iter::once(model.sparse()).chain(model.dense().into_iter().map(|d| d.0)) {
            tables.open(&schema).unwrap();
        }
        learned = Some(state(&mut tables, &model));
    }
    let mut alone = local();
    run(&Options { batch: 80, ..options }, &mut deep(), &mut alone);
    let (alone, learned) = (state(&mut alone, &deep()), learned.unwrap());
    let mut compared = 0;
    for (alone, learned) in alone.iter().zip(&learned) {
        assert!(alone.keys().eq(learned.keys()));
        for (a, b) in alone.values().flatten().zip(learned.values().flatten()) {
            let (a, b) = (f32::from_bits(*a), f32::from_bits(*b));
            assert!((a - b).abs() <= 2e-3 * (1.0 + a.abs()), "{a} {b}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// Documents about one of four subjects, each with 25 words of its own. Also the number of tokens.
fn subjects(folder: &TempDir) -> (Data, u64) {
    let (mut rng, mut text, mut tokens) = (Rng(9), String::new(), 0);
    for document in 0..200u64 {
        let mut words = BTreeMap::new();
        for _ in 0..60 {
            *words.entry(document % 4 * 25 + rng.below(25)).or_insert(0) += 1;
            tokens += 1;
        }
        write!(text, "{}", words.len()).unwrap();
        words.iter().for_each(|(word, n)| write!(text, " {word}:{n}").unwrap());
        text.push('\n');
    }
    let data = Data::new(&file(folder, "documents.ldac", text.as_bytes()));
    (Data { labels: Labels::Numbers, intercept: false, ..data }, tokens)
}

const LDA: Lda = Lda { topics: 4, document_prior: 0.1, word_prior: 0.01, seed: 1 };

/// Checks that every topic is one subject, and that the counts are those of the data.
fn found(topics: &Topics, tokens: u64) {
    assert!(are_subjects(topics, tokens), "{topics:?}");
}

/// Checks that the counts are those of the data. Returns whether every topic is one subject.
fn are_subjects(topics: &Topics, tokens: u64) -> bool {
    assert_eq!(topics.tokens, tokens);
    assert_eq!(topics.topics.iter().map(|t| t.0).sum::<u64>(), tokens);
    assert!(topics.topics.iter().all(|(_, words)| words.is_sorted_by(|a, b| a.1 >= b.1)));
    let of_one =
        |words: &[(u64, u64)]| words.len() == 20 && words.iter().all(|w| w.0 / 25 == words[0].0 / 25);
    let subjects: std::collections::BTreeSet<u64> =
        topics.topics.iter().filter_map(|(_, words)| Some(words.first()?.0 / 25)).collect();
    subjects.len() == 4 && topics.topics.iter().all(|(_, words)| of_one(words))
}

#[test]
fn topics_are_found_and_no_token_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (data, tokens) = subjects(&folder);
    let options = Options { batch: 10, ..options(&data, Labels::Numbers, 60) };
    let sample = |options: &Options, tables: &mut LocalTables| {
        LDA.sample(options, tables, &AtomicBool::new(false), &mut |_| {}).unwrap()
    };
    let mut tables = local();
    let sampled = sample(&options, &mut tables);
    assert_eq!((sampled.documents, sampled.tokens, sampled.words, sampled.sweeps), (200, tokens, 100, 60));
    let topics = LDA.topics(&mut tables, 1, 100, 20).unwrap();
    found(&topics, tokens);
    // Random topics have a lower likelihood for the same words.
    let mut early = local();
    sample(&Options { epochs: 1, ..options.clone() }, &mut early);
    assert!(LDA.topics(&mut early, 1, 100, 20).unwrap().log_likelihood < topics.log_likelihood);
    // The counts of words agree with the totals, topic by topic.
    let mut sums = vec![0u64; 4];
    let page = &mut |_: &[u64], rows: &[f32]| {
        rows.chunks(4).for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, &n)| *sum += n as u64));
    };
    tables.scan(0, page).unwrap();
    assert_eq!(sums, topics.topics.iter().map(|t| t.0).collect::<Vec<_>>());
}

/// Two workers of two servers, asynchronous and in step. Counts that a third worker left in an earlier run are
/// noticed.
#[test]
fn workers_share_topics() {
    let folder = tempfile::tempdir().unwrap();
    let (data, tokens) = subjects(&folder);
    let sample = |seed: u64, worker: u32, tables: &mut RemoteTables<Tcp>| {
        let share = Share { worker, workers: 2 };
        let options = Options { batch: 10, share, ..options(&data, Labels::Numbers, 80) };
        Lda { seed, ..LDA }.sample(&options, tables, &AtomicBool::new(false), &mut |_| {}).unwrap().tokens
    };
    let together = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });
    let (mut last, mut all_found) = (None, BTreeMap::new());
    // The order in which the pushes come decides what is drawn. Some orders put two subjects into one topic, and
    // the sampler stays there. So several seeds are tried. The counts must be right with each.
    for (mode, seed) in
        [together, SyncMode::Asp].into_iter().flat_map(|mode| (1..7).map(move |seed| (mode, seed)))
    {
        let found = all_found.entry(mode.is_bsp()).or_insert(false);
        if *found {
            continue;
        }
        let servers = servers(2);
        std::thread::scope(|scope| {
            let (sample, servers) = (&sample, &servers);
            let both =
                [0, 1].map(|rank| scope.spawn(move || sample(seed, rank, &mut in_step(servers, rank, mode))));
            assert_eq!(both.map(|w| w.join().unwrap()).iter().sum::<u64>(), tokens);
        });
        let mut tables = remote(&servers, 2);
        LDA.schemas().iter().for_each(|schema| assert!(tables.open(schema).is_ok()));
        *found = are_subjects(&LDA.topics(&mut tables, 2, 100, 20).unwrap(), tokens);
        last = Some((servers, tables));
    }
    assert!(
        all_found.values().all(|found| *found),
        "bsp {:?}, asp {:?}",
        all_found.get(&true),
        all_found.get(&false)
    );
    let (servers, mut tables) = last.unwrap();
    sample(1, 0, &mut remote(&servers, 3));
    let error = LDA.topics(&mut tables, 2, 100, 20).unwrap_err().to_string();
    assert!(error.contains("earlier run"), "{error}");
}
