//! The end of a training of any model.

use crate::failure::{Failure, STOPPED};
use crate::flags::TrainArgs;
use crate::input;
use crate::model::notes::{Notes, ended_how};
use crate::model::saves;
use crate::report::account::Account;
use crate::report::models::warn_of_quality;
use crate::report::training::print_report;
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
pub struct Saved<'a>(pub Option<(&'a Path, u64)>);

/// Saves the model of a training by gradients, and prints the report.
pub fn save_and_report(
    args: &TrainArgs,
    (of, account): (&Report, &Account),
    save: impl FnOnce(&Path, &Notes<'_>) -> Result<u64, Failure>,
    weights: impl FnOnce() -> Result<Vec<(String, f32)>, Failure>,
    validations: Option<Vec<Value>>,
) -> Result<(), Failure> {
    let learned = Learned {
        examples: of.examples,
        rows: of.rows,
        stopped: of.stopped,
        bad_lines: &of.bad_lines,
        format: of.format,
        columns: of.columns.as_ref(),
        intercept: !args.no_intercept,
        missing: &account.missing,
    };
    let saved = learned.save(args, save)?;
    warn_of_quality(of);
    // They are pulled last: a server that is lost now costs no model.
    print_report(args, (of, account), &weights()?, validations);
    saved.print(args, of.stopped);
    Ok(())
}

impl Learned<'_> {
    /// Saves the model with `save`, if a flag names a folder and something was learned.
    pub fn save<'a>(
        &self,
        args: &'a TrainArgs,
        save: impl FnOnce(&Path, &Notes<'_>) -> Result<u64, Failure>,
    ) -> Result<Saved<'a>, Failure> {
        let Some(folder) = args.out.as_deref() else { return Ok(Saved(None)) };
        let learned = (self.examples, self.rows, args.job.job_name.is_none());
        if !saves::may_save(folder, learned, self.stopped, self.bad_lines)? {
            return Ok(Saved(None));
        }
        let notes = Notes {
            format: self.format,
            columns: self.columns,
            counts: input::counts(&args.input),
            crosses: input::crosses(&args.input)?,
            intercept: self.intercept,
            ended: ended_how(self.stopped, self.examples, self.missing),
        };
        Ok(Saved(Some((folder, save(folder, &notes)?))))
    }
}

impl Saved<'_> {
    /// Says where the model was saved, and whether the training was stopped early.
    pub fn print(&self, args: &TrainArgs, stopped: bool) {
        let early = if stopped { "stopped early, so this is the model so far: " } else { "" };
        match self.0 {
            Some((folder, rows)) if !args.json => {
                say!("model        {early}{rows} rows in {}{}", folder.display(), saves::before(folder))
            }
            Some((folder, rows)) => {
                notice!("gannet: {early}{rows} rows saved in {}{}", folder.display(), saves::before(folder))
            }
            None if stopped && args.out.is_none() => {
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

/// An error if this worker's share had bad lines only, so that it learned nothing.
pub fn learned_something(examples: u64, bad: &BadLines) -> Result<(), Failure> {
    match &bad.first[..] {
        [first, ..] if examples == 0 => Err(Failure::input(format!(
            "0 examples were learned: all lines of this worker's share are bad ({} were skipped), the first: {first}",
            bad.count
        ))),
        _ => Ok(()),
    }
}
