//! What `gannet doctor` looks at.

use super::security::{SecurityArgs, TlsClientArgs};
use clap::Args;
use std::path::PathBuf;

/// `gannet doctor`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 nothing is wrong (notes say what could be better); 1 something of this machine does not \
work; 2 a bad flag; 3 a peer could not be reached. Each note and problem comes with what to do about it."
)]
pub struct DoctorArgs {
    /// Where a server would keep its images: the filesystem of this folder is looked at, or of the nearest above it that is
    /// there.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub data_dir: PathBuf,
    /// A server to greet over each transport; may be given several times.
    #[arg(long, value_name = "HOST:PORT")]
    pub peer: Vec<String>,
    /// Seconds to wait for a peer, a transport.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub peer_timeout: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Who may talk to whom.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Whom it believes.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
}
