//! How often each key was pushed, as the data has it, and as the rows have it.

use super::{BATCH, PASSES, PIECE, Round, WORKER_TIMEOUT};
use gannet::train::INTERCEPT_KEY;
use gannet::{Ftrl, Plan, PlanFile, Rule, Schema, Tcp, Worker, WorkerConfig};
use std::collections::{BTreeSet, HashMap};

/// For each key in how many batches of all passes it is: a piece is the lines that begin in it, its batches are cut from its first.
pub fn batches_by_key(text: &str, round: &Round) -> HashMap<u64, u64> {
    let file = PlanFile { name: String::new(), bytes: text.len() as u64, print: 0, whole: false };
    let plan = Plan {
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
    for piece in 0..plan.tasks_of_a_pass() {
        let end = plan.task(piece).end;
        let mut piece = Vec::new();
        while let Some(line) = lines.next_if(|_| at < end) {
            at += line.len() as u64;
            piece.push(line);
        }
        for batch in piece.chunks(BATCH as usize) {
            let ids = batch.iter().flat_map(|line| line.split_whitespace().skip(1));
            let ids = ids.map(|feature| feature.split(':').next().unwrap().parse::<u64>().unwrap());
            let keys: BTreeSet<u64> = ids.chain([INTERCEPT_KEY]).collect();
            keys.into_iter().for_each(|key| *batches.entry(key).or_default() += u64::from(PASSES));
        }
    }
    batches
}

/// For each key how many pushes its row counts (damped replay of FTRL with default settings).
pub fn counts_in_rows(addrs: &[String]) -> HashMap<u64, u64> {
    let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
    let mut worker = Worker::connect(Tcp::new(), WorkerConfig::new(addrs, 1 << 40, 1)).unwrap();
    let table = worker.open_table(&Schema::scalar("lr", rule).counting()).unwrap();
    let mut counts = HashMap::new();
    let page = |keys: &[u64], rows: &[f32]| {
        let floats = rows.len() / keys.len().max(1);
        counts.extend(keys.iter().copied().zip(rows.chunks(floats.max(1)).map(|row| row[floats - 1] as u64)));
    };
    worker.scan(table, page).unwrap();
    counts
}
