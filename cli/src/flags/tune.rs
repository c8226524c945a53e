//! The flags of `gannet tune`.

use clap::Args;
use std::ffi::OsString;

/// `gannet tune`.
#[derive(Args, Debug)]
#[command(
    override_usage = "gannet tune [OPTIONS] -- train DATA [OPTIONS OF TRAIN]",
    after_help = "All tries learn the same batches in one pass, and each example is predicted before it is learned. Again \
and again the worse half of the tries is dropped. Flags of train that are written keep their values, unless --try \
names them."
)]
pub struct TuneArgs {
    /// Values of a setting: alpha, l1, l2, factors or deviation. May be given several times: --try alpha=0.05,0.1
    /// --try l2=0,1. Default: values around the defaults of the model.
    #[arg(long = "try", value_name = "NAME=X,Y,..")]
    pub tries_of: Vec<String>,
    /// Try so many settings. Of more combinations some are drawn; the defaults are always among them.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=256))]
    pub tries: u32,
    /// End the reading after so many minutes, and choose by what was read.
    #[arg(long, value_name = "M", default_value_t = 10.0)]
    pub minutes: f64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The training whose settings are looked for: train DATA .., in one process.
    #[arg(last = true, required = true, value_name = "train DATA ..")]
    pub command: Vec<OsString>,
}
