//! The device of this process, which all sessions share: memory for messages, the protection domain of readable
//! memory, the thread that closes sessions, and the addresses that RDMA did not reach.

use super::connect::VerbsListener;
use super::error::DeviceError;
use super::session::VerbsSession;
use super::stream::VerbsStream;
use super::teardown::{Ending, TeardownThread};
use crate::error::NetError;
use crate::limits::{RETRY_AFTER, VERBS_MEMORY_BYTES, VERBS_RETRY_AFTER, VERBS_RING_BYTES};
use crate::remote::{ReadCapability, Region, Registrar};
use crate::verbs::resources::cm::QueuePair;
use crate::verbs::resources::memory::{RegionBlock, Regions};
use crate::verbs::resources::objects::{Access, Completions, Context, Depths, Domain, MemoryRegistration};
use crate::verbs::resources::queues::Queues;
use crate::verbs::resources::vendors;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// RDMA on this host. Clones share everything.
#[derive(Clone)]
pub struct Verbs(Arc<Inner>);

struct Inner {
    context: Context,
    /// The protection domain of readable memory: every session that may read can read what is registered here.
    /// (Memory that peers may write is elsewhere: each session has its own domain for it.)
    shared: Arc<Domain>,
    answering: ReadCapability,
    /// The depth of its queues.
    queues: Queues,
    memory: Arc<Regions>,
    ender: TeardownThread,
    failures: Mutex<HashMap<Arc<str>, Failure>>,
    /// The addresses that it has reached at least once.
    reached: Mutex<HashSet<Arc<str>>>,
    registered: Arc<AtomicU64>,
}

/// How a session failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionFault {
    /// It was open, and broke.
    Broke,
    /// The peer did not answer.
    Silent,
    /// It could not be made.
    Refused,
}

/// An address that RDMA did not reach, or where a session broke.
struct Failure {
    at: Instant,
    why: String,
    /// For how long the address is not tried. (After a session that breaks, or one request without an answer,
    /// the next attempt is made at once: rdma_cm itself waits for seconds before it resends a request.)
    pause: Duration,
}

impl Verbs {
    /// Opens the first device with an active port.
    ///
    /// # Errors
    /// When there is none, or it cannot be used: the text says what to do.
    pub fn open() -> io::Result<Verbs> {
        Verbs::open_with(VERBS_MEMORY_BYTES)
    }

    /// Opens the device with this much memory for the rings of all sessions.
    ///
    /// # Errors
    /// Those of [`Verbs::open`].
    pub fn open_with(memory_bytes: usize) -> io::Result<Verbs> {
        let none = |why: &str| {
            let text = format!("no RDMA device can be used: {why}; `gannet doctor` says more");
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        let mut contexts = Context::all().map_err(|error| none(&error.to_string()))?;
        let devices = super::devices();
        let is_iwarp = |name: &str| devices.iter().any(|device| device.name == name && device.is_iwarp());
        let of_iwarp: Vec<String> =
            contexts.iter().map(|context| context.name()).filter(|name| is_iwarp(name)).collect();
        contexts.retain(|context| !is_iwarp(&context.name()));
        if contexts.is_empty() && !of_iwarp.is_empty() {
            return Err(none(&format!("{}: {}", of_iwarp.join(", "), super::IWARP)));
        }
        let active = |context: &&Context| {
            let name = context.name();
            devices
                .iter()
                .any(|device| device.name == name && device.ports.iter().any(|port| port.is_active()))
        };
        let chosen = contexts.iter().find(active).or(contexts.first());
        let context = *chosen.ok_or_else(|| none("there is none"))?;
        let queues = queues_of(context)?;
        let inner = Inner {
            context,
            shared: Domain::new(context)?,
            answering: vendors::answering(context.limits()?.vendor),
            queues,
            memory: Regions::new(memory_bytes, VERBS_RING_BYTES)?,
            ender: TeardownThread::default(),
            failures: Mutex::default(),
            reached: Mutex::default(),
            registered: Arc::default(),
        };
        Ok(Verbs(Arc::new(inner)))
    }

    /// The device's name.
    pub fn device(&self) -> String {
        self.0.context.name()
    }

    /// Listens on an address, with its port.
    ///
    /// # Errors
    /// When no device has the address, or the port is taken.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<VerbsListener> {
        VerbsListener::new(self, addr)
    }

    /// Begins to connect. Sent bytes are transmitted when the peer has answered. `name` is the peer's name in
    /// messages.
    ///
    /// # Errors
    /// When the attempt cannot begin.
    pub fn begin_connect(&self, addr: SocketAddr, name: &str) -> io::Result<VerbsStream> {
        let session = VerbsSession::begin(self, addr, name.into());
        let session =
            session.inspect_err(|error| self.failed(&name.into(), SessionFault::Refused, &error.to_string()));
        session.map(VerbsStream::new)
    }

    /// The registrar that makes memory readable by connected peers.
    pub fn registrar(&self) -> Arc<dyn Registrar> {
        Arc::new(self.clone())
    }

    /// Why this peer must not be tried now, if it has just failed.
    pub fn avoided(&self, name: &str) -> Option<String> {
        let failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failures.get(name)?;
        (failure.at.elapsed() < failure.pause).then(|| failure.why.clone())
    }

    /// Whether there was a session with this peer.
    pub fn has_reached(&self, name: &str) -> bool {
        self.0.reached.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    pub(crate) fn reached(&self, name: &Arc<str>) {
        self.0.reached.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
    }

    /// Records that a session with this peer could not be made, or broke.
    pub(crate) fn failed(&self, name: &Arc<str>, failed: SessionFault, why: &str) {
        let mut failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, failure| failure.at.elapsed() <= RETRY_AFTER);
        let pause = match failed {
            SessionFault::Broke | SessionFault::Silent if !failures.contains_key(name) => Duration::ZERO,
            // The peer may only be down and come back with RDMA: try other transports for a time, and then RDMA
            // again.
            SessionFault::Refused | SessionFault::Silent if self.has_reached(name) => VERBS_RETRY_AFTER,
            _ => RETRY_AFTER,
        };
        failures.insert(name.clone(), Failure { at: Instant::now(), why: why.to_owned(), pause });
    }

    pub(crate) fn reads(&self) -> u8 {
        self.0.queues.reads_at_once
    }

    /// The queue depths of a session of this device.
    pub(crate) fn queues(&self, context: Context) -> io::Result<Queues> {
        if context == self.0.context { Ok(self.0.queues) } else { queues_of(context) }
    }

    pub(crate) fn take_block(&self) -> Option<RegionBlock> {
        self.0.memory.take()
    }

    /// The number of sessions that have memory, including those that are closing.
    pub fn sessions(&self) -> usize {
        (self.0.memory.bytes() - self.0.memory.free_bytes()) / (2 * VERBS_RING_BYTES)
    }

    pub(crate) fn no_memory(&self) -> io::Error {
        let text = format!(
            "all {} bytes of memory for RDMA sessions (--rdma-memory), of which each takes {}, are in use",
            self.0.memory.bytes(),
            2 * VERBS_RING_BYTES
        );
        io::Error::new(io::ErrorKind::OutOfMemory, text)
    }

    /// Checks that there is memory for another session.
    pub(crate) fn check_memory(&self) -> io::Result<()> {
        if self.0.memory.free_bytes() >= 2 * VERBS_RING_BYTES {
            return Ok(());
        }
        Err(self.no_memory())
    }

    /// A queue pair for READs, if this is the device with which readable memory is registered.
    pub(crate) fn reading_pair(&self, context: Context) -> io::Result<Option<QueuePair>> {
        if context != self.0.context || self.reads() == 0 {
            return Ok(None);
        }
        // A failure ends all operations in flight, and each of them is then reported.
        let completions = Completions::new(context, self.0.queues.reads + 1)?;
        let depths = Depths { sends: self.0.queues.reads, receives: 1, inline: 0 };
        QueuePair::new(&self.0.shared, &completions, depths).map(Some)
    }

    pub(crate) fn read_depth(&self) -> usize {
        self.0.queues.reads
    }

    /// Registers memory for READs to land in, in the domain of [`Verbs::reading_pair`].
    pub(crate) fn register_landing(&self, addr: usize, bytes: usize) -> io::Result<MemoryRegistration> {
        self.register_as(addr, bytes, Access::LocalWrite).map_err(io::Error::other)
    }

    fn register_as(
        &self,
        addr: usize,
        bytes: usize,
        access: Access,
    ) -> Result<MemoryRegistration, DeviceError> {
        MemoryRegistration::new(&self.0.shared, addr, bytes, access)
            .map_err(|source| self.0.context.not_registered(bytes, source))
    }

    /// Closes a session whose stream was dropped: its last bytes are still sent, within a time limit.
    pub(crate) fn end(&self, session: Arc<dyn Ending>) {
        self.0.ender.end(session);
    }
}

/// The queue depths of a device. Logs a device that has less than requested.
fn queues_of(context: Context) -> io::Result<Queues> {
    let (device, wanted) = (context.name(), Queues::WANTED);
    let queues = Queues::of(&device, &context.limits()?).map_err(io::Error::other)?;
    if (queues.sends, queues.reads) != (wanted.sends, wanted.reads) {
        let (sends, reads) = (queues.sends, queues.reads);
        tracing::warn!(
            device,
            sends,
            wanted = wanted.sends,
            reads,
            "the device's queues are small, so RDMA is slower"
        );
    }
    Ok(queues)
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verbs").field(&self.device()).finish()
    }
}

impl Registrar for Verbs {
    fn register(&self, addr: usize, bytes: usize) -> Result<Region, NetError> {
        let key = self.register_as(addr, bytes, Access::RemoteRead)?;
        let counted = Counted(self.0.registered.clone());
        counted.0.fetch_add(1, Ordering::Relaxed);
        let rkey = key.rkey();
        Ok(Region { addr: addr as u64, bytes: bytes as u64, rkey, held: Box::new((key, counted)) })
    }

    fn answering(&self) -> ReadCapability {
        self.0.answering
    }

    fn regions(&self) -> u64 {
        self.0.registered.load(Ordering::Relaxed)
    }
}

struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
