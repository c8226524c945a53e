//! Flags of the cache of parsed data.

use clap::Args;
use std::path::PathBuf;

/// Whether parsed data is kept for later passes.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Data")]
pub struct DataCacheArgs {
    /// Keep the parsed data in this folder, for later passes and for later trainings on the same files. It is made anew
    /// if a file or a flag changes. Default: a training of several passes keeps it in a file for temporary files, if
    /// there is room; the file vanishes with the process.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Parse the data in each pass.
    #[arg(long, conflicts_with = "cache")]
    pub no_cache: bool,
}
