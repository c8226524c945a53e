//! Models on disk: a checkpoint of the table, with notes on how its data was read.

use super::Failure;
use gannet::train::{Backend, Columns, Counts, Format, Weights};
use gannet::{Checkpoint, CheckpointWriter, Rule, hash, shard_of};
use gannet_optim::{Update, Visitor};
use std::path::Path;

/// What is noted beside the rows.
pub struct Notes<'a> {
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'a str,
    /// The columns of a CSV file.
    pub columns: Option<&'a Columns>,
    /// What the numbers of Criteo's logs became.
    pub counts: Counts,
    /// Whether the model has an intercept.
    pub intercept: bool,
}

/// Writes the table as a model; the rows saved.
pub fn save<B: Backend>(folder: &Path, backend: &mut B, notes: &Notes<'_>) -> Result<u64, Failure> {
    let schema = backend.schema().clone();
    let mut writer = CheckpointWriter::create(folder, &schema)?;
    writer.note("model", "lr");
    writer.note("format", notes.format);
    writer.note("intercept", if notes.intercept { "1" } else { "0" });
    if notes.format == "criteo" {
        writer.note("criteo-counts", if notes.counts == Counts::Log { "log" } else { "buckets" });
    }
    if let Some(columns) = notes.columns {
        writer.note("label", columns.label.as_deref().unwrap_or_default());
        writer.note("categorical", &columns.categorical.join("\n"));
        writer.note("numeric", &columns.numeric.join("\n"));
    }
    let mut shards: Vec<(Vec<u64>, Vec<f32>)> = vec![Default::default(); schema.shards as usize];
    let floats = schema.floats();
    backend
        .scan(&mut |page_keys, page_rows| {
            for (&key, row) in page_keys.iter().zip(page_rows.chunks_exact(floats)) {
                let (keys, rows) = &mut shards[shard_of(hash(key), schema.shards) as usize];
                keys.push(key);
                rows.extend_from_slice(row);
            }
        })
        .map_err(super::train::backend_failure)?;
    for (shard, (keys, rows)) in (0..).zip(shards).filter(|(_, (keys, _))| !keys.is_empty()) {
        writer.shard(shard, &keys, &rows)?;
    }
    Ok(writer.finish()?)
}

/// A model as `predict` needs it.
pub struct Model {
    /// Weights by key.
    pub weights: Weights,
    /// Whether it has an intercept.
    pub intercept: bool,
    /// The format that it was trained on (CSV may have been TSV).
    pub format: Format,
    /// What the numbers of Criteo's logs became.
    pub counts: Counts,
    /// The columns that it was trained on, if it was trained on CSV.
    pub columns: Option<Columns>,
}

struct Weigh<'a>(&'a [f32]);

impl Visitor for Weigh<'_> {
    type Out = f32;

    fn run<U: Update>(self, rule: U) -> f32 {
        let mut weight = [0.0];
        rule.weights(self.0, &mut weight);
        weight[0]
    }
}

/// Reads a model.
pub fn load(folder: &Path) -> Result<Model, Failure> {
    let checkpoint = Checkpoint::open(folder)?;
    let schema = checkpoint.schema().clone();
    if checkpoint.note("model") != Some("lr") || schema.weights() != 1 {
        let what = checkpoint.note("model").unwrap_or("no model");
        return Err(Failure::input(format!(
            "{}: holds {what} of dim {}; predict reads models that `gannet train --model lr --out` wrote",
            folder.display(),
            schema.dim
        )));
    }
    let rule: Rule = schema.rule;
    let mut weights = Weights::default();
    checkpoint.read(|keys, rows| {
        for (&key, row) in keys.iter().zip(rows.chunks_exact(schema.floats())) {
            weights.insert(key, rule.visit(Weigh(row)));
        }
    })?;
    let list = |name: &str| {
        let text = checkpoint.note(name).unwrap_or_default();
        text.split('\n').filter(|s| !s.is_empty()).map(String::from).collect()
    };
    let columns = checkpoint.note("categorical").map(|_| Columns {
        label: checkpoint.note("label").filter(|s| !s.is_empty()).map(String::from),
        categorical: list("categorical"),
        numeric: list("numeric"),
    });
    let format = match checkpoint.note("format") {
        Some("libsvm") | None => Format::Libsvm,
        Some("csv" | "tsv") => Format::Csv,
        Some("criteo") => Format::Criteo,
        Some("vw") => Format::Vw,
        Some(other) => {
            return Err(Failure::input(format!(
                "{}: was trained on {other}, a format that this gannet does not know; use the one that wrote it",
                folder.display()
            )));
        }
    };
    let counts = if checkpoint.note("criteo-counts") == Some("log") { Counts::Log } else { Counts::Buckets };
    let intercept = checkpoint.note("intercept") != Some("0");
    Ok(Model { weights, intercept, format, counts, columns })
}
