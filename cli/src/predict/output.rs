//! The output of `gannet predict`.

use crate::failure::{Failure, SYSTEM};
use crate::flags::PredictArgs;
use crate::report::measures::put_quality;
use crate::report::numbers::Numbers;
use crate::report::warnings::warn_of_bad_lines;
use gannet::train::models::Measured;
use gannet::train::{BadLines, TrainError};
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
            Ended::Failed(error) => Some(error.into()),
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

/// Prints the quality of the predictions: as an object, or on standard error if examples have labels. `lr`: of logistic
/// regression, whose object has null for each unknown number.
pub fn print_quality(
    args: &PredictArgs,
    examples: u64,
    measured: Option<&Measured>,
    bad_lines: &BadLines,
    (is_complete, lr): (bool, bool),
) {
    warn_of_bad_lines(bad_lines);
    let mut report = Numbers::default();
    report.show("examples", examples, " examples  ");
    put_quality(&mut report, "", measured, lr);
    report.add("model_complete", is_complete);
    report.add("bad_lines", bad_lines.count);
    match args.json {
        true => report.print(true),
        false if measured.is_some() => notice!("{}", report.text()),
        false => {}
    }
}
