//! Rows that die, against a model: a map with the sum of each key, when it was last pushed, and how often it has died.

use gannet_core::*;
use gannet_optim::{Add, Ftrl, Rule};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHARDS: u32 = 2;
const MINUTE: Duration = Duration::from_secs(60);

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn by_shard(keys: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut keys: Vec<u64> = keys.into_iter().collect();
    keys.sort_by_key(|&key| (shard(key), key));
    keys.dedup();
    keys
}

fn shard(key: u64) -> u32 {
    shard_of(hash(key), SHARDS)
}

/// A copy that replays what its owner tells.
struct Copy(Arc<Mutex<Shards>>);

impl CommandListener for Copy {
    fn hear(&mut self, command: &CommandRecord<'_>, _: &mut ToldShard<'_>) {
        self.0.lock().unwrap().replay(command).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Call {
    /// The keys are pulled now. The change that is computed from them is pushed later.
    Pull(Vec<u64>),
    /// Pushes the change of the oldest pull that is held.
    PushHeld,
    Gradients(Vec<u64>),
    Wait(u64),
    Slices(u8),
    Reopen,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let keys = || prop::collection::vec(prop_oneof![4 => 0u64..120, 1 => Just(INTERCEPT_KEY)], 1..40);
    prop::collection::vec(
        prop_oneof![
            3 => keys().prop_map(Call::Pull),
            3 => Just(Call::PushHeld),
            4 => keys().prop_map(Call::Gradients),
            3 => (1u64..90).prop_map(Call::Wait),
            5 => (1u8..4).prop_map(Call::Slices),
            1 => Just(Call::Reopen),
        ],
        1..80,
    )
}

fn evictions() -> impl Strategy<Value = Eviction> {
    let capacity =
        prop_oneof![Just(None), (4u64..80).prop_map(|rows| Some(Capacity::Rows(rows))), Just(None)];
    let after = prop::option::of((60u64..300).prop_map(Duration::from_secs));
    let below = prop::option::of(0.5f32..4.0);
    (after, below, capacity, 0u64..30).prop_filter_map("these settings are refused", |all| {
        let (after, below, capacity, floor) = all;
        let eviction = Eviction { after, below, capacity, floor };
        (eviction.is_on() && eviction.check().is_ok()).then_some(eviction)
    })
}

#[derive(Default, Clone, Copy)]
struct ModelRow {
    sum: f32,
    pushed: Duration,
    /// The number of the push that changed it last, which says which row is older.
    push: u64,
}

/// A pull whose change is not pushed yet: its keys with how often each had died, and when it was answered.
type Held = (Vec<u64>, Vec<u32>, ReadAt);

/// The owner, its copy, and the model.
struct World {
    folder: tempfile::TempDir,
    /// Dropped before the store opens the folder again.
    owner: Option<(Store, Shards)>,
    copy: Arc<Mutex<Shards>>,
    evictor: Evictor,
    eviction: Eviction,
    now: Duration,
    rows: HashMap<u64, ModelRow>,
    deaths: HashMap<u64, u32>,
    held: std::collections::VecDeque<Held>,
    seq: u64,
    refused: u32,
    evicted: [u64; 3],
}

impl World {
    fn new(eviction: Eviction) -> World {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let copy = Arc::new(Mutex::new(Shards::open(&Store::memory(), &schema(), 0..SHARDS).unwrap()));
        let mut world = World {
            folder,
            owner: None,
            copy,
            evictor: Evictor::new(eviction, &schema()).unwrap(),
            eviction,
            now: Duration::from_secs(1000),
            rows: HashMap::new(),
            deaths: HashMap::new(),
            held: Default::default(),
            seq: 0,
            refused: 0,
            evicted: [0; 3],
        };
        world.reopen();
        world
    }

    fn shards(&mut self) -> &mut Shards {
        &mut self.owner.as_mut().unwrap().1
    }

    /// As after kill -9: the images stay as they are. All rows count as pushed now.
    fn reopen(&mut self) {
        self.owner = None;
        let store = Store::open_dir(self.folder.path()).unwrap();
        let mut shards = Shards::open(&store, &schema(), 0..SHARDS).unwrap();
        let births: Vec<(u32, u64)> = (0..SHARDS).zip(shards.births()).collect();
        let mut copy = Shards::open_copies(&Store::memory(), &schema(), shards.identity(), &births).unwrap();
        for shard in 0..SHARDS {
            let left = shards.fill(shard, 0, 1 << 16, 1, |record| copy.replay(record).unwrap());
            assert!(
                left.is_none_or(|from| shards.fill(shard, from, 1, 2, |r| copy.replay(r).unwrap()).is_none())
            );
        }
        self.copy = Arc::new(Mutex::new(copy));
        shards.tell(Some(Box::new(Copy(self.copy.clone()))));
        self.owner = Some((store, shards));
        self.evictor = Evictor::new(self.eviction, &schema()).unwrap();
        self.held.iter_mut().for_each(|(_, _, read)| read.here = false);
        let now = self.now;
        self.rows.values_mut().for_each(|row| row.pushed = now);
    }

    fn died(&self, key: u64) -> u32 {
        self.deaths.get(&key).copied().unwrap_or(0)
    }

    fn pull(&mut self, keys: Vec<u64>) {
        let mut sums = vec![0.0; keys.len()];
        self.shards().pull(&keys, Read::State, &mut sums, None).unwrap();
        let version = self.shards().snapshot_version();
        for (key, sum) in keys.iter().zip(sums) {
            assert_eq!(sum, self.rows.get(key).map_or(0.0, |row| row.sum), "key {key}");
        }
        let deaths = keys.iter().map(|&key| self.died(key)).collect();
        self.held.push_back((keys, deaths, ReadAt { version, here: true }));
    }

    fn push(&mut self, keys: &[u64], write: Write, since: Option<(Vec<u32>, ReadAt)>) {
        self.seq += 1;
        let name = PushName { pusher: 1, incarnation: 1, seq: self.seq, row: 0 };
        let options = PushOptions { clock: 0, total: keys.len() as u64, since: since.as_ref().map(|s| s.1) };
        let values: Vec<f32> = keys.iter().map(|key| 1.0 + (key % 7) as f32).collect();
        let applied = self.shards().push_at(&name, options, write, keys, None, &values).unwrap();
        let again = self.shards().push_at(&name, options, write, keys, None, &values).unwrap();
        assert_eq!(again, Applied { duplicate: keys.len() as u32, ..Applied::default() });
        let mut refused = 0;
        for (i, (&key, value)) in keys.iter().zip(&values).enumerate() {
            if since.as_ref().is_some_and(|(deaths, _)| deaths[i] != self.died(key)) {
                refused += 1;
                continue;
            }
            let row = self.rows.entry(key).or_default();
            *row = ModelRow { sum: row.sum + value, pushed: self.now, push: self.seq };
        }
        let applied_rows = keys.len() as u32 - refused;
        assert_eq!(applied, Applied { applied: applied_rows, refused, ..Applied::default() });
        self.refused += refused;
    }

    /// The keys that have a row.
    fn live(&mut self) -> HashSet<u64> {
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for shard in 0..SHARDS {
            assert_eq!(self.shards().scan(shard, 0, 1 << 16, &mut keys, &mut rows), None);
        }
        keys.into_iter().collect()
    }

    /// A slice may evict only what the settings allow, and counts it.
    fn slice(&mut self) -> bool {
        let (before, now) = (self.rows.len() as u64, self.now);
        let (_, shards) = self.owner.as_mut().unwrap();
        let evicted = self.evictor.slice(shards, now);
        let live = self.live();
        let gone: Vec<(u64, ModelRow)> =
            self.rows.iter().filter(|(key, _)| !live.contains(key)).map(|(key, row)| (*key, *row)).collect();
        assert_eq!(gone.len() as u64, evicted.after + evicted.below + evicted.capacity);
        let Eviction { after, below, capacity, floor } = self.eviction;
        let age = |row: &ModelRow| now - row.pushed;
        let is_old = |row: &ModelRow| after.is_some_and(|after| age(row) >= after);
        let is_small = |row: &ModelRow| below.is_some_and(|norm| row.sum < norm && age(row) >= MINUTE);
        assert!(evicted.after + evicted.below <= before.saturating_sub(floor), "the floor of {floor} holds");
        if capacity.is_none() {
            assert!(gone.iter().all(|(_, row)| is_old(row) || is_small(row)));
        }
        for (key, row) in &gone {
            assert_ne!(*key, INTERCEPT_KEY);
            let newer = |other: &u64| {
                let of_shard = *other != INTERCEPT_KEY && shard(*other) == shard(*key);
                of_shard && self.rows[other].push < row.push
            };
            // Who goes because the shard is full is older than all that stay.
            assert!(is_old(row) || is_small(row) || !live.iter().any(newer), "an older row than {key} stays");
            *self.deaths.entry(*key).or_default() += 1;
        }
        self.rows.retain(|key, _| live.contains(key));
        let all = [evicted.after, evicted.below, evicted.capacity];
        self.evicted.iter_mut().zip(all).for_each(|(sum, of)| *sum += of);
        evicted.more
    }

    fn slices(&mut self, most: u8) {
        let ended = (0..most).any(|_| !self.slice());
        if let (Some(Capacity::Rows(rows)), true) = (self.eviction.capacity, ended) {
            for number in 0..SHARDS {
                let here = self.rows.keys().filter(|&&key| shard(key) == number).count() as u64;
                assert!(here <= rows.div_ceil(SHARDS.into()), "{here} rows of {rows}");
            }
        }
    }

    fn run(&mut self, call: Call) {
        match call {
            Call::Pull(keys) => self.pull(by_shard(keys)),
            Call::PushHeld => {
                if let Some((keys, deaths, version)) = self.held.pop_front() {
                    self.push(&keys, Write::Change, Some((deaths, version)));
                }
            }
            Call::Gradients(keys) => self.push(&by_shard(keys), Write::Gradient, None),
            Call::Wait(seconds) => self.now += Duration::from_secs(seconds),
            Call::Slices(most) => self.slices(most),
            Call::Reopen => self.reopen(),
        }
    }

    /// The copy has the same rows as its owner, and they are those of the model.
    fn check(&mut self) {
        let rows = |shards: &mut Shards| {
            let (mut keys, mut rows) = (Vec::new(), Vec::new());
            for shard in 0..SHARDS {
                assert_eq!(shards.scan(shard, 0, 1 << 16, &mut keys, &mut rows), None);
            }
            let mut rows: Vec<(u64, u32)> = keys.into_iter().zip(rows.iter().map(|f| f.to_bits())).collect();
            rows.sort_unstable();
            (rows, shards.commands())
        };
        let own = rows(self.shards());
        let copy = rows(&mut self.copy.lock().unwrap());
        assert_eq!(own.0, copy.0);
        // A copy has no numbers that its owner has only skipped.
        assert!(copy.1.iter().zip(&own.1).all(|(copy, own)| copy <= own));
        assert_eq!(own.0.len(), self.rows.len());
        for (key, bits) in &own.0 {
            assert_eq!(*bits, self.rows[key].sum.to_bits(), "key {key}");
        }
    }
}

#[test]
fn rows_die_as_a_model_says_and_no_change_reaches_the_next_row() {
    let (mut refused, mut evicted) = (0, [0; 3]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    let ran = runner.run(&(evictions(), calls()), |(eviction, calls)| {
        let mut world = World::new(eviction);
        for call in calls {
            world.run(call);
        }
        world.check();
        Ok(())
    });
    ran.unwrap();
    // Each reason comes up: a script of its own for each.
    for eviction in [
        Eviction { after: Some(MINUTE), ..Eviction::default() },
        Eviction { below: Some(3.5), ..Eviction::default() },
        Eviction { capacity: Some(Capacity::Rows(8)), ..Eviction::default() },
    ] {
        let mut world = World::new(eviction);
        world.slices(1);
        world.run(Call::Gradients((0..40).collect()));
        world.run(Call::Pull((0..40).collect()));
        (0..10).for_each(|_| {
            world.run(Call::Wait(20));
            world.slices(3);
        });
        world.run(Call::PushHeld);
        world.check();
        refused += world.refused;
        evicted.iter_mut().zip(world.evicted).for_each(|(sum, of)| *sum += of);
    }
    assert!(refused > 30 && evicted.iter().all(|&of| of > 5), "{refused} refused, {evicted:?} evicted");
}

/// The intercept is the oldest row of a shard that is one row too full: the next oldest goes, and the intercept stays.
#[test]
fn a_full_shard_keeps_its_old_intercept_and_frees_the_next_row() {
    let beside = |key: &u64| shard(*key) == shard(INTERCEPT_KEY);
    let mut world = World::new(Eviction { capacity: Some(Capacity::Rows(4)), ..Eviction::default() });
    world.run(Call::Gradients(vec![INTERCEPT_KEY]));
    for key in (0..).filter(beside).take(2) {
        world.run(Call::Gradients(vec![key]));
    }
    world.slices(1);
    assert_eq!(world.evicted, [0, 0, 1]);
    assert!(world.rows.len() == 2 && world.rows.contains_key(&INTERCEPT_KEY), "{:?}", world.rows.keys());
    world.check();
}

/// A copy that was filled knows no deletions of before. Once it is the owner, it refuses the changes of rows that were
/// read before the fill, and applies those of rows that were read since.
#[test]
fn a_filled_copy_refuses_changes_of_rows_that_it_does_not_know_to_have_died() {
    let schema = Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) };
    let mut owner = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
    let name = |seq| PushName { pusher: 1, incarnation: 1, seq, row: 0 };
    owner.push(&name(1), Write::Gradient, &[7, 8], None, &[1.0, 1.0]).unwrap();
    let before = owner.snapshot_version();
    assert!(owner.free(7));
    let births = [(0, owner.births()[0])];
    let mut copy = Shards::open_copies(&Store::memory(), &schema, owner.identity(), &births).unwrap();
    let rest = owner.fill(0, 0, 1000, 1, |record| copy.replay(record).unwrap()).unwrap();
    assert_eq!(owner.fill(0, rest, 1000, 2, |record| copy.replay(record).unwrap()), None);
    let since = owner.snapshot_version();
    let mut taker = Shards::of_copies(vec![copy], 2).unwrap();
    for (seq, version, refused) in [(2, before, 2), (3, since, 0)] {
        let since = Some(ReadAt { version, here: false });
        let options = PushOptions { clock: 0, total: 2, since };
        let applied = taker.push_at(&name(seq), options, Write::Change, &[7, 8], None, &[1.0, 1.0]).unwrap();
        assert_eq!((applied.refused, applied.applied), (refused, 2 - refused), "read at {version}");
    }
}

/// Keys that come once and never again: the rows that die make room for the next, and the images stop growing.
#[test]
fn images_stay_bounded_while_keys_move() {
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
    let schema = Schema { shards: SHARDS, ..Schema::scalar("t", ftrl) };
    let capacity = Capacity::Bytes(8 << 20);
    let full = Eviction { capacity: Some(capacity), ..Eviction::default() };
    let mut shards = Shards::open(&Store::memory(), &schema, 0..SHARDS).unwrap();
    let mut evictor = Evictor::new(full, &schema).unwrap();
    let (mut largest, mut rows_max, mut evicted) = (0, 0, 0);
    for seq in 1..=300u64 {
        let keys = by_shard((0..10_000).map(|n| seq * 10_000 + n));
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        shards.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()]).unwrap();
        evicted += evictor.slice(&mut shards, Duration::ZERO).capacity;
        let stats = shards.stats();
        (largest, rows_max) = (stats.bytes.max(largest), stats.rows.max(rows_max));
    }
    assert!(evicted > 2_500_000, "{evicted}");
    assert!((100_000..300_000).contains(&rows_max), "{rows_max} rows, {largest} bytes");
    // A slice frees as much as the pushes before it have made: they may exceed the capacity by one push.
    assert!(largest <= (8 << 20) + 10_000 * 40, "{largest} bytes");
}

/// A pause of all pushes makes every row old. The table keeps its floor, and half of its rows in the first hour.
#[test]
fn a_burst_of_old_rows_leaves_the_floor_and_half_an_hour() {
    let after = Eviction { after: Some(MINUTE), floor: 300, ..Eviction::default() };
    let mut world = World::new(after);
    world.slice();
    world.push(&by_shard(0..2_000), Write::Gradient, None);
    let mut by_hour = Vec::new();
    for _ in 0..6 {
        for _ in 0..60 {
            world.now += MINUTE;
            while world.slice() {}
        }
        by_hour.push(world.shards().stats().rows);
    }
    assert_eq!(by_hour[0], 1_000);
    assert!(by_hour.is_sorted_by(|a, b| a >= b) && by_hour[1] <= 600, "{by_hour:?}");
    assert_eq!(by_hour[5], 300, "the floor: {by_hour:?}");
    world.check();
}

#[test]
fn settings_without_sense_are_refused() {
    let refused =
        |eviction: Eviction, schema: &Schema| Evictor::new(eviction, schema).err().map(|e| e.to_string());
    let says = |eviction, words: &str| {
        let text = refused(eviction, &schema()).unwrap_or_default();
        assert!(text.contains(words), "{text}");
    };
    let none = Eviction::default();
    says(Eviction { after: Some(Duration::ZERO), ..none }, "at once");
    says(Eviction { below: Some(f32::NAN), ..none }, "finite number");
    says(Eviction { capacity: Some(Capacity::Rows(0)), ..none }, "no row");
    says(Eviction { floor: 5, ..none }, "age or a norm");
    says(Eviction { floor: 5, after: Some(MINUTE), capacity: Some(Capacity::Rows(4)), ..none }, "floor of 5");
    says(Eviction { capacity: Some(Capacity::Bytes(1 << 10)), ..none }, "at least");
    assert_eq!(refused(Eviction { after: Some(MINUTE), floor: 5, ..none }, &schema()), None);
}
