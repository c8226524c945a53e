//! `--model` and its shape, which keys get a row, and how rows store their weights.

use crate::failure::Failure;
use crate::flags::words::numbers::size;
use clap::{Args, ValueEnum};
use gannet::table::{Admission, Capacity, Eviction, RowType, SKETCH_BYTES_DEFAULT};
use gannet::train::limits::{FACTORS_MAX, TOPICS_MAX};
use gannet::train::models::{NumberLoss, Objective};
use gannet::train::saved::LossName;
use std::path::PathBuf;
use std::time::Duration;

/// Which push of a key creates its row. By default it is the first one.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Model")]
pub struct AdmissionArgs {
    /// Create a key's row at its N-th push, so that rare keys take no memory. A batch pushes each of its keys once.
    #[arg(long, value_name = "N", conflicts_with = "admit_probability", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub admit_count: Option<u32>,
    /// With --admit-count: KiB of memory for the counts of each of the table's 64 shards (1 to 1024).
    #[arg(long, value_name = "KIB", requires = "admit_count", default_value_t = SKETCH_BYTES_DEFAULT >> 10, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub admit_sketch: u32,
    /// Each push of a key without a row creates it with probability P (above 0, at most 1).
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub admit_probability: Option<f32>,
}

/// Which rows die. By default none.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Model")]
pub struct EvictionArgs {
    /// Delete the row of a key that was not pushed for T: a number of seconds, or 90s, 15m, 12h, 30d.
    #[arg(long, value_name = "T", value_parser = age, hide_short_help = true)]
    pub evict_after: Option<Duration>,
    /// Delete a row whose weights have a Euclidean norm below X, once its key was not pushed for a minute.
    #[arg(long, value_name = "X", allow_negative_numbers = true, hide_short_help = true)]
    pub evict_below: Option<f32>,
    /// Delete the rows that were pushed least recently while the table has more than so many rows, or bytes with a unit
    /// such as 4GiB.
    #[arg(long, value_name = "ROWS|BYTES", value_parser = capacity, hide_short_help = true)]
    pub capacity: Option<Capacity>,
    /// --evict-after and --evict-below leave at least so many rows, and half of the table in an hour. Default: 0.
    #[arg(long, value_name = "ROWS", hide_short_help = true)]
    pub evict_floor: Option<u64>,
}

/// An age such as `30d`; without a unit in seconds.
fn age(text: &str) -> Result<Duration, String> {
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let (number, unit) =
        units.into_iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of))).unwrap_or((text, 1));
    let seconds = number.parse().ok().and_then(|number: u64| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=AGE_SECONDS_MAX).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "a time such as 3600, 15m, 12h or 30d is needed".to_owned())
}

/// The longest age that means something: a hundred years.
const AGE_SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// Rows as a number, or bytes with a unit.
fn capacity(text: &str) -> Result<Capacity, String> {
    let rows = text.parse().map(Capacity::Rows);
    let size = || Some(Capacity::Bytes(size(text).ok()?.as_u64()));
    let found = rows.ok().or_else(size).filter(|capacity| *capacity != Capacity::Rows(0));
    found.ok_or_else(|| "a number of rows, or bytes such as 4GiB are needed".to_owned())
}

impl EvictionArgs {
    /// Which rows die. `None`: no flag says it.
    pub fn eviction(&self) -> Result<Option<Eviction>, Failure> {
        let (after, below, capacity) = (self.evict_after, self.evict_below, self.capacity);
        let eviction = Eviction { after, below, capacity, floor: self.evict_floor.unwrap_or(0) };
        eviction.check().map_err(|error| Failure::input(error.to_string()))?;
        Ok(eviction.is_on().then_some(eviction))
    }
}

/// A probability that is not 0.
fn probability(text: &str) -> Result<f32, String> {
    let p = text.parse().ok().filter(|p: &f32| *p > 0.0 && *p <= 1.0);
    p.ok_or_else(|| "a number above 0 and at most 1 is needed".to_owned())
}

impl AdmissionArgs {
    /// The schema's admission. Its parameters are checked with the schema.
    pub fn admission(&self) -> Admission {
        match (self.admit_count, self.admit_probability) {
            (Some(pushes), _) if pushes > 1 => {
                Admission::Count { pushes, sketch_bytes: self.admit_sketch << 10 }
            }
            (None, Some(p)) if p != 1.0 => Admission::Probability(p),
            _ => Admission::All,
        }
    }
}

/// Models that `--model` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// Logistic regression.
    Lr,
    /// Linear regression.
    Linear,
    /// Softmax regression: one of --classes.
    Softmax,
    /// A factorization machine for clicks (Rendle 2010): a weight and --factors a feature.
    Fm,
    /// A field-aware factorization machine: --factors of a feature for each field (Juan et al. 2016).
    Ffm,
    /// DeepFM: a factorization machine beside a network that reads a vector a field (Guo et al. 2017).
    Deepfm,
    /// Matrix factorization with biases: ratings of users for items.
    Mf,
    /// Latent Dirichlet allocation by collapsed Gibbs sampling: topics of documents; --epochs are sweeps.
    Lda,
}

/// The model. A setting that the chosen model does not have is refused.
#[derive(Args, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Default: lr.
    ///
    /// The kind of model says what is learned from an example, and how an example is scored.
    #[arg(long, value_enum, value_name = "KIND", default_value = "lr", hide_default_value = true)]
    pub model: ModelName,
    /// linear, fm, ffm, deepfm: logistic, squared, poisson (counts), hinge, or quantile:T (0.5 is the median). Default:
    /// logistic; linear: squared.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub loss: Option<LossName>,
    /// softmax: classes; labels are 0 to N - 1. Default: 10.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub classes: Option<u32>,
    /// fm, ffm, deepfm, mf: factors of a feature. Default: 8; ffm: 4, for each field; mf: 40.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(FACTORS_MAX)))]
    pub factors: Option<u32>,
    /// fm, ffm, deepfm, mf: standard deviation of the initial factors. Default: 0.01; mf: 0.05.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub deviation: Option<f32>,
    /// deepfm: units of each hidden layer. Default: 32,16.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub hidden: Vec<u32>,
    /// lda: topics. Default: 20.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(TOPICS_MAX)))]
    pub topics: Option<u32>,
    /// lda: Dirichlet prior of a document's topics. Default: 0.1.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub document_prior: Option<f64>,
    /// lda: Dirichlet prior of a topic's words. Default: 0.01.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub word_prior: Option<f64>,
    /// lda: the words, one a line; line n, from 0, names word n.
    #[arg(long, value_name = "FILE")]
    pub vocabulary: Option<PathBuf>,
    /// fm, ffm, deepfm, mf: seed of the initial factors; lda: of the draws. Default: 1.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl ModelArgs {
    /// What the model learns. `None`: topics.
    pub fn objective(&self) -> Option<Objective> {
        let own = match self.model {
            ModelName::Lr | ModelName::Fm | ModelName::Ffm | ModelName::Deepfm => Objective::Click,
            ModelName::Linear | ModelName::Mf => Objective::Number(NumberLoss::Squared),
            ModelName::Softmax => Objective::Class(self.classes.unwrap_or(CLASSES) as usize),
            ModelName::Lda => return None,
        };
        Some(self.loss.map_or(own, |loss| loss.0))
    }

    /// The factors of a feature.
    pub fn factors(&self) -> u32 {
        let default = match self.model {
            ModelName::Mf => 40,
            ModelName::Ffm => 4,
            _ => 8,
        };
        self.factors.unwrap_or(default)
    }

    /// The standard deviation of the initial factors.
    pub fn deviation(&self) -> f32 {
        self.deviation.unwrap_or(if self.model == ModelName::Mf { 0.05 } else { 0.01 })
    }

    /// The units of each hidden layer.
    pub fn hidden(&self) -> &[u32] {
        if self.hidden.is_empty() { &[32, 16] } else { &self.hidden }
    }
}

/// The default of `--classes`.
const CLASSES: u32 = 10;

/// What `--row-type` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowTypeName {
    /// 4 bytes a weight.
    F32,
    /// 2 bytes a weight (bfloat16: the range of f32, 8 binary digits). Steps are computed in f32 and rounded by chance,
    /// so that small ones add up. The optimizer's state stays f32. Rows need more than one weight, and an optimizer
    /// that stores weights: not ftrl and group-ftrl. Workers push gradients.
    Bf16,
    /// 2 bytes a weight (half precision: up to 65504, 11 binary digits), as bf16 otherwise. Down to 6e-5 it
    /// rounds eight times as finely, which long trainings need.
    F16,
}

/// How the weights of rows are stored.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Model")]
pub struct RowTypeArgs {
    /// How rows store their weights [default: f32]
    #[arg(long, value_enum, value_name = "TYPE", hide_short_help = true)]
    pub row_type: Option<RowTypeName>,
}

impl RowTypeArgs {
    /// The choice of the flag.
    pub fn choice(self) -> RowType {
        match self.row_type {
            None | Some(RowTypeName::F32) => RowType::F32,
            Some(RowTypeName::Bf16) => RowType::Bf16,
            Some(RowTypeName::F16) => RowType::F16,
        }
    }

    /// The choice as the flag spells it.
    pub fn name(self) -> &'static str {
        self.choice().name()
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> Option<String> {
        self.row_type.map(|_| format!("--row-type={}", self.name()))
    }
}
