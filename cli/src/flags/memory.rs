//! `--memory-limit`: the memory limit of tables.

use bytesize::ByteSize;
use clap::Args;

/// The store of a process's tables.
#[derive(Args, Debug, Clone, Default)]
pub struct StoreArgs {
    /// Memory limit for tables: headers, indexes and rows. With --data-dir it limits disk space. New rows beyond it are
    /// refused.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory_limit: Option<ByteSize>,
    /// With --data-dir: serve the images without a check of their checksums first. The check reads all of them.
    #[arg(long)]
    pub no_verify: bool,
}

/// Parses `4GiB`, `500M`, `123456789`.
pub fn size(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size),
        _ => Err("a size like 4GiB, 500MB or a number of bytes is needed".into()),
    }
}
