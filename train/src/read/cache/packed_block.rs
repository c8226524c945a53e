//! A block of examples in packed form. Each column has a kind, so that a later version can add kinds; a reader that
//! does not know one makes the cache anew.

use crate::limits::OCCURRENCES_PER_BLOCK_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use rkyv::rancor::Error;
use rkyv::util::AlignedVec;

/// A batch of examples.
#[derive(rkyv::Archive, rkyv::Serialize)]
struct PackedBlockV1 {
    /// The batches of all shares up to this one, and the data lines.
    next_batch: u64,
    data_lines: u64,
    examples: u32,
    /// Features without intercepts.
    features: u32,
    /// Whether each example begins with the intercept, which is not stored.
    intercept: bool,
    may_repeat: bool,
    columns: Vec<ColumnV1>,
}

/// Numbers of one kind, little-endian.
#[derive(rkyv::Archive, rkyv::Serialize)]
struct ColumnV1 {
    kind: u32,
    bytes: Vec<u8>,
}

/// f32, one an example.
const LABELS: u32 = 1;
/// f32, one an example. Without it each is 1.
const IMPORTANCES: u32 = 2;
/// u32: the number of features of each example.
const LENGTHS: u32 = 3;
/// u32: the number of features that all examples have.
const ONE_LENGTH: u32 = 4;
/// u64, one a feature.
const KEYS: u32 = 5;
/// u32, one a feature: keys that are below 2^32.
const SHORT_KEYS: u32 = 6;
/// f32, one a feature. Without it each is 1.
const VALUES: u32 = 7;
/// f32, one an example. Without it each is 0.
const BASES: u32 = 8;
/// u64, one a feature. Without it no field is known.
const FIELDS: u32 = 9;

/// Where in the data a block ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockEnd {
    /// The batches of all shares up to this one.
    pub next_batch: u64,
    /// The data lines up to here.
    pub data_lines: u64,
}

fn floats(of: &[f32]) -> Vec<u8> {
    of.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Packs a block.
pub(crate) fn pack(block: &Block, end: BlockEnd) -> AlignedVec {
    let starts = || block.offsets.windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
    let first = |at: usize| block.keys.get(at) == Some(&INTERCEPT_KEY) && block.values[at] == 1.0;
    let intercept = starts().all(|of| !of.is_empty() && first(of.start));
    let skipped = usize::from(intercept);
    let lengths = || starts().map(|of| (of.len() - skipped) as u32);
    let features: usize = lengths().map(|length| length as usize).sum();
    let keys = || starts().flat_map(|of| &block.keys[of.start + skipped..of.end]);
    let values = || starts().flat_map(|of| &block.values[of.start + skipped..of.end]);
    let mut columns = vec![ColumnV1 { kind: LABELS, bytes: floats(&block.labels) }];
    if !block.importances.is_empty() {
        columns.push(ColumnV1 { kind: IMPORTANCES, bytes: floats(&block.importances) });
    }
    if !block.bases.is_empty() {
        columns.push(ColumnV1 { kind: BASES, bytes: floats(&block.bases) });
    }
    if !block.fields.is_empty() {
        let fields = starts().flat_map(|of| &block.fields[of.start + skipped..of.end]);
        columns
            .push(ColumnV1 { kind: FIELDS, bytes: fields.flat_map(|field| field.to_le_bytes()).collect() });
    }
    let one = lengths().next().unwrap_or(0);
    columns.push(match lengths().all(|length| length == one) {
        true => ColumnV1 { kind: ONE_LENGTH, bytes: one.to_le_bytes().to_vec() },
        false => ColumnV1 { kind: LENGTHS, bytes: lengths().flat_map(u32::to_le_bytes).collect() },
    });
    let is_short = keys().fold(0, |all, key| all | key) <= u64::from(u32::MAX);
    let mut bytes = Vec::with_capacity(features * if is_short { 4 } else { 8 });
    match is_short {
        true => keys().for_each(|&key| bytes.extend_from_slice(&(key as u32).to_le_bytes())),
        false => keys().for_each(|key| bytes.extend_from_slice(&key.to_le_bytes())),
    }
    columns.push(ColumnV1 { kind: if is_short { SHORT_KEYS } else { KEYS }, bytes });
    if !values().all(|&value| value == 1.0) {
        let mut bytes = Vec::with_capacity(features * 4);
        values().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        columns.push(ColumnV1 { kind: VALUES, bytes });
    }
    let packed = PackedBlockV1 {
        next_batch: end.next_batch,
        data_lines: end.data_lines,
        examples: block.len() as u32,
        features: features as u32,
        intercept,
        may_repeat: block.may_repeat,
        columns,
    };
    rkyv::to_bytes::<Error>(&packed).unwrap_or_default()
}

fn numbers<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    bytes.as_chunks::<N>().0.iter().map(move |bytes| read(*bytes))
}

/// Unpacks a block. `None`: these are not the bytes of one, or of a later version.
pub(crate) fn unpack(bytes: &AlignedVec, block: &mut Block) -> Option<BlockEnd> {
    let packed = rkyv::access::<ArchivedPackedBlockV1, Error>(bytes).ok()?;
    let (examples, features) = (packed.examples.to_native() as usize, packed.features.to_native() as usize);
    let column = |kind: u32, count: usize, width: usize| {
        let column = packed.columns.iter().find(|column| column.kind == kind)?;
        (column.bytes.len() == count * width).then_some(column.bytes.as_slice())
    };
    let is_known = |kind: u32| (LABELS..=FIELDS).contains(&kind);
    if !packed.columns.iter().all(|column| is_known(column.kind.to_native())) {
        return None;
    }
    block.clear();
    block.labels.extend(numbers(column(LABELS, examples, 4)?, f32::from_le_bytes));
    if let Some(bytes) = column(IMPORTANCES, examples, 4) {
        block.importances.extend(numbers(bytes, f32::from_le_bytes));
    }
    if let Some(bytes) = column(BASES, examples, 4) {
        block.bases.extend(numbers(bytes, f32::from_le_bytes));
    }
    let skipped = usize::from(packed.intercept);
    ends(column(LENGTHS, examples, 4), column(ONE_LENGTH, 1, 4), skipped, examples, &mut block.offsets)?;
    let all = *block.offsets.last()? as usize;
    if all != features + skipped * examples || all > OCCURRENCES_PER_BLOCK_MAX * 2 {
        return None;
    }
    let with = packed.intercept;
    match (column(KEYS, features, 8), column(SHORT_KEYS, features, 4)) {
        (Some(bytes), _) => {
            fill(&mut block.keys, &block.offsets, with.then_some(INTERCEPT_KEY), bytes, u64::from_le_bytes);
        }
        (_, Some(bytes)) => {
            let long = |bytes| u64::from(u32::from_le_bytes(bytes));
            fill(&mut block.keys, &block.offsets, with.then_some(INTERCEPT_KEY), bytes, long);
        }
        _ => return None,
    }
    match column(VALUES, features, 4) {
        Some(bytes) => {
            fill(&mut block.values, &block.offsets, with.then_some(1.0), bytes, f32::from_le_bytes);
        }
        None => block.values.resize(all, 1.0),
    }
    if let Some(bytes) = column(FIELDS, features, 8) {
        fill(&mut block.fields, &block.offsets, with.then_some(0), bytes, u64::from_le_bytes);
    }
    block.may_repeat = packed.may_repeat;
    Some(BlockEnd { next_batch: packed.next_batch.to_native(), data_lines: packed.data_lines.to_native() })
}

/// Where each example's features end, with intercepts.
fn ends(
    lengths: Option<&[u8]>,
    one: Option<&[u8]>,
    skipped: usize,
    examples: usize,
    offsets: &mut Vec<u32>,
) -> Option<()> {
    let mut at = 0u32;
    let mut add = |length: u32| {
        at = at.checked_add(length)?.checked_add(skipped as u32)?;
        offsets.push(at);
        Some(())
    };
    match (lengths, one) {
        (Some(bytes), None) => numbers(bytes, u32::from_le_bytes).try_for_each(add),
        (None, Some(bytes)) => {
            let length = u32::from_le_bytes(bytes.try_into().ok()?);
            (0..examples).try_for_each(|_| add(length))
        }
        _ => None,
    }
}

/// Appends the numbers of all examples, each example after its `first` one if there is one.
fn fill<const N: usize, T: Copy>(
    out: &mut Vec<T>,
    offsets: &[u32],
    first: Option<T>,
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T + Copy,
) {
    let Some(first) = first else {
        out.extend(numbers(bytes, read));
        return;
    };
    let mut left = bytes;
    out.reserve(offsets.last().map_or(0, |&end| end as usize));
    for ends in offsets.windows(2) {
        let own = (ends[1] - ends[0] - 1) as usize * N;
        let (now, later) = left.split_at(own.min(left.len()));
        out.push(first);
        out.extend(numbers(now, read));
        left = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An example: its label, importance, base, and features.
    type Case = (f32, f32, f32, Vec<(u64, f32)>);

    fn block(cases: &[Case], intercept: bool) -> Block {
        let mut block = Block::default();
        block.clear();
        for (label, importance, base, features) in cases {
            if intercept {
                block.keys.push(INTERCEPT_KEY);
                block.values.push(1.0);
            }
            block.keys.extend(features.iter().map(|feature| feature.0));
            block.values.extend(features.iter().map(|feature| feature.1));
            block.end_with(*label, *importance, *base);
        }
        block
    }

    fn cases() -> impl Strategy<Value = Vec<Case>> {
        let key = prop_oneof![0u64..9, Just(u64::from(u32::MAX)), Just(1 << 32), any::<u64>()];
        let value = prop_oneof![Just(1.0f32), Just(-0.0), -9.0f32..9.0];
        let features = prop_oneof![
            prop::collection::vec((0u64..99, Just(1.0f32)), 3),
            prop::collection::vec((key, value), 0..5)
        ];
        let importance = prop_oneof![4 => Just(1.0f32), 1 => 0.0f32..3.0];
        let label = prop_oneof![Just(1.0f32), Just(0.0), Just(-0.0), Just(2.5)];
        let base = prop_oneof![4 => Just(0.0f32), 1 => -3.0f32..3.0];
        prop::collection::vec((label, importance, base, features), 0..20)
    }

    proptest! {
        #[test]
        fn a_block_is_unpacked_as_it_was(cases in cases(), intercept: bool, may_repeat: bool, with_fields: bool) {
            let mut block = Block { may_repeat, ..block(&cases, intercept) };
            if with_fields {
                let field = |&key: &u64| if key == INTERCEPT_KEY && intercept { 0 } else { key % 7 };
                block.fields = block.keys.iter().map(field).collect();
            }
            let end = BlockEnd { next_batch: 7, data_lines: 1 << 40 };
            let packed = pack(&block, end);
            let mut again = Block::default();
            again.keys.push(3);
            prop_assert_eq!(unpack(&packed, &mut again), Some(end));
            let bits = |of: &[f32]| of.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&again.labels), bits(&block.labels));
            prop_assert_eq!(bits(&again.values), bits(&block.values));
            prop_assert_eq!(again, block);
        }

        /// Bytes that are not those of a block are refused, whatever they are, and never panic.
        #[test]
        fn damaged_bytes_do_no_harm(cases in cases(), at: prop::sample::Index, with: u8) {
            let mut packed = pack(&block(&cases, true), BlockEnd::default());
            let at = at.index(packed.len());
            packed[at] ^= with;
            let mut block = Block::default();
            if unpack(&packed, &mut block).is_some() {
                prop_assert_eq!(block.offsets.len(), block.len() + 1);
                prop_assert_eq!(block.keys.len(), block.values.len());
                prop_assert_eq!(block.keys.len(), block.offsets[block.len()] as usize);
            }
        }
    }
}
