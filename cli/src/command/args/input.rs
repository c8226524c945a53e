//! How data files are read.

use clap::{Args, ValueEnum};

/// Text formats.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatName {
    /// By the file's name and first line.
    Auto,
    /// `label id:value ...`
    Libsvm,
    /// Comma-separated (or .tsv) with a header line.
    Csv,
    /// Criteo's click logs: a label, 13 numbers and 26 categories by tabs, without a header.
    Criteo,
    /// Vowpal Wabbit text: `label [importance] ['tag]|namespace name:value ...`
    Vw,
}

/// What the numbers of Criteo's logs become.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountsName {
    /// Categories: x up to 2 itself, larger ones floor(ln(x)^2), as the challenge's winners had them.
    Buckets,
    /// Numbers: ln(1 + max(x, 0)), as DLRM has them.
    Log,
}

/// What becomes of numbers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleName {
    /// They are learned as they are.
    None,
    /// Less the column's mean, by its standard deviation.
    Standard,
    /// From the column's least to its greatest number: 0 to 1.
    Minmax,
    /// ln(1 + x), and -ln(1 - x) below 0.
    Log,
}

/// How DATA is read.
#[derive(Args, Debug, Clone)]
pub struct InputArgs {
    /// Format of the data.
    #[arg(long, value_enum, default_value = "auto")]
    pub format: FormatName,
    /// CSV: the column that holds the label. Default: one called `label`, else the first.
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// CSV: columns whose values are categories. Default: all that are neither label nor --numeric.
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub categorical: Vec<String>,
    /// CSV: columns whose values are numbers.
    #[arg(long, value_name = "C,D,..", value_delimiter = ',')]
    pub numeric: Vec<String>,
    /// CSV: scale numbers. It is what becomes of those of --numeric columns before they are learned. standard and
    /// minmax read the data once before. The model remembers it. Default: none.
    #[arg(long, value_enum, value_name = "HOW")]
    pub scale: Option<ScaleName>,
    /// The label that means 1, where labels are not 0, 1 and -1. They have two values: the other one means 0. The model
    /// remembers both.
    #[arg(long, value_name = "VALUE")]
    pub positive: Option<String>,
    /// Criteo: what the 13 numbers become. Default: buckets, or as the model was trained.
    #[arg(long, value_enum)]
    pub criteo_counts: Option<CountsName>,
    /// Skip up to N bad lines (they are counted and reported) instead of stopping at the first.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad_lines: u64,
}
