//! Rows read over a network without a request to their owner: which bytes of a row to read, in which order, and
//! when the bytes can be trusted. The caller does the reads.
//!
//! One READ of a device fetches cache lines of 64 bytes, in any order. The bytes of each line are from one
//! moment. So:
//! - A row whose wanted bytes lie in one line ([`RemoteRowReader::is_one_line`]) takes one READ. Its own version word
//!   is enough.
//! - Any other row takes three READs, each completed before the next is posted: its version, its bytes, its
//!   version again ([`RemoteRowReader::is_row`]). Versions of a slot only grow. So if both versions are equal
//!   and even, the row did not change between them.
//!
//! Fewer READs are not enough: neither one READ of a longer row with a version at head and tail, nor a row and
//! then its version. A software device copies a line word by word, so with such a device every row takes three
//! READs. The server reports which kind of device it has. The tests enumerate every order.

use crate::error::PullError;
use crate::image::layout::{ACKNOWLEDGED, INCARNATION, LOWEST, SERVING};
use crate::image::row_version::{LIVE, WRITING};
use crate::schema::segment::Segments;
use crate::schema::table_schema::Schema;
use crate::table::pushes::read_write::Read;
use crate::table::pushes::segment_rules::{ReadWeights, SegmentPart, Segmented, SelectedSegments};
use gannet_optim::{Rule, Update};

/// Bytes of a cache line. A device reads them at one moment.
const LINE_BYTES: usize = 64;

/// Offset in an image of the line that says whether the image is served, and by which incarnation. One READ of
/// [`HEADER_LINE_BYTES`] fetches it for [`is_served`].
pub const HEADER_LINE_AT: usize = INCARNATION / LINE_BYTES * LINE_BYTES;
/// Bytes of that line.
pub const HEADER_LINE_BYTES: usize = LINE_BYTES;
/// Bytes of a row's version word, which is at the row's offset.
pub const VERSION_BYTES: usize = 8;
const ROW_HEAD_BYTES: usize = 16;

const _: () = {
    let line = INCARNATION / LINE_BYTES;
    assert!(SERVING / LINE_BYTES == line && LOWEST / LINE_BYTES == line && ACKNOWLEDGED / LINE_BYTES == line);
};

/// Whether this header line says that the owner's incarnation `incarnation` serves the image.
pub fn is_served(line: &[u8], incarnation: u64) -> bool {
    row_word(line, INCARNATION - HEADER_LINE_AT) == Some(incarnation)
        && row_word(line, SERVING - HEADER_LINE_AT) == Some(1)
}

/// The lowest clock of the workers in a header line, as [`MappedShards::lowest`](crate::MappedShards::lowest).
/// Rows that are read after the line include all pushes of steps below it.
pub fn lowest_of(line: &[u8]) -> u64 {
    row_word(line, LOWEST - HEADER_LINE_AT).unwrap_or(0)
}

/// In a header line: the last command that all backups of the owner have. A row that was changed later
/// ([`command_of`]) is not to be believed.
pub fn acknowledged_of(line: &[u8]) -> u64 {
    row_word(line, ACKNOWLEDGED - HEADER_LINE_AT).unwrap_or(0)
}

/// The command that last changed a row, from the row's first bytes.
pub fn command_of(row: &[u8]) -> u64 {
    row_word(row, 0).map_or(u64::MAX, |version| version >> 2)
}

/// Reads rows of a table from another machine, for one kind of read and some segments.
pub struct RemoteRowReader {
    stride: usize,
    /// Floats to read of a row, from its first on.
    wanted: usize,
    floats: usize,
    derives: Option<DerivedWeights>,
    row: Vec<f32>,
}

/// How to compute an answer from the stored floats, if the answer is not a copy of them.
struct DerivedWeights {
    rule: Rule,
    parts: Vec<SegmentPart>,
    segments: Segments,
    state: bool,
}

impl RemoteRowReader {
    /// A reader for pulls of this kind.
    ///
    /// # Errors
    /// A segment that the rows do not have.
    pub fn new(schema: &Schema, read: Read, segments: Segments) -> Result<RemoteRowReader, PullError> {
        let floats = schema.read_floats_of(read, segments)?;
        let parts = schema.parts(None);
        let state = read == Read::State;
        let plain = match parts.is_empty() {
            true => state || !schema.rule.derives(),
            false => state && segments == Segments::ALL,
        };
        let wanted = match plain {
            true => floats,
            false if parts.is_empty() => schema.rule.weight_floats(schema.dim as usize),
            false => schema.floats(),
        };
        let derives = (!plain).then_some(DerivedWeights { rule: schema.rule, parts, segments, state });
        Ok(RemoteRowReader { stride: schema.stride(), wanted, floats, derives, row: vec![0.0; wanted] })
    }

    /// Floats of an answer for one row.
    pub fn floats(&self) -> usize {
        self.floats
    }

    /// Bytes of a row to read, from its offset on: version, key and floats.
    pub fn bytes(&self) -> usize {
        ROW_HEAD_BYTES + 4 * self.wanted
    }

    /// Offset of a slot's row in its shard's rows.
    pub fn offset(&self, slot: u32) -> u64 {
        u64::from(slot) * self.stride as u64
    }

    /// Whether the wanted bytes of a slot's row lie in one line. Then one READ of a device that reads whole
    /// lines returns them as they were at one moment.
    pub fn is_one_line(&self, slot: u32) -> bool {
        self.offset(slot) as usize % LINE_BYTES + self.bytes() <= LINE_BYTES
    }

    /// Checks whether `row`, [`bytes`](Self::bytes) bytes from one moment, is the row of `key`. If so, writes
    /// its answer into `out` ([`floats`](Self::floats) floats) and returns `true`.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn is_line(&mut self, key: u64, row: &[u8], out: &mut [f32]) -> bool {
        self.is_row(key, row, row, row, out)
    }

    /// As [`is_line`](Self::is_line), for bytes that were read between two READs of the row's version. `before` and
    /// `after` start with the bytes of these versions.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn is_row(&mut self, key: u64, before: &[u8], row: &[u8], after: &[u8], out: &mut [f32]) -> bool {
        assert_eq!(out.len(), self.floats, "an answer of this read");
        let version = row_word(before, 0);
        let steady = version.is_some_and(|v| v & (LIVE | WRITING) == LIVE) && version == row_word(after, 0);
        let Some(bytes) = row.get(ROW_HEAD_BYTES..self.bytes()) else { return false };
        if !steady || row_word(row, 8) != Some(key) {
            return false;
        }
        let floats = bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        let Some(derives) = &self.derives else {
            out.iter_mut().zip(floats).for_each(|(out, float)| *out = float);
            return true;
        };
        self.row.iter_mut().zip(floats).for_each(|(at, float)| *at = float);
        derives.answer(&self.row, out);
        true
    }
}

impl DerivedWeights {
    fn answer(&self, row: &[f32], out: &mut [f32]) {
        if self.parts.is_empty() {
            return self.rule.visit(ReadWeights(row, out));
        }
        SelectedSegments { rule: Segmented::new(&self.parts), segments: self.segments, state: self.state }
            .weights(row, out);
    }
}

fn row_word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::image::row_version::{self, Word};
    use gannet_optim::Add;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::ops::Range;
    use std::rc::Rc;
    use std::sync::atomic::Ordering;

    /// Memory that records its state after each store, in program order.
    #[derive(Clone)]
    struct Tape(Rc<RefCell<Vec<Vec<u64>>>>);

    struct RemoteCell(Tape, usize);

    impl Word for RemoteCell {
        fn load(&self, _: Ordering) -> u64 {
            self.0.0.borrow().last().unwrap()[self.1]
        }
        fn store(&self, value: u64, _: Ordering) {
            let mut states = self.0.0.borrow_mut();
            let mut next = states.last().unwrap().clone();
            next[self.1] = value;
            states.push(next);
        }
        fn fence(_: Ordering) {}
        fn pause() {}
    }

    const KEY: u64 = 77;
    const OTHER: u64 = 78;

    fn schema(floats: usize) -> Schema {
        Schema { dim: floats as u32, ..Schema::scalar("t", Rule::Add(Add)) }
    }

    /// Two floats that encode the key of a row and the number of its write.
    fn pair(key: u64, n: u64) -> u64 {
        let float = (key * 100 + n) as f32;
        u64::from(float.to_bits()) << 32 | u64::from(float.to_bits())
    }

    /// All states of a slot of `words` words while its owner writes the row of KEY twice, frees it, uses the
    /// slot for another key, frees that row and inserts KEY again. The states are made by the functions that
    /// write rows.
    fn slot_history(words: usize) -> Vec<Vec<u64>> {
        let tape = Tape(Rc::new(RefCell::new(vec![vec![0; words]])));
        let cells: Vec<RemoteCell> = (0..words).map(|i| RemoteCell(tape.clone(), i)).collect();
        let write = |counter: u64, key: u64| {
            row_version::begin_row_write(&cells[0], counter);
            (2..words).for_each(|i| cells[i].store(pair(key, counter), Ordering::Relaxed));
            row_version::end_row_write(&cells[0], counter);
        };
        let insert = |counter: u64, key: u64| {
            cells[1].store(key, Ordering::Release);
            write(counter, key);
        };
        insert(1, KEY);
        write(2, KEY);
        row_version::free(&cells[0], &cells[1], 3, 0);
        insert(3, OTHER);
        row_version::free(&cells[0], &cells[1], 4, 0);
        insert(5, KEY);
        tape.0.take()
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Calls `each` with every choice of `parts` moments from `0..end`.
    fn each_way(parts: usize, end: usize, each: &mut impl FnMut(&[usize])) {
        let mut at = vec![0; parts];
        loop {
            each(&at);
            let Some(i) = (0..parts).find(|&i| at[i] + 1 < end) else { return };
            at[i] += 1;
            at[..i].fill(0);
        }
    }

    /// Where a version that is compared comes from.
    #[derive(Clone, Copy)]
    enum From {
        /// From the row's own bytes.
        Row,
        /// From another part of the same READ, or from a READ that was posted with it: it may be from any moment.
        SameBatch,
        /// From a READ that was completed before the row's was posted, or posted after the row's was completed.
        OwnBatch,
    }

    struct RemoteReadOutcome {
        believed: usize,
        torn: usize,
    }

    /// READs the row in parts of `words` words, each at a moment of its own, and versions before and after it.
    /// Tries all of these in every order against every step of the owner.
    fn try_all(states: &[Vec<u64>], words: usize, before: From, after: From) -> RemoteReadOutcome {
        let schema = schema(2 * (states[0].len() - 2));
        let mut reader = RemoteRowReader::new(&schema, Read::Weights, Segments::ALL).unwrap();
        let (mut out, mut outcome) = (vec![0.0; reader.floats()], RemoteReadOutcome { believed: 0, torn: 0 });
        let (parts, end) = (states[0].len().div_ceil(words), states.len());
        each_way(parts, end, &mut |moments| {
            let part = |(p, &moment): (usize, &usize)| {
                let state = &states[moment];
                state[p * words..state.len().min((p + 1) * words)].to_vec()
            };
            let row: Vec<u64> = moments.iter().enumerate().flat_map(part).collect();
            let (first, last) = (moments.iter().min().unwrap(), moments.iter().max().unwrap());
            let versions = |from, own_batch: Range<usize>| -> BTreeSet<u64> {
                match from {
                    From::Row => [row[0]].into(),
                    From::SameBatch => states.iter().map(|state| state[0]).collect(),
                    From::OwnBatch => states[own_batch].iter().map(|state| state[0]).collect(),
                }
            };
            let (before, after) = (versions(before, 0..first + 1), versions(after, *last..end));
            for version in before.intersection(&after) {
                let version = bytes(&[*version]);
                if reader.is_row(KEY, &version, &bytes(&row), &version, &mut out) {
                    outcome.believed += 1;
                    outcome.torn += usize::from(!is_whole(&out));
                }
            }
        });
        outcome
    }

    /// Whether this answer for KEY has all floats of one write of the row.
    fn is_whole(out: &[f32]) -> bool {
        out.iter().all(|&x| x == out[0]) && [1, 2, 5].iter().any(|n| out[0] == (KEY * 100 + n) as f32)
    }

    /// Words of a line: a row is three lines.
    const LINE: usize = 2;

    #[test]
    fn a_row_in_one_line_needs_one_read() {
        let states = slot_history(6);
        let outcome = try_all(&states, states[0].len(), From::Row, From::Row);
        assert_eq!(outcome.torn, 0);
        assert!(outcome.believed >= 3);
    }

    #[test]
    fn three_batches_are_enough_for_any_row() {
        for (states, words) in [(slot_history(6), LINE), (slot_history(4), 1)] {
            let outcome = try_all(&states, words, From::OwnBatch, From::OwnBatch);
            assert_eq!(outcome.torn, 0);
            assert!(outcome.believed >= 3);
        }
    }

    /// Cheaper protocols that look sound: the enumeration must find the orders that break them.
    #[test]
    fn less_is_not_enough() {
        let torn = |words, before, after| try_all(&slot_history(6.min(4 * words)), words, before, after).torn;
        assert!(torn(LINE, From::Row, From::Row) > 0, "one READ of several lines");
        assert!(torn(LINE, From::SameBatch, From::SameBatch) > 0, "a version at head and tail of one READ");
        assert!(torn(LINE, From::Row, From::OwnBatch) > 0, "a row and then its version");
        assert!(torn(LINE, From::OwnBatch, From::Row) > 0, "a version and then its row");
        assert!(torn(1, From::Row, From::Row) > 0, "a line that is copied word by word");
    }

    #[test]
    fn only_rows_inside_a_line_are_one_line() {
        for floats in [1, 2, 3, 12, 13, 16] {
            let reader = RemoteRowReader::new(&schema(floats), Read::State, Segments::ALL).unwrap();
            for slot in 0..200 {
                let lines = |byte: u64| (reader.offset(slot) + byte) / 64;
                assert_eq!(reader.is_one_line(slot), lines(0) == lines(reader.bytes() as u64 - 1));
            }
        }
    }

    #[test]
    fn the_header_line_has_the_incarnation_and_whether_it_is_served() {
        let mut line = [0; HEADER_LINE_BYTES];
        line[INCARNATION - HEADER_LINE_AT..][..8].copy_from_slice(&9u64.to_le_bytes());
        assert!(!is_served(&line, 9));
        line[SERVING - HEADER_LINE_AT] = 1;
        assert!(is_served(&line, 9) && !is_served(&line, 8) && !is_served(&line[..32], 9));
    }

    #[test]
    fn the_header_line_has_the_last_command_of_all_backups_and_a_row_its_own() {
        let mut line = [0; HEADER_LINE_BYTES];
        line[ACKNOWLEDGED - HEADER_LINE_AT..][..8].copy_from_slice(&77u64.to_le_bytes());
        assert_eq!((acknowledged_of(&line), acknowledged_of(&line[..56])), (77, 0));
        let row = (77u64 << 2 | LIVE).to_le_bytes();
        assert_eq!((command_of(&row), command_of(&row[..4])), (77, u64::MAX));
    }
}
