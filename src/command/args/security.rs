//! Flags that say who may talk to a server.

use clap::Args;
use std::path::PathBuf;

/// What both sides of a connection must have.
#[derive(Args, Debug, Clone, Default)]
pub struct SecurityArgs {
    /// The token that servers and workers share: a file with one line of 16 to 4096 bytes that only its owner may read.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Talk beyond this machine without a token or without TLS: whoever reaches the port may do what a worker may.
    #[arg(long)]
    pub insecure: bool,
}
