//! How often each key was pushed, according to the data and according to the rows.

use super::{BATCH, PASSES, PIECE, Round, WORKER_TIMEOUT, default_run};
use gannet::job::{JobPlan, PlanFile};
use gannet::optim::{Ftrl, Sgd};
use gannet::train::INTERCEPT_KEY;
use gannet::transport::Tcp;
use gannet::{Rule, Schema, Worker, WorkerConfig};
use std::collections::{BTreeSet, HashMap};

fn keys_of<'a>(lines: impl Iterator<Item = &'a &'a str>) -> BTreeSet<u64> {
    let ids = lines.flat_map(|line| line.split_whitespace().skip(1));
    let ids = ids.map(|feature| feature.split(':').next().unwrap().parse::<u64>().unwrap());
    ids.chain([INTERCEPT_KEY]).collect()
}

/// For each key, the number of batches of all passes that contain it. A split consists of the lines that begin
/// in it; its lines are divided into batches from the first line on.
pub fn batches_by_key(text: &str, round: &Round) -> HashMap<u64, u64> {
    let file = PlanFile { name: String::new(), bytes: text.len() as u64, print: 0, whole: false };
    let plan = JobPlan {
        workers: round.declared(),
        files: vec![file],
        task_bytes: PIECE,
        batch: BATCH,
        epochs: PASSES,
        worker_timeout_ms: WORKER_TIMEOUT.as_millis() as u64,
        settings: Vec::new(),
    };
    let mut batches = HashMap::new();
    let (mut lines, mut at) = (text.split_inclusive('\n').peekable(), 0);
    for split in 0..plan.tasks_of_a_pass() {
        let end = plan.task(split).end;
        let mut lines_of_split = Vec::new();
        while let Some(line) = lines.next_if(|_| at < end) {
            at += line.len() as u64;
            lines_of_split.push(line);
        }
        for batch in lines_of_split.chunks(BATCH as usize) {
            let keys = keys_of(batch.iter());
            keys.into_iter().for_each(|key| *batches.entry(key).or_default() += u64::from(PASSES));
        }
    }
    batches
}

/// For each key, the number of records of all passes that contain it.
pub fn records_by_key(text: &str) -> HashMap<u64, u64> {
    let mut records = HashMap::new();
    for line in text.lines() {
        let keys = keys_of([line].iter());
        keys.into_iter().for_each(|key| *records.entry(key).or_default() += u64::from(PASSES));
    }
    records
}

/// What the rows of a table count.
#[derive(Clone, Copy)]
pub enum Counting {
    /// Pushes: rows of damped FTRL count them, after their state.
    Pushes,
    /// Records: rows of [`SUMS`].
    Records,
}

/// Settings that make weights count records. All records are positive. At a rate of 2^-100 nothing is learned, so the
/// probability stays one half. Each record adds exactly 2^-101 to the weight of each of its keys.
pub const SUMS: &str = "--optimizer sgd --push gradient --reduce sum --alpha 7.888609e-31";

/// For each key, the count in its row.
pub fn counts_in_rows(addrs: &[String], counting: Counting) -> HashMap<u64, u64> {
    let rate = 2f32.powi(-100);
    let schema = match counting {
        Counting::Pushes => {
            Schema::scalar("lr", Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 })).counting()
        }
        Counting::Records => Schema::scalar("lr", Rule::Sgd(Sgd { lr: rate })),
    };
    let mut worker = {
        let config = WorkerConfig { run: Some(default_run()), ..WorkerConfig::new(addrs, 1 << 40, 1) };
        Worker::connect(Tcp::new(), config).unwrap()
    };
    let table = worker.open_table(&schema).unwrap();
    let count = |row: &[f32]| match counting {
        Counting::Pushes => row[row.len() - 1] as u64,
        Counting::Records => (row[0] / rate * 2.0) as u64,
    };
    let mut counts = HashMap::new();
    let page = |keys: &[u64], rows: &[f32]| {
        let floats = rows.len() / keys.len().max(1);
        counts.extend(keys.iter().copied().zip(rows.chunks(floats.max(1)).map(count)));
    };
    worker.scan(table, page).unwrap();
    counts
}
