//! kill -9 between any two stores of a program on a table of vectors. A child process adds to sums of a pass and runs
//! programs, each on the results of the one before. It SIGKILLs itself at its n-th kill point, for every n. Then the
//! image is reopened and the unacknowledged pushes are sent again. Every column, and every sum that a program returns,
//! must be as without a kill.

use crate::{child, finishes, folder, number};
use gannet_core::*;
use gannet_optim::lbfgs::split;
use std::path::Path;

const VECTORS: Vectors = Vectors { wide: 4, narrow: 1 };
const KEYS: u64 = 7;
const ROUNDS: u64 = 4;

fn name(n: u64, within: u64) -> PushName {
    PushName { pusher: 3, incarnation: 1, seq: Vectors::first_seq(n + 1) + within, row: 0 }
}

/// The weights after round `n`: 1 + 2 + ...
fn weight(n: u64) -> f64 {
    ((n + 1) * (n + 2) / 2) as f64
}

/// The round adds n + 1 to each sum. It makes column 2 or 3 from the other one and the sum, and column 5 from both.
fn round(table: &mut Shards, n: u64) {
    let keys: Vec<u64> = (0..KEYS).collect();
    let values = split((n + 1) as f64).repeat(keys.len());
    table.push(&name(n, 0), Write::Sum, &keys, None, &values).unwrap();
    let (from, to) = if n.is_multiple_of(2) { (2, 3) } else { (3, 2) };
    let made = ProgramStep::Combine { to, terms: vec![Term::new(1.0, from), Term::new(1.0, 0)] };
    let change = ProgramStep::Combine { to: 5, terms: vec![Term::new(1.0, to), Term::new(-1.0, from)] };
    let sums =
        vec![ColumnSum::Norm1 { a: to, penalised: false }, ColumnSum::Norm1 { a: 5, penalised: false }];
    let program = Program { pass: n + 1, steps: vec![made, change], sums, free: None };
    let sums = table.run_program(0, &name(n, 1), &program).unwrap();
    assert_eq!(sums, [KEYS as f64 * weight(n), KEYS as f64 * (n + 1) as f64]);
}

fn open(folder: &Path) -> (Store, Shards) {
    let store = Store::open_dir(folder).unwrap();
    let shards = Shards::open(&store, &VECTORS.schema("v", 1), 0..1).unwrap();
    (store, shards)
}

#[test]
fn play() {
    let Ok(folder) = std::env::var("KILL_FOLDER") else { return };
    let folder = Path::new(&folder);
    let (_store, mut table) = open(folder);
    kill::after(number("KILL_AFTER"));
    for n in acked(folder)..ROUNDS {
        round(&mut table, n);
        // Written as a whole or not at all.
        std::fs::write(folder.join("new"), (n + 1).to_string()).unwrap();
        std::fs::rename(folder.join("new"), folder.join("acked")).unwrap();
    }
    std::process::exit(42);
}

fn acked(folder: &Path) -> u64 {
    std::fs::read_to_string(folder.join("acked")).map_or(0, |text| text.parse().unwrap())
}

/// Returns whether the child finished; otherwise it was killed.
fn run_child(folder: &Path, after: i64) -> bool {
    finishes(child("vectors::play", folder, after))
}

#[test]
fn programs_are_done_once_whenever_the_process_is_killed() {
    for after in 1.. {
        let folder = folder();
        let finished = run_child(folder.path(), after);
        // A second kill while the first one is being repaired.
        let again = finished || run_child(folder.path(), after / 2 + 1) || run_child(folder.path(), i64::MAX);
        assert!(again, "a child without a kill finishes");
        let (_store, mut table) = open(folder.path());
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        table.scan(0, 0, 999, &mut keys, &mut rows);
        assert_eq!(keys.len() as u64, KEYS);
        for row in rows.chunks_exact(table.schema().floats()) {
            let last = ROUNDS - 1;
            let (to, from) = if last.is_multiple_of(2) { (3, 2) } else { (2, 3) };
            let got = [to, from, 5].map(|column| VECTORS.value(row, column, ROUNDS));
            assert_eq!(got, [weight(last), weight(last - 1), ROUNDS as f64], "killed after {after}");
        }
        if finished {
            assert!(after > 100, "only {after} kill points were passed");
            return;
        }
    }
}
