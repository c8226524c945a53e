//! `--validate-every` and `--save-secs`: validates and saves between the steps of a training.

use crate::failure::Failure;
use crate::model::lr;
use crate::model::notes::Notes;
use crate::report::measures::put_quality;
use crate::report::numbers::Numbers;
use crate::train::ending::Results;
use gannet::train::models::{Measured, Objective};
use gannet::train::{Backend, Data, ReadError, StepReport, TrainError, evaluate};
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

/// Validates and saves between the steps of a training.
pub struct Validator<'a> {
    results: Results<'a>,
    test: Option<Data>,
    /// Whether this process validates and saves. It is called when either is due.
    chief: &'a dyn Fn() -> bool,
    task: Objective,
    /// Importance and losses at the last validation.
    before: (f64, f64),
    saved: Instant,
    validations: Vec<Value>,
    failure: Option<Failure>,
    /// Receives the number of each step.
    on_step: Option<&'a dyn Fn(u64)>,
}

/// A model during its training.
pub trait ModelInTraining {
    /// Its quality on this data.
    fn score(&mut self, data: &Data) -> Result<Option<Measured>, TrainError>;

    /// Saves the model. Returns the number of rows.
    fn save(&mut self, folder: &Path, notes: &Notes<'_>) -> Result<u64, Failure>;
}

impl<B: Backend> ModelInTraining for &mut B {
    fn score(&mut self, data: &Data) -> Result<Option<Measured>, TrainError> {
        Ok(evaluate(data, *self)?.map(|quality| Measured::Click(Box::new(quality))))
    }

    fn save(&mut self, folder: &Path, notes: &Notes<'_>) -> Result<u64, Failure> {
        lr::save_lr(folder, *self, notes)
    }
}

impl<'a> Validator<'a> {
    /// For a training with these results. `test` is the data to score.
    pub fn new(
        results: Results<'a>,
        test: Option<&Data>,
        task: Objective,
        chief: &'a dyn Fn() -> bool,
    ) -> Validator<'a> {
        let (before, saved) = ((0.0, 0.0), Instant::now());
        let test = test.cloned();
        let (validations, failure, on_step) = (Vec::new(), None, None);
        Validator { results, test, chief, task, before, saved, validations, failure, on_step }
    }

    /// Sets a function that receives the number of each step.
    pub fn on_step(self, on_step: &'a dyn Fn(u64)) -> Validator<'a> {
        Validator { on_step: Some(on_step), ..self }
    }

    /// Runs after each step: validates and saves what is due.
    pub fn step(&mut self, step: &StepReport<'_>, model: &mut dyn ModelInTraining) -> ControlFlow<()> {
        if let Some(on_step) = self.on_step {
            on_step(step.number);
        }
        let of = &self.results.output.watch;
        let validates = of.validate_every.is_some_and(|every| step.number.is_multiple_of(every));
        let saves = of.save_secs.is_some_and(|seconds| self.saved.elapsed() >= Duration::from_secs(seconds));
        if !(validates || saves) {
            return ControlFlow::Continue(());
        }
        if saves {
            self.saved = Instant::now();
        }
        if !(self.chief)() {
            return ControlFlow::Continue(());
        }
        let validated = if validates { self.validate(step, model) } else { Ok(ControlFlow::Continue(())) };
        let saved = |flow| if saves { self.save(step, model).map(|()| flow) } else { Ok(flow) };
        validated.and_then(saved).unwrap_or_else(|failure| {
            self.failure = Some(failure);
            ControlFlow::Break(())
        })
    }

    fn validate(
        &mut self,
        step: &StepReport<'_>,
        model: &mut dyn ModelInTraining,
    ) -> Result<ControlFlow<()>, Failure> {
        let Some(test) = &self.test else { return Ok(ControlFlow::Continue(())) };
        let measured = match model.score(test) {
            // A signal that ends the wait for the test set does not discard the model.
            Err(TrainError::Read(ReadError::Stopped { .. })) => return Ok(ControlFlow::Break(())),
            measured => measured?,
        };
        let (mass, loss) = (step.mass - self.before.0, step.loss - self.before.1);
        self.before = (step.mass, step.loss);
        let (number, loss) = (step.number, self.task.mean(loss / mass));
        let mut report = Numbers::default();
        report.words("step ");
        report.show("step", number, "  loss ");
        report.show_float("loss", loss, 6, "  validation ");
        put_quality(&mut report, "validation_", measured.as_ref(), false);
        if measured.is_none() {
            report.words("no example has a label");
        }
        self.validations.push(report.object());
        if !self.results.output.json {
            report.print(false);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn save(&mut self, step: &StepReport<'_>, model: &mut dyn ModelInTraining) -> Result<(), Failure> {
        let Results { output, input, intercept, .. } = self.results;
        let (counts, crosses) = (crate::input::counts(input), crate::input::crosses(input)?);
        let Some(folder) = &output.out else { return Ok(()) };
        let ended = Some(format!("it was saved in the middle of it, after step {}", step.number));
        let notes = Notes { format: step.format, columns: step.columns, counts, crosses, intercept, ended };
        let rows = model.save(folder, &notes)?;
        tracing::info!(step = step.number, rows, folder = %folder.display(), "saved the model so far");
        // Counted from the end of the save, so that slow saves leave time for training.
        self.saved = Instant::now();
        Ok(())
    }

    /// The failure that ended the training, if there was one.
    pub fn failed(&mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// All validations, if they were requested.
    pub fn into_validations(self) -> Option<Vec<Value>> {
        self.results.output.watch.validate_every.map(|_| self.validations)
    }
}
