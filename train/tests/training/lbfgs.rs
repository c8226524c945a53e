//! L-BFGS against oracles: Newton's method on dense matrices with L2, and the conditions of optimality with L1. Also
//! one process against three servers and two workers, one of which dies, and trainings that continue from a folder or
//! from given weights.

use flate2::read::MultiGzDecoder;
use gannet_core::{Program, Stats, Store};
use gannet_server::{Server, ServerConfig};
use gannet_train::lbfgs::*;
use gannet_train::{Backend, BackendError, ColumnChoice, Data, INTERCEPT_KEY, Share};
use gannet_transport::tcp::Tcp;
use gannet_worker::{Worker, WorkerConfig};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

static GO: AtomicBool = AtomicBool::new(false);
const KEYS: u64 = 12;

/// Numbers from a seed, in [0, 1).
fn numbers(mut seed: u64) -> impl FnMut() -> f64 {
    move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / f64::from(1u32 << 31)
    }
}

/// Examples of a few of the keys each, some of them on very different scales; labels of hidden weights, with noise.
fn write_data(folder: &Path, examples: usize) -> PathBuf {
    let (mut text, mut next) = (String::new(), numbers(7));
    let hidden: Vec<f64> = (0..KEYS).map(|_| 4.0 * next() - 2.0).collect();
    for _ in 0..examples {
        let (mut margin, mut features) = (-0.5, String::new());
        for key in 0..KEYS {
            if next() < 0.4 {
                let value = ((next() * 16.0).floor() + 1.0) / if key < 3 { 64.0 } else { 8.0 };
                margin += hidden[key as usize] * value;
                write!(features, " {}:{value}", key + 1).unwrap();
            }
        }
        writeln!(text, "{}{features}", u8::from(next() < 1.0 / (1.0 + (-margin).exp()))).unwrap();
    }
    let path = folder.join("data.svm");
    std::fs::write(&path, text).unwrap();
    path
}

fn data(path: &Path, intercept: bool) -> Data {
    Data { intercept, ..Data::new(path.to_str().unwrap()) }
}

fn settings(l1: f64, l2: f64, intercept: bool) -> LbfgsSettings {
    let patience = Duration::from_secs(30);
    LbfgsSettings { l1, l2, intercept, iterations: 2000, tolerance: 1e-13, workers: 1, patience }
}

fn examples(data: &Data, worker: u32, workers: u32, threads: usize) -> Examples {
    Examples::read(data, Share { worker, workers }, 64, threads, 1 << 30).unwrap().0
}

fn train(columns: &mut impl Columns, data: &Data, settings: LbfgsSettings) -> Trained {
    let mut examples = examples(data, 0, settings.workers, 2);
    Chief::new(columns, &mut examples, settings, &GO).unwrap().train(&mut |_| {}).unwrap()
}

fn weights(columns: &mut impl Columns) -> BTreeMap<u64, f64> {
    let mut all = BTreeMap::new();
    let mut learned = LearnedWeights::new(columns, "lr").unwrap();
    learned
        .exact(&mut |keys, weights| all.extend(keys.iter().copied().zip(weights.iter().copied())))
        .unwrap();
    let mut floats = BTreeMap::new();
    learned
        .scan(&mut |keys, weights| floats.extend(keys.iter().copied().zip(weights.iter().copied())))
        .unwrap();
    let nearest = all.iter().map(|(&key, &weight)| (key, weight as f32)).filter(|&(_, weight)| weight != 0.0);
    assert!(floats.into_iter().eq(nearest), "the floats nearest to the weights");
    all
}

/// Dense rows with a last column of ones when there is an intercept, and labels.
fn dense(path: &Path, intercept: bool) -> (Vec<Vec<f64>>, Vec<f64>) {
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let mut row = vec![0.0; KEYS as usize];
        for feature in line.split(' ').skip(1) {
            let (key, value) = feature.split_once(':').unwrap();
            row[key.parse::<usize>().unwrap() - 1] = value.parse().unwrap();
        }
        row.extend(intercept.then_some(1.0));
        row
    };
    (text.lines().map(row).collect(), text.lines().map(|line| line[..1].parse().unwrap()).collect())
}

/// Objective without L1, its gradient and its Hessian.
fn newton_terms(x: &[Vec<f64>], y: &[f64], w: &[f64], l2: f64) -> (f64, Vec<f64>, Vec<Vec<f64>>) {
    let n = w.len();
    let (mut f, mut g, mut h) = (0.0, vec![0.0; n], vec![vec![0.0; n]; n]);
    for (x, &y) in x.iter().zip(y) {
        let m: f64 = x.iter().zip(w).map(|(a, b)| a * b).sum();
        let p = 1.0 / (1.0 + (-m).exp());
        f += m.max(0.0) - m * y + (-m.abs()).exp().ln_1p();
        for i in 0..n {
            g[i] += (p - y) * x[i];
            (0..n).for_each(|j| h[i][j] += p * (1.0 - p) * x[i] * x[j]);
        }
    }
    for i in 0..KEYS as usize {
        f += 0.5 * l2 * w[i] * w[i];
        g[i] += l2 * w[i];
        h[i][i] += l2;
    }
    (f, g, h)
}

/// Solves `h x = g` by elimination with pivots.
fn solve(mut h: Vec<Vec<f64>>, mut g: Vec<f64>) -> Vec<f64> {
    let n = g.len();
    for i in 0..n {
        let pivot = (i..n).max_by(|&a, &b| h[a][i].abs().total_cmp(&h[b][i].abs())).unwrap();
        h.swap(i, pivot);
        g.swap(i, pivot);
        for j in i + 1..n {
            let factor = h[j][i] / h[i][i];
            (i..n).for_each(|k| h[j][k] -= factor * h[i][k]);
            g[j] -= factor * g[i];
        }
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| h[i][k] * g[k]).sum();
        g[i] = (g[i] - known) / h[i][i];
    }
    g
}

/// The least objective, by Newton's method.
fn newton(path: &Path, l2: f64, intercept: bool) -> f64 {
    let (x, y) = dense(path, intercept);
    let mut w = vec![0.0; x[0].len()];
    for _ in 0..60 {
        let (_, g, h) = newton_terms(&x, &y, &w, l2);
        let step = solve(h, g);
        // Short enough not to overshoot: 60 steps are more than enough.
        let longest = step.iter().fold(1.0, |most: f64, s| most.max(s.abs()));
        w.iter_mut().zip(step).for_each(|(w, s)| *w -= s / longest);
    }
    newton_terms(&x, &y, &w, l2).0
}

#[test]
fn the_least_objective_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_data(folder.path(), 3000);
    for (l2, intercept, history) in [(1.0, true, 10), (1.0, false, 3), (0.01, true, 1), (100.0, true, 5)] {
        let store = Store::memory();
        let mut columns = LocalColumns::open(&store, Layout { history }).unwrap();
        let trained = train(&mut columns, &data(&path, intercept), settings(0.0, l2, intercept));
        let least = newton(&path, l2, intercept);
        let excess = (trained.objective - least) / least;
        assert!((-1e-12..1e-9).contains(&excess), "l2 {l2}: {trained:?}, {least} is the least");
        assert!(trained.converged && trained.examples == 3000);
        // The objective is that of the saved weights, up to their rounding to floats.
        let (x, y) = dense(&path, intercept);
        let saved = weights(&mut columns);
        let mut w: Vec<f64> = (1..=KEYS).map(|key| saved.get(&key).copied().unwrap_or(0.0)).collect();
        w.extend(intercept.then(|| saved[&INTERCEPT_KEY]));
        let (of_saved, _, _) = newton_terms(&x, &y, &w, l2);
        assert!((of_saved - trained.objective).abs() < 1e-9 * least, "{of_saved} {trained:?}");
    }
}

/// With L1: where a weight is 0 the loss's slope is at most l1, elsewhere it is l1 against the weight's sign (Karush,
/// Kuhn, Tucker). The objective is convex, so this is its minimum.
#[test]
fn the_conditions_of_optimality_hold_with_l1() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_data(folder.path(), 3000);
    for (l1, l2, intercept) in [(20.0, 0.0, true), (60.0, 1.0, false), (1e5, 0.0, true)] {
        let store = Store::memory();
        let mut columns = LocalColumns::open(&store, Layout { history: 10 }).unwrap();
        let trained = train(&mut columns, &data(&path, intercept), settings(l1, l2, intercept));
        let saved = weights(&mut columns);
        let (x, y) = dense(&path, intercept);
        let mut w: Vec<f64> = (1..=KEYS).map(|key| saved.get(&key).copied().unwrap_or(0.0)).collect();
        w.extend(intercept.then(|| saved.get(&INTERCEPT_KEY).copied().unwrap_or(0.0)));
        let (f, g, _) = newton_terms(&x, &y, &w, l2);
        let penalty: f64 = w[..KEYS as usize].iter().map(|w| w.abs()).sum();
        assert!((f + l1 * penalty - trained.objective).abs() < 1e-8 * f, "{trained:?}");
        for (i, (&g, &w)) in g.iter().zip(&w).enumerate() {
            let l1 = if i < KEYS as usize { l1 } else { 0.0 };
            let wrong = if w == 0.0 { (g.abs() - l1).max(0.0) } else { (g + l1 * w.signum()).abs() };
            assert!(wrong < 0.02, "l1 {l1}: weight {i} is {w}, slope {g}: {trained:?}");
        }
        let zeros = w.iter().filter(|w| **w == 0.0).count();
        assert!(zeros > 0 && (l1 < 1e4 || zeros == KEYS as usize), "{w:?}");
    }
}

/// The first 20,000 flights as categories, many of which say the same (a flight has one carrier). Their objective with
/// L1 has long flat valleys. Once its directions were of all weights, also of those that stay at 0: to this tolerance
/// they took 1,086 passes.
#[test]
fn categories_with_l1_take_few_passes() {
    const ROWS: usize = 20_000;
    let packed = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/flights.csv.gz")).unwrap();
    let mut text = String::new();
    MultiGzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().take(1 + ROWS).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flights.csv");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let categorical = lines[0].split(',').skip(1).map(str::to_owned).collect();
    let columns = ColumnChoice { categorical, ..ColumnChoice::default() };
    let data = Data { columns, intercept: false, ..Data::new(path.to_str().unwrap()) };
    let (mut least, layout) = (f64::INFINITY, Layout { history: 10 });
    for tolerance in [1e-8, 1e-6] {
        let settings = LbfgsSettings { tolerance, iterations: 10_000, ..settings(1.0, 0.0, false) };
        let trained = train(&mut LocalColumns::open(&Store::memory(), layout).unwrap(), &data, settings);
        least = least.min(trained.objective);
        let excess = trained.objective / least - 1.0;
        assert!(trained.converged && excess < 1e-6, "{trained:?}, {least} was found");
        println!("{tolerance}: {trained:?}");
        assert!(tolerance < 1e-6 || trained.passes < 400, "{trained:?}");
    }
}

#[test]
fn a_training_goes_on_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_data(folder.path(), 2000);
    let (data, layout) = (data(&path, true), Layout { history: 4 });
    let whole = train(
        &mut LocalColumns::open(&Store::memory(), layout).unwrap(),
        &data,
        LbfgsSettings { iterations: 12, ..settings(0.0, 0.1, true) },
    );
    // The same twelve iterations in three runs. The pairs are kept, so the path is the same up to the last bits of
    // the gradient.
    let images = folder.path().join("images");
    let mut last = Trained::default();
    for run in 0..3 {
        let store = Store::open_dir(&images).unwrap();
        let mut columns = LocalColumns::open(&store, layout).unwrap();
        last = train(&mut columns, &data, LbfgsSettings { iterations: 4, ..settings(0.0, 0.1, true) });
        assert_eq!((last.resumed_at, last.iterations), (4 * run, 4));
        columns.close().unwrap();
    }
    let relative = (last.objective - whole.objective).abs() / whole.objective;
    assert!(relative < 1e-9, "{last:?} {whole:?}");
    // With other penalties it starts from the same weights, without the pairs.
    let store = Store::open_dir(&images).unwrap();
    let mut columns = LocalColumns::open(&store, layout).unwrap();
    let other = train(&mut columns, &data, settings(0.0, 5.0, true));
    let least = newton(&path, 5.0, true);
    assert!(other.objective - least < 1e-9 * least && other.resumed_at == 12, "{other:?} {least}");
}

#[test]
fn a_training_begins_from_given_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_data(folder.path(), 2000);
    let (data, layout) = (data(&path, true), Layout { history: 10 });
    let mut columns = LocalColumns::open(&Store::memory(), layout).unwrap();
    let cold = train(&mut columns, &data, settings(0.0, 1.0, true));
    let start = weights(&mut columns);
    let mut columns = LocalColumns::open(&Store::memory(), layout).unwrap();
    // The table has other weights before.
    train(&mut columns, &data, LbfgsSettings { iterations: 2, ..settings(0.0, 300.0, true) });
    let mut examples = examples(&data, 0, 1, 1);
    let settings = LbfgsSettings { iterations: 1, ..settings(0.0, 1.0, true) };
    let mut chief = Chief::new(&mut columns, &mut examples, settings, &GO).unwrap();
    let (keys, values): (Vec<u64>, Vec<f32>) = start.iter().map(|(&k, &w)| (k, w as f32)).unzip();
    let count = chief.begin_from::<LbfgsError>(|page| page(&keys, &values)).unwrap();
    assert_eq!(count, keys.len() as u64);
    let mut first = None;
    let warm = chief.train(&mut |trained| first = first.or(Some(trained.objective))).unwrap();
    let first = first.unwrap();
    assert!((first - cold.objective).abs() < 1e-9 * cold.objective, "{first} {cold:?}");
    assert_eq!(warm.resumed_at, 0);
}

/// Columns whose owner fails at a push.
struct Mortal<C> {
    columns: C,
    pushes_left: u32,
}

impl<C: Columns> Columns for Mortal<C> {
    fn transport(&self) -> String {
        self.columns.transport()
    }
    fn layout(&self) -> Layout {
        self.columns.layout()
    }
    fn pull(&mut self, segment: usize, keys: &[u64], rows: &mut Vec<f32>) -> Result<(), BackendError> {
        self.columns.pull(segment, keys, rows)
    }
    fn add(&mut self, pass: u64, keys: &[u64], values: Vec<f32>) -> Result<(), BackendError> {
        // The push arrives but gets no answer: its pass starts again with another id.
        self.columns.add(pass, keys, values)?;
        match self.pushes_left.checked_sub(1) {
            Some(left) => self.pushes_left = left,
            None => return Err(BackendError::Order("dead")),
        }
        Ok(())
    }
    fn run(&mut self, program: &Program) -> Result<Vec<f64>, BackendError> {
        self.columns.run(program)
    }
    fn read_cells(&mut self, keys: &[u64]) -> Result<Vec<CommandCell>, BackendError> {
        self.columns.read_cells(keys)
    }
    fn write_cells(&mut self, command_id: u64, cells: &[(u64, f64)]) -> Result<(), BackendError> {
        self.columns.write_cells(command_id, cells)
    }
    fn scan(&mut self, page: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        self.columns.scan(page)
    }
    fn stats(&mut self) -> Result<Stats, BackendError> {
        self.columns.stats()
    }
}

#[test]
fn servers_and_workers_find_what_one_process_finds_also_when_a_worker_dies() {
    let folder = tempfile::tempdir().unwrap();
    // More than one batch of 1,024 for each worker.
    let path = write_data(folder.path(), 5000);
    let (data, layout) = (data(&path, true), Layout { history: 5 });
    for (l1, l2) in [(0.0, 1.0), (20.0, 0.0)] {
        let settings = settings(l1, l2, true);
        let mut alone = LocalColumns::open(&Store::memory(), layout).unwrap();
        let alone = train(&mut alone, &data, settings.clone());
        let servers: Vec<Server> = (0..3)
            .map(|_| {
                let config = ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") };
                Server::start(Tcp::new(), config).unwrap()
            })
            .collect();
        let addrs: Vec<String> = servers.iter().map(|server| server.addr().to_owned()).collect();
        let connect = |index: u64, incarnation: u64| {
            let worker =
                Worker::connect(Tcp::new(), WorkerConfig::new(addrs.clone(), index + 1, incarnation))
                    .unwrap();
            RemoteColumns::open(worker, layout).unwrap()
        };
        let trained = std::thread::scope(|scope| {
            scope.spawn(|| {
                for (incarnation, pushes_left) in [(1, 3), (2, 0), (3, u32::MAX)] {
                    let mut columns = Mortal { columns: connect(1, incarnation), pushes_left };
                    let mut examples = examples(&data, 1, 2, 1);
                    let done = follow(&mut columns, &mut examples, (1, incarnation), settings.patience, &GO);
                    assert_eq!(done.is_ok(), incarnation == 3, "{done:?}");
                }
            });
            let mut columns = connect(0, 1);
            train(&mut columns, &data, LbfgsSettings { workers: 2, ..settings.clone() })
        });
        let relative = (trained.objective - alone.objective).abs() / alone.objective;
        assert!(relative < 1e-9, "{trained:?} {alone:?}");
        assert_eq!((trained.examples, trained.converged), (5000, true));
    }
}

#[test]
fn a_worker_that_does_not_come_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_data(folder.path(), 10);
    let data = data(&path, true);
    let mut columns = LocalColumns::open(&Store::memory(), Layout { history: 1 }).unwrap();
    let settings =
        LbfgsSettings { workers: 3, patience: Duration::from_millis(50), ..settings(0.0, 1.0, true) };
    let mut own = examples(&data, 0, 3, 1);
    let lost = Chief::new(&mut columns, &mut own, settings, &GO).unwrap().train(&mut |_| {}).unwrap_err();
    assert!(lost.to_string().starts_with("worker 1 has not answered"), "{lost}");
    let lost = follow(&mut columns, &mut own, (1, 1), Duration::from_millis(50), &GO).unwrap_err();
    assert!(lost.to_string().starts_with("the chief (worker 0) has given no command"), "{lost}");
}
