//! What a request costs over each driver of tcp, in CPU time: a thread asks on every link and waits for all answers, a
//! thread answers; each has one poll. Rounds in turn, since rates on a shared machine say little.
//!
//! `cargo run --release -p gannet-bench --example requests -- LINKS REQUEST_BYTES ANSWER_BYTES [ROUNDS]`

use gannet_transport::tcp::{Io, Tcp};
use gannet_transport::{Head, Link, LinkError, Listener, Net, Nothing, Poll};
use std::time::{Duration, Instant};

type TcpLink = Link<<Tcp as Net>::Stream>;

const PATIENCE: Duration = Duration::from_secs(30);
const ROUND: Duration = Duration::from_millis(700);

/// Answers every frame on `links` links until all peers have ended.
fn answer(tcp: &Tcp, mut listener: <Tcp as Net>::Listener, links: usize, answer: &[u8]) {
    let (mut poll, mut events) = (tcp.poll().expect("a poll"), Vec::new());
    poll.add_listener(&listener, u64::MAX - 1).expect("a listener");
    let mut open: Vec<Option<TcpLink>> = Vec::new();
    while open.len() < links || open.iter().any(Option::is_some) {
        while let Some(stream) = listener.accept().expect("a connection") {
            let link = Link::new(stream);
            poll.add(link.stream(), open.len() as u64).expect("a stream");
            open.push(Some(link));
        }
        poll.wait(PATIENCE, &mut events).expect("a wait");
        for event in &events {
            let Some(slot) = open.get_mut(event.token as usize) else { continue };
            let Some(link) = slot else { continue };
            link.note(event);
            if serve(link, answer).is_err() {
                *slot = None;
            }
        }
    }
}

fn serve(link: &mut TcpLink, answer: &[u8]) -> Result<(), LinkError> {
    link.flush(&mut Nothing)?;
    while link.is_readable() {
        link.fill(&mut Nothing)?;
        let (receive, transmit) = link.halves();
        while let Some(frame) = receive.peek(&mut Nothing)? {
            let head = Head::new(2, 0, frame.head.id, [0; 4]);
            transmit.send_copy(head, answer).expect("one request a link is under way");
            receive.consume();
        }
        link.flush(&mut Nothing)?;
    }
    Ok(())
}

/// Asks on every link, and waits for all answers.
fn ask(links: &mut [TcpLink], poll: &mut impl Poll, request: &[u8]) {
    for link in &mut *links {
        link.transmit().send_copy(Head::new(1, 0, 0, [0; 4]), request).expect("room for a request");
        link.flush(&mut Nothing).expect("a peer");
    }
    let (mut left, mut events) = (links.len(), Vec::new());
    while left > 0 {
        poll.wait(PATIENCE, &mut events).expect("a wait");
        for event in &events {
            let link = &mut links[event.token as usize];
            link.note(event);
            link.flush(&mut Nothing).expect("a peer");
            while link.is_readable() {
                link.fill(&mut Nothing).expect("a peer");
                while link.receive().peek(&mut Nothing).expect("a sound frame").is_some() {
                    link.receive().consume();
                    left -= 1;
                }
            }
        }
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn round(tcp: &Tcp, links: usize, request: &[u8], answer_bytes: usize) {
    let listener = tcp.listen("127.0.0.1:0").expect("a port");
    let (addr, net) = (listener.addr().to_owned(), tcp.clone());
    let server = std::thread::spawn(move || answer(&net, listener, links, &vec![7; answer_bytes]));
    let mut poll = tcp.poll().expect("a poll");
    let connect = |number| {
        let link = Link::new(tcp.connect(&addr, PATIENCE).expect("a connection"));
        poll.add(link.stream(), number).expect("a stream");
        link
    };
    let mut all: Vec<TcpLink> = (0..links as u64).map(connect).collect();
    (0..3).for_each(|_| ask(&mut all, &mut poll, request));
    let (started, used, mut times) = (Instant::now(), cpu_time(), Vec::new());
    while started.elapsed() < ROUND {
        let asked = Instant::now();
        ask(&mut all, &mut poll, request);
        times.push(asked.elapsed());
    }
    let requests = (times.len() * links) as f64;
    let micros = (cpu_time() - used).as_secs_f64() * 1e6 / requests;
    times.sort_unstable();
    println!(
        "{:8} {links} links, {} and {answer_bytes} bytes: {micros:.1} us of CPU a request; all answers p50 {:.1} us; \
         {requests} requests",
        tcp.io(),
        request.len(),
        times[times.len() / 2].as_secs_f64() * 1e6
    );
    drop(all);
    server.join().expect("the server ends when its peers do");
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let &[links, request, answer, ref rest @ ..] = &numbers[..] else {
        return println!("requests LINKS REQUEST_BYTES ANSWER_BYTES [ROUNDS]");
    };
    for _ in 0..rest.first().copied().unwrap_or(3) {
        for io in [Io::Epoll, Io::Uring] {
            round(&Tcp::new().with_io(io), links, &vec![1; request], answer);
        }
    }
}
