//! The end of a training of any model.

use crate::failure::{Failure, STOPPED};
use crate::flags::{InputArgs, ModelName, OutputArgs, TrainArgs};
use crate::input;
use crate::model::notes::{Notes, ended_how};
use crate::model::saves;
use crate::report::account::Account;
use crate::report::models::warn_of_quality;
use crate::report::numbers::Numbers;
use crate::report::plots;
use crate::report::training::print_report;
use gannet::train::models::Measured;
use gannet::train::{BadLines, Columns, Report};
use serde_json::Value;
use std::path::Path;

/// What a training has learned, as far as the folder of its model says so.
pub struct Learned<'a> {
    pub examples: u64,
    pub rows: u64,
    pub stopped: bool,
    pub bad_lines: &'a BadLines,
    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub format: &'a str,
    /// The columns, of a CSV file.
    pub columns: Option<&'a Columns>,
    /// Whether the model has an intercept.
    pub intercept: bool,
    /// Workers that did not train their share.
    pub missing: &'a [u32],
}

/// The folder of the saved model and its rows. `None`: no model was saved.
pub type Saved<'a> = Option<(&'a Path, u64)>;

/// What a training was validated to be on the way.
#[derive(Debug, Default)]
pub struct Validated {
    /// Each validation, if some were requested.
    pub each: Option<Vec<Value>>,
    /// The model that was saved and is kept, because a later one was no better.
    pub best: Option<Best>,
    /// Whether `--patience` has ended the training.
    pub is_over: bool,
}

/// The best validation so far.
#[derive(Clone, Debug)]
pub struct Best {
    /// The step behind which it was, and the pass of that step, from 1.
    pub step: u64,
    pub pass: u32,
    /// Its loss: the RMSE where the model predicts numbers, otherwise the log loss.
    pub loss: f64,
    /// The rows that were saved. `None`: no model was, for want of a folder.
    pub rows: Option<u64>,
    /// The quality on the test data.
    pub test: Option<Measured>,
}

impl Best {
    /// Whether a validation with this loss is better. Any number is better than NaN.
    pub fn is_worse_than(&self, loss: f64) -> bool {
        loss < self.loss || self.loss.is_nan() && !loss.is_nan()
    }
}

/// Where the results of a training go, and in which form.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    pub output: &'a OutputArgs,
    /// How the data is read, which a saved model notes.
    pub input: &'a InputArgs,
    pub intercept: bool,
    /// Whether no other process trains the model.
    pub is_alone: bool,
    pub model: ModelName,
    pub epochs: u32,
}

impl Validated {
    /// The validations, and the best one if its model is kept, for a report.
    pub fn numbers(&self) -> Numbers {
        let mut report = Numbers::default();
        if let Some(Best { step, pass, loss, .. }) = &self.best {
            report.line("best");
            match *step {
                0 => report.words("before this worker was started again"),
                _ => report.words(format_args!("step {step}, in pass {pass}")),
            }
            report.add("best_step", (*step > 0).then_some(*step));
            report.words(", validation loss ");
            report.show_float("best_validation", *loss, 6, "");
        }
        if let Some(each) = &self.each {
            report.add("validations", each.clone());
        }
        report
    }
}

impl<'a> Results<'a> {
    /// As the flags say.
    pub fn of(args: &'a TrainArgs) -> Results<'a> {
        Results {
            output: &args.output,
            input: &args.data.input,
            intercept: !args.data.no_intercept,
            is_alone: args.job.job_name.is_none(),
            model: args.model.model,
            epochs: args.passes.epochs,
        }
    }

    /// Saves the model of a training by gradients, and prints the report.
    pub fn save_and_report(
        &self,
        (of, account): (&Report, &Account),
        save: impl FnOnce(&Path, &Notes<'_>) -> Result<u64, Failure>,
        weights: impl FnOnce() -> Result<Vec<(String, f32)>, Failure>,
        validated: Validated,
    ) -> Result<(), Failure> {
        self.plot(of)?;
        if let Some(best) = &validated.best {
            let saved = self.output.out.as_deref().zip(best.rows);
            warn_of_quality(of, true);
            // The rows of this process are not those of the best model any more.
            self.report((of, account), &[], &validated);
            // A signal that ends the training leaves the best model.
            self.print_saved(saved, false);
            return Ok(());
        }
        let learned = Learned {
            examples: of.examples,
            rows: of.rows,
            stopped: of.stopped,
            bad_lines: &of.bad_lines,
            format: of.format,
            columns: of.columns.as_ref(),
            intercept: self.intercept,
            missing: &account.missing,
        };
        let saved = self.save(&learned, save)?;
        warn_of_quality(of, validated.each.is_some());
        // They are pulled last: a server that is lost now costs no model.
        self.report((of, account), &weights()?, &validated);
        self.print_saved(saved, of.stopped);
        Ok(())
    }

    /// Writes the plots of the test, or else of the predictions before each step.
    fn plot(&self, of: &Report) -> Result<(), Failure> {
        let Some(folder) = &self.output.plots else { return Ok(()) };
        match of.test.as_ref().or(of.progressive.as_ref()).and_then(Measured::click) {
            Some(quality) => plots::write(folder, quality),
            None => Err(Failure::input(
                "--plots: no labelled example was predicted, or the model predicts no probability",
            )),
        }
    }

    /// Prints the report of a training by gradients.
    pub fn report(&self, results: (&Report, &Account), weights: &[(String, f32)], validated: &Validated) {
        print_report((self.model, self.epochs, self.output.json), results, weights, validated.numbers());
    }

    /// Saves the model with `save`, if a flag names a folder and something was learned. Returns the folder and the
    /// number of rows.
    pub fn save(
        &self,
        learned: &Learned<'_>,
        save: impl FnOnce(&Path, &Notes<'_>) -> Result<u64, Failure>,
    ) -> Result<Saved<'a>, Failure> {
        let Some(folder) = self.output.out.as_deref() else { return Ok(None) };
        let Learned { examples, rows, stopped, .. } = *learned;
        if !saves::may_save(folder, (examples, rows, self.is_alone), stopped, learned.bad_lines)? {
            return Ok(None);
        }
        let notes = Notes {
            format: learned.format,
            columns: learned.columns,
            counts: input::counts(self.input),
            crosses: input::crosses(self.input)?,
            intercept: learned.intercept,
            ended: ended_how(stopped, examples, learned.missing),
            best: None,
        };
        Ok(Some((folder, save(folder, &notes)?)))
    }

    /// Says where the model was saved, and whether the training was stopped early.
    pub fn print_saved(&self, saved: Saved<'_>, stopped: bool) {
        let early = if stopped { "stopped early, so this is the model so far: " } else { "" };
        match saved {
            Some((folder, rows)) if !self.output.json => {
                say!("model        {early}{rows} rows in {}{}", folder.display(), saves::before(folder))
            }
            Some((folder, rows)) => {
                notice!("gannet: {early}{rows} rows saved in {}{}", folder.display(), saves::before(folder))
            }
            None if stopped && self.output.out.is_none() => {
                notice!("gannet: {early}no --out was given, so no model was saved")
            }
            None => {}
        }
    }
}

/// The result of a training of any model that a signal may have stopped.
pub fn ended_early(stopped: bool, examples: u64) -> Result<(), Failure> {
    if stopped {
        let text = format!("stopped by a signal after {examples} examples");
        return Err(Failure::new(STOPPED, text));
    }
    Ok(())
}

/// An error if nothing was learned. A share or splits without a line are none, but all lines of them may be `bad`.
/// `is_whole`: nobody else learned something either. (Where one process reads whole files, its reader says it first.)
pub fn learned_something(examples: u64, bad: Option<&BadLines>, is_whole: bool) -> Result<(), Failure> {
    if examples > 0 {
        return Ok(());
    }
    match bad.map_or(&[][..], |bad| &bad.first) {
        [first, ..] => Err(Failure::input(format!(
            "0 examples were learned: all lines that this process read are bad ({} were skipped), the first: {first}",
            bad.map_or(0, |bad| bad.count)
        ))),
        [] if is_whole => Err(Failure::input(
            "0 examples were learned: no line that was read is an example with a label; see what the data files have \
             (`gannet predict` scores lines without labels)",
        )),
        [] => Ok(()),
    }
}
