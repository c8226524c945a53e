//! The payload of a push. Workers write it, servers read it, and tests of both use the same code.
//!
//! ```text
//! | name | since | bits | keys | slots | values |
//! name:    pusher, incarnation, clock of the data (u64 each), if the push is named by its data
//! since:   version and server's incarnation (u64 each) of the rows from which the changes were computed, if it says so
//! bits:    a bit a row, in u64: the keyset has this row; if the keyset has some of the rows
//! keys:    u64 each: of all rows, or of those that are not in the keyset
//! slots:   u32 each, padded to 8 bytes: hints where the rows are
//! values:  f32, or gradients as f16, row by row
//! ```

use crate::frames::bulk::PushFrame;
use crate::frames::payloads::f16;
use crate::frames::payloads::pull_newer::{bit, bit_words, ones};
use bytemuck::cast_slice;
use gannet_core::{NO_SLOT, hash, shard_of};

/// The parts of a payload. A part that the push does not have is empty.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct PushPayload<'a> {
    /// Pusher, incarnation and clock of the data.
    pub name: Option<&'a [u64; 3]>,
    /// The version of the rows from which the changes were computed, and the incarnation of the server that said it.
    pub since: Option<&'a [u64; 2]>,
    pub bits: &'a [u64],
    pub keys: &'a [u64],
    pub slots: &'a [u32],
    pub values: PushValues<'a>,
}

/// The values of a push, row by row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PushValues<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
}

impl Default for PushValues<'_> {
    fn default() -> Self {
        PushValues::F32(&[])
    }
}

impl<'a> PushValues<'a> {
    #[inline]
    fn bytes(self) -> &'a [u8] {
        match self {
            PushValues::F32(values) => cast_slice(values),
            PushValues::F16(values) => cast_slice(values),
        }
    }

    /// The values as f32. Those of f16 are written into `room`.
    #[inline]
    pub fn floats(self, room: &'a mut Vec<f32>) -> &'a [f32] {
        match self {
            PushValues::F32(values) => values,
            PushValues::F16(values) => {
                room.resize(values.len(), 0.0);
                f16::widen(values, room);
                room
            }
        }
    }
}

impl<'a> PushPayload<'a> {
    /// Its bytes, without the padding at the end.
    #[inline]
    pub fn bytes(&self) -> usize {
        let name = self.name.map_or(0, size_of_val) + self.since.map_or(0, size_of_val);
        let keys = size_of_val(self.bits) + size_of_val(self.keys);
        name + keys + size_of_val(self.slots).next_multiple_of(8) + self.values.bytes().len()
    }

    /// Calls `part` with the parts, in the order in which they travel.
    #[inline]
    pub fn for_each_part(&self, mut part: impl FnMut(&'a [u8])) {
        if let Some(name) = self.name {
            part(cast_slice(name));
        }
        if let Some(since) = self.since {
            part(cast_slice(since));
        }
        part(cast_slice(self.bits));
        part(cast_slice(self.keys));
        part(cast_slice(self.slots));
        part(&[0; 4][..self.slots.len() % 2 * 4]);
        part(self.values.bytes());
    }

    /// The payload in one buffer.
    #[cfg(any(test, feature = "test-support"))]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        self.for_each_part(|part| bytes.extend_from_slice(part));
        bytes
    }
}

/// The lengths, in bytes, of the parts of a received payload.
#[derive(Debug, Clone, Copy)]
pub struct PushLayout {
    name: usize,
    since: usize,
    bits: usize,
    keys: usize,
    slots: usize,
    values: usize,
    /// Rows of the push, and floats of a row.
    rows: usize,
    floats: usize,
    /// The values are f16.
    f16: bool,
    /// Rows of it that its keyset has.
    pub in_keyset: usize,
}

impl PushLayout {
    /// The layout that `frame` announces, for rows of `floats` floats. Of the payload only the bits are read. The
    /// caller compares [`bytes`](Self::bytes) with the payload's length before it splits the payload.
    #[inline]
    pub fn new(frame: &PushFrame, payload: &[u8], floats: usize) -> PushLayout {
        let rows = frame.keys as usize;
        let name = if frame.named { size_of::<[u64; 3]>() } else { 0 };
        let since = if frame.since { size_of::<[u64; 2]>() } else { 0 };
        let (bits, from) = (if frame.some { bit_words(rows) * 8 } else { 0 }, name + since);
        let in_keyset = match (frame.keyset, payload.get(from..from + bits)) {
            (0, _) => 0,
            (_, Some(bits)) if frame.some => ones(cast_slice(bits), rows),
            _ => rows,
        };
        let slots = if frame.slots { (rows * 4).next_multiple_of(8) } else { 0 };
        PushLayout {
            name,
            since,
            bits,
            keys: (rows - in_keyset) * 8,
            slots,
            values: rows * floats * if frame.f16 { 2 } else { 4 },
            rows,
            floats,
            f16: frame.f16,
            in_keyset,
        }
    }

    /// Bytes of the payload, without the padding at the end.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.name + self.since + self.bits + self.keys + self.slots + self.values
    }

    /// Bytes of the values as f32.
    #[inline]
    pub fn f32_bytes(&self) -> usize {
        self.rows * self.floats * 4
    }

    /// The parts of a payload.
    ///
    /// # Panics
    /// When the payload has fewer bytes than the layout.
    #[inline]
    pub fn split<'a>(&self, payload: &'a [u8]) -> PushPayload<'a> {
        let (name, rest) = payload[..self.bytes()].split_at(self.name);
        let (since, rest) = rest.split_at(self.since);
        let (bits, rest) = rest.split_at(self.bits);
        let (keys, rest) = rest.split_at(self.keys);
        let (slots, values) = rest.split_at(self.slots);
        let slots: &[u32] = cast_slice(slots);
        PushPayload {
            name: cast_slice(name).first_chunk(),
            since: cast_slice(since).first_chunk(),
            bits: cast_slice(bits),
            keys: cast_slice(keys),
            slots: &slots[..self.rows.min(slots.len())],
            values: match self.f16 {
                true => PushValues::F16(cast_slice(values)),
                false => PushValues::F32(cast_slice(values)),
            },
        }
    }
}

/// The rows of a part that a keyset has, as bits, and the keys of the other rows.
#[derive(Debug)]
pub struct KeysetRows {
    pub bits: Vec<u64>,
    pub others: Vec<u64>,
}

impl KeysetRows {
    /// `places`: which of `keys` the keyset has, ascending.
    pub fn new(keys: &[u64], places: &[u32]) -> KeysetRows {
        let mut bits = vec![0; bit_words(keys.len())];
        let (mut others, mut next) =
            (Vec::with_capacity(keys.len() - places.len()), places.iter().peekable());
        for (place, &key) in keys.iter().enumerate() {
            match next.next_if(|next| **next as usize == place) {
                Some(_) => bits[place / 64] |= 1 << (place % 64),
                None => others.push(key),
            }
        }
        KeysetRows { bits, others }
    }
}

/// The rows of a keyset, in order.
#[derive(Debug, Clone, Copy)]
pub struct KeysetPart<'a> {
    /// Their keys.
    pub keys: &'a [u64],
    /// Their slots.
    pub slots: &'a [u32],
}

/// Undoes [`KeysetRows::new`]: writes the keys of all rows, and the slots that the keyset has. A row whose bit is
/// set comes from the keyset (keys and slots), another from `others`.
pub fn merge_keyset(
    bits: &[u64],
    rows: usize,
    kept: KeysetPart<'_>,
    others: &[u64],
    keys: &mut Vec<u64>,
    slots: &mut Vec<u32>,
) {
    keys.clear();
    slots.clear();
    let mut keyset_rows = kept.keys.iter().zip(kept.slots);
    let mut others = others.iter();
    for i in 0..rows {
        let (&key, &slot) = match bit(bits, i).then(|| keyset_rows.next()).flatten() {
            Some(row) => row,
            // The lengths were checked: there is a key for each bit that is not set.
            None => (others.next().unwrap_or(&0), &NO_SLOT),
        };
        keys.push(key);
        slots.push(slot);
    }
}

/// The shards that the keys of a push touch, in order. Each comes with how many rows of the push it has received after
/// these keys. `row`: rows of the push that came before the first key, in its shard. `shards`: shards of the table.
pub fn run_ends(keys: &[u64], shards: u32, row: u32) -> Vec<(u32, u32)> {
    let shard = |key: &u64| shard_of(hash(*key), shards);
    let runs = keys.chunk_by(|a, b| shard(a) == shard(b));
    let before = std::iter::once(row).chain(std::iter::repeat(0));
    runs.zip(before).map(|(run, row)| (shard(&run[0]), row.saturating_add(run.len() as u32))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::declare::FrameKind;
    use crate::sharded_keys::ShardedKeys;
    use gannet_core::{Schema, Write};
    use gannet_optim::{Add, Rule};
    use gannet_transport::limits::padded;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// How a push carries its keys.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Carries {
        Keys,
        KeysAndSlots,
        Keyset,
        SomeInKeyset,
    }

    fn carries() -> impl Strategy<Value = Carries> {
        prop_oneof![
            Just(Carries::Keys),
            Just(Carries::KeysAndSlots),
            Just(Carries::Keyset),
            Just(Carries::SomeInKeyset)
        ]
    }

    /// The payload as docs/wire.md describes it, word by word.
    fn model(
        (name, since): (Option<[u64; 3]>, Option<[u64; 2]>),
        carries: Carries,
        rows: &[(u64, bool, u32)],
        values: PushValues<'_>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        name.iter().flatten().chain(since.iter().flatten()).for_each(|word| out.extend(word.to_le_bytes()));
        if carries == Carries::SomeInKeyset {
            for rows in rows.chunks(64) {
                let word = rows.iter().rev().fold(0u64, |word, (_, kept, _)| word << 1 | u64::from(*kept));
                out.extend(word.to_le_bytes());
            }
        }
        for (key, kept, _) in rows {
            let travels = match carries {
                Carries::Keys | Carries::KeysAndSlots => true,
                Carries::Keyset => false,
                Carries::SomeInKeyset => !kept,
            };
            out.extend(key.to_le_bytes().iter().filter(|_| travels));
        }
        if carries == Carries::KeysAndSlots {
            rows.iter().for_each(|(_, _, slot)| out.extend(slot.to_le_bytes()));
            out.resize(out.len() + rows.len() % 2 * 4, 0);
        }
        match values {
            PushValues::F32(values) => values.iter().for_each(|value| out.extend(value.to_le_bytes())),
            PushValues::F16(values) => values.iter().for_each(|value| out.extend(value.to_le_bytes())),
        }
        out
    }

    proptest! {
        #[test]
        fn a_payload_is_as_the_model_writes_it_and_reads_back(
            rows in prop::collection::vec((any::<u64>(), any::<bool>(), any::<u32>()), 0..200),
            name in prop::option::of(prop::array::uniform3(any::<u64>())),
            since in prop::option::of(prop::array::uniform2(any::<u64>())),
            carries in carries(),
            floats in 1usize..5,
            f16 in any::<bool>(),
        ) {
            let wide: Vec<f32> = (0..rows.len() * floats).map(|i| i as f32 - 3.5).collect();
            let mut narrow = vec![0; wide.len()];
            f16::narrow(&wide, &mut narrow);
            let since = since.filter(|_| !f16);
            let values = if f16 { PushValues::F16(&narrow) } else { PushValues::F32(&wide) };
            let keys: Vec<u64> = rows.iter().map(|row| row.0).collect();
            let slots: Vec<u32> = rows.iter().map(|row| row.2).collect();
            let places: Vec<u32> = (0u32..).zip(&rows).filter(|(_, row)| row.1).map(|(at, _)| at).collect();
            let some = KeysetRows::new(&keys, &places);
            let (name_part, since_part) = (name.as_ref(), since.as_ref());
            let mut payload =
                PushPayload { name: name_part, since: since_part, values, ..PushPayload::default() };
            match carries {
                Carries::Keys => payload.keys = &keys,
                Carries::KeysAndSlots => (payload.keys, payload.slots) = (&keys, &slots),
                Carries::Keyset => {}
                Carries::SomeInKeyset => (payload.bits, payload.keys) = (&some.bits, &some.others),
            }
            let by_keyset = matches!(carries, Carries::Keyset | Carries::SomeInKeyset);
            let frame = PushFrame {
                table: 1,
                keys: rows.len() as u32,
                write: if since.is_some() { Write::Change } else { Write::Gradient },
                seq: 1,
                row: 0,
                total: 0,
                keyset: u64::from(by_keyset),
                slots: carries == Carries::KeysAndSlots,
                named: name.is_some(),
                some: carries == Carries::SomeInKeyset,
                f16,
                since: since.is_some(),
            };
            let frame = PushFrame::decode(&frame.encode(1)).unwrap();
            let bytes = payload.to_bytes();
            prop_assert_eq!(&bytes, &model((name, since), carries, &rows, values));
            prop_assert_eq!(bytes.len(), payload.bytes());
            // As it is received: padded, and aligned to 8 bytes.
            let mut words = vec![0u64; padded(bytes.len()) / 8];
            bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(&bytes);
            let layout = PushLayout::new(&frame, cast_slice(&words), floats);
            prop_assert_eq!((layout.bytes(), layout.f32_bytes()), (bytes.len(), wide.len() * 4));
            let read = layout.split(cast_slice(&words));
            prop_assert_eq!(read, payload);
            // The values are small enough to be exact as f16.
            let mut room = Vec::new();
            prop_assert_eq!(read.values.floats(&mut room), &wide[..]);
            // The keys of the rows, with those that the keyset has.
            let kept: Vec<(u64, u32)> =
                rows.iter().filter(|row| row.1).map(|row| (row.0, row.2)).collect();
            let (kept_keys, kept_slots): (Vec<u64>, Vec<u32>) = kept.into_iter().unzip();
            if carries == Carries::SomeInKeyset {
                prop_assert_eq!(layout.in_keyset, kept_keys.len());
                let (mut all, mut found) = (vec![7], vec![7]);
                let kept = KeysetPart { keys: &kept_keys, slots: &kept_slots };
                merge_keyset(read.bits, rows.len(), kept, read.keys, &mut all, &mut found);
                prop_assert_eq!(&all, &keys);
                let want: Vec<u32> = rows.iter().map(|row| if row.1 { row.2 } else { NO_SLOT }).collect();
                prop_assert_eq!(&found, &want);
            }
        }

        #[test]
        fn a_payload_of_any_length_is_split_or_has_another_length(
            words in prop::collection::vec(any::<u64>(), 0..40), keys in 0u32..90, aux in 0u16..1024, keyset in 0u64..2,
        ) {
            let head = gannet_transport::Head::new(7, aux, 0, [u64::from(keys) << 32, 0, 0, keyset]);
            if let Ok(frame) = PushFrame::decode(&head) {
                let payload: &[u8] = cast_slice(&words);
                let layout = PushLayout::new(&frame, payload, 1);
                if padded(layout.bytes()) == payload.len() {
                    let parts = layout.split(payload);
                    let values = parts.values.floats(&mut Vec::new()).len();
                    prop_assert_eq!((parts.bytes(), values), (layout.bytes(), keys as usize));
                    prop_assert_eq!(parts.to_bytes().len(), layout.bytes());
                }
            }
        }

        /// A worker numbers the first row of each part, and a server counts the rows of each shard. Both agree,
        /// whatever the lengths of the parts: there is no gap.
        #[test]
        fn the_parts_of_a_push_count_the_rows_of_each_shard(
            keys in prop::collection::btree_set(0u64..5000, 0..400), peers in 1u32..5, dim in 1u32..4000,
        ) {
            let schema = Schema { dim, shards: 16, ..Schema::scalar("t", Rule::Add(Add)) };
            let owners: Vec<u32> = (0..16).map(|shard| shard * peers / 16).collect();
            let mut cut = ShardedKeys::default();
            let keys: Vec<u64> = keys.into_iter().collect();
            cut.fill(0, &schema, &owners, &keys);
            let mut seen = BTreeMap::new();
            for chunk in cut.chunks() {
                let keys = &cut.keys()[chunk.floats(1)];
                let first = shard_of(hash(keys[0]), 16);
                prop_assert_eq!(chunk.row, seen.get(&first).copied().unwrap_or(0));
                seen.extend(run_ends(keys, 16, chunk.row));
            }
            let mut want = BTreeMap::new();
            keys.iter().for_each(|key| *want.entry(shard_of(hash(*key), 16)).or_insert(0) += 1);
            prop_assert_eq!(seen, want);
        }
    }
}
