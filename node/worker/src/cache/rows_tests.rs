//! A cache under threads. Each row that it returns is one that the server had, whole. No key gets the row of another,
//! although keys take places from each other.

use crate::cache::rows::*;
use crate::cache::settings::{CacheConfig, CacheUse, Staleness};
use crate::cache::swept::Swept;
use crate::limits::CACHE_BYTES_MIN;
use gannet_core::{CachedVersion, Read, Schema};
use gannet_optim::{Add, Rule};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

fn cache(staleness: u64) -> RowCache {
    let schema = Schema { dim: 5, ..Schema::scalar("t", Rule::Add(Add)) };
    let config = CacheConfig {
        bytes: CACHE_BYTES_MIN,
        when: CacheUse::Always,
        staleness: Staleness::Pulls(staleness),
        incremental: true,
        active: None,
    };
    RowCache::new(&schema, Read::Weights, config).unwrap()
}

/// The row of a key that the server has at that time.
fn row(key: u64, time: u64) -> [f32; 5] {
    std::array::from_fn(|i| (key * 8 + i as u64) as f32 + time as f32 / 256.0)
}

#[test]
fn rows_are_whole_and_their_keys_own() {
    // A thousand more keys than places.
    let rows = cache(3);
    let keys = u64::from(rows.arena.places()) + 1_000;
    let time = AtomicU64::new(0);
    let hits: u64 = std::thread::scope(|scope| {
        let read_rows = |sharer: u16| {
            let (rows, time) = (&rows, &time);
            move || {
                let mut hits = 0;
                for pull in 0..60 {
                    let turn = rows.turns.fetch_add(1, Relaxed) + 1;
                    let before = time.load(Relaxed);
                    let reader = CacheReader {
                        sharer,
                        turn,
                        at_us: 0,
                        incarnation: 7,
                        epoch: 1,
                        least: 0,
                        in_step: false,
                        generation: 0,
                        swept: Swept::default(),
                    };
                    for i in 0..1_500 {
                        let chance = gannet_core::mix(pull << 32 | u64::from(sharer) << 20 | i);
                        let key = (chance >> 8) % if chance.is_multiple_of(4) { keys } else { 800 };
                        let mut out = [0.0; 5];
                        match rows.look(key, &reader, &mut out) {
                            CacheLookup::Hit(_) => {
                                hits += 1;
                                let of = ((out[0] - (key * 8) as f32) * 256.0) as u64;
                                assert_eq!(out, row(key, of), "key {key}: torn, or another's");
                                assert!(of <= time.load(Relaxed));
                            }
                            CacheLookup::Miss { cached, .. } => {
                                assert!(matches!(cached, CachedVersion::Nothing | CachedVersion::Row(_)));
                                rows.fill(key, &reader, &row(key, before), CachedVersion::Row(before), None);
                            }
                        }
                        if chance.is_multiple_of(1_001) {
                            rows.forget(key);
                        }
                    }
                    time.fetch_add(1, Relaxed);
                }
                hits
            }
        };
        let threads: Vec<_> = (0..3).map(|sharer| scope.spawn(read_rows(sharer))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(hits > 20_000, "{hits}");
    assert!(rows.rows() <= rows.rows_max());
    // No place is lost, and none belongs to two keys.
    let mut places: Vec<u32> = rows.map.iter().map(|entry| entry.place).collect();
    places.extend_from_slice(&rows.free.lock().unwrap());
    places.sort_unstable();
    let taken = places.len();
    places.dedup();
    assert_eq!((places.len(), taken), (taken, rows.fresh.load(Relaxed) as usize));
}

#[test]
fn own_changes_are_in_whatever_comes_first() {
    let rows = cache(100);
    let reader = |turn| CacheReader {
        sharer: 0,
        turn,
        at_us: 0,
        incarnation: 7,
        epoch: 1,
        least: 0,
        in_step: false,
        generation: 0,
        swept: Swept::default(),
    };
    let mut out = [0.0; 5];
    let asks = |fills, cached| CacheLookup::Miss { cached, fills };
    assert_eq!(rows.look(1, &reader(1), &mut out), asks(false, CachedVersion::Nothing));
    assert_eq!(rows.look(1, &reader(2), &mut out), asks(true, CachedVersion::Nothing));
    // Pushed while it is requested: the answer does not include the push.
    rows.change(1, &[1.0; 5]);
    assert_eq!(rows.look(1, &reader(3), &mut out), asks(false, CachedVersion::Nothing));
    rows.fill(1, &reader(3), &[50.0; 5], CachedVersion::Row(9), None);
    rows.fill(1, &reader(2), &[10.0; 5], CachedVersion::Row(9), None);
    assert_eq!((rows.look(1, &reader(4), &mut out), out), (CacheLookup::Hit(None), [11.0; 5]));
    rows.change(1, &[0.5; 5]);
    assert_eq!((rows.look(1, &reader(102), &mut out), out), (CacheLookup::Hit(None), [11.5; 5]));
    // Too old, and it includes own changes, so the request names no version.
    assert_eq!(rows.look(1, &reader(103), &mut out), asks(true, CachedVersion::Nothing));
    rows.fill(1, &reader(103), &[20.0; 5], CachedVersion::Row(12), None);
    assert_eq!(rows.look(1, &reader(204), &mut out), asks(true, CachedVersion::Row(12)));
    assert_eq!(out, [20.0; 5]);
    // The link is lost: what was requested over it is requested again, and a late answer is ignored.
    let after = CacheReader { epoch: 2, ..reader(205) };
    assert_eq!(rows.look(1, &after, &mut out), asks(true, CachedVersion::Nothing));
    rows.fill(1, &reader(204), &[30.0; 5], CachedVersion::Row(15), None);
    rows.fill(1, &after, &[40.0; 5], CachedVersion::Row(15), Some(3));
    assert_eq!((rows.look(1, &after, &mut out), out), (CacheLookup::Hit(Some(3)), [40.0; 5]));
    // Another incarnation of the server, and a clock that must have been reached.
    assert_eq!(
        rows.look(1, &CacheReader { incarnation: 8, ..after }, &mut out),
        asks(true, CachedVersion::Nothing)
    );
    rows.fill(1, &CacheReader { incarnation: 8, ..after }, &[41.0; 5], CachedVersion::Row(15), Some(3));
    let in_step = CacheReader { incarnation: 8, least: 3, in_step: true, ..after };
    assert_eq!(rows.look(1, &in_step, &mut out), CacheLookup::Hit(Some(3)));
    assert_eq!(
        rows.look(1, &CacheReader { least: 4, ..in_step }, &mut out),
        asks(true, CachedVersion::Row(15))
    );
    // A value that is not finite drops the row.
    rows.change(1, &[f32::INFINITY; 5]);
    assert_eq!(rows.rows(), 0);
}
