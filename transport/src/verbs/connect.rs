//! How sessions begin: the steps of rdma_cm on both sides, and the private data that the two sides exchange.
//! Each step is made when its event comes, and no code here waits. This is cold code.

use super::adapter::Verbs;
use super::session::VerbsSession;
use super::staging::Staging;
use super::stream::VerbsStream;
use super::window::Incoming;
use crate::error::NetError;
use crate::limits::{BACKLOG, VERBS_CONNECT_TIME, VERBS_RING_BYTES, WARNING_EVERY};
use crate::verbs::resources::cm::{CmEvent, Id, QueuePair};
use crate::verbs::resources::datapath::{Local, RemoteRing};
use crate::verbs::resources::memory::RegionBlock;
use crate::verbs::resources::objects::{Access, Completions, Context, Depths, Domain, MemoryRegistration};
use crate::verbs::resources::queues::Queues;
use rustix::fd::OwnedFd;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// "GNV" and the version of the protocol over verbs.
const MAGIC: u32 = u32::from_le_bytes(*b"GNV\x01");
/// The status of a rejection if no process listens.
const NOBODY: i32 = 8;
/// Bytes of a [`Hello`].
const HELLO_BYTES: usize = 32;

/// The private data that each side sends while it connects, little-endian: magic, the ring's key u32, its
/// address u64, its size u32, the number of the queue pair for READs u32 (0: none), READs in flight u8, a zero,
/// messages that it accepts u16, zeros.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hello {
    pub(crate) ring: RemoteRing,
    pub(crate) reader: u32,
    pub(crate) reads: u8,
    /// Messages that the peer may send before they are acknowledged.
    pub(crate) messages: u16,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.ring.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.ring.addr.to_le_bytes());
        bytes[16..20].copy_from_slice(&(VERBS_RING_BYTES as u32).to_le_bytes());
        bytes[20..24].copy_from_slice(&self.reader.to_le_bytes());
        bytes[24] = self.reads;
        bytes[26..28].copy_from_slice(&self.messages.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Hello, String> {
        let Some(bytes) = bytes.first_chunk::<HELLO_BYTES>() else {
            return Err(format!("a hello of {} bytes instead of {HELLO_BYTES}", bytes.len()));
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(0) != MAGIC {
            return Err(format!(
                "it speaks protocol {:#010x} instead of {MAGIC:#010x}: run the same gannet on both sides",
                word(0)
            ));
        }
        if word(16) as usize != VERBS_RING_BYTES {
            return Err(format!(
                "a ring of {} bytes, but ours have {VERBS_RING_BYTES}: run the same gannet on both sides",
                word(16)
            ));
        }
        let addr = u64::from(word(8)) | u64::from(word(12)) << 32;
        let messages = u16::from_le_bytes([bytes[26], bytes[27]]);
        if messages == 0 {
            return Err("it accepts no messages: run the same gannet on both sides".to_owned());
        }
        let ring = RemoteRing { addr, key: word(4) };
        Ok(Hello { ring, reader: word(20), reads: bytes[24], messages })
    }
}

/// The progress of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The route to the peer is being resolved.
    Resolving,
    /// The connection request was sent to the peer.
    Requested,
    /// This side has accepted; the peer has not confirmed it.
    Accepted,
    /// Bytes may be sent.
    Open,
}

/// The objects through which a session moves bytes, made when the device is known. The queue pair is dropped
/// before the memory that it uses.
pub(crate) struct Flow {
    pub(crate) pair: QueuePair,
    pub(crate) staging_key: MemoryRegistration,
    pub(crate) staging: Staging,
    pub(crate) ring_key: MemoryRegistration,
    pub(crate) ring: RegionBlock,
    queues: Queues,
    pub(crate) into: Incoming,
    /// The peer's ring, where messages go.
    pub(crate) to: RemoteRing,
}

impl Flow {
    /// Each session has its own protection domain. The key of its ring is sent before the peer has proved its
    /// identity, and must not give access to memory of any other session.
    fn new(verbs: &Verbs, context: Context) -> io::Result<Flow> {
        let queues = verbs.queues(context)?;
        let blocks = verbs.take_block().zip(verbs.take_block());
        let (ring, staging) = blocks.ok_or_else(|| verbs.no_memory())?;
        let domain = Domain::new(context)?;
        let register = |block: &RegionBlock, access| {
            let (addr, bytes) = (block.addr(), block.len());
            MemoryRegistration::new(&domain, addr, bytes, access)
                .map_err(|source| io::Error::other(context.not_registered(bytes, source)))
        };
        let ring_key = register(&ring, Access::RemoteWrite)?;
        let staging_key = register(&staging, Access::Local)?;
        let completions = Completions::new(context, queues.completions())?;
        let mut depths = Depths { sends: queues.sends, receives: queues.receives(), inline: queues.inline };
        let pair = QueuePair::new(&domain, &completions, depths).or_else(|_| {
            // Some devices cannot copy bytes into the request itself, and report that by refusing.
            depths.inline = 0;
            QueuePair::new(&domain, &completions, depths)
        })?;
        let (staging, into) = (Staging::within(staging, queues), Incoming::new(queues));
        Ok(Flow { pair, staging_key, staging, ring_key, ring, queues, into, to: RemoteRing::default() })
    }

    /// Makes the ring ready to be written, because the peer gets its key next.
    fn prepare(&self, id: &Id) -> io::Result<()> {
        self.pair.initialise(id)?;
        self.pair.post_receives(self.queues.receives())
    }

    fn hello(&self, verbs: &Verbs, reading: Option<&QueuePair>) -> Hello {
        let ring = RemoteRing { addr: self.ring.addr() as u64, key: self.ring_key.rkey() };
        Hello {
            ring,
            reader: reading.map_or(0, QueuePair::number),
            reads: verbs.reads(),
            messages: self.queues.messages as u16,
        }
    }

    /// Records where the peer's ring is, and how many messages it accepts.
    fn set_peer(&mut self, hello: &Hello) {
        self.to = hello.ring;
        self.staging.window.limit_messages(hello.messages.into());
    }

    pub(crate) fn staging_memory(&self) -> Local {
        Local { addr: self.staging.addr(), key: self.staging_key.lkey() }
    }
}

impl VerbsSession {
    /// Begins to connect.
    pub(crate) fn begin(verbs: &Verbs, addr: SocketAddr, name: Arc<str>) -> io::Result<VerbsSession> {
        let id = Id::new()?;
        id.resolve_address(addr, VERBS_CONNECT_TIME.as_millis() as i32)?;
        VerbsSession::new(verbs.clone(), id, Phase::Resolving, name)
    }

    /// Makes the steps that the events of rdma_cm require.
    pub(crate) fn step(&mut self) -> io::Result<()> {
        while let Some(event) = self.id.next()? {
            match event {
                CmEvent::AddressResolved => self.id.resolve_route(VERBS_CONNECT_TIME.as_millis() as i32)?,
                CmEvent::RouteResolved => self.send_request()?,
                CmEvent::Answered(private_data) => {
                    let hello = Hello::decode(&private_data).map_err(io::Error::other)?;
                    let flow = self.flow.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                    flow.pair.make_ready(&self.id)?;
                    flow.set_peer(&hello);
                    let reads = hello.reads.min(self.verbs.reads());
                    match &self.reading {
                        Some(pair) if hello.reader != 0 && reads > 0 => {
                            pair.make_ready_to(&self.id, hello.reader, reads)?;
                        }
                        _ => self.reading = None,
                    }
                    self.id.establish()?;
                    self.open();
                }
                CmEvent::Established => self.open(),
                CmEvent::Request(id, _) => id.reject("this side does not listen"),
                CmEvent::Rejected { status, private_data } => return Err(rejected(status, &private_data)),
                CmEvent::Disconnected => {
                    self.reap();
                    self.close();
                }
                CmEvent::Failed { what, status } => {
                    let kind = io::ErrorKind::HostUnreachable;
                    return Err(io::Error::new(kind, format!("{} ({status})", event_in_words(&what))));
                }
            }
        }
        if self.phase != Phase::Open && Instant::now() > self.give_up {
            let text = format!("no answer over RDMA for {} s", VERBS_CONNECT_TIME.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(())
    }

    /// Sends the connection request. The route, and with it the device, is known now.
    fn send_request(&mut self) -> io::Result<()> {
        let context = self.id.context()?;
        let flow = Flow::new(&self.verbs, context)?;
        flow.prepare(&self.id)?;
        self.reading = self.verbs.reading_pair(context)?;
        let hello = flow.hello(&self.verbs, self.reading.as_ref()).encode();
        self.id.connect(&flow.pair, &hello)?;
        self.phase = Phase::Requested;
        self.install(flow)
    }

    /// Accepts the peer that sent this hello.
    fn accept(verbs: &Verbs, id: Id, hello: &Hello) -> io::Result<VerbsSession> {
        let context = id.context()?;
        let mut flow = Flow::new(verbs, context)?;
        flow.prepare(&id)?;
        flow.pair.make_ready(&id)?;
        flow.set_peer(hello);
        let reads = hello.reads.min(verbs.reads());
        let reading = if hello.reader != 0 && reads > 0 { verbs.reading_pair(context)? } else { None };
        if let Some(pair) = &reading {
            pair.make_ready_to(&id, hello.reader, reads)?;
        }
        id.accept(&flow.pair, &flow.hello(verbs, reading.as_ref()).encode())?;
        let peer = id.peer().map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string());
        let mut session = VerbsSession::new(verbs.clone(), id, Phase::Accepted, peer.into())?;
        session.reading = reading;
        session.install(flow)?;
        Ok(session)
    }
}

fn rejected(status: i32, private_data: &[u8]) -> io::Error {
    let reason = private_data.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = match String::from_utf8_lossy(reason) {
        _ if status == NOBODY => "no server listens for RDMA there".to_owned(),
        reason if reason.is_empty() => format!("the other side refuses RDMA (reason {status})"),
        reason => format!("the other side refuses RDMA: {reason}"),
    };
    io::Error::new(io::ErrorKind::ConnectionRefused, text)
}

fn event_in_words(event: &str) -> String {
    match event {
        "RDMA_CM_EVENT_ADDR_ERROR" => "no RDMA device of this host reaches it".to_owned(),
        "RDMA_CM_EVENT_ROUTE_ERROR" => "no route to it over RDMA".to_owned(),
        "RDMA_CM_EVENT_UNREACHABLE" => "it does not answer over RDMA".to_owned(),
        "RDMA_CM_EVENT_CONNECT_ERROR" => "the connection over RDMA failed".to_owned(),
        "RDMA_CM_EVENT_DEVICE_REMOVAL" => "the RDMA device was removed".to_owned(),
        other => other.to_lowercase(),
    }
}

/// Accepts connections over verbs.
pub struct VerbsListener {
    id: Id,
    event_fd: Arc<OwnedFd>,
    verbs: Verbs,
    warned_at: Option<Instant>,
}

impl fmt::Debug for VerbsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsListener").field("verbs", &self.verbs).finish_non_exhaustive()
    }
}

impl VerbsListener {
    pub(crate) fn new(verbs: &Verbs, addr: SocketAddr) -> io::Result<VerbsListener> {
        let id = Id::new()?;
        id.listen(addr, BACKLOG)?;
        let event_fd = Arc::new(rustix::io::fcntl_dupfd_cloexec(id.fd(), 0)?);
        Ok(VerbsListener { id, event_fd, verbs: verbs.clone(), warned_at: None })
    }

    /// Readable when a peer wants to connect.
    pub fn event_fd(&self) -> Arc<OwnedFd> {
        self.event_fd.clone()
    }

    /// The next connection, or `None` if none waits.
    ///
    /// # Errors
    /// When the system does not report which peer waits.
    pub fn accept(&mut self) -> Result<Option<VerbsStream>, NetError> {
        loop {
            let event = self.id.next();
            let event =
                event.map_err(|source| NetError::System { what: "accept a connection over RDMA", source })?;
            match event {
                None => return Ok(None),
                Some(CmEvent::Request(id, private_data)) => match self.admit(id, &private_data) {
                    Ok(session) => return Ok(Some(VerbsStream::new(session))),
                    Err(error) if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_EVERY) => {
                        self.warned_at = Some(Instant::now());
                        tracing::warn!(%error, "cannot accept a connection over RDMA");
                    }
                    Err(_) => {}
                },
                Some(_) => {}
            }
        }
    }

    fn admit(&self, id: Id, private_data: &[u8]) -> io::Result<VerbsSession> {
        let hello = match Hello::decode(private_data) {
            Ok(hello) => hello,
            Err(error) => {
                id.reject(&error);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        };
        if let Err(error) = self.verbs.check_memory() {
            id.reject(&error.to_string());
            return Err(error);
        }
        VerbsSession::accept(&self.verbs, id, &hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_what_it_was() {
        let ring = RemoteRing { addr: 0x0102_0304_0506_0708, key: 9 };
        let hello = Hello { ring, reader: 77, reads: 16, messages: 0x0180 };
        let bytes = hello.encode();
        assert_eq!(&bytes[..20], b"GNV\x01\x09\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\0\0\x08\0");
        let padded: Vec<u8> = bytes.iter().copied().chain([0; 24]).collect();
        let again = Hello::decode(&padded).unwrap();
        assert_eq!(
            (again.ring.addr, again.ring.key, again.reader, again.reads, again.messages),
            (0x0102_0304_0506_0708, 9, 77, 16, 0x0180)
        );
        assert!(Hello::decode(&bytes[..31]).unwrap_err().contains("31 bytes"));
        let mut other = bytes;
        other[3] = 2;
        assert!(Hello::decode(&other).unwrap_err().contains("the same gannet"));
        other = bytes;
        (other[26], other[27]) = (0, 0);
        assert!(Hello::decode(&other).unwrap_err().contains("accepts no messages"));
        other = bytes;
        other[16] = 1;
        assert!(Hello::decode(&other).unwrap_err().contains("a ring of"));
    }
}
