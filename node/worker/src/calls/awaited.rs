//! A worker that waits for another one asks the thread that decides which workers are dead, and fences a dead one at
//! all threads. It has links of its own for both: those of the training may be full of requests that wait.

use crate::config::registrars::{deciding_server, of_registry};
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::limits::{AWAITED_EVERY, AWAITED_LIMIT, AWAITED_RETRY};
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::requests::names::TableId;
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::sync::{AwaitFrame, FenceFrame};
use gannet_wire::messages::awaited::{AwaitV1, AwaitedV1, DeadMemberV1};
use gannet_wire::messages::control;
use std::time::Duration;

/// The link over which a worker asks.
pub(crate) struct AwaitedLink<N: Net> {
    worker: Option<Box<Worker<N>>>,
    /// When it asks next.
    next: Duration,
}

impl<N: Net> Default for AwaitedLink<N> {
    fn default() -> AwaitedLink<N> {
        AwaitedLink { worker: None, next: Duration::ZERO }
    }
}

impl<N: Net> Worker<N> {
    /// While requests wait for other workers, asks once a second whether those are dead, and fences them. While it
    /// asks, this worker does nothing else: it waits anyway.
    ///
    /// # Errors
    /// A worker is dead, and the workers of its group need each of them.
    pub(crate) fn ask_for_awaited(&mut self, now: Duration) -> Result<(), WorkerError> {
        if now < self.awaited_link.next {
            return Ok(());
        }
        let awaited = self.awaited();
        if awaited.is_empty() {
            return Ok(());
        }
        self.awaited_link.next = now + AWAITED_EVERY;
        for (table, rank, pusher, incarnation) in awaited {
            let name = self.tables[table].schema.name.clone();
            let dead = self.ask_for(AwaitV1 { table: name, rank, pusher, incarnation });
            let done = match dead {
                Ok(None) => continue,
                Ok(Some(DeadMemberV1 { rank, clock, silent_ms, .. })) if self.needs_all(table) => {
                    let silent = Duration::from_millis(silent_ms);
                    return Err(WorkerError::WorkerLost { rank, clock, silent });
                }
                Ok(Some(dead)) => self.fence_everywhere(&dead),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                // A server is away. It asks again; others do, too.
                tracing::warn!(worker = rank, %error, "a worker for which this one waits may be dead: it is not fenced");
                self.awaited_link.worker = None;
                self.awaited_link.next = self.net.now() + AWAITED_RETRY;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks the deciding thread about a worker.
    fn ask_for(&mut self, of: AwaitV1) -> Result<Option<DeadMemberV1>, WorkerError> {
        let mut asker = match self.awaited_link.worker.take() {
            Some(asker) => asker,
            None => {
                let server = deciding_server(&self.config);
                let server = server.ok_or_else(|| WorkerError::Call("no server is named".into()))?;
                let config = WorkerConfig { run: None, ..self.beside(of_registry(&self.config, server)) };
                Box::new(Worker::connect(self.net.clone(), config)?)
            }
        };
        let payload = |_: usize, _: u32| control::seal(&of);
        let request = ControlRequest::with_payload(&AwaitFrame {}, None, &payload);
        let answers = asker.ask(&request, Recipients::First(1))?;
        let nonsense = |what: String| WorkerError::Protocol { peer: asker.peers[0].name.clone(), what };
        let Some(ControlReply { payload, .. }) = answers.first() else {
            return Err(nonsense("no answer about a worker".into()));
        };
        let AwaitedV1 { dead } = control::open(payload).map_err(|error| nonsense(error.to_string()))?;
        self.awaited_link.worker = Some(asker);
        Ok(dead)
    }

    /// Fences a dead worker at all threads of all servers, in each table over which this worker keeps step.
    fn fence_everywhere(&self, dead: &DeadMemberV1) -> Result<(), WorkerError> {
        let &DeadMemberV1 { rank, clock, pusher, incarnation, .. } = dead;
        tracing::warn!(rank, clock, "a worker is dead (--worker-timeout): the others go on without it");
        let config = WorkerConfig { run: None, one_thread: false, ..self.beside(self.config.clone()) };
        let mut fencer = Worker::connect(self.net.clone(), config)?;
        let fence = FenceFrame { table: 0, index: rank, pusher, incarnation };
        for table in self.tables.iter().filter(|table| table.group.is_some()) {
            let table: TableId = fencer.open_table(&table.schema)?;
            fencer.ask(&ControlRequest::about(table, &fence), Recipients::All)?;
        }
        Ok(())
    }

    /// A configuration of links beside those of the training.
    fn beside(&self, config: WorkerConfig) -> WorkerConfig {
        let peer_timeout = AWAITED_LIMIT.min(config.peer_timeout);
        WorkerConfig { peer_timeout, secondary: true, ..config }
    }
}
