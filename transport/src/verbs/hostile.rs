//! Peers that know our format and violate it, over real verbs. Each loses its own session, and no other session
//! is affected.

use super::connect::Flow;
use super::stream::VerbsStream;
use super::window::{Credit, Message};
use super::{Verbs, VerbsListener};
use crate::limits::{VERBS_MESSAGE_BYTES, VERBS_MESSAGES_MAX, VERBS_RING_BYTES};
use crate::stream::Stream;
use crate::verbs::resources::cm::QueuePair;
use crate::verbs::resources::datapath::RemoteRing;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How long a thread that polls waits for the device. In a guest, an emulated device needs the processor.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

fn here() -> Option<(Verbs, IpAddr)> {
    let ip = std::env::var("NODE_IP").ok().and_then(|ip| ip.parse().ok());
    if ip.is_none() {
        let _ = writeln!(io::stderr(), "no RDMA device to test with (NODE_IP is not set): skipped");
    }
    ip.map(|ip| (Verbs::open().expect("NODE_IP says that there is a device"), ip))
}

fn pair(verbs: &Verbs, ip: IpAddr) -> (VerbsStream, VerbsStream, VerbsListener) {
    static PORT: AtomicU16 = AtomicU16::new(19_000);
    let addr = SocketAddr::new(ip, PORT.fetch_add(1, Ordering::Relaxed));
    let mut listener = verbs.listen(addr).unwrap();
    let mut asking = verbs.begin_connect(addr, "the other").unwrap();
    let (mut accepted, started): (Option<VerbsStream>, _) = (None, Instant::now());
    loop {
        assert!(started.elapsed() < LIMIT);
        assert_eq!(asking.recv(&mut []).unwrap(), None);
        accepted = accepted.or_else(|| listener.accept().unwrap());
        if let Some(stream) = &mut accepted {
            assert_eq!(stream.recv(&mut []).unwrap(), None);
        }
        if asking.is_open() && accepted.as_ref().is_some_and(VerbsStream::is_open) {
            return (asking, accepted.unwrap(), listener);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Posts messages that exceed our limits.
pub(crate) fn post(stream: &VerbsStream, to: impl FnOnce(&Flow) -> RemoteRing, messages: &[Message]) {
    let session = stream.shared().lock();
    let flow = session.flow.as_ref().unwrap();
    QueuePair::post_messages(&flow.pair, messages, flow.staging_memory(), to(flow)).unwrap();
}

pub(crate) fn message(bytes: usize, credit: Credit) -> Message {
    Message { id: 0, at: 0, bytes, credit, signalled: false }
}

pub(crate) fn end_of(stream: &mut VerbsStream) -> io::Error {
    let (started, mut buffer) = (Instant::now(), vec![0; VERBS_MESSAGE_BYTES]);
    loop {
        assert!(started.elapsed() < LIMIT, "the session goes on");
        match stream.recv(&mut [IoSliceMut::new(&mut buffer)]) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(PAUSE),
            Err(error) => return error,
        }
    }
}

fn still_works(from: &mut VerbsStream, to: &mut VerbsStream) {
    assert_eq!(from.send(&[IoSlice::new(b"still here")]).unwrap(), Some(10));
    let (started, mut buffer) = (Instant::now(), [0; 64]);
    while to.recv(&mut [IoSliceMut::new(&mut buffer)]).unwrap() != Some(10) {
        assert!(started.elapsed() < LIMIT);
        std::thread::sleep(PAUSE);
    }
    assert_eq!(&buffer[..10], b"still here");
}

#[test]
fn garbage_ends_one_session_with_what_it_was() {
    let Some((verbs, ip)) = here() else { return };
    let (mut good, mut good_server, _listener) = pair(&verbs, ip);
    let nothing = Credit::default();
    let flood = vec![message(1, nothing); VERBS_MESSAGES_MAX + 1];
    let overrun = vec![message(VERBS_MESSAGE_BYTES, nothing); VERBS_RING_BYTES / VERBS_MESSAGE_BYTES + 1];
    let cases: [(&[Message], &str); 5] = [
        (&[message(0, Credit { bytes: 1, messages: 0 })], "credit for 1 bytes and 0 messages"),
        (
            &[message(8, Credit { bytes: 0xf_ffff, messages: 0xfff })],
            "credit for 1048575 bytes and 4095 messages",
        ),
        (&[message(0, nothing), message(8, nothing)], "a message after the end"),
        (&flood, "more than 128 messages"),
        (&overrun, "a message of 65536 bytes, but 0 were free"),
    ];
    for (messages, want) in cases {
        let (bad, mut server, _listener) = pair(&verbs, ip);
        // No completion is reaped until all messages have arrived.
        post(&bad, |flow| flow.to, messages);
        std::thread::sleep(Duration::from_millis(300));
        let end = end_of(&mut server);
        assert!(end.kind() == io::ErrorKind::InvalidData && end.to_string().contains(want), "{want}: {end}");
        still_works(&mut good, &mut good_server);
    }
}

#[test]
fn the_key_of_a_ring_opens_nothing_to_another_session() {
    let Some((verbs, ip)) = here() else { return };
    let (mut good, mut good_server, _listener) = pair(&verbs, ip);
    let ring = good.shared().lock().flow.as_ref().unwrap().to;
    let (mut bad, _server, _listener) = pair(&verbs, ip);
    let mut write = message(64, Credit::default());
    write.signalled = true;
    post(&bad, |_| ring, &[write]);
    let end = end_of(&mut bad);
    assert!(end.to_string().contains("remote access error"), "{end}");
    still_works(&mut good, &mut good_server);
    still_works(&mut good_server, &mut good);
}
