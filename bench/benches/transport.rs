//! How many frames and bytes a second does a link move one way over tcp loopback, one thread a side, and what does a
//! round trip cost? Payloads of 0, 768 bytes (64 keys and weights), 16 KiB and 256 KiB, lent by their owner and received
//! in place; the largest also with checksums, as off loopback. And what does a request cost when 1, 64 or 1000 links,
//! all of one poll a side, have one under way each? Each over epoll and over io_uring, in the same run.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gannet_bench::{criterion, sized};
use gannet_transport::tcp::{Io, Tcp};
use gannet_transport::{Head, Link, LinkError, Listener, Net, Nothing, Owner, Parts, Poll, Stream};
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

/// The drivers that the system offers.
fn drivers() -> Vec<Tcp> {
    let both = [Io::Epoll, Io::Uring].map(|io| Tcp::new().with_io(io));
    both.into_iter().take(if Tcp::new().with_io(Io::Uring).io() == "io_uring" { 2 } else { 1 }).collect()
}

type TcpLink = Link<<Tcp as Net>::Stream>;

/// Reads frames and answers each one marked [`LAST`] with `answer`, on `count` links until all peers have ended.
fn sink(tcp: &Tcp, mut listener: <Tcp as Net>::Listener, count: usize, answer: &[u8]) {
    let (mut poll, mut events) = (tcp.poll().expect("a poll"), Vec::new());
    poll.add_listener(&listener, u64::MAX - 1).expect("a listener");
    let mut links: Vec<Option<TcpLink>> = Vec::new();
    while links.len() < count || links.iter().any(Option::is_some) {
        while let Some(stream) = listener.accept().expect("a connection") {
            let link = Link::new(stream);
            poll.add(link.stream(), links.len() as u64).expect("a stream");
            links.push(Some(link));
        }
        poll.wait(PATIENCE, &mut events).expect("a wait");
        for event in &events {
            let Some(slot) = links.get_mut(event.token as usize) else { continue };
            let Some(link) = slot else { continue };
            link.note(event);
            if serve(link, answer).is_err() {
                *slot = None;
            }
        }
    }
}

fn serve(link: &mut TcpLink, answer: &[u8]) -> Result<(), LinkError> {
    loop {
        if link.is_readable() {
            link.fill(&mut Nothing)?;
        }
        let (receive, transmit) = link.halves();
        while let Some(frame) = receive.peek(&mut Nothing)? {
            if frame.head.aux == LAST {
                let head = Head::new(2, 0, frame.head.id, [0; 4]);
                transmit.send_copy(head, answer).expect("room for an answer");
            }
            receive.consume();
        }
        link.flush(&mut Nothing)?;
        if !link.is_readable() {
            return Ok(());
        }
    }
}

/// A link to a sink in a thread of its own.
struct Pair<P> {
    link: TcpLink,
    poll: P,
    sink: JoinHandle<()>,
}

fn pair(tcp: &Tcp) -> Pair<<Tcp as Net>::Poll> {
    let listener = tcp.listen("127.0.0.1:0").expect("a port");
    let addr = listener.addr().to_owned();
    let net = tcp.clone();
    let sink = std::thread::spawn(move || sink(&net, listener, 1, &[]));
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
    for (bytes, frames) in [(0, 4096), (768, 4096), (16 << 10, 1024), (256 << 10, 256)] {
        for tcp in drivers() {
            one_way_over(c, tcp.io(), &tcp, bytes, frames);
        }
    }
    for tcp in drivers() {
        one_way_over(c, &format!("{}, checksums", tcp.io()), &tcp.with_checksums(), 256 << 10, 256);
    }
}

fn one_way_over(c: &mut Criterion, name: &str, tcp: &Tcp, bytes: usize, frames: usize) {
    let frames = sized(frames, 64);
    let Pair { mut link, mut poll, sink } = pair(tcp);
    let mut owner = Same(vec![7; bytes]);
    // Small frames are counted, large ones weighed.
    let (what, throughput) = if bytes < 16 << 10 {
        ("frames", Throughput::Elements(frames as u64))
    } else {
        ("bytes", Throughput::Bytes((frames * bytes) as u64))
    };
    let mut group = c.benchmark_group(format!("tcp/{what}"));
    group.throughput(throughput);
    group.bench_function(BenchmarkId::new(name, bytes), |b| {
        b.iter(|| send(&mut link, &mut poll, frames, &mut owner));
    });
    group.finish();
    drop(link);
    sink.join().expect("the sink ends when its peer does");
}

fn round_trip(c: &mut Criterion) {
    let mut group = c.benchmark_group("tcp/round trip");
    for bytes in [0, 768] {
        for tcp in drivers() {
            let Pair { mut link, mut poll, sink } = pair(&tcp);
            let mut owner = Same(vec![7; bytes]);
            group.bench_function(BenchmarkId::new(tcp.io(), bytes), |b| {
                b.iter(|| send(&mut link, &mut poll, 1, &mut owner));
            });
            drop(link);
            sink.join().expect("the sink ends when its peer does");
        }
    }
    group.finish();
}

/// A request of 512 bytes on each link, answered with 256: the time until all answers are there.
fn many_links(c: &mut Criterion) {
    let mut group = c.benchmark_group("tcp/requests");
    for count in [1, 64, sized(1000, 100)] {
        group.throughput(Throughput::Elements(count as u64));
        for tcp in drivers() {
            let listener = tcp.listen("127.0.0.1:0").expect("a port");
            let (addr, net) = (listener.addr().to_owned(), tcp.clone());
            let sink = std::thread::spawn(move || sink(&net, listener, count, &[3; 256]));
            let mut poll = tcp.poll().expect("a poll");
            let connect = |number| {
                let link = Link::new(tcp.connect(&addr, PATIENCE).expect("a connection"));
                poll.add(link.stream(), number).expect("a stream");
                link
            };
            let mut links: Vec<TcpLink> = (0..count as u64).map(connect).collect();
            group.bench_function(BenchmarkId::new(tcp.io(), count), |b| {
                b.iter(|| ask_all(&mut links, &mut poll));
            });
            drop(links);
            sink.join().expect("the sink ends when its peers do");
        }
    }
    group.finish();
}

fn ask_all(links: &mut [TcpLink], poll: &mut impl Poll) {
    for link in &mut *links {
        link.transmit().send_copy(Head::new(1, LAST, 0, [0; 4]), &[1; 512]).expect("room for a request");
        link.flush(&mut Nothing).expect("the sink is there");
    }
    let (mut left, mut events) = (links.len(), Vec::new());
    while left > 0 {
        poll.wait(PATIENCE, &mut events).expect("a wait");
        for event in &events {
            let link = &mut links[event.token as usize];
            link.note(event);
            while link.is_readable() {
                link.fill(&mut Nothing).expect("the sink is there");
                while link.receive().peek(&mut Nothing).expect("a sound frame").is_some() {
                    link.receive().consume();
                    left -= 1;
                }
            }
        }
    }
}

criterion_group! { name = benches; config = criterion(); targets = one_way, round_trip, many_links }
criterion_main!(benches);
