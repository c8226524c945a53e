//! Where the rows of `--warm-start` come from: a saved model (`--out`), or a checkpoint of a job (`--checkpoint`).

use crate::checkpoint_place;
use crate::checkpoint_place::directory_and_number;
use crate::checkpoint_place::open_checkpoints;
use crate::failure::Failure;
use gannet::Schema;
use gannet::storage::{Checkpoint, CheckpointDir};
use gannet::train::saved::{JobCheckpoint, ModelNotes};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `--warm-start` names.
pub enum WarmSource {
    /// The folder of a saved model.
    Model(Box<Checkpoint>),
    /// A checkpoint of a job. It says only part of how the data was read.
    Job(Arc<JobCheckpoint>),
}

/// The rows of one table.
pub enum WarmRows {
    /// Of a saved model.
    Model(Box<Checkpoint>),
    /// Of a job's checkpoint, and the schema of the table there.
    Table(Arc<JobCheckpoint>, Box<Schema>),
}

fn in_words(error: &dyn std::fmt::Display) -> Failure {
    Failure::input(format!("--warm-start: {error}"))
}

/// Opens a folder: of a model, a checkpoint directory (its newest valid checkpoint), or a numbered checkpoint
/// (`DIR/0000000041` or `DIR@41`).
///
/// # Errors
/// There is no model and no valid checkpoint.
pub fn open_warm_source(folder: &Path) -> Result<WarmSource, Failure> {
    let model = Checkpoint::open_to_read(folder);
    if model.is_err()
        && let Some((directory, number)) = job_checkpoint(folder)
    {
        let opened = JobCheckpoint::open(open_checkpoints(&directory)?, number);
        let Some(job) = opened.map_err(|e| in_words(&e))? else {
            let text = format!(
                "{}: no checkpoint here is complete: name another folder, or wait for the next save",
                folder.display()
            );
            return Err(in_words(&text));
        };
        return Ok(WarmSource::Job(Arc::new(job)));
    }
    Ok(WarmSource::Model(Box::new(model.map_err(|e| in_words(&e))?)))
}

/// The checkpoint directory and the number, if the path names checkpoints of a job. Without a number the newest is
/// meant.
fn job_checkpoint(path: &Path) -> Option<(PathBuf, Option<u64>)> {
    let numbered = |path: &Path| {
        let directory = path.parent()?;
        let number = path.file_name()?.to_str()?.parse().ok()?;
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let known = CheckpointDir::open(directory).ok()?;
        (known.folder(number).file_name() == path.file_name()).then(|| (directory.into(), Some(number)))
    };
    match directory_and_number(path) {
        (directory, None) if checkpoint_place::is_url(&directory) => return Some((directory, None)),
        (directory, Some(number)) => return Some((directory, Some(number))),
        _ => {}
    }
    if let Some(found) = path.is_dir().then(|| numbered(path)).flatten() {
        return Some(found);
    }
    let listed = CheckpointDir::open(path).ok()?.list().ok()?;
    (!listed.is_empty()).then(|| (path.into(), None))
}

impl WarmSource {
    /// Tells the model or the checkpoint apart from any other. A copy has the name of the original.
    pub fn name(&self) -> u64 {
        match self {
            WarmSource::Model(model) => model.digest(),
            WarmSource::Job(job) => job.digest(),
        }
    }
}

/// Whether a checkpoint says how its job read its data.
pub fn is_described(job: &JobCheckpoint) -> bool {
    ModelNotes::note(job.manifest(), "format").is_some()
}

/// The rows of the job's table that a training calls `table`.
///
/// # Errors
/// The checkpoint has no such table, or several.
pub fn job_table(job: &Arc<JobCheckpoint>, table: &str) -> Result<WarmRows, Failure> {
    let schema = job.table(table).map_err(|error| in_words(&error))?;
    Ok(WarmRows::Table(job.clone(), Box::new(schema.clone())))
}

impl WarmRows {
    /// The schema of the stored rows.
    pub fn schema(&self) -> &Schema {
        match self {
            WarmRows::Model(checkpoint) => checkpoint.schema(),
            WarmRows::Table(_, schema) => schema,
        }
    }

    /// Weights of each segment. The count of pushes behind each row of a job with several workers is none of them.
    pub fn dims(&self) -> Vec<u32> {
        let mut dims: Vec<u32> = self.schema().segments().map(|segment| segment.dim).collect();
        if matches!(self, WarmRows::Table(..)) && self.schema().counts() {
            dims.pop();
        }
        dims
    }

    /// Passes on all rows: keys, and [`Schema::floats`] floats for each.
    ///
    /// # Errors
    /// A file is missing or damaged.
    pub fn read(&self, mut rows: impl FnMut(&[u64], &[f32])) -> Result<(), Failure> {
        match self {
            WarmRows::Model(checkpoint) => checkpoint.read(rows).map_err(|e| in_words(&e)),
            WarmRows::Table(job, schema) => job.rows(schema, &mut rows).map_err(|e| in_words(&e)),
        }
    }
}
