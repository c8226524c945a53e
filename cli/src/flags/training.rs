//! The flags of `gannet train`.

use crate::flags::data::{DataCacheArgs, FollowArgs, InputArgs, NormalizeName, StartName, TypesName};
use crate::flags::job::JobArgs;
use crate::flags::metrics::MetricsArgs;
use crate::flags::model::{AdmissionArgs, EvictionArgs, ModelArgs, RowTypeArgs};
use crate::flags::optimizer::{LbfgsArgs, OptimizerArgs};
use crate::flags::server::{SessionArgs, StoreArgs};
use crate::launched::is_launched;
use clap::Args;
use gannet::train::{ClassWeights, KeptNegatives};
use std::fmt;
use std::path::PathBuf;

/// `gannet train`.
#[derive(Args, Debug)]
pub struct TrainArgs {
    /// The data.
    #[command(flatten)]
    pub data: DataArgs,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The update rule.
    #[command(flatten)]
    pub optimizer: OptimizerArgs,
    /// L-BFGS.
    #[command(flatten)]
    pub lbfgs: LbfgsArgs,
    /// Which keys get a row.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Which rows die.
    #[command(flatten)]
    pub eviction: EvictionArgs,
    /// How rows store their weights.
    #[command(flatten)]
    pub row_type: RowTypeArgs,
    /// How often and how fast the data is learned.
    #[command(flatten)]
    pub passes: PassArgs,
    /// Where the results go.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The job this process belongs to.
    #[command(flatten)]
    pub job: JobArgs,
    /// Limits of a server's sessions.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// Limit of the tables of this process. A worker of a job has none.
    #[command(flatten)]
    pub memory: StoreArgs,
    /// Metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// The data of a training.
#[derive(Args, Debug)]
pub struct DataArgs {
    /// The training data: files (also .gz and .zst), folders, URLs, or - for standard input.
    ///
    /// Quoted patterns such as 'part-*.gz' and 's3://logs/day-*/part-*' work too; other URLs begin with gs://, az://,
    /// http:// or https://. A topic of Kafka is kafka://BROKER:PORT/TOPIC. All are read in this order, as if they were
    /// one file. A ps needs none.
    #[arg(value_name = "DATA")]
    pub files: Vec<PathBuf>,
    /// How DATA is read.
    #[command(flatten)]
    pub input: InputArgs,
    /// Data that grows.
    #[command(flatten)]
    pub follow: FollowArgs,
    /// Data to test the trained model on, named like DATA. May be given several times.
    #[arg(long, help_heading = "Data", value_name = "FILE")]
    pub test: Vec<PathBuf>,
    /// Data to score after each pass, or every --validate-every steps: files named like DATA, several times if need be,
    /// or a share of DATA that is held out, such as 0.1.
    #[arg(long, help_heading = "Data", value_name = "FILE|SHARE", hide_short_help = true)]
    pub validate: Vec<PathBuf>,
    /// Whether parsed data is kept.
    #[command(flatten)]
    pub cache: DataCacheArgs,
    /// CSV: what columns are that no flag names. The model stores it.
    #[arg(
        long,
        help_heading = "Data",
        value_enum,
        value_name = "HOW",
        default_value = "auto",
        hide_short_help = true
    )]
    pub types: TypesName,
    /// Bring the values of each feature to one size, so that no result depends on the units of measurement. The first
    /// 10,000 examples say how large values are. The model stores that. Default: on; lda needs none.
    #[arg(long, help_heading = "Data", value_enum, value_name = "on|off", hide_short_help = true)]
    pub normalize: Option<NormalizeName>,
    /// How often the examples of each class count in the training: POS:NEG, such as 10:1, or `balanced`: both alike, by
    /// the first 10,000 examples (of files, in one process).
    #[arg(
        long,
        help_heading = "Data",
        value_name = "POS:NEG|balanced",
        value_parser = ClassWeight::parse,
        hide_short_help = true
    )]
    pub class_weight: Option<ClassWeight>,
    /// Learn this share of the examples with the label 0, drawn at random, and all with the label 1. Margins are
    /// corrected, so predictions are those for all examples.
    #[arg(
        long,
        help_heading = "Data",
        value_name = "P",
        allow_negative_numbers = true,
        value_parser = kept_negatives,
        hide_short_help = true
    )]
    pub keep_negatives: Option<KeptNegatives>,
    /// Where the intercept starts, for labels of 1 and 0. With --normalize off, and for data with offsets, at 0.
    #[arg(
        long,
        help_heading = "Model",
        display_order = 1000,
        value_enum,
        value_name = "WHERE",
        default_value = "odds",
        hide_short_help = true
    )]
    pub intercept_start: StartName,
    /// Train without an intercept.
    #[arg(long, help_heading = "Model", display_order = 1000)]
    pub no_intercept: bool,
}

/// `--class-weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClassWeight {
    /// Both classes count alike.
    Balanced,
    /// The weights of the classes.
    Of(ClassWeights),
}

impl ClassWeight {
    /// Reads the flag's value.
    ///
    /// # Errors
    /// It is neither `balanced` nor two numbers.
    pub fn parse(text: &str) -> Result<ClassWeight, String> {
        if text == "balanced" { Ok(ClassWeight::Balanced) } else { text.parse().map(ClassWeight::Of) }
    }
}

impl fmt::Display for ClassWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassWeight::Balanced => f.write_str("balanced"),
            ClassWeight::Of(weights) => weights.fmt(f),
        }
    }
}

/// How often and how fast the data is learned.
#[derive(Args, Debug)]
pub struct PassArgs {
    /// Passes over the data.
    #[arg(long, help_heading = "Training", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub epochs: u32,
    /// Examples in a batch [default: 256; 2048 for a worker that pushes with replay, where the batch size does not
    /// change the loss]
    #[arg(long, help_heading = "Training", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: Option<u32>,
    /// Threads: 1 reads and learns in turn, 2 does both at the same time, N lets N - 1 threads parse (default: 2). The
    /// model is the same. For a ps see `gannet server`.
    #[arg(long, help_heading = "Training", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
}

/// Where the results of a training go.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Folder to write the model to. A model that was there is moved to DIR/previous.
    #[arg(long, help_heading = "Output", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Keep the names of features in the model, for `gannet inspect`. The process that saves reads the data once more.
    #[arg(long, help_heading = "Output", requires = "out", hide_short_help = true)]
    pub keep_names: bool,
    /// Write the ROC curve and the reliability diagram of --test, or else of the training's own predictions, as SVG.
    #[arg(long, help_heading = "Output", value_name = "DIR", hide_short_help = true)]
    pub plots: Option<PathBuf>,
    /// What happens while the model is trained.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Print one JSON object on standard output.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The share of --keep-negatives.
fn kept_negatives(text: &str) -> Result<KeptNegatives, String> {
    let kept = text.parse().ok().and_then(KeptNegatives::new);
    kept.ok_or_else(|| "a share above 0 and at most 1 is needed, such as 0.1".to_owned())
}

impl OutputArgs {
    /// Whether notes on how data is read are welcome: a program that reads the report does not want them, but the
    /// launcher passes them on.
    pub fn tells(&self) -> bool {
        !self.json || is_launched()
    }
}

/// What the chief of a job does while the model is trained. It is worker 0, or with --tasks on the worker that the
/// scheduler has chosen.
#[derive(Args, Debug)]
#[command(next_help_heading = "Training")]
pub struct WatchArgs {
    /// Every N steps score the data of --validate, or else of --test. Prints the step, the loss since the last
    /// validation, and the quality; with --json they are part of the report. A step is a batch of this worker; for a
    /// client, of any worker.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub validate_every: Option<u64>,
    /// End the training after N validations in a row without a better loss, and keep the model of the best one.
    #[arg(long, help_heading = "Training", value_name = "N", requires = "validate", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub patience: Option<u32>,
    /// Save the model to --out every SECONDS.
    #[arg(long, help_heading = "Output", value_name = "SECONDS", requires = "out", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub save_secs: Option<u64>,
}
