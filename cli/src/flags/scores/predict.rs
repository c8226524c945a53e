//! The flags of `gannet predict`.

use crate::flags::data::InputArgs;
use clap::Args;
use std::path::PathBuf;

/// `gannet predict`.
#[derive(Args, Debug)]
pub struct PredictArgs {
    /// The folder that `train --out` wrote.
    #[arg(long, help_heading = "Model", value_name = "DIR")]
    pub model: PathBuf,
    /// The examples: files, folders, patterns, URLs or -, as for `gannet train`.
    #[arg(required = true)]
    pub data: Vec<PathBuf>,
    /// How DATA is read. Columns default to those that the model was trained with.
    #[command(flatten)]
    pub input: InputArgs,
    /// Print one JSON object with the quality instead of one probability a line.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print a JSON object for each example: its prediction, its margin, and what each feature contributes to that.
    /// Reads the data twice, for the names of features.
    #[arg(long, help_heading = "Output", conflicts_with = "json")]
    pub explain: bool,
    /// Write the ROC curve and the reliability diagram of labelled data as SVG: roc.svg and reliability.svg.
    #[arg(long, help_heading = "Output", value_name = "DIR")]
    pub plots: Option<PathBuf>,
}
