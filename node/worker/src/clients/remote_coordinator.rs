//! The coordinator that a `gannet scheduler` keeps, as the other processes of a job reach it.

use crate::config::worker_config::{OneSided, WorkerConfig};
use crate::error::WorkerError;
use crate::requests::control::{ControlRequest, Recipients};
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::coordinator::{
    ConnectLimit, Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite,
};
use gannet_wire::frames::coordinator::CoordinateFrame;
use gannet_wire::limits::COORDINATOR_TIMEOUT;
use gannet_wire::messages::control;
use gannet_wire::messages::coordinator::{CoordinatorReplyV1, CoordinatorRequestV1, CoordinatorWriteV1};
use gannet_wire::token::Token;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The coordinator of a `gannet scheduler`, over a link of its own. A call waits for at most a second for the link
/// ([`ConnectLimit`]), and for at most a second for the answer.
///
/// ```
/// use gannet_wire::Coordinator;
/// use gannet_jobs::MemoryCoordinator;
/// use gannet_worker::RemoteCoordinator;
/// use gannet_server::{Server, ServerConfig};
/// use gannet_transport::multi::Transports;
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
///
/// let begin = Instant::now();
/// let coordinator = MemoryCoordinator::new(Arc::new(move || begin.elapsed()));
/// let config = ServerConfig { coordinator: Some(Arc::new(coordinator)), ..ServerConfig::new("127.0.0.1:0") };
/// let server = Server::start(Transports::new(), config)?;
/// let coordinator = RemoteCoordinator::new(Transports::new(), server.addr(), None);
/// assert!(coordinator.compare_and_set("owner", 0, b"a", None)?.is_some());
/// assert_eq!(coordinator.get("owner")?.unwrap().value, b"a");
/// let page = coordinator.list("own", "")?;
/// assert_eq!((page.entries.len(), page.more), (1, false));
/// assert_eq!(coordinator.watch("own", page.version, Duration::ZERO)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RemoteCoordinator<N: Net> {
    net: N,
    config: WorkerConfig,
    link: Mutex<Link<N>>,
}

struct Link<N: Net> {
    worker: Option<Worker<N>>,
    limit: ConnectLimit,
}

impl<N: Net> RemoteCoordinator<N> {
    /// The coordinator at this address. It connects with the first call.
    pub fn new(net: N, addr: &str, token: Option<Token>) -> RemoteCoordinator<N> {
        let config = WorkerConfig {
            token,
            peer_timeout: COORDINATOR_TIMEOUT,
            one_sided: OneSided::Never,
            one_thread: true,
            secondary: true,
            spin: Duration::ZERO,
            ..WorkerConfig::reader([addr])
        };
        let link = Mutex::new(Link { worker: None, limit: ConnectLimit::FIRST });
        RemoteCoordinator { net, config, link }
    }

    fn call(&self, request: &CoordinatorRequestV1) -> Result<CoordinatorReplyV1, CoordinatorError> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let addr = self.config.servers.first().map_or("", String::as_str);
        let reply = match self.ask(&mut link, request) {
            Ok(reply) => reply,
            Err(error) => {
                // The next call makes a new link.
                link.worker = None;
                return Err(CoordinatorError(format!("{addr}: {error}")));
            }
        };
        control::open(&reply).map_err(|error| CoordinatorError(format!("{addr}: {error}")))
    }

    fn ask(&self, link: &mut Link<N>, request: &CoordinatorRequestV1) -> Result<Vec<u8>, WorkerError> {
        let worker = match &mut link.worker {
            Some(worker) => worker,
            None => {
                let config = WorkerConfig { peer_timeout: link.limit.get(), ..self.config.clone() };
                let connected = Worker::connect(self.net.clone(), config);
                link.limit = link.limit.after(connected.is_ok());
                let worker = link.worker.insert(connected?);
                worker.links.config.peer_timeout = COORDINATOR_TIMEOUT;
                worker
            }
        };
        let payload = |_: usize, _: u32| control::seal(request);
        let request = ControlRequest::with_payload(&CoordinateFrame {}, None, &payload);
        let replies = worker.ask(&request, Recipients::First(1))?;
        Ok(replies.into_iter().next().map(|reply| reply.payload).unwrap_or_default())
    }

    fn nonsense<T>(&self, reply: &CoordinatorReplyV1) -> Result<T, CoordinatorError> {
        Err(CoordinatorError(format!("{reply:?} does not answer the request")))
    }
}

impl<N> Coordinator for RemoteCoordinator<N>
where
    N: Net + Send + Sync,
    Worker<N>: Send,
{
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        match self.call(&CoordinatorRequestV1::Get { key: key.to_owned() })? {
            CoordinatorReplyV1::Entry(entry) => {
                Ok(entry.map(|(value, version)| CoordinatorEntry { value, version }))
            }
            other => self.nonsense(&other),
        }
    }

    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        let write = |write: &CoordinatorWrite| {
            let CoordinatorWrite { key, version, value, lease } = write.clone();
            CoordinatorWriteV1 { key, version, value, lease }
        };
        let writes = writes.iter().map(write).collect();
        match self.call(&CoordinatorRequestV1::CompareAndSet { writes })? {
            CoordinatorReplyV1::Version(version) => Ok(version),
            other => self.nonsense(&other),
        }
    }

    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError> {
        match self.call(&CoordinatorRequestV1::Remove { keys: keys.to_vec() })? {
            CoordinatorReplyV1::Removed(are_gone) => Ok(are_gone),
            other => self.nonsense(&other),
        }
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        match self.call(&CoordinatorRequestV1::Grant { ttl_ms: ttl.as_millis() as u64 })? {
            CoordinatorReplyV1::Lease(lease) => Ok(lease),
            other => self.nonsense(&other),
        }
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        match self.call(&CoordinatorRequestV1::KeepAlive { lease })? {
            CoordinatorReplyV1::IsAlive(is_alive) => Ok(is_alive),
            other => self.nonsense(&other),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        match self.call(&CoordinatorRequestV1::List { prefix, after })? {
            CoordinatorReplyV1::Page(entries, more, version) => {
                let entry = |(key, value, version)| (key, CoordinatorEntry { value, version });
                Ok(CoordinatorPage { entries: entries.into_iter().map(entry).collect(), more, version })
            }
            other => self.nonsense(&other),
        }
    }

    /// Answers at once: the scheduler does not let others wait.
    fn watch(&self, prefix: &str, since: u64, _limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        match self.call(&CoordinatorRequestV1::Watch { prefix: prefix.to_owned(), since })? {
            CoordinatorReplyV1::Changed(version) => Ok(version),
            other => self.nonsense(&other),
        }
    }
}
