//! Flags that say who may talk to a server.

use clap::Args;
use std::path::PathBuf;

/// What a server asks for and a worker shows.
#[derive(Args, Debug, Clone, Default)]
pub struct SecurityArgs {
    /// The token that servers and workers share: a file with one line of 16 to 4096 bytes that only its owner may read.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Speak TLS with this certificate (PEM, with those between it and its authority). Of a worker: for servers that ask.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM, without a passphrase).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Talk beyond this machine without a token or without TLS: whoever reaches the port may do what a worker may.
    #[arg(long)]
    pub insecure: bool,
}

/// What a server asks for besides.
#[derive(Args, Debug, Clone, Default)]
pub struct TlsServerArgs {
    /// A server lets in only workers with a certificate signed by an authority in this file (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
}

/// Whom a worker believes.
#[derive(Args, Debug, Clone, Default)]
pub struct TlsClientArgs {
    /// A worker speaks TLS, and believes servers with a certificate signed by an authority in this file (PEM).
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// The name in the servers' certificates, when it is not the host of --ps-hosts.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
}
