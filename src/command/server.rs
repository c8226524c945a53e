//! `gannet server`: serves shards until SIGTERM or SIGINT, then closes its images in order.

use super::args::ServerArgs;
use super::{Failure, signals};
use gannet::{Server, ServerConfig, Store, Tcp};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Runs the command.
pub fn run(args: &ServerArgs) -> Result<(), Failure> {
    serve(&args.listen, args.threads, args.data_dir.as_deref())
}

/// Serves until a signal.
pub fn serve(listen: &str, threads: Option<u32>, data_dir: Option<&Path>) -> Result<(), Failure> {
    check_loopback(listen)?;
    let stop = signals::stop_flag()?;
    let mut config = ServerConfig::new(listen);
    if let Some(threads) = threads {
        config.threads = threads as usize;
    }
    if let Some(folder) = data_dir {
        config.store = Store::open_dir(folder)?;
    }
    let (threads, kind) = (config.threads, config.store.kind());
    let server = Server::start(Tcp::new(), config)?;
    say!("gannet server listening on {} ({threads} threads, shards on {kind})", server.addr());
    while !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let served = server.served();
    let rows = server.stop()?;
    let kept = match data_dir {
        Some(folder) => format!("{rows} rows are safe in {}", folder.display()),
        None => format!("{rows} rows in memory are gone (--data-dir keeps them)"),
    };
    say!("gannet server stopped after {} requests; {kept}", served.frames);
    Ok(())
}

/// Anything but loopback would be open to everyone: there is no token and no TLS yet.
fn check_loopback(listen: &str) -> Result<(), Failure> {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']);
    let port = listen.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() {
        return Err(Failure::input(format!(
            "--listen {listen}: HOST:PORT is needed, with a port up to 65535"
        )));
    }
    let loopback = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if loopback {
        return Ok(());
    }
    Err(Failure::input(format!(
        "--listen {listen}: only loopback addresses (127.0.0.1, [::1], localhost) are served until peers can be \
         authenticated; use an ssh tunnel to reach other machines"
    )))
}
