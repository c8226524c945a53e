//! Conditional pulls, and pushes whose keyset has some of their rows, frame by frame: which rows the answer reports,
//! and what is refused.

use crate::sessions::refusals_tests::{acked, ask, bytes, greet, open, refused, small_world};
use bytemuck::cast_slice;
use gannet_core::{CachedVersion, NewerRow, Read, Segments, Write};
use gannet_wire::frames::bulk::{AckFrame, PullFrame, PushFrame, RowsFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::pull_newer::{CachedRows, read_reply};
use gannet_wire::frames::push_payload::{KeysetRows, PushPayload, PushValues};
use gannet_wire::frames::word::pair_of_words;
use gannet_wire::refusal::Refusal;

fn pull(table: u32, keys: u32, keep: u32) -> PullFrame {
    let (read, segments) = (Read::State, Segments::ALL);
    PullFrame {
        table,
        keys,
        read,
        keep,
        segments,
        slots: false,
        newer: true,
        clock: None,
        f16: false,
        versioned: false,
    }
}

/// The payload of a request, padded.
fn request_payload(incarnation: u64, keys: &[u64], cached: &[CachedVersion]) -> Vec<u8> {
    let cached_rows = CachedRows::new(incarnation, cached);
    let mut payload = [cached_rows.before(), &bytes(keys, &[])].concat();
    cached_rows.behind().iter().for_each(|part| payload.extend_from_slice(part));
    payload.resize(payload.len().next_multiple_of(8), 0);
    payload
}

/// The change that an answer reports for each of `n` keys, and its rows.
fn answer(payload: &[u8], n: usize) -> (Vec<NewerRow>, Vec<f32>) {
    let mut words = vec![0u64; payload.len() / 8];
    bytemuck::cast_slice_mut(&mut words).copy_from_slice(payload);
    let (newer, rows) = read_reply(cast_slice(&words), n, 1).unwrap();
    (newer, rows.to_vec())
}

#[test]
fn what_is_newer_is_told_within_a_life() {
    let (sim, addr) = small_world();
    let (mut link, welcome) = greet(&sim, &addr);
    let (table, incarnation) = (open(&sim, &mut link), welcome.incarnation);
    let push = PushFrame {
        table,
        keys: 2,
        write: Write::Gradient,
        seq: 1,
        row: 0,
        total: 0,
        keyset: 0,
        slots: false,
        named: false,
        some: false,
        f16: false,
        since: false,
    };
    assert_eq!(acked(&ask(&sim, &mut link, push.encode(1), &bytes(&[5, 6], &[2.0, 3.0])).0).applied, 2);
    let (keys, nothing) = ([5, 6, 7], [CachedVersion::Nothing; 3]);
    let (head, rows) =
        ask(&sim, &mut link, pull(table, 3, 0).encode(2), &request_payload(incarnation, &keys, &nothing));
    let version = RowsFrame::decode(&head).unwrap().version;
    assert_eq!(answer(&rows, 3), (vec![NewerRow::Row, NewerRow::Row, NewerRow::NoRow], vec![2.0, 3.0, 0.0]));
    // Key 6 changes.
    let change = PushFrame { keys: 1, seq: 2, ..push };
    ask(&sim, &mut link, change.encode(3), &[bytes(&[6], &[1.0]), vec![0; 4]].concat());
    let cached = [CachedVersion::Row(version), CachedVersion::Row(version), CachedVersion::NoRow];
    let (head, rows) =
        ask(&sim, &mut link, pull(table, 3, 1).encode(4), &request_payload(incarnation, &keys, &cached));
    assert_eq!(answer(&rows, 3), (vec![NewerRow::Same, NewerRow::Row, NewerRow::Same], vec![4.0]));
    let newer_answer = RowsFrame::decode(&head).unwrap();
    assert!(newer_answer.kept == 1 && newer_answer.version > version);
    // The same versions of another incarnation: the server treats no row as cached.
    let (_, rows) =
        ask(&sim, &mut link, pull(table, 3, 0).encode(4), &request_payload(incarnation ^ 1, &keys, &cached));
    assert_eq!(answer(&rows, 3).1, [2.0, 4.0, 0.0]);
    // A push of six rows, 4 to 9. Its keyset has three of them: 5, 6 and 7.
    let some = PushFrame { keys: 6, seq: 3, keyset: pair_of_words(welcome.session, 1), some: true, ..push };
    let rows = KeysetRows::new(&[4, 5, 6, 7, 8, 9], &[1, 2, 3]);
    let (bits, keys, values) = (&rows.bits[..], &rows.others[..], &[1.0; 6][..]);
    assert_eq!((bits, keys), (&[0b001110][..], &[4, 8, 9][..]));
    let payload = PushPayload { bits, keys, values: PushValues::F32(values), ..PushPayload::default() };
    let (head, _) = ask(&sim, &mut link, some.encode(5), &payload.to_bytes());
    assert_eq!((head.kind, acked(&head).applied), (AckFrame::KIND, 6));
    let keys = [4, 5, 6, 7, 8, 9];
    let (_, rows) = ask(
        &sim,
        &mut link,
        pull(table, 6, 0).encode(6),
        &request_payload(incarnation, &keys, &[CachedVersion::Nothing; 6]),
    );
    assert_eq!(answer(&rows, 6).1, [1.0, 3.0, 5.0, 1.0, 1.0, 1.0]);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let (sim, addr) = small_world();
    let (mut link, welcome) = greet(&sim, &addr);
    let table = open(&sim, &mut link);
    let right = request_payload(welcome.incarnation, &[5, 6], &[CachedVersion::NoRow, CachedVersion::Row(1)]);
    let mut refusal = |head, payload: &[u8]| refused(ask(&sim, &mut link, head, payload)).0;
    for wrong in [&right[8..], &right[..right.len() - 8], &[&right[..], &[0; 8]].concat(), &[]] {
        assert_eq!(refusal(pull(table, 2, 0).encode(1), wrong), Refusal::Malformed);
    }
    assert_eq!(refusal(pull(table, 1, 0).encode(1), &right), Refusal::Malformed);
    assert_eq!(refusal(pull(table, u32::MAX, 0).encode(1), &right), Refusal::Limit);
    assert_eq!(refusal(pull(9, 2, 0).encode(1), &right), Refusal::Unknown);
    // Pushes that name more rows of a keyset than the payload has, and one whose keyset is not kept.
    let push = |keys, seq| PushFrame {
        table,
        keys,
        write: Write::Gradient,
        seq,
        row: 0,
        total: 0,
        keyset: pair_of_words(welcome.session, 1),
        slots: false,
        named: false,
        some: true,
        f16: false,
        since: false,
    };
    assert_eq!(refusal(push(2, 1).encode(1), &bytes(&[], &[1.0, 1.0])), Refusal::Malformed);
    assert_eq!(refusal(push(u32::MAX, 1).encode(1), &bytes(&[3], &[1.0, 1.0])), Refusal::Limit);
    assert_eq!(refusal(push(2, 1).encode(1), &bytes(&[0b01, 7, 8], &[1.0, 1.0])), Refusal::Malformed);
    assert_eq!(refusal(push(2, 1).encode(1), &bytes(&[0b01, 7], &[1.0, 1.0])), Refusal::NoKeyset);
}
