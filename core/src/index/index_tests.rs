//! The index with keys whose hashes agree, and with damaged words.

use crate::error::OpenError;
use crate::image::files::store::Store;
use crate::image::layout::*;
use crate::push_name::PushName;
use crate::schema::table_schema::Schema;
use crate::table::owned::shards::Shards;
use crate::table::pushes::read_write::{Read, Write};
use crate::*;
use gannet_optim::{Add, Rule};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

fn schema() -> Schema {
    Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn open(folder: &Path) -> Result<Shards, OpenError> {
    Shards::open(&Store::open_dir(folder)?, &schema(), 0..1)
}

fn add(table: &mut Shards, seq: u64, keys: &[u64]) {
    let name = PushName { pusher: 3, incarnation: 1, seq, row: 0 };
    table.push(&name, Write::Gradient, keys, None, &vec![1.0; keys.len()]).unwrap();
}

/// Keys whose hashes agree in the low `bits`.
fn crafted(bits: u32, count: usize) -> Vec<u64> {
    (1u64 << 40..).filter(|&key| hash(key) & ((1 << bits) - 1) == 0).take(count).collect()
}

/// Primary buckets, and overflow buckets that are in chains.
fn size(table: &Shards) -> (u64, usize) {
    let shard = &table.shards[0];
    let link = |number: u32| {
        crate::index::hash_index::linked(&shard.image, number).map(crate::image::bucket::Bucket::link)
    };
    let mut free = 0;
    let mut next = shard.image.word(OVERFLOW_FREE).load(Relaxed) as u32;
    while let Some(link) = link(next) {
        (free, next) = (free + 1, link);
    }
    (shard.geometry.buckets(), shard.image.word(OVERFLOW_USED).load(Relaxed) as usize - free)
}

/// Growth once stopped after 300 such keys: a group of more than 24 buckets was never expanded, nor any later group.
#[test]
fn chosen_keys_do_not_stop_the_index_from_growing() {
    let chosen = crafted(14, 600);
    let mut sizes = Vec::new();
    for first in [&[][..], &chosen] {
        let mut table = Shards::open(&Store::memory(), &schema(), 0..1).unwrap();
        let own: Vec<u64> = (0..30_000 + (chosen.len() - first.len()) as u64).collect();
        for (seq, keys) in (1..).zip([first, &own].concat().chunks(1000)) {
            add(&mut table, seq, keys);
        }
        assert_eq!(table.stats().rows, 30_600);
        sizes.push(size(&table));
    }
    let [plain, beside] = sizes[..] else { unreachable!() };
    assert_eq!(plain.0, beside.0, "{plain:?} {beside:?}");
    assert!(beside.1 < plain.1 + chosen.len() / 8, "{plain:?} {beside:?}");
}

/// Adds, frees and reopens keys, some with chosen hashes, and compares with a map. Chains are longer than the
/// journal could hold.
#[test]
fn chosen_keys_agree_with_a_map() {
    let (low, high) = (crafted(6, 700), crafted(13, 700));
    for seed in 0..6u64 {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut table = open(folder.path()).unwrap();
        let mut rows: HashMap<u64, f32> = HashMap::new();
        let random = |n: u64| mix(seed << 32 | n);
        for seq in 1..60 {
            let from = [&low, &high][(random(seq) % 2) as usize];
            let key = |i: u64| match random(seq << 16 | i) {
                r if r % 3 == 0 => r >> 8 & 4095,
                r => from[(r >> 8) as usize % from.len()],
            };
            let keys: Vec<u64> = (1..2 + (random(seq) >> 8 & 255)).map(key).collect();
            if random(seq) >> 20 & 3 > 0 {
                add(&mut table, seq, &keys);
                keys.iter().for_each(|&key| *rows.entry(key).or_default() += 1.0);
            } else {
                keys.iter().for_each(|key| assert_eq!(table.free(*key), rows.remove(key).is_some()));
            }
            if random(seq) >> 24 & 15 == 0 {
                drop(table);
                table = open(folder.path()).unwrap();
            }
        }
        let keys: Vec<u64> = low.iter().chain(&high).copied().chain(0..4096).collect();
        let mut out = vec![0.0; keys.len()];
        table.pull(&keys, Read::Weights, &mut out, None).unwrap();
        for (key, got) in keys.iter().zip(out) {
            assert_eq!(got, rows.get(key).copied().unwrap_or_default(), "seed {seed} key {key}");
        }
        assert_eq!(table.stats().rows as usize, rows.len());
    }
}

/// Runs `work` in its own thread. Panics when the thread panics, or when it does not end.
fn ends<T: Send + 'static>(what: String, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        let worked = work();
        let _ = done.send(());
        worked
    });
    if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
        panic!("{what}: no end after 60 s");
    }
    thread.join().unwrap_or_else(|_| panic!("{what}: a panic"))
}

/// Offsets in the file of the words of the index: the link and first slots of each bucket, and the index's hot words.
fn index_words(table: &Shards) -> Vec<u64> {
    let image = &table.shards[0].image;
    let mut file_at = [0; 3];
    for i in (0..image.word(EXTENTS_USED).load(Relaxed) as usize).rev() {
        let word = image.word(EXTENTS + 8 * i).load(Relaxed);
        file_at[(word >> 56) as usize] = (word & 0xffff_ffff) * crate::limits::CHUNK_BYTES as u64;
    }
    let overflow = image.word(OVERFLOW_USED).load(Relaxed);
    let buckets = (0..200).map(|i| file_at[0] + 64 * i).chain((0..overflow).map(|i| file_at[1] + 64 * i));
    let hot = [LEVEL, STAGE, SPLIT, OVERFLOW_USED, OVERFLOW_FREE].map(|at| at as u64);
    buckets.flat_map(|at| [at + 16, at + 24]).chain([hot; 20].concat()).collect()
}

/// After any damage to the index, opening ends: either with an error that names the file, or with an index
/// whose searches end.
#[test]
fn searches_end_in_an_index_that_is_damaged() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("t/shard-0000.image");
    let keys: Vec<u64> = crafted(6, 400).into_iter().chain(0..4000).collect();
    let mut table = open(folder.path()).unwrap();
    for (seq, keys) in (1..).zip(keys.chunks(500)) {
        add(&mut table, seq, keys);
    }
    let (words, links) = (index_words(&table), size(&table).1 as u64);
    assert!(links > 20, "{links} overflow buckets");
    table.mark_clean().unwrap();
    drop(table);
    let good = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for seed in 0..150u64 {
        std::fs::write(&path, &good).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        for n in 0..1 + seed % 4 {
            let random = mix(seed << 8 | n);
            // Most of the values are valid links, so that cycles occur.
            let value = match random >> 40 & 7 {
                0 => mix(random) as u32,
                1 => 0,
                _ => 1 + (mix(random) % links) as u32,
            };
            let at = words[random as usize % words.len()];
            // A bucket's link is the upper half of its third word.
            let at = if at < INDEX as u64 { at } else { at + 4 };
            file.write_all_at(&value.to_le_bytes(), at).unwrap();
        }
        let (folder, keys) = (folder.path().to_path_buf(), keys.clone());
        refused += ends(format!("seed {seed}"), move || match open(&folder) {
            Err(OpenError::Torn { .. }) => 1,
            Err(other) => panic!("seed {seed}: {other}"),
            Ok(mut table) => {
                let mut out = vec![0.0; keys.len()];
                table.pull(&keys, Read::Weights, &mut out, None).unwrap();
                add(&mut table, 1000, &keys);
                add(&mut table, 1001, &(10_000..11_000).collect::<Vec<_>>());
                0
            }
        });
    }
    assert!((50..150).contains(&refused), "{refused} of 150 were refused");
}
