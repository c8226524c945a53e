//! How many frames and bytes a second does a link move one way over tcp loopback, one thread a side, and what does a
//! round trip cost? Payloads of 0, 768 bytes (64 keys and weights), 16 KiB and 256 KiB, lent by their owner and received
//! in place; the largest also with checksums, as off loopback.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gannet_bench::{criterion, sized};
use gannet_transport::tcp::Tcp;
use gannet_transport::{Head, Link, Listener, Net, Nothing, Owner, Parts, Poll, Stream};
use std::thread::JoinHandle;
use std::time::Duration;

/// The frame after which the other side answers.
const LAST: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(10);

/// Lends the same payload for every frame.
struct Same(Vec<u8>);

impl Owner for Same {
    fn parts<'a>(&'a self, _: u64, parts: &mut Parts<'a>) {
        parts.push(&self.0);
    }
    fn sent(&mut self, _: u64) {}
    fn place(&mut self, _: &Head) -> Option<&mut [u8]> {
        None
    }
}

/// Reads frames and answers each one marked [`LAST`], until the peer ends.
fn sink(tcp: &Tcp, mut listener: <Tcp as Net>::Listener) {
    let (mut poll, mut events) = (tcp.poll().expect("a poll"), Vec::new());
    poll.add_listener(&listener, 1).expect("a listener");
    let stream = loop {
        if let Some(stream) = listener.accept().expect("a connection") {
            break stream;
        }
        poll.wait(PATIENCE, &mut events).expect("a wait");
    };
    let mut link = Link::new(stream);
    poll.add(link.stream(), 0).expect("a stream");
    loop {
        if link.is_readable() && link.fill(&mut Nothing).is_err() {
            return;
        }
        let (receive, transmit) = link.halves();
        while let Some(frame) = receive.peek(&mut Nothing).expect("a sound frame") {
            if frame.head.aux == LAST {
                transmit.send(Head::new(2, 0, frame.head.id, [0; 4])).expect("room for an answer");
            }
            receive.consume();
        }
        if link.flush(&mut Nothing).is_err() {
            return;
        }
        if !link.is_readable() {
            poll.wait(PATIENCE, &mut events).expect("a wait");
            events.iter().for_each(|event| link.note(event));
        }
    }
}

/// A link to a sink in a thread of its own.
struct Pair<P> {
    link: Link<<Tcp as Net>::Stream>,
    poll: P,
    sink: JoinHandle<()>,
}

fn pair(tcp: &Tcp) -> Pair<<Tcp as Net>::Poll> {
    let listener = tcp.listen("127.0.0.1:0").expect("a port");
    let addr = listener.addr().to_owned();
    let net = tcp.clone();
    let sink = std::thread::spawn(move || sink(&net, listener));
    let link = Link::new(tcp.connect(&addr, PATIENCE).expect("a connection"));
    let mut poll = tcp.poll().expect("a poll");
    poll.add(link.stream(), 0).expect("a stream");
    Pair { link, poll, sink }
}

/// Sends `frames` frames and waits for the answer to the last.
fn send<S: Stream>(link: &mut Link<S>, poll: &mut impl Poll, frames: usize, owner: &mut Same) {
    let (mut posted, mut events) = (0, Vec::new());
    loop {
        while posted < frames {
            let aux = if posted + 1 == frames { LAST } else { 0 };
            let head = Head::new(1, aux, posted as u64, [0; 4]);
            if link.transmit().post(head, owner.0.len(), 0, owner).is_err() {
                break;
            }
            posted += 1;
        }
        let sent = link.flush(owner).expect("the sink is there");
        if posted == frames && link.is_readable() {
            link.fill(owner).expect("the sink is there");
            if link.receive().peek(owner).expect("a sound frame").is_some() {
                link.receive().consume();
                return;
            }
        }
        // What found no room is posted once there is room: no event will tell of it.
        let waits = if posted < frames { !sent } else { !link.is_readable() };
        if waits {
            poll.wait(PATIENCE, &mut events).expect("a wait");
            events.iter().for_each(|event| link.note(event));
        }
    }
}

fn one_way(c: &mut Criterion) {
    let cases = [
        ("plain", Tcp::new(), 0, 4096),
        ("plain", Tcp::new(), 768, 4096),
        ("plain", Tcp::new(), 16 << 10, 1024),
        ("plain", Tcp::new(), 256 << 10, 256),
        ("checksums", Tcp::new().with_checksums(), 256 << 10, 256),
    ];
    for (name, tcp, bytes, frames) in cases {
        let frames = sized(frames, 64);
        let Pair { mut link, mut poll, sink } = pair(&tcp);
        let mut owner = Same(vec![7; bytes]);
        for (what, throughput) in [
            ("frames", Throughput::Elements(frames as u64)),
            ("bytes", Throughput::Bytes((frames * bytes) as u64)),
        ] {
            // Small frames are counted, large ones weighed.
            if (what == "bytes") != (bytes >= 16 << 10) {
                continue;
            }
            let mut group = c.benchmark_group(format!("tcp/{what}"));
            group.throughput(throughput);
            group.bench_function(BenchmarkId::new(name, bytes), |b| {
                b.iter(|| send(&mut link, &mut poll, frames, &mut owner));
            });
            group.finish();
        }
        drop(link);
        sink.join().expect("the sink ends when its peer does");
    }
}

fn round_trip(c: &mut Criterion) {
    let tcp = Tcp::new();
    let mut group = c.benchmark_group("tcp/round trip");
    for bytes in [0, 768] {
        let Pair { mut link, mut poll, sink } = pair(&tcp);
        let mut owner = Same(vec![7; bytes]);
        group.bench_function(BenchmarkId::new("plain", bytes), |b| {
            b.iter(|| send(&mut link, &mut poll, 1, &mut owner));
        });
        drop(link);
        sink.join().expect("the sink ends when its peer does");
    }
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = one_way, round_trip }
criterion_main!(benches);
