//! Floods, slow and silent peers, too many sessions, too little memory. The tests run in the simulation, where a minute
//! costs nothing.

use crate::config::{ServerConfig, SessionLimits};
use crate::counters::server::{ServerCounters, ThreadCounters};
use crate::limits::{FRAME_TIME, FRAMES_PER_TURN, SILENCE_TIME};
use crate::local::LocalServer;
use crate::sessions::refusals_tests::open_as;
use gannet_core::{NO_CLOCK, Read, Schema, Segments, Write};
use gannet_optim::{Add, Rule};
use gannet_sim::{Faults, Sim, SimStream};
use gannet_transport::limits::{HEAD_BYTES, LINK_BYTES_MAX};
use gannet_transport::{Head, Link, Net, NoOwner, Stream};
use gannet_wire::frames::bulk::{PullFrame, RowsFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::{HelloFrame, PingFrame, RefusedFrame, WelcomeFrame};
use gannet_wire::frames::sync::{JoinFrame, TickFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{HelloV1, JoinV1, RefusedV1};
use gannet_wire::refusal::Refusal;
use gannet_worker::{TableId, Worker, WorkerConfig, WorkerError};
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn config(limits: SessionLimits) -> ServerConfig {
    ServerConfig { threads: 1, limits, ..ServerConfig::new("sim:0") }
}

/// A server of one thread that runs whenever someone waits.
fn serve(sim: &Sim, limits: SessionLimits) -> (String, Arc<ServerCounters>) {
    let mut server = LocalServer::new(sim.clone(), config(limits)).unwrap();
    let (addr, counters) = (server.addr().to_owned(), server.shared_counters());
    sim.add_actor(move || server.run().unwrap());
    (addr, counters)
}

fn thread(counters: &ServerCounters) -> &ThreadCounters {
    &counters.threads[0]
}

fn schema() -> Schema {
    Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn worker(sim: &Sim, addrs: &[&str], pusher: u64) -> Worker<Sim> {
    let config = WorkerConfig::new(addrs.iter().copied(), pusher, 1);
    Worker::connect(sim.clone(), WorkerConfig { peer_timeout: 10 * SECOND, ..config }).unwrap()
}

/// Sends, lets the world go on, and returns what has come: `None` once the link has ended.
fn exchange(sim: &Sim, link: &mut Link<SimStream>) -> Option<Vec<(Head, Vec<u8>)>> {
    let _ = link.flush(&mut NoOwner);
    sim.run(Duration::from_millis(1));
    let mut frames = Vec::new();
    let filled = link.fill(&mut NoOwner);
    while let Some(frame) = link.receive().peek(&mut NoOwner).unwrap() {
        frames.push((frame.head, frame.payload.to_vec()));
        link.receive().consume();
    }
    (filled.is_ok() || !frames.is_empty()).then_some(frames)
}

/// A raw connection whose hello is on its way.
fn greeting(sim: &Sim, addr: &str) -> Link<SimStream> {
    let mut link = Link::new(sim.connect(addr, SECOND).unwrap());
    let hello = control::seal(&HelloV1 { pusher: 77, incarnation: 1, thread: 0 });
    link.transmit().send_copy(HelloFrame {}.encode(0), &hello).unwrap();
    link.flush(&mut NoOwner).unwrap();
    link
}

/// A raw session with the table open.
fn raw(sim: &Sim, addr: &str) -> Link<SimStream> {
    let mut link = greeting(sim, addr);
    let mut answers = Vec::new();
    while answers.is_empty() {
        answers.extend(exchange(sim, &mut link).unwrap());
    }
    assert_eq!(answers[0].0.kind, WelcomeFrame::KIND);
    assert_eq!(open_as(sim, &mut link, &schema()), 0);
    link
}

fn pull(keys: u32) -> (Head, Vec<u8>) {
    (
        PullFrame {
            table: 0,
            keys,
            read: Read::Weights,
            keep: 0,
            segments: Segments::ALL,
            slots: false,
            newer: false,
            clock: None,
            f16: false,
            versioned: false,
        }
        .encode(5),
        vec![1; keys as usize * 8],
    )
}

/// A link that sends pulls without end and never waits for an answer.
fn flooding(sim: &Sim, addr: &str, keys: u32, frames: usize) -> Link<SimStream> {
    let mut link = raw(sim, addr);
    let (head, payload) = pull(keys);
    (0..frames).for_each(|_| link.transmit().send_copy(head, &payload).unwrap());
    link
}

#[test]
fn more_requests_than_the_credit_end_the_session_with_a_reason() {
    let sim = Sim::new(1, Faults::none());
    let (addr, counters) = serve(&sim, SessionLimits { credit_frames: 100, ..SessionLimits::default() });
    let mut good = worker(&sim, &[&addr], 1);
    let table = good.open_table(&schema()).unwrap();
    let mut flood = flooding(&sim, &addr, 1, 1000);
    let (mut answers, mut refusal) = (0, None);
    while let Some(frames) = exchange(&sim, &mut flood) {
        for (head, payload) in frames {
            answers += u64::from(head.kind == RowsFrame::KIND);
            if head.kind == RefusedFrame::KIND {
                assert_eq!(Refusal::of(RefusedFrame::decode(&head).unwrap().code), Refusal::Limit);
                refusal = Some(control::open::<RefusedV1>(&payload).unwrap().text);
            }
        }
    }
    assert!(refusal.unwrap().contains("credit of 100"));
    assert!(answers <= FRAMES_PER_TURN as u64 && thread(&counters).overruns.get() == 1, "{answers}");
    // The same number of requests, from a worker that keeps to its credit.
    let cut = Arc::new(good.cut(table, &[1, 2, 3]));
    let begin = |worker: &mut Worker<Sim>| {
        worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), false).unwrap()
    };
    let pulls: Vec<_> = (0..1000).map(|_| begin(&mut good)).collect();
    pulls.into_iter().for_each(|pull| assert_eq!(good.finish_pull(pull).unwrap().values, [0.0; 3]));
    let worker_counters = good.counters();
    assert!(worker_counters.credit_waits > 0 && worker_counters.links_lost == 0, "{worker_counters:?}");
    assert_eq!(thread(&counters).overruns.get(), 1);
}

/// Answers that wait for other workers count against the session's credit, however small they are.
#[test]
fn nor_can_requests_behind_one_that_waits_be_more() {
    let sim = Sim::new(1, Faults::none());
    let (addr, counters) = serve(&sim, SessionLimits { credit_frames: 100, ..SessionLimits::default() });
    let mut link = raw(&sim, &addr);
    let (clock, timeout_ms) = (NO_CLOCK, 60_000);
    let join = JoinV1 {
        rank: 0,
        workers: 2,
        mode: 2,
        bound: 2,
        mean: false,
        strict: false,
        timeout_ms,
        clock,
        left: 0,
    };
    link.transmit().send_copy(JoinFrame { table: 0 }.encode(1), &control::seal(&join)).unwrap();
    link.transmit().send(TickFrame { table: 0, clock: 1, skip: false }.encode(2)).unwrap();
    let (head, payload) = pull(1);
    let waits = PullFrame { clock: Some(1), ..PullFrame::decode(&head).unwrap() };
    link.transmit().send_copy(waits.encode(head.id), &payload).unwrap();
    let mut refusal = None;
    for id in 10..10_000 {
        let _ = link.transmit().send(PingFrame {}.encode(id));
        let Some(frames) = exchange(&sim, &mut link) else { break };
        let refused = frames.into_iter().find(|(head, _)| head.kind == RefusedFrame::KIND);
        refusal = refusal
            .or(refused.map(|(head, payload)| (RefusedFrame::decode(&head).unwrap().code, payload, id)));
    }
    let (code, payload, id) = refusal.expect("it is refused");
    let text = control::open::<RefusedV1>(&payload).unwrap().text;
    assert!(Refusal::of(code) == Refusal::Limit && text.contains("credit of 100"), "{text}");
    assert!((105..120).contains(&id) && thread(&counters).overruns.get() == 1, "after {id}");
}

#[test]
fn a_credit_in_bytes_is_kept_and_one_large_request_always_goes() {
    let sim = Sim::new(1, Faults::none());
    let least = SessionLimits { credit_bytes: 300_000, ..SessionLimits::default() };
    let (addr, _) = serve(&sim, least);
    let mut worker = worker(&sim, &[&addr], 1);
    let table = worker.open_table(&schema()).unwrap();
    let keys: Vec<u64> = (0..100_000).collect();
    let mut out = vec![1.0; keys.len()];
    worker.push(table, &keys, Write::Gradient, &out).unwrap();
    out.fill(0.0);
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out.iter().all(|value| *value == 1.0));
    assert!(worker.counters().credit_waits > 0 && worker.counters().links_lost == 0);
}

/// The answer to a small pull comes within two rounds of the thread's loop, however much other sessions send.
#[test]
fn a_flood_delays_others_by_a_turn_each_and_no_more() {
    let sim = Sim::new(1, Faults { window_bytes: 400_000, ..Faults::none() });
    let limits = SessionLimits { credit_frames: u32::MAX, ..SessionLimits::default() };
    let server = LocalServer::new(sim.clone(), config(limits)).unwrap();
    let addr = server.addr().to_owned();
    let (server, by_rounds) = (Rc::new(RefCell::new(server)), Rc::new(Cell::new(false)));
    let (shared, stopped) = (server.clone(), by_rounds.clone());
    sim.add_actor(move || {
        if !stopped.get() {
            shared.borrow_mut().run().unwrap();
        }
    });
    let mut good = raw(&sim, &addr);
    let mut floods: Vec<_> = (0..5).map(|_| raw(&sim, &addr)).collect();
    by_rounds.set(true);
    let mut most = 0;
    for _ in 0..100 {
        for flood in &mut floods {
            let (head, payload) = pull(1);
            while flood.transmit().queued_bytes() < 50_000 {
                flood.transmit().send_copy(head, &payload).unwrap();
            }
            flood.flush(&mut NoOwner).unwrap();
        }
        let (head, payload) = pull(64);
        good.transmit().send_copy(head, &payload).unwrap();
        while !good.transmit().is_empty() {
            good.flush(&mut NoOwner).unwrap();
        }
        sim.run(Duration::from_millis(1));
        for round in 1.. {
            let more = server.borrow_mut().threads[0].run_once(Duration::ZERO).unwrap();
            assert!(more, "the floods are there");
            sim.run(Duration::from_millis(1));
            floods.iter_mut().for_each(take_all);
            good.fill(&mut NoOwner).unwrap();
            if good.receive().peek(&mut NoOwner).unwrap().is_some() {
                good.receive().consume();
                most = most.max(round);
                break;
            }
        }
    }
    assert!(most <= 2, "{most} rounds");
}

fn take_all(link: &mut Link<SimStream>) {
    link.fill(&mut NoOwner).unwrap();
    while link.receive().peek(&mut NoOwner).unwrap().is_some() {
        link.receive().consume();
    }
}

/// Bytes that trickle keep a link moving, but the frame takes too long.
#[test]
fn a_frame_that_trickles_in_ends_its_session_and_a_greeting_its_connection() {
    let sim = Sim::new(1, Faults::none());
    let (addr, counters) = serve(&sim, SessionLimits::default());
    let mut good = worker(&sim, &[&addr], 1);
    let table = good.open_table(&schema()).unwrap();
    let (head, payload) = pull(1000);
    let mut frame = vec![0; HEAD_BYTES];
    Head { len: payload.len() as u32, ..head }.encode(&mut frame);
    frame.extend(payload);
    let trickle = |stream: &mut SimStream| {
        let mut out = [0.0];
        let mut worker = worker(&sim, &[&addr], 2);
        let table = worker.open_table(&schema()).unwrap();
        for second in 0..200 {
            if stream.send(&[IoSlice::new(&frame[second..=second])]).is_err() {
                return second as u64;
            }
            sim.run(SECOND);
            worker.pull(table, &[1], Read::Weights, &mut out).unwrap();
        }
        panic!("it was let be");
    };
    let mut link = raw(&sim, &addr);
    let lasted = trickle(link.stream_mut());
    assert!((FRAME_TIME.as_secs()..FRAME_TIME.as_secs() + 5).contains(&lasted), "{lasted} s");
    assert_eq!(thread(&counters).stalled.get(), 1);
    let mut greeting = sim.connect(&addr, SECOND).unwrap();
    let lasted = trickle(&mut greeting);
    assert!((4..8).contains(&lasted), "{lasted} s");
    assert_eq!(counters.acceptor.dropped.get(), 1);
    let mut out = [0.0];
    good.pull(table, &[1], Read::Weights, &mut out).unwrap();
    assert_eq!(good.counters().links_lost, 0);
}

#[test]
fn answers_that_nobody_takes_end_the_session() {
    let sim = Sim::new(1, Faults { window_bytes: 20_000, ..Faults::none() });
    let (addr, counters) = serve(&sim, SessionLimits::default());
    let mut flood = flooding(&sim, &addr, 2000, 40);
    for _ in 0..100 {
        let _ = flood.flush(&mut NoOwner);
        sim.run(SECOND);
    }
    assert_eq!((thread(&counters).stalled.get(), thread(&counters).queued_bytes.get()), (1, 0));
}

/// A peer that takes answers steadily, and sends a request for each, never empties the server's queue. It is only slow,
/// so its session goes on. The server ends the session of a peer that takes next to nothing.
#[test]
fn a_queue_that_is_never_empty_is_fine_as_long_as_it_moves() {
    let sim = Sim::new(1, Faults { window_bytes: 10_000, ..Faults::none() });
    let (addr, counters) = serve(&sim, SessionLimits::default());
    let mut opener = worker(&sim, &[&addr], 1);
    opener.open_table(&schema()).unwrap();
    opener.open_table(&Schema { name: "wide".into(), dim: 64, ..schema() }).unwrap();
    // 30,720 bytes an answer, four requests under way: about three answers wait behind the one that the peer takes.
    let wide = PullFrame {
        table: 1,
        keys: 120,
        read: Read::Weights,
        keep: 0,
        segments: Segments::ALL,
        slots: false,
        newer: false,
        clock: None,
        f16: false,
        versioned: false,
    }
    .encode(5);
    for (pause, lasts) in [(SECOND / 5, 300..301), (20 * SECOND, 60..130)] {
        let (mut slow, mut owed) = (raw(&sim, &addr), 4);
        let started = sim.now();
        while sim.now() < started + 300 * SECOND {
            (0..owed).for_each(|_| slow.transmit().send_copy(wide, &[1; 960]).unwrap());
            let Some(frames) = exchange(&sim, &mut slow) else { break };
            owed = frames.len();
            sim.run(pause);
        }
        let lasted = (sim.now() - started).as_secs();
        assert!(lasts.contains(&lasted), "{lasted} s with {pause:?} between looks");
    }
    assert_eq!(thread(&counters).stalled.get(), 1);
}

/// A worker that uses one server pings the other. The server drops a peer that sends nothing at all. A worker that was
/// silent for an hour connects again.
#[test]
fn silence_ends_a_session_and_pings_prevent_it() {
    let sim = Sim::new(1, Faults::none());
    let (busy, _) = serve(&sim, SessionLimits::default());
    let (quiet, counters) = serve(&sim, SessionLimits::default());
    let mut worker = worker(&sim, &[&busy, &quiet], 1);
    // The table has one shard: server 1 has it, server 0 has none.
    let table = worker.open_table(&schema()).unwrap();
    let mut out = [0.0];
    for _ in 0..SILENCE_TIME.as_secs() * 3 {
        sim.run(SECOND);
        worker.pull(table, &[1], Read::Weights, &mut out).unwrap();
    }
    let worker_counters = worker.counters();
    assert!(worker_counters.pings > 50 && worker_counters.links_lost == 0, "{worker_counters:?}");
    let silent = greeting(&sim, &quiet);
    sim.run(Duration::from_secs(3600));
    assert_eq!(
        thread(&counters).silent.get(),
        2,
        "the silent one, and the worker that did not call for an hour"
    );
    worker.push(table, &[1], Write::Gradient, &[2.0]).unwrap();
    worker.pull(table, &[1], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [2.0]);
    drop(silent);
}

#[test]
fn a_server_that_is_silent_is_noticed_although_nothing_is_asked_of_it() {
    let sim = Sim::new(1, Faults::none());
    let (busy, _) = serve(&sim, SessionLimits::default());
    // The worker takes part until it is frozen. Like with a stopped process, connections stay and nothing is answered.
    let frozen = Rc::new(Cell::new(false));
    let mut server = LocalServer::new(sim.clone(), config(SessionLimits::default())).unwrap();
    let (addr, stopped) = (server.addr().to_owned(), frozen.clone());
    sim.add_actor(move || {
        if !stopped.get() {
            server.run().unwrap();
        }
    });
    let mut worker = worker(&sim, &[&addr, &busy], 1);
    let table = worker.open_table(&schema()).unwrap();
    frozen.set(true);
    let mut out = [0.0];
    let mut lost_after = 0;
    for second in 0..120 {
        sim.run(SECOND);
        worker.pull(table, &[1], Read::Weights, &mut out).unwrap();
        if worker.counters().links_lost == 0 {
            lost_after = second;
        }
    }
    assert!((20..40).contains(&lost_after), "{lost_after} s");
    frozen.set(false);
    let status = worker.status(table).unwrap();
    assert_eq!(status.stats.shards, 1);
}

#[test]
fn a_server_with_all_its_sessions_says_so_and_takes_who_waits() {
    let sim = Sim::new(1, Faults::none());
    let (addr, counters) = serve(&sim, SessionLimits { sessions: 2, ..SessionLimits::default() });
    let first = worker(&sim, &[&addr], 1);
    let _second = worker(&sim, &[&addr], 2);
    let config = WorkerConfig { peer_timeout: 3 * SECOND, ..WorkerConfig::new([&addr], 3, 1) };
    let Err(error) = Worker::connect(sim.clone(), config.clone()) else { panic!("a third session") };
    let text = error.to_string();
    assert!(
        matches!(error, WorkerError::PeerLost { .. }) && text.contains("2 sessions, the limit"),
        "{text}"
    );
    assert!(thread(&counters).refused_sessions.get() > 2);
    let (mut leaving, started) = (vec![first], sim.now());
    let world = sim.clone();
    sim.add_actor(move || {
        if world.now() > started + SECOND {
            leaving.clear();
        }
    });
    assert_eq!(Worker::connect(sim.clone(), config).unwrap().links(), 1);
}

/// There is memory for the buffers of two sessions, and thirty sessions want some. All are served in turn.
#[test]
fn sessions_share_what_memory_there_is() {
    let sim = Sim::new(1, Faults::none());
    let limits = SessionLimits { buffer_bytes: 2 * LINK_BYTES_MAX, ..SessionLimits::default() };
    let (addr, counters) = serve(&sim, limits);
    let mut workers: Vec<_> = (0..30).map(|pusher| worker(&sim, &[&addr], pusher)).collect();
    let tables: Vec<_> = workers.iter_mut().map(|worker| worker.open_table(&schema()).unwrap()).collect();
    let keys: Vec<u64> = (0..5000).collect();
    for _ in 0..5 {
        let begin = |(worker, &table): (&mut Worker<Sim>, &TableId)| {
            let cut = Arc::new(worker.cut(table, &keys));
            let (values, seq) = (vec![1.0; keys.len()], worker.next_seq(table));
            worker.begin_push(table, cut, Write::Gradient, values, None, seq).unwrap()
        };
        let pushes: Vec<_> = workers.iter_mut().zip(&tables).map(begin).collect();
        while workers.iter().zip(&pushes).any(|(worker, push)| !worker.is_acked(*push)) {
            for worker in &mut workers {
                worker.poll().unwrap();
            }
            sim.run(Duration::from_millis(1));
        }
        sim.run(SECOND);
        assert!(thread(&counters).buffer_bytes.get() as usize <= 2 * LINK_BYTES_MAX);
    }
    let mut out = vec![0.0; keys.len()];
    workers[7].pull(tables[7], &keys, Read::Weights, &mut out).unwrap();
    assert!(out.iter().all(|value| *value == 150.0));
    assert!(thread(&counters).memory_waits.get() > 0, "nobody waited: the test shows nothing");
    assert!(workers.iter().all(|worker| worker.counters().links_lost == 0));
    sim.run(4 * SECOND);
    assert_eq!(thread(&counters).buffer_bytes.get(), 0, "sessions at rest hold none");
    // A session that leaves a frame half sent soon makes way when others wait.
    let mut halves: Vec<_> = (0..2).map(|_| sim_half(&sim, &addr)).collect();
    workers[3].pull(tables[3], &keys, Read::Weights, &mut out).unwrap();
    assert!(thread(&counters).stalled.get() > 0);
    halves.clear();
}

/// A session that has sent half a frame.
fn sim_half(sim: &Sim, addr: &str) -> Link<SimStream> {
    let mut link = raw(sim, addr);
    let mut head = [0; HEAD_BYTES];
    Head { len: 80_000, ..pull(1).0 }.encode(&mut head);
    link.stream_mut().send(&[IoSlice::new(&head)]).unwrap();
    sim.run(Duration::from_millis(1));
    link
}

/// Bytes that come with a hello are in the acceptor's buffer. A session without a share of the memory cannot keep them.
#[test]
fn bytes_before_the_welcome_are_not_kept_beside_the_memory_that_there_is() {
    let sim = Sim::new(1, Faults::none());
    let limits = SessionLimits { buffer_bytes: LINK_BYTES_MAX, ..SessionLimits::default() };
    let (addr, _) = serve(&sim, limits);
    let half = sim_half(&sim, &addr);
    let hasty = || {
        let mut link = Link::new(sim.connect(&addr, SECOND).unwrap());
        let hello = control::seal(&HelloV1 { pusher: 78, incarnation: 1, thread: 0 });
        link.transmit().send_copy(HelloFrame {}.encode(0), &hello).unwrap();
        let (head, payload) = pull(1);
        link.transmit().send_copy(head, &payload).unwrap();
        link
    };
    let answers = |mut link: Link<SimStream>| {
        let all = (0..1000).map_while(|_| exchange(&sim, &mut link)).flatten();
        all.take(2).collect::<Vec<_>>()
    };
    let refused = answers(hasty());
    assert_eq!(RefusedFrame::decode(&refused[0].0).unwrap().code, Refusal::Limit as u16);
    let text = control::open::<RefusedV1>(&refused[0].1).unwrap().text;
    assert!(refused.len() == 1 && text.contains("--session-memory"), "{text}");
    // With memory for the bytes, the session is accepted.
    drop(half);
    sim.run(SECOND);
    let kinds: Vec<_> = answers(hasty()).iter().map(|(head, _)| head.kind).collect();
    assert_eq!(kinds, [WelcomeFrame::KIND, RowsFrame::KIND]);
}
