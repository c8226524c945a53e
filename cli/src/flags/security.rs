//! The token and TLS.

use clap::Args;
use std::path::PathBuf;

/// A server requires these, and a worker presents them.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Security")]
pub struct SecurityArgs {
    /// File with the token that servers and workers share: one line of 16 to 4096 bytes. Only its owner may have access
    /// to it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Use TLS with this certificate (PEM, with the intermediate certificates). A worker needs one for servers that
    /// require it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM, without a passphrase).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Allow connections from and to other machines without a token or without TLS. Whoever reaches the port can then
    /// do what a worker can.
    #[arg(long)]
    pub insecure: bool,
}

/// Which workers a server trusts.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Security")]
pub struct TlsServerArgs {
    /// Server: accept only workers whose certificate is signed by an authority in this file (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
}

/// Which servers a worker trusts.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Security")]
pub struct TlsClientArgs {
    /// Worker: use TLS, and trust servers whose certificate is signed by an authority in this file (PEM).
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not the host in --ps-hosts.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
}
