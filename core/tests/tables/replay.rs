//! Copies that replay the commands of some shards: they must become the same, bit by bit.

use super::told::Told;
use gannet_core::*;
use gannet_optim::{AdaGrad, Add, Float16, Ftrl, GradientTransform, Rule};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub(super) const SHARDS: u32 = 4;

/// Shards of one table on several threads.
type Threads = Arc<Mutex<Vec<Shards>>>;

/// Replays each command on the thread that has its shard, and once more.
struct Replay(Threads);

impl CommandListener for Replay {
    fn hear(&mut self, command: &CommandRecord<'_>, _: &mut ToldShard<'_>) {
        let mut threads = self.0.lock().unwrap();
        for thread in threads.iter_mut() {
            let again = [thread.replay(command), thread.replay(command)];
            match thread.set().contains(command.shard) {
                true => again.into_iter().for_each(|replayed| replayed.unwrap()),
                false => {
                    assert!(matches!(again, [Err(ReplayError::NotHere(_)), Err(ReplayError::NotHere(_))]))
                }
            }
        }
    }
}

/// A row of a shard: slot by slot, its key and its floats as bits.
type Rows = Vec<(u64, Vec<u32>)>;

/// All that shards hold: for each shard its last command and its rows, then the pushers.
fn content(threads: &mut [Shards]) -> (Vec<(u32, u64, Rows)>, Vec<PushProgress>) {
    let (mut all, mut pushers) = (Vec::new(), Vec::<PushProgress>::new());
    for thread in threads {
        for Position { shard, command, .. } in thread.positions() {
            let (mut keys, mut floats) = (Vec::new(), Vec::new());
            assert_eq!(thread.scan(shard, 0, 1 << 20, &mut keys, &mut floats), None);
            let bits = |row: &[f32]| row.iter().map(|float| float.to_bits()).collect();
            let rows = floats.chunks_exact(thread.schema().floats()).map(bits);
            all.push((shard, command, keys.into_iter().zip(rows).collect()));
        }
        for progress in thread.push_progress() {
            match pushers.iter_mut().find(|known| known.pusher == progress.pusher) {
                Some(known) => known.add(&progress),
                None => pushers.push(progress),
            }
        }
    }
    all.sort_unstable();
    pushers.sort_unstable_by_key(|progress| progress.pusher);
    (all, pushers)
}

/// The copies of a table: shards 0 and 2 on one thread, 1 and 3 on another.
fn copies(schema: &Schema) -> Threads {
    let open = |shards: [u32; 2]| Shards::open(&Store::memory(), schema, ShardSet::of(shards)).unwrap();
    Arc::new(Mutex::new(vec![open([0, 2]), open([1, 3])]))
}

pub(super) fn by_shard(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_by_key(|&key| shard_of(hash(key), SHARDS));
    keys
}

#[derive(Clone, Debug)]
pub(super) enum Call {
    /// A push of worker or split `pusher`, in pieces of at most `piece` keys. Keys may repeat.
    Push {
        pusher: u64,
        write: u8,
        keys: Vec<u64>,
        piece: usize,
        unsound: bool,
    },
    /// The last push of the pusher once more.
    Again(u64),
    Introduce(u64),
    Close(u64),
    Fence(u64),
    Note(u64, u32),
    Free(u64),
    /// A reader asks for the version of all rows, which skips command numbers.
    Read,
}

pub(super) fn calls() -> impl Strategy<Value = Vec<Call>> {
    let pusher = || prop_oneof![1u64..4, (0u64..3).prop_map(|split| DATA_PUSHERS + split)];
    let keys = prop::collection::vec(0u64..60, 0..40);
    let push = (pusher(), 0u8..4, keys, 1usize..50, prop::bool::weighted(0.1));
    let push = push.prop_map(|(pusher, write, keys, piece, unsound)| Call::Push {
        pusher,
        write,
        keys,
        piece,
        unsound,
    });
    let call = prop_oneof![
        8 => push,
        2 => pusher().prop_map(Call::Again),
        1 => pusher().prop_map(Call::Introduce),
        1 => pusher().prop_map(Call::Close),
        1 => (1u64..4).prop_map(Call::Fence),
        1 => (pusher(), 0..SHARDS).prop_map(|(pusher, shard)| Call::Note(pusher, shard)),
        1 => (0u64..60).prop_map(Call::Free),
        1 => Just(Call::Read),
    ];
    prop::collection::vec(call, 1..40)
}

/// A push that a pusher may send again.
#[derive(Clone)]
struct Sent {
    name: PushName,
    write: Write,
    keys: Vec<u64>,
    values: Vec<f32>,
    piece: usize,
}

/// The owner of a table, and what its pushers do.
pub(super) struct Owner {
    pub(super) shards: Shards,
    /// By pusher: incarnation and last sequence number.
    pushers: HashMap<u64, (u64, u64)>,
    /// By pusher: its last push.
    last: HashMap<u64, Sent>,
}

impl Owner {
    pub(super) fn new(shards: Shards) -> Owner {
        Owner { shards, pushers: HashMap::new(), last: HashMap::new() }
    }

    fn push(&mut self, sent: &Sent, piece: usize) {
        let Sent { name, write, keys, values, .. } = sent;
        let (name, write) = (*name, *write);
        let (floats, mut start) = (self.shards.schema().write_floats(write), 0);
        let total = keys.len() as u64;
        while start < keys.len() {
            let end = keys.len().min(start + piece);
            let shard = |at: usize| shard_of(hash(keys[at]), SHARDS);
            let row = (0..start).rev().take_while(|&at| shard(at) == shard(start)).count() as u32;
            let (keys, values) = (&keys[start..end], &values[start * floats..end * floats]);
            let options = PushOptions { clock: name.seq, total, ..PushOptions::default() };
            // A fenced pusher is refused.
            let _ = self.shards.push_at(&PushName { row, ..name }, options, write, keys, None, values);
            start = end;
        }
    }

    pub(super) fn call(&mut self, call: &Call, writes: &[Write]) {
        match call {
            Call::Push { pusher, write, keys, piece, unsound } => {
                let known = self.pushers.entry(*pusher).or_insert((1, 0));
                known.1 += 1;
                let name = PushName { pusher: *pusher, incarnation: known.0, seq: known.1, row: 0 };
                let (write, keys) = (writes[*write as usize % writes.len()], by_shard(keys.clone()));
                let floats = self.shards.schema().write_floats(write);
                let value =
                    |at: usize| if *unsound && at % 7 == 3 { f32::NAN } else { (at % 5) as f32 + 0.25 };
                let values: Vec<f32> = (0..keys.len() * floats).map(value).collect();
                let sent = Sent { name, write, keys, values, piece: *piece };
                self.push(&sent, *piece);
                self.last.insert(*pusher, sent);
            }
            Call::Again(pusher) => {
                if let Some(sent) = self.last.get(pusher).cloned() {
                    self.push(&sent, sent.piece + 3);
                }
            }
            Call::Introduce(pusher) => {
                let known = self.pushers.entry(*pusher).or_insert((0, 0));
                *known = (known.0 + 1, 0);
                let _ = self.shards.introduce_pusher(*pusher, known.0);
            }
            Call::Close(pusher) => {
                let incarnation = self.pushers.get(pusher).map_or(1, |known| known.0);
                self.shards.close_pusher(*pusher, incarnation).unwrap();
            }
            Call::Fence(pusher) => {
                let known = self.pushers.entry(*pusher).or_insert((1, 0));
                self.shards.fence_pusher(*pusher, known.0).unwrap();
            }
            Call::Note(pusher, shard) => {
                let known = self.pushers.entry(*pusher).or_insert((1, 0));
                known.1 += 1;
                let name = PushName { pusher: *pusher, incarnation: known.0, seq: known.1, row: 4 };
                self.shards.note(*shard, &name, 9).unwrap();
            }
            Call::Free(key) => {
                self.shards.free(*key);
            }
            Call::Read => {
                self.shards.snapshot_version();
            }
        }
    }
}

pub(super) fn schema(which: u8) -> (Schema, Vec<Write>) {
    let adagrad = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.01, l2: 0.0 });
    let admission = Admission::Count { pushes: 3, sketch_bytes: 4096 };
    let base = |rule| Schema { shards: SHARDS, ..Schema::scalar("t", rule) };
    match which {
        0 => (base(Rule::Add(Add)), vec![Write::Gradient, Write::Change, Write::Row, Write::Delete]),
        1 => (Schema { dim: 5, admission, ..base(adagrad) }, vec![Write::Gradient, Write::Delete]),
        2 => (
            Schema { admission: Admission::Probability(0.5), ..base(ftrl) },
            vec![Write::Gradient, Write::Change, Write::Row],
        ),
        3 => (base(ftrl).counting(), vec![Write::Damped, Write::Gradient]),
        4 => {
            let rule = adagrad.with_packed_weights(Float16::Bf16).unwrap();
            (Schema { dim: 5, ..base(rule) }, vec![Write::Gradient, Write::Delete, Write::Row])
        }
        _ => {
            let (rule, shaping) =
                (adagrad.with_packed_weights(Float16::F16).unwrap(), GradientTransform::NONE);
            let factor = Segment { dim: 5, rule, shaping, init: Init::Uniform { low: -1.0, high: 1.0 } };
            (Schema { more: vec![factor], ..base(ftrl) }, vec![Write::Gradient])
        }
    }
}

/// They also decide in the same way about keys that no push has made a row of.
pub(super) fn decide_alike(owner: &mut Shards, copies: &mut [Shards]) -> Result<(), TestCaseError> {
    owner.tell(None);
    for seq in 1000..1004 {
        let name = PushName { pusher: 8, incarnation: 1, seq, row: 0 };
        for key in 0u64..60 {
            let shard = shard_of(hash(key), SHARDS);
            let values = vec![0.5; owner.schema().write_floats(Write::Gradient)];
            let name = PushName { seq: seq * 100 + key, ..name };
            let applied = owner.push(&name, Write::Gradient, &[key], None, &values).unwrap();
            let copy = copies.iter_mut().find(|copy| copy.set().contains(shard)).unwrap();
            prop_assert_eq!(copy.push(&name, Write::Gradient, &[key], None, &values).unwrap(), applied);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn copies_that_replay_all_commands_are_the_same(calls in calls(), which in 0u8..6, durable in any::<bool>()) {
        let (schema, writes) = schema(which);
        let folder = tempfile::tempdir().unwrap();
        let store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
        let threads = copies(&schema);
        let mut shards = Shards::open(&store, &schema, 0..SHARDS).unwrap();
        shards.tell(Some(Box::new(Replay(threads.clone()))));
        let mut owner = Owner::new(shards);
        for call in &calls {
            owner.call(call, &writes);
        }
        // The last number of a shard may be one that only a reader saw.
        owner.shards.close_pusher(9, 1).unwrap();
        owner.shards.fence_pusher(9, 1).unwrap();
        let mut threads = threads.lock().unwrap();
        prop_assert_eq!(content(&mut threads), content(std::slice::from_mut(&mut owner.shards)));
        decide_alike(&mut owner.shards, &mut threads)?;
    }
}

/// The owner has no space for some rows of a push. Its copy, which has space, must not have more of the push, and must
/// refuse later pushes as the owner does.
#[test]
fn a_copy_of_a_full_owner_has_the_same_rows_of_a_refused_push() {
    let schema = Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) };
    let growing = GrowthConfig { memory_limit: 16 << 20, ..GrowthConfig::default() };
    let mut owner = Shards::open(&Store::memory_with(growing), &schema, 0..SHARDS).unwrap();
    let threads = copies(&schema);
    owner.tell(Some(Box::new(Replay(threads.clone()))));
    let keys = by_shard((0..2_000_000).collect());
    let mut refused = None;
    for (seq, keys) in (1..).zip(keys.chunks(100_000)) {
        let keys = by_shard(keys.to_vec());
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        if let Err(error) = owner.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()]) {
            refused = Some((name, keys, error.to_string()));
            break;
        }
    }
    let (name, keys, error) = refused.expect("16 MiB hold no two million rows");
    assert!(error.contains("no new rows"), "{error}");
    let mut threads = threads.lock().unwrap();
    assert_eq!(content(&mut threads), content(std::slice::from_mut(&mut owner)));
    let full = owner.unfinished(1).unwrap();
    let keys: Vec<u64> = keys.into_iter().filter(|&key| shard_of(hash(key), SHARDS) == full).collect();
    let copy = threads.iter_mut().find(|thread| thread.set().contains(full)).unwrap();
    let later = PushName { seq: name.seq + 1, ..name };
    let refuses = |shards: &mut Shards| {
        shards.push(&later, Write::Gradient, &keys[..1], None, &[1.0]).unwrap_err().to_string()
    };
    owner.tell(None);
    assert_eq!(refuses(copy), refuses(&mut owner));
    // The copy goes on where the owner could not.
    let applied = copy.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()]).unwrap();
    assert!(applied.applied > 0 && applied.applied + applied.duplicate == keys.len() as u32, "{applied:?}");
}

#[test]
fn a_copy_with_another_history_is_refused() {
    let schema = Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) };
    let mut copy = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
    let name = |seq| PushName { pusher: 1, incarnation: 1, seq, row: 0 };
    for seq in 1..4 {
        copy.push(&name(seq), Write::Gradient, &[7], None, &[1.0]).unwrap();
    }
    let change = CommandChange::Deletion(7);
    let error = copy
        .replay(&CommandRecord { shard: 0, previous: 1, before: 2, after: 4, change })
        .unwrap_err()
        .to_string();
    assert!(error.contains("has command 3") && error.contains("after command 2"), "{error}");
    let error = copy
        .replay(&CommandRecord { shard: 0, previous: 3, before: 5, after: 9, change })
        .unwrap_err()
        .to_string();
    assert!(error.contains("command 9 of shard 0 became command 6"), "{error}");
}

#[test]
fn programs_on_vectors_are_replayed() {
    let vectors = Vectors { wide: 4, narrow: 2 };
    let schema = vectors.schema("v", SHARDS);
    let threads = copies(&schema);
    let mut owner = Shards::open(&Store::memory(), &schema, 0..SHARDS).unwrap();
    owner.tell(Some(Box::new(Replay(threads.clone()))));
    let name = |seq| PushName { pusher: 1, incarnation: 1, seq, row: 0 };
    let keys = by_shard((0..50).collect());
    let values: Vec<f32> = keys.iter().flat_map(|key| [*key as f32, 0.0]).collect();
    let pass = (1 << 16) + 1; // pass 1, push 1
    owner.push(&name(pass), Write::Sum, &keys, None, &values).unwrap();
    let terms = vec![Term::new(2.0, 0)];
    let program = Program {
        pass: 1,
        free: Some(3),
        steps: vec![ProgramStep::Combine { to: 1, terms }],
        sums: vec![ColumnSum::Dot { a: 1, b: 1, penalised: true }],
    };
    for shard in 0..SHARDS {
        owner.run_program(shard, &name(pass + 1), &program).unwrap();
        owner.run_program(shard, &name(pass + 1), &program).unwrap();
    }
    let mut threads = threads.lock().unwrap();
    assert_eq!(content(&mut threads), content(std::slice::from_mut(&mut owner)));
}

/// The owner's threads send their commands apart. A copy may hear of a fence in one shard before it hears of a push of
/// the fenced worker that another shard had accepted.
#[test]
fn a_fence_in_one_shard_does_not_refuse_what_another_had_accepted() {
    let schema = Schema { shards: 2, ..Schema::scalar("t", Rule::Add(Add)) };
    let mut copy = Shards::open(&Store::memory(), &schema, 0..2).unwrap();
    let fence = PusherRecord { pusher: 1, incarnation: 2, seq: 0, done: 0, rows: 0, total: 0, closed: false };
    let change = CommandChange::Pusher(fence);
    copy.replay(&CommandRecord { shard: 1, previous: 0, before: 0, after: 1, change }).unwrap();
    let key = (0..).find(|&key| shard_of(hash(key), 2) == 0).unwrap();
    let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    let (write, keys, values) = (Write::Gradient, &[key][..], &[1.0][..]);
    let change = CommandChange::Part(PushPart { name, clock: 1, total: 0, write, rows: 1, keys, values });
    copy.replay(&CommandRecord { shard: 0, previous: 0, before: 0, after: 1, change }).unwrap();
    let mut weight = [0.0];
    copy.pull(&[key], Read::Weights, &mut weight, None).unwrap();
    assert_eq!(weight, [1.0]);
    // What comes from a worker is refused on all shards.
    let later = PushName { seq: 2, ..name };
    let refused = copy.push(&later, Write::Gradient, &[key], None, &[1.0]).unwrap_err();
    assert!(matches!(refused, PushError::Fenced { .. }), "{refused}");
}

/// Readers skip numbers, so the next number alone does not say whether a command is missing.
#[test]
fn a_copy_that_missed_a_command_behind_skipped_numbers_is_refused() {
    let schema = Schema { shards: 2, ..Schema::scalar("t", Rule::Add(Add)) };
    let key_of = |number| (0..).find(|&key| shard_of(hash(key), 2) == number).unwrap();
    let kept = Told::default();
    let mut owner = Shards::open(&Store::memory(), &schema, 0..2).unwrap();
    owner.tell(Some(Box::new(kept.clone())));
    let mut seq = 0;
    let mut push = |owner: &mut Shards, shard| {
        seq += 1;
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        owner.push(&name, Write::Gradient, &[key_of(shard)], None, &[1.0]).unwrap();
    };
    // Shard 1 goes ahead, and a reader raises shard 0 to its number between the commands of shard 0.
    for _ in 0..3 {
        push(&mut owner, 0);
        (0..3).for_each(|_| push(&mut owner, 1));
        owner.snapshot_version();
        owner.snapshot_version();
    }
    let commands = kept.0.lock().unwrap().clone();
    let of_shard_0: Vec<_> = commands.iter().filter(|told| told.numbers.shard == 0).collect();
    assert!(of_shard_0.len() == 3 && of_shard_0[1].numbers.previous < of_shard_0[1].numbers.before);
    let open = || Shards::open(&Store::memory(), &schema, 0..1).unwrap();
    let mut copy = open();
    of_shard_0.iter().for_each(|told| told.replay_on(&mut copy).unwrap());
    for missing in 0..2 {
        let mut copy = open();
        of_shard_0[..missing].iter().for_each(|told| told.replay_on(&mut copy).unwrap());
        let error = of_shard_0[missing + 1].replay_on(&mut copy).unwrap_err();
        assert!(matches!(error, ReplayError::Missed { shard: 0, .. }), "{missing}: {error}");
        // Nothing was changed, so the copy can still take the missing command.
        of_shard_0[missing..].iter().for_each(|told| told.replay_on(&mut copy).unwrap());
    }
}

/// The copy has less memory than its owner.
#[test]
fn a_copy_without_space_refuses_all_later_commands() {
    let schema = Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) };
    let kept = Told::default();
    let mut owner = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
    owner.tell(Some(Box::new(kept.clone())));
    let growing = GrowthConfig { memory_limit: 16 << 20, ..GrowthConfig::default() };
    let mut copy = Shards::open(&Store::memory_with(growing), &schema, 0..1).unwrap();
    for seq in 1..21 {
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        let keys: Vec<u64> = (seq * 100_000..(seq + 1) * 100_000).collect();
        owner.push(&name, Write::Gradient, &keys, None, &vec![1.0; keys.len()]).unwrap();
        let commands = std::mem::take(&mut *kept.0.lock().unwrap());
        let [command] = &commands[..] else { panic!("{} commands", commands.len()) };
        let Err(error) = command.replay_on(&mut copy) else { continue };
        assert!(matches!(error, ReplayError::Push(_)), "{error}");
        // Its number is taken, but a part of its rows is missing.
        let again = command.replay_on(&mut copy).unwrap_err();
        assert!(matches!(again, ReplayError::Broken(0)), "{again}");
        return;
    }
    panic!("16 MiB hold no two million rows");
}
