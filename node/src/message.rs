//! What the opaque fields of a head mean to the roles, frame kind by frame kind (docs/wire.md has the table).

use gannet_core::{Applied, Read, Segments, Write};
use gannet_transport::Head;

pub(crate) const HELLO: u16 = 1;
pub(crate) const WELCOME: u16 = 2;
pub(crate) const OPEN_TABLE: u16 = 3;
pub(crate) const TABLE_OPENED: u16 = 4;
pub(crate) const PULL: u16 = 5;
pub(crate) const ROWS: u16 = 6;
pub(crate) const PUSH: u16 = 7;
pub(crate) const ACK: u16 = 8;
pub(crate) const SCAN: u16 = 9;
pub(crate) const SCANNED: u16 = 10;
pub(crate) const STATUS: u16 = 11;
pub(crate) const STATUS_IS: u16 = 12;
pub(crate) const CLOSE_PUSHER: u16 = 13;
pub(crate) const PUSHER_CLOSED: u16 = 14;
pub(crate) const REFUSED: u16 = 15;
pub(crate) const KNOCK: u16 = 17;
pub(crate) const CHALLENGE: u16 = 18;
pub(crate) const PROVE: u16 = 19;
pub(crate) const PROVEN: u16 = 20;

// 17 to 20 are the greeting's of a server with a token.
pub(crate) const PING: u16 = 21;
pub(crate) const PONG: u16 = 22;
pub(crate) const IMAGES: u16 = 23;
pub(crate) const IMAGES_GIVEN: u16 = 24;
pub(crate) const REGIONS: u16 = 25;
pub(crate) const REGIONS_ARE: u16 = 26;
/// Word 2 of REGIONS: also where a processor of the server does the READs.
pub(crate) const REGIONS_ANY: u64 = 1;
/// Word 0 of REGIONS_ARE: each line is read as it is at one moment.
pub(crate) const REGIONS_LINES: u64 = 1;

pub(crate) const JOIN: u16 = 27;
pub(crate) const JOINED: u16 = 28;
pub(crate) const TICK: u16 = 29;
pub(crate) const TICKED: u16 = 30;
/// No answer: it says whom the request with its id waits for.
pub(crate) const WAITS: u16 = 31;
pub(crate) const FENCE: u16 = 33;
pub(crate) const FENCED: u16 = 34;
pub(crate) const LEAVE: u16 = 35;
pub(crate) const LEFT: u16 = 36;
pub(crate) const VECTOR: u16 = 37;
pub(crate) const VECTOR_DONE: u16 = 38;
pub(crate) const BOOK: u16 = 41;
pub(crate) const BOOKED: u16 = 42;

pub(crate) const SUBSCRIBE: u16 = 45;
pub(crate) const SUBSCRIBED: u16 = 46;
/// No answer: what has changed of the rows that are subscribed.
pub(crate) const DELTA: u16 = 47;
pub(crate) const FEED: u16 = 49;
pub(crate) const FED: u16 = 50;
pub(crate) const IDENTIFY: u16 = 51;
pub(crate) const IDENTITY: u16 = 52;
pub(crate) const CONFIRM: u16 = 53;
pub(crate) const CONFIRMED: u16 = 54;
pub(crate) const ALLOCATE: u16 = 55;
pub(crate) const ALLOCATED: u16 = 56;
/// Word 1 of ALLOCATE: only the highest number that is known is asked for.
pub(crate) const ALLOCATE_LOOK: u64 = 1;
pub(crate) const JOB_TABLE: u16 = 57;
pub(crate) const JOB_TABLE_NOTED: u16 = 58;
pub(crate) const RUN: u16 = 59;
pub(crate) const RUN_IS: u16 = 60;
pub(crate) const DROP_TABLE: u16 = 61;
pub(crate) const TABLE_DROPPED: u16 = 62;
/// In the high half of word 1 of SUBSCRIBE: instead of all before; and the rows' state is to be sent, not their weights.
pub(crate) const SUBSCRIBE_ANEW: u32 = 1;
pub(crate) const SUBSCRIBE_STATE: u32 = 2;

/// Requests about a link itself: none is sent again over another, and no call waits for the answer.
pub(crate) fn is_of_link(kind: u16) -> bool {
    matches!(kind, PING | IMAGES | REGIONS | SUBSCRIBE)
}

/// Requests by which a table is opened: a refusal is an answer to whoever asked.
pub(crate) fn is_of_opening(kind: u16) -> bool {
    matches!(kind, IDENTIFY | OPEN_TABLE | CONFIRM)
}

/// Requests that go again in the order in which they went, before all others: what they say depends on it.
pub(crate) fn is_ordered(kind: u16) -> bool {
    matches!(kind, PUSH | TICK)
}

/// Requests that say something to each thread of each server; their answers say only that it was heard.
pub(crate) fn is_for_each(kind: u16) -> bool {
    matches!(kind, TICK | FENCE | LEAVE | CLOSE_PUSHER | DROP_TABLE)
}

/// The kind that answers a request of this kind.
pub(crate) fn answer_to(kind: u16) -> u16 {
    kind + 1
}

/// Two u32 in a word, the first in the low half.
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The two u32 of a word.
pub(crate) fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A clock as a word that may say none.
pub(crate) fn clock_word(clock: Option<u64>) -> u64 {
    clock.map_or(0, |clock| clock.saturating_add(1))
}

/// In a pull's aux: it reads the state.
const STATE: u16 = 1;
/// In a pull's aux: the answer says behind the rows where they are, a u32 each.
const WITH_SLOTS: u16 = 2;
/// In a pull's aux: only what is newer than what the worker holds is to be answered (pull_newer.rs has the payloads).
const NEWER: u16 = 4;

/// A pull: payload `keys` u64, or more of those that ask for what is newer. `keep`: the place of the keyset to keep, plus 1; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PullFrame {
    pub(crate) table: u32,
    pub(crate) keys: u32,
    pub(crate) read: Read,
    pub(crate) keep: u32,
    pub(crate) segments: Segments,
    /// The answer is to say where the rows are.
    pub(crate) slots: bool,
    /// Rows that are as the worker holds them are not to be answered.
    pub(crate) newer: bool,
    /// The step that it is for, of a worker that keeps step.
    pub(crate) clock: Option<u64>,
}

impl PullFrame {
    pub(crate) fn head(&self, id: u64) -> Head {
        let read = if self.read == Read::State { STATE } else { 0 };
        let aux = read | if self.slots { WITH_SLOTS } else { 0 } | if self.newer { NEWER } else { 0 };
        let segments = if self.segments == Segments::ALL { 0 } else { self.segments.bits() };
        let (first, keep) = (pair(self.table, self.keys), u64::from(self.keep));
        Head::new(PULL, aux, id, [first, keep, u64::from(segments), clock_word(self.clock)])
    }

    pub(crate) fn of(head: &Head) -> Option<PullFrame> {
        let (slots, newer) = (head.aux & WITH_SLOTS != 0, head.aux & NEWER != 0);
        if head.aux & !(STATE | WITH_SLOTS | NEWER) != 0 || slots && newer {
            return None;
        }
        let read = if head.aux & STATE == 0 { Read::Weights } else { Read::State };
        let (table, keys) = unpair(head.words[0]);
        let segments = match u8::try_from(head.words[2]).ok()? {
            0 => Segments::ALL,
            bits => Segments::of_bits(bits),
        };
        let (keep, clock) = (u32::try_from(head.words[1]).ok()?, head.words[3].checked_sub(1));
        Some(PullFrame { table, keys, read, keep, segments, slots, newer, clock })
    }
}

/// In a push's aux: the rows are changes of state.
const CHANGE: u16 = 1;
/// In a push's aux: where the worker found the rows stands between keys and floats, a u32 each, padded to 8 bytes.
const SLOTS: u16 = 2;
/// In a push's aux: the payload begins with the name of the data that was learned: pusher, incarnation and clock, u64 each.
const NAMED: u16 = 4;
/// In a push's aux: the keyset is of some of the rows. Which they are stands before the keys of the others, a bit each, in u64.
const SOME: u16 = 16;
/// Bytes of the name of data.
pub(crate) const NAME_BYTES: usize = 24;
/// In a push's aux: the rows are terms of a pass's sum.
const SUM: u16 = 8;
/// In a push's aux: changes of state that are damped.
const DAMPED: u16 = 32;

/// Bytes that the slots of so many keys take in a push.
pub(crate) fn slot_bytes(keys: usize) -> usize {
    (keys * 4).next_multiple_of(8)
}

/// A push: payload `keys` u64 (none with a keyset), perhaps their slots, then the floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PushFrame {
    pub(crate) table: u32,
    pub(crate) keys: u32,
    pub(crate) write: Write,
    pub(crate) seq: u64,
    /// Rows of the push in the first key's shard that stand before the first key.
    pub(crate) row: u32,
    /// (session, place plus 1); 0: the keys are in the payload.
    pub(crate) keyset: u64,
    /// With the keys stands where their rows were found.
    pub(crate) slots: bool,
    /// It is named by the data that was learned, not by the session's worker.
    pub(crate) named: bool,
    /// The keyset is of some of the rows, the keys of the others are in the payload.
    pub(crate) some: bool,
}

impl PushFrame {
    pub(crate) fn head(&self, id: u64) -> Head {
        let write = match self.write {
            Write::Gradient => 0,
            Write::Change => CHANGE,
            Write::Sum => SUM,
            Write::Damped => DAMPED,
        };
        let aux = write | if self.slots { SLOTS } else { 0 } | if self.named { NAMED } else { 0 };
        let aux = aux | if self.some { SOME } else { 0 };
        Head::new(PUSH, aux, id, [pair(self.table, self.keys), self.seq, u64::from(self.row), self.keyset])
    }

    pub(crate) fn of(head: &Head) -> Option<PushFrame> {
        let write = match head.aux & (CHANGE | SUM | DAMPED) {
            0 => Write::Gradient,
            CHANGE => Write::Change,
            SUM => Write::Sum,
            DAMPED => Write::Damped,
            _ => return None,
        };
        let (slots, keyset) = (head.aux & SLOTS != 0, head.words[3]);
        let some = head.aux & SOME != 0;
        if head.aux & !(CHANGE | SLOTS | NAMED | SUM | SOME | DAMPED) != 0
            || slots && keyset != 0
            || some && keyset == 0
        {
            return None;
        }
        let (table, keys) = unpair(head.words[0]);
        let row = u32::try_from(head.words[2]).ok()?;
        let named = head.aux & NAMED != 0;
        Some(PushFrame { table, keys, write, seq: head.words[1], row, keyset, slots, named, some })
    }
}

/// What became of a push, as an ack's words. `late`: rows that came when their step had been applied without them.
pub(crate) fn ack_head(id: u64, applied: Applied, late: u32) -> Head {
    let first = pair(applied.applied, applied.duplicate);
    let second = pair(applied.not_finite, applied.not_admitted);
    Head::new(ACK, 0, id, [first, second, u64::from(late), 0])
}

/// The reverse of [`ack_head`].
pub(crate) fn acked(head: &Head) -> (Applied, u32) {
    let ((applied, duplicate), (not_finite, not_admitted)) = (unpair(head.words[0]), unpair(head.words[1]));
    (Applied { applied, duplicate, not_finite, not_admitted }, head.words[2] as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_through_a_head() {
        let pull = PullFrame {
            table: 3,
            keys: 77,
            read: Read::State,
            keep: 5,
            segments: Segments::ALL,
            slots: false,
            newer: false,
            clock: None,
        };
        let with_slots = PullFrame { slots: true, read: Read::Weights, ..pull };
        assert_eq!((PullFrame::of(&with_slots.head(9)), with_slots.head(9).aux), (Some(with_slots), 2));
        assert_eq!(PullFrame::of(&pull.head(9)), Some(pull));
        assert_eq!(pull.head(9).words, [77 << 32 | 3, 5, 0, 0]);
        let wide = PullFrame { segments: Segments::only(&[0, 2]), ..pull };
        assert_eq!(PullFrame::of(&wide.head(9)), Some(wide));
        assert_eq!(wide.head(9).words, [77 << 32 | 3, 5, 0b101, 0]);
        assert_eq!(PullFrame::of(&Head::new(PULL, 0, 0, [0, 0, 256, 0])), None);
        let push = PushFrame {
            table: 1,
            keys: 2,
            write: Write::Change,
            seq: u64::MAX,
            row: 4,
            keyset: 1 << 40,
            slots: false,
            named: true,
            some: false,
        };
        assert_eq!(PushFrame::of(&push.head(9)), Some(push));
        let with_slots = PushFrame { write: Write::Gradient, keyset: 0, slots: true, ..push };
        assert_eq!(PushFrame::of(&with_slots.head(9)), Some(with_slots));
        let sum = PushFrame { write: Write::Sum, named: false, ..push };
        assert_eq!((PushFrame::of(&sum.head(9)), sum.head(9).aux), (Some(sum), 8));
        let damped = PushFrame { write: Write::Damped, ..push };
        assert_eq!((PushFrame::of(&damped.head(9)), damped.head(9).aux), (Some(damped), 36));
        assert_eq!(PushFrame::of(&Head::new(PUSH, 9, 0, [0; 4])), None);
        assert_eq!(PushFrame::of(&Head::new(PUSH, 33, 0, [0; 4])), None);
        assert_eq!(PushFrame::of(&PushFrame { slots: true, ..push }.head(9)), None);
        let some = PushFrame { some: true, ..push };
        assert_eq!((PushFrame::of(&some.head(9)), some.head(9).aux), (Some(some), 21));
        assert_eq!(PushFrame::of(&Head::new(PUSH, 16, 0, [0; 4])), None);
        assert_eq!(PushFrame::of(&Head::new(PUSH, 64, 0, [0; 4])), None);
        let applied = Applied { applied: 1, duplicate: 2, not_finite: 3, not_admitted: 4 };
        assert_eq!(acked(&ack_head(1, applied, 5)), (applied, 5));
        let in_step = PullFrame { clock: Some(16), ..pull };
        assert_eq!((PullFrame::of(&in_step.head(9)), in_step.head(9).words[3]), (Some(in_step), 17));
        let newer = PullFrame { newer: true, ..pull };
        assert_eq!((PullFrame::of(&newer.head(9)), newer.head(9).aux), (Some(newer), 5));
        assert_eq!(PullFrame::of(&Head::new(PULL, 6, 0, [0; 4])), None);
        assert_eq!(PullFrame::of(&Head::new(PULL, 8, 0, [0; 4])), None);
        let kinds = [JOIN, JOINED, TICK, TICKED, WAITS, FENCE, FENCED, LEAVE, LEFT];
        assert_eq!(kinds, [27, 28, 29, 30, 31, 33, 34, 35, 36]);
        assert_eq!(PushFrame::of(&Head::new(PUSH, 0, 0, [0, 0, 1 << 32, 0])), None);
    }
}
