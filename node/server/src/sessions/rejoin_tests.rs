//! Workers in synchronous steps that lose their links and come back, frame by frame.

use crate::sessions::refusals_tests::{acked, ask, bytes, greet_as, next, open, small_world};
use gannet_core::{NO_CLOCK, Read, Segments, Write};
use gannet_sim::{Sim, SimStream};
use gannet_transport::{Link, NoOwner};
use gannet_wire::frames::bulk::{AckFrame, PullFrame, PushFrame, RowsFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::sync::{JoinFrame, JoinedFrame, LeaveFrame, LeftFrame, TickFrame, TickedFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::JoinV1;
use std::time::Duration;

/// Joins the table as this one of two workers. `clock`: the clock at which it comes back.
fn join(sim: &Sim, addr: &str, rank: u32, clock: u64) -> (Link<SimStream>, u32) {
    let (mut link, _) = greet_as(sim, addr, u64::from(rank) + 1);
    let table = open(sim, &mut link);
    join_over(sim, &mut link, table, rank, clock);
    (link, table)
}

fn join_over(sim: &Sim, link: &mut Link<SimStream>, table: u32, rank: u32, clock: u64) {
    let (workers, mode, bound, mean, timeout_ms, left) = (2, 2, 2, false, 30_000, 0);
    let request = JoinV1 { rank, workers, mode, bound, mean, strict: false, timeout_ms, clock, left };
    let joined = ask(sim, link, JoinFrame { table }.encode(1), &control::seal(&request));
    assert_eq!(joined.0.kind, JoinedFrame::KIND);
}

/// Pushes a row in the first step, and ends the step.
fn step(sim: &Sim, link: &mut Link<SimStream>, table: u32, value: f32) {
    let (write, slots, named, some) = (Write::Gradient, false, false, false);
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
    }
    .encode(1);
    link.transmit().send_copy(push, &bytes(&[5], &[value])).unwrap();
    link.transmit().send_copy(TickFrame { table, clock: 1, skip: false }.encode(2), &[]).unwrap();
    link.flush(&mut NoOwner).unwrap();
    sim.run(Duration::from_millis(100));
}

/// The server drops the pushes that it stores when all links are lost. It went on counting the steps that these pushes
/// belonged to as made. So the first worker that came back made a step without the rows of the other.
#[test]
fn a_step_waits_for_a_worker_whose_stored_push_was_dropped() {
    let (sim, addr) = small_world();
    let (mut first, table) = join(&sim, &addr, 0, NO_CLOCK);
    let (second, _) = join(&sim, &addr, 1, NO_CLOCK);
    step(&sim, &mut first, table, 2.0);
    drop((first, second));
    sim.run(Duration::from_millis(100));
    let (mut second, _) = join(&sim, &addr, 1, 0);
    step(&sim, &mut second, table, 3.0);
    let (mut first, _) = join(&sim, &addr, 0, 0);
    step(&sim, &mut first, table, 2.0);
    for link in [&mut first, &mut second] {
        let answers = [next(&sim, link).0, next(&sim, link).0];
        assert_eq!(answers.map(|head| head.kind), [AckFrame::KIND, TickedFrame::KIND]);
        assert_eq!(acked(&answers[0]).applied, 1);
    }
    let (read, segments) = (Read::Weights, Segments::ALL);
    let pull = PullFrame {
        table,
        keys: 1,
        read,
        keep: 0,
        segments,
        slots: false,
        newer: false,
        clock: Some(1),
        f16: false,
        versioned: false,
    };
    let (head, row) = ask(&sim, &mut first, pull.encode(3), &bytes(&[5], &[]));
    assert_eq!((head.kind, &row[..4]), (RowsFrame::KIND, &5.0f32.to_le_bytes()[..]));
}

/// The join of a link that a worker had lost came behind that of its next link. The server then refused what came over
/// the next link, and the worker ended: it was told that a newer incarnation of it was there.
#[test]
fn a_worker_was_told_that_it_had_been_replaced_by_its_own_older_link() {
    let (sim, addr) = small_world();
    let (mut older, _) = greet_as(&sim, &addr, 1);
    let table = open(&sim, &mut older);
    let (mut newer, _) = join(&sim, &addr, 0, NO_CLOCK);
    join_over(&sim, &mut older, table, 0, 0);
    let tick = TickFrame { table, clock: 1, skip: false }.encode(2);
    let _ = newer.transmit().send_copy(tick, &[]);
    let ended = (0..1000).any(|_| {
        let sent = newer.flush(&mut NoOwner);
        sim.run(Duration::from_millis(1));
        let over = sent.is_err() || newer.fill(&mut NoOwner).is_err();
        let answer = newer.receive().peek(&mut NoOwner).unwrap().map(|frame| frame.head.kind);
        assert_eq!(answer, None, "the server answers over a link that it should end");
        over
    });
    assert!(ended, "the link stays");
    // The worker makes the link again, and goes on.
    let (mut again, _) = join(&sim, &addr, 0, 0);
    let (head, _) = ask(&sim, &mut again, tick, &[]);
    assert_eq!(head.kind, TickedFrame::KIND);
}

/// The join of a link that a worker had lost came after the worker had left over its next link. The others then waited
/// for the worker.
#[test]
fn nobody_waits_for_a_worker_whose_lost_link_joins_after_it_has_left() {
    let (sim, addr) = small_world();
    let (mut older, _) = greet_as(&sim, &addr, 1);
    let table = open(&sim, &mut older);
    let (mut newer, _) = join(&sim, &addr, 0, NO_CLOCK);
    let (mut other, _) = join(&sim, &addr, 1, NO_CLOCK);
    let leave = LeaveFrame { table }.encode(2);
    assert_eq!(ask(&sim, &mut newer, leave, &[]).0.kind, LeftFrame::KIND);
    join_over(&sim, &mut older, table, 0, 0);
    // It has no answer yet, and leaves once more.
    assert_eq!(ask(&sim, &mut older, leave, &[]).0.kind, LeftFrame::KIND);
    drop((older, newer));
    sim.run(Duration::from_millis(100));
    step(&sim, &mut other, table, 3.0);
    let answers = [next(&sim, &mut other).0, next(&sim, &mut other).0];
    assert_eq!(answers.map(|head| head.kind), [AckFrame::KIND, TickedFrame::KIND]);
}
