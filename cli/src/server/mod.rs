//! `gannet server`: serves shards until SIGTERM or SIGINT, then closes its images cleanly. When one of its threads
//! dies, the process ends with exit code 1, so that a supervisor can restart it.

pub mod image_check;
pub mod store;

use crate::checkpoint::source;
use crate::checkpoint_place::create_checkpoints;
use crate::failure::{Failure, SYSTEM};
use crate::flags::security::{SecurityArgs, TlsClientArgs, TlsServerArgs};
use crate::flags::{MetricsArgs, SchedulerArgs, ServerArgs, SessionArgs, StoreArgs};
use crate::job::backups::Membership;
use crate::metrics::Metrics;
use crate::report::words::counted;
use crate::server::store::{since_start, store};
use crate::{launched, security, signals};
use gannet::backups::{Coordinator, MemoryCoordinator};
use gannet::server::RestoreSource;
use gannet::{Server, ServerConfig, Transports};
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub fn run_server(args: &ServerArgs) -> Result<(), Failure> {
    launched::watch();
    serve(&Serving {
        listen: &args.listen,
        threads: args.threads,
        data_dir: args.data_dir.as_deref(),
        memory: &args.memory,
        sessions: &args.sessions,
        net: args.transport.transport.net(args.io),
        security: &args.security,
        tls_server: &args.tls_server,
        metrics: &args.metrics,
        scheduler_only: false,
        checkpoints: args.checkpoint.as_deref(),
        restore: source::source(&args.restore)?,
        tls_client: &TlsClientArgs::default(),
        membership: None,
    })
}

/// Runs `gannet scheduler`: a server without shards.
pub fn schedule(args: &SchedulerArgs) -> Result<(), Failure> {
    launched::watch();
    serve(&Serving {
        listen: &args.listen,
        threads: Some(1),
        data_dir: args.data_dir.as_deref(),
        memory: &StoreArgs::default(),
        sessions: &args.sessions,
        net: args.transport.transport.net(args.io),
        security: &args.security,
        tls_server: &args.tls_server,
        metrics: &args.metrics,
        scheduler_only: true,
        checkpoints: None,
        restore: None,
        tls_client: &TlsClientArgs::default(),
        membership: None,
    })
}

/// Raises the limit of descriptors as far as the system allows: each session and each shard needs one. Beyond the
/// limit, sessions and shards are refused with an error.
pub fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of descriptors stays as it is");
    }
}

/// The settings of a server.
pub struct Serving<'a> {
    pub listen: &'a str,
    pub threads: Option<u32>,
    pub data_dir: Option<&'a Path>,
    pub memory: &'a StoreArgs,
    pub sessions: &'a SessionArgs,
    pub net: Transports,
    pub security: &'a SecurityArgs,
    pub tls_server: &'a TlsServerArgs,
    pub metrics: &'a MetricsArgs,
    pub scheduler_only: bool,
    /// Where checkpoints are written.
    pub checkpoints: Option<&'a Path>,
    pub restore: Option<RestoreSource>,
    /// Which other servers it trusts, if it is a client of them.
    pub tls_client: &'a TlsClientArgs,
    /// Its place in a job with a coordinator.
    pub membership: Option<Membership<'a>>,
}

/// Serves until a signal.
pub fn serve(settings: &Serving<'_>) -> Result<(), Failure> {
    let &Serving { listen, threads, data_dir, memory, sessions, security, tls_server, metrics, .. } =
        settings;
    check_port(listen)?;
    let net = sessions.net(settings.net.clone());
    let secured = security::of_server(net, ("--listen", listen), security, tls_server)?;
    let net = security::with_tls_client(secured.net, settings.tls_client, security)?;
    let metrics = Metrics::start(metrics, "server")?;
    let stop = signals::stop_flag()?;
    let mut config = ServerConfig::new(listen);
    config.token = secured.token;
    if let Some(threads) = threads {
        config.threads = threads as usize;
    }
    config.limits = sessions.limits();
    config.scheduler_only = settings.scheduler_only;
    config.restore = settings.restore.clone();
    config.checkpoints = settings.checkpoints.map(create_checkpoints).transpose()?;
    raise_descriptors();
    config.store = store(data_dir, memory)?;
    metrics.add_store(&config.store);
    if let Some(membership) = &settings.membership {
        membership.add(&mut config, &net)?;
    }
    if settings.scheduler_only {
        config.coordinator = Some(coordinator(data_dir)?);
    }
    let (threads, kind) = (config.threads, config.store.kind());
    let server = Server::start(net, config)?;
    metrics.add_server(server.shared_counters());
    match settings.scheduler_only {
        true => say!("gannet scheduler listening on {}", server.addr()),
        false => say!(
            "gannet server listening on {} ({}, shards on {kind})",
            server.addr(),
            counted(threads as u64, "thread", "threads")
        ),
    }
    signals::wait(&stop, &server)?;
    let served = server.served();
    let rows = server.stop()?;
    let rows_left = match data_dir {
        Some(folder) if settings.membership.is_some() => format!(
            "the rows of its own place are safe in {}; those of places that it has taken from others were in memory",
            folder.display()
        ),
        Some(folder) => format!("{rows} rows are safe in {}", folder.display()),
        None => format!("{rows} rows in memory are gone (--data-dir keeps them)"),
    };
    match settings.scheduler_only {
        true => say!("gannet scheduler stopped after {} requests", served.frames),
        false => say!("gannet server stopped after {} requests; {rows_left}", served.frames),
    }
    Ok(())
}

/// The coordinator of a scheduler.
pub fn coordinator(data_dir: Option<&Path>) -> Result<Arc<dyn Coordinator>, Failure> {
    let clock = Arc::new(since_start);
    Ok(match data_dir {
        Some(folder) => {
            let opened = MemoryCoordinator::open(folder, clock);
            Arc::new(opened.map_err(|error| Failure::new(SYSTEM, error.0))?)
        }
        None => Arc::new(MemoryCoordinator::new(clock)),
    })
}

/// Checks that an address has a port.
fn check_port(listen: &str) -> Result<(), Failure> {
    let port = listen.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() {
        return Err(Failure::input(format!(
            "--listen {listen}: HOST:PORT is needed, with a port up to 65535"
        )));
    }
    Ok(())
}
