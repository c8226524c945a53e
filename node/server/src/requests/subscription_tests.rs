//! Subscriptions, frame by frame: what the server sends without a request, when a sweep is over, and what is refused.

use crate::sessions::refusals_tests::{acked, ask, bytes, greet, open, refused, small_world};
use gannet_core::Write;
use gannet_sim::{Sim, SimStream};
use gannet_transport::{Head, Link, NoOwner};
use gannet_wire::frames::any_head;
use gannet_wire::frames::bulk::PushFrame;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::PingFrame;
use gannet_wire::frames::subscriptions::{DeltaFrame, SubscribeFrame, SubscribedFrame};
use gannet_wire::frames::word::pair_of_words;
use gannet_wire::limits::SUBSCRIBED_ROWS_MAX;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

fn subscribe(table: u32, keys: usize, every_ms: u32, flags: u32, generation: u64) -> Head {
    let words = [pair_of_words(table, keys as u32), pair_of_words(every_ms, flags), generation, 0];
    any_head(SubscribeFrame::KIND, 0, 1, words)
}

/// How many rows are subscribed, according to an answer.
fn subscribed(head: &Head) -> u32 {
    SubscribedFrame::decode(head).unwrap().rows
}

/// The flags of a request, as in the high half of its word.
const SUBSCRIBE_ANEW: u32 = 1;

const SUBSCRIBE_STATE: u32 = 2;

/// The next frame that comes without a request, within this time: its numbers and rows, and whether its sweep is over.
fn unasked(sim: &Sim, link: &mut Link<SimStream>, patience: Duration) -> Option<(Vec<u32>, Vec<f32>, bool)> {
    for _ in 0..patience.as_millis() {
        sim.run(Duration::from_millis(1));
        link.fill(&mut NoOwner).unwrap();
        let Some(frame) = link.receive().peek(&mut NoOwner).unwrap() else { continue };
        let (head, payload) = (frame.head, frame.payload.to_vec());
        link.receive().consume();
        let DeltaFrame { rows, set, last, .. } = DeltaFrame::decode(&head).unwrap();
        let rows = rows as usize;
        assert_eq!(set, 7);
        let numbers = payload.chunks_exact(4).take(rows).map(|n| u32::from_le_bytes(n.try_into().unwrap()));
        let from = (4 * rows).next_multiple_of(8);
        let values =
            payload[from..].chunks_exact(4).take(rows).map(|v| f32::from_le_bytes(v.try_into().unwrap()));
        return Some((numbers.collect(), values.collect(), last));
    }
    None
}

#[test]
fn what_changes_is_sent_unasked() {
    let (sim, addr) = small_world();
    let (mut link, _) = greet(&sim, &addr);
    let (mut other, _) = greet(&sim, &addr);
    let (table, same) = (open(&sim, &mut link), open(&sim, &mut other));
    let mut seq = 0;
    let mut push = |keys: &[u64], values: &[f32]| {
        seq += 1;
        let (keys_of, write) = (keys.len() as u32, Write::Gradient);
        let push = PushFrame {
            table: same,
            keys: keys_of,
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
        };
        let mut payload = bytes(keys, values);
        payload.resize(payload.len().next_multiple_of(8), 0);
        assert_eq!(acked(&ask(&sim, &mut other, push.encode(1), &payload).0).applied, keys_of);
    };
    push(&[5, 6], &[1.0, 2.0]);
    let flags = SUBSCRIBE_ANEW | SUBSCRIBE_STATE;
    let (head, _) = ask(&sim, &mut link, subscribe(table, 3, 20, flags, 7), &bytes(&[5, 6, 9], &[]));
    assert_eq!(subscribed(&head), 3);
    // First all rows come, then those that change. An empty sweep still reports its end.
    let gone = 1 << 31;
    assert_eq!(
        unasked(&sim, &mut link, Duration::from_millis(50)),
        Some((vec![0, 1, 2 | gone], vec![1.0, 2.0, 0.0], true))
    );
    assert_eq!(unasked(&sim, &mut link, Duration::from_millis(50)), Some((vec![], vec![], true)));
    push(&[6, 7, 9], &[1.0, 1.0, 4.0]);
    assert_eq!(unasked(&sim, &mut link, Duration::from_millis(50)), Some((vec![1, 2], vec![3.0, 4.0], true)));
    // One more row.
    let (head, _) = ask(&sim, &mut link, subscribe(table, 1, 20, SUBSCRIBE_STATE, 7), &bytes(&[7], &[]));
    assert_eq!(subscribed(&head), 4);
    assert_eq!(unasked(&sim, &mut link, Duration::from_millis(50)), Some((vec![3], vec![1.0], true)));
    // The server sends nothing to a silent worker. One frame of the worker is enough.
    while unasked(&sim, &mut link, Duration::from_millis(100)).is_some() {}
    push(&[5], &[1.0]);
    assert_eq!(unasked(&sim, &mut link, Duration::from_millis(200)), None);
    ask(&sim, &mut link, PingFrame {}.encode(2), &[]);
    assert_eq!(unasked(&sim, &mut link, Duration::from_millis(50)), Some((vec![0], vec![2.0], true)));
    // Subscriptions end with their session.
    drop(link);
    sim.run(Duration::from_secs(1));
    push(&[5], &[1.0]);
}

#[test]
fn subscriptions_that_do_not_fit_are_refused() {
    let (sim, addr) = small_world();
    let (mut link, _) = greet(&sim, &addr);
    let table = open(&sim, &mut link);
    let mut refusal = |head, payload: &[u8]| refused(ask(&sim, &mut link, head, payload)).0;
    let keys: Vec<u64> = (0..8192).collect();
    assert_eq!(refusal(subscribe(9, 1, 20, 1, 7), &bytes(&[5], &[])), Refusal::Unknown);
    assert_eq!(refusal(subscribe(table, 2, 20, 1, 7), &bytes(&[5], &[])), Refusal::Malformed);
    assert_eq!(refusal(subscribe(table, 1, 0, 1, 7), &bytes(&[5], &[])), Refusal::Malformed);
    assert_eq!(refusal(subscribe(table, 1, 20, 4, 7), &bytes(&[5], &[])), Refusal::Malformed);
    assert_eq!(refusal(subscribe(table, 1, 20, 1, 1 << 32), &bytes(&[5], &[])), Refusal::Malformed);
    // This number of rows, and no more.
    for round in 0..SUBSCRIBED_ROWS_MAX / keys.len() {
        let (head, _) = ask(&sim, &mut link, subscribe(table, keys.len(), 60_000, 0, 7), &bytes(&keys, &[]));
        assert_eq!(subscribed(&head) as usize, (round + 1) * keys.len());
    }
    let one_more = ask(&sim, &mut link, subscribe(table, 1, 60_000, 0, 7), &bytes(&[5], &[]));
    assert_eq!(refused(one_more).0, Refusal::Limit);
    let (head, _) = ask(&sim, &mut link, subscribe(table, 1, 60_000, SUBSCRIBE_ANEW, 7), &bytes(&[5], &[]));
    assert_eq!(subscribed(&head), 1);
}
