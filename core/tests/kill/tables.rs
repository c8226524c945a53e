//! kill -9 between any two stores that matter. A child process applies parts (updates, inserts, bucket splits,
//! deletions) to an image on disk. It SIGKILLs itself at its n-th kill point, for every n. Then the image is reopened
//! and the part is sent again, cut into other parts than before. Every Add must have been applied exactly once.
//!
//! Two more cases follow the same plan. With admission by count, every push must have been counted exactly
//! once, and the rows must be those of a run without a kill. Also, a group of the index is split whose chain is
//! longer than an undo half could hold bucket by bucket.

use crate::{child, finishes, folder, number};
use gannet_core::*;
use gannet_optim::{Add, GradientTransform, Rule};
use std::path::Path;

const ROWS_A_PART: u64 = 24;
const PARTS: u64 = 12;

/// A sketch of one line, so that it is halved during the test.
const BY_COUNT: Admission = Admission::Count { pushes: 2, sketch_bytes: 64 };

/// Rows of two floats: one segment, or with admission by count two segments of one float each.
fn schema(admission: Admission) -> Schema {
    let (rule, shaping, init) = (Rule::Add(Add), GradientTransform::NONE, Init::Zero);
    let (dim, more) = match admission {
        Admission::All => (2, Vec::new()),
        _ => (1, vec![Segment { dim: 1, rule, shaping, init }]),
    };
    Schema {
        name: "t".into(),
        dim,
        rule: Rule::Add(Add),
        shaping: GradientTransform::NONE,
        init: Init::Zero,
        seed: 0,
        shards: 1,
        admission,
        more,
    }
}

/// Keys whose hashes agree in the low bits, so that all of them are in one group of the index.
fn chosen() -> Vec<u64> {
    (1u64 << 40..).filter(|&key| hash(key) & 0xffff == 0).take(300).collect()
}

/// Keys of a part: half of them old (updates), half new (inserts, splits).
fn part(n: u64) -> Vec<u64> {
    (0..ROWS_A_PART).map(|i| (n * ROWS_A_PART / 2 + i) * 7919).collect()
}

/// The script of both the child and the model: pushes, and after every third one some rows are deleted.
fn freed(n: u64) -> Vec<u64> {
    if n % 3 == 2 { part(n).into_iter().step_by(5).collect() } else { Vec::new() }
}

/// Pushes part `n` in smaller parts of at most `most` rows. Returns how many rows were not admitted.
fn push(table: &mut Shards, n: u64, most: usize) -> u32 {
    let keys = part(n);
    let values: Vec<f32> = keys.iter().flat_map(|_| [1.0, n as f32]).collect();
    let part_of = |(rows, row): (std::ops::Range<usize>, u32)| {
        let name = PushName { pusher: 3, incarnation: 1, seq: 2 * n, row };
        let values = &values[2 * rows.start..2 * rows.end];
        table.push(&name, Write::Gradient, &keys[rows], None, values).unwrap().not_admitted
    };
    push_parts(&keys, most, 1).map(part_of).sum()
}

/// Deletes the rows that the script deletes after part `n`.
fn delete(table: &mut Shards, n: u64, most: usize) -> Applied {
    let keys = freed(n);
    let mut sum = Applied::default();
    for (rows, row) in push_parts(&keys, most, 1) {
        let name = PushName { pusher: 3, incarnation: 1, seq: 2 * n + 1, row };
        let applied = table.push(&name, Write::Delete, &keys[rows], None, &[]).unwrap();
        (sum.applied, sum.duplicate) = (sum.applied + applied.applied, sum.duplicate + applied.duplicate);
    }
    sum
}

/// Rows of a part by incarnation: a resend after a kill is cut differently.
fn most(incarnation: u64) -> usize {
    [ROWS_A_PART as usize, 7, 100, 10][incarnation as usize % 4]
}

fn open(folder: &Path, admission: Admission) -> (Store, Shards) {
    let store = Store::open_dir(folder).unwrap();
    let shards = Shards::open(&store, &schema(admission), 0..1).unwrap();
    (store, shards)
}

/// The child: starts at part `first` and is killed after `points`. It prints the parts that it has finished.
#[test]
fn play() {
    let Ok(folder) = std::env::var("KILL_FOLDER") else { return };
    let after = number("KILL_AFTER");
    let (_store, mut table) = {
        if std::env::var("KILL_OPEN").is_ok() {
            kill::after(after);
        }
        let by_count = std::env::var("KILL_ADMISSION").is_ok();
        open(Path::new(&folder), if by_count { BY_COUNT } else { Admission::All })
    };
    kill::after(after);
    for n in number("KILL_FIRST") as u64..PARTS {
        push(&mut table, n, most(after as u64));
        note(Path::new(&folder), "acked", n);
        delete(&mut table, n, most(after as u64));
        note(Path::new(&folder), "freed", n);
    }
    std::process::exit(42);
}

/// Runs the child. Returns whether it finished; otherwise it was killed.
fn run_child(folder: &Path, admission: Admission, first: u64, after: u64, at_open: bool) -> bool {
    let mut command = child("tables::play", folder, after as i64);
    command.env("KILL_FIRST", first.to_string());
    if admission != Admission::All {
        command.env("KILL_ADMISSION", "1");
    }
    if at_open {
        command.env("KILL_OPEN", "1");
    }
    finishes(command)
}

/// Writes the note as a whole or not at all, because the grower's kill points may come at any moment.
fn note(folder: &Path, what: &str, n: u64) {
    let new = folder.join("new");
    std::fs::write(&new, n.to_string()).unwrap();
    std::fs::rename(&new, folder.join(what)).unwrap();
}

fn done(folder: &Path, what: &str) -> u64 {
    std::fs::read_to_string(folder.join(what)).map_or(0, |s| s.parse::<u64>().unwrap() + 1)
}

/// What the table holds after all parts: the number and the sum of Adds for each key.
fn model() -> std::collections::HashMap<u64, [f32; 2]> {
    let mut rows = std::collections::HashMap::new();
    for n in 0..PARTS {
        for key in part(n) {
            let row: &mut [f32; 2] = rows.entry(key).or_default();
            row[0] += 1.0;
            row[1] += n as f32;
        }
        for key in freed(n) {
            rows.remove(&key);
        }
    }
    rows
}

/// The model with admission by count: a table whose process is never killed (tests/tables/admission.rs compares
/// such a table with a map).
fn model_by_count() -> std::collections::HashMap<u64, [f32; 2]> {
    let mut table = Shards::open(&Store::memory(), &schema(BY_COUNT), 0..1).unwrap();
    let mut not_admitted = 0;
    for n in 0..PARTS {
        not_admitted += push(&mut table, n, 100);
        delete(&mut table, n, 100);
    }
    assert!(not_admitted > 100, "{not_admitted}");
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    table.scan(0, 0, 10_000, &mut keys, &mut rows);
    keys.into_iter().zip(rows.chunks(2).map(|r| [r[0], r[1]])).collect()
}

fn check(table: &mut Shards, want: &std::collections::HashMap<u64, [f32; 2]>, context: &str) {
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    let mut from = Some(0);
    while let Some(at) = from {
        from = table.scan(0, at, 1000, &mut keys, &mut rows);
    }
    assert_eq!(keys.len(), want.len(), "{context}: rows");
    for (key, row) in keys.iter().zip(rows.chunks(2)) {
        assert_eq!(Some(row), want.get(key).map(|r| &r[..]), "{context}: key {key}");
        let mut out = [0.0; 2];
        table.pull(&[*key], Read::Weights, &mut out, None).unwrap();
        assert_eq!(out, row, "{context}: key {key} by the index");
    }
    assert_eq!(table.stats().rows as usize, want.len(), "{context}: count");
}

/// The delta above the empty table has every row, and every deleted key that has no row again.
fn check_delta(
    table: &mut Shards,
    empty: &[Position],
    admission: Admission,
    want: &std::collections::HashMap<u64, [f32; 2]>,
) {
    let (cuts, mut rows) = (table.mark_cut(gannet_core::CutReader::Checkpoint, empty), 0);
    assert!(cuts[0].position.command > 0 && cuts[0].from == empty[0].command);
    let mut read = || table.read_cut(gannet_core::CutReader::Checkpoint, 0, 10, |keys, _| rows += keys.len());
    while read() == CutProgress::More {}
    assert_eq!(rows, want.len());
    if admission == Admission::All {
        let gone = (0..PARTS).flat_map(freed).filter(|key| !want.contains_key(key));
        let gone: std::collections::BTreeSet<u64> = gone.collect();
        assert!(!gone.is_empty());
        assert_eq!(cuts[0].deletions, gone.into_iter().collect::<Vec<_>>());
    }
}

/// Finishes the script as a worker would: the first part that was not acknowledged is sent again.
fn finish(table: &mut Shards, folder: &Path, most: usize) {
    let (acked, freed_to) = (done(folder, "acked"), done(folder, "freed"));
    for n in freed_to..acked {
        delete(table, n, most);
    }
    for n in acked..PARTS {
        push(table, n, most);
        delete(table, n, most);
    }
    // A late resend of a deletion must not delete what was pushed after it.
    for n in 0..PARTS {
        assert_eq!(
            delete(table, n, most),
            Applied { duplicate: freed(n).len() as u32, ..Applied::default() }
        );
    }
}

#[test]
fn every_step_can_be_the_last() {
    kill_at_every_point(Admission::All, &model());
}

/// A folder with the chosen keys. The next insertions end a round of the index and split the group of those keys.
fn before_a_long_split() -> tempfile::TempDir {
    let folder = folder();
    let (_store, mut table) = open(folder.path(), Admission::All);
    let (chosen, image) = (chosen(), folder.path().join("t/shard-0000.image"));
    let push = |table: &mut Shards, seq, keys: &[u64]| {
        let name = PushName { pusher: 4, incarnation: 1, seq, row: 0 };
        table.push(&name, Write::Gradient, keys, None, &vec![1.0; keys.len() * 2]).unwrap();
    };
    push(&mut table, 0, &chosen);
    for n in 1.. {
        let image = std::fs::read(&image).unwrap();
        let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        let (level, split) = (word(0x458), word(0x468));
        if level > 3 && split + 1 == 1 << level {
            break;
        }
        push(&mut table, n, &[n << 32]);
    }
    table.mark_clean().unwrap();
    drop(table);
    folder
}

/// One step splits the group of the chosen keys, however long its chain is: a kill leaves all of it or nothing.
#[test]
fn every_store_of_a_long_split_can_be_the_last() {
    let (base, chosen) = (before_a_long_split(), chosen());
    let image = std::fs::read(base.path().join("t/shard-0000.image")).unwrap();
    let stride = std::env::var("KILL_STRIDE").ok().map_or(3, |s| s.parse().unwrap());
    let (mut kills, mut after) = (0, 1);
    loop {
        let folder = folder();
        std::fs::create_dir(folder.path().join("t")).unwrap();
        std::fs::write(folder.path().join("t/shard-0000.image"), &image).unwrap();
        // The other tests kill what follows the split.
        let finished = run_child(folder.path(), Admission::All, PARTS - 1, after, false);
        if kills % 4 == 1 {
            run_child(folder.path(), Admission::All, PARTS, 1 + kills / 4 % 3, true);
        }
        let context = format!("killed at point {after}");
        let (_store, mut table) = open(folder.path(), Admission::All);
        let (acked, mut out) = (done(folder.path(), "acked"), vec![0.0; 600]);
        if acked < PARTS {
            push(&mut table, PARTS - 1, most(after));
        }
        table.pull(&chosen, Read::Weights, &mut out, None).unwrap();
        assert!(out.iter().all(|&x| x == 1.0), "{context}: chosen keys");
        let keys = part(PARTS - 1);
        table.pull(&keys, Read::Weights, &mut out[..2 * keys.len()], None).unwrap();
        let all_freed = done(folder.path(), "freed") == PARTS;
        for (key, row) in keys.iter().zip(out.chunks(2)) {
            // Between the note of a part and the note of its freed rows, either is right.
            let may_be_free = acked == PARTS && freed(PARTS - 1).contains(key);
            let want = [1.0, (PARTS - 1) as f32];
            assert!(
                (row == want && !(may_be_free && all_freed)) || (row == [0.0; 2] && may_be_free),
                "{context}: key {key} {row:?}"
            );
        }
        if finished {
            let image = std::fs::read(folder.path().join("t/shard-0000.image")).unwrap();
            let split = u64::from_le_bytes(image[0x468..0x470].try_into().unwrap());
            assert!((1..4).contains(&split), "the group of the chosen keys is the first of a round: {split}");
            break;
        }
        kills += 1;
        after += stride;
    }
    assert!(kills > 500 / stride, "only {kills} kills");
}

#[test]
fn every_count_can_be_the_last() {
    kill_at_every_point(BY_COUNT, &model_by_count());
}

fn kill_at_every_point(admission: Admission, want: &std::collections::HashMap<u64, [f32; 2]>) {
    let stride = std::env::var("KILL_STRIDE").ok().map_or(1, |s| s.parse().unwrap());
    let (mut kills, mut after) = (0, 1);
    loop {
        let folder = folder();
        let empty = {
            let (_store, mut table) = open(folder.path(), admission);
            table.free(0); // a command, so that the position is not the beginning
            table.positions()
        };
        let finished = run_child(folder.path(), admission, 0, after, false);
        // A second kill while the undo is restored: recovery can be cut off as well.
        if kills % 4 == 1 {
            run_child(folder.path(), admission, PARTS, 1 + kills / 4 % 3, true);
        }
        let (_store, mut table) = open(folder.path(), admission);
        finish(&mut table, folder.path(), most(after / 4 + 1));
        check(&mut table, want, &format!("killed at point {after}"));
        check_delta(&mut table, &empty, admission, want);
        if finished {
            break;
        }
        kills += 1;
        after += stride;
    }
    assert!(kills > 100, "only {kills} kill points were passed");
    println!("{kills} kills");
}
