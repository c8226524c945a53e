//! Both drivers of tcp in the cases where they could differ: many connections, many small frames, bytes in
//! chunks of any size, peers that do not read, and connections that end or move to another poll or thread with
//! much in flight. Received bytes are compared with the sent ones.

use gannet_transport::Prng;
use gannet_transport::limits::{HEAD_BYTES, URING_RECEIVE_BUFFERS, URING_RECEIVE_BYTES, URING_SEND_BYTES};
use gannet_transport::tcp::{Io, Tcp, TcpPoll, TcpStream};
use gannet_transport::{Event, Filled, Head, Link, Listener, Net, NoOwner, Poll, Stream};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// The network over epoll and, if the system has it, over io_uring.
fn drivers() -> Vec<Tcp> {
    let uring = Tcp::new().with_io(Io::Uring);
    if uring.io() == "epoll" {
        eprintln!("io_uring is refused here: only epoll is tested");
        return vec![Tcp::new()];
    }
    vec![Tcp::new(), uring]
}

/// A stream of the network, and the plain socket at its other end.
fn pair(tcp: &Tcp) -> (TcpStream, std::net::TcpStream) {
    let mut listener = tcp.listen("127.0.0.1:0").unwrap();
    let far = std::net::TcpStream::connect(listener.addr()).unwrap();
    far.set_nodelay(true).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let near = loop {
        if let Some(stream) = listener.accept().unwrap() {
            break stream;
        }
    };
    (near, far)
}

/// Byte `at` of the stream number `stream`. The value depends on the place.
fn byte(stream: u64, at: usize) -> u8 {
    let mixed = (at as u64 ^ stream << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8 ^ (mixed >> 32) as u8
}

fn bytes(stream: u64, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| byte(stream, at)).collect()
}

fn send(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    let (front, back) = bytes.split_at(bytes.len() / 3);
    stream.send(&[IoSlice::new(front), IoSlice::new(back)]).unwrap().unwrap_or(0)
}

fn recv(stream: &mut TcpStream, space: &mut [u8]) -> usize {
    let (front, back) = space.split_at_mut(space.len() / 4);
    stream.recv(&mut [IoSliceMut::new(front), IoSliceMut::new(back)]).unwrap().unwrap_or(0)
}

/// Sends `total` bytes of stream `id`, `step` at a time, and waits for space; receives them at the other end.
fn send_all(
    poll: &mut TcpPoll,
    near: &mut TcpStream,
    mut far: std::net::TcpStream,
    id: u64,
    total: usize,
    step: usize,
) {
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; total];
        far.read_exact(&mut got).unwrap();
        (got, far)
    });
    let (mut sent, mut events, started) = (0, Vec::new(), Instant::now());
    while sent < total {
        assert!(started.elapsed() < PATIENCE, "{sent} of {total}");
        let step = step.min(total - sent);
        let now = send(near, &bytes(id, sent, step));
        sent += now;
        if now < step {
            poll.wait(PATIENCE, &mut events).unwrap();
        }
    }
    poll.submit().unwrap();
    while !reader.is_finished() {
        poll.wait(Duration::from_millis(5), &mut events).unwrap();
    }
    assert!(reader.join().unwrap().0 == bytes(id, 0, total), "steps of {step}");
}

#[test]
fn sends_of_every_size_arrive_whole_and_in_order() {
    for tcp in drivers() {
        let edge = URING_SEND_BYTES;
        for (id, step) in [1, 7, 64, 1000, edge - 1, edge, edge + 1, 300_000].into_iter().enumerate() {
            let (mut near, far) = pair(&tcp);
            let mut poll = tcp.poll().unwrap();
            poll.add(&near, 1).unwrap();
            let total = if step < 64 { 20_000 } else { 6_000_000 };
            send_all(&mut poll, &mut near, far, id as u64, total, step);
        }
    }
}

/// A frame whose first part comes alone, cut at every byte, with another frame after it.
#[test]
fn a_frame_may_arrive_in_two_parts_cut_anywhere() {
    for tcp in drivers() {
        let mut frames = [0; 2 * HEAD_BYTES + 24 + 8];
        Head { len: 24, id: 1, ..Head::default() }.encode(&mut frames[..HEAD_BYTES]);
        Head { len: 8, id: 2, ..Head::default() }.encode(&mut frames[HEAD_BYTES + 24..][..HEAD_BYTES]);
        frames[HEAD_BYTES..HEAD_BYTES + 24].fill(7);
        let (near, mut far) = pair(&tcp);
        let (mut poll, mut events) = (tcp.poll().unwrap(), Vec::new());
        let mut link = Link::new(near);
        poll.add(link.stream(), 1).unwrap();
        for cut in 1..frames.len() {
            let mut ids = Vec::new();
            let first = usize::from(cut >= HEAD_BYTES + 24);
            for (part, want, pending) in
                [(&frames[..cut], first, cut - first * (HEAD_BYTES + 24)), (&frames[cut..], 2, 0)]
            {
                far.write_all(part).unwrap();
                // The first part is received before the second is sent.
                while ids.len() < want || link.receive().pending_bytes() != pending {
                    poll.wait(PATIENCE, &mut events).unwrap();
                    events.iter().for_each(|event| link.note(event));
                    while link.is_readable() {
                        link.fill(&mut NoOwner).unwrap();
                    }
                    while let Some(frame) = link.receive().peek(&mut NoOwner).unwrap() {
                        ids.push((frame.head.id, frame.payload.to_vec()));
                        link.receive().consume();
                    }
                }
            }
            assert_eq!(ids, [(1, vec![7; 24]), (2, vec![0; 8])], "cut at {cut}");
        }
    }
}

/// Every link sends and receives through one poll, more bytes together than a ring has buffers for.
#[test]
fn many_connections_share_a_poll() {
    for tcp in drivers() {
        let (count, each) = (120, 40_000);
        assert!(count * each > 2 * usize::from(URING_RECEIVE_BUFFERS) * URING_RECEIVE_BYTES);
        let (mut poll, mut events) = (tcp.poll().unwrap(), Vec::new());
        let mut streams = Vec::new();
        for id in 0..count {
            let (near, mut far) = pair(&tcp);
            poll.add(&near, id as u64).unwrap();
            let bytes = bytes(id as u64, 0, each);
            // All at once, so that receives find no buffer.
            far.write_all(&bytes).unwrap();
            streams.push((near, far, 0, 0));
        }
        let (mut left, started) = (2 * count, Instant::now());
        let mut space = vec![0; 50_000];
        while left > 0 {
            assert!(started.elapsed() < PATIENCE, "{left} of {count} left");
            poll.wait(Duration::from_millis(100), &mut events).unwrap();
            for event in &events {
                let (near, far, got, echoed) = &mut streams[event.token as usize];
                loop {
                    let bytes_now = recv(near, &mut space[..777 + (event.token as usize * 311) % 9000]);
                    assert!(space[..bytes_now] == bytes(event.token, *got, bytes_now), "{}", event.token);
                    *got += bytes_now;
                    if bytes_now == 0 {
                        break;
                    }
                    left -= usize::from(*got == each);
                }
                if *got == each && *echoed == 0 {
                    *echoed = 1;
                    assert_eq!(send(near, &bytes(event.token, 0, 300)), 300);
                    poll.submit().unwrap();
                    let mut answer = [0; 300];
                    far.read_exact(&mut answer).unwrap();
                    assert!(answer[..] == bytes(event.token, 0, 300));
                    left -= 1;
                }
            }
        }
    }
}

/// Connections are dropped again and again, with sends in flight in the kernel and unread bytes. Those that
/// remain, and later ones, must carry exactly the sent bytes.
#[test]
fn a_dropped_link_takes_nothing_of_the_others_with_it() {
    for tcp in drivers() {
        let (mut poll, mut events) = (tcp.poll().unwrap(), Vec::new());
        let (mut stays, mut far_stays) = pair(&tcp);
        poll.add(&stays, 1_000_000).unwrap();
        let mut prng = Prng::new(5);
        let (mut stayed, mut space) = (0, vec![0; 100_000]);
        for round in 0..150u64 {
            let (mut near, mut far) = pair(&tcp);
            poll.add(&near, round).unwrap();
            far.write_all(&bytes(round, 0, prng.below(30_000) as usize)).unwrap();
            let mut sent = 0;
            // Until nothing more can be sent: the bytes in flight wait for a peer that does not read.
            let fills = round % 3 == 0;
            loop {
                let step = 1 + prng.below(9_000) as usize;
                let now = send(&mut near, &bytes(round, sent, step));
                sent += now;
                if now < step || !fills {
                    break;
                }
                poll.wait(Duration::ZERO, &mut events).unwrap();
            }
            if round % 2 == 0 {
                poll.wait(Duration::from_millis(1), &mut events).unwrap();
                recv(&mut near, &mut space[..1000]);
            }
            drop(near);
            // The peer sees the end without the poll's help, and has a prefix of what was sent.
            let mut got = Vec::new();
            let ended = far.read_to_end(&mut got);
            assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
            assert!(got.len() <= sent && got == bytes(round, 0, got.len()), "round {round}");
            // Buffers that were in flight are reused for other sends.
            let count = 1 + prng.below(5_000) as usize;
            assert_eq!(send(&mut stays, &bytes(7, stayed, count)), count);
            poll.wait(Duration::ZERO, &mut events).unwrap();
            far_stays.read_exact(&mut space[..count]).unwrap();
            assert!(space[..count] == bytes(7, stayed, count), "round {round}");
            stayed += count;
        }
    }
}

/// A stream moves from poll to poll, each on its own thread, while its peer keeps writing. A server's connections move
/// in the same way from the acceptor to a thread.
#[test]
fn a_stream_that_moves_to_another_poll_loses_nothing() {
    for tcp in drivers() {
        let total = 4_000_000;
        let (mut near, mut far) = pair(&tcp);
        let writer = std::thread::spawn(move || {
            far.write_all(&bytes(3, 0, total)).unwrap();
            far
        });
        let mut got = 0;
        for turn in 0.. {
            let tcp = tcp.clone();
            (near, got) = std::thread::spawn(move || {
                let (mut poll, mut events, mut space) =
                    (tcp.poll().unwrap(), Vec::new(), vec![0; 10_000 + turn * 5_000]);
                poll.add(&near, 1).unwrap();
                let until = (got + 400_000).min(total);
                let started = Instant::now();
                while got < until {
                    assert!(started.elapsed() < PATIENCE, "{got} of {total}");
                    let now = recv(&mut near, &mut space);
                    assert!(space[..now] == bytes(3, got, now), "behind {got}");
                    got += now;
                    if now < space.len() && got < until {
                        poll.wait(PATIENCE, &mut events).unwrap();
                    }
                }
                assert_eq!(send(&mut near, &[turn as u8; 5]), 5);
                // Every second stream is detached; the others only lose their poll.
                if turn % 2 == 0 {
                    poll.remove(&near).unwrap();
                }
                (near, got)
            })
            .join()
            .unwrap();
            if got == total {
                let mut far = writer.join().unwrap();
                let mut marks = vec![0; 5 * (turn + 1)];
                far.read_exact(&mut marks).unwrap();
                assert!(marks.chunks(5).enumerate().all(|(i, mark)| mark == [i as u8; 5]));
                break;
            }
        }
    }
}

/// A stream that found no space at one poll, and waits for an event, gets the event at the next poll.
#[test]
fn a_stream_that_moves_while_it_waits_for_space_gets_the_event() {
    for tcp in drivers() {
        let (mut near, mut far) = pair(&tcp);
        let (mut poll, mut events, chunk) = (tcp.poll().unwrap(), Vec::new(), vec![7; 100_000]);
        poll.add(&near, 1).unwrap();
        let mut sent = 0;
        while let Some(now) = near.send(&[IoSlice::new(&chunk)]).unwrap() {
            sent += now;
        }
        poll.remove(&near).unwrap();
        poll = tcp.poll().unwrap();
        poll.add(&near, 2).unwrap();
        let reader = std::thread::spawn(move || far.read_exact(&mut vec![0; sent]).map(|()| far).unwrap());
        let started = Instant::now();
        loop {
            poll.wait(Duration::from_secs(10), &mut events).unwrap();
            let reported = events.iter().any(|event| event.token == 2 && event.writable);
            if reported && near.send(&[IoSlice::new(&chunk)]).unwrap().is_some() {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(10), "no event reports space");
        }
        reader.join().unwrap();
    }
}

/// A poll and its streams move to another thread together, like a worker that moves.
#[test]
fn a_poll_that_moves_to_another_thread_goes_on() {
    for tcp in drivers() {
        let total = 3_000_000;
        let (near, mut far) = pair(&tcp);
        let writer = std::thread::spawn(move || far.write_all(&bytes(4, 0, total)).map(|()| far).unwrap());
        let mut state = (tcp.poll().unwrap(), near, 0);
        state.0.add(&state.1, 1).unwrap();
        while state.2 < total {
            state = std::thread::spawn(move || {
                let (mut poll, mut near, mut got) = state;
                let (mut events, mut space, until) = (Vec::new(), vec![0; 3_000], (got + 700_000).min(total));
                let started = Instant::now();
                while got < until {
                    assert!(started.elapsed() < PATIENCE, "{got} of {total}");
                    let now = recv(&mut near, &mut space);
                    assert!(space[..now] == bytes(4, got, now), "behind {got}");
                    got += now;
                    if now < space.len() && got < until {
                        poll.wait(PATIENCE, &mut events).unwrap();
                    }
                }
                assert_eq!(send(&mut near, b"moved"), 5);
                poll.wait(Duration::ZERO, &mut events).unwrap();
                (poll, near, got)
            })
            .join()
            .unwrap();
        }
        let mut far = writer.join().unwrap();
        let mut marks = [0; 5];
        for _ in 0..total.div_ceil(700_000) {
            far.read_exact(&mut marks).unwrap();
            assert_eq!(&marks, b"moved");
        }
    }
}

/// Accepts one link and answers each of `frames` frames with its first 8 bytes. Returns the link and its poll.
fn answer_frames(
    net: &Tcp,
    mut listener: <Tcp as Net>::Listener,
    frames: u64,
) -> (Link<TcpStream>, <Tcp as Net>::Poll) {
    let (mut poll, mut events) = (net.poll().unwrap(), Vec::new());
    poll.add_listener(&listener, 9).unwrap();
    let mut link = loop {
        if let Some(stream) = listener.accept().unwrap() {
            break Link::new(stream);
        }
        poll.wait(PATIENCE, &mut events).unwrap();
    };
    poll.add(link.stream(), 0).unwrap();
    let mut answered = 0;
    while answered < frames || !link.transmit().is_empty() {
        if link.is_readable() {
            link.fill(&mut NoOwner).unwrap();
        }
        let ((receive, transmit), mut full) = (link.halves(), false);
        while let Some(frame) = receive.peek(&mut NoOwner).unwrap() {
            let head = Head::new(2, 0, frame.head.id, [0; 4]);
            full = transmit.send_copy(head, &frame.payload[..8]).is_err();
            if full {
                break;
            }
            receive.consume();
            answered += 1;
        }
        // A frame that found no space is answered when there is space; no event reports it.
        let waits = !(link.flush(&mut NoOwner).unwrap() && full);
        if waits && !link.is_readable() && !link.can_send() && answered < frames {
            poll.wait(PATIENCE, &mut events).unwrap();
            events.iter().for_each(|event| link.note(event));
        }
    }
    poll.wait(Duration::ZERO, &mut events).unwrap();
    (link, poll)
}

/// Both halves at once: tens of thousands of small frames are answered while the requesting side reads slowly.
#[test]
fn thousands_of_small_frames_come_back_in_order() {
    for tcp in drivers() {
        let listener = tcp.listen("127.0.0.1:0").unwrap();
        let addr = listener.addr().to_owned();
        let (net, frames) = (tcp.clone(), 40_000u64);
        let server = std::thread::spawn(move || answer_frames(&net, listener, frames));
        let mut link = Link::new(tcp.connect(&addr, PATIENCE).unwrap());
        let (mut poll, mut events, mut prng) = (tcp.poll().unwrap(), Vec::new(), Prng::new(8));
        poll.add(link.stream(), 0).unwrap();
        let (mut requested, mut got, started) = (0, 0, Instant::now());
        while got < frames {
            assert!(started.elapsed() < PATIENCE, "{got} of {frames}");
            for _ in 0..prng.below(3_000).min(frames - requested) {
                let head = Head::new(1, 0, requested, [0; 4]);
                if link.transmit().send_copy(head, &requested.to_le_bytes()).is_err() {
                    break;
                }
                requested += 1;
            }
            link.flush(&mut NoOwner).unwrap();
            while got < requested.min(got + prng.below(2_000) + 1) {
                let Some(frame) = link.receive().peek(&mut NoOwner).unwrap() else {
                    if !link.is_readable() || matches!(link.fill(&mut NoOwner).unwrap(), Filled::Empty) {
                        break;
                    }
                    continue;
                };
                assert_eq!((frame.head.id, frame.payload), (got, &got.to_le_bytes()[..]));
                link.receive().consume();
                got += 1;
            }
            poll.wait(Duration::from_millis(u64::from(requested == frames)), &mut events).unwrap();
            events.iter().for_each(|event: &Event| link.note(event));
        }
        drop(server.join().unwrap());
    }
}

/// The end of a connection is reported after its last byte, whether it ended in order or broke.
#[test]
fn bytes_before_the_end_are_read_before_the_end_is_reported() {
    for tcp in drivers() {
        for count in [0, 1, 5_000, 200_000] {
            let (near, mut far) = pair(&tcp);
            let (mut poll, mut events) = (tcp.poll().unwrap(), Vec::new());
            poll.add(&near, 1).unwrap();
            let writer = std::thread::spawn(move || far.write_all(&bytes(1, 0, count)).unwrap());
            let (mut near, mut got, mut space) = (near, 0, vec![0; 3_000]);
            let error = loop {
                match near.recv(&mut [IoSliceMut::new(&mut space)]) {
                    Ok(Some(now)) => {
                        assert!(space[..now] == bytes(1, got, now));
                        got += now;
                    }
                    Ok(None) => poll.wait(PATIENCE, &mut events).unwrap(),
                    Err(error) => break error,
                }
            };
            writer.join().unwrap();
            assert_eq!((got, error.kind()), (count, std::io::ErrorKind::UnexpectedEof));
        }
        // A reset: the sender sees it too.
        let (mut near, far) = pair(&tcp);
        let (mut poll, mut events) = (tcp.poll().unwrap(), Vec::new());
        poll.add(&near, 1).unwrap();
        drop(far);
        let started = Instant::now();
        while near.send(&[IoSlice::new(&[1; 100])]).is_ok() {
            assert!(started.elapsed() < PATIENCE, "a send to nobody goes on and on");
            poll.wait(Duration::from_millis(1), &mut events).unwrap();
        }
    }
}

/// A listener gets events from the poll to which it was added last, and leaves nothing behind when it closes.
#[test]
fn a_listener_may_go_to_another_poll_and_frees_its_port() {
    for tcp in drivers() {
        let mut listener = tcp.listen("127.0.0.1:0").unwrap();
        let addr = listener.addr().to_owned();
        let (mut polls, mut events) = ([tcp.poll().unwrap(), tcp.poll().unwrap()], Vec::new());
        for poll in &mut polls {
            poll.add_listener(&listener, 5).unwrap();
            for _ in 0..3 {
                assert!(listener.accept().unwrap().is_none());
                let far = std::net::TcpStream::connect(&addr).unwrap();
                let started = Instant::now();
                let near = loop {
                    poll.wait(PATIENCE, &mut events).unwrap();
                    assert!(events.iter().all(|event| event.token == 5) && started.elapsed() < PATIENCE);
                    if let Some(stream) = listener.accept().unwrap() {
                        break stream;
                    }
                };
                assert_eq!(*near.peer(), *far.local_addr().unwrap().to_string());
            }
        }
        drop(listener);
        assert!(std::net::TcpStream::connect(&addr).is_err());
        tcp.listen(&addr).unwrap();
    }
}
