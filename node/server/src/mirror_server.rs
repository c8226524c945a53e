//! A server whose tables are those of a job that somebody follows.

use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::limits::MIRROR_TIME;
use crate::server::Server;
use crate::tables::mirror::Mirror;
use gannet_transport::Net;
use gannet_worker::FollowedCut;
use std::sync::Arc;
use std::time::Duration;

/// A server that answers readers and followers with the rows of cuts that it is given. It refuses all changes of
/// others. It has one thread, so each cut is taken over as a whole.
///
/// ```
/// use gannet_core::{Read, Schema, Write};
/// use gannet_server::{MirrorServer, ServerConfig};
/// use gannet_worker::Follower;
/// # use gannet_server::Server;
/// # use gannet_worker::{Worker, WorkerConfig};
/// use gannet_optim::{Add, Rule};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let schema = Schema::scalar("clicks", Rule::Add(Add));
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
/// let table = worker.open_table(&schema)?;
/// worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0])?;
///
/// let mut follower = Follower::new(Transports::new(), &WorkerConfig::reader([server.addr()]), "");
/// let mirror = MirrorServer::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let cut = follower.cut(&[])?;
/// let age = follower.age(&cut);
/// mirror.take_over(&cut.into(), age)?;
///
/// let mut reader = Worker::connect(Transports::new(), WorkerConfig::reader([mirror.addr()]))?;
/// let copy = reader.open_table(&schema)?;
/// let mut clicks = [0.0; 2];
/// reader.pull(copy, &[7, 8], Read::Weights, &mut clicks)?;
/// assert_eq!(clicks, [1.0, 2.0]);
/// assert!(reader.push(copy, &[7], Write::Gradient, &[1.0]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MirrorServer {
    server: Server,
    mirror: Arc<Mirror>,
}

impl MirrorServer {
    /// Starts a server without tables. Of `config` it uses the address, the limits, the store and the token.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub fn start<N>(net: N, config: ServerConfig) -> Result<MirrorServer, ServerError>
    where
        N: Net + Send,
        N::Stream: Send,
        N::Listener: Send,
        N::Waker: Send + Sync,
    {
        let mirror = Arc::<Mirror>::default();
        let config = ServerConfig { threads: 1, ..config };
        let server = Server::start_as(net, config, Some(mirror.clone()))?;
        Ok(MirrorServer { server, mirror })
    }

    /// The address where readers and followers connect.
    pub fn addr(&self) -> &str {
        self.server.addr()
    }

    /// Takes a cut over, which is this old. Afterwards all readers see its rows. A table that has another schema than
    /// before begins anew.
    ///
    /// # Errors
    /// There is no memory, or the server has died: in words. A part of the rows may be there.
    pub fn take_over(&self, cut: &Arc<FollowedCut>, age: Duration) -> Result<(), String> {
        let taken = self.mirror.put(cut.clone(), age).recv_timeout(MIRROR_TIME);
        taken.map_err(|_| format!("the server of --pulls did not answer within {MIRROR_TIME:?}"))?
    }
}
