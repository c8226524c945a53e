//! How a worker gets its incarnation: a server hands it out from one counter for the run. No clock decides it.

use crate::config::worker_config::WorkerConfig;
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::runs::{AllocateFrame, AllocatedFrame};
use gannet_wire::incarnation::NO_INCARNATION;
use std::sync::Arc;

impl<N: Net> Worker<N> {
    /// Takes an incarnation that no worker has had on these servers, larger than all before. A process calls this once,
    /// when it starts. Two concurrent calls get two numbers.
    ///
    /// `config.servers` are all servers of the run in any order, and its scheduler if that is a process of its own. Of
    /// the servers with tables, the one whose address comes first in the order of text hands out the number, above all
    /// numbers that the others know. So all workers must write the addresses alike.
    ///
    /// ```
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// let config = WorkerConfig::builder([server.addr()]).build();
    /// let first = Worker::allocate_incarnation(Transports::new(), &config)?;
    /// assert!(Worker::allocate_incarnation(Transports::new(), &config)? > first);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A server could not be reached for `peer_timeout`, or it refused because it cannot store its counter.
    pub fn allocate_incarnation(net: N, config: &WorkerConfig) -> Result<u64, WorkerError> {
        Worker::allocate_incarnation_with_counters(net, config, Arc::default())
    }

    /// [`Worker::allocate_incarnation`] that counts in `counters`, which other threads can read meanwhile. These may be
    /// the counters of a worker of the same thread.
    ///
    /// # Errors
    /// As [`Worker::allocate_incarnation`].
    pub fn allocate_incarnation_with_counters(
        net: N,
        config: &WorkerConfig,
        counters: Arc<WorkerCounters>,
    ) -> Result<u64, WorkerError> {
        let (links, wanted) = (counters.links.get(), counters.links_wanted.get());
        let config = WorkerConfig { incarnation: NO_INCARNATION, one_thread: true, ..config.clone() };
        let allocated = Worker::connect_with_counters(net, config, counters.clone())
            .and_then(|mut worker| number(&mut worker));
        // The links of this call are gone.
        counters.links.set(links);
        counters.links_wanted.set(wanted);
        allocated
    }
}

/// The next number that the servers hand out.
fn number<N: Net>(worker: &mut Worker<N>) -> Result<u64, WorkerError> {
    let all: Vec<usize> = (0..worker.links.peers.len()).collect();
    let known = allocate(worker, 0, true, &all)?;
    let floor = known.iter().map(|answer| answer.0).max().unwrap_or(0);
    // All workers choose the same server, in whatever order they name the servers. If no server hands out numbers,
    // the error comes from the first one.
    let addr = |&at: &usize| &worker.links.peers[at].addr;
    let chosen = (0..known.len()).filter(|&at| known[at].1).min_by_key(addr).unwrap_or(0);
    match *allocate(worker, floor, false, &[chosen])? {
        [(number, _)] if number > floor => Ok(number),
        ref other => Err(worker.links.nonsense(chosen, format!("incarnations {other:?} above {floor}"))),
    }
}

/// Asks thread 0 of each of these servers for a number, and whether it hands out numbers.
fn allocate<N: Net>(
    worker: &mut Worker<N>,
    floor: u64,
    look: bool,
    of: &[usize],
) -> Result<Vec<(u64, bool)>, WorkerError> {
    let ask = ControlRequest::new(&AllocateFrame { floor, look });
    let answers = worker.ask(&ask, Recipients::Links(of))?;
    if answers.len() != of.len() {
        return Err(worker.links.nonsense(of[0], "fewer answers than requests".into()));
    }
    let read = |answer: &ControlReply| match AllocatedFrame::decode(&answer.head) {
        Ok(AllocatedFrame { incarnation, hands_out }) => Ok((incarnation, hands_out)),
        Err(error) => Err(worker.links.nonsense(answer.link, error.to_string())),
    };
    answers.iter().map(read).collect()
}
