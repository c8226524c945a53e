//! Reads a model from a checkpoint of a job, to score with it.

use super::error::SavedModelError;
use super::job_checkpoint::JobCheckpoint;
use super::kinds::{build, schemas_of};
use super::lr::weight_of;
use super::model::{SavedModel, SavedWeights, settings_of};
use super::notes::ModelNotes;
use super::reading::reading;
use super::shape::Shape;
use crate::backend::norm_table::{norm_table, normalization_of};
use crate::backend::tables::SavedTables;
use crate::backend::weights::Weights;
use crate::models::{Linear, Model};
use crate::read::normalization::Normalize;
use gannet_core::{CheckpointDirError, Schema};

/// Reads the model of a checkpoint that a training with `--checkpoint` has saved.
///
/// # Errors
/// The checkpoint does not say how the job read its data, is not of a model that scores, or a file of it is damaged.
pub fn load_job_model(job: &JobCheckpoint) -> Result<SavedModel, SavedModelError> {
    let (manifest, folder) = (job.manifest(), job.folder());
    if ModelNotes::note(manifest, "format").is_none() {
        return Err(SavedModelError::Job(format!(
            "{}: the checkpoint does not say how its job read its data: worker 0 of a training by gradients with \
             --checkpoint says it; jobs of lbfgs and lda, data from a pipe, and `gannet checkpoint save` do not; name \
             the model that the training saved with --out",
            folder.display()
        )));
    }
    let shape = Shape::of(manifest);
    let first = job.table(&shape.model).map_err(SavedModelError::Job)?;
    let settings = settings_of(&of_model(first, &shape.model));
    let mut rows = 0;
    let weights = match build(&shape, settings) {
        Some(model) => {
            let mut tables = SavedTables::default();
            for (number, schema) in schemas_of(&*model).iter().enumerate() {
                let saved = job.table(&schema.name).map_err(SavedModelError::Job)?;
                fits(job, saved, schema)?;
                let table = tables.add(schema);
                rows += u64::from(number == 0)
                    * each_row(job, saved, schema, |key, row| {
                        tables.put(table, &[key], row);
                    })?;
            }
            SavedWeights::Tables(tables)
        }
        None if shape.model != "lr" => {
            let kind = &shape.model;
            return Err(SavedModelError::Job(format!(
                "{}: models of {kind} score no examples",
                folder.display()
            )));
        }
        None => {
            let schema = Linear::new(settings).sparse();
            fits(job, first, &schema)?;
            let mut weights = Weights::default();
            rows = each_row(job, first, &schema, |key, row| {
                weights.insert(key, weight_of(&schema.rule, row));
            })?;
            SavedWeights::Clicks(weights, schema)
        }
    };
    let mut reading = reading(manifest, &folder)?;
    reading.normalize = normalize(job, &shape.model)?;
    let digest = job.digest();
    Ok(SavedModel { folder, shape, settings, weights, names: None, reading, rows, digest })
}

/// How the job normalized values: its workers agreed on that in a table.
fn normalize(job: &JobCheckpoint, model: &str) -> Result<Normalize, SavedModelError> {
    let Ok(schema) = job.table(&norm_table(model)) else { return Ok(Normalize::off()) };
    let mut damaged = Ok(());
    let known = normalization_of(&mut |page| {
        if damaged.is_ok() {
            damaged = job.rows(schema, page);
        }
        Ok(())
    });
    damaged.map_err(unreadable)?;
    let known = known.map_err(|error| SavedModelError::Job(error.to_string()))?;
    Ok(known.map_or_else(Normalize::off, Normalize::by))
}

fn unreadable(error: CheckpointDirError) -> SavedModelError {
    SavedModelError::Job(error.to_string())
}

/// A job's table as that of a model: under its name there, and without the count of pushes behind each row.
fn of_model(saved: &Schema, name: &str) -> Schema {
    let mut schema = Schema { name: name.to_owned(), ..saved.clone() };
    if schema.counts() {
        schema.more.pop();
    }
    schema
}

/// Checks that a job's table has the rows of this schema.
fn fits(job: &JobCheckpoint, saved: &Schema, schema: &Schema) -> Result<(), SavedModelError> {
    let floats = |of: &Schema| of.segments().map(|of| (of.dim, of.rule.name())).collect::<Vec<_>>();
    let own = of_model(saved, &schema.name);
    if floats(&own) == floats(schema) && own.floats() == schema.floats() {
        return Ok(());
    }
    let what = format!("table {} has other rows than its notes say", saved.name);
    Err(SavedModelError::Unfit { folder: job.folder().display().to_string(), what })
}

/// Passes on each row of a job's table as one of this schema. Returns how many.
fn each_row(
    job: &JobCheckpoint,
    saved: &Schema,
    schema: &Schema,
    mut row: impl FnMut(u64, &[f32]),
) -> Result<u64, SavedModelError> {
    let (stored, own) = (saved.floats(), schema.floats());
    let mut rows = 0;
    let read = job.rows(saved, |keys, floats| {
        rows += keys.len() as u64;
        keys.iter().zip(floats.chunks_exact(stored)).for_each(|(&key, floats)| row(key, &floats[..own]));
    });
    read.map_err(unreadable)?;
    Ok(rows)
}
