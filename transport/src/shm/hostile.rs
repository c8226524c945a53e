//! A hostile peer that rewrites the rings (positions and bytes) while they are read and written. Its session
//! must end, or its bytes must be rejected as frames. No side may panic, and a frame must not change after it
//! was checked. The tests choose the peer's steps from seeds; a fuzz target chooses them from any bytes. This
//! is not part of the interface.
use super::memory::{Direction, SharedMemory};
use super::ring::{Ring, RingWriter};
use super::session::{ShmSession, ShmSide};
use super::stream::ShmStream;
use crate::error::LinkError;
use crate::head::Head;
use crate::limits::{FRAME_BYTES_MAX, HEAD_BYTES, LINK_BYTES_MAX, RING_BYTES_LIMITS};
use crate::link::Link;
use crate::owner::NoOwner;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const RING: usize = *RING_BYTES_LIMITS.start();

/// The peer: a second mapping of the same memory, and the socket.
struct Peer {
    memory: SharedMemory,
    socket: OwnedFd,
    writer: RingWriter,
    to_us: Direction,
    from_us: Direction,
}

/// A step that no honest peer takes.
struct Scribble {
    /// Below 13. Kinds above 6 end a session.
    kind: u64,
    random: u64,
    small: u64,
    /// The index of a word of the ring.
    place: usize,
}

/// Our end of a session, and the peer.
fn pair(side: ShmSide) -> io::Result<(Link<ShmStream>, Peer)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let (memory, file) = SharedMemory::create(RING)?;
    let peer = SharedMemory::open(&file, RING as u64).map_err(io::Error::other)?;
    let session = ShmSession::new(ours, side, Some(memory));
    let (to_us, from_us) = (side.incoming(), side.outgoing());
    let peer = Peer { memory: peer, socket: theirs, writer: RingWriter::default(), to_us, from_us };
    Ok((Link::new(ShmStream::new(session, "the peer".into())), peer))
}

impl Peer {
    fn words(&self) -> (Ring<'_, AtomicU64>, Ring<'_, AtomicU64>) {
        (self.memory.ring(self.to_us), self.memory.ring(self.from_us))
    }

    /// Writes a valid frame with this many words of payload.
    fn frame(&mut self, words: usize, id: u64) {
        let mut bytes = vec![7; HEAD_BYTES + 8 * words];
        let len = (bytes.len() - HEAD_BYTES) as u32;
        Head { len, id, ..Head::default() }.encode(&mut bytes[..HEAD_BYTES]);
        let Peer { memory, writer, to_us, .. } = self;
        let ring = memory.ring(*to_us);
        if writer.room(&ring, bytes.len()).is_ok_and(|room| room >= bytes.len()) {
            writer.put(&ring, &bytes);
            let _ = writer.publish(&ring);
        }
    }

    /// Does one step that no honest peer does.
    fn scribble(&mut self, scribble: &Scribble) {
        let &Scribble { kind, random, small, place } = scribble;
        // Our end may be closed, or the socket may be full.
        let packet = |bytes: &[u8]| {
            let _ = rustix::net::send(&self.socket, bytes, SendFlags::DONTWAIT);
        };
        let file = || {
            let _ = super::packet::send_file(&self.socket, self.socket.as_fd());
        };
        let (to_us, from_us) = self.words();
        match kind {
            0 => to_us.data[place].store(random, Relaxed),
            1 => from_us.data[place].store(random, Relaxed),
            2 => from_us.head.store(from_us.tail.load(Relaxed), Relaxed),
            3 => to_us.reader_sleeps.store(random, Relaxed),
            4 => from_us.writer_waits.store(random & 1, Relaxed),
            5 => to_us.head.store(random, Relaxed),
            6 => packet(&[3]),
            7 => to_us.tail.store(to_us.tail.load(Relaxed).wrapping_add(small), Relaxed),
            8 => from_us.head.store(from_us.head.load(Relaxed).wrapping_sub(small), Relaxed),
            9 => to_us.tail.store(random, Relaxed),
            10 => from_us.head.store(random, Relaxed),
            11 => packet(&random.to_le_bytes()),
            _ => file(),
        }
    }
}

/// Receives, checks, and sends every frame back, as a server does.
fn echo(link: &mut Link<ShmStream>, steps: usize, frames: &mut usize) -> Result<(), LinkError> {
    for _ in 0..steps {
        link.fill(&mut NoOwner)?;
        let (receive, transmit) = link.halves();
        while let Some(frame) = receive.peek(&mut NoOwner)? {
            assert!(frame.payload.len() <= FRAME_BYTES_MAX && frame.payload.len() == frame.head.len as usize);
            // A copy in private memory cannot change after it was checked.
            let sum =
                |payload: &[u8]| payload.iter().fold(0u64, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte));
            assert_eq!(sum(frame.payload), std::hint::black_box(sum)(frame.payload));
            *frames += 1;
            if transmit.send_copy(frame.head, frame.payload).is_err() {
                break;
            }
            receive.consume();
        }
        link.flush(&mut NoOwner)?;
        // A poll reads the words too.
        link.stream().session().arm();
        link.stream().session().look(0);
        link.stream().session().disarm();
    }
    Ok(())
}

/// The known reason why a session ended, if it is one.
fn kind_of(error: &LinkError) -> Option<&'static str> {
    let text = error.to_string();
    let kinds = [
        "write position",
        "read position",
        "bad packet",
        "a bad frame",
        "closed the connection",
        "of shared memory, ours is",
        "the server refused shared memory",
        "rings cannot be used",
    ];
    kinds.into_iter().find(|kind| text.contains(kind))
}

/// Lets the peer write and rewrite bytes. `bytes` are read in steps of eleven (kind, random, where). Our end
/// echoes after each step.
///
/// # Panics
/// When it finds a bug: a frame that was not checked, more memory than a link may have, or an end without a known
/// reason.
pub fn rewritten(bytes: &[u8]) {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let side = if first & 1 == 0 { ShmSide::Server } else { ShmSide::Worker };
    // A system without free descriptors or memory is not a bug.
    let Ok((mut link, mut peer)) = pair(side) else { return };
    let mut frames = 0;
    while let Some((&[kind, a, b, c, d, e, f, g, h, low, high], more)) = rest.split_first_chunk::<11>() {
        rest = more;
        let random = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let small = u64::from(u16::from_le_bytes([low, high]));
        match u64::from(kind % 20) {
            kind @ 0..13 => {
                let place = small as usize % (RING / 8);
                peer.scribble(&Scribble { kind, random, small: small << (first >> 7), place });
            }
            _ => peer.frame(small as usize % 2000, random),
        }
        let echoed = echo(&mut link, 1 + usize::from(first >> 6 & 1), &mut frames);
        assert!(link.held_bytes() <= LINK_BYTES_MAX);
        if let Err(error) = echoed {
            assert!(kind_of(&error).is_some(), "{error}");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    fn frame(peer: &mut Peer, prng: &mut Prng) {
        peer.frame(prng.below(200) as usize, prng.next_u64());
    }

    /// A random step of the first `kinds` kinds.
    fn scribble(prng: &mut Prng, kinds: u64) -> Scribble {
        let (random, small) = (prng.next_u64(), prng.below(1 << 17));
        Scribble { kind: prng.below(kinds), random, small, place: prng.below(RING as u64 / 8) as usize }
    }

    #[test]
    fn a_peer_that_rewrites_its_rings_loses_its_session_and_nothing_else() {
        let (mut ends, mut frames, mut lived) = (BTreeMap::<_, usize>::new(), 0, 0);
        // Ten times the seeds of a simulation; `make soak` runs more.
        let seeds =
            std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse::<u64>().ok()).unwrap_or(40) * 10;
        for seed in 0..seeds {
            let side = if seed % 2 == 0 { ShmSide::Server } else { ShmSide::Worker };
            let (mut link, mut peer) = pair(side).unwrap();
            let mut prng = Prng::new(seed);
            // Some seeds only rewrite bytes, others do everything.
            let kinds = [1, 6, 7, 9, 13][seed as usize % 5];
            let ended = (0..300).find_map(|_| {
                for _ in 0..prng.below(4) {
                    frame(&mut peer, &mut prng);
                }
                if prng.below(3) == 0 {
                    peer.scribble(&scribble(&mut prng, kinds));
                }
                echo(&mut link, 1, &mut frames).err()
            });
            match ended {
                Some(error) => {
                    *ends.entry(kind_of(&error).unwrap_or_else(|| panic!("{error}"))).or_default() += 1
                }
                None => lived += 1,
            }
        }
        // Every reason to end occurred, and honest frames came through in between.
        assert!(ends.len() >= 4 && frames > 1_000 && lived > 5, "{ends:?}, {frames} frames, {lived} lived");
    }

    #[test]
    fn a_peer_that_rewrites_its_rings_meanwhile_does_no_more_harm() {
        for seed in 0..24 {
            let (mut link, mut peer) =
                pair(if seed % 2 == 0 { ShmSide::Server } else { ShmSide::Worker }).unwrap();
            let mut prng = Prng::new(seed);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for step in 0..20_000 {
                        if over.load(SeqCst) {
                            break;
                        }
                        match step % 3 {
                            0 => frame(&mut peer, &mut prng),
                            // Only bytes at first.
                            _ => {
                                let kinds = if step < 2_000 || seed % 3 == 0 { 7 } else { 13 };
                                peer.scribble(&scribble(&mut prng, kinds));
                            }
                        }
                    }
                });
                let mut frames = 0;
                let _ = echo(&mut link, 20_000, &mut frames);
                over.store(true, SeqCst);
            });
        }
    }
}
