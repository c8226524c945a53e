//! The server: one acceptor thread, and shard threads that each own some of the shards.

use crate::config::ServerConfig;
use crate::counters::server::ServerCounters;
use crate::error::ServerError;
use crate::incarnation::new_incarnation;
use crate::limits::INBOX_MAX;
use crate::membership::role::Loading;
use crate::membership::standing::Standing;
use crate::membership::{Membership, MembershipParts};
use crate::peers::memory::SessionMemory;
use crate::places::incarnations::HighestIncarnation;
use crate::replication::queue::ThreadQueues;
use crate::replication::replicator::Replicator;
use crate::replication::slot::BackupLink;
use crate::restore::place::PlaceLoader;
use crate::restore::{OpenedTables, open_tables};
use crate::sessions::acceptor::{Acceptor, ThreadInbox};
use crate::sessions::context::GreetedConnection;
use crate::sessions::greeting::Greeter;
use crate::steps::step_budget::StepBudget;
use crate::tables::mirror::Mirror;
use crate::thread::closing::run_thread;
use crate::thread::event_loop::ShardThread;
use crate::thread::settings::ThreadSettings;
use crate::thread::thread_health::{ThreadHealth, join_thread};
use gannet_transport::{Listener, Net, Waker};
use gannet_wire::limits::TICK;
use gannet_wire::refusal::Refusal;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Counts of what a server has done since it started. [`Server::served`] returns them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ServerStats {
    /// Requests handled.
    pub frames: u64,
    /// Sessions that began.
    pub sessions_begun: u64,
    /// Sessions that ended.
    pub sessions_ended: u64,
    /// Connections that did not prove that they have the token.
    pub token_refusals: u64,
}

impl ServerStats {
    pub(crate) fn read(counters: &ServerCounters) -> ServerStats {
        let token_refusals = counters.acceptor.refused[Refusal::Token.place()].get();
        let none = ServerStats { token_refusals, ..ServerStats::default() };
        counters.threads.iter().fold(none, |sum, thread| ServerStats {
            frames: sum.frames + thread.requests(),
            sessions_begun: sum.sessions_begun + thread.sessions().0,
            sessions_ended: sum.sessions_ended + thread.sessions().1,
            token_refusals,
        })
    }
}

/// A running server. [`Server::stop`] ends it in order. Dropping it does the same, but only logs errors. If one of its
/// threads dies, the whole server ends: it closes its sessions, and leaves its images as a kill would leave them.
///
/// ```
/// use gannet_server::{Server, ServerConfig};
/// use gannet_transport::multi::Transports;
///
/// let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// println!("workers connect to {}", server.addr());
/// assert!(server.is_running());
/// assert_eq!(server.served().sessions_begun, 0);
/// assert_eq!(server.stop()?, 0); // rows of all tables
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    addr: String,
    health: Arc<ThreadHealth>,
    acceptor: Option<JoinHandle<Result<(), ServerError>>>,
    threads: Vec<JoinHandle<Result<u64, ServerError>>>,
    counters: Arc<ServerCounters>,
}

/// The settings of thread 0. Those of other threads differ only in the thread number.
pub(crate) fn settings(config: &ServerConfig, incarnation: u64) -> ThreadSettings {
    let (keyset_bytes_max, spin, limits) = (config.keyset_bytes_max, config.spin, config.limits.clone());
    let (buffers, keysets) =
        (SessionMemory::new(limits.buffer_bytes), SessionMemory::new(limits.keyset_bytes));
    let (thread, threads) = (0, config.threads as u32);
    let (data_server, highest_incarnation) = (config.data_server.clone(), HighestIncarnation::default());
    let step_budget = StepBudget::of(&config.store, config.threads);
    ThreadSettings {
        thread,
        threads,
        incarnation,
        keyset_bytes_max,
        spin,
        limits,
        buffers,
        keysets,
        step_budget,
        data_server,
        highest_incarnation,
        replication: config.replication,
        standing: config.membership.as_ref().map(|of| Arc::new(Standing::new(of.lease))),
    }
}

impl Server {
    /// Listens and starts the threads.
    ///
    /// # Errors
    /// The address is taken, an option is out of range, the system gives no thread, or a checkpoint cannot be restored.
    pub fn start<N>(net: N, config: ServerConfig) -> Result<Server, ServerError>
    where
        N: Net + Send,
        N::Stream: Send,
        N::Listener: Send,
        N::Waker: Send + Sync,
    {
        Server::start_as(net, config, None)
    }

    /// As [`start`](Self::start). With a `mirror` its thread has the rows of the cuts that come by it.
    pub(crate) fn start_as<N>(
        net: N,
        config: ServerConfig,
        mirror: Option<Arc<Mirror>>,
    ) -> Result<Server, ServerError>
    where
        N: Net + Send,
        N::Stream: Send,
        N::Listener: Send,
        N::Waker: Send + Sync,
    {
        config.check()?;
        let (incarnation, counters) = (new_incarnation()?, ServerCounters::new(config.threads));
        let mut opened = open_tables(&config, incarnation, &counters)?;
        opened.threads.iter_mut().for_each(|tables| tables.mirror.clone_from(&mirror));
        let listener = net.listen(&config.listen)?;
        let (addr, health) = (listener.addr().to_owned(), ThreadHealth::new());
        let (threads, acceptor) = (Vec::new(), None);
        // If the start fails, dropping this value ends the threads that have started.
        let mut server = Server { addr, health, acceptor, threads, counters };
        let backups = BackupLink::all_of(&config);
        let settings = settings(&config, incarnation);
        let standing = settings.standing.clone();
        let loading = PlaceLoader::of(&config, &opened).map(|loader| Loading { loader, on_thread: true });
        let (inboxes, queues) = server.start_threads(&net, settings, opened, &backups)?;
        if let (Some(mirror), Some(inbox)) = (&mirror, inboxes.first()) {
            let waker = inbox.waker.clone();
            mirror.set_waker(move || waker.wake());
        }
        let threads = inboxes.iter().map(|inbox| inbox.waker.clone()).collect();
        let (links, queues) = (&backups[..], &queues[..]);
        let parts = MembershipParts { incarnation, standing, threads, links, queues, loading };
        if let Some(membership) = Membership::new(&net, &config, parts) {
            server.start_membership(membership)?;
        }
        server.start_acceptor(net, listener, inboxes, &config)?;
        let (addr, threads, store) = (server.addr(), config.threads, config.store.kind());
        tracing::info!(addr, threads, store, "serving");
        Ok(server)
    }

    /// Starts the threads that own shards. Returns the inbox of each, and its queues to the backups.
    fn start_threads<N>(
        &mut self,
        net: &N,
        settings: ThreadSettings,
        opened: OpenedTables,
        backups: &[BackupLink],
    ) -> Result<(Vec<ThreadInbox<N>>, Vec<ThreadQueues>), ServerError>
    where
        N: Net + Send,
        N::Stream: Send,
        N::Waker: Send + Sync,
    {
        let (mut inboxes, mut all_queues, mut states) = (Vec::new(), Vec::new(), opened.states);
        for tables in opened.threads {
            let (inbox, outlet) = sync_channel::<GreetedConnection<N::Stream>>(INBOX_MAX);
            let (thread, states) = (tables.thread(), states.take());
            let settings = ThreadSettings { thread, ..settings.clone() };
            let (net, health, counters) = (net.clone(), self.health.clone(), self.counters.clone());
            let name = format!("gannet-shard-{thread}");
            let builder = std::thread::Builder::new().name(name.clone());
            // A poll belongs to its thread. The thread creates it and sends back only its waker.
            let (started_sender, started) = sync_channel(1);
            let backups = backups.to_vec();
            let run = move || match ShardThread::new(net, outlet, (tables, states), settings, counters) {
                Ok(mut thread) => {
                    let backups = thread.replicate_to(&backups);
                    let _ = started_sender.send(Ok((thread.waker(), backups)));
                    health.run(&name, || run_thread(thread, &health))
                }
                Err(error) => {
                    let _ = started_sender.send(Err(error));
                    Ok(0)
                }
            };
            self.threads.push(builder.spawn(run).map_err(ServerError::Thread)?);
            let died = || ServerError::Died(format!("thread {thread} did not start"));
            let (waker, (replicators, queues)) = started.recv().map_err(|_| died())??;
            let wake = waker.clone();
            self.health.add_waker(move || wake.wake());
            self.start_replicators(thread, replicators)?;
            all_queues.push(queues);
            inboxes.push(ThreadInbox { inbox, waker });
        }
        Ok((inboxes, all_queues))
    }

    /// Starts what sends the commands of a thread's shards to backups.
    fn start_replicators<N>(&mut self, thread: u32, all: Vec<Replicator<N>>) -> Result<(), ServerError>
    where
        N: Net + Send,
        N::Waker: Send + Sync,
    {
        for (backup, replicator) in all.into_iter().enumerate() {
            let (name, health) = (format!("gannet-backup-{thread}-{backup}"), self.health.clone());
            let run = {
                let name = name.clone();
                move || {
                    health.run(&name, || {
                        replicator.run(|| health.is_ending());
                        Ok(0)
                    })
                }
            };
            let builder = std::thread::Builder::new().name(name);
            self.threads.push(builder.spawn(run).map_err(ServerError::Thread)?);
        }
        Ok(())
    }

    fn start_membership<N>(&mut self, membership: Membership<N>) -> Result<(), ServerError>
    where
        N: Net + Send,
        N::Waker: Send + Sync,
    {
        let (name, health) = ("gannet-membership", self.health.clone());
        let run = move || {
            health.run(name, || {
                membership.run(|| health.is_ending());
                Ok(0)
            })
        };
        let builder = std::thread::Builder::new().name(name.into());
        self.threads.push(builder.spawn(run).map_err(ServerError::Thread)?);
        Ok(())
    }

    fn start_acceptor<N>(
        &mut self,
        net: N,
        listener: N::Listener,
        inboxes: Vec<ThreadInbox<N>>,
        config: &ServerConfig,
    ) -> Result<(), ServerError>
    where
        N: Net + Send,
        N::Stream: Send,
        N::Listener: Send,
        N::Waker: Send + Sync,
    {
        let (started_sender, started) = sync_channel(1);
        let (health, counters) = (self.health.clone(), self.counters.clone());
        let greeter = Greeter::new(config.token.clone(), counters.clone());
        let name = "gannet-accept";
        let run = move || match Acceptor::new(net, listener, inboxes, greeter, counters) {
            Ok(acceptor) => {
                let _ = started_sender.send(Ok(acceptor.waker()));
                health.run(name, || {
                    let mut acceptor = acceptor;
                    while !health.is_ending() {
                        acceptor.run_once(TICK)?;
                    }
                    Ok(())
                })
            }
            Err(error) => {
                let _ = started_sender.send(Err(error));
                Ok(())
            }
        };
        let builder = std::thread::Builder::new().name(name.into());
        self.acceptor = Some(builder.spawn(run).map_err(ServerError::Thread)?);
        let died = |_| ServerError::Died("the acceptor did not start".into());
        let waker: N::Waker = started.recv().map_err(died)??;
        self.health.add_waker(move || waker.wake());
        Ok(())
    }

    /// The address that the server listens on, with the port that was chosen.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Counts of what the server has done so far.
    pub fn served(&self) -> ServerStats {
        ServerStats::read(&self.counters)
    }

    /// How many backups have all rows of all threads, as of the last second. Workers wait for these.
    pub fn joined_backups(&self) -> usize {
        self.counters.threads.iter().map(|thread| thread.backups_joined.get()).min().unwrap_or(0) as usize
    }

    /// Whether the server runs: none of its threads has died.
    pub fn is_running(&self) -> bool {
        !self.health.is_dead()
    }

    /// Waits, at most for `limit`, until a thread of the server has died. Returns which thread, and why.
    pub fn wait_for_death(&self, limit: Duration) -> Option<String> {
        self.health.wait_for_death(limit)
    }

    /// Calls `hook` once when a thread of the server has died, with the thread's name and the reason. If a thread has
    /// died before, calls it at once. Otherwise the dying thread makes the call, so `hook` must not wait.
    pub fn on_death(&self, hook: impl FnOnce(&str) + Send + 'static) {
        self.health.on_death(Box::new(hook));
    }

    /// The server's counters, for the metrics of a running server.
    pub fn shared_counters(&self) -> Arc<ServerCounters> {
        self.counters.clone()
    }

    /// Stops in order: answers the requests that were received whole, and closes the images. Returns the number of rows
    /// of all tables.
    ///
    /// # Errors
    /// An image could not be closed in order, or a thread had died before.
    pub fn stop(mut self) -> Result<u64, ServerError> {
        self.end()
    }

    fn end(&mut self) -> Result<u64, ServerError> {
        self.health.end();
        let (acceptor, threads) = (self.acceptor.take(), std::mem::take(&mut self.threads));
        if self.health.is_dead() && self.health.leave_behind() {
            return Err(ServerError::Died(self.health.why().unwrap_or_default()));
        }
        let mut ended: Result<u64, ServerError> = Ok(0);
        let accepted = acceptor.map(|handle| join_thread(handle).map(|()| 0));
        for result in accepted.into_iter().chain(threads.into_iter().map(join_thread)) {
            ended = match (ended, result) {
                (Ok(rows), Ok(more)) => Ok(rows + more),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        // The thread that died first names the cause. Others may have ended because of it.
        match self.health.why() {
            Some(why) => Err(ServerError::Died(why)),
            None => ended,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if (self.acceptor.is_some() || !self.threads.is_empty())
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "the server did not stop in order");
        }
    }
}
