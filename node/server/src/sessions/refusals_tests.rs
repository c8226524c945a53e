//! What a server refuses, frame by frame, over a raw link of the simulation: requests that Gannet's workers never send.

use crate::config::ServerConfig;
use crate::local::LocalServer;
use gannet_core::{Admission, Init, NO_CLOCK, Read, Schema, Segments, Write};
use gannet_optim::{Adam, Add, GradientTransform, Rule};
use gannet_sim::{Faults, Sim, SimStream};
use gannet_transport::{Head, Link, Net, NoOwner};
use gannet_wire::frames::any_head;
use gannet_wire::frames::bulk::{AckFrame, PullFrame, PushFrame, RowsFrame, ScanFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::push_payload::{PushPayload, PushValues};
use gannet_wire::frames::session::{HelloFrame, PingFrame, RefusedFrame};
use gannet_wire::frames::sync::{JoinFrame, JoinedFrame, TickFrame, TickedFrame};
use gannet_wire::frames::tables::{IdentifyFrame, OpenTableFrame, StatusFrame};
use gannet_wire::frames::word::pair_of_words;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{
    HelloV1, IdentifyV2, IdentityV1, JoinV1, JoinedV1, OpenTableV2, RefusedV1, TableOpenedV4, WelcomeV1,
};
use gannet_wire::refusal::Refusal;
use std::time::Duration;

pub(crate) fn acked(head: &Head) -> gannet_core::Applied {
    AckFrame::decode(head).unwrap().applied()
}

pub(crate) fn ask(sim: &Sim, link: &mut Link<SimStream>, head: Head, payload: &[u8]) -> (Head, Vec<u8>) {
    link.transmit().send_copy(head, payload).unwrap();
    next(sim, link)
}

/// The next answer.
pub(crate) fn next(sim: &Sim, link: &mut Link<SimStream>) -> (Head, Vec<u8>) {
    for _ in 0..1000 {
        link.flush(&mut NoOwner).unwrap();
        sim.run(Duration::from_millis(1));
        link.fill(&mut NoOwner).unwrap();
        if let Some(frame) = link.receive().peek(&mut NoOwner).unwrap() {
            let answer = (frame.head, frame.payload.to_vec());
            link.receive().consume();
            return answer;
        }
    }
    panic!("no answer");
}

pub(crate) fn refused(answer: (Head, Vec<u8>)) -> (Refusal, String) {
    let code = RefusedFrame::decode(&answer.0).unwrap().code;
    (Refusal::of(code), control::open::<RefusedV1>(&answer.1).unwrap().text)
}

pub(crate) fn greet(sim: &Sim, addr: &str) -> (Link<SimStream>, WelcomeV1) {
    greet_as(sim, addr, 1)
}

/// Greets a server as this pusher.
pub(crate) fn greet_as(sim: &Sim, addr: &str, pusher: u64) -> (Link<SimStream>, WelcomeV1) {
    let mut link = Link::new(sim.connect(addr, Duration::from_secs(1)).unwrap());
    let hello = control::seal(&HelloV1 { pusher, incarnation: 1, thread: 0 });
    let (_, welcome) = ask(sim, &mut link, HelloFrame {}.encode(0), &hello);
    (link, control::open(&welcome).unwrap())
}

/// The payload of a push of these rows, or of a pull of these keys.
pub(crate) fn bytes(keys: &[u64], values: &[f32]) -> Vec<u8> {
    PushPayload { keys, values: PushValues::F32(values), ..PushPayload::default() }.to_bytes()
}

pub(crate) fn small_world() -> (Sim, String) {
    let sim = Sim::new(1, Faults::none());
    let config = ServerConfig { threads: 1, ..ServerConfig::new("sim:0") };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    sim.add_actor(move || server.run().unwrap());
    (sim, addr)
}

pub(crate) fn open(sim: &Sim, link: &mut Link<SimStream>) -> u32 {
    let schema = Schema {
        name: "t".into(),
        dim: 1,
        rule: Rule::Add(Add),
        shaping: GradientTransform::NONE,
        init: Init::Zero,
        seed: 0,
        shards: 1,
        admission: Admission::All,
        more: Vec::new(),
    };
    open_as(sim, link, &schema)
}

/// Opens a table of one server over a raw link, and makes it if nobody has.
pub(crate) fn open_as(sim: &Sim, link: &mut Link<SimStream>, schema: &Schema) -> u32 {
    let identify = control::seal_as(2, &IdentifyV2 { table: schema.name.clone(), server: 0, servers: 0 });
    let (_, held) = ask(sim, link, IdentifyFrame {}.encode(0), &identify);
    let held = control::open::<IdentityV1>(&held).unwrap().held;
    // The welcome has the server's incarnation.
    let incarnation = greet(sim, link.peer()).1.incarnation;
    let (uid, make_in) = held.map_or(([0; 16], incarnation), |held| (held.uid, 0));
    let request = OpenTableV2 { schema: schema.encode(), uid, server: 0, servers: 1, make_in };
    let request = control::seal_as(2, &request);
    let (_, opened) = ask(sim, link, OpenTableFrame::default().encode(0), &request);
    control::open_as::<TableOpenedV4>(4, &opened).unwrap().table
}

#[test]
fn requests_that_do_not_fit_are_refused_and_the_link_lives_on() {
    let (sim, addr) = small_world();
    let (mut link, _) = greet(&sim, &addr);
    let table = open(&sim, &mut link);
    let one = PullFrame {
        table,
        keys: 1,
        read: Read::Weights,
        keep: 0,
        segments: Segments::ALL,
        slots: false,
        newer: false,
        clock: None,
        f16: false,
        versioned: false,
    };
    let pull = |keys| PullFrame { keys, ..one }.encode(1);
    let mut refusal = |head, payload: &[u8]| refused(ask(&sim, &mut link, head, payload)).0;
    assert_eq!(refusal(any_head(99, 0, 1, [0; 4]), &[]), Refusal::Malformed);
    assert_eq!(refusal(any_head(PullFrame::KIND, 7, 1, [0; 4]), &[]), Refusal::Malformed);
    // Bits that a kind does not define are refused: a later version may define them.
    for words in [[1, 0, 0, 0], [0, 0, 0, 1]] {
        assert_eq!(refusal(any_head(PingFrame::KIND, 0, 1, words), &[]), Refusal::Malformed);
        assert_eq!(refusal(any_head(OpenTableFrame::KIND, 0, 1, words), &[]), Refusal::Malformed);
    }
    assert_eq!(refusal(any_head(StatusFrame::KIND, 0, 1, [1 << 32, 0, 0, 0]), &[]), Refusal::Malformed);
    assert_eq!(refusal(pull(2), &[0; 8]), Refusal::Malformed);
    assert_eq!(refusal(pull(u32::MAX), &[0; 8]), Refusal::Limit);
    let second = PullFrame { segments: Segments::only(&[1]), ..one };
    assert_eq!(refusal(second.encode(1), &[0; 8]), Refusal::Malformed);
    let unknown = PullFrame { table: 5, read: Read::State, ..one };
    assert_eq!(refusal(unknown.encode(1), &[0; 8]), Refusal::Unknown);
    assert_eq!(refusal(StatusFrame { table: 9 }.encode(1), &[]), Refusal::Unknown);
    assert_eq!(refusal(ScanFrame { table, most: 8, shard: 3, from: 0 }.encode(1), &[]), Refusal::WrongShard);
    assert_eq!(
        refusal(OpenTableFrame::default().encode(1), &[1, 0, 0, 0, 4, 0, 0, 0, 9, 9, 9, 9]),
        Refusal::Malformed
    );
    let (head, rows) = ask(&sim, &mut link, pull(1), &bytes(&[5], &[]));
    assert_eq!((head.kind, rows), (RowsFrame::KIND, vec![0; 8]));
    let mut other = Link::new(sim.connect(&addr, Duration::from_secs(1)).unwrap());
    let hello = control::seal(&HelloV1 { pusher: 1, incarnation: 1, thread: 4 });
    let (refusal, text) = refused(ask(&sim, &mut other, HelloFrame {}.encode(0), &hello));
    assert!(
        refusal == Refusal::Unknown
            && text.contains("thread 4 was requested")
            && text.contains("server is 1"),
        "{text}"
    );
}

/// The order that keeps updates from being lost: after a refused push that the worker must resend, no later one is
/// applied.
#[test]
fn a_stale_keyset_blocks_the_pushes_behind_it() {
    let (sim, addr) = small_world();
    let (mut link, welcome) = greet(&sim, &addr);
    let table = open(&sim, &mut link);
    let push = |seq, keyset| {
        PushFrame {
            table,
            keys: 1,
            write: Write::Gradient,
            seq,
            row: 0,
            total: 0,
            keyset,
            slots: false,
            named: false,
            some: false,
            f16: false,
            since: false,
        }
        .encode(1)
    };
    let keep = PullFrame {
        table,
        keys: 1,
        read: Read::Weights,
        keep: 1,
        segments: Segments::ALL,
        slots: false,
        newer: false,
        clock: None,
        f16: false,
        versioned: false,
    }
    .encode(1);
    let rows = ask(&sim, &mut link, keep, &bytes(&[5], &[])).0;
    assert_eq!(RowsFrame::decode(&rows).unwrap().kept, 1);
    let by_keyset = pair_of_words(welcome.session, 1);
    assert_eq!(acked(&ask(&sim, &mut link, push(1, by_keyset), &bytes(&[], &[2.0])).0).applied, 1);
    let stale = pair_of_words(welcome.session.wrapping_add(1), 1);
    let answer = ask(&sim, &mut link, push(2, stale), &bytes(&[], &[2.0]));
    assert_eq!(refused(answer).0, Refusal::NoKeyset);
    let whole = bytes(&[5], &[2.0]);
    assert_eq!(refused(ask(&sim, &mut link, push(3, 0), &whole)).0, Refusal::Blocked);
    // A new session accepts all of them again, and applies each once.
    let (mut link, _) = greet(&sim, &addr);
    let applied: Vec<_> = (1..4)
        .map(|seq| acked(&ask(&sim, &mut link, push(seq, 0), &whole).0))
        .map(|acked| (acked.applied, acked.duplicate))
        .collect();
    assert_eq!(applied, [(0, 1), (1, 0), (1, 0)]);
    let (_, rows) = ask(&sim, &mut link, keep, &bytes(&[5], &[]));
    assert_eq!(rows[..4], 6.0f32.to_le_bytes());
}

/// A clock was accepted behind a push of its step that was refused. Other workers then read rows without the push, and
/// a synchronous step was applied without it.
#[test]
fn a_clock_behind_a_refused_push_is_refused_too() {
    for mode in [1, 2] {
        let (sim, addr) = small_world();
        let (mut link, welcome) = greet(&sim, &addr);
        let table = open(&sim, &mut link);
        let (clock, timeout_ms, left) = (NO_CLOCK, 30_000, 0);
        let join = JoinV1 {
            rank: 0,
            workers: 1,
            mode,
            bound: 1,
            mean: false,
            strict: false,
            timeout_ms,
            clock,
            left,
        };
        let join = |clock| control::seal(&JoinV1 { clock, ..join.clone() });
        let joined = ask(&sim, &mut link, JoinFrame { table }.encode(1), &join(NO_CLOCK));
        assert_eq!(joined.0.kind, JoinedFrame::KIND);
        let push = |keyset| {
            let (write, slots, named, some) = (Write::Gradient, false, false, false);
            PushFrame {
                table,
                keys: 1,
                write,
                seq: 1,
                row: 0,
                total: 0,
                keyset,
                slots,
                named,
                some,
                f16: false,
                since: false,
            }
            .encode(1)
        };
        let stale = pair_of_words(welcome.session.wrapping_add(1), 1);
        assert_eq!(refused(ask(&sim, &mut link, push(stale), &bytes(&[], &[2.0]))).0, Refusal::NoKeyset);
        let tick = TickFrame { table, clock: 1, skip: false }.encode(1);
        assert_eq!(refused(ask(&sim, &mut link, tick, &[])).0, Refusal::Blocked);
        // Over the next link the push comes first, and then its clock.
        let (mut link, _) = greet(&sim, &addr);
        let joined = ask(&sim, &mut link, JoinFrame { table }.encode(1), &join(0));
        assert_eq!(control::open::<JoinedV1>(&joined.1).unwrap().clock, 0);
        let whole = bytes(&[5], &[2.0]);
        link.transmit().send_copy(push(0), &whole).unwrap();
        link.transmit().send_copy(tick, &[]).unwrap();
        let answers = [0; 2].map(|_| next(&sim, &mut link).0.kind);
        assert!(answers.contains(&AckFrame::KIND) && answers.contains(&TickedFrame::KIND), "{answers:?}");
    }
}

/// The refusal of a push stood behind the reply of an earlier push of the step, which waited for the clock of the
/// worker, and that was refused too. Nobody went on.
#[test]
fn a_session_ends_when_a_refusal_would_wait_for_its_own_clock() {
    let (sim, addr) = small_world();
    let (mut link, welcome) = greet(&sim, &addr);
    let table = open(&sim, &mut link);
    let (clock, timeout_ms, left) = (NO_CLOCK, 30_000, 0);
    let join = JoinV1 {
        rank: 0,
        workers: 1,
        mode: 2,
        bound: 1,
        mean: false,
        strict: false,
        timeout_ms,
        clock,
        left,
    };
    let joined = ask(&sim, &mut link, JoinFrame { table }.encode(1), &control::seal(&join));
    assert_eq!(joined.0.kind, JoinedFrame::KIND);
    let push = |seq, keyset| {
        let (write, slots, named, some) = (Write::Gradient, false, false, false);
        PushFrame {
            table,
            keys: 1,
            write,
            seq,
            row: 0,
            total: 0,
            keyset,
            slots,
            named,
            some,
            f16: false,
            since: false,
        }
        .encode(1)
    };
    let stale = pair_of_words(welcome.session.wrapping_add(1), 1);
    link.transmit().send_copy(push(1, 0), &bytes(&[5], &[2.0])).unwrap();
    link.transmit().send_copy(push(2, stale), &bytes(&[], &[2.0])).unwrap();
    link.transmit().send_copy(TickFrame { table, clock: 1, skip: false }.encode(1), &[]).unwrap();
    let ended = (0..1000).any(|_| {
        let sent = link.flush(&mut NoOwner);
        sim.run(Duration::from_millis(1));
        sent.is_err() || link.fill(&mut NoOwner).is_err()
    });
    assert!(ended, "the session hangs");
}

/// Averages of two workers do not add up: the server refuses a change of state for such a table, and says what to do.
#[test]
fn a_change_of_state_is_refused_where_changes_do_not_add() {
    let (sim, addr) = small_world();
    let (mut link, _) = greet(&sim, &addr);
    let adam = Rule::Adam(Adam { lr: 0.5, beta1: 0.0, beta2: 0.0, eps: 1e-6, decay: 0.0 });
    let schema = Schema { shards: 1, ..Schema::scalar("adam", adam) };
    let table = open_as(&sim, &mut link, &schema);
    let push = |write, seq| {
        PushFrame {
            table,
            keys: 1,
            write,
            seq,
            row: 0,
            total: 0,
            keyset: 0,
            slots: false,
            named: false,
            some: false,
            f16: false,
            since: false,
        }
        .encode(1)
    };
    let change = bytes(&[5], &vec![0.0; schema.floats()]);
    let padded = [change.clone(), vec![0; change.len().next_multiple_of(8) - change.len()]].concat();
    let (refusal, text) = refused(ask(&sim, &mut link, push(Write::Change, 1), &padded));
    assert!(refusal == Refusal::Malformed && text.contains("\"adam\" takes gradients"), "{text}");
    // The session is not blocked: a gradient is accepted.
    let gradient = [bytes(&[5], &[2.0]), vec![0; 4]].concat();
    assert_eq!(acked(&ask(&sim, &mut link, push(Write::Gradient, 1), &gradient).0).applied, 1);
    let pull = PullFrame {
        table,
        keys: 1,
        read: Read::Weights,
        keep: 0,
        segments: Segments::ALL,
        slots: false,
        newer: false,
        clock: None,
        f16: false,
        versioned: false,
    }
    .encode(1);
    let (_, rows) = ask(&sim, &mut link, pull, &bytes(&[5], &[]));
    let weight = f32::from_le_bytes(rows[..4].try_into().unwrap());
    assert!((weight + 0.5).abs() < 1e-5, "{weight}");
}

/// The worker refuses this call itself, so another program must have sent the frame.
#[test]
fn rows_are_not_replaced_or_deleted_in_a_synchronous_step() {
    let (sim, addr) = small_world();
    let (mut link, _) = greet(&sim, &addr);
    let table = open(&sim, &mut link);
    let (clock, timeout_ms, left) = (NO_CLOCK, 30_000, 0);
    let join = JoinV1 {
        rank: 0,
        workers: 1,
        mode: 2,
        bound: 1,
        mean: false,
        strict: false,
        timeout_ms,
        clock,
        left,
    };
    let join = control::seal(&join);
    let joined = ask(&sim, &mut link, JoinFrame { table }.encode(1), &join);
    assert_eq!(joined.0.kind, JoinedFrame::KIND);
    for (write, floats) in [(Write::Row, 1), (Write::Delete, 0)] {
        let (slots, named, some) = (false, false, false);
        let push = PushFrame {
            table,
            keys: 1,
            write,
            seq: 1,
            row: 0,
            total: 0,
            keyset: 0,
            slots,
            named,
            some,
            f16: false,
            since: false,
        };
        let mut payload = bytes(&[5], &vec![1.0; floats]);
        payload.resize(payload.len().next_multiple_of(8), 0);
        let (refusal, text) = refused(ask(&sim, &mut link, push.encode(1), &payload));
        assert!(refusal == Refusal::Malformed && text.contains("in a synchronous step"), "{text}");
    }
}
