//! A model whose rows are the tables of a job: those of a checkpoint, or those that a follower reads from servers.

use super::error::SavedModelError;
use super::job_checkpoint::{JobCheckpoint, own_table};
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
use gannet_core::Schema;
use std::collections::BTreeMap;
use std::path::Path;

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
    let schemas: Vec<&Schema> = manifest.tables.iter().map(|of| &of.schema).collect();
    let (mut saved, mut tables) = JobTables::of(manifest, &schemas, &folder)?;
    let mut rows = 0;
    for (table, schema) in schemas.iter().enumerate() {
        let counts = matches!(tables.tables[table], JobTable::Rows { number: 0, .. });
        if matches!(tables.tables[table], JobTable::Other) {
            continue;
        }
        let read = job.rows(schema, |keys, floats| {
            rows += if counts { keys.len() as u64 } else { 0 };
            tables.put(&mut saved, table, keys, floats);
        });
        read.map_err(|error| SavedModelError::Job(error.to_string()))?;
    }
    tables.settle(&mut saved)?;
    Ok(SavedModel { digest: job.digest(), rows, ..saved })
}

/// What the tables of a job are to a model. The rows of the job are put into the model by it. Copies of a model that
/// get the same rows may share it.
pub struct JobTables {
    tables: Vec<JobTable>,
    /// The rows of the table with the normalization, in the order of their keys.
    norm: BTreeMap<u64, Vec<f32>>,
    /// What these rows say. `None`: they have changed since.
    known: Option<Normalize>,
}

/// What a table of a job is to a model.
enum JobTable {
    /// Its table with this number. The job's rows have so many floats; the first of them are those of the model's.
    Rows { number: usize, stored: usize, own: usize },
    /// The normalization of values.
    Norm { stored: usize },
    /// Nothing.
    Other,
}

impl JobTables {
    /// The model that these notes describe, without rows. `schemas` are those of the job's tables. Their names have
    /// that of the run in front. `place` is what messages call the job.
    ///
    /// # Errors
    /// The notes are of a model that does not score, or the tables are not those of the model.
    pub fn of(
        notes: &dyn ModelNotes,
        schemas: &[&Schema],
        place: &Path,
    ) -> Result<(SavedModel, JobTables), SavedModelError> {
        let shape = Shape::of(notes);
        let named = |name: &str| own_table(schemas, name, place).map_err(SavedModelError::Job);
        let first = named(&shape.model)?;
        let settings = settings_of(&of_model(schemas[first], &shape.model));
        let mut tables: Vec<JobTable> = schemas.iter().map(|_| JobTable::Other).collect();
        let mut add = |at: usize, number: usize, schema: &Schema| {
            fits(place, schemas[at], schema)?;
            let (stored, own) = (schemas[at].floats(), schema.floats());
            tables[at] = JobTable::Rows { number, stored, own };
            Ok::<_, SavedModelError>(())
        };
        let weights = match build(&shape, settings) {
            Some(model) => {
                let mut saved = SavedTables::default();
                for (number, schema) in schemas_of(&*model).iter().enumerate() {
                    add(named(&schema.name)?, number, schema)?;
                    saved.add(schema);
                }
                SavedWeights::Tables(saved)
            }
            None if shape.model != "lr" => {
                let (place, kind) = (place.display(), &shape.model);
                return Err(SavedModelError::Job(format!("{place}: models of {kind} score no examples")));
            }
            None => {
                let schema = Linear::new(settings).sparse();
                add(first, 0, &schema)?;
                SavedWeights::Clicks(Weights::default(), schema)
            }
        };
        if let Ok(norm) = own_table(schemas, &norm_table(&shape.model), place) {
            tables[norm] = JobTable::Norm { stored: schemas[norm].floats() };
        }
        let reading = reading(notes, place)?;
        let folder = place.to_owned();
        let saved = SavedModel { folder, shape, settings, weights, names: None, reading, rows: 0, digest: 0 };
        Ok((saved, JobTables { tables, norm: BTreeMap::new(), known: None }))
    }

    /// Puts rows of a table of the job into the model, in place of those that are there. The model is whole after
    /// [`settle`](Self::settle).
    ///
    /// # Panics
    /// `rows` has not the floats of the job's schema for each key.
    pub fn put(&mut self, saved: &mut SavedModel, table: usize, keys: &[u64], rows: &[f32]) {
        let (stored, own) = match self.tables.get(table) {
            Some(&JobTable::Rows { stored, own, .. }) => (stored, own),
            Some(&JobTable::Norm { stored }) => (stored, stored),
            _ => return,
        };
        assert_eq!(rows.len(), keys.len() * stored, "a row for each key");
        for (&key, row) in keys.iter().zip(rows.chunks_exact(stored)) {
            match (&self.tables[table], &mut saved.weights) {
                (JobTable::Norm { .. }, _) => {
                    self.norm.insert(key, row.to_vec());
                    self.known = None;
                }
                (JobTable::Rows { number, .. }, SavedWeights::Tables(tables)) => {
                    tables.put(*number, &[key], &row[..own]);
                }
                (_, SavedWeights::Clicks(weights, schema)) => {
                    weights.insert(key, weight_of(&schema.rule, &row[..own]));
                }
                (JobTable::Other, _) => {}
            }
        }
    }

    /// Removes rows of a table of the job. Keys without a row are skipped.
    pub fn remove(&mut self, saved: &mut SavedModel, table: usize, keys: &[u64]) {
        for key in keys {
            match (self.tables.get(table), &mut saved.weights) {
                (Some(JobTable::Norm { .. }), _) => {
                    self.norm.remove(key);
                    self.known = None;
                }
                (Some(JobTable::Rows { number, .. }), SavedWeights::Tables(tables)) => {
                    tables.remove(*number, *key)
                }
                (Some(JobTable::Rows { .. }), SavedWeights::Clicks(weights, _)) => weights.remove(*key),
                (Some(JobTable::Other) | None, _) => {}
            }
        }
    }

    /// Makes the model one of the rows that it has now. A logistic regression counts rows whose weight is not 0.
    ///
    /// # Errors
    /// The rows of the normalization are damaged.
    pub fn settle(&mut self, saved: &mut SavedModel) -> Result<(), SavedModelError> {
        saved.rows = match &saved.weights {
            SavedWeights::Clicks(weights, _) => weights.len() as u64,
            SavedWeights::Tables(tables) => tables.len(0) as u64,
        };
        let known = match self.known.take() {
            Some(known) => known,
            None => self.normalize()?,
        };
        saved.reading.normalize = known.clone();
        self.known = Some(known);
        Ok(())
    }

    /// How the job normalized values: its workers agreed on that in a table.
    fn normalize(&self) -> Result<Normalize, SavedModelError> {
        let (keys, rows): (Vec<u64>, Vec<&[f32]>) =
            self.norm.iter().map(|(&key, row)| (key, &row[..])).unzip();
        let rows = rows.concat();
        let known = normalization_of(&mut |page| {
            page(&keys, &rows);
            Ok(())
        });
        let known = known.map_err(|error| SavedModelError::Job(error.to_string()))?;
        Ok(known.map_or_else(Normalize::off, Normalize::by))
    }
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
fn fits(place: &Path, saved: &Schema, schema: &Schema) -> Result<(), SavedModelError> {
    let floats = |of: &Schema| of.segments().map(|of| (of.dim, of.rule.name())).collect::<Vec<_>>();
    let own = of_model(saved, &schema.name);
    if floats(&own) == floats(schema) && own.floats() == schema.floats() {
        return Ok(());
    }
    let what = format!("table {} has other rows than its notes say", saved.name);
    Err(SavedModelError::Unfit { folder: place.display().to_string(), what })
}
