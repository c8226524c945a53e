//! How a worker is described, part by part.

use super::{NEXT_INCARNATION, OneSided, WorkerConfig};
use crate::token::Token;
use std::time::Duration;

/// The parts of a [`WorkerConfig`]. What is not named has a safe default.
///
/// ```
/// use gannet_node::WorkerConfig;
/// let config = WorkerConfig::builder(["10.0.0.1:7700", "10.0.0.2:7700"]).worker(3).build();
/// assert_eq!((config.servers.len(), config.pusher), (2, 4));
/// ```
#[derive(Debug, Clone)]
#[must_use = "it describes a worker once it is built"]
pub struct WorkerBuilder {
    config: WorkerConfig,
}

impl WorkerConfig {
    /// A worker of these servers (`host:port`, in any order). It is worker 0, its life is numbered by the servers when
    /// it connects, and a peer may be away for 60 s: pushes are applied exactly once, also across restarts of either
    /// side. Two workers at once need two numbers ([`WorkerBuilder::worker`]).
    pub fn builder(servers: impl IntoIterator<Item = impl Into<String>>) -> WorkerBuilder {
        WorkerBuilder { config: WorkerConfig::new(servers, 1, NEXT_INCARNATION) }
    }
}

impl WorkerBuilder {
    /// Which worker it is, from 0. By this number servers know which pushes they have had: no other worker of these
    /// servers may have it at the same time, and a worker that is started again keeps it. One that takes the number of
    /// another ends that other, which is told so; no push of either is lost or doubled.
    pub fn worker(mut self, index: u32) -> WorkerBuilder {
        self.config.pusher = u64::from(index) + 1;
        self.config.seed = self.config.pusher.rotate_left(32);
        self
    }

    /// Which life of the worker this is, for a program that counts its lives itself: larger than that of any life
    /// before. Pushes of a life that is not the newest are refused, and two lives of one number would be taken for one.
    /// Without it the servers hand out the next number.
    pub fn incarnation(mut self, incarnation: u64) -> WorkerBuilder {
        self.config.incarnation = incarnation;
        self
    }

    /// How long a server may be away, or leave requests unanswered, before a call fails. Default: 60 s.
    pub fn peer_timeout(mut self, timeout: Duration) -> WorkerBuilder {
        self.config.peer_timeout = timeout;
        self
    }

    /// The token that the servers share with their workers. Default: none.
    pub fn token(mut self, token: Token) -> WorkerBuilder {
        self.config.token = Some(token);
        self
    }

    /// When rows are read in a server's memory without asking it. Default: [`OneSided::Auto`].
    pub fn one_sided(mut self, when: OneSided) -> WorkerBuilder {
        self.config.one_sided = when;
        self
    }

    /// The worker.
    pub fn build(self) -> WorkerConfig {
        self.config
    }
}
