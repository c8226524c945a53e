//! What servers know of runs and tables, and how a run is deleted. Whoever asks need not be in a run.

use crate::clients::no_space::until_space;
use crate::clients::run_session::{ask_registry, drop_everywhere, look_for_run, not_of_a_run, registrar};
use crate::config::registrars::{of_registry, registrars};
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::declare::{FrameError, FrameKind};
use gannet_wire::frames::tables::{ClientsForgottenFrame, ForgetClientsFrame};
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::messages::runs::{Run, RunActionV1, RunReplyV1, RunRequestV1, TableUse};
use std::collections::BTreeMap;

/// How full the tables are of the servers of `config` that may keep a registry of runs, in the order of their
/// names.
///
/// # Errors
/// A server is lost, or older than this program.
pub fn known_tables<N: Net>(net: N, config: &WorkerConfig) -> Result<Vec<TableUse>, WorkerError> {
    let mut all: BTreeMap<String, TableUse> = BTreeMap::new();
    for server in registrars(config) {
        let mut worker = Worker::connect(net.clone(), of_registry(config, server))?;
        let incarnation = WorkerIncarnation { rank: u32::MAX, incarnation: 0 };
        let ask = RunRequestV1 { name: String::new(), incarnation, what: RunActionV1::TablesV2 };
        let tables = match ask_registry(&mut worker, &ask)? {
            RunReplyV1::TablesV2 { tables } => tables,
            other => return Err(not_of_a_run(&worker, &other)),
        };
        for table in tables {
            let known = all.entry(table.name.clone()).or_insert_with(|| table.clone());
            known.pushers = known.pushers.max(table.pushers);
            known.clients_gone = known.clients_gone.max(table.clients_gone);
        }
    }
    Ok(all.into_values().collect())
}

/// The runs that the servers of `config` know, in the order of their names.
///
/// # Errors
/// A server is lost.
pub fn known_runs<N: Net>(net: N, config: &WorkerConfig) -> Result<Vec<Run>, WorkerError> {
    let mut all = Vec::new();
    for server in registrars(config) {
        let mut worker = Worker::connect(net.clone(), of_registry(config, server))?;
        let incarnation = WorkerIncarnation { rank: u32::MAX, incarnation: 0 };
        match ask_registry(
            &mut worker,
            &RunRequestV1 { name: String::new(), incarnation, what: RunActionV1::List },
        )? {
            RunReplyV1::Runs { runs } => all.extend(runs),
            other => return Err(not_of_a_run(&worker, &other)),
        }
    }
    all.sort_by(|a: &Run, b: &Run| a.name.cmp(&b.name));
    Ok(all)
}

/// Makes all servers of `config` forget clients without an index that have had no session for a minute, in all
/// tables: [`gannet_core::limits::PUSHERS_MAX`] pushers are remembered by a shard, and a killed client does not come
/// back. A forgotten client that does is refused. Returns how many were forgotten in the table that had the most,
/// and how many pushers the fullest shard still remembers.
///
/// ```
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{WorkerConfig, forget_clients};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// assert_eq!(forget_clients(Transports::new(), &config)?, (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A server is lost, is older than this program, or is writing a checkpoint.
pub fn forget_clients<N: Net>(net: N, config: &WorkerConfig) -> Result<(u64, u64), WorkerError> {
    let mut worker = Worker::connect(net, WorkerConfig { one_thread: false, ..config.clone() })?;
    let mut all = 0;
    loop {
        let replies = worker.ask(&ControlRequest::new(&ForgetClientsFrame {}), Recipients::All)?;
        let (mut forgotten, mut pushers) = (0, 0);
        for ControlReply { link, head, .. } in &replies {
            let nonsense = |error: FrameError| worker.links.nonsense(*link, error.to_string());
            let answer = ClientsForgottenFrame::decode(head).map_err(nonsense)?;
            forgotten = forgotten.max(u64::from(answer.clients));
            pushers = pushers.max(u64::from(answer.pushers));
        }
        all += forgotten;
        if forgotten == 0 {
            return Ok((all, pushers));
        }
    }
}

/// Deletes a run of which no worker is alive: drops its tables at all servers of `config`, and makes the servers
/// forget its name and its job. Returns the tables that were dropped; `None` if no server knows the run. A call
/// that was interrupted can be made again.
///
/// ```
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{WorkerConfig, forget_run};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// assert_eq!(forget_run(Transports::new(), &config, "monday")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A server is lost, or a worker of the run is alive.
pub fn forget_run<N: Net>(
    net: N,
    config: &WorkerConfig,
    name: &str,
) -> Result<Option<Vec<String>>, WorkerError> {
    let Some(server) = server_of_run(net.clone(), config, name)? else { return Ok(None) };
    let mut registry = Worker::connect(net.clone(), of_registry(config, &server))?;
    let incarnation = WorkerIncarnation { rank: u32::MAX, incarnation: 0 };
    let ask = |worker: &mut Worker<N>, what| {
        let ask = RunRequestV1 { name: name.to_owned(), incarnation, what };
        until_space(config.peer_timeout, || ask_registry(worker, &ask))
    };
    let mut dropped = Vec::new();
    loop {
        let to_drop = match ask(&mut registry, RunActionV1::Forget)? {
            RunReplyV1::Forgets { to_drop } => to_drop,
            other => return Err(not_of_a_run(&registry, &other)),
        };
        if to_drop.is_empty() {
            return Ok(Some(dropped));
        }
        drop_everywhere(net.clone(), config, &to_drop)?;
        ask(&mut registry, RunActionV1::Dropped { tables: to_drop.clone() })?;
        dropped.extend(to_drop);
    }
}

/// The server of `config` that keeps the registry of a run. `None`: none of them knows the run.
///
/// # Errors
/// A server is lost, or two servers keep a registry of the run.
pub fn server_of_run<N: Net>(
    net: N,
    config: &WorkerConfig,
    name: &str,
) -> Result<Option<String>, WorkerError> {
    let incarnation = WorkerIncarnation { rank: u32::MAX, incarnation: 0 };
    let ask = RunRequestV1 { name: name.to_owned(), incarnation, what: RunActionV1::List };
    let found = look_for_run(&net, config, &ask, &[])?;
    match found.knowing.is_empty() {
        true => Ok(None),
        false => registrar(config, name, &found).map(|(server, _)| Some(server)),
    }
}
