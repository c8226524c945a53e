//! The server: an acceptor and one thread a core, each owning its shards.

mod acceptor;
mod booking;
mod bulk;
mod clocks;
mod dispatch;
#[cfg(test)]
mod fences;
#[cfg(test)]
mod floods;
mod greeting;
mod group;
mod images;
mod keysets;
mod memory;
mod newer;
#[cfg(test)]
mod newer_tests;
#[cfg(test)]
mod refusals;
mod regions;
pub(crate) mod scripted;
mod session;
mod steps;
#[cfg(test)]
mod subscription_tests;
mod subscriptions;
mod sums;
mod tables;
mod thread;
mod vectors;
mod waiting;

use crate::error::{Refusal, ServerError};
use crate::limits::{INBOX_MAX, KEYSET_BYTES_MAX, SPIN, THREADS_MAX, TICK};
use crate::scheduler::feeding::Feeding;
use crate::tally::ServerTally;
use crate::token::{self, Token};
use acceptor::{Acceptor, Door};
use gannet_core::Store;
use gannet_transport::{Listener, Net, Waker};
use greeting::Greeter;
use memory::Memory;
pub use memory::SessionLimits;
use session::Greeted;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tables::Tables;
use thread::{Settings, ShardThread};

/// How a server is to run.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where to listen, `host:port`; port 0 chooses one.
    pub listen: String,
    /// Shard-owning threads, 1 to [`THREADS_MAX`].
    pub threads: usize,
    /// Where images live.
    pub store: Store,
    /// Bytes of keysets that a session may keep on a thread.
    pub keyset_bytes_max: usize,
    /// How long a thread looks for more after small frames before it sleeps.
    pub spin: Duration,
    /// What sessions may do and take.
    pub limits: SessionLimits,
    /// What a worker must prove that it has before anything else of it is heard.
    pub token: Option<Token>,
    /// It keeps a job's book and no tables.
    pub scheduler_only: bool,
    /// It has the data of a job, whose scheduler it is, and feeds the workers.
    pub feeding: Option<Feeding>,
}

impl ServerConfig {
    /// In memory, with one thread a core.
    pub fn new(listen: impl Into<String>) -> ServerConfig {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        ServerConfig {
            listen: listen.into(),
            threads,
            store: Store::memory(),
            keyset_bytes_max: KEYSET_BYTES_MAX,
            spin: SPIN,
            limits: SessionLimits::default(),
            token: None,
            scheduler_only: false,
            feeding: None,
        }
    }

    fn check(&self) -> Result<(), ServerError> {
        if self.threads == 0 || self.threads > THREADS_MAX {
            let allowed = format!("1 to {THREADS_MAX}");
            return Err(ServerError::Config { what: "--threads", got: self.threads, allowed });
        }
        self.limits.check(self.threads)
    }
}

/// What a server has done so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Requests handled.
    pub frames: u64,
    /// Sessions that began.
    pub sessions_begun: u64,
    /// Sessions that ended.
    pub sessions_ended: u64,
    /// Connections that did not prove that they have the token.
    pub token_refusals: u64,
}

impl Served {
    fn read(tally: &ServerTally) -> Served {
        let token_refusals = tally.acceptor.refused[Refusal::Token.place()].get();
        let none = Served { token_refusals, ..Served::default() };
        tally.threads.iter().fold(none, |sum, thread| Served {
            frames: sum.frames + thread.requests(),
            sessions_begun: sum.sessions_begun + thread.sessions().0,
            sessions_ended: sum.sessions_ended + thread.sessions().1,
            token_refusals,
        })
    }
}

/// A running server. [`Server::stop`] ends it in order; dropping it does the same and hides errors.
pub struct Server {
    addr: String,
    stop: Arc<AtomicBool>,
    wake_acceptor: Box<dyn Fn() + Send + Sync>,
    acceptor: Option<JoinHandle<Result<(), ServerError>>>,
    threads: Vec<JoinHandle<Result<u64, ServerError>>>,
    tally: Arc<ServerTally>,
}

/// The settings of thread 0; the others differ in their number.
fn settings(config: &ServerConfig, incarnation: u64) -> Settings {
    let (keyset_bytes_max, spin, limits) = (config.keyset_bytes_max, config.spin, config.limits.clone());
    let (buffers, keysets) = (Memory::new(limits.buffer_bytes), Memory::new(limits.keyset_bytes));
    let (thread, threads) = (0, config.threads as u32);
    let feeding = config.feeding.clone();
    Settings { thread, threads, incarnation, keyset_bytes_max, spin, limits, buffers, keysets, feeding }
}

/// A number that no other life of a server has: what workers keep of rows is compared by it, so chance makes it, not a clock
/// that may have been put back.
fn new_incarnation() -> Result<u64, ServerError> {
    let drawn = token::draw().ok_or_else(|| std::io::Error::other("the system gives no random numbers"));
    let drawn = drawn.map_err(|source| ServerError::Life { source })?;
    Ok(drawn.iter().fold(0, |word, &byte| word.rotate_left(8) ^ u64::from(byte)))
}

impl Server {
    /// Listens and starts the threads.
    ///
    /// # Errors
    /// The address is taken, an option is out of range, or the system gives no thread.
    pub fn start<N>(net: N, config: ServerConfig) -> Result<Server, ServerError>
    where
        N: Net + Send,
        N::Stream: Send,
        N::Listener: Send,
        N::Waker: Send + Sync,
    {
        config.check()?;
        let listener = net.listen(&config.listen)?;
        let addr = listener.addr().to_owned();
        let (stop, tally, incarnation) =
            (Arc::new(AtomicBool::new(false)), ServerTally::new(config.threads), new_incarnation()?);
        let settings = settings(&config, incarnation);
        let (mut doors, mut threads) = (Vec::new(), Vec::new());
        for thread in 0..config.threads as u32 {
            let (inbox, outlet) = sync_channel::<Greeted<N::Stream>>(INBOX_MAX);
            let mut tables = Tables::new(config.store.clone(), thread, tally.clone());
            tables.none = config.scheduler_only;
            let settings = Settings { thread, ..settings.clone() };
            let (net, stop, tally) = (net.clone(), stop.clone(), tally.clone());
            // A poll belongs to its thread: it is made there, and only its waker comes back.
            let (tell, told) = sync_channel(1);
            let run = move || match ShardThread::new(net, outlet, tables, settings, tally) {
                Ok(thread) => {
                    let _ = tell.send(Ok(thread.waker()));
                    run_thread(thread, &stop)
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    Ok(0)
                }
            };
            let name = format!("gannet-shard-{thread}");
            threads.push(std::thread::Builder::new().name(name).spawn(run).map_err(ServerError::Thread)?);
            let waker = told.recv().map_err(|_| ServerError::Died(format!("thread {thread}")))??;
            doors.push(Door { inbox, waker });
        }
        let (tell, told) = sync_channel(1);
        let (stopping, counts) = (stop.clone(), tally.clone());
        let greeter = Greeter::new(config.token.clone(), tally.clone());
        let run = move || match Acceptor::new(net, listener, doors, greeter, counts) {
            Ok(mut acceptor) => {
                let _ = tell.send(Ok(acceptor.waker()));
                while !stopping.load(Relaxed) {
                    acceptor.run_once(TICK)?;
                }
                acceptor.wake_threads();
                Ok(())
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                Ok(())
            }
        };
        let builder = std::thread::Builder::new().name("gannet-accept".into());
        let acceptor = Some(builder.spawn(run).map_err(ServerError::Thread)?);
        let waker: N::Waker = told.recv().map_err(|_| ServerError::Died("acceptor".into()))??;
        tracing::info!(addr, threads = config.threads, store = config.store.kind(), "serving");
        Ok(Server { addr, stop, wake_acceptor: Box::new(move || waker.wake()), acceptor, threads, tally })
    }

    /// The address that it listens on, with the port that was chosen.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// What it has done so far.
    pub fn served(&self) -> Served {
        Served::read(&self.tally)
    }

    /// Whether all its threads run: one that has died of a bug serves nobody any more.
    pub fn is_running(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Its counts, for whoever tells of them while it runs.
    pub fn tally(&self) -> Arc<ServerTally> {
        self.tally.clone()
    }

    /// Stops in order: requests received whole are answered, images are closed. Returns the rows of all tables.
    ///
    /// # Errors
    /// An image could not be closed in order, or a thread had ended before.
    pub fn stop(mut self) -> Result<u64, ServerError> {
        self.end()
    }

    fn end(&mut self) -> Result<u64, ServerError> {
        self.stop.store(true, Relaxed);
        (self.wake_acceptor)();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().map_err(|_| ServerError::Died("acceptor".into()))??;
        }
        let mut rows = 0;
        let mut result = Ok(());
        for (thread, handle) in self.threads.drain(..).enumerate() {
            match handle.join().map_err(|_| ServerError::Died(format!("thread {thread}"))).flatten() {
                Ok(own) => rows += own,
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| rows)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.acceptor.is_some()
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "the server did not stop in order");
        }
    }
}

fn run_thread<N: Net>(mut thread: ShardThread<N>, stop: &AtomicBool) -> Result<u64, ServerError> {
    while !stop.load(Relaxed) {
        if let Err(error) = thread.run_once(TICK) {
            tracing::error!(%error, "a server thread ends");
            return Err(error);
        }
    }
    thread.stop()
}

/// A server without threads of its own: whoever holds it lets it run. What a simulation uses.
pub struct LocalServer<N: Net> {
    addr: String,
    acceptor: Acceptor<N>,
    threads: Vec<ShardThread<N>>,
    tally: Arc<ServerTally>,
}

impl<N: Net> LocalServer<N> {
    /// Listens.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn new(net: N, config: ServerConfig) -> Result<LocalServer<N>, ServerError> {
        config.check()?;
        let listener = net.listen(&config.listen)?;
        let addr = listener.addr().to_owned();
        let tally = ServerTally::new(config.threads);
        let settings = settings(&config, new_incarnation()?);
        let (mut doors, mut threads) = (Vec::new(), Vec::new());
        for thread in 0..config.threads as u32 {
            let (inbox, outlet): (_, Receiver<Greeted<N::Stream>>) = sync_channel(INBOX_MAX);
            let mut tables = Tables::new(config.store.clone(), thread, tally.clone());
            tables.none = config.scheduler_only;
            let settings = Settings { thread, ..settings.clone() };
            let thread = ShardThread::new(net.clone(), outlet, tables, settings, tally.clone())?;
            doors.push(Door { inbox, waker: thread.waker() });
            threads.push(thread);
        }
        let greeter = Greeter::new(config.token, tally.clone());
        let acceptor = Acceptor::new(net, listener, doors, greeter, tally.clone())?;
        Ok(LocalServer { addr, acceptor, threads, tally })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// What it has done so far.
    pub fn served(&self) -> Served {
        Served::read(&self.tally)
    }

    /// As [`Server::tally`].
    pub fn tally(&self) -> Arc<ServerTally> {
        self.tally.clone()
    }

    /// Does everything that there is to do, without sleeping.
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

    /// As [`Server::stop`].
    ///
    /// # Errors
    /// An image could not be closed in order.
    pub fn stop(self) -> Result<u64, ServerError> {
        self.threads.into_iter().map(ShardThread::stop).sum()
    }
}
