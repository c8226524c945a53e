//! Sessions over shared memory between processes: which transport is chosen, which side sleeps and which side
//! wakes it, and what remains when one side is killed. Received bytes are compared with the sent ones.

use gannet_transport::Prng;
use gannet_transport::limits::{RING_BYTES, RING_STEP_BYTES};
use gannet_transport::multi::{MultiListener, MultiPoll, MultiStream, Transport, Transports};
use gannet_transport::tcp::{Io, Tcp};
use gannet_transport::{Event, Listener, Net, NetError, Poll, Stream, Waker};
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait of any test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shared memory only. Its poll runs over epoll and, if the system has it, over io_uring.
fn drivers() -> Vec<Transports> {
    let uring = Tcp::new().with_io(Io::Uring);
    let both = if uring.io() == "epoll" { vec![Tcp::new()] } else { vec![Tcp::new(), uring] };
    both.into_iter().map(|tcp| Transports::over(tcp).with_transport(Transport::Shm)).collect()
}

/// Byte `at` of the stream that every test sends.
fn byte(at: usize) -> u8 {
    let mixed = (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8 ^ (mixed >> 32) as u8
}

/// From 1 to 2^(4 + most); small sizes are as frequent as large ones.
fn size(prng: &mut Prng, most: u64) -> usize {
    let bits = 4 + prng.below(most);
    1 + prng.below(1 << bits) as usize
}

fn accept(net: &Transports, listener: &mut MultiListener) -> MultiStream {
    let (mut poll, mut events, started) = (net.poll().unwrap(), Vec::new(), Instant::now());
    poll.add_listener(listener, 7).unwrap();
    loop {
        if let Some(stream) = listener.accept().unwrap() {
            return stream;
        }
        assert!(started.elapsed() < PATIENCE, "nobody connects");
        poll.wait(Duration::from_secs(1), &mut events).unwrap();
    }
}

/// Both ends of a session in this process.
fn pair(net: &Transports) -> (MultiStream, MultiStream) {
    let mut listener = net.listen("127.0.0.1:0").unwrap();
    let addr = listener.addr().to_owned();
    let connecting = net.clone();
    let worker = std::thread::spawn(move || connecting.connect(&addr, PATIENCE).unwrap());
    let server = accept(net, &mut listener);
    (worker.join().unwrap(), server)
}

/// A stream with its own poll.
struct End {
    stream: MultiStream,
    poll: MultiPoll,
    events: Vec<Event>,
    sent: usize,
    got: usize,
}

impl End {
    fn new(net: &Transports, stream: MultiStream) -> End {
        let mut poll = net.poll().unwrap();
        poll.add(&stream, 3).unwrap();
        End { stream, poll, events: Vec::new(), sent: 0, got: 0 }
    }

    fn wait(&mut self) -> Event {
        let started = Instant::now();
        loop {
            self.poll.wait(PATIENCE, &mut self.events).unwrap();
            // Merges the events of the memory and of the socket.
            let seen = self.events.drain(..).reduce(|a, b| Event {
                token: a.token.max(b.token),
                readable: a.readable | b.readable,
                writable: a.writable | b.writable,
                closed: a.closed | b.closed,
            });
            if let Some(event) = seen {
                assert_eq!(event.token, 3);
                return event;
            }
            assert!(started.elapsed() < PATIENCE, "after {} sent, {} received", self.sent, self.got);
        }
    }

    /// Sends this many more bytes, and sleeps while there is no space.
    fn send(&mut self, count: usize) {
        let bytes: Vec<u8> = (self.sent..self.sent + count).map(byte).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (front, back) = rest.split_at(rest.len() / 3);
            match self.stream.send(&[IoSlice::new(front), IoSlice::new(back)]).unwrap() {
                Some(sent) => rest = &rest[sent..],
                None => while !self.wait().writable {},
            }
        }
        self.sent += count;
    }

    /// Receives the bytes that are there, at most `most`: `None` if there are none. Checks each byte.
    fn recv(&mut self, most: usize) -> std::io::Result<Option<usize>> {
        let mut space = vec![0; most];
        let (front, back) = space.split_at_mut(most / 4);
        let got = self.stream.recv(&mut [IoSliceMut::new(front), IoSliceMut::new(back)])?;
        for (at, &got) in space[..got.unwrap_or(0)].iter().enumerate() {
            assert_eq!(got, byte(self.got + at), "at {}", self.got + at);
        }
        self.got += got.unwrap_or(0);
        Ok(got)
    }

    /// Receives this many more bytes, and sleeps until they come.
    fn recv_all(&mut self, count: usize) {
        let until = self.got + count;
        while self.got < until {
            if self.recv(until - self.got).unwrap().is_none() {
                while !self.wait().readable {}
            }
        }
    }
}

/// Both sides sleep between any two steps. A lost wake-up would exceed the longest wait.
#[test]
fn sleepers_are_woken() {
    for net in drivers() {
        let (worker, server) = pair(&net);
        let other = net.clone();
        let thread = std::thread::spawn(move || {
            let mut server = End::new(&other, server);
            for round in 0..3_000 {
                server.recv_all(1 + round % 90);
                server.send(1 + round % 70);
            }
        });
        let mut worker = End::new(&net, worker);
        for round in 0..3_000 {
            worker.send(1 + round % 90);
            worker.recv_all(1 + round % 70);
        }
        thread.join().unwrap();
    }
}

/// A writer that finds the ring full sleeps until there is space. A reader sleeps until there are bytes. Writes
/// have every size.
#[test]
fn bulk_goes_through_a_ring_that_is_smaller() {
    for (seed, net) in drivers().into_iter().enumerate() {
        let (worker, server) = pair(&net);
        let (other, total) = (net.clone(), 12 * RING_BYTES);
        let thread = std::thread::spawn(move || {
            let (mut server, mut prng) = (End::new(&other, server), Prng::new(seed as u64));
            while server.got < total {
                let most = size(&mut prng, 17);
                if server.recv(most).unwrap().is_none() {
                    while !server.wait().readable {}
                }
            }
        });
        let (mut worker, mut prng) = (End::new(&net, worker), Prng::new(77));
        while worker.sent < total {
            let count = size(&mut prng, 17);
            worker.send(count.min(total - worker.sent));
        }
        thread.join().unwrap();
    }
}

/// As in a server: a session is accepted at one poll and served at another, on another thread, with bytes that
/// came before and in between.
#[test]
fn a_session_moves_between_polls() {
    for net in drivers() {
        let (worker, server) = pair(&net);
        let mut worker = End::new(&net, worker);
        let mut server = Some(server);
        for round in 0..20 {
            let (count, stream) = (1 + 1_000 * round, server.take().unwrap());
            worker.send(count);
            let mut first = Box::new(net.poll().unwrap());
            first.add(&stream, 1).unwrap();
            let mut events = Vec::new();
            // Armed, and in a sleep that ends at once or later.
            first.wait(Duration::from_millis(round as u64 % 3), &mut events).unwrap();
            worker.send(count);
            first.remove(&stream).unwrap();
            worker.send(count);
            let other = net.clone();
            let got = (worker.sent - 3 * count, 3 * count);
            server = std::thread::spawn(move || {
                let mut end = End::new(&other, stream);
                end.got = got.0;
                end.recv_all(got.1);
                let End { stream, mut poll, .. } = end;
                poll.remove(&stream).unwrap();
                Some(stream)
            })
            .join()
            .unwrap();
        }
    }
}

/// A stream may read a wake-up itself, or find no space, while its poll waits for a wake-up. The poll does not lose the
/// event.
#[test]
fn a_nudge_that_a_stream_takes_in_is_no_lost_wake_up() {
    for net in drivers() {
        let (worker, server) = pair(&net);
        let (mut worker, mut server) = (End::new(&net, worker), End::new(&net, server));
        let armed = |end: &mut End| {
            while {
                end.poll.wait(Duration::from_millis(1), &mut end.events).unwrap();
                !end.events.is_empty()
            } {}
        };
        for _ in 0..50 {
            // The wake-up for bytes that no one has read.
            armed(&mut server);
            worker.send(1);
            assert!(server.stream.take_given().unwrap().is_none());
            assert!(server.wait().readable);
            server.recv_all(1);
            // The wake-up for bytes that were read before the wake-up was. The next bytes need another one.
            armed(&mut server);
            worker.send(1);
            server.recv_all(1);
            assert_eq!(server.recv(1).unwrap(), None);
            worker.send(1);
            while !server.wait().readable {}
            server.recv_all(1);
            // No space, found while the poll continued to sleep.
            armed(&mut server);
            let bytes: Vec<u8> = (server.sent..server.sent + 2 * RING_BYTES).map(byte).collect();
            let sent = server.stream.send(&[IoSlice::new(&bytes)]).unwrap().unwrap();
            assert!(sent < bytes.len());
            server.sent += sent;
            worker.recv_all(sent);
            while !server.wait().writable {}
        }
    }
}

#[test]
fn a_poll_tells_of_sockets_wakers_and_sessions_alike() {
    for net in drivers() {
        let both = net.clone().with_transport(Transport::Auto);
        let only_tcp = net.clone().with_transport(Transport::Tcp);
        let mut listener = both.listen("127.0.0.1:0").unwrap();
        let addr = listener.addr().to_owned();
        let (mut poll, mut events) = (both.poll().unwrap(), Vec::new());
        poll.add_listener(&listener, u64::MAX - 1).unwrap();
        let mut streams = Vec::new();
        for (token, from) in [&only_tcp, &both, &only_tcp, &both].into_iter().enumerate() {
            let worker = from.begin_connect(&addr, 0).unwrap();
            assert_eq!(worker.transport(), ["tcp", "shm"][token % 2]);
            let server = accept(&both, &mut listener);
            assert_eq!(server.transport(), worker.transport());
            poll.add(&server, token as u64).unwrap();
            streams.push((worker, server));
        }
        // The first events.
        while {
            poll.wait(Duration::from_millis(1), &mut events).unwrap();
            !events.is_empty()
        } {}
        let waker = poll.waker();
        for round in 0..200 {
            let number = round % 4;
            let (worker, _) = &mut streams[number];
            while worker.send(&[IoSlice::new(&[round as u8])]).unwrap().is_none() {
                // The rings have not been received yet.
                worker.recv(&mut []).unwrap();
            }
            let started = Instant::now();
            while !events.iter().any(|event| event.token == number as u64 && event.readable) {
                assert!(started.elapsed() < PATIENCE, "round {round}");
                poll.wait([PATIENCE, Duration::ZERO][round / 4 % 2], &mut events).unwrap();
                let others = |event: &&Event| event.token != number as u64 && event.readable;
                assert_eq!(events.iter().find(others), None, "round {round}");
            }
            let mut got = [0; 4];
            assert_eq!(streams[number].1.recv(&mut [IoSliceMut::new(&mut got)]).unwrap(), Some(1));
            assert_eq!(got[0], round as u8);
            waker.wake();
            poll.wait(PATIENCE, &mut events).unwrap();
        }
        // The end of one session is reported once, and no other end is.
        let (worker, _server) = streams.remove(1);
        drop(worker);
        let started = Instant::now();
        while !events.iter().any(|event| event.closed) {
            assert!(started.elapsed() < PATIENCE);
            poll.wait(PATIENCE, &mut events).unwrap();
        }
        assert!(events.iter().all(|event| event.token == 1), "{events:?}");
    }
}

#[test]
fn what_serves_is_chosen_and_what_does_not_is_said() {
    let net = Transports::new();
    let transports = |server: Transport, worker: Transport| {
        let server = net.clone().with_transport(server);
        let mut listener = server.listen("127.0.0.1:0").unwrap();
        let (addr, worker) = (listener.addr().to_owned(), net.clone().with_transport(worker));
        let connected = worker.begin_connect(&addr, 0);
        let accepted = connected.is_ok().then(|| accept(&server, &mut listener));
        connected.map(|stream| {
            assert_eq!(accepted.unwrap().transport(), stream.transport());
            stream.transport()
        })
    };
    use Transport::{Auto, Shm, Tcp};
    assert_eq!(transports(Auto, Auto).unwrap(), "shm");
    assert_eq!(transports(Auto, Shm).unwrap(), "shm");
    assert_eq!(transports(Auto, Tcp).unwrap(), "tcp");
    assert_eq!(transports(Shm, Auto).unwrap(), "shm");
    assert_eq!(transports(Tcp, Auto).unwrap(), "tcp");
    let error = transports(Tcp, Shm).unwrap_err();
    assert!(matches!(error, NetError::Connect { .. }), "a server may come yet: {error}");
    assert!(error.to_string().contains("offers shared memory"), "{error}");
    // A server that offers only shared memory occupies its port and accepts no connection there.
    let server = net.clone().with_transport(Shm);
    let mut listener = server.listen("127.0.0.1:0").unwrap();
    let mut stranger = std::net::TcpStream::connect(listener.addr()).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(listener.accept().unwrap().is_none());
    assert_eq!(std::io::Read::read(&mut stranger, &mut [0; 1]).unwrap_or(0), 0, "it was let in");
    // If a server stops while a worker connects, shared memory is still tried when the server is back.
    let auto = net.clone().with_transport(Auto);
    let mut waiting = auto.begin_connect(listener.addr(), 0).unwrap();
    // The name ends with the listener, and only one listener can have it.
    let addr = listener.addr().to_owned();
    assert!(server.listen(&addr).is_err());
    drop(listener);
    let started = Instant::now();
    while waiting.recv(&mut []).is_ok() {
        assert!(started.elapsed() < PATIENCE, "no end");
    }
    assert!(net.clone().with_transport(Shm).begin_connect(&addr, 0).is_err());
    let _again = server.listen(&addr).unwrap();
    assert_eq!(auto.begin_connect(&addr, 0).unwrap().transport(), "shm");
}

#[test]
fn a_session_at_rest_gives_its_memory_back_and_goes_on() {
    for net in drivers() {
        let (worker, server) = pair(&net);
        let (mut worker, mut server) = (End::new(&net, worker), End::new(&net, server));
        for round in 0..12 {
            assert_eq!(server.stream.held_bytes(), 0, "round {round}");
            let count = 1 + round * 40_000;
            server.send(count);
            assert!(server.stream.held_bytes() >= count.next_multiple_of(RING_STEP_BYTES) - RING_STEP_BYTES);
            // Unread bytes stay in the ring.
            server.stream.rest();
            assert!(server.stream.held_bytes() > 0);
            worker.recv_all(count);
            server.stream.rest();
        }
    }
}

/// Starts this test's binary again, in the role that `plays_a_part` finds in its environment.
fn play(role: &str, addr: &str) -> Owned {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "plays_a_part", "--ignored", "--nocapture"]);
    command.env("GANNET_TEST_ROLE", role).env("GANNET_TEST_ADDR", addr);
    Owned(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
}

/// A child that does not outlive the test.
struct Owned(Child);

impl Owned {
    fn kill(&mut self) {
        // SIGKILL.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "started by other tests, as a process of its own"]
fn plays_a_part() {
    let Ok(role) = std::env::var("GANNET_TEST_ROLE") else { return };
    let net = Transports::new().with_transport(Transport::Shm);
    let stream = match role.as_str() {
        "server" => {
            let mut listener = net.listen("127.0.0.1:0").unwrap();
            println!("\nlistening on {}", listener.addr());
            accept(&net, &mut listener)
        }
        _ => net.connect(&std::env::var("GANNET_TEST_ADDR").unwrap(), PATIENCE).unwrap(),
    };
    let (mut end, mut prng) = (End::new(&net, stream), Prng::new(u64::from(std::process::id())));
    loop {
        match role.as_str() {
            "reader" => end.recv_all(1 + prng.below(100_000) as usize),
            _ => end.send(size(&mut prng, 15)),
        }
    }
}

/// Reads to the end. Every byte is right, and the end is reported.
fn read_to_the_end(end: &mut End) {
    let error = loop {
        match end.recv(100_000) {
            Ok(Some(_)) => {}
            Ok(None) => {
                end.wait();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
}

#[test]
fn a_writer_killed_in_the_middle_of_a_write_leaves_whole_bytes_and_an_end() {
    let mut prng = Prng::new(1);
    for net in drivers() {
        let mut listener = net.listen("127.0.0.1:0").unwrap();
        for _ in 0..12 {
            let mut child = play("writer", listener.addr());
            let mut end = End::new(&net, accept(&net, &mut listener));
            end.recv_all(1 + prng.below(3_000_000) as usize);
            child.kill();
            read_to_the_end(&mut end);
        }
    }
}

#[test]
fn a_writer_does_not_wait_for_a_killed_reader() {
    for net in drivers() {
        let mut listener = net.listen("127.0.0.1:0").unwrap();
        for round in 0..6 {
            let mut child = play("reader", listener.addr());
            let mut end = End::new(&net, accept(&net, &mut listener));
            end.send(1 + round * 400_000);
            child.kill();
            let bytes = vec![0; 100_000];
            let error = loop {
                match end.stream.send(&[IoSlice::new(&bytes)]) {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        end.wait();
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        }
    }
}

/// The rings are the server's memory. They remain while the worker has them mapped.
#[test]
fn a_server_that_was_killed_is_an_end_and_no_signal() {
    for net in drivers() {
        for _ in 0..8 {
            let mut child = play("server", "");
            let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
            let addr = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned));
            let stream = net.connect(&addr.unwrap(), PATIENCE).unwrap();
            let mut end = End::new(&net, stream);
            end.recv_all(1_000_000);
            child.kill();
            read_to_the_end(&mut end);
            // Its own ring can still be written, although no one reads it.
            end.send(RING_BYTES / 2);
        }
    }
}
