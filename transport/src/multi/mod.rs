//! Several transports as one network: shared memory for peers on this host, RDMA for peers that a device
//! reaches, TCP for all others. The transport is chosen for each connection. A log line names it and gives the
//! reason.

mod listener;
mod poll;
mod rdma;
mod select;
mod stream;

pub use listener::MultiListener;
pub use poll::{MultiPoll, MultiWaker};
pub use stream::MultiStream;
use stream::StreamKind;

use crate::error::NetError;
use crate::limits::{FAILED_PROOFS_MAX, RETRY_AFTER, VERBS_MEMORY_BYTES};
use crate::net::{Net, Poll};
use crate::remote::Registrar;
use crate::shm::{self, ShmStream};
use crate::stream::Stream;
use crate::tcp::{Io, Tcp};
use crate::tls::{TlsClient, TlsServer};
use crate::verbs::{BUILT, Verbs};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What carries the bytes.
///
/// ```
/// use gannet_transport::multi::{Transport, Transports};
///
/// assert_eq!(Transports::new().transport(), Transport::Auto);
/// let network = Transports::new().with_transport(Transport::Tcp);
/// assert_eq!(network.transport(), Transport::Tcp);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// A worker uses shared memory if the server is on this host and accepts it; else RDMA, if a device reaches
    /// the server and the server answers; else TCP. A server offers all of them.
    #[default]
    Auto,
    /// TCP only.
    Tcp,
    /// Shared memory only.
    Shm,
    /// RDMA. If RDMA breaks, a worker that had a session with a server continues over TCP. A server offers RDMA only.
    Verbs,
}

/// The network of this machine, over the best transport for each peer.
///
/// ```
/// use gannet_transport::multi::{Transport, Transports};
/// use gannet_transport::{Listener, Net};
/// use std::time::Duration;
///
/// let net = Transports::new().with_transport(Transport::Tcp).with_checksums();
/// let listener = net.listen("127.0.0.1:0")?;
/// let stream = net.connect(listener.addr(), Duration::from_secs(5))?;
/// # drop(stream);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Transports {
    tcp: Tcp,
    transport: Transport,
    token: bool,
    certificates: bool,
    /// TCP uses TLS.
    tls: bool,
    /// Memory for the rings of RDMA sessions, in bytes.
    rdma_bytes: usize,
    choices: Arc<Mutex<HashMap<String, AddressState>>>,
    /// The device, opened at the first use, or the reason why there is none.
    verbs: Arc<OnceLock<Result<Verbs, String>>>,
}

/// The state of a server's address.
#[derive(Debug, Default)]
struct AddressState {
    /// The transport that was chosen last.
    last: &'static str,
    /// Shared memory failed there: when to try it again, and the reason.
    avoid: Option<(Instant, String)>,
    /// How often the peer that offered shared memory failed to prove that it is the server.
    failed_proofs: u32,
}

impl Transports {
    /// The best transport for each peer. TCP uses plain sockets and epoll.
    pub fn new() -> Transports {
        Transports::over(Tcp::new())
    }

    /// The best transport for each peer. TCP uses this configuration.
    pub fn over(tcp: Tcp) -> Transports {
        let (choices, verbs) = (Arc::default(), Arc::default());
        let (token, certificates, tls) = (false, false, false);
        let rdma_bytes = VERBS_MEMORY_BYTES;
        Transports { tcp, transport: Transport::Auto, token, certificates, tls, rdma_bytes, choices, verbs }
    }

    /// This transport only.
    pub fn with_transport(self, transport: Transport) -> Transports {
        Transports { transport, ..self }
    }

    /// Sets the memory for the rings of all RDMA sessions, instead of [`VERBS_MEMORY_BYTES`]. A session takes two
    /// rings, pinned while it exists. Further sessions are refused, and their workers use TCP if they may. Call this
    /// before the first connection or listener.
    pub fn with_rdma_memory(self, bytes: usize) -> Transports {
        Transports { rdma_bytes: bytes, ..self }
    }

    /// Declares that every session begins with proofs of a token. Processes of other users may then use shared
    /// memory too.
    pub fn with_token(self, token: bool) -> Transports {
        Transports { token, ..self }
    }

    /// All payloads over TCP carry checksums.
    pub fn with_checksums(self) -> Transports {
        Transports { tcp: self.tcp.with_checksums(), ..self }
    }

    /// See [`Tcp::with_io`].
    pub fn with_io(self, io: Io) -> Transports {
        Transports { tcp: self.tcp.with_io(io), ..self }
    }

    /// Makes listeners speak TLS over TCP. Over shared memory the kernel reports which user connects. If the
    /// server requires certificates, a token does not open shared memory to other users.
    pub fn with_tls_server(self, tls: TlsServer) -> Transports {
        let certificates = self.certificates | tls.asks_for_certificates();
        Transports { tcp: self.tcp.with_tls_server(tls), certificates, tls: true, ..self }
    }

    /// Makes connections over TCP use TLS.
    pub fn with_tls_client(self, tls: TlsClient) -> Transports {
        Transports { tcp: self.tcp.with_tls_client(tls), tls: true, ..self }
    }

    /// The configured transport.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// What moves the bytes over TCP: "io_uring" or "epoll".
    pub fn io(&self) -> &'static str {
        self.tcp.io()
    }

    /// Begins a session over shared memory, if the server is on this host.
    fn begin_shm(&self, addr: &str) -> Result<ShmStream, NetError> {
        let candidates: Vec<SocketAddr> = self.tcp.names().known(addr)?;
        let stream = shm::begin_shm(addr, &candidates, self.token);
        stream.map_err(|source| match source.mends() {
            true => NetError::Connect { addr: addr.to_owned(), source: source.io() },
            false => NetError::Shm { addr: addr.to_owned(), source },
        })
    }

    fn wrap_shm(&self, stream: ShmStream, addr: &str, why: &str) -> MultiStream {
        self.chosen(addr, "shm", why);
        MultiStream::shm(stream, self.choices.clone())
    }

    /// Why shared memory must not be tried now, if that is so.
    fn avoided(&self, addr: &str) -> Option<String> {
        let choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, why) = choices.get(addr)?.avoid.as_ref()?;
        (Instant::now() < *until).then(|| why.clone())
    }

    /// Logs the chosen transport, if it differs from the last choice.
    fn chosen(&self, addr: &str, transport: &'static str, why: &str) {
        let mut choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let choice = choices.entry(addr.to_owned()).or_default();
        if std::mem::replace(&mut choice.last, transport) != transport {
            tracing::info!(server = addr, transport, why, "chose the transport to a server");
        }
    }

    /// Begins a session over the configured transport, or returns why TCP must be used.
    fn begin(&self, addr: &str, attempt: usize) -> Result<Result<MultiStream, String>, NetError> {
        match self.transport {
            Transport::Tcp => Ok(Err("it was requested".to_owned())),
            Transport::Shm => Ok(Ok(self.wrap_shm(self.begin_shm(addr)?, addr, "it was requested"))),
            Transport::Verbs => self.begin_verbs_only(addr, attempt),
            Transport::Auto => Ok(self.begin_auto(addr).or_else(|shm_error| {
                self.begin_verbs(addr, attempt).map_err(|rdma_error| match BUILT {
                    Some(_) => format!("no shared memory: {shm_error}; no RDMA: {rdma_error}"),
                    None => shm_error,
                })
            })),
        }
    }

    fn begin_auto(&self, addr: &str) -> Result<MultiStream, String> {
        if let Some(why) = self.avoided(addr) {
            return Err(why);
        }
        match self.begin_shm(addr) {
            Ok(stream) => Ok(self.wrap_shm(stream, addr, "the server is on this host")),
            Err(NetError::Shm { source, .. }) => Err(source.to_string()),
            Err(NetError::Connect { source, .. }) => Err(source.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Records that a session over shared memory with this server failed before it was established. Another
/// transport is tried next.
fn avoid(choices: &Mutex<HashMap<String, AddressState>>, addr: &str, why: String) {
    let mut choices = choices.lock().unwrap_or_else(PoisonError::into_inner);
    choices.entry(addr.to_owned()).or_default().avoid = Some((Instant::now() + RETRY_AFTER, why));
}

/// Records that the peer that offered shared memory has not proved that it is the server. Other transports are
/// tried for a time that doubles with each failure.
fn doubt(choices: &Mutex<HashMap<String, AddressState>>, addr: &str, why: String) -> Duration {
    let mut choices = choices.lock().unwrap_or_else(PoisonError::into_inner);
    let choice = choices.entry(addr.to_owned()).or_default();
    let time = RETRY_AFTER * (1 << choice.failed_proofs);
    choice.failed_proofs = (choice.failed_proofs + 1).min(FAILED_PROOFS_MAX);
    choice.avoid = Some((Instant::now() + time, why));
    time
}

impl Default for Transports {
    fn default() -> Self {
        Transports::new()
    }
}

impl From<Tcp> for Transports {
    fn from(tcp: Tcp) -> Transports {
        Transports::over(tcp)
    }
}

impl Net for Transports {
    type Stream = MultiStream;
    type Listener = MultiListener;
    type Poll = MultiPoll;
    type Waker = MultiWaker;

    fn connect(&self, addr: &str, timeout: Duration) -> Result<MultiStream, NetError> {
        let give_up = Instant::now() + timeout;
        let why = loop {
            match self.begin(addr, 0)? {
                Err(why) => break why,
                Ok(stream) => match self.open(stream, addr, give_up) {
                    Ok(stream) => return Ok(stream),
                    // The loop does not try a transport that has failed again, but the next one.
                    Err(error) if self.transport != Transport::Auto || Instant::now() >= give_up => {
                        return Err(error);
                    }
                    Err(_) => {}
                },
            }
        };
        let left = give_up.saturating_duration_since(Instant::now());
        let stream = self.tcp.connect(addr, left)?;
        self.chosen(addr, "tcp", &why);
        Ok(MultiStream::tcp(stream))
    }

    fn begin_connect(&self, addr: &str, attempt: usize) -> Result<MultiStream, NetError> {
        let why = match self.begin(addr, attempt)? {
            Ok(stream) => return Ok(stream),
            Err(why) => why,
        };
        let stream = self.tcp.begin_connect(addr, attempt)?;
        self.chosen(addr, "tcp", &why);
        Ok(MultiStream::tcp(stream))
    }

    fn doubt(&self, addr: &str, stream: &MultiStream, why: &str) -> bool {
        // If only shared memory is configured, there is no other transport.
        let (StreamKind::Shm(stream, _), Transport::Auto) = (stream.kind(), self.transport) else {
            return false;
        };
        let (user, process) = stream.other().unwrap_or_default();
        let text = format!("process {process} of user {user} did not prove that it is the server: {why}");
        let seconds = doubt(&self.choices, addr, text).as_secs();
        tracing::warn!(
            server = addr,
            process,
            user,
            why,
            seconds,
            "this process offers shared memory at the server's address and did not prove that it has the token: \
             shared memory is not tried there for a while"
        );
        true
    }

    fn who_answers(&self, stream: &MultiStream) -> Option<String> {
        let StreamKind::Shm(stream, _) = stream.kind() else { return None };
        let (user, process) = stream.other()?;
        Some(format!(
            "process {process} of user {user} offers shared memory at this address: if it is not the server, end it, or use \
             --transport tcp"
        ))
    }

    fn listen(&self, addr: &str) -> Result<MultiListener, NetError> {
        MultiListener::new(self, addr)
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        self.verbs_registrar()
    }

    fn poll(&self) -> Result<MultiPoll, NetError> {
        Ok(MultiPoll::new(self.tcp.poll()?))
    }

    fn now(&self) -> Duration {
        self.tcp.now()
    }
}

impl Transports {
    /// Waits until the server's rings have arrived.
    fn open(&self, mut stream: MultiStream, addr: &str, give_up: Instant) -> Result<MultiStream, NetError> {
        let failed = |source| NetError::Connect { addr: addr.to_owned(), source };
        let (mut poll, mut events) = (self.poll()?, Vec::new());
        poll.add(&stream, 0)?;
        while !stream.is_open() {
            // No byte can be received before the rings arrive, but errors are reported.
            stream.recv(&mut []).map_err(failed)?;
            let left = give_up.saturating_duration_since(Instant::now());
            if stream.is_open() {
                break;
            }
            if left.is_zero() {
                let text = "the server sent no rings for the session in time";
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, text)));
            }
            poll.wait(left, &mut events)?;
        }
        poll.remove(&stream)?;
        Ok(stream)
    }
}
