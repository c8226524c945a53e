//! `--validate`, `--validate-every`, `--patience` and `--save-secs`: validates and saves between the steps of a
//! training.

use crate::failure::Failure;
use crate::flags::{OutputArgs, WatchArgs};
use crate::model::lr;
use crate::model::notes::{BEST, Notes};
use crate::report::measures::put_quality;
use crate::report::numbers::Numbers;
use crate::report::words::counted;
use crate::train::ending::{Best, Results, Validated};
use gannet::storage::Checkpoint;
use gannet::train::models::{Measured, Objective};
use gannet::train::{Backend, Data, Holdout, ReadError, Report, StepReport, TrainError, evaluate};
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the scheduler is asked whether an owed validation can be made.
const OWED_LOOK: Duration = Duration::from_millis(200);

/// Checks that `--validate` names files, or one share.
pub fn check_held_out(validate: &[PathBuf]) -> Result<(), Failure> {
    for one in validate {
        let share = one.to_str().and_then(|text| text.trim_end_matches('%').parse::<f64>().ok());
        if share.is_some() && !one.exists() && held_out_share(validate).is_none() {
            return Err(Failure::input(format!(
                "--validate {}: a share of DATA is one number above 0 and below 1, such as 0.1, and no file is beside it",
                one.display()
            )));
        }
    }
    Ok(())
}

/// The share of the training data that `--validate` holds out. `None`: it names files, or is not given.
pub fn held_out_share(validate: &[PathBuf]) -> Option<Holdout> {
    let [one] = validate else { return None };
    one.to_str()?.parse().ok().and_then(Holdout::of)
}

/// Validates and saves between the steps of a training.
pub struct Validator<'a> {
    results: Results<'a>,
    test: Option<Data>,
    /// The data of --validate, which is scored instead of the test data.
    validation: Option<Data>,
    /// The pass of the last step, its number, and the sums of importance and loss behind it.
    epoch: u32,
    last: (u64, f64, f64),
    /// The step behind which the last validation was.
    validated_at: u64,
    /// With --patience: the best validation, and how many since then were no better.
    best: Option<Best>,
    since_best: u32,
    /// Whether --patience has ended the training.
    is_over: bool,
    /// The pass that the last step was of, from 1.
    pass: u32,
    /// Whether this process was the chief before, and since when a validation is owed.
    was_chief: bool,
    owed: Option<Instant>,
    /// The run whose best model is in the folder, for a process that takes the place of its chief.
    run: Option<String>,
    /// Whether this process validates and saves. It is called when either is due.
    chief: &'a dyn Fn() -> bool,
    task: Objective,
    /// Importance and losses at the last validation.
    before: (f64, f64),
    saved: Instant,
    validations: Vec<Value>,
    failure: Option<Failure>,
    /// Ends the training of all workers of a job.
    end_job: Option<&'a dyn Fn()>,
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
        Validator {
            results,
            test,
            validation: None,
            epoch: 0,
            last: (0, 0.0, 0.0),
            validated_at: 0,
            best: None,
            since_best: 0,
            is_over: false,
            pass: 1,
            was_chief: false,
            owed: None,
            run: None,
            chief,
            task,
            before,
            saved,
            validations: Vec::new(),
            failure: None,
            end_job: None,
            on_step: None,
        }
    }

    /// Scores this data instead of the test data.
    pub fn with_validation(self, data: Option<&Data>) -> Validator<'a> {
        Validator { validation: data.cloned(), ..self }
    }

    /// For a training in this run of a job: its chief may be one that takes the place of another.
    pub fn in_run(self, run: String) -> Validator<'a> {
        Validator { run: Some(run), ..self }
    }

    /// Sets a function that ends the training of a whole job. Without it the training of this process ends.
    pub fn ends_job(self, end_job: &'a dyn Fn()) -> Validator<'a> {
        Validator { end_job: Some(end_job), ..self }
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
        // A pass that begins is told of before its first step.
        let is_told_again = self.last.0 == step.number;
        self.last = (step.number, step.mass, step.loss);
        let of = &self.results.output.watch;
        self.pass = self.epoch + 1;
        let is_next_pass = std::mem::replace(&mut self.epoch, step.epoch) != step.epoch;
        let is_due = match of.validate_every {
            Some(every) => step.number.is_multiple_of(every) && !is_told_again,
            None => is_next_pass && self.validation.is_some(),
        };
        let validates = is_due || self.is_owed();
        let saves = of.save_secs.is_some_and(|seconds| self.saved.elapsed() >= Duration::from_secs(seconds));
        if !(validates || saves) || self.is_over {
            return ControlFlow::Continue(());
        }
        if saves {
            self.saved = Instant::now();
        }
        if !(self.chief)() {
            // While a dead worker is fenced there is no chief. The one before makes up for the validation.
            self.owed = (self.was_chief && validates).then(Instant::now);
            return ControlFlow::Continue(());
        }
        self.owed = None;
        if !std::mem::replace(&mut self.was_chief, true)
            && let Some(run) = &self.run
        {
            self.best = noted_best(self.results.output, run);
        }
        let validated = if validates { self.validate(step, model) } else { Ok(ControlFlow::Continue(())) };
        let saved = |flow| if saves { self.save(step, model).map(|()| flow) } else { Ok(flow) };
        validated.and_then(saved).unwrap_or_else(|failure| {
            self.failure = Some(failure);
            ControlFlow::Break(())
        })
    }

    /// Whether a validation is to be made up for. The scheduler is asked a few times a second.
    fn is_owed(&self) -> bool {
        self.owed.is_some_and(|since| since.elapsed() >= OWED_LOOK)
    }

    fn validate(
        &mut self,
        step: &StepReport<'_>,
        model: &mut dyn ModelInTraining,
    ) -> Result<ControlFlow<()>, Failure> {
        match self.measure(model) {
            // A signal that ends the wait for the data does not discard the model.
            Err(TrainError::Read(ReadError::Stopped { .. })) => Ok(ControlFlow::Break(())),
            Err(error) => Err(error.into()),
            Ok(Some(measured)) if watch_of(&self.results).patience.is_some() => {
                self.keep_best(step, measured.loss(), model)
            }
            Ok(_) => Ok(ControlFlow::Continue(())),
        }
    }

    /// Scores the data that is held out, and reports it with the loss since the last time.
    fn measure(&mut self, model: &mut dyn ModelInTraining) -> Result<Option<Measured>, TrainError> {
        let Some(data) = self.validation.as_ref().or(self.test.as_ref()) else { return Ok(None) };
        let measured = model.score(data)?;
        let (number, mass, loss) = self.last;
        let since = (mass - self.before.0, loss - self.before.1);
        (self.before, self.validated_at) = ((mass, loss), number);
        let mut report = Numbers::default();
        report.words("step ");
        report.show("step", number, "  loss ");
        report.show_float("loss", self.task.mean(since.1 / since.0), 6, "  validation ");
        put_quality(&mut report, "validation_", measured.as_ref(), false);
        if measured.is_none() {
            let share = data.holdout.map(|holdout| format!(" (--validate {})", holdout.share()));
            report.words(format_args!("no labelled example was held out{}", share.unwrap_or_default()));
        }
        self.validations.push(report.object());
        if !self.results.output.json {
            report.print(false);
        }
        Ok(measured)
    }

    /// Keeps the model if its validation is the best so far. Ends the training if that was too long ago.
    fn keep_best(
        &mut self,
        step: &StepReport<'_>,
        loss: f64,
        model: &mut dyn ModelInTraining,
    ) -> Result<ControlFlow<()>, Failure> {
        if !loss.is_nan() && self.best.as_ref().is_none_or(|best| best.is_worse_than(loss)) {
            let best = self.run.as_ref().map(|run| format!("{run} {loss}"));
            let rows = self.save_as(step, (None, best), model)?;
            // Where other workers learn meanwhile, the saved model is tested in the end.
            let test = self.test.as_ref().filter(|_| self.end_job.is_none() || rows.is_none());
            let test = test.map(|test| model.score(test)).transpose()?.flatten();
            self.best = Some(Best { step: step.number, pass: self.pass, loss, rows, test });
            self.since_best = 0;
            return Ok(ControlFlow::Continue(()));
        }
        self.since_best += 1;
        self.is_over = watch_of(&self.results).patience.is_some_and(|patience| self.since_best >= patience);
        match self.end_job.filter(|_| self.is_over) {
            Some(end_job) => end_job(),
            None if self.is_over => return Ok(ControlFlow::Break(())),
            None => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Saves the model so far, unless a better one is kept.
    fn save(&mut self, step: &StepReport<'_>, model: &mut dyn ModelInTraining) -> Result<(), Failure> {
        if self.best.is_some() {
            return Ok(());
        }
        let ended = format!("it was saved in the middle of it, after step {}", step.number);
        self.save_as(step, (Some(ended), None), model).map(drop)
    }

    /// Saves the model, if a flag names a folder. Returns the number of rows.
    fn save_as(
        &mut self,
        step: &StepReport<'_>,
        (ended, best): (Option<String>, Option<String>),
        model: &mut dyn ModelInTraining,
    ) -> Result<Option<u64>, Failure> {
        let Results { output, input, intercept, .. } = self.results;
        let (counts, crosses) = (crate::input::counts(input), crate::input::crosses(input)?);
        let Some(folder) = &output.out else { return Ok(None) };
        let notes =
            Notes { format: step.format, columns: step.columns, counts, crosses, intercept, ended, best };
        let rows = model.save(folder, &notes)?;
        tracing::info!(step = step.number, rows, folder = %folder.display(), "saved the model so far");
        // Counted from the end of the save, so that slow saves leave time for training.
        self.saved = Instant::now();
        Ok(Some(rows))
    }

    /// The end of a training in one process. Validates the last pass, unless a signal or the patience has ended the
    /// training. If an earlier model is the best one, the report gets its test.
    pub fn end(
        mut self,
        model: &mut dyn ModelInTraining,
        trained: &mut Report,
    ) -> Result<Validated, Failure> {
        let is_due = self.validation.is_some() && self.validated_at != self.last.0;
        let last = match is_due && !trained.stopped {
            true => self.measure(model),
            false => Ok(None),
        };
        let last = match last {
            // A signal that ends the wait for the data does not discard the model.
            Err(TrainError::Read(ReadError::Stopped { .. })) => {
                trained.stopped = true;
                None
            }
            last => last?,
        };
        if let Some(best) = &self.best {
            if last.is_some_and(|last| best.is_worse_than(last.loss())) {
                self.best = None;
            } else if self.is_over || !trained.stopped {
                (trained.test, trained.stopped) = (best.test.clone(), false);
            }
        }
        self.tell_of_end();
        Ok(self.validated())
    }

    /// The end of the training in a worker, whose chief may still have to [validate](validate_job) the last rows.
    pub fn end_of_worker(self) -> Validated {
        self.tell_of_end();
        self.validated()
    }

    /// Says that the training ended early.
    fn tell_of_end(&self) {
        if self.is_over && !self.results.output.json {
            let were = counted(self.since_best.into(), "validation was", "validations in a row were");
            notice!("gannet: the training ended early: {were} no better (--patience)");
        }
    }

    /// The failure that ended the training, if there was one.
    pub fn failed(&mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// All validations, if they were requested, and the best one.
    pub fn validated(self) -> Validated {
        let is_wanted = self.results.output.watch.validate_every.is_some() || self.validation.is_some();
        Validated { each: is_wanted.then_some(self.validations), best: self.best, is_over: self.is_over }
    }
}

/// The best model of a run so far: an earlier chief has saved it, and noted its loss. `None`: there is none, or nobody
/// asks for one.
pub fn noted_best(output: &OutputArgs, run: &str) -> Option<Best> {
    let folder = output.out.as_deref().filter(|_| output.watch.patience.is_some())?;
    let saved = Checkpoint::open_to_read(folder).ok()?;
    let loss = saved.note(BEST)?.strip_prefix(run)?.trim().parse().ok()?;
    notice!("gannet: the best model so far is that in --out, with a validation loss of {loss:.6}");
    Some(Best { step: 0, pass: 0, loss, rows: Some(saved.rows()), test: None })
}

/// Notes the validation of the rows that all workers of a job have trained. It has no step, because each worker counts
/// its own.
pub fn validate_job(validated: &mut Validated, measured: Option<&Measured>, is_json: bool) {
    let mut report = Numbers::default();
    report.add("step", Value::Null);
    report.words("all workers done  validation ");
    put_quality(&mut report, "validation_", measured, false);
    if measured.is_none() {
        report.words("no example has a label");
    }
    validated.each.get_or_insert_default().push(report.object());
    if !is_json {
        report.print(false);
    }
    let loss = measured.map(Measured::loss);
    if validated.best.as_ref().is_some_and(|best| loss.is_some_and(|loss| best.is_worse_than(loss))) {
        validated.best = None;
    }
}

fn watch_of<'a>(results: &Results<'a>) -> &'a WatchArgs {
    &results.output.watch
}
