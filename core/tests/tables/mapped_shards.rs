//! Mapped shards, compared with the shards that own them. At rest both read the same rows. Readers get no row
//! from an owner that has stopped, or that has another incarnation than expected, and no harm from an owner
//! that writes nonsense. mapped_shards_races.rs has owners that write at the same time.

use crate::viewing;

use gannet_core::*;
use gannet_optim::{AdaGrad, Add, Cpu, Float16, Ftrl, GradientTransform, GroupFtrl, Rule};
use proptest::prelude::*;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use viewing::*;

#[derive(Clone, Debug)]
enum Action {
    Push(Vec<u16>),
    Free(Vec<u16>),
    /// Adds so many new rows at once.
    Grow(u16),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let keys = || prop::collection::vec(0..3000u16, 1..300);
    let action = prop_oneof![
        4 => keys().prop_map(Action::Push),
        3 => keys().prop_map(Action::Free),
        1 => (1..4000u16).prop_map(Action::Grow),
    ];
    prop::collection::vec(action, 1..12)
}

fn rules() -> impl Strategy<Value = Rule> {
    let (alpha, beta, l1, l2) = (0.1, 1.0, 0.1, 0.5);
    let adagrad = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    prop::sample::select(vec![
        Rule::Add(Add),
        adagrad,
        adagrad.with_packed_weights(Float16::Bf16).unwrap(),
        adagrad.with_packed_weights(Float16::F16).unwrap(),
        Rule::Ftrl(Ftrl { alpha, beta, l1, l2 }),
        Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 0.2 }),
    ])
}

/// Keys with a row, keys whose row was freed, and keys that never had one.
fn probes(first: u64) -> Vec<u64> {
    (0..3100).chain(1 << 32..(1 << 32) + first).chain([u64::MAX, 0]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_view_at_rest_is_the_shards(
        rule in rules(),
        more in prop::collection::vec((rules(), 1..5u32), 0..3),
        dim in prop::sample::select(vec![1, 2, 7, 16, 33, 64]),
        shards in prop::sample::select(vec![1, 4]),
        on_disk in any::<bool>(),
        actions in actions(),
    ) {
        let init = Init::Uniform { low: -0.5, high: 0.5 };
        let segment = |(rule, dim)| Segment { dim, rule, shaping: GradientTransform::NONE, init };
        let schema = Schema { more: more.into_iter().map(segment).collect(), ..schema(rule, dim, shards) };
        let folder = tempfile::tempdir().unwrap();
        let store = if on_disk { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
        let mut table = Shards::open(&store, &schema, 0..shards).unwrap();
        let mut view = view(&table);
        let floats = schema.write_floats(Write::Gradient);
        let (mut seq, mut fresh) = (0, 0u64);
        for action in actions {
            let keys = match action {
                Action::Free(keys) => {
                    for key in keys {
                        table.free(u64::from(key));
                    }
                    Vec::new()
                }
                Action::Push(keys) => keys.into_iter().map(u64::from).collect(),
                Action::Grow(rows) => {
                    fresh += u64::from(rows);
                    (fresh - u64::from(rows)..fresh).map(|n| (1 << 32) + n).collect()
                }
            };
            seq += 1;
            let keys = cut(keys, shards);
            let values: Vec<f32> = (0..keys.len() * floats).map(|i| (i % 97) as f32 * 0.25 - 5.0).collect();
            table.push(&name(seq), Write::Gradient, &keys, None, &values).unwrap();
            agree(&mut table, &mut view, &probes(fresh));
        }
        for cpu in Cpu::all() {
            table.set_cpu(cpu);
            view.set_cpu(cpu);
            agree(&mut table, &mut view, &cut(probes(fresh), shards));
        }
        prop_assert!(view.is_current());
    }
}

#[test]
fn only_the_image_that_was_meant_is_opened() {
    let store = Store::memory();
    let schema = schema(Rule::Add(Add), 3, 4);
    let table = Shards::open(&store, &schema, 1..4).unwrap();
    let files = |n: usize| -> Vec<(File, u64)> {
        let images = table.images(table.set()).unwrap().into_iter().take(n);
        images.map(|(_, fd, incarnation)| (File::from(fd), incarnation)).collect()
    };
    assert!(
        MappedShards::open(&schema, 1..4, files(3))
            .is_ok_and(|view| view.is_current() && view.set().numbers() == [1, 2, 3])
    );
    let refused = |schema: &Schema, set: Range<u32>, files| match MappedShards::open(schema, set, files) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("opened"),
    };
    let other = Schema { seed: 5, ..schema.clone() };
    assert!(refused(&other, 1..4, files(3)).contains("its seed is 0, but 5 was requested"));
    assert!(refused(&schema, 0..3, files(3)).contains("it holds shard 1"));
    assert!(refused(&schema, 2..5, files(3)).contains("shards 2 to 4 of table \"t\""));
    assert!(refused(&schema, 1..1, Vec::new()).contains("no shards"));
    let mut text = tempfile::tempfile().unwrap();
    assert!(refused(&schema, 1..3, files(1)).contains("cannot be opened"));
    assert!(refused(&schema, 1..2, vec![(text.try_clone().unwrap(), 1)]).contains("shorter than a header"));
    text.write_all(&vec![b'x'; 3 << 20]).unwrap();
    let error = refused(&schema, 1..2, vec![(text, 1)]);
    assert!(error.contains("shard 1") && error.contains("not GANNETIM") && error.contains("tcp"), "{error}");
    // Another incarnation of the shard than expected: none of its rows is used.
    let files = files(1).into_iter().map(|(file, incarnation)| (file, incarnation + 1)).collect();
    let mut view = MappedShards::open(&schema, 1..2, files).unwrap();
    assert!(!view.is_current());
    let key = (0..).find(|&key| shard_of(hash(key), 4) == 1).unwrap();
    let (mut out, mut slots) = ([0.0; 3], Vec::new());
    assert_eq!(view.pull(&[key], Read::Weights, Segments::ALL, &mut out, &mut slots), Ok(1));
    let far = (0..).find(|&key| shard_of(hash(key), 4) == 3).unwrap();
    let refused = view.pull(&[far], Read::Weights, Segments::ALL, &mut out, &mut slots).unwrap_err();
    assert_eq!(refused, PullError::WrongShard { key: far, shard: 3 });
    let refused = view.pull(&[key], Read::Weights, Segments::ALL, &mut [], &mut slots).unwrap_err();
    assert!(matches!(refused, PullError::Length { got: 0, want: 3, .. }), "{refused}");
}

/// A reader cannot write, and cannot make another reader fault.
#[test]
fn what_is_given_away_can_only_be_read() {
    let table = Shards::open(&Store::memory(), &schema(Rule::Add(Add), 3, 1), 0..1).unwrap();
    let (_, fd, _) = table.images(table.set()).unwrap().pop().unwrap();
    let seals = rustix::fs::fcntl_get_seals(&fd).unwrap();
    assert!(seals.contains(rustix::fs::SealFlags::SHRINK));
    let file = File::from(fd);
    assert!(file.write_at(b"x", 0x400).is_err() && file.set_len(0).is_err());
    assert!(memmap2::MmapOptions::new().len(4096).map_raw(&file).is_err(), "mapped for writing");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o400);
}

/// A mapping of the shards of several owners notices the end of each.
#[test]
fn each_owner_stops_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    for store in [Store::memory(), Store::open_dir(folder.path()).unwrap()] {
        let schema = Schema { init: Init::Zero, ..schema(Rule::Add(Add), 3, 8) };
        let mut tables: Vec<Shards> = [[0, 5].as_slice(), &[1, 2, 7], &[3, 4, 6]]
            .map(|own| Shards::open(&store, &schema, ShardSet::of(own.iter().copied())).unwrap())
            .into();
        let keys: Vec<u64> = (0..500).collect();
        for (seq, &key) in (1..).zip(&keys) {
            let table = tables.iter_mut().find(|t| t.set().contains(shard_of(hash(key), 8))).unwrap();
            table.push(&name(seq), Write::Gradient, &[key], None, &[1.0, 2.0, 3.0]).unwrap();
        }
        let images = tables.iter().flat_map(|table| table.images(table.set()).unwrap());
        let mut images: Vec<_> = images.collect();
        images.sort_by_key(|(shard, ..)| *shard);
        let files = images.into_iter().map(|(_, fd, incarnation)| (File::from(fd), incarnation)).collect();
        let mut view = MappedShards::open(&schema, 0..8, files).unwrap();
        let mut stopped: Vec<u32> = Vec::new();
        for n in [1, 2, 0] {
            let (mut out, mut slots) = (vec![0.0; 3 * keys.len()], Vec::new());
            let misses = view.pull(&keys, Read::Weights, Segments::ALL, &mut out, &mut slots).unwrap();
            for (key, slot) in keys.iter().zip(&slots) {
                assert_eq!(*slot == NO_SLOT, stopped.contains(&shard_of(hash(*key), 8)), "key {key}");
            }
            assert_eq!(misses == 0, stopped.is_empty());
            tables[n].stop_serving();
            stopped.extend(tables[n].set().iter());
        }
        assert_eq!(stopped.len(), 8);
    }
}

#[test]
fn an_owner_that_stops_serving_is_not_believed() {
    let schema = Schema { init: Init::Zero, ..schema(Rule::Add(Add), 3, 2) };
    let mut table = Shards::open(&Store::memory(), &schema, 0..2).unwrap();
    let mut rounds = 0..100;
    write_on(&mut table, 1, || rounds.next().is_some());
    let mut view = view(&table);
    assert!(read_on(&mut view, 4).0 > 0);
    table.stop_serving();
    assert!(!view.is_current());
    assert_eq!(read_on(&mut view, 4).0, 0);
}

#[test]
fn rows_that_not_all_backups_have_are_not_found() {
    let schema = Schema { init: Init::Zero, ..schema(Rule::Add(Add), 2, 2) };
    let mut table = Shards::open(&Store::memory(), &schema, 0..2).unwrap();
    let keys = cut((0..100).collect(), 2);
    let push = |table: &mut Shards, seq, keys: &[u64]| {
        table.push(&name(seq), Write::Gradient, keys, None, &vec![1.0; 2 * keys.len()]).unwrap();
    };
    push(&mut table, 1, &keys);
    let (mut view, mut out, mut slots) = (view(&table), vec![0.0; 200], Vec::new());
    let mut found = |view: &mut MappedShards| -> Vec<u64> {
        let misses = view.pull(&keys, Read::Weights, Segments::ALL, &mut out, &mut slots).unwrap();
        let found = keys.iter().zip(&slots).filter(|(_, slot)| **slot != NO_SLOT).map(|(key, _)| *key);
        let found: Vec<u64> = found.collect();
        assert_eq!(misses, keys.len() - found.len());
        found
    };
    assert_eq!(found(&mut view), keys, "an owner without backups");
    let before = table.commands();
    table.set_acknowledged(&before);
    assert_eq!(found(&mut view), keys, "the backups have all");
    let changed: Vec<u64> = keys.iter().copied().filter(|key| key % 7 == 0).collect();
    push(&mut table, 2, &changed);
    let rest: Vec<u64> = keys.iter().copied().filter(|key| key % 7 != 0).collect();
    assert_eq!(found(&mut view), rest, "the backups lack the second push");
    let now = table.commands();
    table.set_acknowledged(&[now[0], before[1]]);
    let of_first = |key: &u64| shard_of(hash(*key), 2) == 0;
    let more: Vec<u64> = keys.iter().copied().filter(|key| key % 7 != 0 || of_first(key)).collect();
    assert_eq!(found(&mut view), more, "they have it in the first shard");
    table.set_acknowledged(&now);
    assert_eq!(found(&mut view), keys);
}

/// An owner writes nonsense into its image: rows may be missing or wrong, but nothing panics, faults or hangs.
#[test]
fn nonsense_in_an_image_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema { init: Init::Zero, ..schema(Rule::Add(Add), 16, 1) };
    {
        let store = Store::open_dir(folder.path()).unwrap();
        let mut table = Shards::open(&store, &schema, 0..1).unwrap();
        let mut rounds = 0..400;
        write_on(&mut table, 1, || rounds.next().is_some());
        table.mark_clean().unwrap();
        std::mem::forget(table);
    }
    let image = std::fs::read(folder.path().join("t/shard-0000.image")).unwrap();
    let keys: Vec<u64> = (0..2000).collect();
    let (mut out, mut slots) = (vec![0.0; keys.len() * 16], Vec::new());
    let mut believed = 0;
    for seed in 0..60u64 {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&image).unwrap();
        let incarnation = u64::from_le_bytes(image[0x308..0x310].try_into().unwrap());
        // Every third image is damaged before it is opened. A refusal is then fine too.
        let spoil = |step: u64| {
            let random = mix(seed << 32 | step);
            let value = [0, u64::MAX, mix(random), mix(random) >> 40, 1 << 30][(random % 5) as usize];
            let at = match random >> 8 & 3 {
                0 => 0x440 + (random >> 16) % 0x40,
                1 => 0x500 + (random >> 16) % 0x48,
                2 => 0x1000 + (random >> 16) % 0x40,
                _ => (2 << 20) + (random >> 16) % (image.len() as u64 - (2 << 20)),
            };
            file.write_all_at(&value.to_le_bytes(), at / 8 * 8).unwrap();
        };
        if seed % 3 == 0 {
            (0..4).for_each(spoil);
        }
        let Ok(mut view) = MappedShards::open(&schema, 0..1, vec![(file.try_clone().unwrap(), incarnation)])
        else {
            continue;
        };
        for step in 4..40 {
            spoil(step);
            let misses = view.pull(&keys, Read::State, Segments::ALL, &mut out, &mut slots).unwrap();
            believed += keys.len() - misses;
        }
    }
    assert!(believed > 10_000, "{believed}");
}
