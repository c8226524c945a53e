//! `gannet checkpoint diff`: which rows were added, removed and changed. Memory holds one shard.

use crate::checkpoint::chain::newest;
use crate::checkpoint_place::open_checkpoints;
use crate::failure::Failure;
use crate::flags::DiffArgs;
use gannet::storage::{CheckpointDir, JobManifest, TableCut};
use std::collections::HashMap;

/// Rows of one kind: how many, and some of their keys.
#[derive(Default)]
struct Differing {
    count: u64,
    keys: Vec<u64>,
}

impl Differing {
    fn add(&mut self, key: u64, most: usize) {
        self.count += 1;
        if self.keys.len() < most {
            self.keys.push(key);
        }
    }
}

/// How the rows of a table differ.
#[derive(Default)]
struct TableDifference {
    same: u64,
    added: Differing,
    removed: Differing,
    changed: Differing,
}

/// Runs the command.
pub fn run_diff(args: &DiffArgs) -> Result<(), Failure> {
    let directory = open_checkpoints(&args.dir)?;
    let (before, after) = (directory.chain(args.a)?, directory.chain(args.b)?);
    let (a, b) = (newest(&before)?, newest(&after)?);
    for table in &a.tables {
        let name = &table.schema.name;
        let Some((_, other)) = b.table(name) else {
            say!("table {name}: only in checkpoint {}", args.a);
            continue;
        };
        if (table.schema.shards, table.schema.floats()) != (other.schema.shards, other.schema.floats()) {
            let differs = table.schema.differences(&other.schema);
            say!("table {name}: its rows cannot be compared: in checkpoint {} {differs}", args.a);
            continue;
        }
        let difference = compare(&directory, (&before, &after), table, args.keys)?;
        print(name, table.uid != other.uid, &difference);
    }
    for table in b.tables.iter().filter(|table| a.table(&table.schema.name).is_none()) {
        say!("table {}: only in checkpoint {}", table.schema.name, args.b);
    }
    Ok(())
}

/// Compares a table's rows bit by bit, shard by shard.
fn compare(
    directory: &CheckpointDir,
    (before, after): (&[JobManifest], &[JobManifest]),
    table: &TableCut,
    most: usize,
) -> Result<TableDifference, Failure> {
    let (name, floats) = (&table.schema.name, table.schema.floats());
    let mut sum = TableDifference::default();
    for shard in 0..table.schema.shards {
        // The place of each row in `rows`.
        let (mut places, mut rows): (HashMap<u64, usize>, Vec<f32>) = Default::default();
        directory.shard_rows(before, name, shard, |keys, values| {
            for (key, row) in keys.iter().zip(values.chunks_exact(floats)) {
                places.insert(*key, rows.len());
                rows.extend_from_slice(row);
            }
        })?;
        directory.shard_rows(after, name, shard, |keys, values| {
            for (key, row) in keys.iter().zip(values.chunks_exact(floats)) {
                let was = places.remove(key).map(|at| &rows[at..at + floats]);
                let bits = |a: &f32, b: &f32| a.to_bits() == b.to_bits();
                match was {
                    None => sum.added.add(*key, most),
                    Some(was) if was.iter().zip(row).all(|(a, b)| bits(a, b)) => sum.same += 1,
                    Some(_) => sum.changed.add(*key, most),
                }
            }
        })?;
        let mut left: Vec<u64> = places.into_keys().collect();
        left.sort_unstable();
        left.into_iter().for_each(|key| sum.removed.add(key, most));
    }
    Ok(sum)
}

fn print(name: &str, another: bool, difference: &TableDifference) {
    let TableDifference { same, added, removed, changed } = difference;
    let note = if another { " (another table of this name: its id differs)" } else { "" };
    let (more, less, other) = (added.count, removed.count, changed.count);
    say!("table {name}{note}: {more} rows added, {less} removed, {other} changed, {same} the same");
    for (what, rows) in [("added", added), ("removed", removed), ("changed", changed)] {
        if !rows.keys.is_empty() {
            let keys: Vec<String> = rows.keys.iter().map(u64::to_string).collect();
            say!("  {what}: {}", keys.join(" "));
        }
    }
}
