//! Frames of random sizes go both ways over tcp and sim and are compared with what was sent. Then the failures: full
//! queues, garbage, resets, ends in the middle of a frame.

use gannet_sim::{Faults, Sim};
use gannet_transport::limits::{FRAME_BYTES_MAX, HEAD_BYTES, LINK_BYTES_MAX, TRANSMIT_BYTES};
use gannet_transport::multi::{Transport, Transports};
use gannet_transport::tcp::{Io, Tcp};
use gannet_transport::{
    Event, Filled, Full, Head, HeadError, Link, LinkError, Listener, Net, NoOwner, Owner, Parts, Poll, Prng,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

/// Sends random payloads of two parts each and expects echoes. It receives half of the echoes into its own memory.
struct Echoes {
    payloads: Vec<Vec<u8>>,
    places: Vec<Vec<u8>>,
    gone: Vec<u64>,
}

impl Owner for Echoes {
    fn parts<'a>(&'a self, token: u64, parts: &mut Parts<'a>) {
        let payload = &self.payloads[token as usize];
        let (front, back) = payload.split_at(payload.len() / 3);
        parts.push(front);
        parts.push(back);
    }

    fn sent(&mut self, token: u64) {
        self.gone.push(token);
    }

    fn place(&mut self, head: &Head) -> Option<&mut [u8]> {
        head.id.is_multiple_of(2).then(|| &mut self.places[head.id as usize][..])
    }
}

fn random_payloads(prng: &mut Prng, frames: usize, bytes_max: usize) -> Vec<Vec<u8>> {
    let length = |prng: &mut Prng| match prng.below(4) {
        0 => prng.below(9),
        1 => prng.below(600),
        _ => prng.below(bytes_max as u64 + 1),
    };
    let lengths: Vec<u64> = (0..frames).map(|_| length(prng)).collect();
    lengths.iter().map(|&len| (0..len).map(|_| prng.next_u64() as u8).collect()).collect()
}

/// One round of an echo server. Returns the error that ended the link.
fn echo<S: gannet_transport::Stream>(link: &mut Link<S>) -> Result<(), LinkError> {
    if link.is_readable() {
        link.fill(&mut NoOwner)?;
    }
    loop {
        let (receive, transmit) = link.halves();
        let mut full = false;
        while let Some(frame) = receive.peek(&mut NoOwner)? {
            assert_eq!(frame.payload.as_ptr() as usize % 8, 0);
            let Some(reply) = transmit.reserve(frame.payload.len()) else {
                full = true;
                break;
            };
            assert_eq!(reply.as_ptr() as usize % 8, 0);
            reply.copy_from_slice(frame.payload);
            let head = Head::new(2, frame.head.aux, frame.head.id, frame.head.words);
            transmit.commit(head, frame.payload.len());
            receive.consume();
        }
        // A frame that found no space is handled when there is space; no event reports it.
        if !(link.flush(&mut NoOwner)? && full) {
            assert!(link.held_bytes() <= LINK_BYTES_MAX);
            link.rest();
            return Ok(());
        }
    }
}

/// Sends all payloads and receives all echoes. Returns how many came before the link ended.
fn exchange<N: Net>(
    net: &N,
    link: &mut Link<N::Stream>,
    payloads: Vec<Vec<u8>>,
) -> (usize, Option<LinkError>) {
    let frames = payloads.len();
    let places = payloads.iter().map(|payload| vec![0; payload.len()]).collect();
    let mut owner = Echoes { payloads, places, gone: Vec::new() };
    let (mut poll, mut events) = (net.poll().unwrap(), Vec::new());
    poll.add(link.stream(), 1).unwrap();
    let (mut posted, mut received, started) = (0, 0, net.now());
    let mut round = || -> Result<(), LinkError> {
        while received < frames {
            assert!(net.now() - started < Duration::from_secs(60), "{received} of {frames} after a minute");
            while posted < frames {
                let head = Head::new(1, posted as u16, posted as u64, [posted as u64; 4]);
                let len = owner.payloads[posted].len();
                let Ok(()) = link.transmit().post(head, len, posted as u64, &owner) else { break };
                posted += 1;
            }
            link.flush(&mut owner)?;
            link.fill(&mut owner)?;
            while let Some(frame) = link.receive().peek(&mut owner)? {
                let (head, want) = (frame.head, &owner.payloads[received]);
                assert_eq!((head.kind, head.id, head.aux), (2, received as u64, received as u16));
                assert_eq!(head.len as usize, want.len().next_multiple_of(8));
                let in_place = received % 2 == 0 && head.len > 0;
                let got = if in_place { &owner.places[received][..] } else { &frame.payload[..want.len()] };
                assert!(got == want, "frame {received} of {} bytes came back changed", want.len());
                assert!(in_place || frame.payload[want.len()..].iter().all(|byte| *byte == 0));
                link.receive().consume();
                received += 1;
                if received % 3 == 0 {
                    link.rest();
                }
            }
            if !link.is_readable() && !link.can_send() {
                poll.wait(Duration::from_millis(100), &mut events).unwrap();
                events.iter().for_each(|event| link.note(event));
            }
        }
        Ok(())
    };
    let ended = round().err();
    let lent: Vec<u64> =
        (0..frames as u64).filter(|token| !owner.payloads[*token as usize].is_empty()).collect();
    assert!(lent.starts_with(&owner.gone), "payloads are given back in order");
    (received, ended)
}

/// The network over epoll and, if the system has it, over io_uring.
fn drivers() -> Vec<Tcp> {
    let uring = Tcp::new().with_io(Io::Uring);
    if uring.io() == "epoll" {
        eprintln!("io_uring is refused here: only epoll is tested");
        return vec![Tcp::new()];
    }
    vec![Tcp::new(), uring]
}

/// The network over shared memory.
fn memories() -> Vec<Transports> {
    drivers().into_iter().map(|tcp| Transports::over(tcp).with_transport(Transport::Shm)).collect()
}

fn over<N: Net<Listener: Send> + Send>(net: &N, seed: u64, frames: usize) {
    let mut listener = net.listen("127.0.0.1:0").unwrap();
    let addr = listener.addr().to_owned();
    let server_net = net.clone();
    let server = std::thread::spawn(move || {
        let (mut poll, mut events) = (server_net.poll().unwrap(), Vec::new());
        poll.add_listener(&listener, 7).unwrap();
        let stream = loop {
            if let Some(stream) = listener.accept().unwrap() {
                break stream;
            }
            poll.wait(Duration::from_secs(10), &mut events).unwrap();
        };
        let mut link = Link::new(stream);
        poll.add(link.stream(), 0).unwrap();
        loop {
            if let Err(error) = echo(&mut link) {
                return error;
            }
            if !link.is_readable() {
                poll.wait(Duration::from_secs(10), &mut events).unwrap();
                events.iter().for_each(|event| link.note(event));
            }
        }
    });
    let mut link = Link::new(net.connect(&addr, Duration::from_secs(5)).unwrap());
    let payloads = random_payloads(&mut Prng::new(seed), frames, FRAME_BYTES_MAX);
    let (received, ended) = exchange(net, &mut link, payloads);
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(received, frames);
    drop(link);
    assert!(matches!(server.join().unwrap(), LinkError::Closed { .. }));
}

#[test]
fn frames_come_back_over_tcp() {
    for tcp in drivers() {
        over(&tcp, 1, 600);
        over(&tcp.with_checksums(), 2, 600);
    }
}

#[test]
fn frames_come_back_over_shared_memory() {
    for net in memories() {
        over(&net, 1, 600);
    }
}

/// An echo server as an actor. Returns the errors of its links.
fn sim_echo(sim: &Sim) -> (String, Rc<RefCell<VecDeque<LinkError>>>) {
    let mut listener = sim.listen("sim:0").unwrap();
    let addr = listener.addr().to_owned();
    let ends: Rc<RefCell<VecDeque<LinkError>>> = Rc::default();
    let (errors, mut links, mut poll, mut events) =
        (ends.clone(), Vec::new(), sim.poll().unwrap(), Vec::<Event>::new());
    sim.add_actor(move || {
        while let Some(stream) = listener.accept().unwrap() {
            let link = Link::new(stream);
            poll.add(link.stream(), 0).unwrap();
            links.push(link);
        }
        poll.wait(Duration::ZERO, &mut events).unwrap();
        links.retain_mut(|link| {
            events.iter().for_each(|event| link.note(event));
            let mut rounds = || -> Result<(), LinkError> {
                echo(link)?;
                while link.is_readable() && link.transmit().is_empty() {
                    echo(link)?;
                }
                Ok(())
            };
            rounds().map_err(|error| errors.borrow_mut().push_back(error)).is_ok()
        });
    });
    (addr, ends)
}

#[test]
fn frames_are_echoed_over_sim_in_chunks_of_any_size() {
    for seed in 0..60 {
        let receive_bytes = [0, 1, 7, 100, 70_000][seed as usize % 5];
        let faults = Faults {
            piece_bytes_max: receive_bytes,
            window_bytes: 1 + (seed as usize * 977) % 90_000,
            ..Faults::none()
        };
        let sim = Sim::new(seed, faults);
        let (addr, _) = sim_echo(&sim);
        let mut link = Link::new(sim.connect(&addr, Duration::from_secs(1)).unwrap());
        let bytes_max =
            if faults.window_bytes < 100 || (1..100).contains(&receive_bytes) { 300 } else { 20_000 };
        let payloads = random_payloads(&mut Prng::new(seed), 40, bytes_max);
        let (received, ended) = exchange(&sim, &mut link, payloads);
        assert!(ended.is_none() && received == 40, "seed {seed}: {received} {ended:?}");
    }
}

#[test]
fn a_reset_loses_a_suffix_and_nothing_else() {
    let (mut broken, mut whole) = (0, 0);
    for seed in 0..100 {
        let sim = Sim::new(seed, Faults { reset_per_million: 30_000, ..Faults::none() });
        let (addr, _) = sim_echo(&sim);
        let mut link = Link::new(sim.connect(&addr, Duration::from_secs(1)).unwrap());
        let payloads = random_payloads(&mut Prng::new(seed), 30, 5_000);
        match exchange(&sim, &mut link, payloads) {
            (30, None) => whole += 1,
            (received, Some(LinkError::Io { peer, .. })) => {
                assert!(received < 30 && *peer == *addr, "seed {seed}");
                broken += 1;
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(broken > 10 && whole > 10, "{broken} broken, {whole} whole: the test shows nothing");
}

#[test]
fn the_same_seed_is_the_same_world() {
    let run = |seed| {
        let sim =
            Sim::new(seed, Faults { reset_per_million: 20_000, piece_bytes_max: 999, ..Faults::none() });
        let (addr, _) = sim_echo(&sim);
        let mut link = Link::new(sim.connect(&addr, Duration::from_secs(1)).unwrap());
        let (received, _) = exchange(&sim, &mut link, random_payloads(&mut Prng::new(9), 30, 5_000));
        (received, sim.now(), sim.resets())
    };
    assert_eq!(run(5), run(5));
    assert!((0..10).any(|seed| run(seed) != run(5)));
}

#[test]
fn a_full_queue_pushes_back_and_keeps_its_order() {
    let tcp = Tcp::new();
    let mut listener = tcp.listen("127.0.0.1:0").unwrap();
    let mut sender = Link::new(tcp.connect(listener.addr(), Duration::from_secs(5)).unwrap());
    let mut receiver = loop {
        if let Some(stream) = listener.accept().unwrap() {
            break Link::new(stream);
        }
    };
    let (mut sent, mut received, mut fulls) = (0u64, 0u64, 0);
    while received < 400 {
        while sent < 400 {
            let Some(payload) = sender.transmit().reserve(60_000) else {
                assert!(sender.transmit().queued_bytes() <= TRANSMIT_BYTES);
                fulls += 1;
                break;
            };
            payload.fill(sent as u8);
            sender.transmit().commit(Head::new(1, 0, sent, [0; 4]), 60_000);
            sent += 1;
        }
        sender.flush(&mut NoOwner).unwrap();
        if fulls > 3 || sent == 400 {
            receiver.fill(&mut NoOwner).unwrap();
            while let Some(frame) = receiver.receive().peek(&mut NoOwner).unwrap() {
                assert_eq!(frame.head.id, received);
                assert!(frame.payload.iter().all(|byte| *byte == received as u8));
                receiver.receive().consume();
                received += 1;
            }
        }
    }
    assert!(fulls > 3);
    let posts =
        (0..).map_while(|id| sender.transmit().post(Head::new(1, 0, id, [0; 4]), 0, id, &NoOwner).ok());
    assert!(posts.count() * HEAD_BYTES <= TRANSMIT_BYTES);
    assert_eq!(sender.transmit().send(Head::default()), Err(Full));
}

/// The error of a link that receives these bytes and then the end of the stream.
fn verdict(bytes: &[u8]) -> (LinkError, std::net::SocketAddr) {
    let tcp = Tcp::new();
    let mut listener = tcp.listen("127.0.0.1:0").unwrap();
    let mut raw = std::net::TcpStream::connect(listener.addr()).unwrap();
    let peer = raw.local_addr().unwrap();
    raw.write_all(bytes).unwrap();
    drop(raw);
    let mut link = loop {
        if let Some(stream) = listener.accept().unwrap() {
            break Link::new(stream);
        }
    };
    loop {
        match link.fill(&mut NoOwner) {
            Ok(Filled::Bytes(_)) => {}
            Ok(_) => std::thread::yield_now(),
            Err(error) => return (error, peer),
        }
        loop {
            match link.receive().peek(&mut NoOwner) {
                Ok(Some(_)) => link.receive().consume(),
                Ok(None) => break,
                Err(error) => return (error, peer),
            }
        }
    }
}

#[test]
fn garbage_is_named_with_its_peer() {
    let mut head = vec![0; HEAD_BYTES];
    let frame_error = |bytes: &[u8]| match verdict(bytes) {
        (LinkError::Frame { peer, source }, addr) => {
            assert_eq!(*peer, *addr.to_string());
            source
        }
        (other, _) => panic!("{other}"),
    };
    let http = b"GET / HTTP/1.1\r\nHost: localhost:7700\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
    assert!(matches!(frame_error(http), HeadError::Magic { got: 0x4547 }));
    Head { len: FRAME_BYTES_MAX as u32 + 8, ..Head::default() }.encode(&mut head);
    assert!(matches!(frame_error(&head), HeadError::TooLarge { .. }));
    Head { len: 8, flags: 1, payload_crc: 5, ..Head::default() }.encode(&mut head);
    assert!(matches!(
        frame_error(&[&head[..], b"payload!"].concat()),
        HeadError::PayloadCrc { got: 5, len: 8, .. }
    ));
    Head::default().encode(&mut head);
    let mut other_version = head.clone();
    other_version[2] = 9;
    assert!(matches!(frame_error(&other_version), HeadError::Version { got: 9, ours: 2 }));
    assert!(matches!(verdict(&head), (LinkError::Closed { .. }, _)), "a whole frame, then the end");
    assert!(matches!(verdict(&head[..40]), (LinkError::Closed { .. }, _)), "the end within a head");
}

#[test]
fn a_wrong_address_or_port_is_named() {
    let tcp = Tcp::new();
    let free = tcp.listen("127.0.0.1:0").unwrap().addr().to_owned();
    let refused = tcp.connect(&free, Duration::from_secs(1)).err().unwrap().to_string();
    assert!(refused.contains(&free), "{refused}");
    let unresolved = tcp.connect("nonsense", Duration::from_secs(1)).err().unwrap().to_string();
    assert!(unresolved.contains("nonsense is not an address"), "{unresolved}");
    let listener = tcp.listen("127.0.0.1:0").unwrap();
    let taken = tcp.listen(listener.addr()).err().unwrap().to_string();
    assert!(taken.contains(listener.addr()) && taken.contains("another port"), "{taken}");
}

#[test]
fn a_waker_ends_a_wait() {
    use gannet_transport::Waker;
    for tcp in drivers() {
        let mut poll = tcp.poll().unwrap();
        for wakes in [1, 3] {
            let waker = poll.waker();
            let started = std::time::Instant::now();
            let thread = std::thread::spawn(move || (0..wakes).for_each(|_| waker.wake()));
            poll.wait(Duration::from_secs(30), &mut Vec::new()).unwrap();
            assert!(started.elapsed() < Duration::from_secs(10));
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_cut_off_address_refuses_until_it_is_over() {
    let sim = Sim::new(3, Faults::none());
    let (addr, ends) = sim_echo(&sim);
    let mut link = Link::new(sim.connect(&addr, Duration::from_secs(1)).unwrap());
    sim.run(Duration::from_millis(1));
    sim.cut_off(&addr, Duration::from_secs(5));
    assert!(link.fill(&mut NoOwner).is_err());
    assert!(sim.connect(&addr, Duration::from_secs(1)).is_err());
    sim.run(Duration::from_secs(6));
    assert!(sim.connect(&addr, Duration::from_secs(1)).is_ok());
    assert_eq!(ends.borrow().len(), 1);
    let flag = Rc::new(Cell::new(0));
    let seen = flag.clone();
    let actor = sim.add_actor(move || seen.set(seen.get() + 1));
    sim.run(Duration::from_millis(20));
    sim.remove_actor(actor);
    let runs = flag.get();
    sim.run(Duration::from_millis(20));
    assert!(runs > 0 && flag.get() == runs);
}

#[test]
fn an_idle_link_has_no_memory_and_loses_no_queued_bytes() {
    let sim = Sim::new(1, Faults::none());
    let mut listener = sim.listen("sim:0").unwrap();
    let mut near = Link::new(sim.connect(listener.addr(), Duration::from_secs(1)).unwrap());
    let mut far = Link::new(listener.accept().unwrap().unwrap());
    assert_eq!((near.held_bytes(), far.held_bytes()), (0, 0));
    near.transmit().send_copy(Head::new(1, 0, 5, [0; 4]), &[7; 100]).unwrap();
    near.rest();
    assert!(near.held_bytes() >= TRANSMIT_BYTES, "what is queued is kept");
    near.flush(&mut NoOwner).unwrap();
    near.rest();
    assert_eq!(near.held_bytes(), 0);
    sim.run(Duration::from_millis(1));
    far.fill(&mut NoOwner).unwrap();
    far.rest();
    assert_eq!((far.receive().pending_bytes(), far.receive().count_frames(9)), (HEAD_BYTES + 104, 1));
    assert_eq!(far.receive().peek(&mut NoOwner).unwrap().unwrap().payload[..100], [7; 100]);
    far.receive().consume();
    far.rest();
    assert_eq!(far.held_bytes(), 0);
    for _ in 0..3 {
        near.transmit().send_copy(Head::new(1, 0, 5, [0; 4]), &[7; 16]).unwrap();
    }
    near.flush(&mut NoOwner).unwrap();
    sim.run(Duration::from_millis(1));
    far.fill(&mut NoOwner).unwrap();
    assert_eq!([1, 2, 3, 4].map(|most| far.receive().count_frames(most)), [1, 2, 3, 3]);
}

/// Workers do this so that an address that drops connections does not delay their other links.
#[test]
fn a_connection_may_be_begun_without_waiting_for_it() {
    drivers().iter().for_each(begin_without_waiting);
}

fn begin_without_waiting(tcp: &Tcp) {
    let mut listener = tcp.listen("127.0.0.1:0").unwrap();
    let (mut poll, mut events) = (tcp.poll().unwrap(), Vec::new());
    let mut link = Link::new(tcp.begin_connect(listener.addr(), 0).unwrap());
    poll.add(link.stream(), 1).unwrap();
    link.transmit().send_copy(Head::new(1, 0, 5, [0; 4]), b"early").unwrap();
    let mut far = None;
    let frame = loop {
        link.flush(&mut NoOwner).unwrap();
        far = far.or_else(|| listener.accept().unwrap().map(Link::new));
        if let Some(far) = &mut far {
            far.note(&Event { readable: true, ..Event::default() });
            far.fill(&mut NoOwner).unwrap();
            if let Some(frame) = far.receive().peek(&mut NoOwner).unwrap() {
                break frame.payload.to_vec();
            }
        }
        poll.wait(Duration::from_millis(5), &mut events).unwrap();
        events.iter().for_each(|event| link.note(event));
    };
    assert_eq!(frame, b"early\0\0\0");
    // Refused: the first operation reports it, or the connect does.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let Ok(stream) = tcp.begin_connect(&gone, 3) else { return };
    let mut link = Link::new(stream);
    poll.add(link.stream(), 2).unwrap();
    for _ in 0..1000 {
        match link.fill(&mut NoOwner) {
            Err(LinkError::Io { source, .. }) => {
                return assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
            }
            got => assert!(matches!(got, Ok(Filled::Empty)), "{got:?}"),
        }
        poll.wait(Duration::from_millis(5), &mut events).unwrap();
    }
    panic!("a refused connection says nothing");
}
