//! The flags of `gannet serve`.

use crate::flags::learn::LearnArgs;
use crate::flags::security::{SecurityArgs, TlsClientArgs, TlsServerArgs};
use crate::flags::transport::{IoArgs, TransportArgs};
use crate::flags::words::numbers::size;
use bytesize::ByteSize;
use clap::Args;
use std::path::PathBuf;

/// `gannet serve`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Serving")]
#[command(group(clap::ArgGroup::new("models").args(["model", "checkpoint", "follow"]).required(true).multiple(true)))]
pub struct ServeArgs {
    /// The address for HTTP requests. Port 0 chooses a port, which is printed.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// The folder that `train --out` wrote, and the name of the model in addresses (default: --name). A new model in
    /// the folder takes the place of the former one. Give the flag again for more models.
    #[arg(long, value_name = "[NAME=]DIR", value_parser = model)]
    pub model: Vec<NamedFolder>,
    /// Serve the model of a job's newest checkpoint, or of number N: what `train --checkpoint` names. A newer
    /// checkpoint takes the place of the former one. Give the flag again for more models.
    #[arg(long, value_name = "[NAME=]DIR|URL[@N]", value_parser = model)]
    pub checkpoint: Vec<NamedFolder>,
    /// Serve the rows of a job while it trains: the addresses of all its servers. The model takes over what has changed
    /// several times a second. Give the flag again for more models.
    #[arg(long, value_name = "[NAME=]HOST:PORT,..", value_parser = followed)]
    pub follow: Vec<NamedServers>,
    /// With one --follow: let workers and clients read the rows at this address, and other followers follow them. Port
    /// 0 chooses a port, which is printed.
    #[arg(long, value_name = "HOST:PORT", requires = "follow")]
    pub pulls: Option<String>,
    /// With --follow: the run. Default: the only one that the servers know.
    #[arg(long, value_name = "NAME", requires = "follow")]
    pub run: Option<String>,
    /// With --follow: the coordinator of the job, if its servers have this flag. The run is then the one that --run
    /// names, or "default".
    #[arg(long, value_name = "HOST:PORT", requires = "follow")]
    pub coordinator: Option<String>,
    /// The name of a model that has none yet.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub name: String,
    /// Let another model answer this share, in percent, of the requests to the first model. Requests with the same id
    /// go to the same model.
    #[arg(long, value_name = "NAME=PERCENT", value_parser = split)]
    pub split: Vec<(String, f64)>,
    /// Say at /readyz that no requests should come, once a model was saved longer ago than this.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub max_age: Option<f64>,
    /// Threads that answer and score. Default: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// The most connections at once. A further one gets status 503.
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// The most requests at once, also those that wait. A further one gets status 503.
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub requests: u32,
    /// The most bytes of a request.
    #[arg(long, help_heading = "Limits", value_name = "SIZE", default_value = "8MiB", value_parser = size)]
    pub request_bytes: ByteSize,
    /// The most seconds of a request. A longer one gets status 504.
    #[arg(long, help_heading = "Limits", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub request_time: f64,
    /// How it learns from requests.
    #[command(flatten)]
    pub learn: LearnArgs,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which clients it trusts.
    #[command(flatten)]
    pub tls_server: TlsServerArgs,
    /// Which servers it trusts that it follows, or that learn.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
    /// The transport to these servers.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
}

/// A model's folder, and its name if it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFolder {
    /// The name.
    pub name: Option<String>,
    /// The folder.
    pub folder: PathBuf,
}

/// The addresses of servers, and the name of the model if it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedServers {
    /// The name.
    pub name: Option<String>,
    /// The addresses.
    pub hosts: Vec<String>,
}

/// `NAME=HOST:PORT,..` or `HOST:PORT,..`.
fn followed(text: &str) -> Result<NamedServers, String> {
    let (name, hosts) = match text.split_once('=') {
        Some((name, hosts)) => (Some(name.to_owned()), hosts),
        None => (None, text),
    };
    let hosts: Vec<String> = hosts.split(',').map(|host| host.trim().to_owned()).collect();
    match name.as_deref() == Some("") || !hosts.iter().all(|host| host.contains(':')) {
        true => Err("[NAME=]HOST:PORT,.. is needed: the addresses of all servers of a job".into()),
        false => Ok(NamedServers { name, hosts }),
    }
}

/// `NAME=DIR` or `DIR`. A folder with a `=` needs a name, or a `/` before the `=`.
fn model(text: &str) -> Result<NamedFolder, String> {
    let named = text.split_once('=').filter(|(name, _)| !name.contains('/'));
    match named {
        _ if text.is_empty() => Err("a folder is needed".to_owned()),
        Some(("", _) | (_, "")) => Err("NAME=DIR or DIR is needed".to_owned()),
        Some((name, folder)) => Ok(NamedFolder { name: Some(name.to_owned()), folder: folder.into() }),
        None => Ok(NamedFolder { name: None, folder: text.into() }),
    }
}

/// `NAME=PERCENT`.
fn split(text: &str) -> Result<(String, f64), String> {
    let parts = text.split_once('=').and_then(|(name, percent)| {
        let percent = percent.trim_end_matches('%').parse::<f64>().ok()?;
        Some((name.to_owned(), percent))
    });
    parts
        .filter(|(_, percent)| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "NAME=PERCENT is needed, such as new=5".into())
}

/// A time above 0.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 1e9);
    seconds.ok_or_else(|| "seconds above 0 are needed".into())
}
