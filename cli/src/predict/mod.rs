//! `gannet predict`: a probability a line for each example, or the measures as JSON.

use crate::failure::{Failure, SYSTEM};
use crate::flags::PredictArgs;
use crate::input;
use crate::model::{lr, saves, tables};
use crate::report::training;
use gannet::train::{ReadError, TrainError, predict};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Why a prediction ended early.
pub enum Ended {
    /// The data or the model's rows cannot be read.
    Failed(TrainError),
    /// The reader of standard output has closed it (`| head`).
    Closed,
    /// The system cannot write the predictions.
    Write(io::Error),
}

impl From<ReadError> for Ended {
    fn from(error: ReadError) -> Ended {
        Ended::Failed(error.into())
    }
}

impl From<TrainError> for Ended {
    fn from(error: TrainError) -> Ended {
        Ended::Failed(error)
    }
}

impl Ended {
    /// The failure of the command. `None` when the reader closed the output.
    pub fn failure(self) -> Option<Failure> {
        match self {
            Ended::Closed => None,
            Ended::Failed(error) => Some(crate::train::train_failure(error)),
            Ended::Write(error) => Some(Failure::new(SYSTEM, format!("writing the predictions: {error}"))),
        }
    }
}

/// Writes lines of predictions.
///
/// # Errors
/// The reader of the output is gone, or the system cannot write.
pub fn write(out: &mut impl Write, text: &str) -> Result<(), Ended> {
    out.write_all(text.as_bytes())
        .map_err(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ended::Closed } else { Ended::Write(e) })
}

/// Prints the quality of the predictions on standard error, if examples have labels.
pub fn print_measures(examples: u64, words: &str) {
    notice!("{examples} examples  {words}");
}

/// Runs the command.
pub fn run(args: &PredictArgs) -> Result<(), Failure> {
    if let Some(saved) = tables::load(&args.model)? {
        return tables::predict(args, saved);
    }
    let model = lr::load(&args.model)?;
    let mut data = input::data(&args.data, &args.input, model.reading.intercept)?;
    model.reading.of(&mut data, args)?;
    let ended = model.reading.ended.as_deref();
    saves::warn_of_early_end(&args.model, ended);
    let mut out = io::stdout().lock();
    let mut text = String::new();
    let predicted = predict(&data, &model.weights, |scores| {
        if args.json {
            return Ok(());
        }
        text.clear();
        for score in scores {
            let _ = writeln!(text, "{score:.6}");
        }
        write(&mut out, &text)
    });
    let predicted = match predicted {
        Ok(predicted) => predicted,
        Err(ended) => return ended.failure().map_or(Ok(()), Err),
    };
    training::warn_of_bad_lines(&predicted.bad_lines);
    if let Some(quality) = predicted.quality.as_ref().filter(|_| !args.json) {
        print_measures(predicted.examples, &training::words(quality));
    }
    if args.json {
        let q = predicted.quality.as_ref();
        say!(
            "{}",
            json!({"examples": predicted.examples, "logloss": q.map(|q| q.log_loss), "auc": q.and_then(|q| q.auc),
                   "calibration": q.and_then(gannet::train::Quality::calibration), "accuracy": q.map(|q| q.accuracy),
                   "bad_lines": predicted.bad_lines.count, "model_complete": ended.is_none()})
        );
    }
    Ok(())
}
