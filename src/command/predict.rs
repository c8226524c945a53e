//! `gannet predict`: a probability a line for each example, or the measures as JSON.

use super::args::PredictArgs;
use super::failure::SYSTEM;
use super::{Failure, input, model, report};
use gannet::train::{Format, ReadError, predict};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Why a prediction ended early.
enum Ended {
    Read(ReadError),
    /// Whoever read our output has gone (`| head`).
    Closed,
    Write(io::Error),
}

impl From<ReadError> for Ended {
    fn from(error: ReadError) -> Ended {
        Ended::Read(error)
    }
}

/// Runs the command.
pub fn run(args: &PredictArgs) -> Result<(), Failure> {
    let model = model::load(&args.model)?;
    let mut data = input::data(&args.data, &args.input, model.intercept)?;
    data.unlabelled = true;
    // The keys of a model mean something in its own format only.
    let was = |what: &str| {
        Err(Failure::input(format!(
            "the model in {} was trained on {what}; leave the flag out",
            args.model.display()
        )))
    };
    if data.format != Format::Auto && data.format != model.format {
        return was(&format!("{:?} and --format says {:?}", model.format, data.format));
    }
    if args.input.criteo_counts.is_some() && data.counts != model.counts {
        return was(&format!("--criteo-counts {:?}", model.counts).to_lowercase());
    }
    (data.format, data.counts) = (model.format, model.counts);
    if let Some(columns) = &model.columns {
        if data.columns.label.is_none() {
            data.columns.label.clone_from(&columns.label);
        }
        if data.columns.categorical.is_empty() && data.columns.numeric.is_empty() {
            data.columns.categorical.clone_from(&columns.categorical);
            data.columns.numeric.clone_from(&columns.numeric);
        }
    }
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
        out.write_all(text.as_bytes())
            .map_err(|e| if e.kind() == io::ErrorKind::BrokenPipe { Ended::Closed } else { Ended::Write(e) })
    });
    let predicted = match predicted {
        Ok(predicted) => predicted,
        Err(Ended::Closed) => return Ok(()),
        Err(Ended::Read(error)) => return Err(Failure::input(error.to_string())),
        Err(Ended::Write(error)) => {
            return Err(Failure::new(SYSTEM, format!("writing the predictions: {error}")));
        }
    };
    report::warn_of_bad_lines(&predicted.bad_lines);
    if args.json {
        let q = predicted.quality.as_ref();
        say!(
            "{}",
            json!({"examples": predicted.examples, "logloss": q.map(|q| q.log_loss), "auc": q.and_then(|q| q.auc),
                   "calibration": q.and_then(gannet::train::Quality::calibration), "accuracy": q.map(|q| q.accuracy),
                   "bad_lines": predicted.bad_lines.count})
        );
    }
    Ok(())
}
