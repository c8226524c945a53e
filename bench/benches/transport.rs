//! Three questions about links over tcp loopback, each measured over epoll and over io_uring in the same run:
//! - How many frames and bytes a second does a link move one way, with one thread a side?
//! - What does a round trip cost? Payloads have 0 bytes, 768 bytes (64 keys and weights), 16 KiB and 256 KiB. They are
//!   lent by their owner and received in place; the largest also runs with checksums, as off loopback.
//! - What does a request cost if 1, 64 or 1000 links of one poll a side each have one in flight?
#![allow(missing_docs)]

mod settings;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gannet_bench::links::{LAST, PATIENCE, TcpLink, answer, ask, connect};
use gannet_bench::sized;
use gannet_transport::tcp::{Io, Tcp};
use gannet_transport::{Head, Link, Listener, Net, Owner, Parts, Poll, Stream};
use settings::criterion;
use std::thread::JoinHandle;

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

/// The drivers that this system has.
fn drivers() -> Vec<Tcp> {
    let both = [Io::Epoll, Io::Uring].map(|io| Tcp::new().with_io(io));
    both.into_iter().take(if Tcp::new().with_io(Io::Uring).io() == "io_uring" { 2 } else { 1 }).collect()
}

/// A link to a sink that runs in its own thread.
struct Pair<P> {
    link: TcpLink,
    poll: P,
    sink: JoinHandle<()>,
}

fn pair(tcp: &Tcp) -> Pair<<Tcp as Net>::Poll> {
    let listener = tcp.listen("127.0.0.1:0").expect("a port");
    let addr = listener.addr().to_owned();
    let net = tcp.clone();
    let sink = std::thread::spawn(move || answer(&net, listener, 1, &[]));
    let mut poll = tcp.poll().expect("a poll");
    let link = connect(tcp, &mut poll, &addr, 1).remove(0);
    Pair { link, poll, sink }
}

/// Sends `frames` frames and waits for the answer to the last one.
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
        // A frame that found no space is posted when there is space; no event reports it.
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
    // Throughput of small frames is in frames, that of large ones in bytes.
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

/// A request of 512 bytes on each link, answered with 256: the time until all answers have come.
fn many_links(c: &mut Criterion) {
    let mut group = c.benchmark_group("tcp/requests");
    for count in [1, 64, sized(1000, 100)] {
        group.throughput(Throughput::Elements(count as u64));
        for tcp in drivers() {
            let listener = tcp.listen("127.0.0.1:0").expect("a port");
            let (addr, net) = (listener.addr().to_owned(), tcp.clone());
            let sink = std::thread::spawn(move || answer(&net, listener, count, &[3; 256]));
            let mut poll = tcp.poll().expect("a poll");
            let mut links = connect(&tcp, &mut poll, &addr, count);
            group.bench_function(BenchmarkId::new(tcp.io(), count), |b| {
                b.iter(|| ask(&mut links, &mut poll, &[1; 512]));
            });
            drop(links);
            sink.join().expect("the sink ends when its peers do");
        }
    }
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = one_way, round_trip, many_links }
criterion_main!(benches);
