//! Growth with the grower's help, and what a memory limit refuses.

use gannet_core::*;
use gannet_optim::{Add, Rule};
use std::time::{Duration, Instant};

const BATCH: u64 = 4096;

fn schema(shards: u32) -> Schema {
    Schema { shards, ..Schema::scalar("t", Rule::Add(Add)) }
}

/// Keys of batch `n` in shard order.
fn keys(n: u64, shards: u32) -> Vec<u64> {
    let mut keys: Vec<u64> = (n * BATCH..(n + 1) * BATCH).map(mix).collect();
    keys.sort_by_key(|&key| shard_of(hash(key), shards));
    keys
}

fn name(seq: u64) -> PushName {
    PushName { pusher: 1, incarnation: 1, seq, row: 0 }
}

fn value(key: u64) -> f32 {
    (key % 1000) as f32 + 1.0
}

fn push(table: &mut Shards, n: u64) -> Result<Applied, PushError> {
    let keys = keys(n, table.schema().shards);
    let values: Vec<f32> = keys.iter().map(|&key| value(key)).collect();
    table.push(&name(n + 1), Write::Gradient, &keys, None, &values)
}

fn check(table: &mut Shards, batches: u64) {
    let mut out = vec![0.0; BATCH as usize];
    for n in 0..batches {
        let keys = keys(n, table.schema().shards);
        table.pull(&keys, Read::Weights, &mut out, None).unwrap();
        for (key, got) in keys.iter().zip(&out) {
            assert_eq!(*got, value(*key), "key {key}");
        }
    }
}

fn clock() -> Duration {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed()
}

/// One shard grows until the grower has often been in time, while chunks under its rows become huge pages.
#[test]
fn rows_stand_while_the_grower_works_beside_their_owner() {
    let store = Store::memory_with(GrowthConfig { clock: Some(clock), ..GrowthConfig::default() });
    let mut table = Shards::open(&store, &schema(1), 0..1).unwrap();
    let mut batches = 0;
    while batches < 75 || table.growth().by_grower < 20 {
        assert_eq!(push(&mut table, batches).unwrap().applied, BATCH as u32);
        batches += 1;
        assert!(batches < 1000, "the grower never was in time: {:?}", table.growth());
    }
    check(&mut table, batches);
    let growth = table.growth();
    assert_eq!(growth.stalls.iter().sum::<u64>(), growth.by_owner + growth.by_grower);
    assert!(growth.longest <= growth.total);
    let (bytes, rows) = (table.stats().bytes, table.stats().rows);
    assert_eq!(bytes, store.memory_used());
    assert!(bytes as f64 / (rows as f64) < 40.0, "{bytes} bytes for {rows} rows");
    drop(table);
    // The grower may be working on an image at this moment.
    let start = Instant::now();
    while store.memory_used() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} bytes are never freed", store.memory_used());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A table at its limit refuses new rows by name and serves the rows that it has. When it is opened with a higher
/// limit, it continues where it stopped.
#[test]
fn a_memory_limit_refuses_new_rows_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 3 << 20;
    let open = |memory_limit| {
        let store = Store::open_dir_with(folder.path(), GrowthConfig { memory_limit, clock: None }).unwrap();
        (Shards::open(&store, &schema(2), 0..2).unwrap(), store)
    };
    let (mut table, store) = open(limit);
    let mut batches = 0;
    let refused = loop {
        match push(&mut table, batches) {
            Ok(_) => batches += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, PushError::Limit { source: GrowError::Memory { .. }, .. }), "{refused}");
    assert!(refused.to_string().contains("3145728"), "{refused}");
    assert!(store.memory_used() <= limit && store.memory_used() > limit - limit / 8);
    check(&mut table, batches);
    // Half of a part may have been applied. Existing rows can be changed only after that part has been sent again.
    let again = push(&mut table, batches).unwrap_err();
    assert!(matches!(again, PushError::Limit { .. }), "{again}");
    drop((table, store));
    let (mut table, _store) = open(u64::MAX);
    let applied = push(&mut table, batches).unwrap();
    assert_eq!(applied.applied + applied.duplicate, BATCH as u32);
    assert_eq!(table.stats().rows, (batches + 1) * BATCH);
    check(&mut table, batches + 1);
    // An image that is larger than the limit opens: its rows must be reachable.
    drop(table);
    drop(_store);
    let (mut table, store) = open(1 << 20);
    assert!(store.memory_used() > store.memory_limit());
    check(&mut table, batches + 1);
    assert!(matches!(push(&mut table, batches + 1), Err(PushError::Limit { .. })));
}

/// A folder stays locked while an image of it is open, even after the store that opened it is dropped.
#[test]
fn the_lock_is_held_by_the_images() {
    let folder = tempfile::tempdir().unwrap();
    let table = Shards::open(&Store::open_dir(folder.path()).unwrap(), &schema(1), 0..1).unwrap();
    assert!(matches!(Store::open_dir(folder.path()), Err(OpenError::Locked(_))));
    drop(table);
    Store::open_dir(folder.path()).unwrap();
}

/// A device reads stretches that never move: each new one is listed once it is ready, and their number is constant when
/// the table has stopped growing. Every row can be read through the list, and the list takes little other memory.
#[test]
fn what_is_readable_is_listed_and_stays() {
    let store = Store::memory();
    let mut table = Shards::open(&store, &schema(2), 0..2).unwrap();
    let mut listed = table.readable(&table.set().clone());
    assert!(listed.iter().all(|shard| shard.rows.is_empty() && shard.header.bytes == 4096));
    for n in 0..40 {
        push(&mut table, n).unwrap();
        let now = settled(&mut table, n + 1);
        for (old, new) in listed.iter().zip(&now) {
            assert_eq!((old.shard, old.incarnation, old.header), (new.shard, new.incarnation, new.header));
            assert_eq!(old.rows[..], new.rows[..old.rows.len()], "what was registered has moved");
            for (a, b) in new.rows.iter().zip(&new.rows[1..]) {
                assert_eq!((a.offset + a.bytes as u64, a.addr + a.bytes), (b.offset, b.addr));
            }
            // A step of growth may be ahead of the rows, and a stretch is up to half of both.
            let (bytes, rows) =
                (new.rows.iter().map(|row| row.bytes).sum::<usize>(), (n + 1) * BATCH * 24 / 2);
            assert!(bytes as u64 <= (64 << 10) + rows * 8 / 5, "{bytes} bytes registered of {rows} of rows");
        }
        listed = now;
    }
    assert!(listed.iter().all(|shard| (3..=16).contains(&shard.rows.len())), "{listed:?}");
    // Pushes to existing rows change nothing of the list.
    let stats = table.stats();
    (0..40).for_each(|n| {
        let values = vec![0.5; BATCH as usize];
        table.push(&name(100 + n), Write::Gradient, &keys(n, 2), None, &values).unwrap();
    });
    assert_eq!((settled(&mut table, 40), table.stats()), (listed, stats));
    // A later caller gets the same list. A table that was large at the first call has few stretches.
    drop(table);
    let mut table = Shards::open(&store, &Schema { name: "late".into(), ..schema(2) }, 0..2).unwrap();
    (0..40).for_each(|n| _ = push(&mut table, n).unwrap());
    assert!(settled(&mut table, 40).iter().all(|shard| shard.rows.len() <= 3));
}

/// Waits until every row of so many batches is in the list, which may need the grower.
fn settled(table: &mut Shards, batches: u64) -> Vec<ReadableShard> {
    let mut ends = [0; 2];
    for n in 0..batches {
        let (keys, mut slots) = (keys(n, 2), Vec::new());
        let mut out = vec![0.0; keys.len()];
        table.pull(&keys, Read::Weights, &mut out, Some(&mut slots)).unwrap();
        for (&key, &slot) in keys.iter().zip(&slots) {
            let end = &mut ends[shard_of(hash(key), 2) as usize];
            *end = (u64::from(slot) * 24 + 24).max(*end);
        }
    }
    let start = Instant::now();
    loop {
        let listed = table.readable(&table.set().clone());
        let end = |shard: &ReadableShard| shard.rows.last().map_or(0, |row| row.offset + row.bytes as u64);
        if listed.iter().zip(ends).all(|(shard, rows)| end(shard) >= rows) {
            return listed;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "rows are never readable");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A stretch that cannot become ready is left out, and the table continues as before.
#[test]
fn a_memory_limit_keeps_a_stretch_out_of_the_list() {
    let limit = 140 << 10;
    let store = Store::memory_with(GrowthConfig { memory_limit: limit, clock: None });
    let mut table = Shards::open(&store, &schema(1), 0..1).unwrap();
    // 70 KiB of rows, to be registered up to 96 KiB.
    let keys: Vec<u64> = (0..3000).collect();
    let values: Vec<f32> = keys.iter().map(|&key| value(key)).collect();
    table.push(&name(1), Write::Gradient, &keys, None, &values).unwrap();
    let used = store.memory_used();
    assert!(table.readable(&table.set().clone())[0].rows.is_empty(), "{used} bytes are taken");
    assert!(store.memory_used() <= limit && used + (96 << 10) - 3000 * 24 > limit);
    let mut out = vec![0.0; keys.len()];
    table.pull(&keys, Read::Weights, &mut out, None).unwrap();
    assert!(out == values);
}
