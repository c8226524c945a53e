//! The rows that a job starts from: all of one model, put once, whoever dies, and never over rows that are trained.

use gannet_core::{Read, Schema, Write};
use gannet_optim::{AdaGrad, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_train::{BackendError, RowSink, StartAtServers, StartRows};
use gannet_transport::multi::Transports;
use gannet_worker::{Worker, WorkerConfig};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

const KEYS: u64 = 20_000;
const PAGE: usize = 1_000;
/// A training gives rows these floats.
const TRAINED: f32 = 7.0;

fn schemas() -> Vec<Schema> {
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    // The second one counts pushes, as tables of several workers do.
    vec![Schema { dim: 3, ..Schema::scalar("fm", rule) }, Schema::scalar("fm.1", rule).counting()]
}

/// Called after each page, with its number, counted over all tables.
type Between<'a> = Box<dyn FnMut(usize) + Send + 'a>;

/// A model of two tables.
struct Saved<'a> {
    name: u64,
    between: Mutex<(usize, Between<'a>)>,
}

fn saved<'a>(name: u64, between: impl FnMut(usize) + Send + 'a) -> Saved<'a> {
    Saved { name, between: Mutex::new((0, Box::new(between))) }
}

fn row(model: u64, key: u64, floats: usize) -> Vec<f32> {
    (0..floats)
        .map(|at| 1.0 + gannet_core::mix(model ^ key ^ (at as u64) << 40) as f32 / 2f32.powi(64))
        .collect()
}

impl StartRows for Saved<'_> {
    fn name(&self) -> u64 {
        self.name
    }

    fn rows(&self, table: usize, put: &mut RowSink<'_>) -> Result<(), BackendError> {
        let floats = [6, 2][table];
        let keys: Vec<u64> = (0..KEYS).map(|key| gannet_core::mix(key + 1)).collect();
        for keys in keys.chunks(PAGE) {
            let rows: Vec<f32> = keys.iter().flat_map(|&key| row(self.name, key, floats)).collect();
            put(keys, &rows)?;
            let (count, between) = &mut *self.between.lock().unwrap();
            *count += 1;
            between(*count);
        }
        Ok(())
    }
}

struct Place(Server);

impl Place {
    fn new() -> Place {
        Place(Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0")).unwrap())
    }

    fn config(&self, incarnation: u64) -> WorkerConfig {
        WorkerConfig::builder([self.0.addr()]).incarnation(incarnation).build()
    }

    /// What the start of worker 0 with this number puts.
    fn put(&self, incarnation: u64, rows: &Saved<'_>) -> Result<Option<u64>, BackendError> {
        let (net, config) = (Transports::new(), self.config(incarnation));
        let mut chief = StartAtServers::connect_chief(net, config, &schemas(), rows.name)?;
        chief.put(rows, incarnation, &AtomicBool::new(false))
    }

    /// What worker 1 sees.
    fn look(&self, model: u64) -> StartAtServers<Transports> {
        let config = WorkerConfig { pusher: 2, ..self.config(1) };
        StartAtServers::connect(Transports::new(), config, &schemas(), model).unwrap()
    }

    /// A connection of worker 2.
    fn worker(&self) -> Worker<Transports> {
        let config = WorkerConfig { pusher: 3, ..self.config(1) };
        Worker::connect(Transports::new(), config).unwrap()
    }

    /// The rows that are not those of this model, in all tables, and how many there are.
    fn others(&self, model: u64) -> (usize, usize) {
        let mut worker = self.worker();
        let (mut others, mut all) = (0, 0);
        for (schema, own) in schemas().iter().zip([6, 2]) {
            let table = worker.open_table(schema).unwrap();
            let floats = schema.floats();
            let scanned = worker.scan(table, |keys, rows| {
                all += keys.len();
                let is_other = |(&key, got): (&u64, &[f32])| {
                    got[..own] != row(model, key, own)[..] || got[own..].iter().any(|&count| count != 0.0)
                };
                others +=
                    keys.iter().zip(rows.chunks(floats)).filter(|&(key, got)| is_other((key, got))).count();
            });
            scanned.unwrap();
        }
        (others, all)
    }

    /// A worker trains rows of the first table.
    fn train(&self, keys: &[u64]) {
        let mut worker = self.worker();
        let table = worker.open_table(&schemas()[0]).unwrap();
        worker.push(table, keys, Write::Row, &vec![TRAINED; keys.len() * 6]).unwrap();
    }

    fn trained(&self, keys: &[u64]) -> bool {
        let mut worker = self.worker();
        let table = worker.open_table(&schemas()[0]).unwrap();
        let mut rows = vec![0.0; keys.len() * 6];
        worker.pull(table, keys, Read::State, &mut rows).unwrap();
        rows.iter().all(|&float| float == TRAINED)
    }
}

#[test]
fn the_rows_are_put_once_and_are_those_of_the_model() {
    let place = Place::new();
    assert!(!place.look(5).are_put().unwrap());
    assert_eq!(place.put(1, &saved(5, |_| ())).unwrap(), Some(2 * KEYS));
    assert!(place.look(5).are_put().unwrap());
    assert_eq!(place.others(5), (0, 2 * KEYS as usize));
    let keys: Vec<u64> = (1..100).map(gannet_core::mix).collect();
    place.train(&keys);
    // The next start of the chief, and one with a later model, as in a run that goes on.
    for model in [5, 6] {
        place.look(model).check_rows().unwrap();
        assert_eq!(place.put(model, &saved(model, |_| ())).unwrap(), None);
    }
    assert!(place.trained(&keys));
}

#[test]
fn a_chief_that_dies_in_the_middle_leaves_no_halves() {
    for last in [1, 7, KEYS as usize / PAGE, KEYS as usize / PAGE + 1, 2 * KEYS as usize / PAGE] {
        let place = Place::new();
        // It ends before its next page, or before it says that all rows are there.
        let half = saved(5, |page| {
            if page == last {
                panic!("killed")
            }
        });
        let died = std::thread::scope(|scope| scope.spawn(|| place.put(1, &half)).join().is_err());
        assert!(died && !place.look(5).are_put().unwrap());
        place.look(5).check_rows().unwrap();
        let of_another = place.look(6).check_rows().unwrap_err().to_string();
        assert!(of_another.contains("a part of the rows of another model"), "{of_another}");
        assert!(place.put(2, &saved(6, |_| ())).is_err());
        assert_eq!(place.put(3, &saved(5, |_| ())).unwrap(), Some(2 * KEYS));
        assert_eq!(place.others(5), (0, 2 * KEYS as usize));
    }
}

/// A chief is stopped in the middle. The next one puts all rows, and they are trained. Then the first one goes on.
#[test]
fn a_chief_that_comes_back_late_overwrites_nothing() {
    for at in [1, 10, KEYS as usize / PAGE + 3, 2 * KEYS as usize / PAGE] {
        let place = Place::new();
        let keys: Vec<u64> = (1..=KEYS).map(gannet_core::mix).collect();
        let late = saved(5, |page| {
            if page == at {
                assert_eq!(place.put(2, &saved(5, |_| ())).unwrap(), Some(2 * KEYS));
                place.train(&keys);
            }
        });
        let refused = place.put(1, &late).unwrap_err().to_string();
        assert!(place.trained(&keys), "{at}: rows were overwritten; {refused}");
        assert!(place.look(5).are_put().unwrap());
    }
}

#[test]
fn rows_that_did_not_begin_from_a_model_are_not_replaced() {
    let place = Place::new();
    let keys: Vec<u64> = (1..100).map(gannet_core::mix).collect();
    place.train(&keys);
    let why = place.look(5).check_rows().unwrap_err().to_string();
    assert!(why.contains("99 rows") && why.contains("--fresh"), "{why}");
    assert!(place.put(1, &saved(5, |_| ())).is_err());
    assert!(place.trained(&keys));
}

#[test]
fn a_signal_ends_a_chief_and_the_next_one_puts_all() {
    let place = Place::new();
    let stop = AtomicBool::new(false);
    let rows = saved(5, |page| stop.store(page == 3, std::sync::atomic::Ordering::Relaxed));
    let (net, config) = (Transports::new(), place.config(1));
    let mut chief = StartAtServers::connect_chief(net, config, &schemas(), 5).unwrap();
    assert!(chief.put(&rows, 1, &stop).unwrap_err().to_string().contains("signal"));
    drop(chief);
    assert!(!place.look(5).are_put().unwrap());
    assert_eq!(place.put(2, &saved(5, |_| ())).unwrap(), Some(2 * KEYS));
    assert_eq!(place.others(5).0, 0);
}
