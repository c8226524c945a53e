//! A worker that waits for another one asks the thread that decides which workers are dead, and fences a dead one at
//! all threads. It has links of its own for both: those of the training may be full of requests that wait.

use crate::config::registrars::{deciding_server, of_registry};
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::limits::{AWAITED_EVERY, AWAITED_LIMIT, AWAITED_RETRY, WAITS_LOGGED};
use crate::links::state::Links;
use crate::links::steps::AwaitedWorker;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::requests::names::TableId;
use crate::tables::table::WorkerTable;
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::sync::{AwaitFrame, FenceFrame};
use gannet_wire::messages::awaited::{AwaitV1, AwaitedV1, DeadMemberV1};
use gannet_wire::messages::control;
use gannet_wire::messages::control::WaitsV2;
use std::collections::BTreeSet;
use std::time::Duration;

/// The link over which a worker asks.
pub(crate) struct AwaitedLink<N: Net> {
    worker: Option<Box<Worker<N>>>,
    /// The worker and clock that the log last said this one waits for, and when.
    logged: Option<(u32, u64, Duration)>,
    /// When it asks next.
    next: Duration,
}

impl<N: Net> Default for AwaitedLink<N> {
    fn default() -> AwaitedLink<N> {
        AwaitedLink { worker: None, next: Duration::ZERO, logged: None }
    }
}

impl<N: Net> AwaitedLink<N> {
    /// Logs which worker a request waits for, as a server reports.
    pub(crate) fn log(&mut self, links: &Links<N>, link: usize) {
        let (now, peer) = (links.net.now(), &links.peers[link]);
        let Some(WaitsV2 { rank, clock, here, .. }) = peer.steps.waits.as_ref() else { return };
        let logged = self.logged.filter(|logged| (logged.0, logged.1) == (*rank, *clock));
        if logged.is_none_or(|(_, _, at)| now.saturating_sub(at) >= WAITS_LOGGED) {
            self.logged = Some((*rank, *clock, now));
            tracing::warn!(server = %peer.name, connected = here, "waiting for worker {rank}, which is at clock {clock}");
        }
    }
}

/// While requests wait for other workers, asks once a second whether those are dead, and fences them. While it
/// asks, this worker does nothing else: it waits anyway.
///
/// # Errors
/// A worker is dead, and the workers of its group need each of them.
pub(crate) fn ask_for_awaited<N: Net>(worker: &mut Worker<N>, now: Duration) -> Result<(), WorkerError> {
    if now < worker.awaited.next {
        return Ok(());
    }
    let peers = worker.links.peers.iter();
    let awaited: BTreeSet<AwaitedWorker> = peers.filter_map(|peer| peer.awaited(&worker.tables)).collect();
    if awaited.is_empty() {
        return Ok(());
    }
    worker.awaited.next = now + AWAITED_EVERY;
    for AwaitedWorker { table, rank, pusher, incarnation } in awaited {
        let WorkerTable { schema, group, .. } = &worker.tables[table];
        let (name, needs_all) = (schema.name.clone(), group.as_ref().is_some_and(|group| group.sync.strict));
        let dead = ask_for(worker, AwaitV1 { table: name, rank, pusher, incarnation });
        let done = match dead {
            Ok(None) => continue,
            Ok(Some(DeadMemberV1 { rank, clock, silent_ms, .. })) if needs_all => {
                let silent = Duration::from_millis(silent_ms);
                return Err(WorkerError::WorkerLost { rank, clock, silent });
            }
            Ok(Some(dead)) => fence_everywhere(worker, &dead),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            // A server is away. It asks again; others do, too.
            tracing::warn!(worker = rank, %error, "a worker for which this one waits may be dead: it is not fenced");
            worker.awaited.worker = None;
            worker.awaited.next = worker.links.net.now() + AWAITED_RETRY;
            return Ok(());
        }
    }
    Ok(())
}

/// Asks the deciding thread about a worker.
fn ask_for<N: Net>(worker: &mut Worker<N>, of: AwaitV1) -> Result<Option<DeadMemberV1>, WorkerError> {
    let mut asker = match worker.awaited.worker.take() {
        Some(asker) => asker,
        None => {
            let server = deciding_server(&worker.links.config);
            let server = server.ok_or_else(|| WorkerError::Call("no server is named".into()))?;
            let config = WorkerConfig { run: None, ..beside(of_registry(&worker.links.config, server)) };
            Box::new(Worker::connect(worker.links.net.clone(), config)?)
        }
    };
    let payload = |_: usize, _: u32| control::seal(&of);
    let request = ControlRequest::with_payload(&AwaitFrame {}, None, &payload);
    let answers = asker.ask(&request, Recipients::First(1))?;
    let nonsense = |what: String| WorkerError::Protocol { peer: asker.links.peers[0].name.clone(), what };
    let Some(ControlReply { payload, .. }) = answers.first() else {
        return Err(nonsense("no answer about a worker".into()));
    };
    let AwaitedV1 { dead } = control::open(payload).map_err(|error| nonsense(error.to_string()))?;
    worker.awaited.worker = Some(asker);
    Ok(dead)
}

/// Fences a dead worker at all threads of all servers, in each table over which this worker keeps step.
fn fence_everywhere<N: Net>(worker: &Worker<N>, dead: &DeadMemberV1) -> Result<(), WorkerError> {
    let &DeadMemberV1 { rank, clock, pusher, incarnation, .. } = dead;
    tracing::warn!(rank, clock, "a worker is dead (--worker-timeout): the others go on without it");
    let config = WorkerConfig { run: None, one_thread: false, ..beside(worker.links.config.clone()) };
    let mut fencer = Worker::connect(worker.links.net.clone(), config)?;
    let fence = FenceFrame { table: 0, index: rank, pusher, incarnation };
    for table in worker.tables.iter().filter(|table| table.group.is_some()) {
        let table: TableId = fencer.open_table(&table.schema)?;
        fencer.ask(&ControlRequest::about(table, &fence), Recipients::All)?;
    }
    Ok(())
}

/// A configuration of links beside those of the training.
fn beside(config: WorkerConfig) -> WorkerConfig {
    let peer_timeout = AWAITED_LIMIT.min(config.peer_timeout);
    WorkerConfig { peer_timeout, secondary: true, ..config }
}
