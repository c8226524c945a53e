//! Row files and manifests: damage of every kind, and frozen bytes.

use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::{FileEntry, JobManifest, ShardCut, StateEntry, TableCut};
use crate::checkpoint::row_files::encoder::RowFileEncoder;
use crate::checkpoint::row_files::row_file::{RowFileHead, RowFileKind};
use crate::checkpoint::row_files::row_file_reader::{RowBlock, RowFileReader};
use crate::hash::{hash, shard_of};
use crate::push_name::Cursor;
use crate::schema::admission::Admission;
use crate::schema::identity::TableUid;
use crate::schema::table_schema::Schema;
use gannet_optim::{Add, Rule};
use std::path::Path;

const UID: TableUid = TableUid([7; 16]);

fn head(kind: RowFileKind) -> RowFileHead {
    RowFileHead { number: 9, uid: UID, table: 1, shard: 0, shards: 1, floats: 2, kind }
}

/// A file with two blocks of rows, one of deletions, and a sketch.
fn small_file(level: i32) -> (Vec<u8>, FileEntry, Vec<usize>) {
    let mut out = Vec::new();
    let mut encoder = RowFileEncoder::new(head(RowFileKind::Increment), level, &mut out);
    let mut starts = vec![out.len()];
    let keys: Vec<u64> = (0..40).collect();
    let floats: Vec<f32> = (0..80).map(|x| (x / 7) as f32).collect();
    encoder.sketch(&[1, 2, 3, 4], &mut out);
    starts.push(out.len());
    encoder.sketch(&[1, 2, 3, 5], &mut out);
    starts.push(out.len());
    encoder.rows(&keys, &floats, &mut out);
    encoder.deletions(&[77, 78], &mut out);
    let entry = encoder.finish(&mut out);
    (out, entry, starts)
}

/// Reads a file to its end. Returns the rows, deletions and bytes of sketches that were passed on.
fn read(
    bytes: &[u8],
    head: &RowFileHead,
    entry: &FileEntry,
) -> Result<(usize, usize, usize), CheckpointDirError> {
    let mut reader = RowFileReader::new(bytes, Path::new("t"), head, entry)?;
    let mut sum = (0, 0, 0);
    while let Some(block) = reader.next()? {
        match block {
            RowBlock::Rows { keys, floats } => {
                assert_eq!(floats.len(), 2 * keys.len());
                sum.0 += keys.len();
            }
            RowBlock::Deletions { keys } => sum.1 += keys.len(),
            RowBlock::Sketch(bytes) => sum.2 += bytes.len(),
        }
    }
    Ok(sum)
}

/// A file with one sketch, rows and deletions, as a writer makes it.
fn sound_file(level: i32) -> (Vec<u8>, FileEntry) {
    let mut out = Vec::new();
    let mut encoder = RowFileEncoder::new(head(RowFileKind::Increment), level, &mut out);
    let keys: Vec<u64> = (0..40).collect();
    encoder.rows(&keys, &(0..80).map(|x| (x / 7) as f32).collect::<Vec<_>>(), &mut out);
    encoder.sketch(&[5; 64], &mut out);
    encoder.deletions(&[77, 78], &mut out);
    let entry = encoder.finish(&mut out);
    (out, entry)
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_row_file_is_found() {
    for level in [0, 1] {
        let (good, entry) = sound_file(level);
        let head = head(RowFileKind::Increment);
        assert_eq!(read(&good, &head, &entry).unwrap(), (40, 2, 64));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            read(&bad, &head, &entry).expect_err(&format!("level {level}, bit {bit}"));
        }
        for length in 0..good.len() {
            read(&good[..length], &head, &entry).expect_err(&format!("level {level}, {length} bytes"));
        }
        read(&[&good[..], b"x"].concat(), &head, &entry).unwrap_err();
    }
}

#[test]
fn blocks_in_another_order_or_of_another_file_are_found() {
    let (bytes, entry, starts) = small_file(0);
    let head = head(RowFileKind::Increment);
    let error = read(&bytes, &head, &entry).unwrap_err();
    assert!(error.to_string().contains("second admission sketch"), "{error}");
    let mut swapped = bytes.clone();
    swapped[starts[0]..starts[1]].copy_from_slice(&bytes[starts[1]..starts[2]]);
    swapped[starts[1]..starts[2]].copy_from_slice(&bytes[starts[0]..starts[1]]);
    let error = read(&swapped, &head, &entry).unwrap_err().to_string();
    assert!(error.contains("block 1 stands where block 0 belongs"), "{error}");
    // The same rows for another shard: each block is whole, and yet it is refused.
    let (good, entry) = sound_file(0);
    let mut other = Vec::new();
    RowFileEncoder::new(RowFileHead { number: 10, ..head }, 0, &mut other);
    other.extend_from_slice(&good[other.len()..]);
    let error = read(&other, &RowFileHead { number: 10, ..head }, &entry).unwrap_err().to_string();
    assert!(error.contains("block 0"), "{error}");
}

#[test]
fn a_file_of_another_place_is_refused_by_name() {
    let (bytes, entry) = sound_file(1);
    let head = head(RowFileKind::Increment);
    for other in [
        RowFileHead { number: 8, ..head },
        RowFileHead { uid: TableUid([8; 16]), ..head },
        RowFileHead { table: 0, ..head },
        RowFileHead { shard: 1, shards: 2, ..head },
        RowFileHead { floats: 3, ..head },
        RowFileHead { kind: RowFileKind::Full, ..head },
    ] {
        let error = read(&bytes, &other, &entry).unwrap_err().to_string();
        assert!(error.contains("the file belongs elsewhere"), "{error}");
    }
    for wrong in [
        FileEntry { rows: 41, ..entry.clone() },
        FileEntry { deletions: 0, ..entry.clone() },
        FileEntry { crc: entry.crc ^ 1, ..entry.clone() },
        FileEntry { bytes: entry.bytes + 1, ..entry.clone() },
    ] {
        read(&bytes, &head, &wrong).unwrap_err();
    }
    read(b"PK\x03\x04 some archive that is no row file, and is longer than a head of one", &head, &entry)
        .unwrap_err();
}

#[test]
fn keys_of_another_shard_are_refused() {
    let key = (0..).find(|key| shard_of(hash(*key), 2) == 1).unwrap();
    let head = RowFileHead { shards: 2, ..head(RowFileKind::Full) };
    let mut out = Vec::new();
    let mut encoder = RowFileEncoder::new(head, 0, &mut out);
    encoder.rows(&[key], &[1.0, 2.0], &mut out);
    let entry = encoder.finish(&mut out);
    let error = read(&out, &head, &entry).unwrap_err().to_string();
    assert!(error.contains(&format!("key {key} is of shard 1")), "{error}");
}

/// More rows than a block holds, compressible and not.
#[test]
fn long_files_have_many_blocks() {
    for (level, random) in [(0, false), (1, false), (1, true)] {
        let head = head(RowFileKind::Full);
        let mut out = Vec::new();
        let mut encoder = RowFileEncoder::new(head, level, &mut out);
        let keys: Vec<u64> = (0..100_000).collect();
        let float = |x: u64| if random { f32::from_bits(crate::hash::mix(x) as u32) } else { 0.5 };
        let floats: Vec<f32> = (0..200_000).map(float).collect();
        encoder.rows(&keys, &floats, &mut out);
        let entry = encoder.finish(&mut out);
        let mut reader = RowFileReader::new(&out[..], Path::new("t"), &head, &entry).unwrap();
        let (mut blocks, mut k, mut bits) = (0, Vec::new(), Vec::new());
        while let Some(block) = reader.next().unwrap() {
            let RowBlock::Rows { keys, floats } = block else { panic!("{block:?}") };
            blocks += 1;
            k.extend_from_slice(keys);
            bits.extend(floats.iter().map(|x| x.to_bits()));
        }
        assert_eq!((blocks, k == keys), (7, true));
        assert!(bits.iter().zip(&floats).all(|(bits, float)| *bits == float.to_bits()));
        assert_eq!(level == 1 && !random, out.len() < 100_000 * 8, "{} bytes", out.len());
    }
}

/// After a block that does not shrink, blocks are stored as they are for a while. Then they are compressed again.
#[test]
fn compression_rests_after_a_block_that_does_not_shrink() {
    let head = head(RowFileKind::Full);
    let rows = |encoder: &mut RowFileEncoder, out: &mut Vec<u8>, from: u64, random: bool| {
        let float = |x: u64| if random { f32::from_bits(crate::hash::mix(x) as u32) } else { 0.5 };
        // A block of 256 KiB has 16,384 rows of 16 bytes.
        let keys: Vec<u64> =
            (from..from + 16_384).map(|x| if random { crate::hash::mix(x) } else { 0 }).collect();
        let floats: Vec<f32> = (from..from + 32_768).map(float).collect();
        let before = out.len();
        encoder.rows(&keys, &floats, out);
        out.len() - before
    };
    let mut out = Vec::new();
    let mut encoder = RowFileEncoder::new(head, 1, &mut out);
    let whole = (256 << 10) + 32;
    assert!(rows(&mut encoder, &mut out, 0, false) < whole / 10);
    assert_eq!(rows(&mut encoder, &mut out, 0, true), whole);
    for n in 0..31 {
        assert_eq!(rows(&mut encoder, &mut out, n, false), whole, "block {n} after it");
    }
    assert!(rows(&mut encoder, &mut out, 0, false) < whole / 10);
    let entry = encoder.finish(&mut out);
    assert_eq!(read(&out, &head, &entry).unwrap().0, 34 * 16_384);
}

fn some_manifest() -> JobManifest {
    let admission = Admission::Count { pushes: 2, sketch_bytes: 64 };
    let schema = Schema { dim: 3, shards: 2, admission, ..Schema::scalar("clicks", Rule::Add(Add)) };
    let shard = |shard| ShardCut { shard, birth: 50, epoch: 1, from: 3, to: 9, file: None };
    let cursors = vec![Cursor { pusher: 3, incarnation: 2, seq: 9, closed: false }];
    let table = TableCut { schema, uid: UID, shards: vec![shard(0), shard(1)], cursors };
    let mut manifest = JobManifest { parent: Some(3), tables: vec![table], ..JobManifest::new(4, "monday") };
    let file = FileEntry { name: "t00-0001.rows".into(), bytes: 5, crc: 6, rows: 7, deletions: 8 };
    manifest.tables[0].shards[1].file = Some(file);
    manifest.notes.push(("a".into(), "b".into()));
    manifest
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_manifest_is_found() {
    let good = some_manifest().encode();
    assert_eq!(JobManifest::decode(&good), Ok(some_manifest()));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        JobManifest::decode(&bad).expect_err(&format!("bit {bit}"));
    }
    for length in 0..good.len() {
        JobManifest::decode(&good[..length]).expect_err(&format!("{length} bytes"));
    }
    JobManifest::decode(&[&good[..], b"x"].concat()).unwrap_err();
}

#[test]
fn manifests_whose_parts_do_not_fit_are_refused() {
    type Spoil = fn(&mut JobManifest);
    let spoils: [(&str, Spoil); 9] = [
        ("parent", |m| m.parent = Some(4)),
        ("with the parent None", |m| m.parent = None),
        ("instead of 2", |m| m.tables[0].shards.truncate(1)),
        ("belongs", |m| m.tables[0].shards.swap(0, 1)),
        ("from 3 to 2", |m| m.tables[0].shards[0].to = 2),
        ("../x", |m| m.tables[0].shards[1].file.as_mut().unwrap().name = "../x".into()),
        ("order of pushers", |m| {
            let first = m.tables[0].cursors[0];
            m.tables[0].cursors.push(first);
        }),
        ("twice", |m| {
            let first = m.tables[0].clone();
            m.tables.push(first);
        }),
        ("not allowed", |m| {
            m.states.push(StateEntry { name: "a/b".into(), bytes: 0, crc: 0 });
        }),
    ];
    for (words, spoil) in spoils {
        let mut manifest = some_manifest();
        spoil(&mut manifest);
        let error = JobManifest::decode(&manifest.encode()).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
}

/// Golden: the bytes of manifests and row files are frozen. docs/checkpoint.md describes them.
#[test]
fn bytes_are_frozen() {
    let bytes = some_manifest().encode();
    assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), GOLDEN_MANIFEST, "{bytes:?}");
    let (bytes, entry) = sound_file(0);
    assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), GOLDEN_ROWS, "{bytes:?}");
    assert_eq!((entry.bytes, entry.crc), (bytes.len() as u64, GOLDEN_ROWS.1));
    let words = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(&bytes[..8], b"GANNETSR");
    assert_eq!([8, 12, 16, 20, 24, 28, 32].map(words), [1, 1, 1, 0, 1, 2, 9]);
    // The first block: the sketch, because rows wait for more of them.
    assert_eq!([64, 68, 72, 76, 84].map(words), [3, 0, 64, 64, 0]);
}
const GOLDEN_MANIFEST: (usize, u32) = (480, 3_047_949_420);
const GOLDEN_ROWS: (usize, u32) = (928, 2_103_764_361);
