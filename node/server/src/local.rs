//! A server without threads: whoever has it gives it its turns.

use crate::config::ServerConfig;
use crate::counters::server::ServerCounters;
use crate::cuts::writer::{CutExecutor, CutPace};
use crate::error::ServerError;
use crate::incarnation::new_incarnation;
use crate::limits::INBOX_MAX;
use crate::membership::role::Loading;
use crate::membership::{Membership, MembershipParts};
use crate::replication::replicator::Replicator;
use crate::replication::slot::BackupLink;
use crate::restore::place::PlaceLoader;
use crate::restore::{OpenedTables, open_tables};
use crate::server::{ServerStats, settings};
use crate::sessions::acceptor::{Acceptor, ThreadInbox};
use crate::sessions::context::GreetedConnection;
use crate::sessions::greeting::Greeter;
use crate::thread::event_loop::ShardThread;
use crate::thread::settings::ThreadSettings;
use gannet_transport::{Listener, Net};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// A turn of a part of a server.
pub type ServerTurn = Box<dyn FnMut(Duration) -> Result<(), ServerError>>;

/// A server without threads of its own: its owner calls [`run`](Self::run). Simulations use it.
pub struct LocalServer<N: Net> {
    addr: String,
    acceptor: Acceptor<N>,
    pub(crate) threads: Vec<ShardThread<N>>,
    counters: Arc<ServerCounters>,
    cut_pace: Arc<CutPace>,
    replicators: Vec<Replicator<N>>,
    membership: Option<Membership<N>>,
}

impl<N: Net> LocalServer<N> {
    /// Listens.
    ///
    /// # Errors
    /// As [`Server::start`](crate::server::Server::start).
    pub fn new(net: N, config: ServerConfig) -> Result<LocalServer<N>, ServerError> {
        config.check()?;
        let (incarnation, counters) = (new_incarnation()?, ServerCounters::new(config.threads));
        let settings = settings(&config, incarnation);
        let opened = open_tables(&config, incarnation, &counters)?;
        let loading = PlaceLoader::of(&config, &opened).map(|loader| Loading { loader, on_thread: false });
        let OpenedTables { threads: opened, mut states, .. } = opened;
        let listener = net.listen(&config.listen)?;
        let addr = listener.addr().to_owned();
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        let (backups, mut replicators, mut queues) = (BackupLink::all_of(&config), Vec::new(), Vec::new());
        let cut_pace = Arc::<CutPace>::default();
        for mut tables in opened {
            tables.checkpoints.executor = CutExecutor::Turns(cut_pace.clone());
            let (inbox, outlet): (_, Receiver<GreetedConnection<N::Stream>>) = sync_channel(INBOX_MAX);
            let settings = ThreadSettings { thread: tables.thread(), ..settings.clone() };
            let opened = (tables, states.take());
            let mut thread = ShardThread::new(net.clone(), outlet, opened, settings, counters.clone())?;
            let (of_thread, of_queues) = thread.replicate_to(&backups);
            replicators.extend(of_thread);
            queues.push(of_queues);
            inboxes.push(ThreadInbox { inbox, waker: thread.waker() });
            threads.push(thread);
        }
        let parts = MembershipParts {
            incarnation,
            standing: settings.standing.clone(),
            threads: threads.iter().map(ShardThread::waker).collect(),
            links: &backups,
            queues: &queues,
            loading,
        };
        let membership = Membership::new(&net, &config, parts);
        let greeter = Greeter::new(config.token, counters.clone());
        let acceptor = Acceptor::new(net, listener, inboxes, greeter, counters.clone())?;
        Ok(LocalServer { addr, acceptor, threads, counters, cut_pace, replicators, membership })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Counts of what the server has done so far.
    pub fn served(&self) -> ServerStats {
        ServerStats::read(&self.counters)
    }

    /// As [`Server::shared_counters`](crate::server::Server::shared_counters).
    pub fn shared_counters(&self) -> Arc<ServerCounters> {
        self.counters.clone()
    }

    /// What a checkpoint of `run` saves besides rows: the name and the bytes of each state
    /// ([`Draft::state`](gannet_core::Draft::state)).
    pub fn saved_states(&self, run: &str) -> Vec<(&'static str, Vec<u8>)> {
        self.threads.first().map_or_else(Vec::new, |thread| thread.saved_states(run))
    }

    /// What sends the commands of this server's shards to its backups. The program runs each of them beside this
    /// server.
    pub fn take_replicators(&mut self) -> Vec<Replicator<N>> {
        std::mem::take(&mut self.replicators)
    }

    /// What asks the coordinator who owns the shards. The program runs it beside this server.
    pub fn take_membership(&mut self) -> Option<Membership<N>> {
        self.membership.take()
    }

    /// While `hold` is set, the server writes nothing into the files of checkpoints, as with a disk that hangs.
    pub fn hold_checkpoint_files(&self, hold: bool) {
        self.cut_pace.held.store(hold, Relaxed);
    }

    /// From now on a thread reads about so many bytes of a checkpoint's rows between two rounds of requests.
    pub fn slice_checkpoints(&self, bytes: usize) {
        self.cut_pace.slice_bytes.store(bytes, Relaxed);
    }

    /// Does all work that is ready, without sleeping.
    ///
    /// # Errors
    /// The poll failed.
    pub fn run(&mut self) -> Result<(), ServerError> {
        self.acceptor.run_once(Duration::ZERO)?;
        for thread in &mut self.threads {
            while thread.run_once(Duration::ZERO)? {}
        }
        Ok(())
    }

    /// The acceptor and each thread, as functions that take a turn and sleep in it for at most so long if there is no
    /// work. So each may run as a process of its own, as the threads of a [`Server`](crate::server::Server) do.
    pub fn into_turns(self) -> Vec<ServerTurn>
    where
        N: 'static,
    {
        let LocalServer { mut acceptor, threads, .. } = self;
        let acceptor: ServerTurn = Box::new(move |sleep| acceptor.run_once(sleep));
        let thread = |mut thread: ShardThread<N>| -> ServerTurn {
            Box::new(move |sleep| thread.run_once(sleep).map(|_| ()))
        };
        std::iter::once(acceptor).chain(threads.into_iter().map(thread)).collect()
    }

    /// As [`Server::stop`](crate::server::Server::stop).
    ///
    /// # Errors
    /// An image could not be closed in order.
    pub fn stop(self) -> Result<u64, ServerError> {
        self.threads.into_iter().map(|thread| thread.stop(|| false)).sum()
    }
}
