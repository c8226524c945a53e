//! The simulated world: connections as two directions of bytes in flight, a clock, and faults.
//!
//! A link over TCP delivers bytes in order or fails. So the faults are these:
//! - Bytes arrive late and in chunks of any size.
//! - A connection is reset at any byte, and everything in flight is lost on both sides.
//! - A direction stalls.
//! - A connect is refused.
//! - An address is cut off for a while.
//! - What one host sends to another arrives only when a cut between them is over, in one direction or in both.

use super::rdma::RegisteredMemory;
use gannet_transport::Prng;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The faults and how often they happen.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// A send breaks its connection: times in a million sends.
    pub reset_per_million: u32,
    /// A connect is refused: times in a million.
    pub refuse_per_million: u32,
    /// A direction stalls for up to `stall_max`: times in a million sends.
    pub stall_per_million: u32,
    /// The longest stall.
    pub stall_max: Duration,
    /// The longest time that bytes are in flight.
    pub delay_max: Duration,
    /// The most bytes in flight in one direction.
    pub window_bytes: usize,
    /// The most bytes that one receive returns; 0 for no limit.
    pub piece_bytes_max: usize,
}

impl Faults {
    /// Only small delays.
    pub fn none() -> Faults {
        Faults {
            reset_per_million: 0,
            refuse_per_million: 0,
            stall_per_million: 0,
            stall_max: Duration::ZERO,
            delay_max: Duration::from_micros(50),
            window_bytes: 256 << 10,
            piece_bytes_max: 0,
        }
    }
}

/// Bytes in flight from one side to the other.
#[derive(Default)]
struct Direction {
    /// In order; each chunk is readable from its time on.
    chunks: VecDeque<(Duration, Vec<u8>)>,
    in_flight: usize,
    /// Bytes ever sent.
    sent: u64,
    taken: u64,
    /// Bytes that were reported to the reader's poll.
    reported: u64,
    /// The sender found no space, and space has not yet been reported to it.
    writer_waits: bool,
    /// The sender has closed its side. The receiver can see it from this time on.
    closed: Option<Duration>,
    close_reported: bool,
    /// Files that were passed and not yet taken.
    files: VecDeque<OwnedFd>,
    /// Whether the sender lets the receiver read its memory.
    reads: bool,
}

impl Direction {
    fn due(&self, now: Duration) -> u64 {
        if self.chunks.is_empty() {
            return self.taken;
        }
        let due = self.chunks.iter().take_while(|(at, _)| *at <= now).map(|(_, bytes)| bytes.len() as u64);
        self.taken + due.sum::<u64>()
    }

    /// The receiver has everything and sees that the sender has closed its side.
    fn has_ended(&self, now: Duration) -> bool {
        self.closed.is_some_and(|at| at <= now) && self.chunks.is_empty()
    }
}

struct Connection {
    /// `[0]`: from the side that connected.
    directions: [Direction; 2],
    reset: bool,
    addr: String,
    /// The hosts of the sides.
    hosts: [Arc<str>; 2],
    /// Which sides still have their stream.
    open: [bool; 2],
}

/// A listening address.
struct Listening {
    /// Tells it from others that had the address.
    id: u64,
    host: Arc<str>,
    /// The connections that wait to be accepted.
    waiting: VecDeque<ConnectionSide>,
}

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionSide {
    pub(super) connection: u64,
    /// 0: the side that connected.
    pub(super) side: usize,
}

/// The events of one side for its poll.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Edge {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) closed: bool,
}

pub(super) struct SimWorld {
    pub(super) now: Duration,
    pub(super) prng: Prng,
    pub(super) faults: Faults,
    /// Whether all sides are on one host, so that files can be passed.
    pub(super) near: bool,
    /// What can be read over RDMA, if there is RDMA.
    pub(super) registered: Option<Arc<RegisteredMemory>>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    next_port: u16,
    listeners: BTreeMap<String, Listening>,
    next_listener: u64,
    cut_off: BTreeMap<String, Duration>,
    /// From one host to another, and until when.
    cuts: Vec<(Arc<str>, Arc<str>, Duration)>,
    /// Connections broken so far, by chance or by a call.
    pub(super) resets: u64,
    /// The first time at which a wait of a process is over.
    pub(super) wake_at: Option<Duration>,
    /// Sends and receives so far, their number at the last step, and the number of steps without any.
    moves: u64,
    moves_seen: u64,
    idle_steps: u32,
}

/// After this many steps without a send or a receive, bytes that no one reads no longer stop the clock.
const IDLE_STEPS_MAX: u32 = 8;

impl SimWorld {
    pub(super) fn new(seed: u64, faults: Faults) -> SimWorld {
        SimWorld {
            now: Duration::from_secs(1),
            prng: Prng::new(seed),
            faults,
            near: false,
            registered: None,
            connections: BTreeMap::new(),
            next_connection: 0,
            next_port: 20_000,
            listeners: BTreeMap::new(),
            next_listener: 0,
            cut_off: BTreeMap::new(),
            cuts: Vec::new(),
            resets: 0,
            wake_at: None,
            moves: 0,
            moves_seen: 0,
            idle_steps: 0,
        }
    }

    /// Returns the address, and the number of the listener.
    pub(super) fn listen(&mut self, addr: &str, host: &Arc<str>) -> io::Result<(String, u64)> {
        let addr = match addr.strip_suffix(":0") {
            Some(host) => {
                self.next_port += 1;
                format!("{host}:{}", self.next_port)
            }
            None => addr.to_owned(),
        };
        if self.listeners.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (id, host, waiting) = (self.next_listener, host.clone(), VecDeque::new());
        self.next_listener += 1;
        self.listeners.insert(addr.clone(), Listening { id, host, waiting });
        Ok((addr, id))
    }

    pub(super) fn unlisten(&mut self, addr: &str, id: u64) {
        if self.listeners.get(addr).is_some_and(|listening| listening.id == id) {
            self.listeners.remove(addr);
        }
    }

    pub(super) fn connect(&mut self, addr: &str, from: &Arc<str>) -> io::Result<ConnectionSide> {
        self.now += Duration::from_micros(50 + self.prng.below(100));
        let to = self.listeners.get(addr).map(|listening| listening.host.clone());
        let is_cut = |to: &Arc<str>| self.cut_until(from, to).or(self.cut_until(to, from)).is_some();
        let cut =
            self.cut_off.get(addr).is_some_and(|until| *until > self.now) || to.as_ref().is_some_and(is_cut);
        if cut || self.prng.chance(self.faults.refuse_per_million) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let Some(listening) = self.listeners.get_mut(addr) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let id = self.next_connection;
        self.next_connection += 1;
        let directions = [Direction::default(), Direction::default()];
        let hosts = [from.clone(), listening.host.clone()];
        let (reset, open, addr) = (false, [true; 2], addr.to_owned());
        self.connections.insert(id, Connection { directions, reset, addr, hosts, open });
        listening.waiting.push_back(ConnectionSide { connection: id, side: 1 });
        Ok(ConnectionSide { connection: id, side: 0 })
    }

    pub(super) fn accept(&mut self, addr: &str, id: u64) -> Option<ConnectionSide> {
        self.listeners.get_mut(addr).filter(|listening| listening.id == id)?.waiting.pop_front()
    }

    pub(super) fn has_waiting(&self, addr: &str, id: u64) -> bool {
        let listening = self.listeners.get(addr).filter(|listening| listening.id == id);
        listening.is_some_and(|listening| !listening.waiting.is_empty())
    }

    /// Delays everything that a host sends to another until then. Neither connects to the other.
    pub(super) fn cut(&mut self, from: &str, to: &str, until: Duration) {
        let now = self.now;
        self.cuts.retain(|(.., until)| *until > now);
        self.cuts.push((from.into(), to.into(), until));
    }

    /// When the last cut from a host to another is over, if there is one now.
    fn cut_until(&self, from: &str, to: &str) -> Option<Duration> {
        let of =
            |(a, b, until): &&(Arc<str>, Arc<str>, Duration)| &**a == from && &**b == to && *until > self.now;
        self.cuts.iter().filter(of).map(|(.., until)| *until).max()
    }

    /// Breaks every connection of a host, and frees the addresses on which it listens.
    pub(super) fn crash(&mut self, host: &str) {
        let is_its = |connection: &Connection| connection.hosts.iter().any(|of| &**of == host);
        let its = self.connections.iter().filter(|(_, connection)| is_its(connection));
        let its: Vec<u64> = its.map(|(id, _)| *id).collect();
        its.into_iter().for_each(|id| self.reset(id));
        self.listeners.retain(|_, listening| &*listening.host != host);
    }

    pub(super) fn peer_name(&self, side: ConnectionSide) -> Arc<str> {
        let Some(connection) = self.connections.get(&side.connection) else { return "gone".into() };
        match side.side {
            0 => connection.addr.as_str().into(),
            _ => format!("sim-peer:{}", side.connection).into(),
        }
    }

    pub(super) fn reset(&mut self, connection: u64) {
        let Some(connection) = self.connections.get_mut(&connection) else { return };
        if !connection.reset {
            connection.reset = true;
            self.resets += 1;
            for direction in &mut connection.directions {
                direction.chunks.clear();
                direction.close_reported = false;
            }
        }
    }

    pub(super) fn reset_all(&mut self, addr: &str) {
        let ids =
            self.connections.iter().filter(|(_, connection)| connection.addr == addr).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            self.reset(id);
        }
    }

    pub(super) fn cut_off(&mut self, addr: &str, until: Duration) {
        self.reset_all(addr);
        self.cut_off.insert(addr.to_owned(), until);
    }

    pub(super) fn close(&mut self, side: ConnectionSide) {
        let at = self.arrives(side, self.now);
        let Some(connection) = self.connections.get_mut(&side.connection) else { return };
        connection.open[side.side] = false;
        connection.directions[side.side].closed = Some(at);
        if connection.open == [false; 2] {
            self.connections.remove(&side.connection);
        }
    }

    /// When what this side sends can arrive that would arrive at `at` if nothing was cut.
    fn arrives(&self, side: ConnectionSide, at: Duration) -> Duration {
        let Some(Connection { hosts, .. }) = self.connections.get(&side.connection) else { return at };
        self.cut_until(&hosts[side.side], &hosts[1 - side.side]).map_or(at, |until| at.max(until))
    }

    pub(super) fn give(&mut self, side: ConnectionSide, file: OwnedFd) -> io::Result<()> {
        if !self.near {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let connection = self.connections.get_mut(&side.connection).ok_or(io::ErrorKind::NotConnected)?;
        connection.directions[side.side].files.push_back(file);
        Ok(())
    }

    pub(super) fn take_given(&mut self, side: ConnectionSide) -> Option<OwnedFd> {
        self.connections.get_mut(&side.connection)?.directions[1 - side.side].files.pop_front()
    }

    pub(super) fn allow_reads(&mut self, side: ConnectionSide) -> bool {
        let connection = self.connections.get_mut(&side.connection);
        let connection = connection.filter(|_| self.registered.is_some());
        connection.map(|connection| connection.directions[side.side].reads = true).is_some()
    }

    pub(super) fn may_read(&mut self, side: ConnectionSide) -> io::Result<()> {
        let connection = self.connections.get(&side.connection).ok_or(io::ErrorKind::NotConnected)?;
        if connection.reset || !connection.open[1 - side.side] || !connection.directions[1 - side.side].reads
        {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let [a, b] = &connection.hosts;
        match self.cut_until(a, b).or(self.cut_until(b, a)) {
            Some(_) => Err(io::ErrorKind::TimedOut.into()),
            None => Ok(()),
        }
    }

    pub(super) fn send(&mut self, side: ConnectionSide, bytes: &[u8]) -> io::Result<Option<usize>> {
        let (faults, now) = (self.faults, self.now);
        if self.prng.chance(faults.reset_per_million) {
            self.reset(side.connection);
        }
        let uncut = self.arrives(side, now);
        let connection = self.connections.get_mut(&side.connection).ok_or(io::ErrorKind::NotConnected)?;
        if connection.reset || connection.directions[1 - side.side].closed.is_some_and(|at| at <= now) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let direction = &mut connection.directions[side.side];
        let space = faults.window_bytes.saturating_sub(direction.in_flight);
        let whole = bytes.len().min(space);
        if whole == 0 {
            direction.writer_waits = true;
            return Ok(None);
        }
        // Sometimes it takes less than fits, so that every byte is a boundary at some time.
        let sent = if self.prng.chance(100_000) { 1 + self.prng.below(whole as u64) as usize } else { whole };
        let mut delay = Duration::from_nanos(self.prng.below(faults.delay_max.as_nanos() as u64 + 1));
        if self.prng.chance(faults.stall_per_million) {
            delay += Duration::from_nanos(self.prng.below(faults.stall_max.as_nanos() as u64 + 1));
        }
        let after = direction.chunks.back().map_or(Duration::ZERO, |(at, _)| *at);
        direction.chunks.push_back((after.max(now + delay).max(uncut), bytes[..sent].to_vec()));
        direction.in_flight += sent;
        self.moves += 1;
        direction.sent += sent as u64;
        direction.writer_waits = sent < bytes.len();
        Ok(Some(sent))
    }

    pub(super) fn recv(&mut self, side: ConnectionSide, out: &mut [u8]) -> io::Result<Option<usize>> {
        let now = self.now;
        let connection = self.connections.get_mut(&side.connection).ok_or(io::ErrorKind::NotConnected)?;
        if connection.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let direction = &mut connection.directions[1 - side.side];
        let due = (direction.due(now) - direction.taken) as usize;
        if due == 0 {
            return if direction.has_ended(now) {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(None)
            };
        }
        let mut want = due.min(out.len());
        if self.faults.piece_bytes_max > 0 {
            want = want.min(1 + self.prng.below(self.faults.piece_bytes_max as u64) as usize);
        }
        let mut got = 0;
        while got < want {
            let Some((at, mut chunk)) = direction.chunks.pop_front() else { break };
            let here = chunk.len().min(want - got);
            out[got..got + here].copy_from_slice(&chunk[..here]);
            got += here;
            if here < chunk.len() {
                chunk.drain(..here);
                direction.chunks.push_front((at, chunk));
            }
        }
        direction.taken += got as u64;
        direction.in_flight -= got;
        self.moves += 1;
        // A short read means "nothing more", so the rest is reported again.
        direction.reported = direction.taken;
        Ok(Some(got))
    }

    /// The changes on this side since the last call. `None` if it has closed its stream.
    pub(super) fn edge(&mut self, side: ConnectionSide) -> Option<Edge> {
        let now = self.now;
        let window = self.faults.window_bytes;
        let connection = self.connections.get_mut(&side.connection)?;
        if !connection.open[side.side] {
            return None;
        }
        let reset = connection.reset;
        let mut edge = Edge::default();
        let incoming = &mut connection.directions[1 - side.side];
        let due = incoming.due(now);
        if due > incoming.reported {
            incoming.reported = due;
            edge.readable = true;
        }
        if (reset || incoming.has_ended(now)) && !incoming.close_reported {
            incoming.close_reported = true;
            edge.closed = true;
            edge.readable = true;
        }
        let outgoing = &mut connection.directions[side.side];
        if outgoing.writer_waits && (outgoing.in_flight < window || reset) {
            outgoing.writer_waits = false;
            edge.writable = true;
        }
        Some(edge)
    }

    /// When the next bytes become due. That is almost now if a poll has not yet reported bytes that have
    /// arrived, unless no one waits at that poll at present.
    pub(super) fn next_due(&mut self) -> Option<Duration> {
        self.idle_steps = if self.moves == self.moves_seen { self.idle_steps + 1 } else { 0 };
        self.moves_seen = self.moves;
        let mut next: Option<Duration> = None;
        for connection in self.connections.values() {
            for (side, direction) in connection.directions.iter().enumerate() {
                if direction.chunks.is_empty() && direction.taken <= direction.reported {
                    continue;
                }
                let reports_soon = self.idle_steps < IDLE_STEPS_MAX && connection.open[1 - side];
                let unreported = reports_soon && direction.due(self.now) > direction.reported;
                let at = match unreported {
                    true => Some(self.now + Duration::from_micros(1)),
                    false => direction.chunks.iter().map(|(at, _)| *at).find(|at| *at > self.now),
                };
                next = [next, at].into_iter().flatten().min();
            }
        }
        next
    }
}
