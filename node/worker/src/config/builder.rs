//! Builds the configuration of a worker, option by option.

use crate::config::worker_config::{OneSided, WorkerConfig};
use gannet_wire::incarnation::{NEXT_INCARNATION, NO_INCARNATION};
use gannet_wire::token::Token;
use std::time::Duration;

/// Builds a [`WorkerConfig`]. An option that is not set keeps a safe default.
///
/// ```
/// use gannet_worker::WorkerConfig;
/// let config = WorkerConfig::builder(["10.0.0.1:7700", "10.0.0.2:7700"]).worker(3).build();
/// assert_eq!((config.servers.len(), config.pusher), (2, 4));
/// ```
#[derive(Debug, Clone)]
#[must_use = "it describes a worker once it is built"]
pub struct WorkerBuilder {
    config: WorkerConfig,
}

impl WorkerConfig {
    /// A worker of these servers (`host:port`, in any order). Its index is 0, the servers number its incarnation when
    /// it connects, and a peer may be away for 60 s. Pushes are applied exactly once, also across restarts of either
    /// side. Two workers at once need two indices ([`WorkerBuilder::worker`]).
    pub fn builder(servers: impl IntoIterator<Item = impl Into<String>>) -> WorkerBuilder {
        WorkerBuilder { config: WorkerConfig::new(servers, 1, NEXT_INCARNATION) }
    }
}

impl WorkerBuilder {
    /// The worker's index, from 0. Servers recognise resent pushes by it. A worker keeps its index when it restarts,
    /// and no other worker of these servers may use it at the same time. A worker that takes the index of another ends
    /// that other one, with an error that says so. No push of either is lost or applied twice.
    pub fn worker(mut self, index: u32) -> WorkerBuilder {
        self.config.pusher = u64::from(index) + 1;
        self.config.seed = self.config.pusher.rotate_left(32);
        self
    }

    /// The worker's incarnation, for a program that counts its starts itself. It must be larger than that of any start
    /// before. Servers refuse pushes of an incarnation that is not the newest, and cannot tell two starts with the same
    /// incarnation apart. Without this option the servers hand out the next number.
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

    /// When the worker reads rows in a server's memory without a request. Default: [`OneSided::Auto`].
    pub fn one_sided(mut self, when: OneSided) -> WorkerBuilder {
        self.config.one_sided = when;
        self
    }

    /// The finished configuration.
    pub fn build(self) -> WorkerConfig {
        self.config
    }
}

impl WorkerConfig {
    /// A configuration of a worker that only reads and asks: it needs no incarnation.
    ///
    /// ```
    /// # use gannet_core::{Read, Schema, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// let config = WorkerConfig::reader([server.addr()]);
    /// let mut reader = Worker::connect(Transports::new(), config)?;
    /// let table = reader.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// reader.pull(table, &[7], Read::Weights, &mut [0.0])?;
    /// assert!(reader.push(table, &[7], Write::Gradient, &[1.0]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reader(servers: impl IntoIterator<Item = impl Into<String>>) -> WorkerConfig {
        WorkerConfig::new(servers, u64::from(u32::MAX), NO_INCARNATION)
    }
}
