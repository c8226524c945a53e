//! The flags of `gannet doctor`.

use crate::flags::security::{SecurityArgs, TlsClientArgs};
use clap::Args;
use std::path::PathBuf;

/// `gannet doctor`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 no problem (notes say what could be better); 1 something on this machine does not work; \
2 a bad flag; 3 a peer could not be reached. Each note and problem says what to do about it."
)]
pub struct DoctorArgs {
    /// Where a server would keep its images. The filesystem of this folder is checked. If the folder does not exist,
    /// its nearest parent that exists is used. If it has images, and no server uses them, all of their bytes are
    /// checked.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub data_dir: PathBuf,
    /// A server to connect to over each transport. May be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    pub peer: Vec<String>,
    /// Seconds to wait for a peer over each transport.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub peer_timeout: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which servers are trusted.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
}
