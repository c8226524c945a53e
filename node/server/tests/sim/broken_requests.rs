//! A server that greets and then breaks every request. Its greeting is no progress: after the peer timeout its callers
//! end, and name it. A relay before a real server plays it.

use crate::model;

use gannet_core::{Store, Write};
use gannet_sim::{Faults, Sim, SimStream};
use gannet_transport::{Event, Head, Link, Listener, Net, NoOwner};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::WaitsFrame;
use gannet_wire::messages::control::{WaitsV2, seal_as};
use gannet_wire::{SyncConfig, SyncMode};
use gannet_worker::limits::REPORTS_STAND;
use gannet_worker::{OneSided, Worker, WorkerConfig, WorkerError};
use model::{schema, start};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Frames of docs/wire.md.
const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const ROWS: u16 = 6;
const PUSH: u16 = 7;
const REFUSED: u16 = 15;
const IMAGES: u16 = 23;
const IDENTIFY: u16 = 51;

/// Where the number of threads is in a welcome.
const THREADS: std::ops::Range<usize> = 20..24;

const TIMEOUT: Duration = Duration::from_secs(4);

/// What the relay does with requests.
#[derive(Clone, Copy, PartialEq)]
enum Breaks {
    Nothing,
    /// It ends the connection at the first request behind the greeting.
    Closes,
    /// It ends the connection at the request after so many behind the greeting.
    ClosesAfter(u32),
    /// It answers that request with rows that nobody asked for.
    Nonsense,
    /// It opens tables and answers what concerns the link. It ends the connection at a push.
    ClosesAtPushes,
    /// As `ClosesAtPushes`, also where a table is first opened. Each greeting names another number of threads than the
    /// last.
    OtherThreads,
    /// At a push it reports that another worker is waited for, again every second while the connection stands. It ends
    /// the connection so long after the push, and lets no other come for a while.
    Reports {
        stands: Duration,
        away: Duration,
    },
}

/// One connection through the relay.
struct Relayed {
    worker: Link<SimStream>,
    server: Link<SimStream>,
    threads: u32,
    /// Requests behind the greeting.
    requests: u32,
    /// When a push came, its id, and when the last report of a wait was sent.
    waits: Option<(Duration, u64, Duration)>,
}

/// Takes what has come, and sends what is queued.
fn frames(link: &mut Link<SimStream>) -> Option<Vec<(Head, Vec<u8>)>> {
    link.note(&Event { readable: true, writable: true, ..Event::default() });
    link.flush(&mut NoOwner).ok()?;
    let mut frames = Vec::new();
    while link.is_readable() {
        link.fill(&mut NoOwner).ok()?;
        while let Some(frame) = link.receive().peek(&mut NoOwner).ok()? {
            frames.push((frame.head, frame.payload.to_vec()));
            link.receive().consume();
        }
    }
    Some(frames)
}

impl Relayed {
    /// `None`: the connection ends.
    fn turn(&mut self, breaks: Breaks, now: Duration) -> Option<()> {
        for (head, payload) in frames(&mut self.worker)? {
            let is_work = head.kind == PUSH || head.kind == IDENTIFY && breaks == Breaks::OtherThreads;
            self.requests += u32::from(head.kind != HELLO);
            match (head.kind, breaks) {
                (HELLO, _) | (_, Breaks::Nothing) => self.server.transmit().send_copy(head, &payload).ok()?,
                (_, Breaks::Closes) => return None,
                (_, Breaks::ClosesAfter(count)) if self.requests > count => return None,
                (_, Breaks::Nonsense) => {
                    self.worker.transmit().send_copy(Head::new(ROWS, 0, 1, [0; 4]), &[0; 64]).ok()?;
                }
                (PUSH, Breaks::Reports { .. }) => {
                    let _ = self.waits.get_or_insert((now, head.id, now.saturating_sub(REPORTED_EVERY)));
                }
                _ if is_work => return None,
                (IMAGES, _) => {
                    let refused = Head::new(REFUSED, 1, head.id, [u64::from(IMAGES), 0, 0, 0]);
                    self.worker.transmit().send(refused).ok()?;
                }
                _ => self.server.transmit().send_copy(head, &payload).ok()?,
            }
        }
        for (head, mut payload) in frames(&mut self.server)? {
            if head.kind == WELCOME && breaks == Breaks::OtherThreads {
                payload[THREADS].copy_from_slice(&self.threads.to_le_bytes());
            }
            self.worker.transmit().send_copy(head, &payload).ok()?;
        }
        if self.waits.is_some() && breaks == Breaks::Nothing {
            return None;
        }
        if let (Some((since, id, reported)), Breaks::Reports { stands, .. }) = (&mut self.waits, breaks) {
            if now >= *reported + REPORTED_EVERY {
                *reported = now;
                let waits = WaitsV2 { table: 0, rank: 1, clock: 0, pusher: 0, incarnation: 0, here: false };
                self.worker.transmit().send_copy(WaitsFrame {}.encode(*id), &seal_as(2, &waits)).ok()?;
                self.worker.flush(&mut NoOwner).ok()?;
            } else if now >= *since + stands {
                return None;
            }
        }
        self.worker.flush(&mut NoOwner).ok()?;
        self.server.flush(&mut NoOwner).ok()?;
        Some(())
    }
}

/// How often it reports a wait.
const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// A relay before the server at `to`: its address, what it breaks, and how many connections came.
fn relay(sim: &Sim, to: &str) -> (String, Rc<Cell<Breaks>>, Rc<Cell<u32>>) {
    let mut listener = sim.listen("sim:0").unwrap();
    let addr = listener.addr().to_owned();
    let (breaks, came) = (Rc::new(Cell::new(Breaks::Nothing)), Rc::new(Cell::new(0)));
    let (now, count, own, to) = (breaks.clone(), came.clone(), sim.clone(), to.to_owned());
    let mut connections: Vec<Relayed> = Vec::new();
    let mut away_until = Duration::ZERO;
    sim.add_actor(move || {
        let time = own.now();
        while let Some(stream) = listener.accept().unwrap() {
            count.set(count.get() + 1);
            if time < away_until {
                continue;
            }
            let server = Link::new(own.connect(&to, Duration::ZERO).unwrap());
            connections.push(Relayed {
                worker: Link::new(stream),
                server,
                threads: 2 + count.get() % 2,
                requests: 0,
                waits: None,
            });
        }
        let before = connections.len();
        connections.retain_mut(|connection| connection.turn(now.get(), time).is_some());
        if let (Breaks::Reports { away, .. }, true) = (now.get(), connections.len() < before) {
            away_until = time + away;
        }
    });
    (addr, breaks, came)
}

fn config(addr: &str) -> WorkerConfig {
    WorkerConfig { peer_timeout: TIMEOUT, one_sided: OneSided::Always, ..WorkerConfig::new([addr], 1, 1) }
}

/// Runs a worker as a process of its own for five times its patience. Returns how it ended.
fn ended(
    sim: &Sim,
    work: impl FnOnce(Sim) -> Result<(), WorkerError> + 'static,
) -> Option<Result<(), WorkerError>> {
    let end = Rc::new(RefCell::new(None));
    let (into, own) = (end.clone(), sim.clone());
    let process = sim.spawn(move || *into.borrow_mut() = Some(work(own)));
    sim.run(TIMEOUT * 5);
    sim.kill(&process);
    end.take()
}

/// The worker has given the server up for lost, and named it.
fn is_lost(end: Option<Result<(), WorkerError>>, addr: &str) -> String {
    let error = end.expect("the worker is kept waiting for ever").expect_err("the requests were broken");
    let WorkerError::PeerLost { peer, waited, why } = error else { panic!("{error}") };
    assert!(peer.starts_with(addr) && waited < TIMEOUT * 2, "{peer}, {waited:?}: {why}");
    why
}

#[test]
fn a_server_that_greets_and_breaks_every_request_kept_its_callers_for_ever() {
    for breaks in [Breaks::Closes, Breaks::Nonsense] {
        // So that the connections do not use up the sessions of the real server.
        let sim = Sim::new(1, Faults { delay_max: Duration::from_millis(20), ..Faults::none() });
        let (_, server) = start(&sim, "sim:0", &Store::memory(), 1);
        let (addr, mode, came) = relay(&sim, &server);
        mode.set(breaks);
        let to = addr.clone();
        let end = ended(&sim, move |sim| {
            Worker::connect(sim, config(&to))?.open_table(&schema("t", 1, 4)).map(|_| ())
        });
        let why = is_lost(end, &addr);
        assert!(why.contains("it greets this worker, but completes no request"), "{why}");
        // It pauses longer and longer.
        assert!(came.get() < 20, "{} connections", came.get());
    }
}

/// Once, what the server said about a link counted as an answer to the push for which the link was made, and so did
/// another number of threads.
#[test]
fn so_did_one_that_answers_whatever_is_no_work() {
    for (breaks, threads) in [(Breaks::ClosesAtPushes, 1), (Breaks::OtherThreads, 3)] {
        let sim = Sim::new(1, Faults::none()).near();
        let (_, server) = start(&sim, "sim:0", &Store::memory(), threads);
        let (addr, mode, _) = relay(&sim, &server);
        let to = addr.clone();
        let end = ended(&sim, move |sim| {
            let mut worker = Worker::connect(sim, config(&to))?;
            let table = worker.open_table(&schema("t", 1, 4))?;
            worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3])?;
            mode.set(breaks);
            worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3])
        });
        is_lost(end, &addr);
    }
}

/// Once, a worker that joined behind a lost link joined again on the next link, and that one was lost, too.
#[test]
fn so_did_one_that_answers_two_requests_of_each_connection() {
    let sim = Sim::new(1, Faults { delay_max: Duration::from_millis(5), ..Faults::none() });
    let (_, server) = start(&sim, "sim:0", &Store::memory(), 1);
    let (addr, mode, came) = relay(&sim, &server);
    let to = addr.clone();
    let joined = Rc::new(Cell::new(0));
    let count = joined.clone();
    let end = ended(&sim, move |sim| {
        let mut worker = Worker::connect(sim, config(&to))?;
        let table = worker.open_table(&schema("t", 1, 4))?;
        mode.set(Breaks::ClosesAfter(2));
        let worker_timeout = Duration::from_secs(30);
        let sync = SyncConfig { rank: 0, workers: 1, mode: SyncMode::Ssp(8), worker_timeout, strict: false };
        worker.join(table, sync)?;
        count.set(count.get() + 1);
        worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3])
    });
    is_lost(end, &addr);
    assert_eq!(joined.get(), 1, "the answer to the join came behind a new link");
    assert!(came.get() < 20, "{} connections", came.get());
}

#[test]
fn so_did_one_whose_every_greeting_names_another_number_of_threads() {
    for first in [Breaks::OtherThreads, Breaks::Nothing] {
        let sim = Sim::new(1, Faults::none());
        let (_, server) = start(&sim, "sim:0", &Store::memory(), 3);
        let (addr, mode, _) = relay(&sim, &server);
        let to = addr.clone();
        mode.set(first);
        let end = ended(&sim, move |sim| {
            let mut worker = Worker::connect(sim, config(&to))?;
            mode.set(Breaks::OtherThreads);
            worker.open_table(&schema("t", 1, 4)).map(|_| ())
        });
        is_lost(end, &addr);
    }
}

/// A server that is away, or breaks its requests, for less than the peer timeout costs its callers only that time.
#[test]
fn a_server_that_is_back_in_time_is_waited_for() {
    for breaks in [Breaks::Closes, Breaks::Nonsense, Breaks::ClosesAtPushes, Breaks::OtherThreads] {
        let sim = Sim::new(1, Faults::none());
        let (_, server) = start(&sim, "sim:0", &Store::memory(), 3);
        let (addr, mode, _) = relay(&sim, &server);
        let (to, during) = (addr.clone(), mode.clone());
        let end = Rc::new(RefCell::new(None));
        let (into, own) = (end.clone(), sim.clone());
        let _process = sim.spawn(move || {
            let work = || {
                let mut worker = Worker::connect(own.clone(), config(&to))?;
                let table = worker.open_table(&schema("t", 1, 4))?;
                worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3])?;
                during.set(breaks);
                worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3])
            };
            *into.borrow_mut() = Some(work());
        });
        sim.run(TIMEOUT / 2);
        mode.set(Breaks::Nothing);
        sim.run(TIMEOUT);
        end.take().expect("the worker still waits").unwrap();
    }
}

/// Pushes while the relay reports waits. For `answered_after` nothing but reports comes; then the push is answered.
fn push_during_reports(
    reports: Breaks,
    answered_after: Duration,
) -> (Option<Result<(), WorkerError>>, String) {
    let sim = Sim::new(1, Faults::none());
    let (_, server) = start(&sim, "sim:0", &Store::memory(), 1);
    let (addr, mode, _) = relay(&sim, &server);
    let (to, during) = (addr.clone(), mode.clone());
    let end = Rc::new(RefCell::new(None));
    let (into, own) = (end.clone(), sim.clone());
    let process = sim.spawn(move || {
        let work = || {
            let mut worker = Worker::connect(own.clone(), config(&to))?;
            let table = worker.open_table(&schema("t", 1, 4))?;
            during.set(reports);
            worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3])
        };
        *into.borrow_mut() = Some(work());
    });
    sim.run(answered_after);
    assert!(end.borrow().as_ref().is_none_or(Result::is_err), "acknowledged by nobody");
    mode.set(Breaks::Nothing);
    sim.run(TIMEOUT * 2);
    sim.kill(&process);
    (end.take(), addr)
}

/// Once, each report began the patience anew.
#[test]
fn so_did_one_that_reports_a_wait_and_then_ends_each_link() {
    for stands in [Duration::ZERO, Duration::from_millis(500)] {
        let reports = Breaks::Reports { stands, away: Duration::ZERO };
        let (end, addr) = push_during_reports(reports, TIMEOUT * 5);
        let why = is_lost(end, &addr);
        assert!(why.contains("it greets this worker, but completes no request"), "{why}");
    }
}

#[test]
fn a_server_that_reports_a_wait_for_long_is_waited_for() {
    let reports = Breaks::Reports { stands: Duration::MAX / 2, away: Duration::ZERO };
    push_during_reports(reports, TIMEOUT * 10).0.expect("the worker still waits").unwrap();
}

/// The time of the reports is no silence, so the server has the whole patience when its link is lost behind them.
#[test]
fn a_server_that_is_away_behind_its_reports_is_waited_for() {
    let reports = Breaks::Reports { stands: TIMEOUT * 5, away: TIMEOUT / 2 };
    push_during_reports(reports, TIMEOUT * 8).0.expect("the worker still waits").unwrap();
}

/// Links that stand for long are lost from time to time. Their short gaps do not add up.
#[test]
fn gaps_between_links_that_stood_for_long_do_not_add_up() {
    let reports = Breaks::Reports { stands: REPORTS_STAND * 2, away: TIMEOUT / 2 };
    push_during_reports(reports, REPORTS_STAND * 20).0.expect("the worker still waits").unwrap();
}

/// Such gaps do add up where links are lost soon: the server may be one that breaks each link.
#[test]
fn gaps_between_links_that_are_lost_soon_add_up() {
    let reports = Breaks::Reports { stands: Duration::from_secs(2), away: TIMEOUT / 2 };
    let (end, addr) = push_during_reports(reports, TIMEOUT * 20);
    is_lost(end, &addr);
}
