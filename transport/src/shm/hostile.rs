//! A peer that rewrites the rings, positions and bytes, while they are read and written: its session ends, or some
//! bytes come that are no frame. Never a panic, and never a frame that changes after it was checked.

use super::memory::{Direction, Memory};
use super::ring::{Ring, Writer};
use super::session::{Session, Side};
use super::stream::ShmStream;
use crate::error::LinkError;
use crate::head::Head;
use crate::limits::{FRAME_BYTES_MAX, HEAD_BYTES, RING_BYTES_LIMITS};
use crate::link::Link;
use crate::owner::Nothing;
use crate::sim::Prng;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const RING: usize = *RING_BYTES_LIMITS.start();

/// The other end: the same memory mapped again, and the socket.
struct Peer {
    memory: Memory,
    socket: OwnedFd,
    writer: Writer,
    to_us: Direction,
    from_us: Direction,
    prng: Prng,
}

/// An end of ours, and the peer.
fn pair(side: Side, seed: u64) -> (Link<ShmStream>, Peer) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let (memory, file) = Memory::create(RING).unwrap();
    let peer = Memory::open(&file, RING as u64).unwrap();
    let session = Session::new(ours, side, Some(memory));
    let (to_us, from_us) = (side.incoming(), side.outgoing());
    let prng = Prng::new(seed);
    let peer = Peer { memory: peer, socket: theirs, writer: Writer::default(), to_us, from_us, prng };
    (Link::new(ShmStream::new(session, "the peer".into())), peer)
}

impl Peer {
    fn words(&self) -> (Ring<'_, AtomicU64>, Ring<'_, AtomicU64>) {
        (self.memory.ring(self.to_us), self.memory.ring(self.from_us))
    }

    /// A frame as it should be.
    fn frame(&mut self) {
        let mut bytes = vec![7; HEAD_BYTES + 8 * self.prng.below(200) as usize];
        let len = (bytes.len() - HEAD_BYTES) as u32;
        Head { len, id: self.prng.next_u64(), ..Head::default() }.encode(&mut bytes[..HEAD_BYTES]);
        let Peer { memory, writer, to_us, .. } = self;
        let ring = memory.ring(*to_us);
        if writer.room(&ring, bytes.len()).is_ok_and(|room| room >= bytes.len()) {
            writer.put(&ring, &bytes);
            let _ = writer.publish(&ring);
        }
    }

    /// Something that no peer of ours does, of the first so many kinds: behind the seventh they end a session.
    fn scribble(&mut self, kinds: u64) {
        let (random, small) = (self.prng.next_u64(), self.prng.below(1 << 17));
        let (place, kind) = (self.prng.below(RING as u64 / 8) as usize, self.prng.below(kinds));
        // It may have gone, or have no room.
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
        link.fill(&mut Nothing)?;
        let (receive, transmit) = link.halves();
        while let Some(frame) = receive.peek(&mut Nothing)? {
            assert!(frame.payload.len() <= FRAME_BYTES_MAX && frame.payload.len() == frame.head.len as usize);
            // Private memory: it does not change under whoever has checked it.
            let sum =
                |payload: &[u8]| payload.iter().fold(0u64, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte));
            assert_eq!(sum(frame.payload), std::hint::black_box(sum)(frame.payload));
            *frames += 1;
            if transmit.send_copy(frame.head, frame.payload).is_err() {
                break;
            }
            receive.consume();
        }
        link.flush(&mut Nothing)?;
        // A poll looks at the words too.
        link.stream().session().arm();
        link.stream().session().look(0);
        link.stream().session().disarm();
    }
    Ok(())
}

fn kind(error: &LinkError) -> &'static str {
    let text = error.to_string();
    let kinds = ["write position", "read position", "bad packet", "a bad frame", "closed the connection"];
    kinds.into_iter().find(|kind| text.contains(kind)).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn a_peer_that_rewrites_its_rings_loses_its_session_and_nothing_else() {
    let (mut ends, mut frames, mut lived) = (BTreeMap::<_, usize>::new(), 0, 0);
    // As many as a simulation's, times ten; `make soak` asks for more.
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse::<u64>().ok()).unwrap_or(40) * 10;
    for seed in 0..seeds {
        let side = if seed % 2 == 0 { Side::Server } else { Side::Worker };
        let (mut link, mut peer) = pair(side, seed);
        // Some only rewrite bytes, some do everything.
        let kinds = [1, 6, 7, 9, 13][seed as usize % 5];
        let ended = (0..300).find_map(|_| {
            for _ in 0..peer.prng.below(4) {
                peer.frame();
            }
            if peer.prng.below(3) == 0 {
                peer.scribble(kinds);
            }
            echo(&mut link, 1, &mut frames).err()
        });
        match ended {
            Some(error) => *ends.entry(kind(&error)).or_default() += 1,
            None => lived += 1,
        }
    }
    // Every way to end was met, and honest frames came through in between.
    assert!(ends.len() >= 4 && frames > 1_000 && lived > 5, "{ends:?}, {frames} frames, {lived} lived");
}

#[test]
fn a_peer_that_rewrites_its_rings_meanwhile_does_no_more_harm() {
    for seed in 0..24 {
        let (mut link, mut peer) = pair(if seed % 2 == 0 { Side::Server } else { Side::Worker }, seed);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for step in 0..20_000 {
                    if over.load(SeqCst) {
                        break;
                    }
                    match step % 3 {
                        0 => peer.frame(),
                        // Bytes only, at first.
                        _ => peer.scribble(if step < 2_000 || seed % 3 == 0 { 7 } else { 13 }),
                    }
                }
            });
            let mut frames = 0;
            let _ = echo(&mut link, 20_000, &mut frames);
            over.store(true, SeqCst);
        });
    }
}
