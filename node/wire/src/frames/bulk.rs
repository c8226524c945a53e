//! The frames that move rows: pulls, pushes and scans. Pulls and pushes are on the hot path.

use crate::frames::declare::{Field, FrameDirection, FrameError, FrameKind, FrameRow, check_kind, reencode};
use crate::frames::word::{HeadWord, pair_of_words};
use gannet_core::{Applied, Read, Segments, Write};
use gannet_transport::Head;

/// In a pull's aux: the rows' state is read, not their weights.
const STATE: u16 = 1;
/// In a pull's aux: the answer has the rows' slots behind the rows, a u32 each.
const WITH_SLOTS: u16 = 2;
/// In a pull's aux: the answer leaves out rows that have not changed (pull_newer.rs has the payloads).
const NEWER: u16 = 4;
/// In a pull's aux: the answer may have the weights as f16. In an answer's: it has them so (f16.rs).
const F16: u16 = 8;

/// In a pull's aux: the answer must say the version of its rows. In an answer's: it does.
const VERSION: u16 = 16;

/// The flags of a pull and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PullFlags {
    read: Read,
    slots: bool,
    newer: bool,
    f16: bool,
    versioned: bool,
}

impl PullFlags {
    #[inline]
    fn aux(self) -> u16 {
        let read = if self.read == Read::State { STATE } else { 0 };
        let read = read | if self.slots { WITH_SLOTS } else { 0 };
        let read = read | if self.versioned { VERSION } else { 0 };
        read | if self.newer { NEWER } else { 0 } | if self.f16 { F16 } else { 0 }
    }

    #[inline]
    fn of<F: FrameKind>(head: &Head) -> Result<PullFlags, FrameError> {
        if head.aux & !(STATE | WITH_SLOTS | NEWER | F16 | VERSION) != 0 {
            return Err(crate::frames::declare::bad_value::<F>(Field::Aux, u64::from(head.aux)));
        }
        let contradiction = |what| Err(FrameError::Contradiction { name: F::ROW.name, what });
        let has = |flag| head.aux & flag != 0;
        if has(WITH_SLOTS) && has(NEWER) {
            return contradiction("aux has both slots and newer, which exclude each other");
        }
        if has(F16) && has(STATE | WITH_SLOTS | NEWER) {
            return contradiction("aux has f16 with state, slots or newer, whose rows are always f32");
        }
        if has(VERSION) && has(NEWER) {
            return contradiction("aux has both newer and version: the answer to newer has a version anyway");
        }
        let read = if has(STATE) { Read::State } else { Read::Weights };
        let (slots, newer, f16, versioned) = (has(WITH_SLOTS), has(NEWER), has(F16), has(VERSION));
        Ok(PullFlags { read, slots, newer, f16, versioned })
    }
}

/// A request for rows. Payload: `keys` u64, or a conditional pull if `newer` is set.
/// The server answers rows. A missing key reads as its initial value; a pull makes no row. Refused with 1, 2, 4, 5, 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullFrame {
    pub table: u32,
    pub keys: u32,
    pub read: Read,
    /// The place in which the server must keep a keyset, plus 1; 0 for none.
    pub keep: u32,
    pub segments: Segments,
    /// The answer must have the rows' slots.
    pub slots: bool,
    /// The answer must leave out rows that the worker has cached and that have not changed.
    pub newer: bool,
    /// The step for which the worker pulls, if it keeps step with others.
    pub clock: Option<u64>,
    /// The answer may have the weights as f16.
    pub f16: bool,
    /// The answer must say the snapshot version of its rows.
    pub versioned: bool,
}

impl FrameKind for PullFrame {
    const KIND: u16 = 5;
    const ROW: FrameRow = FrameRow {
        kind: 5,
        name: "pull",
        direction: FrameDirection::ToServer,
        fields: &[
            (Field::Aux, "state 1, slots 2, newer 4, f16 8, version 16"),
            (Field::W0, "table; keys"),
            (Field::W1, "keep + 1"),
            (Field::W2, "segments"),
            (Field::W3, "clock + 1"),
        ],
        payload: "keys, or a conditional pull",
        reencode: reencode::<PullFrame>,
    };

    #[inline]
    fn encode(&self, id: u64) -> Head {
        let PullFrame { read, slots, newer, f16, versioned, .. } = *self;
        let aux = PullFlags { read, slots, newer, f16, versioned }.aux();
        let first = pair_of_words(self.table, self.keys);
        Head::new(
            Self::KIND,
            aux,
            id,
            [first, (self.keep,).put(), (self.segments,).put(), (self.clock,).put()],
        )
    }

    #[inline]
    fn decode(head: &Head) -> Result<PullFrame, FrameError> {
        check_kind::<PullFrame>(head)?;
        let PullFlags { read, slots, newer, f16, versioned } = PullFlags::of::<PullFrame>(head)?;
        let (table, keys) = crate::frames::word::unpair(head.words[0]);
        let (keep,) = crate::frames::declare::read_field::<PullFrame, _>(head, Field::W1)?;
        let (segments,) = crate::frames::declare::read_field::<PullFrame, _>(head, Field::W2)?;
        let (clock,) = crate::frames::declare::read_field::<PullFrame, _>(head, Field::W3)?;
        Ok(PullFrame { table, keys, read, keep, segments, slots, newer, clock, f16, versioned })
    }
}

/// The answer to a pull. Payload: the rows, perhaps their slots; pull_newer.rs has that of a conditional pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsFrame {
    pub table: u32,
    pub keys: u32,
    pub read: Read,
    pub slots: bool,
    pub newer: bool,
    /// The rows are f16.
    pub f16: bool,
    /// `version` is the snapshot version of the rows.
    pub versioned: bool,
    /// The place of the keyset that the server has kept, plus 1; 0 for none.
    pub kept: u32,
    /// The snapshot version of a conditional pull's rows, or of one that asks for it. For other pulls, the segments of
    /// the request.
    pub version: u64,
    /// The lowest clock of all workers, if the pull has a clock.
    pub lowest: Option<u64>,
}

impl RowsFrame {
    /// The answer to a pull, with rows of f32.
    #[inline]
    pub fn to(pull: &PullFrame, kept: u32, lowest: Option<u64>) -> RowsFrame {
        let PullFrame { table, keys, read, slots, newer, segments, .. } = *pull;
        let (f16, versioned, version) = (false, false, (segments,).put());
        RowsFrame { table, keys, read, slots, newer, f16, versioned, kept, version, lowest }
    }

    /// Whether the head of an answer announces rows of f16.
    #[inline]
    pub fn announces_f16(head: &Head) -> bool {
        head.aux & F16 != 0
    }
}

impl FrameKind for RowsFrame {
    const KIND: u16 = 6;
    const ROW: FrameRow = FrameRow {
        kind: 6,
        name: "rows",
        direction: FrameDirection::ToWorker,
        fields: &[
            (Field::Aux, "state 1, slots 2, newer 4, f16 8, version 16"),
            (Field::W0, "table; keys"),
            (Field::W1, "kept + 1"),
            (Field::W2, "segments or snapshot version"),
            (Field::W3, "lowest clock + 1"),
        ],
        payload: "rows",
        reencode: reencode::<RowsFrame>,
    };

    #[inline]
    fn encode(&self, id: u64) -> Head {
        let RowsFrame { read, slots, newer, f16, versioned, .. } = *self;
        let aux = PullFlags { read, slots, newer, f16, versioned }.aux();
        let first = pair_of_words(self.table, self.keys);
        Head::new(Self::KIND, aux, id, [first, (self.kept,).put(), self.version, (self.lowest,).put()])
    }

    #[inline]
    fn decode(head: &Head) -> Result<RowsFrame, FrameError> {
        check_kind::<RowsFrame>(head)?;
        let PullFlags { read, slots, newer, f16, versioned } = PullFlags::of::<RowsFrame>(head)?;
        let (table, keys) = crate::frames::word::unpair(head.words[0]);
        let (kept,) = crate::frames::declare::read_field::<RowsFrame, _>(head, Field::W1)?;
        let (lowest,) = crate::frames::declare::read_field::<RowsFrame, _>(head, Field::W3)?;
        let version = head.words[2];
        Ok(RowsFrame { table, keys, read, slots, newer, f16, versioned, kept, version, lowest })
    }
}

/// In a push's aux: the rows are changes of state.
const CHANGE: u16 = 1;
/// In a push's aux: the payload has hints for the rows' slots.
const SLOTS: u16 = 2;
/// In a push's aux: the payload begins with the name of the data that was learned.
const NAMED: u16 = 4;
/// In a push's aux: the rows are terms of a pass's sum.
const SUM: u16 = 8;
/// In a push's aux: the keyset has some of the rows. The payload has the keys of the others.
const SOME: u16 = 16;
/// In a push's aux: damped changes of state.
const DAMPED: u16 = 32;
/// In a push's aux: whole rows, which replace the stored ones.
const ROW: u16 = 64;
/// In a push's aux: the rows are deleted.
const DELETE: u16 = 128;
/// In a push's aux: the gradients are f16 (f16.rs).
const F16_GRADIENTS: u16 = 256;
/// In a push's aux: the payload says of which version the rows are from which the changes were computed.
const SINCE: u16 = 512;
/// The kinds of writes in a push's aux, of which at most one is set; none is a gradient.
const WRITES: u16 = CHANGE | SUM | DAMPED | ROW | DELETE;

/// A push. push_payload.rs has the payload.
/// The server applies a push, or keeps it for its synchronous step. Refused with 1 to 9, 11.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushFrame {
    pub table: u32,
    pub keys: u32,
    pub write: Write,
    pub seq: u64,
    /// Rows of the push that come before the first key, in the first key's shard.
    pub row: u32,
    /// Rows of the whole push, over all shards of the table; 0: unknown.
    pub total: u32,
    /// Session, and the keyset's place plus 1; 0: the keys are in the payload.
    pub keyset: u64,
    /// The payload has hints for the rows' slots.
    pub slots: bool,
    /// The push is named by the data that was learned, not by the session's worker.
    pub named: bool,
    /// The keyset has some of the rows. The payload has the keys of the others.
    pub some: bool,
    /// The values are gradients as f16.
    pub f16: bool,
    /// The payload says of which version the rows are from which the changes of state were computed.
    pub since: bool,
}

impl FrameKind for PushFrame {
    const KIND: u16 = 7;
    const ROW: FrameRow = FrameRow {
        kind: 7,
        name: "push",
        direction: FrameDirection::ToServer,
        fields: &[
            (
                Field::Aux,
                "change 1, slots 2, named 4, sum 8, some 16, damped 32, row 64, delete 128, f16 256, since 512",
            ),
            (Field::W0, "table; keys"),
            (Field::W1, "seq"),
            (Field::W2, "row; rows of the push"),
            (Field::W3, "session; keyset + 1"),
        ],
        payload: "push",
        reencode: reencode::<PushFrame>,
    };

    #[inline]
    fn encode(&self, id: u64) -> Head {
        let write = match self.write {
            Write::Gradient => 0,
            Write::Change => CHANGE,
            Write::Sum => SUM,
            Write::Damped => DAMPED,
            Write::Row => ROW,
            Write::Delete => DELETE,
        };
        let aux = write | if self.slots { SLOTS } else { 0 } | if self.named { NAMED } else { 0 };
        let aux = aux | if self.some { SOME } else { 0 } | if self.f16 { F16_GRADIENTS } else { 0 };
        let aux = aux | if self.since { SINCE } else { 0 };
        let words = [
            pair_of_words(self.table, self.keys),
            self.seq,
            pair_of_words(self.row, self.total),
            self.keyset,
        ];
        Head::new(Self::KIND, aux, id, words)
    }

    #[inline]
    fn decode(head: &Head) -> Result<PushFrame, FrameError> {
        check_kind::<PushFrame>(head)?;
        let contradiction = |what| FrameError::Contradiction { name: Self::ROW.name, what };
        if head.aux & !(WRITES | SLOTS | NAMED | SOME | F16_GRADIENTS | SINCE) != 0 {
            return Err(crate::frames::declare::bad_value::<PushFrame>(Field::Aux, u64::from(head.aux)));
        }
        let write = match head.aux & WRITES {
            0 => Write::Gradient,
            CHANGE => Write::Change,
            SUM => Write::Sum,
            DAMPED => Write::Damped,
            ROW => Write::Row,
            DELETE => Write::Delete,
            _ => return Err(contradiction("aux has more than one of change, sum, damped, row and delete")),
        };
        let (slots, named, some) = (head.aux & SLOTS != 0, head.aux & NAMED != 0, head.aux & SOME != 0);
        let (f16, keyset) = (head.aux & F16_GRADIENTS != 0, head.words[3]);
        if f16 && write != Write::Gradient {
            return Err(contradiction("aux has f16, but the values are no gradients"));
        }
        let since = head.aux & SINCE != 0;
        if since && !matches!(write, Write::Change | Write::Damped) {
            return Err(contradiction("aux has since, but the values are no changes of state"));
        }
        if slots && keyset != 0 {
            return Err(contradiction("it has slots and names a keyset, which has them already"));
        }
        if some && keyset == 0 {
            return Err(contradiction("aux says that a keyset has some of the rows, but w3 names none"));
        }
        let (table, keys) = crate::frames::word::unpair(head.words[0]);
        let (row, total) = crate::frames::word::unpair(head.words[2]);
        let seq = head.words[1];
        Ok(PushFrame { table, keys, write, seq, row, total, keyset, slots, named, some, f16, since })
    }
}

frames! {
    /// The outcome of a push.
    8 AckFrame "ack" ToWorker "-" {
        W0 "applied; duplicate": applied: u32, duplicate: u32;
        W1 "not finite; not admitted": not_finite: u32, not_admitted: u32;
        W2 "late; refused": /** Rows that came after their step had been applied. */ late: u32, /** Changes of rows that had died. */ refused: u32;
    }

    /// Asks for a page of a shard's rows.
    /// The server answers one page of a shard's rows. Refused with 2, 4.
    9 ScanFrame "scan" ToServer "-" {
        W0 "table; most rows": table: u32, most: u32;
        W1 "shard; from slot": shard: u32, from: u32;
    }

    /// A page of a shard's rows.
    10 ScannedFrame "scanned" ToWorker "keys u64, then floats f32" {
        W0 "rows; floats": rows: u32, floats: u32;
        W1 "next slot": /** Where the next page begins; 2^64 - 1: this was the last one. */ next: u64;
    }
}

impl AckFrame {
    #[inline]
    pub fn new(applied: Applied, late: u32) -> AckFrame {
        let Applied { applied, duplicate, not_finite, not_admitted, refused } = applied;
        AckFrame { applied, duplicate, not_finite, not_admitted, late, refused }
    }

    /// The rows by outcome.
    #[inline]
    pub fn applied(&self) -> Applied {
        let AckFrame { applied, duplicate, not_finite, not_admitted, refused, .. } = *self;
        Applied { applied, duplicate, not_finite, not_admitted, refused }
    }
}

frame_rows!(PullFrame, RowsFrame, PushFrame, AckFrame, ScanFrame, ScannedFrame);

#[cfg(test)]
mod tests {
    use super::*;

    fn pull(aux: u16, words: [u64; 4]) -> Option<PullFrame> {
        PullFrame::decode(&Head::new(5, aux, 0, words)).ok()
    }

    fn push(aux: u16, words: [u64; 4]) -> Option<PushFrame> {
        PushFrame::decode(&Head::new(7, aux, 0, words)).ok()
    }

    #[test]
    fn pulls_come_through_a_head() {
        let request = PullFrame {
            table: 3,
            keys: 77,
            read: Read::State,
            keep: 5,
            segments: Segments::ALL,
            slots: false,
            newer: false,
            clock: None,
            f16: false,
            versioned: false,
        };
        let decoded = |frame: &PullFrame| PullFrame::decode(&frame.encode(9));
        let with_slots = PullFrame { slots: true, read: Read::Weights, ..request };
        assert_eq!((decoded(&with_slots), with_slots.encode(9).aux), (Ok(with_slots), 2));
        assert_eq!(decoded(&request), Ok(request));
        assert_eq!(request.encode(9).words, [77 << 32 | 3, 5, 0, 0]);
        let wide = PullFrame { segments: Segments::only(&[0, 2]), ..request };
        assert_eq!(decoded(&wide), Ok(wide));
        assert_eq!(wide.encode(9).words, [77 << 32 | 3, 5, 0b101, 0]);
        assert_eq!(pull(0, [0, 0, 256, 0]), None);
        let in_step = PullFrame { clock: Some(16), ..request };
        assert_eq!((decoded(&in_step), in_step.encode(9).words[3]), (Ok(in_step), 17));
        let newer = PullFrame { newer: true, ..request };
        assert_eq!((decoded(&newer), newer.encode(9).aux), (Ok(newer), 5));
        assert_eq!(pull(6, [0; 4]), None);
        let f16 = PullFrame { read: Read::Weights, f16: true, ..request };
        assert_eq!((decoded(&f16), f16.encode(9).aux), (Ok(f16), 8));
        let versioned = PullFrame { versioned: true, ..request };
        assert_eq!((decoded(&versioned), versioned.encode(9).aux), (Ok(versioned), 17));
        [9, 10, 12, 20, 32].into_iter().for_each(|aux| assert_eq!(pull(aux, [0; 4]), None, "{aux}"));
        let rows = RowsFrame::to(&wide, 5, Some(16));
        assert_eq!((rows.encode(9).words, rows.encode(9).aux), ([77 << 32 | 3, 5, 0b101, 17], 1));
        assert_eq!(RowsFrame::decode(&rows.encode(9)), Ok(rows));
        let f16 = RowsFrame { f16: true, ..RowsFrame::to(&f16, 5, None) };
        assert_eq!((RowsFrame::decode(&f16.encode(9)), f16.encode(9).aux), (Ok(f16), 8));
    }

    #[test]
    fn pushes_come_through_a_head() {
        let change = PushFrame {
            table: 1,
            keys: 2,
            write: Write::Change,
            seq: u64::MAX,
            row: 4,
            total: 9,
            keyset: 1 << 40,
            slots: false,
            named: true,
            some: false,
            f16: false,
            since: false,
        };
        let decoded = |frame: &PushFrame| PushFrame::decode(&frame.encode(9));
        assert_eq!(decoded(&change), Ok(change));
        let with_slots = PushFrame { write: Write::Gradient, keyset: 0, slots: true, ..change };
        assert_eq!(decoded(&with_slots), Ok(with_slots));
        let sum = PushFrame { write: Write::Sum, named: false, ..change };
        assert_eq!((decoded(&sum), sum.encode(9).aux), (Ok(sum), 8));
        let damped = PushFrame { write: Write::Damped, ..change };
        assert_eq!((decoded(&damped), damped.encode(9).aux), (Ok(damped), 36));
        assert_eq!(push(9, [0; 4]), None);
        assert_eq!(push(33, [0; 4]), None);
        assert!(decoded(&PushFrame { slots: true, ..change }).is_err());
        let some = PushFrame { some: true, ..change };
        assert_eq!((decoded(&some), some.encode(9).aux), (Ok(some), 21));
        assert_eq!(push(16, [0; 4]), None);
        for (write, aux) in [(Write::Row, 68), (Write::Delete, 132)] {
            let frame = PushFrame { write, ..change };
            assert_eq!((decoded(&frame), frame.encode(9).aux), (Ok(frame), aux));
        }
        assert_eq!(push(64 + 128, [0; 4]), None);
        let f16 = PushFrame { write: Write::Gradient, f16: true, ..change };
        assert_eq!((decoded(&f16), f16.encode(9).aux), (Ok(f16), 260));
        let since = PushFrame { since: true, ..change };
        assert_eq!((decoded(&since), since.encode(9).aux), (Ok(since), 517));
        [257, 264, 288, 320, 384, 512, 1024]
            .into_iter()
            .for_each(|aux| assert_eq!(push(aux, [0; 4]), None, "{aux}"));
        assert_eq!(push(0, [0, 0, 7 << 32 | 3, 0]).map(|push| (push.row, push.total)), Some((3, 7)));
        let applied = Applied { applied: 1, duplicate: 2, not_finite: 3, not_admitted: 4, refused: 6 };
        let ack = AckFrame::decode(&AckFrame::new(applied, 5).encode(1)).unwrap();
        assert_eq!((ack.applied(), ack.late), (applied, 5));
    }
}
