//! What a request costs in CPU time over each driver of tcp. One thread sends a request on every link and waits for all
//! answers; another thread answers. Each has one poll. The drivers take turns in rounds, because absolute rates on a
//! shared machine mean little.
//!
//! `cargo run --release -p gannet-bench --example requests -- LINKS REQUEST_BYTES ANSWER_BYTES [ROUNDS]`

use gannet_bench::links::{answer, ask, connect};
use gannet_transport::tcp::{Io, Tcp};
use gannet_transport::{Listener, Net};
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(700);

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn round(tcp: &Tcp, links: usize, request: &[u8], answer_bytes: usize) {
    let listener = tcp.listen("127.0.0.1:0").expect("a port");
    let (addr, net) = (listener.addr().to_owned(), tcp.clone());
    let server = std::thread::spawn(move || answer(&net, listener, links, &vec![7; answer_bytes]));
    let mut poll = tcp.poll().expect("a poll");
    let mut all = connect(tcp, &mut poll, &addr, links);
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
