//! Models on disk: a checkpoint of the table, with notes on how its data was read.

use super::Failure;
use super::args::PredictArgs;
use gannet::train::lbfgs::Pages;
use gannet::train::{Backend, BackendError, Columns, Counts, Data, Format, INTERCEPT_KEY, Weights};
use gannet::{Checkpoint, CheckpointWriter, Rule, Schema, hash, shard_of};
use gannet_optim::{Update, Visitor, in_words};
use std::path::Path;

const PREDICT: &str = "predict reads models that `gannet train --out` wrote, of all --model but lda";
const WARM: &str = "--warm-start reads models that `gannet train --model lr --out` wrote";

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

/// Whether a model may be written to a folder: it can be made, and holds none of another kind, which would be lost.
pub fn may_write(folder: &Path, schema: &Schema) -> Result<(), Failure> {
    if let Ok(there) = Checkpoint::open(folder)
        && there.schema().is_of_another_kind(schema)
    {
        let how = there.schema().differences(schema);
        let name = there.note("model").unwrap_or("another table");
        return Err(Failure::input(format!(
            "--out {}: holds a model ({name}) of another schema, which this one would replace: {how}; name another folder, or remove it",
            folder.display()
        )));
    }
    CheckpointWriter::create(folder, schema)?;
    Ok(())
}

/// Writes the table as a model; the rows saved.
pub fn save<B: Backend>(folder: &Path, backend: &mut B, notes: &Notes<'_>) -> Result<u64, Failure> {
    let schema = backend.schema().clone();
    let mut writer = CheckpointWriter::create(folder, &schema)?;
    writer.note("model", "lr");
    notes.write(&mut writer);
    write(writer, &schema, |page| backend.scan(page))
}

impl Notes<'_> {
    /// Notes how the data was read.
    pub fn write(&self, writer: &mut CheckpointWriter) {
        writer.note("format", self.format);
        writer.note("intercept", if self.intercept { "1" } else { "0" });
        if self.format == "criteo" {
            writer.note("criteo-counts", if self.counts == Counts::Log { "log" } else { "buckets" });
        }
        if let Some(columns) = self.columns {
            writer.note("label", columns.label.as_deref().unwrap_or_default());
            writer.note("categorical", &columns.categorical.join("\n"));
            writer.note("numeric", &columns.numeric.join("\n"));
        }
    }
}

/// Gets pages of rows.
pub type Page<'a> = &'a mut dyn FnMut(&[u64], &[f32]);

/// Writes the rows that `scan` hands out; how many there were.
pub fn write(
    mut writer: CheckpointWriter,
    schema: &Schema,
    scan: impl FnOnce(Page<'_>) -> Result<(), BackendError>,
) -> Result<u64, Failure> {
    let mut shards: Vec<(Vec<u64>, Vec<f32>)> = vec![Default::default(); schema.shards as usize];
    let floats = schema.floats();
    scan(&mut |page_keys, page_rows| {
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
    /// How its data was read.
    pub reading: Reading,
}

/// How a model's data was read.
pub struct Reading {
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

/// Opens a model of logistic regression; `user_reads` says what whoever wants it can read.
fn open(folder: &Path, user_reads: &str) -> Result<(Checkpoint, Schema), Failure> {
    let checkpoint = Checkpoint::open(folder)?;
    let schema = checkpoint.schema().clone();
    if checkpoint.note("model") != Some("lr") || schema.weights() != 1 {
        let what = checkpoint.note("model").unwrap_or("no model");
        return Err(Failure::input(format!(
            "{}: holds {what} of dim {}; {user_reads}",
            folder.display(),
            schema.dim
        )));
    }
    Ok((checkpoint, schema))
}

/// Whether a training can begin from a model.
pub fn check_warm_start(folder: &Path) -> Result<(), Failure> {
    open(folder, WARM).map(|_| ())
}

/// Hands out a model's weights page by page, that of the intercept only where there is one.
pub fn warm_start(folder: &Path, intercept: bool, page: &mut Pages<'_>) -> Result<(), Failure> {
    let (checkpoint, schema) = open(folder, WARM)?;
    let (floats, mut result) = (schema.floats(), Ok(()));
    checkpoint.read(|keys, rows| {
        let weighed = keys.iter().zip(rows.chunks_exact(floats));
        let weighed = weighed.filter(|(key, _)| intercept || **key != INTERCEPT_KEY);
        let (keys, weights): (Vec<u64>, Vec<f32>) =
            weighed.map(|(&key, row)| (key, schema.rule.visit(Weigh(row)))).unzip();
        if result.is_ok() {
            result = page(&keys, &weights);
        }
    })?;
    Ok(result?)
}

/// Reads a model.
pub fn load(folder: &Path) -> Result<Model, Failure> {
    let (checkpoint, schema) = open(folder, PREDICT)?;
    let rule: Rule = schema.rule;
    let mut weights = Weights::default();
    checkpoint.read(|keys, rows| {
        for (&key, row) in keys.iter().zip(rows.chunks_exact(schema.floats())) {
            weights.insert(key, rule.visit(Weigh(row)));
        }
    })?;
    Ok(Model { weights, reading: reading(&checkpoint, folder)? })
}

/// What the notes say of the data.
pub fn reading(checkpoint: &Checkpoint, folder: &Path) -> Result<Reading, Failure> {
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
    Ok(Reading { intercept, format, counts, columns })
}

impl Reading {
    /// Reads `data` as the model's was read.
    ///
    /// # Errors
    /// A flag says otherwise: the keys of a model mean something in its own format only.
    pub fn of(&self, data: &mut Data, args: &PredictArgs) -> Result<(), Failure> {
        data.unlabelled = true;
        let was = |what: &str| {
            Err(Failure::input(format!(
                "the model in {} was trained on {what}; leave the flag out",
                args.model.display()
            )))
        };
        if data.format != Format::Auto && data.format != self.format {
            return was(&format!("{} and --format says {}", in_words(&self.format), in_words(&data.format)));
        }
        if args.input.criteo_counts.is_some() && data.counts != self.counts {
            return was(&format!("--criteo-counts {}", in_words(&self.counts)));
        }
        (data.format, data.counts) = (self.format, self.counts);
        if let Some(columns) = &self.columns {
            if data.columns.label.is_none() {
                data.columns.label.clone_from(&columns.label);
            }
            if data.columns.categorical.is_empty() && data.columns.numeric.is_empty() {
                data.columns.categorical.clone_from(&columns.categorical);
                data.columns.numeric.clone_from(&columns.numeric);
            }
        }
        Ok(())
    }
}
