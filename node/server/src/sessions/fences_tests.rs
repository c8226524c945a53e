//! After its acknowledgement a fence holds for every kind of request, over any session. The tests use raw links of the
//! simulation.

use crate::sessions::refusals_tests::{acked, ask, open, refused, small_world};
use gannet_core::{DATA_PUSHERS, Write};
use gannet_sim::{Sim, SimStream};
use gannet_transport::{Head, Link, Net};
use gannet_wire::frames::bulk::PushFrame;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::push_payload::{PushPayload, PushValues};
use gannet_wire::frames::session::HelloFrame;
use gannet_wire::frames::sync::{FenceFrame, FencedFrame};
use gannet_wire::frames::tables::ClosePusherFrame;
use gannet_wire::messages::control;
use gannet_wire::messages::control::HelloV1;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Opens a session of this pusher. Returns the answer to its hello.
fn greet(sim: &Sim, addr: &str, pusher: u64, incarnation: u64) -> (Link<SimStream>, (Head, Vec<u8>)) {
    let mut link = Link::new(sim.connect(addr, Duration::from_secs(1)).unwrap());
    let hello = control::seal(&HelloV1 { pusher, incarnation, thread: 0 });
    let answer = ask(sim, &mut link, HelloFrame {}.encode(0), &hello);
    (link, answer)
}

/// A push of one row, under the session's name or as batch `seq` of data 7.
fn push(table: u32, seq: u64, named: bool) -> (Head, Vec<u8>) {
    let head = PushFrame {
        table,
        keys: 1,
        write: Write::Gradient,
        seq,
        row: 0,
        total: 0,
        keyset: 0,
        slots: false,
        named,
        some: false,
        f16: false,
        since: false,
    };
    let name = [DATA_PUSHERS | 7, 1, 1];
    let payload = PushPayload {
        name: named.then_some(&name),
        keys: &[5],
        values: PushValues::F32(&[1.0]),
        ..PushPayload::default()
    };
    (head.encode(1), payload.to_bytes())
}

/// After the acknowledgement of a fence the fenced worker pushed on, over a new session, under names of data.
#[test]
fn a_fenced_worker_is_refused_over_every_session_and_under_every_name() {
    let (sim, addr) = small_world();
    let (mut early, _) = greet(&sim, &addr, 1, 1);
    let table = open(&sim, &mut early);
    let request =
        |link: &mut Link<SimStream>, (head, payload): (Head, Vec<u8>)| ask(&sim, link, head, &payload);
    assert_eq!(acked(&request(&mut early, push(table, 1, true)).0).applied, 1);
    // Any session may fence: this one has joined nothing.
    let (mut other, _) = greet(&sim, &addr, 2, 1);
    assert_eq!(open(&sim, &mut other), table);
    let fence = FenceFrame { table, index: 0, pusher: 1, incarnation: 1 }.encode(1);
    assert_eq!(request(&mut other, (fence, Vec::new())).0.kind, FencedFrame::KIND);
    let (mut late, _) = greet(&sim, &addr, 1, 1);
    for named in [true, false] {
        let (refusal, text) = refused(request(&mut late, push(table, 2, named)));
        assert!(refusal == Refusal::Fenced, "named {named}: {refusal:?} {text}");
    }
    // If it could close data, another worker's push of that data would count as new.
    let close = ClosePusherFrame { table, pusher: DATA_PUSHERS | 7, incarnation: 1 }.encode(1);
    assert_eq!(refused(request(&mut late, (close, Vec::new()))).0, Refusal::Fenced);
    assert_eq!(acked(&request(&mut other, push(table, 1, true)).0).duplicate, 1);
    assert_eq!(acked(&request(&mut other, push(table, 2, true)).0).applied, 1);
    // The fence does not affect the next incarnation.
    let (mut next, _) = greet(&sim, &addr, 1, 2);
    assert_eq!(acked(&request(&mut next, push(table, 3, true)).0).applied, 1);
    assert_eq!(acked(&request(&mut next, push(table, 1, false)).0).applied, 1);
}

/// A fence that named the sum of synchronous steps ended the table's steps for good, and one that named the last
/// incarnations locked a worker out.
#[test]
fn what_is_no_start_of_a_worker_is_not_fenced() {
    let (sim, addr) = small_world();
    let (mut link, _) = greet(&sim, &addr, 1, 1);
    let table = open(&sim, &mut link);
    for (pusher, incarnation) in
        [(u64::MAX - 1, 1), (u64::MAX, 1), (DATA_PUSHERS | 7, 1), (1, u64::MAX), (1, 1 << 63)]
    {
        let fence = FenceFrame { table, index: 0, pusher, incarnation }.encode(1);
        let (refusal, text) = refused(ask(&sim, &mut link, fence, &[]));
        assert!(
            refusal == Refusal::Name && text.contains("needs an incarnation of a worker"),
            "{refusal:?} {text}"
        );
    }
    let (head, payload) = push(table, 1, false);
    assert_eq!(acked(&ask(&sim, &mut link, head, &payload).0).applied, 1);
}

/// A session that was greeted as 2^64 - 2 could push in the name of synchronous steps.
#[test]
fn nobody_is_greeted_as_data_or_as_the_sum_of_a_step() {
    let (sim, addr) = small_world();
    for pusher in [DATA_PUSHERS, u64::MAX - 1, u64::MAX] {
        let (refusal, text) = refused(greet(&sim, &addr, pusher, 1).1);
        assert!(refusal == Refusal::Name && text.contains("below 2^63"), "{refusal:?} {text}");
    }
}
