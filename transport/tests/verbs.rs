//! Sessions over real verbs, from this process to itself: bytes in order, reads, and hostile peers. It needs a device:
//! `make test-rdma` has one; elsewhere the tests say that they are skipped.
#![cfg(feature = "verbs")]

mod counting;

use counting::Counting;
use gannet_transport::limits::{FRAME_BYTES_MAX, VERBS_RING_BYTES};
use gannet_transport::multi::{MultiStream, Transport, Transports};
use gannet_transport::tcp::Io;
use gannet_transport::verbs::{StreamState, Verbs, VerbsListener, VerbsStream, Watch};
use gannet_transport::{
    Head, Link, LinkError, Listener, Net, NoOwner, Poll, Prng, ReadRequest, Registrar, Stream,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(150);

/// How long a thread that polls waits for the device. In a guest, an emulated device needs the processor.
const PAUSE: Duration = Duration::from_millis(1);

/// The device and one of its addresses.
fn here() -> Option<(Verbs, IpAddr)> {
    let ip = std::env::var("NODE_IP").ok().and_then(|ip| ip.parse().ok());
    let Some(ip) = ip else {
        eprintln!("no RDMA device to test with (NODE_IP is not set): skipped");
        return None;
    };
    Some((Verbs::open().expect("NODE_IP says that there is a device"), ip))
}

fn free_addr(ip: IpAddr) -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(18_000);
    SocketAddr::new(ip, PORT.fetch_add(1, Ordering::Relaxed))
}

/// A connected pair: the connecting side, the accepting side, and the listener. A guest may be too slow for the
/// product's time limit, so a connection without an answer is tried again.
fn pair(verbs: &Verbs, ip: IpAddr) -> (VerbsStream, VerbsStream, VerbsListener) {
    let addr = free_addr(ip);
    let mut listener = verbs.listen(addr).unwrap();
    let started = Instant::now();
    loop {
        match connect(verbs, addr, &mut listener) {
            Ok((client, accepted)) => return (client, accepted, listener),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                assert!(started.elapsed() < LIMIT, "{error}")
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// One attempt to connect: both sides open, or the error of the connecting side.
fn connect(
    verbs: &Verbs,
    addr: SocketAddr,
    listener: &mut VerbsListener,
) -> io::Result<(VerbsStream, VerbsStream)> {
    let mut client = verbs.begin_connect(addr, "the other")?;
    let mut accepted: Option<VerbsStream> = None;
    loop {
        assert_eq!(client.recv(&mut [])?, None);
        accepted = accepted.or_else(|| listener.accept().unwrap());
        // The accepted end of an attempt that was given up earlier fails. The next one is ours.
        if accepted.as_mut().is_some_and(|stream| stream.recv(&mut []).is_err()) {
            accepted = None;
        }
        if client.is_open() && accepted.as_ref().is_some_and(VerbsStream::is_open) {
            return Ok((client, accepted.unwrap()));
        }
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn bytes_come_as_they_were_sent_in_both_directions() {
    let Some((verbs, ip)) = here() else { return };
    for seed in 0..6 {
        let (client, answering, _listener) = pair(&verbs, ip);
        let mut sides = [Counting::new(client), Counting::new(answering)];
        let (mut prng, started) = (Prng::new(seed), Instant::now());
        let size = |prng: &mut Prng| match prng.below(4) {
            0 => 1 + prng.below(64) as usize,
            1 => 1 + prng.below(5_000) as usize,
            _ => 1 + prng.below(2 * VERBS_RING_BYTES as u64) as usize,
        };
        for _ in 0..400 {
            let side = &mut sides[prng.below(2) as usize];
            let bytes = size(&mut prng);
            if prng.below(2) == 0 {
                side.send(&mut prng, bytes)
            } else {
                side.recv(&mut prng, bytes)
            };
        }
        let mut moved = Instant::now();
        while sides[0].got < sides[1].sent || sides[1].got < sides[0].sent {
            assert!(moved.elapsed() < LIMIT, "seed {seed}: bytes are missing");
            let got: usize = sides.iter_mut().map(|side| side.recv(&mut prng, VERBS_RING_BYTES)).sum();
            if got > 0 {
                moved = Instant::now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        assert!(sides[0].sent > VERBS_RING_BYTES as u64 && sides[1].sent > VERBS_RING_BYTES as u64);
        // Many small messages: the limit of messages is reached before that of bytes.
        for round in 0..600 {
            // The last credit of the previous hundred comes with the next messages.
            while sides[0].send(&mut prng, 3) == 0 {
                assert!(started.elapsed() < LIMIT, "round {round}: no space");
                if sides.iter_mut().map(|side| side.recv(&mut prng, 1000)).sum::<usize>() == 0 {
                    std::thread::sleep(PAUSE);
                }
            }
            if round % 100 == 99 {
                while sides[1].got < sides[0].sent {
                    assert!(started.elapsed() < LIMIT);
                    if sides[1].recv(&mut prng, 1000) == 0 {
                        std::thread::sleep(PAUSE);
                    }
                }
            }
        }
        println!("seed {seed}: {} and {} bytes in {:?}", sides[0].sent, sides[1].sent, started.elapsed());
    }
}

/// Sleeps as a poll does: arm, look, sleep, look.
fn sleep(watch: &Watch, stream: &VerbsStream) -> StreamState {
    let nothing = StreamState::Edges { readable: false, writable: false, closed: false };
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < LIMIT, "nothing woke the sleeper");
        watch.arm();
        let seen = watch.look();
        if seen != nothing {
            return seen;
        }
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        let event_fd = stream.event_fd();
        assert_eq!(rustix::event::poll(&mut [PollFd::new(&event_fd, PollFlags::IN)], Some(&limit)), Ok(1));
        watch.woken();
    }
}

#[test]
fn bytes_space_and_the_end_each_wake_a_sleeper() {
    let Some((verbs, ip)) = here() else { return };
    let (mut client, mut answering, _listener) = pair(&verbs, ip);
    let (watch, other) = (client.watch(), answering.watch());
    // The event that reported the connection.
    let StreamState::Edges { writable: true, .. } = watch.look() else { panic!("it is open") };
    other.look();
    let mut buffer = [0; 64 << 10];
    for _ in 0..20 {
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(answering.send(&[IoSlice::new(b"wake up")]).unwrap(), Some(7));
            answering
        });
        let StreamState::Edges { readable: true, closed: false, .. } = sleep(&watch, &client) else {
            panic!()
        };
        assert_eq!(client.recv(&mut [IoSliceMut::new(&mut buffer)]).unwrap(), Some(7));
        assert_eq!(client.recv(&mut [IoSliceMut::new(&mut buffer)]).unwrap(), None);
        answering = sender.join().unwrap();
    }
    // The ring is full, and the other side reads.
    let full = vec![1; 2 * VERBS_RING_BYTES];
    let mut sent = 0;
    while let Some(bytes) = client.send(&[IoSlice::new(&full)]).unwrap() {
        sent += bytes;
    }
    assert!(sent >= VERBS_RING_BYTES);
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let (mut got, started) = (0, Instant::now());
        while got < sent {
            assert!(started.elapsed() < LIMIT);
            match answering.recv(&mut [IoSliceMut::new(&mut [0; 9000])]).unwrap() {
                Some(bytes) => got += bytes,
                None => std::thread::sleep(PAUSE),
            }
        }
        answering
    });
    while !matches!(sleep(&watch, &client), StreamState::Edges { writable: true, .. }) {}
    answering = reader.join().unwrap();
    // The last bytes come before the end.
    assert_eq!(answering.send(&[IoSlice::new(b"farewell")]).unwrap(), Some(8));
    drop(answering);
    while !matches!(sleep(&watch, &client), StreamState::Edges { closed: true, .. }) {}
    assert_eq!(client.recv(&mut [IoSliceMut::new(&mut buffer)]).unwrap(), Some(8));
    let end = client.recv(&mut [IoSliceMut::new(&mut buffer)]).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    assert!(client.send(&[IoSlice::new(b"?")]).is_err());
    drop(client);
    assert_eq!(watch.look(), StreamState::Gone);
}

#[test]
fn registered_memory_is_read_once_the_other_side_allows_it() {
    let Some((verbs, ip)) = here() else { return };
    let memory: Vec<u64> = (0..1 << 17).collect();
    let region = Registrar::register(&verbs, memory.as_ptr() as usize, memory.len() * 8).unwrap();
    assert_eq!(verbs.registrar().regions(), 1);
    let (mut client, mut answering, _listener) = pair(&verbs, ip);
    assert!(answering.allow_reads().unwrap());
    let mut prng = Prng::new(7);
    let reader = client.reader().unwrap();
    for reads in [1usize, 2, 100, 3000] {
        reader.landing(reads * 64).unwrap();
        let lines: Vec<u64> = (0..reads).map(|_| prng.below(memory.len() as u64 / 8)).collect();
        let want = |(i, line): (usize, &u64)| ReadRequest {
            addr: region.addr + line * 64,
            rkey: region.rkey,
            bytes: 64,
            at: i as u32 * 64,
        };
        let wants: Vec<ReadRequest> = lines.iter().enumerate().map(want).collect();
        reader.read(&wants, LIMIT).unwrap();
        assert_eq!(reader.landed().as_ptr() as usize % 64, 0);
        for (line, landed) in lines.iter().zip(reader.landed().chunks(64)) {
            let first = u64::from_le_bytes(landed[..8].try_into().unwrap());
            let last = u64::from_le_bytes(landed[56..].try_into().unwrap());
            assert_eq!((first, last), (line * 8, line * 8 + 7));
        }
    }
    // The stream does not disturb the reads.
    assert_eq!(client.send(&[IoSlice::new(b"on we go")]).unwrap(), Some(8));
    drop(region);
    assert_eq!(verbs.registrar().regions(), 0);
}

/// The error of a read, and the error that the stream reports afterwards.
fn failed_read(client: &mut VerbsStream, want: ReadRequest) -> (String, String) {
    let reader = client.reader().unwrap();
    reader.landing(64).unwrap();
    let error = reader.read(&[want], LIMIT).unwrap_err().to_string();
    let after = client.recv(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap_err().to_string();
    (error, after)
}

#[test]
fn a_wrong_key_or_no_leave_ends_one_session_and_names_the_status() {
    let Some((verbs, ip)) = here() else { return };
    let memory = vec![7u8; 4096];
    let region = Registrar::register(&verbs, memory.as_ptr() as usize, memory.len()).unwrap();
    let want = ReadRequest { addr: region.addr, rkey: region.rkey, bytes: 64, at: 0 };
    let (mut good, mut good_server, _listener) = pair(&verbs, ip);
    assert!(good_server.allow_reads().unwrap());

    // Before the other side has allowed reads, even the right key fails.
    let (mut early, _server, _listener) = pair(&verbs, ip);
    let (error, after) = failed_read(&mut early, want);
    assert!(error.starts_with("a READ failed: ") && after == error, "{error} / {after}");

    let (mut wrong, mut server, _listener) = pair(&verbs, ip);
    assert!(server.allow_reads().unwrap());
    let (error, after) = failed_read(&mut wrong, ReadRequest { rkey: region.rkey ^ 0x55, ..want });
    assert!(error.contains("remote access error (status 10") && after == error, "{error} / {after}");
    drop(wrong);
    let started = Instant::now();
    let end = loop {
        assert!(started.elapsed() < LIMIT);
        match server.recv(&mut [IoSliceMut::new(&mut [0; 8])]) {
            Ok(None) => std::thread::sleep(PAUSE),
            Ok(Some(_)) => panic!("nothing was sent"),
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");

    // A range that goes beyond the end of the region.
    let (mut long, mut server, _listener) = pair(&verbs, ip);
    assert!(server.allow_reads().unwrap());
    let (error, _) = failed_read(&mut long, ReadRequest { addr: region.addr + 4090, ..want });
    assert!(error.contains("remote access error"), "{error}");

    let reader = good.reader().unwrap();
    reader.landing(64).unwrap();
    reader.read(&[want], LIMIT).unwrap();
    assert_eq!(&reader.landed()[..64], &[7; 64]);
}

#[test]
fn an_absent_server_is_an_error_and_is_remembered() {
    let Some((verbs, ip)) = here() else { return };
    let addr = free_addr(ip);
    let name = addr.to_string();
    assert_eq!(verbs.avoided(&name), None);
    let mut stream = verbs.begin_connect(addr, &name).unwrap();
    let started = Instant::now();
    let error = loop {
        assert!(started.elapsed() < LIMIT);
        match stream.send(&[IoSlice::new(b"hello?")]) {
            Ok(None) => std::thread::sleep(PAUSE),
            Ok(Some(_)) => panic!("nobody is there"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("no server listens for RDMA there"), "{error}");
    assert!(verbs.avoided(&name).unwrap().contains("no server listens"));
    assert!(verbs.avoided("another").is_none() && !verbs.has_reached(&name));
}

#[test]
fn sessions_that_ended_leave_no_descriptor_and_no_memory() {
    let Some((verbs, ip)) = here() else { return };
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let cycle = |i: usize| {
        let (mut client, mut answering, listener) = pair(&verbs, ip);
        assert_eq!(client.send(&[IoSlice::new(&[9; 1000])]).unwrap(), Some(1000));
        if i.is_multiple_of(2) {
            drop(client)
        } else {
            drop(answering.send(&[IoSlice::new(b"x")]))
        }
        drop(listener);
    };
    cycle(0);
    // Another thread ends sessions.
    let settled = |open: Option<usize>| {
        let started = Instant::now();
        while verbs.sessions() > 0 || open.is_some_and(|open| count() > open) {
            let (sessions, open) = (verbs.sessions(), count());
            assert!(started.elapsed() < LIMIT, "{sessions} sessions and {open} descriptors are left");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    settled(None);
    std::thread::sleep(Duration::from_millis(200));
    let before = count();
    let cycles = if std::env::var("GANNET_CYCLES").is_ok() { 1000 } else { 100 };
    (1..cycles).for_each(cycle);
    settled(Some(before));
}

/// In a process of another user with a small limit (root has none).
#[test]
fn a_registration_beyond_the_limit_names_it_and_the_remedy() {
    let Some((verbs, _)) = here() else { return };
    const NAME: &str = "a_registration_beyond_the_limit_names_it_and_the_remedy";
    if std::env::var("GANNET_MEMLOCK_CHILD").is_ok() {
        let memory = vec![1u8; 32 << 20];
        let error = Registrar::register(&verbs, memory.as_ptr() as usize, memory.len()).err().unwrap();
        println!("refused: {error}");
        return;
    }
    let mut child = std::process::Command::new("setpriv");
    child.args(["--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", "--memlock=65536:65536"]);
    child.arg(std::env::current_exe().unwrap()).args(["--exact", NAME, "--nocapture"]);
    let out = child.env("GANNET_MEMLOCK_CHILD", "1").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text} {}", String::from_utf8_lossy(&out.stderr));
    for want in ["refused: ", "33554432 bytes", "may lock 65536 bytes (memlock)", "ulimit -l unlimited"] {
        assert!(text.contains(want), "{want}: {text}");
    }
}

/// Echoes frames over every transport, until this many links have ended.
fn echo_server(
    net: &Transports,
    addr: &str,
    ends: usize,
) -> (String, std::thread::JoinHandle<Vec<&'static str>>) {
    let mut listener = net.listen(addr).unwrap();
    let (at, net) = (listener.addr().to_owned(), net.clone());
    let server = std::thread::spawn(move || {
        let (mut poll, mut events, mut links) = (net.poll().unwrap(), Vec::new(), Vec::new());
        poll.add_listener(&listener, 1000).unwrap();
        let (mut ended, started) = (Vec::new(), Instant::now());
        while ended.len() < ends {
            assert!(started.elapsed() < LIMIT, "{} links ended", ended.len());
            poll.wait(Duration::from_secs(1), &mut events).unwrap();
            while let Some(stream) = listener.accept().unwrap() {
                poll.add(&stream, links.len() as u64).unwrap();
                links.push(Some(Link::new(stream)));
            }
            for (token, place) in links.iter_mut().enumerate() {
                let Some(link) = place else { continue };
                events.iter().filter(|event| event.token == token as u64).for_each(|event| link.note(event));
                if let Err(error) = echo(link) {
                    assert!(matches!(error, LinkError::Closed { .. }), "{error}");
                    ended.push(link.stream().transport());
                    *place = None;
                }
            }
        }
        ended
    });
    (at, server)
}

fn echo<S: Stream>(link: &mut Link<S>) -> Result<(), LinkError> {
    loop {
        if link.is_readable() {
            link.fill(&mut NoOwner)?;
        }
        let (receive, transmit) = link.halves();
        let mut full = false;
        while let Some(frame) = receive.peek(&mut NoOwner)? {
            full = transmit.send_copy(frame.head, frame.payload).is_err();
            if full {
                break;
            }
            receive.consume();
        }
        let drained = link.flush(&mut NoOwner)?;
        if !(full && drained || link.is_readable() && !full) {
            return Ok(());
        }
    }
}

/// Sends frames and waits for their echoes.
fn ask(net: &Transports, link: &mut Link<MultiStream>, frames: u64, bytes: usize) -> Result<(), LinkError> {
    let (mut poll, mut events) = (net.poll().unwrap(), Vec::new());
    poll.add(link.stream(), 5).unwrap();
    let (mut sent, mut got, started) = (0, 0, Instant::now());
    while got < frames {
        assert!(started.elapsed() < LIMIT, "{got} of {frames}");
        while sent < frames
            && link.transmit().send_copy(Head::new(1, 0, sent, [0; 4]), &vec![sent as u8; bytes]).is_ok()
        {
            sent += 1;
        }
        link.flush(&mut NoOwner)?;
        if link.is_readable() {
            link.fill(&mut NoOwner)?;
        }
        while let Some(frame) = link.receive().peek(&mut NoOwner)? {
            assert!(frame.head.id == got && frame.payload.iter().all(|byte| *byte == got as u8));
            link.receive().consume();
            got += 1;
        }
        if !link.is_readable() && (sent == frames || !link.can_send()) {
            poll.wait(Duration::from_millis(200), &mut events).unwrap();
            events.iter().for_each(|event| link.note(event));
        }
    }
    poll.remove(link.stream()).unwrap();
    Ok(())
}

#[test]
fn frames_go_over_rdma_among_the_wires_with_either_poll() {
    let Some((_, ip)) = here() else { return };
    for io in [Io::Epoll, Io::Uring] {
        let server = Transports::new().with_io(io);
        let (addr, echoes) = echo_server(&server, &free_addr(ip).to_string(), 3);
        let verbs = Transports::new().with_io(io).with_transport(Transport::Verbs);
        let mut link = Link::new(verbs.connect(&addr, LIMIT).unwrap());
        assert_eq!(link.stream().transport(), "verbs");
        ask(&verbs, &mut link, 200, 3000).unwrap();
        ask(&verbs, &mut link, 40, FRAME_BYTES_MAX).unwrap();
        // At the same time, over the other transports.
        let tcp = Transports::new().with_io(io).with_transport(Transport::Tcp);
        let mut other = Link::new(tcp.begin_connect(&addr, 0).unwrap());
        ask(&tcp, &mut other, 10, 3000).unwrap();
        ask(&verbs, &mut link, 10, 304).unwrap();
        drop((link, other));
        let mut link = Link::new(verbs.begin_connect(&addr, 0).unwrap());
        ask(&verbs, &mut link, 10, 304).unwrap();
        drop(link);
        let mut over = echoes.join().unwrap();
        over.sort_unstable();
        assert_eq!(over, ["tcp", "verbs", "verbs"], "{io:?}");
    }
}

#[test]
fn auto_goes_on_over_tcp_where_rdma_does_not_reach() {
    let Some((_, ip)) = here() else { return };
    // A server without RDMA, and a worker that may not use its shared memory.
    let server = Transports::new().with_transport(Transport::Tcp);
    let (addr, echoes) = echo_server(&server, &free_addr(ip).to_string(), 1);
    let auto = Transports::new();
    let started = Instant::now();
    let mut link = loop {
        assert!(started.elapsed() < LIMIT);
        let mut link = Link::new(auto.begin_connect(&addr, 0).unwrap());
        match ask(&auto, &mut link, 3, 96) {
            Ok(()) => break link,
            Err(error) => assert!(error.to_string().contains("no server listens for RDMA"), "{error}"),
        }
    };
    assert_eq!(link.stream().transport(), "tcp");
    ask(&auto, &mut link, 3, 96).unwrap();
    drop(link);
    assert_eq!(echoes.join().unwrap(), ["tcp"]);
    // If only RDMA is allowed, it reports that at once.
    let verbs = Transports::new().with_transport(Transport::Verbs);
    let refused = verbs.connect(&addr, LIMIT).err().unwrap().to_string();
    assert!(refused.contains(&addr) && refused.contains("no server listens for RDMA there"), "{refused}");
    let near = verbs.connect("127.0.0.1:1", LIMIT).err().unwrap().to_string();
    assert!(near.contains("loopback"), "{near}");
}
