//! A worker that pushes all the time, and says what was acknowledged when: an answer that claims an age must have it.

use super::data::{OfLife, of_life};
use super::state::State;
use gannet::{Schema, Transports, Worker, WorkerConfig, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Between two rounds of pushes.
const PAUSE: Duration = Duration::from_millis(3);

/// What the pusher did in one life of the rows.
pub struct Life {
    pub began: Instant,
    pub ended: Option<Instant>,
    /// Pushes of the first keys that may be on the servers.
    pub sent: Arc<AtomicU64>,
    /// How many of them were acknowledged, and when.
    pub acked: Vec<(Instant, u64)>,
    /// When the scheduler said that so many records are trained.
    pub trained: Vec<(Instant, u64)>,
}

impl Life {
    fn new() -> Life {
        let (acked, trained) = (Vec::new(), Vec::new());
        Life { began: Instant::now(), ended: None, sent: Arc::default(), acked, trained }
    }

    /// Whether rows that the servers had at this moment are of this life.
    pub fn has(&self, at: Instant) -> bool {
        at >= self.began && self.ended.is_none_or(|ended| at < ended)
    }

    /// The last number in a list of moments up to this one.
    pub fn until(list: &[(Instant, u64)], at: Instant) -> u64 {
        list[..list.partition_point(|(when, _)| *when <= at)].last().map_or(0, |(_, number)| *number)
    }
}

/// The thread that pushes.
pub struct Pusher {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

impl Pusher {
    /// Begins another life of the rows.
    pub fn start(state: &Arc<State>, net: Transports, config: WorkerConfig, schema: Schema) -> Pusher {
        let life = {
            let mut lives = state.lives.lock().unwrap();
            lives.push(Life::new());
            lives.len() - 1
        };
        let (stop, state) = (Arc::<AtomicBool>::default(), state.clone());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || push(life, &state, net, config, &schema, &stopped));
        Pusher { stop, thread: Some(thread) }
    }

    /// Ends the life of the rows.
    pub fn stop(&mut self, state: &State) {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok(), "the pusher has failed");
        }
        state.lives.lock().unwrap().last_mut().unwrap().ended = Some(Instant::now());
    }
}

fn push(
    life: usize,
    state: &State,
    net: Transports,
    config: WorkerConfig,
    schema: &Schema,
    stopped: &AtomicBool,
) {
    let mut worker = Worker::connect(net, config).unwrap();
    let table = worker.open_table(schema).unwrap();
    let sent = state.lives.lock().unwrap()[life].sent.clone();
    let OfLife { first, parity, second } = of_life(life);
    let mut number = 0;
    while !stopped.load(SeqCst) {
        number += 1;
        sent.store(number, SeqCst);
        worker.push(table, &first, Write::Gradient, &vec![-1.0; first.len()]).unwrap();
        state.lives.lock().unwrap()[life].acked.push((Instant::now(), number));
        match number % 2 {
            1 => worker.push(table, &[parity], Write::Gradient, &[-1.0]).unwrap(),
            _ => worker.delete(table, &[parity]).unwrap(),
        }
        worker.push(table, &second, Write::Gradient, &vec![-1.0; second.len()]).unwrap();
        std::thread::sleep(PAUSE);
    }
}
