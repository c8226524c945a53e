//! How data files are read.

use clap::{Args, ValueEnum};
use gannet::train::CsvForm;

/// Text formats.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatName {
    /// By the file's name and first line.
    Auto,
    /// `label id:value ...`
    Libsvm,
    /// `label field:id:value ...`
    Libffm,
    /// Comma-separated (or .tsv) with a header line.
    Csv,
    /// Criteo's click logs: a label, 13 numbers and 26 categories by tabs, without a header.
    Criteo,
    /// Vowpal Wabbit text: `label [importance] ['tag]|namespace name:value ...`
    Vw,
    /// vw's JSON lines: the label in `_label`, and a namespace for each object inside.
    VwJson,
    /// JSON lines: an object a line, whose names are columns.
    Json,
    /// Files of Parquet.
    Parquet,
    /// Files of Arrow (IPC, Feather).
    Arrow,
}

/// How the numbers of Criteo's logs are used.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountsName {
    /// As categories: x up to 2 itself, larger ones floor(ln(x)^2), like the winners of the challenge.
    Buckets,
    /// As numbers: ln(1 + max(x, 0)), like DLRM.
    Log,
}

/// How numbers are scaled.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleName {
    /// Learn the logarithms of skewed numbers, and the others as they are, all brought to one size (--normalize).
    Auto,
    /// Numbers are learned as they are.
    None,
    /// Subtract the column's mean and divide by its standard deviation.
    Standard,
    /// Map the column's smallest and largest number to 0 and 1.
    Minmax,
    /// ln(1 + x), and -ln(1 - x) below 0.
    Log,
}

/// What columns are that no flag names.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypesName {
    /// As the first 10,000 rows say: decimals are numbers, whole numbers are numbers and categories at once, and all
    /// others are categories.
    Auto,
    /// All are categories.
    Off,
}

/// Whether values of features are brought to one size.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormalizeName {
    /// By the first 10,000 examples.
    On,
    /// Values are learned as they are.
    Off,
}

/// Where the weight of the intercept starts.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartName {
    /// With rare labels at the log odds of those of the first 10,000 examples. Penalties pull it there, and not to 0.
    Odds,
    /// At 0.
    Zero,
}

fn two_letters(text: &str) -> Result<String, String> {
    letters(text, 2)
}

fn three_letters(text: &str) -> Result<String, String> {
    letters(text, 3)
}

/// Parses letters of namespaces.
fn letters(text: &str, count: usize) -> Result<String, String> {
    let is_right = text.is_ascii() && text.len() == count;
    if is_right { Ok(text.to_owned()) } else { Err(format!("it must be {count} ASCII letters")) }
}

/// How DATA is read.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Data")]
pub struct InputArgs {
    /// Format of the data.
    #[arg(long, value_enum, default_value = "auto")]
    pub format: FormatName,
    /// CSV: the column of the label. Default: the column `label`, else the first with a name.
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// CSV: columns whose values are categories.
    ///
    /// No others are read but those of --numeric and --both.
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub categorical: Vec<String>,
    /// CSV: columns whose values are numbers.
    #[arg(long, value_name = "C,D,..", value_delimiter = ',')]
    pub numeric: Vec<String>,
    /// CSV: columns whose values are numbers and categories at once. A text that is no number is only a category.
    #[arg(long, value_name = "C,D,..", value_delimiter = ',', hide_short_help = true)]
    pub both: Vec<String>,
    /// CSV: columns that are left out, besides those without a name, such as the index that pandas writes.
    #[arg(long, value_name = "E,F,..", value_delimiter = ',')]
    pub ignore: Vec<String>,
    /// CSV: the column of a number that is added to each example's margin, as the base in vw.
    #[arg(long, value_name = "COLUMN", hide_short_help = true)]
    pub offset: Option<String>,
    /// CSV: the column of the number that says how often each example counts, as the importance in vw.
    #[arg(long, value_name = "COLUMN", hide_short_help = true)]
    pub importance: Option<String>,
    /// The column, namespace or field whose value says to which group an example belongs, such as its user. Reports of
    /// held-out data then have the GAUC: the mean of the AUC within each group.
    #[arg(long, value_name = "COLUMN", hide_short_help = true)]
    pub group: Option<String>,
    /// CSV: what separates fields: one ASCII character, or `tab`. Default: a comma; a tab in .tsv files.
    #[arg(long, value_name = "CHAR", value_parser = CsvForm::parse_delimiter)]
    pub delimiter: Option<u8>,
    /// CSV: the files have no header. Their columns are called 1, 2, 3, .. or as --columns says.
    #[arg(long)]
    pub no_header: bool,
    /// CSV: the names of all columns of files without a header, in order.
    #[arg(
        long,
        value_name = "A,B,..",
        value_delimiter = ',',
        requires = "no_header",
        hide_short_help = true
    )]
    pub columns: Vec<String>,
    /// Products of the features of several columns, fields or namespaces, which become features too. May be given
    /// several times: --cross a,b --cross 'a*b*c'.
    #[arg(long, value_name = "A,B")]
    pub cross: Vec<String>,
    /// As in vw: products of all namespaces or columns whose names begin with these two letters. `:` means any letter.
    #[arg(short = 'q', long, value_name = "AB", value_parser = two_letters, hide_short_help = true)]
    pub quadratic: Vec<String>,
    /// As --quadratic, with three letters.
    #[arg(long, value_name = "ABC", value_parser = three_letters, hide_short_help = true)]
    pub cubic: Vec<String>,
    /// Scale numbers.
    ///
    /// Default: auto. standard and minmax read the data once before the training. The model stores the scale.
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto", hide_default_value = true)]
    pub scale: ScaleName,
    /// The label that means 1, if labels are not 0, 1 and -1. There must be two labels: the other one means 0. The
    /// model stores both.
    #[arg(long, value_name = "VALUE")]
    pub positive: Option<String>,
    /// Criteo: how the 13 numbers are used. Default: buckets, or as the model was trained.
    #[arg(long, value_enum)]
    pub criteo_counts: Option<CountsName>,
    /// Skip up to N bad lines, which are counted and reported, instead of stopping at the first.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad_lines: u64,
}
