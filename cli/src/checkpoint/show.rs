//! `gannet checkpoint show`: what a checkpoint holds.

use crate::checkpoint::chain::{chain, kind, newest};
use crate::checkpoint_place::open_checkpoints;
use crate::failure::Failure;
use crate::flags::ShowArgs;
use bytesize::ByteSize;
use gannet::optim::in_words;
use gannet::storage::{JobManifest, TableCut};
use gannet::table::{Admission, Init};
use serde_json::{Value, json};

/// Runs the command.
pub fn run_show(args: &ShowArgs) -> Result<(), Failure> {
    let directory = open_checkpoints(&args.dir)?;
    let chain = chain(&directory, args.number)?;
    let manifest = newest(&chain)?;
    if args.json {
        say!("{}", object(manifest));
        return Ok(());
    }
    let (number, run, kind) = (manifest.number, &manifest.run, kind(manifest));
    let (rows, deletions, bytes) = (manifest.rows(), manifest.deletions(), ByteSize(manifest.bytes()));
    say!("checkpoint {number} of run {run:?}: {kind}, {rows} rows, {deletions} deletions, {bytes}");
    if chain.len() > 1 {
        let needs: Vec<String> = chain[..chain.len() - 1].iter().map(|m| m.number.to_string()).collect();
        say!("it needs the checkpoints {}", needs.join(", "));
    }
    for table in &manifest.tables {
        show_table(table);
    }
    for state in &manifest.states {
        say!("state {}: {}", state.name, ByteSize(state.bytes));
    }
    for (name, value) in &manifest.notes {
        say!("note {name}: {}", value.replace('\n', ", "));
    }
    Ok(())
}

fn show_table(table: &TableCut) {
    let schema = &table.schema;
    say!("table {} (id {})", schema.name, table.uid);
    for (number, segment) in schema.segments().enumerate() {
        let (dim, rule, init) = (segment.dim, in_words(&segment.rule), segment.init);
        let starts =
            if init == Init::Zero { String::new() } else { format!(", starts from {}", in_words(&init)) };
        say!("  segment {number}: {dim} weights, {rule}{starts}");
    }
    if schema.admission != Admission::All {
        say!("  rows are admitted by {}", in_words(&schema.admission));
    }
    let files = || table.shards.iter().filter_map(|cut| cut.file.as_ref());
    let (rows, deletions): (u64, u64) =
        files().fold((0, 0), |(rows, deletions), file| (rows + file.rows, deletions + file.deletions));
    let full = table.shards.iter().filter(|cut| cut.from == 0).count();
    let (shards, cursors) = (table.shards.len(), table.cursors.len());
    let (floats, bytes) = (schema.floats(), ByteSize(files().map(|file| file.bytes).sum()));
    say!(
        "  {shards} shards ({full} of them whole), {floats} floats a row, {rows} rows, {deletions} deletions, {bytes}"
    );
    let commands = || table.shards.iter().map(|cut| cut.to);
    let (low, high) = (commands().min().unwrap_or(0), commands().max().unwrap_or(0));
    say!("  cut at commands {low} to {high}, with the cursors of {cursors} pushers");
}

fn object(manifest: &JobManifest) -> Value {
    let table = |table: &TableCut| {
        let shards: Vec<Value> = table
            .shards
            .iter()
            .map(|cut| {
                let file = cut.file.as_ref();
                json!({
                    "shard": cut.shard, "from": cut.from, "to": cut.to, "epoch": cut.epoch,
                    "rows": file.map_or(0, |f| f.rows), "deletions": file.map_or(0, |f| f.deletions),
                    "bytes": file.map_or(0, |f| f.bytes), "file": file.map(|f| &f.name),
                })
            })
            .collect();
        let rules: Vec<String> = table.schema.segments().map(|segment| in_words(&segment.rule)).collect();
        json!({
            "name": table.schema.name, "id": table.uid.to_string(), "weights": table.schema.weights(),
            "floats": table.schema.floats(), "rules": rules, "cursors": table.cursors.len(), "shards": shards,
        })
    };
    let tables: Vec<Value> = manifest.tables.iter().map(table).collect();
    let states: Vec<Value> =
        manifest.states.iter().map(|state| json!({ "name": state.name, "bytes": state.bytes })).collect();
    let notes: serde_json::Map<String, Value> =
        manifest.notes.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    json!({
        "number": manifest.number, "parent": manifest.parent, "run": manifest.run, "rows": manifest.rows(),
        "deletions": manifest.deletions(), "bytes": manifest.bytes(), "tables": tables, "states": states,
        "notes": notes,
    })
}
