//! `--warm-start`: a training starts from a saved model, or from a checkpoint of a job. It also uses the optimizer's
//! state, if the optimizer is the same.

use crate::failure::Failure;
use crate::flags::DataArgs;
use crate::model::notes::NOT_SCALED;
use crate::model::warm_source::{WarmRows, WarmSource, is_described, job_table, open_warm_source};
use gannet::optim::Float16;
use gannet::storage::Checkpoint;
use gannet::table::Segment;
use gannet::train::saved::{
    self, DataReading, INTERCEPT, SCALE, Shape, fresh_segment, generation, segment_weights, table_folder,
};
use gannet::train::{BackendError, Crosses, DetectedFile, Format, RowSink, StartRows};
use gannet::{Rule, Schema};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the data of the starting model was read. `None`: there is no such model, or it is a checkpoint of a job, which
/// says only part of it. That part is compared here.
pub fn reading(warm: Option<&Path>, data: &DataArgs) -> Result<Option<(DataReading, PathBuf)>, Failure> {
    let Some(folder) = warm else { return Ok(None) };
    match open_warm_source(folder)? {
        WarmSource::Model(checkpoint) => {
            Ok(Some((saved::reading(&*checkpoint, folder)?, folder.to_path_buf())))
        }
        WarmSource::Job(job) => {
            if is_described(&job) {
                return Ok(Some((saved::reading(job.manifest(), folder)?, folder.to_path_buf())));
            }
            let own = crate::input::scale(&data.input).map_or(NOT_SCALED, |kind| kind.name());
            match job.manifest().note(SCALE) {
                Some(scale) if scale != own => return Err(differs(folder, "--scale", scale, own)),
                Some(scale @ ("standard" | "minmax")) => {
                    return Err(Failure::input(format!(
                        "--warm-start {}: the job scaled its data (--scale {scale}), and its checkpoints do not have \
                         the scale: name the model that the job saved with --out",
                        folder.display()
                    )));
                }
                _ => {}
            }
            let own = if data.no_intercept { "no" } else { "yes" };
            if let Some(noted) = job.manifest().note(INTERCEPT).filter(|noted| *noted != own) {
                return Err(differs(folder, "intercept", noted, own));
            }
            notice!(
                "gannet: --warm-start {}: a checkpoint of a job does not say which columns are numbers, so this data says \
                 it: name them as the job had them (--numeric, --both, --categorical), or start from its --out",
                folder.display()
            );
            Ok(None)
        }
    }
}

fn in_words(error: &gannet::storage::CheckpointError) -> Failure {
    Failure::input(format!("--warm-start: {error}"))
}

fn differs(folder: &Path, what: &str, model: &str, requested: &str) -> Failure {
    Failure::input(format!(
        "--warm-start {}: {what} of the model: {model}; of this training: {requested}; train with the settings \
         of the model",
        folder.display()
    ))
}

/// Checks that the data is read like the model's data.
pub fn same_data(
    data: &DataArgs,
    reading: &DataReading,
    folder: &Path,
    found: &DetectedFile,
) -> Result<(), Failure> {
    let format = found.format;
    if !Format::of_name(format).is_some_and(|format| format.is_like(reading.format)) {
        let requested = format!("{format} ({})", found.file);
        return Err(differs(folder, "format", reading.format_name(), &requested));
    }
    let intercept = |has: bool| if has { "yes" } else { "no (--no-intercept)" };
    if reading.intercept == data.no_intercept {
        return Err(differs(
            folder,
            "intercept",
            intercept(reading.intercept),
            intercept(!data.no_intercept),
        ));
    }
    if format == "criteo" && crate::input::counts(&data.input) != reading.counts {
        let name = |counts| format!("{counts:?}").to_lowercase();
        let requested = name(crate::input::counts(&data.input));
        return Err(differs(folder, "--criteo-counts", &name(reading.counts), &requested));
    }
    let requested = crate::input::crosses(&data.input)?;
    if requested != reading.crosses {
        let words = |crosses: &Crosses| {
            let (named, lettered) = crosses.texts();
            let all = [named, lettered].concat();
            if all.is_empty() { "none".to_owned() } else { all.join(" ") }
        };
        return Err(differs(folder, "crosses (--cross)", &words(&reading.crosses), &words(&requested)));
    }
    let (Some(model), Some(columns)) = (&reading.columns, &found.columns) else { return Ok(()) };
    if !model.alike(columns) {
        let requested = format!("{columns} ({})", found.file);
        return Err(differs(folder, "columns", &model.to_string(), &requested));
    }
    let (was, requested) = (model.scale.kind, crate::input::scale(&data.input));
    match requested.filter(|requested| *requested != was) {
        Some(requested) => Err(differs(folder, "--scale", was.name(), requested.name())),
        None => Ok(()),
    }
}

/// The rows of a saved model.
struct WarmModel {
    name: u64,
    /// The tables of the model, each with pairs of segments: the saved one, and the one of this training.
    tables: Vec<(WarmRows, Vec<(Segment, Segment)>)>,
}

/// The rows to start from, for tables of these schemas. `None` without the flag.
pub fn begin(
    warm: Option<&Path>,
    schemas: &[Schema],
    shape: &Shape,
) -> Result<Option<Arc<dyn StartRows>>, Failure> {
    let Some(folder) = warm else { return Ok(None) };
    let source = open_warm_source(folder)?;
    if let WarmSource::Model(first) = &source {
        same_shape(folder, first, shape)?;
    }
    let mut tables = Vec::new();
    let mut lost_state = None;
    for (rows, schema) in rows_of(folder, &source, schemas)?.into_iter().zip(schemas) {
        let saved = rows.schema().clone();
        if rows.dims() != dims(schema) {
            return Err(other_rows(folder, &rows.dims(), schema));
        }
        // A count behind the row is left out.
        let parts: Vec<(Segment, Segment)> = saved.segments().zip(schema.segments()).collect();
        let other = parts.iter().find(|(from, to)| !has_state_for(&from.rule, &to.rule));
        lost_state = lost_state.or(other.map(|(from, to)| (from.rule, to.rule)));
        tables.push((rows, parts));
    }
    if let Some((from, to)) = lost_state {
        let with = match (from, to) {
            (Rule::Add(_), _) => "lbfgs".to_owned(),
            (from, to) if from.name() == to.name() => format!("other settings of {}", from.name()),
            (from, _) => from.name().to_owned(),
        };
        notice!(
            "gannet: --warm-start {}: the model was trained with {with}; its weights are used, and the state of {} \
             starts from zero",
            folder.display(),
            to.name()
        );
    }
    Ok(Some(Arc::new(WarmModel { name: source.name(), tables })))
}

/// How many trainings come before this one. [`begin`] says what is wrong with a folder.
pub fn next_generation(warm: Option<&Path>) -> u64 {
    let Some(folder) = warm else { return 0 };
    match open_warm_source(folder) {
        Ok(WarmSource::Model(first)) => generation(&*first) + 1,
        Ok(WarmSource::Job(job)) => job.manifest().number.min(u32::MAX.into()) + 1,
        Err(_) => 0,
    }
}

/// The rows of each table of the training.
fn rows_of(folder: &Path, source: &WarmSource, schemas: &[Schema]) -> Result<Vec<WarmRows>, Failure> {
    if let WarmSource::Job(job) = source {
        return schemas.iter().map(|schema| job_table(job, &schema.name)).collect();
    }
    let layers = |first: &Checkpoint| {
        schemas.iter().skip(1).map(|schema| table_folder(folder, first, schema)).collect()
    };
    let (first, others) = Checkpoint::open_tables(folder, layers).map_err(|e| in_words(&e))?;
    if let Some((other, schema)) =
        others.iter().zip(&schemas[1..]).find(|(other, _)| other.note("save") != first.note("save"))
    {
        return Err(other_rows(folder, &dims(other.schema()), schema));
    }
    Ok(std::iter::once(first).chain(others).map(|table| WarmRows::Model(Box::new(table))).collect())
}

fn other_rows(folder: &Path, saved: &[u32], schema: &Schema) -> Failure {
    let what = format!("rows of table {}", schema.name);
    differs(folder, &what, &numbers(saved), &numbers(&dims(schema)))
}

/// Weights of each segment.
fn dims(schema: &Schema) -> Vec<u32> {
    schema.segments().map(|segment| segment.dim).collect()
}

fn numbers(dims: &[u32]) -> String {
    let numbers: Vec<String> = dims.iter().map(u32::to_string).collect();
    format!("{} weights", numbers.join(" + "))
}

/// Checks that the model has the shape of this training.
fn same_shape(folder: &Path, checkpoint: &Checkpoint, shape: &Shape) -> Result<(), Failure> {
    let note = |name: &str| checkpoint.note(name).unwrap_or("none");
    let loss = ("loss", shape.loss.map_or("none".to_owned(), |loss| loss.to_string()));
    let requested = [("model", shape.model.clone()), loss].into_iter().chain(shape.settings());
    match requested.into_iter().find(|(name, requested)| note(name) != requested) {
        Some((name, requested)) => Err(differs(folder, &format!("--{name}"), note(name), &requested)),
        None => Ok(()),
    }
}

/// Whether a rule can continue with the state of another, whatever type their weights are stored in. The weights of
/// FTRL depend on its settings: with other settings they would change at once.
fn has_state_for(from: &Rule, to: &Rule) -> bool {
    let (from, to) = (from.f32_rule(), to.f32_rule());
    match to {
        Rule::Ftrl(_) | Rule::GroupFtrl(_) => from == to,
        _ => std::mem::discriminant(&from) == std::mem::discriminant(&to),
    }
}

/// Appends the saved row of `key` to `out`, in the layout of this training. Returns `false` if a weight is beyond the
/// range of the row type.
fn translate(parts: &[(Segment, Segment)], key: u64, mut row: &[f32], out: &mut Vec<f32>) -> bool {
    let (mut wide, mut fits) = (Vec::new(), true);
    for (from, to) in parts {
        let dim = from.dim as usize;
        let (own, rest) = row.split_at(from.rule.floats(dim));
        row = rest;
        let mut weights = vec![0.0; dim];
        segment_weights(&from.rule, own, &mut weights);
        if let Some(format) = to.rule.float16() {
            fits &= weights.iter().all(|weight| weight.abs() <= format.largest());
        }
        if has_state_for(&from.rule, &to.rule) {
            wide.clear();
            from.rule.put_f32_row(dim, own, &mut wide);
            to.rule.put_row_of_f32(dim, &wide, out);
            continue;
        }
        let start = out.len();
        out.resize(start + to.rule.floats(dim), 0.0);
        fresh_segment(&to.rule, key, &weights, &mut out[start..]);
    }
    fits
}

/// The error about a saved row that the row type of this training cannot store.
fn beyond_range(parts: &[(Segment, Segment)], key: u64) -> BackendError {
    let name = parts.iter().find_map(|(_, to)| to.rule.float16()).map_or("f32", Float16::name);
    BackendError::Schema(format!(
        "--warm-start: the saved row of key {key} has a weight beyond the range of --row-type {name}; use --row-type f32"
    ))
}

impl StartRows for WarmModel {
    fn name(&self) -> u64 {
        self.name
    }

    fn rows(&self, table: usize, put: &mut RowSink<'_>) -> Result<(), BackendError> {
        let Some((saved, parts)) = self.tables.get(table) else { return Ok(()) };
        let (floats, mut done, mut out) = (saved.schema().floats(), Ok(()), Vec::new());
        let read = saved.read(|keys, rows| {
            if done.is_ok() {
                out.clear();
                for (&key, row) in keys.iter().zip(rows.chunks_exact(floats)) {
                    if !translate(parts, key, row, &mut out) {
                        done = Err(beyond_range(parts, key));
                        return;
                    }
                }
                done = put(keys, &out);
            }
        });
        read.map_err(|failure| BackendError::Schema(failure.to_string()))?;
        done
    }
}
