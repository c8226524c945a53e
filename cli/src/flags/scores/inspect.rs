//! The flags of `gannet inspect`.

use crate::flags::data::InputArgs;
use clap::Args;
use std::path::PathBuf;

/// `gannet inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// The folder that `train --out` wrote.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Examples, such as those of the training, which say the names of features. Without them features have their
    /// keys.
    pub data: Vec<PathBuf>,
    /// How DATA is read. Columns default to those that the model was trained with.
    #[command(flatten)]
    pub input: InputArgs,
    /// How many features are shown: those with the largest weights.
    #[arg(long, help_heading = "Output", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub top: u32,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
