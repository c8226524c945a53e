//! A session over a scripted stream, which fuzzing drives. No socket, no thread, no clock.

use crate::config::SessionLimits;
use crate::counters::server::ServerCounters;
use crate::hostile::frames::{KEY_BIT, schema};
use crate::peers::buffers::RequestBuffers;
use crate::peers::keysets::Keysets;
use crate::peers::memory::SessionMemory;
use crate::places::incarnations::Incarnations;
use crate::server_tables::ServerTables;
use crate::sessions::context::{GreetedConnection, RequestContext};
use crate::sessions::greeting::{Greeter, Stage};
use crate::sessions::session::Session;
use crate::tables::identities::{Identities, IdentityClaim};
use gannet_core::{DATA_PUSHERS, PushName, Read, Schema, Store, TableIdentity, TableUid, Write};
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::limits::{FRAME_BYTES_MAX, HEAD_BYTES};
use gannet_transport::{Event, FLAG_PAYLOAD_CRC, Head, Link, Stream};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::{HelloFrame, RefusedFrame, WelcomeFrame};
use gannet_wire::log_limiter::LogLimiter;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{HelloV1, WelcomeV1};
use gannet_wire::token::Token;
use std::cell::RefCell;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Delivers its bytes in chunks, and takes answers in chunks. Now and then it does neither.
struct Scripted {
    bytes: Vec<u8>,
    at: usize,
    chunk: usize,
    calls: usize,
    answers: Rc<RefCell<Vec<u8>>>,
}

impl Stream for Scripted {
    fn recv(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        self.calls += 1;
        if self.at == self.bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.calls.is_multiple_of(3) {
            return Ok(None);
        }
        let mut got = 0;
        for buffer in buffers {
            let here = buffer.len().min(self.chunk - got).min(self.bytes.len() - self.at);
            buffer[..here].copy_from_slice(&self.bytes[self.at..self.at + here]);
            (self.at, got) = (self.at + here, got + here);
        }
        Ok(Some(got))
    }

    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.calls += 1;
        if self.calls.is_multiple_of(5) {
            return Ok(None);
        }
        let mut capacity = self.chunk.max(1000);
        let before = capacity;
        for buffer in buffers {
            let here = buffer.len().min(capacity);
            self.answers.borrow_mut().extend_from_slice(&buffer[..here]);
            capacity -= here;
        }
        Ok(Some(before - capacity))
    }

    fn peer(&self) -> Arc<str> {
        "script".into()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn transport(&self) -> &'static str {
        "script"
    }
}

/// Plays these bytes, as what follows a hello, to a session of a new server, in chunks of at most `chunk` bytes. Checks
/// that a row that no script may touch stays as it is, and that the answers are frames.
///
/// # Panics
/// If the server panics, or a promise is broken.
pub fn play(bytes: Vec<u8>, chunk: usize) {
    let counters = ServerCounters::new(1);
    // Scripts name this incarnation and this id.
    let (store, incarnation, uid) = (Store::memory(), 1, TableUid([1; 16]));
    let identities = Arc::new(Identities::new(store.clone(), incarnation, None));
    let mut tables = ServerTables::new(store, identities, 0, counters.clone());
    let guarded = Schema { name: "kept".into(), shards: 1, ..schema(1) };
    for schema in std::iter::once(guarded).chain([0, 1, 3].map(|n| Schema { shards: 2, ..schema(n) })) {
        let claim =
            IdentityClaim { identity: TableIdentity { uid, server: 0, servers: 1 }, make_in: incarnation };
        assert!(tables.open(schema, claim).is_ok());
    }
    let own = PushName { pusher: 900, incarnation: 1, seq: 1, row: 0 };
    let (keys, values) = ([5, !KEY_BIT], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let shards = tables.all[0].shards.as_mut().expect("one shard is here");
    shards.push(&own, Write::Gradient, &keys, None, &values).expect("a sound push");

    let answers = Rc::<RefCell<Vec<u8>>>::default();
    let link = Link::new(Scripted { bytes, at: 0, chunk, calls: 0, answers: answers.clone() });
    let hello = HelloV1 { pusher: 3, incarnation: 1, thread: 0 };
    let limits = SessionLimits::default();
    let (buffers, keysets) = (SessionMemory::new(limits.buffer_bytes), SessionMemory::new(1 << 20));
    let welcome = (WelcomeFrame::default(), WelcomeV1 { incarnation: 1, session: 1, threads: 1 });
    let greeted = GreetedConnection { link, hello, hello_id: 0 };
    let keysets = Keysets::new(1 << 19, keysets);
    let mut session = Session::new(greeted, welcome, &limits, keysets, buffers, Duration::ZERO);
    let (mut scratch, mut log_limiter, mut turns) = (RequestBuffers::default(), LogLimiter::default(), 0u32);
    let (mut scheduler, mut incarnations) = (Schedulers::default(), Incarnations::default());
    let mut runs = Registry::default();
    let read_time = || Duration::ZERO;
    loop {
        let all = Event { token: 0, readable: true, writable: true, closed: false };
        session.note(&all);
        let (tables, scratch, log_limiter) = (&mut tables, &mut scratch, &mut log_limiter);
        let (scheduler, incarnations) = (Some(&mut scheduler), Some(&mut incarnations));
        let runs = Some(&mut runs);
        let mut context = RequestContext {
            tables,
            scratch,
            counters: &counters.threads[0],
            log_limiter,
            scheduler,
            runs,
            incarnations,
            now: &read_time,
        };
        if session.turn(&mut context, Duration::ZERO).is_err() {
            break;
        }
        turns += 1;
        assert!(turns < 20_000_000, "a session that never ends");
    }
    read_answers(&answers.borrow());
    let mut now = [0.0; 6];
    let shards = tables.all[0].shards.as_mut().expect("one shard is here");
    shards.pull(&keys, Read::State, &mut now, None).expect("a sound pull");
    assert_eq!(now, values, "a row that nobody pushed to has changed");
}

/// Plays these bytes to a server's greeter, with a token that nobody has, or without a token. The greeter must accept a
/// hello exactly if it is the first frame, names a worker, and no token is asked for. Checks that the answers are
/// frames.
///
/// # Panics
/// If the greeter panics, or a promise is broken.
pub fn greet(bytes: Vec<u8>, chunk: usize, token: bool) {
    let due = first_hello(&bytes).filter(|(hello, _)| !token && hello.pusher < DATA_PUSHERS);
    let token = token.then(|| Token::new(&[0x5A; 32]).expect("long enough"));
    let mut greeter = Greeter::new(token, ServerCounters::new(1));
    let answers = Rc::<RefCell<Vec<u8>>>::default();
    let mut link = Link::new(Scripted { bytes, at: 0, chunk, calls: 0, answers: answers.clone() });
    let (mut stage, mut turns) = (Stage::New, 0u32);
    let heard = loop {
        link.note(&Event { token: 0, readable: true, writable: true, closed: false });
        match greeter.hear(&mut link, &mut stage) {
            Ok(Some(hello)) => break Some(hello),
            Ok(None) => {}
            Err(unfit) => {
                greeter.refuse(&mut link, unfit, Duration::ZERO);
                break None;
            }
        }
        turns += 1;
        assert!(turns < 20_000_000, "a greeting that never ends");
    };
    assert_eq!(heard, due, "who was let in");
    read_answers(&answers.borrow());
}

/// The hello that these bytes begin with, if they do.
fn first_hello(bytes: &[u8]) -> Option<(HelloV1, u64)> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let head = Head::decode(head).ok().filter(|head| HelloFrame::decode(head).is_ok())?;
    let payload = rest.get(..head.len as usize).filter(|_| head.len as usize <= FRAME_BYTES_MAX)?;
    if head.flags & FLAG_PAYLOAD_CRC != 0 && crc32c::crc32c(payload) != head.payload_crc {
        return None;
    }
    Some((control::open(payload).ok()?, head.id))
}

/// Checks that every answer is a frame of a kind that answers.
fn read_answers(mut bytes: &[u8]) {
    while let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) {
        let head = Head::decode(head).expect("the server sends frames");
        assert!(head.kind == RefusedFrame::KIND || head.kind.is_multiple_of(2) && head.kind > 0, "{head:?}");
        // The link may have ended in the middle of one.
        bytes = rest.get(head.len as usize..).unwrap_or_default();
    }
}
