//! Pushers that are fenced, introduced or closed: what is refused afterwards, also by shards that were reopened.

use gannet_core::*;
use gannet_optim::{Add, GradientTransform, Rule};

fn schema() -> Schema {
    Schema { shards: 4, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn push(shards: &mut Shards, pusher: u64, incarnation: u64, seq: u64) -> Result<Applied, PushError> {
    let mut keys: Vec<u64> = (0..64).collect();
    keys.sort_by_key(|&key| shard_of(hash(key), 4));
    let name = PushName { pusher, incarnation, seq, row: 0 };
    shards.push(&name, Write::Gradient, &keys, None, &[1.0; 64])
}

#[test]
fn a_fenced_pusher_is_refused_in_every_shard_and_after_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(), 0..4).unwrap();
    assert_eq!(push(&mut shards, 1, 7, 1).unwrap().applied, 64);
    shards.fence_pusher(1, 7).unwrap();
    // A pusher that never pushed can be fenced too. A second fence changes nothing.
    shards.fence_pusher(2, 3).unwrap();
    shards.fence_pusher(2, 3).unwrap();
    shards.fence_pusher(2, 1).unwrap();
    for reopened in [false, true] {
        if reopened {
            drop(shards);
            shards = Shards::open(&store, &schema(), 0..4).unwrap();
        }
        for (pusher, incarnation) in [(1, 7), (1, 6), (2, 3)] {
            for key in 0..64 {
                let name = PushName { pusher, incarnation, seq: 9, row: 0 };
                let pushed = shards.push(&name, Write::Gradient, &[key], None, &[1.0]);
                assert!(matches!(pushed, Err(PushError::Fenced { .. })), "{pushed:?}");
            }
        }
    }
    // The next incarnation pushes. Other pushers were never affected.
    assert_eq!(push(&mut shards, 1, 9, 1).unwrap().applied, 64);
    assert_eq!(push(&mut shards, 3, 1, 1).unwrap().applied, 64);
    let mut out = vec![0.0; 64];
    shards.pull(&(0..64).collect::<Vec<_>>(), Read::Weights, &mut out, None).unwrap();
    assert!(out.iter().all(|&sum| sum == 3.0));
}

#[test]
fn a_pusher_is_known_before_its_first_push_and_goes_on_as_if_it_were_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(), 0..4).unwrap();
    shards.introduce_pusher(5, 2).unwrap();
    drop(shards);
    let mut shards = Shards::open(&store, &schema(), 0..4).unwrap();
    let of = |shards: &Shards| shards.pushers().into_iter().find(|status| status.pusher == 5).unwrap();
    assert_eq!((of(&shards).incarnation, of(&shards).seq, of(&shards).closed), (2, 0, false));
    assert_eq!(push(&mut shards, 5, 2, 1).unwrap().applied, 64);
    // A second introduction changes nothing.
    shards.introduce_pusher(5, 2).unwrap();
    assert_eq!(push(&mut shards, 5, 2, 1).unwrap().duplicate, 64);
    shards.close_pusher(5, 2).unwrap();
    assert!(of(&shards).closed);
}

#[test]
fn the_lowest_clock_is_seen_where_images_are_mapped() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..4).unwrap();
    push(&mut shards, 1, 1, 1).unwrap();
    let files = shards
        .images(shards.set())
        .unwrap()
        .into_iter()
        .map(|(_, file, incarnation)| (file.into(), incarnation))
        .collect();
    let view = MappedShards::open(&schema(), 0..4, files).unwrap();
    assert_eq!(view.lowest(), NO_CLOCK);
    shards.set_lowest(17);
    assert_eq!(view.lowest(), 17);
}

/// More splits of data than a shard can remember. Each is closed when it is done, and the next one takes its place.
/// Pushers that are not data, and open splits, stay as they were, also after a reopening.
#[test]
fn places_of_data_that_is_done_are_used_again_and_no_others() {
    const SPLITS: u64 = limits::PUSHERS_MAX as u64 + 100;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(), 0..4).unwrap();
    let open = DATA_PUSHERS | 1 << 40;
    push(&mut shards, 1, 7, 5).unwrap();
    shards.close_pusher(1, 7).unwrap();
    push(&mut shards, 2, 1, 9).unwrap();
    push(&mut shards, open, 3, 4).unwrap();
    let mut sum = 3.0;
    for split in 0..SPLITS {
        if split == SPLITS / 2 {
            drop(shards);
            shards = Shards::open(&store, &schema(), 0..4).unwrap();
        }
        let data = DATA_PUSHERS | split;
        for seq in 1..3 {
            assert_eq!(push(&mut shards, data, 3, seq).unwrap().applied, 64, "split {split}");
            assert_eq!(push(&mut shards, data, 3, seq).unwrap().duplicate, 64, "split {split}");
            sum += 1.0;
        }
        shards.close_pusher(data, 3).unwrap();
    }
    // The shard remembers the others: their pushes are known, and the open split continues after its last push.
    assert_eq!(push(&mut shards, 2, 1, 9).unwrap().duplicate, 64);
    assert_eq!(push(&mut shards, 1, 7, 5).unwrap().duplicate, 64);
    assert_eq!(push(&mut shards, open, 3, 4).unwrap().duplicate, 64);
    assert_eq!(push(&mut shards, open, 3, 5).unwrap().applied, 64);
    sum += 1.0;
    let mut out = vec![0.0; 64];
    shards.pull(&(0..64).collect::<Vec<_>>(), Read::Weights, &mut out, None).unwrap();
    assert!(out.iter().all(|&row| row == sum), "{} and {sum}", out[0]);
    // If pushers are not closed, the shard runs out of entries and names the limit. All these entries take file
    // space from the start.
    let (split, before) = (|n: u64| DATA_PUSHERS | 1 << 50 | n, shards.stats().bytes);
    let (n, full) =
        (0..).find_map(|n| push(&mut shards, split(n), 3, 1).err().map(|full| (n, full))).unwrap();
    assert!(matches!(full, PushError::TooManyPushers { max: limits::PUSHERS_MAX, .. }), "{full}");
    let grown = shards.stats().bytes;
    assert!(n > limits::PUSHERS_MAX as u64 - 10 && grown > before + 4 * 60 * n, "{n}: {before}, {grown}");
    drop(shards);
    let mut shards = Shards::open(&store, &schema(), 0..4).unwrap();
    assert_eq!(shards.stats().bytes, grown);
    for n in [0, 1, n / 2, n - 1] {
        assert_eq!(push(&mut shards, split(n), 3, 1).unwrap().duplicate, 64, "split {n}");
    }
    assert!(push(&mut shards, split(n), 3, 1).is_err());
}

/// Rows that came in another pusher's push: noted in some shards, by their first name, and remembered like pushes.
#[test]
fn noted_rows_are_as_if_pushed_under_their_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(), 0..4).unwrap();
    let name = |incarnation, seq, row| PushName { pusher: DATA_PUSHERS | 3, incarnation, seq, row };
    assert!(!shards.has(1, &name(7, 1, 0)));
    // All rows of the run, as a synchronous step notes them.
    let here = (0..64).filter(|&key| shard_of(hash(key), 4) == 1).count() as u32;
    shards.note(1, &name(7, 2, here), 0).unwrap();
    shards.note(1, &name(7, 2, 1), 0).unwrap();
    shards.note(9, &name(7, 2, 1), 0).unwrap();
    for reopened in [false, true] {
        if reopened {
            drop(shards);
            shards = Shards::open(&store, &schema(), 0..4).unwrap();
        }
        let known = [(7, 1, 9), (7, 2, 0), (7, 2, here), (6, 9, 0)];
        assert!(known.iter().all(|&(incarnation, seq, row)| shards.has(1, &name(incarnation, seq, row))));
        let new = [(7, 2, here + 1), (7, 3, 0), (8, 1, 0)];
        assert!(!new.iter().any(|&(incarnation, seq, row)| shards.has(1, &name(incarnation, seq, row))));
        assert!([0, 2, 3, 9].iter().all(|&shard| !shards.has(shard, &name(7, 1, 0))));
    }
    // A push with this name is dropped in the shards that noted it, and applied in the others.
    let pushed = push(&mut shards, DATA_PUSHERS | 3, 7, 2).unwrap();
    assert_eq!((pushed.duplicate, pushed.applied), (here, 64 - here));
    assert_eq!(shards.unfinished(DATA_PUSHERS | 3), None);
}

/// For each shard the first key that it owns.
fn key_of(shard: u32) -> u64 {
    (0..).find(|&key| shard_of(hash(key), 4) == shard).unwrap()
}

fn push_one(
    shards: &mut Shards,
    (pusher, incarnation): (u64, u64),
    seq: u64,
    shard: u32,
) -> Result<Applied, PushError> {
    let name = PushName { pusher, incarnation, seq, row: 0 };
    shards.push(&name, Write::Gradient, &[key_of(shard)], None, &[1.0])
}

/// Once, a newer incarnation was written only into the first shard that did not know the pusher. Other shards still
/// accepted the older one.
#[test]
fn an_introduced_incarnation_fences_the_older_ones_in_every_shard() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    let mut shards = Shards::open(&store, &schema(), 0..4).unwrap();
    // Only shard 2 knows the older incarnation.
    push_one(&mut shards, (5, 1), 1, 2).unwrap();
    shards.introduce_pusher(5, 2).unwrap();
    // Opened in other ranges, as a server with more threads does.
    drop(shards);
    for range in [0..1, 1..2, 2..4] {
        let mut shards = Shards::open(&store, &schema(), range.clone()).unwrap();
        for shard in range {
            let older = push_one(&mut shards, (5, 1), 9, shard);
            assert!(matches!(older, Err(PushError::Fenced { newer: 2, .. })), "shard {shard}: {older:?}");
            assert!(shards.check_pusher(5, 1).is_err() && shards.check_pusher(5, 2).is_ok());
            assert_eq!(push_one(&mut shards, (5, 2), 1, shard).unwrap().applied, 1);
        }
    }
}

/// A push of a newer incarnation fences the older ones at once, in all shards of its owner.
#[test]
fn a_push_of_a_newer_incarnation_fences_the_older_ones_in_every_shard() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..4).unwrap();
    push_one(&mut shards, (5, 1), 1, 0).unwrap();
    push_one(&mut shards, (5, 2), 1, 3).unwrap();
    for shard in 0..4 {
        let older = push_one(&mut shards, (5, 1), 2, shard);
        assert!(matches!(older, Err(PushError::Fenced { newer: 2, .. })), "shard {shard}: {older:?}");
    }
}

/// Once, a fenced incarnation could be introduced without an error.
#[test]
fn a_fenced_incarnation_cannot_be_introduced() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..4).unwrap();
    shards.fence_pusher(5, 7).unwrap();
    assert!(matches!(shards.introduce_pusher(5, 7), Err(PushError::Fenced { newer: 8, .. })));
    shards.introduce_pusher(5, 8).unwrap();
    assert!(matches!(shards.fence_pusher(5, u64::MAX), Err(PushError::LastIncarnation { pusher: 5 })));
}

/// Once, the first push of an introduced pusher was refused when its sequence number was 0.
#[test]
fn push_0_is_taken_after_an_introduction() {
    let mut shards = Shards::open(&Store::memory(), &schema(), 0..4).unwrap();
    shards.introduce_pusher(9, 1).unwrap();
    assert_eq!(push(&mut shards, 9, 1, 0).unwrap().applied, 64);
    assert_eq!(push(&mut shards, 9, 1, 0).unwrap().duplicate, 64);
}

/// Once, an entry of data was never reused if its last push had stopped half way, even after it was closed.
#[test]
fn a_closed_entry_of_data_that_stopped_half_way_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let one = Schema { shards: 1, ..schema() };
    let growing = GrowthConfig { memory_limit: 3 << 20, ..GrowthConfig::default() };
    let store = Store::open_dir_with(folder.path(), growing).unwrap();
    let mut shards = Shards::open(&store, &one, 0..1).unwrap();
    let data = |n: u64| PushName { pusher: DATA_PUSHERS | n, incarnation: 1, seq: 1, row: 0 };
    // Entries take no more file space until there are more than 64. First all entries are taken, then all memory.
    for n in 1..64 {
        shards.push(&data(n), Write::Gradient, &[1], None, &[1.0]).unwrap();
    }
    let many: Vec<u64> = (0..200_000).collect();
    let refused = shards.push(&data(0), Write::Gradient, &many, None, &vec![1.0; many.len()]).unwrap_err();
    assert!(matches!(refused, PushError::Limit { .. }), "{refused}");
    assert_eq!(shards.unfinished(DATA_PUSHERS), Some(0));
    shards.close_pusher(DATA_PUSHERS, 1).unwrap();
    // The key has a row, because the table is full. A new split takes the entry of the closed one, and there is
    // no other free entry.
    assert_eq!(shards.push(&data(64), Write::Gradient, &[1], None, &[1.0]).unwrap().applied, 1);
    let next = shards.push(&data(65), Write::Gradient, &[1], None, &[1.0]).unwrap_err();
    assert!(matches!(next, PushError::Limit { .. }), "{next}");
}

/// Once a message said `pusher 0x8000000000000003 incarnation 1 is fenced`.
#[test]
fn a_refusal_names_a_worker_or_data_and_no_numbers_of_ours() {
    let fenced = |pusher| PushError::Fenced { pusher, incarnation: 1, newer: 2 }.to_string();
    assert!(fenced(3).starts_with("a later start of worker 2 has taken its place"), "{}", fenced(3));
    assert!(
        fenced(DATA_PUSHERS | 3).starts_with("a split of the data is fenced"),
        "{}",
        fenced(DATA_PUSHERS | 3)
    );
    assert!(!fenced(DATA_PUSHERS | 3).contains("0x"));
}

/// Once a message said `its further segments are segment (dim 8, rule adagrad (lr 0.05, ...` where only the dimension
/// differed.
#[test]
fn a_message_showed_whole_segments_that_differ_in_one_field() {
    let with = |dim| Schema {
        more: vec![Segment { dim, rule: Rule::Add(Add), shaping: GradientTransform::NONE, init: Init::Zero }],
        ..Schema::scalar("fm", Rule::Add(Add))
    };
    assert_eq!(with(8).differences(&with(3)), "the dimension of segment 1 is 8, but 3 was requested");
    let plain = Schema::scalar("fm", Rule::Add(Add));
    assert_eq!(plain.differences(&with(3)), "its number of further segments is 0, but 1 was requested");
}
