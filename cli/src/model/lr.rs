//! Models on disk: a checkpoint of the table, with notes on how its data was read.

use crate::failure::{Failure, SYSTEM};
use crate::flags::{InputArgs, PredictArgs};
use crate::input;
use crate::model::warm_source::{WarmRows, WarmSource};
use crate::model::{out_folder, saves, warm_source};
use crate::train::TABLE;
use gannet::optim::{Update, Visitor, in_words};
use gannet::storage::{Checkpoint, CheckpointWriter, is_data_folder};
use gannet::train::lbfgs::WeightSink;
use gannet::train::{
    Backend, BackendError, ColumnChoice, Columns, Counts, Data, Format, INTERCEPT_KEY, Labels, Reader, Scale,
    ScaleKind, Weights,
};
use gannet::{Rule, Schema};
use std::path::Path;

const PREDICT: &str = "predict reads models that `gannet train --out` wrote, of all --model but lda";

const WARM: &str = "--warm-start reads models that `gannet train --model lr --out` wrote";

/// The notes in a saved model.
pub struct Notes<'a> {
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'a str,
    /// The columns of a CSV file.
    pub columns: Option<&'a Columns>,
    /// The features that the numbers of Criteo's logs became.
    pub counts: Counts,
    /// Whether the model has an intercept.
    pub intercept: bool,
    /// How its training ended, if it ended early.
    pub ended: Option<String>,
}

/// How a training ended, if a signal stopped it or workers are missing.
pub fn ended_how(stopped: bool, examples: u64, missing: &[u32]) -> Option<String> {
    let ranks = || missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match (stopped, missing) {
        (true, _) => Some(format!("a signal stopped it after {examples} examples")),
        (false, []) => None,
        (false, [_]) => Some(format!("worker {} did not train its share of the data", ranks())),
        (false, _) => Some(format!("workers {} did not train their shares of the data", ranks())),
    }
}

/// Checks that a model may be written to a folder, and keeps other trainings out of it until this process ends. The
/// folder can be created, and has no model of another kind, which would be lost.
pub fn may_write(folder: &Path, schema: &Schema) -> Result<(), Failure> {
    if folder.exists() && !folder.is_dir() {
        return Err(Failure::input(format!(
            "--out {}: is a file, and a model is saved as a folder; name another",
            folder.display()
        )));
    }
    if is_data_folder(folder) {
        return Err(Failure::input(format!(
            "--out {}: is the data folder of a server, which would not start again with a model in it: name another \
             folder",
            folder.display()
        )));
    }
    // What follows finds no half of another training's save.
    out_folder::hold(folder)?;
    if let Ok(there) = Checkpoint::open(folder)
        && there.schema().is_of_another_kind(schema)
    {
        let (ours, theirs) = (schema, there.schema());
        let name = there.note("model").unwrap_or(&theirs.name);
        let floats = |of: &Schema| of.dim + of.more.iter().map(|segment| segment.dim).sum::<u32>();
        let this = match theirs.name == ours.name {
            true => format!(
                " with {} weights a row; this training has {} (--factors, --classes, --topics)",
                floats(theirs),
                floats(ours)
            ),
            false => format!("; this training is {}", ours.name),
        };
        return Err(Failure::input(format!(
            "--out {} holds a model of {name}{this}, which would be replaced: name another folder, or remove that one",
            folder.display()
        )));
    }
    saves::check_previous(folder)?;
    let made = CheckpointWriter::create(folder, schema).map_err(Failure::from);
    made.map(|_| ()).map_err(|failure| {
        // The errors of the user's files have their remedy.
        let remedy = if failure.code == SYSTEM { "; name a folder that can be written" } else { "" };
        Failure::new(failure.code, format!("--out {}: {failure}{remedy}", folder.display()))
    })
}

/// Writes the table as a model. Returns the number of rows.
pub fn save<B: Backend>(folder: &Path, backend: &mut B, notes: &Notes<'_>) -> Result<u64, Failure> {
    let schema = backend.schema().clone();
    saves::keep_previous(folder)?;
    let mut writer = CheckpointWriter::create(folder, &schema)?;
    writer.note("model", "lr");
    notes.write(&mut writer);
    write(writer, |page| backend.scan(page))
}

impl Notes<'_> {
    /// Writes the notes on how the data was read.
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
            self.write_scale(writer, &columns.scale);
        }
        if let Some(two) = input::known_two() {
            writer.note("positive", two.positive());
            writer.note("negative", &two.other().unwrap_or_default());
        }
        saves::note(writer, self.ended.as_deref());
    }

    /// Writes a line for each column, in the order of `numeric`: its center and spread.
    fn write_scale(&self, writer: &mut CheckpointWriter, scale: &Scale) {
        writer.note("scale", scale.kind.name());
        writer.note("scale-columns", &scale.lines());
    }
}

/// Receives pages of rows.
pub type RowPages<'a> = &'a mut dyn FnMut(&[u64], &[f32]);

/// Completes the checkpoint with the rows that `scan` passes. Returns the number of rows.
pub fn write(
    mut writer: CheckpointWriter,
    scan: impl FnOnce(RowPages<'_>) -> Result<(), BackendError>,
) -> Result<u64, Failure> {
    scan(&mut |keys, rows| writer.add(keys, rows)).map_err(crate::train::backend_failure)?;
    Ok(writer.finish()?)
}

/// A model, loaded for `predict`.
pub struct SavedModel {
    /// Weights by key.
    pub weights: Weights,
    /// How the model's data was read.
    pub reading: DataReading,
}

/// How a model's data was read.
pub struct DataReading {
    /// Whether the model has an intercept.
    pub intercept: bool,
    /// The format that the model was trained on (for CSV possibly TSV).
    pub format: Format,
    /// The features that the numbers of Criteo's logs became.
    pub counts: Counts,
    /// The columns that the model was trained on, if it was trained on CSV.
    pub columns: Option<Columns>,
    /// The two values of the labels, if they were not numbers. The second is empty when no example had it.
    pub two: Option<(String, String)>,
    /// How its training ended, if it ended early.
    pub ended: Option<String>,
}

struct RowWeights<'a>(&'a [f32]);

impl Visitor for RowWeights<'_> {
    type Out = f32;

    fn run<U: Update>(self, rule: U) -> f32 {
        let mut weight = [0.0];
        rule.weights(self.0, &mut weight);
        weight[0]
    }
}

/// Opens a model of logistic regression. `user_reads` is the end of the error: which models the caller can read.
fn open(folder: &Path, user_reads: &str) -> Result<(Checkpoint, Schema), Failure> {
    let checkpoint = Checkpoint::open_to_read(folder)?;
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

/// Checks that a training can start from a model, or from a checkpoint of a job.
pub fn check_warm_start(folder: &Path) -> Result<(), Failure> {
    weights_of(folder).map(|_| ())
}

/// The rows of logistic regression in a model or in a checkpoint of a job.
fn weights_of(folder: &Path) -> Result<WarmRows, Failure> {
    let rows = match warm_source::open(folder)? {
        WarmSource::Model(_) => return Ok(WarmRows::Model(Box::new(open(folder, WARM)?.0))),
        WarmSource::Job(job) => job.table(TABLE)?,
    };
    match rows.dims()[..] {
        [1] => Ok(rows),
        _ => Err(Failure::input(format!(
            "--warm-start {}: rows of table {} have {:?} weights, and this training has 1",
            folder.display(),
            rows.schema().name,
            rows.dims()
        ))),
    }
}

/// Passes a model's weights page by page. The intercept's weight is included only with `intercept`.
pub fn warm_start(folder: &Path, intercept: bool, page: &mut WeightSink<'_>) -> Result<(), Failure> {
    let saved = weights_of(folder)?;
    let (schema, mut result) = (saved.schema(), Ok(()));
    let (floats, own) = (schema.floats(), schema.rule.floats(1));
    saved.read(|keys, rows| {
        let weighed = keys.iter().zip(rows.chunks_exact(floats).map(|row| &row[..own]));
        let weighed = weighed.filter(|(key, _)| intercept || **key != INTERCEPT_KEY);
        let (keys, weights): (Vec<u64>, Vec<f32>) =
            weighed.map(|(&key, row)| (key, schema.rule.visit(RowWeights(row)))).unzip();
        if result.is_ok() {
            result = page(&keys, &weights);
        }
    })?;
    Ok(result?)
}

/// Reads a model.
pub fn load(folder: &Path) -> Result<SavedModel, Failure> {
    let (checkpoint, schema) = open(folder, PREDICT)?;
    let rule: Rule = schema.rule;
    let mut weights = Weights::default();
    checkpoint.read(|keys, rows| {
        for (&key, row) in keys.iter().zip(rows.chunks_exact(schema.floats())) {
            weights.insert(key, rule.visit(RowWeights(row)));
        }
    })?;
    Ok(SavedModel { weights, reading: reading(&checkpoint, folder)? })
}

/// Reads the notes about the data.
pub fn reading(checkpoint: &Checkpoint, folder: &Path) -> Result<DataReading, Failure> {
    let list = |name: &str| {
        let text = checkpoint.note(name).unwrap_or_default();
        text.split('\n').filter(|s| !s.is_empty()).map(String::from).collect()
    };
    let columns = checkpoint.note("categorical").map(|_| Columns {
        label: checkpoint.note("label").filter(|s| !s.is_empty()).map(String::from),
        categorical: list("categorical"),
        numeric: list("numeric"),
        scale: scale(checkpoint),
    });
    let format = match checkpoint.note("format") {
        Some("libsvm") | None => Format::Libsvm,
        Some("csv" | "tsv") => Format::Csv,
        Some("criteo") => Format::Criteo,
        Some("vw") => Format::Vw,
        Some(other) => {
            return Err(Failure::input(format!(
                "{}: was trained on {other}, a format that this version of gannet does not know; use the version that wrote it",
                folder.display()
            )));
        }
    };
    let counts = if checkpoint.note("criteo-counts") == Some("log") { Counts::Log } else { Counts::Buckets };
    let intercept = checkpoint.note("intercept") != Some("0");
    let two = checkpoint
        .note("positive")
        .map(|positive| (positive.to_owned(), checkpoint.note("negative").unwrap_or_default().to_owned()));
    Ok(DataReading { intercept, format, counts, columns, two, ended: saves::ended(checkpoint) })
}

/// The scaling in the notes.
fn scale(checkpoint: &Checkpoint) -> Scale {
    let kind = checkpoint.note("scale").and_then(ScaleKind::of_name).unwrap_or_default();
    Scale::of_lines(kind, checkpoint.note("scale-columns").unwrap_or_default())
}

impl DataReading {
    /// The name of the model's format.
    pub fn format_name(&self) -> &'static str {
        match self.format {
            Format::Auto | Format::Libsvm => "libsvm",
            Format::Csv => "csv",
            Format::Criteo => "criteo",
            Format::Vw => "vw",
        }
    }

    /// Makes `data` be read as the model's data was.
    ///
    /// # Errors
    /// A flag contradicts the model, or the data has another format. The keys of a model have a meaning in its own
    /// format only.
    pub fn of(&self, data: &mut Data, args: &PredictArgs) -> Result<(), Failure> {
        data.unlabelled = true;
        let model = args.model.display();
        let was = |what: &str| {
            Err(Failure::input(format!("the model in {model} was trained on {what}; leave the flag out")))
        };
        if data.format != Format::Auto && data.format != self.format {
            return was(&format!("{} and --format says {}", in_words(&self.format), in_words(&data.format)));
        }
        if args.input.criteo_counts.is_some() && data.counts != self.counts {
            return was(&format!("--criteo-counts {}", in_words(&self.counts)));
        }
        self.same_columns(data, &args.input, &model.to_string())?;
        self.same_format(data, &model.to_string())?;
        (data.format, data.counts) = (self.format, self.counts);
        if let Some(columns) = &self.columns {
            let label = data.columns.label.take().or_else(|| columns.label.clone());
            data.columns = ColumnChoice { label, ..columns.into() };
            data.scale.clone_from(&columns.scale);
        }
        self.labels(data, &args.input, &format!("the model in {model}"))
    }

    /// Refuses flags that contradict the model's columns.
    fn same_columns(&self, data: &Data, flags: &InputArgs, model: &str) -> Result<(), Failure> {
        let (categorical, numeric) = (&data.columns.categorical, &data.columns.numeric);
        let flag = match (&categorical[..], &numeric[..]) {
            ([], []) => None,
            ([], numeric) => Some(format!("--numeric {}", numeric.join(","))),
            (categorical, _) => Some(format!("--categorical {}", categorical.join(","))),
        };
        let own = |flag: &str, names: &[String]| {
            if names.is_empty() { String::new() } else { format!(" {flag} {}", names.join(",")) }
        };
        let Some(columns) = &self.columns else {
            let flag = flag.or_else(|| flags.scale.map(|_| "--scale".to_owned()));
            return match flag {
                Some(flag) => Err(Failure::input(format!(
                    "{flag}: the model in {model} was trained on {}, which has no columns; leave the flag out",
                    self.format_name()
                ))),
                None => Ok(()),
            };
        };
        let same = |typed: &[String], known: &[String]| {
            typed.is_empty() || (typed.len() == known.len() && typed.iter().all(|name| known.contains(name)))
        };
        if !same(categorical, &columns.categorical) || !same(numeric, &columns.numeric) {
            let known = own("--categorical", &columns.categorical) + &own("--numeric", &columns.numeric);
            return Err(Failure::input(format!(
                "{}: the model in {model} knows its columns, which it was trained on as{known}; leave the flag out",
                flag.unwrap_or_default()
            )));
        }
        if let Some(kind) = input::scale(flags).filter(|kind| *kind != columns.scale.kind) {
            return Err(Failure::input(format!(
                "--scale {}: the model in {model} was trained with --scale {}, which it remembers; leave the flag out",
                kind.name(),
                columns.scale.kind.name()
            )));
        }
        Ok(())
    }

    /// Refuses data that clearly has another format.
    fn same_format(&self, data: &Data, model: &str) -> Result<(), Failure> {
        if data.format != Format::Auto {
            return Ok(());
        }
        // Data whose format its first line does not show is read in the model's format.
        let Ok(Some(found)) = Reader::look(&Data { columns: ColumnChoice::default(), ..data.clone() }) else {
            return Ok(());
        };
        let (format, own) = (if found.format == "tsv" { "csv" } else { found.format }, self.format_name());
        if format != own {
            return Err(Failure::input(format!(
                "{} is {format}, and the model in {model} was trained on {own}: the features of one mean nothing in \
                 the other; score {own}, or say --format {own} if it is that",
                found.file
            )));
        }
        Ok(())
    }

    /// Sets the labels that the model was trained on.
    pub fn labels(&self, data: &mut Data, flags: &InputArgs, model: &str) -> Result<(), Failure> {
        let wrong = |value: &str, was: String| {
            Err(Failure::input(format!("--positive {value}: {model} was trained {was}; leave the flag out")))
        };
        match (&self.two, &flags.positive) {
            (Some((positive, _)), Some(value)) if positive != value => {
                wrong(value, format!("with --positive {positive}"))
            }
            (None, Some(value)) => wrong(value, "without it".to_owned()),
            (None, None) => Ok(()),
            (Some((positive, other)), _) => {
                data.labels =
                    Labels::Two(input::two(positive, Some(other.as_str()).filter(|o| !o.is_empty())));
                Ok(())
            }
        }
    }
}
