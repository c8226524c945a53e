//! Learns a model of tables, saves it, and prints the report.

use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::metrics::training::Training;
use crate::model::folder::save_model;
use crate::model::notes::Notes;
use crate::report::account::Account;
use crate::report::models;
use crate::report::progress::ProgressDisplay;
use crate::report::warnings::{warn_of_bad_lines, warn_of_crosses};
use crate::train::ending::{Results, Validated};
use crate::train::fields::warn_of_strangers;
use crate::train::tasks::InJob;
use crate::train::validation::{ModelInTraining, Validator};
use gannet::train::models::{Measured, Model, fit_watched, score};
use gannet::train::saved::{Shape, schemas_of};
use gannet::train::{Data, Options, Progress, Report, StepReport, Tables, TrainError};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Trains with a progress display.
pub fn learn<T: Tables>(
    options: &Options,
    (model, shape): (&mut dyn Model, &Shape),
    tables: &mut T,
    stop: &AtomicBool,
    (mut display, metrics, in_job): (ProgressDisplay, &Metrics, Option<&InJob>),
    validator: &mut Validator<'_>,
) -> Result<Report, Failure> {
    let training = Arc::new(Training::new(false));
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let task = model.task();
    let mut progress = |p: &Progress| {
        training.progress(p);
        if let Some(in_job) = in_job {
            in_job.report_progress(p.examples, p.loss, p.seconds);
        }
        display.update_model(p, options.epochs, task);
    };
    let mut watch = |step: &StepReport<'_>, model: &mut dyn Model, tables: &mut T| {
        validator.step(step, &mut InTables { model, shape, tables })
    };
    let fitted = fit_watched(options, model, tables, stop, &mut progress, &mut watch);
    display.finish();
    validator.failed()?;
    let fitted = fitted?;
    training.finish(&fitted, options.epochs);
    warn_of_bad_lines(&fitted.bad_lines);
    warn_of_crosses(options);
    warn_of_strangers(&options.data);
    Ok(fitted)
}

/// A model during its training.
pub struct InTables<'a, T> {
    pub model: &'a mut dyn Model,
    pub shape: &'a Shape,
    pub tables: &'a mut T,
}

impl<T: Tables> ModelInTraining for InTables<'_, T> {
    fn score(&mut self, data: &Data) -> Result<Option<Measured>, TrainError> {
        score(data, self.model, self.tables)
    }

    fn save(&mut self, folder: &Path, notes: &Notes<'_>) -> Result<u64, Failure> {
        save(folder, (self.shape, notes), self.model, self.tables)
    }
}

/// Saves the model. Returns the number of rows.
fn save<T: Tables>(
    folder: &Path,
    (shape, notes): (&Shape, &Notes<'_>),
    model: &dyn Model,
    tables: &mut T,
) -> Result<u64, Failure> {
    save_model(folder, (&shape.notes(), notes), &schemas_of(model), |table, page| tables.scan(table, page))
}

/// Saves the model and prints the report.
pub fn finish<T: Tables>(
    results: Results<'_>,
    shape: &Shape,
    model: &dyn Model,
    tables: &mut T,
    (trained, account): (&Report, &Account),
    validated: Validated,
) -> Result<(), Failure> {
    let tables = RefCell::new(tables);
    let save =
        |folder: &Path, notes: &Notes<'_>| save(folder, (shape, notes), model, &mut **tables.borrow_mut());
    let weights = || models::weights(model, &mut **tables.borrow_mut(), trained);
    results.save_and_report((trained, account), save, weights, validated)
}
