//! The output of `gannet predict`.

use crate::failure::{Failure, SYSTEM};
use gannet::train::{BadLines, ReadError, TrainError};
use serde_json::{Map, Value};
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
            Ended::Failed(error) => Some(crate::failure::train_failure(error)),
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

/// Prints the quality of the predictions, as one JSON object.
pub fn print_object(mut object: Map<String, Value>, examples: u64, bad_lines: &BadLines, is_complete: bool) {
    object.insert("examples".into(), examples.into());
    object.insert("model_complete".into(), is_complete.into());
    object.insert("bad_lines".into(), bad_lines.count.into());
    say!("{}", Value::Object(object));
}
