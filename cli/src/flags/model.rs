//! `--model` and its shape.

use clap::{Args, ValueEnum};
use gannet::train::limits::{FACTORS_MAX, TOPICS_MAX};
use std::path::PathBuf;

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
    /// A factorization machine beside a small network on the same factors (after DeepFM, Guo et al. 2017).
    Deepfm,
    /// Matrix factorization with biases: ratings of users for items.
    Mf,
    /// Latent Dirichlet allocation by collapsed Gibbs sampling: topics of documents; --epochs are sweeps.
    Lda,
}

/// The model. A setting that the chosen model does not have is refused.
#[derive(Args, Debug)]
pub struct ModelArgs {
    /// Kind. The kind of model says what is learned from an example, and how an example is scored.
    #[arg(long, value_enum, value_name = "NAME", default_value = "lr")]
    pub model: ModelName,
    /// softmax: classes; labels are 0 to N - 1. Default: 10.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub classes: Option<u32>,
    /// fm, deepfm, mf: factors of a feature. Default: 8; mf: 40.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(FACTORS_MAX)))]
    pub factors: Option<u32>,
    /// fm, deepfm, mf: standard deviation of the initial factors. Default: 0.05.
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
    /// fm, deepfm, mf: seed of the initial factors; lda: of the draws. Default: 1.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}
