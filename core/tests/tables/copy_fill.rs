//! Copies that get the rows of their owner while it goes on.

use super::replay::{Call, Owner, SHARDS, by_shard, calls, decide_alike, schema};
use super::told::ToldCommand;
use gannet_core::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// How far the fill of a shard is.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    NotBegun,
    At { slot: u32, piece: u64 },
    Whole,
}

/// What the owner sends to its copy: rows while a shard is filled, then commands.
#[derive(Clone)]
struct Stream(Arc<Mutex<StreamState>>);

struct StreamState {
    shards: [Fill; SHARDS as usize],
    sent: Vec<ToldCommand>,
}

impl CommandListener for Stream {
    fn hear(&mut self, command: &CommandRecord<'_>, shard: &mut ToldShard<'_>) {
        let mut stream = self.0.lock().unwrap();
        let changed: &[u64] = match (stream.shards[command.shard as usize], command.change) {
            (Fill::NotBegun, _) => return,
            (Fill::Whole, _) | (_, CommandChange::Program(..)) => {
                return stream.sent.push(ToldCommand::of(command));
            }
            (_, CommandChange::Part(part)) => part.keys,
            (_, CommandChange::Deletion(key)) => &[key],
            _ => &[],
        };
        let (mut keys, mut rows, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        shard.states(changed, &mut keys, &mut rows, &mut gone);
        let states = RowStates { piece: 0, keys: &keys, rows: &rows, gone: &gone };
        stream.sent.push(ToldCommand::of(&CommandRecord { change: CommandChange::Rows(states), ..*command }));
    }
}

impl Stream {
    fn new() -> Stream {
        let shards = [Fill::NotBegun; SHARDS as usize];
        Stream(Arc::new(Mutex::new(StreamState { shards, sent: Vec::new() })))
    }

    /// Tells the next slots of a shard. Returns whether it is told whole.
    fn fill(&self, owner: &mut Shards, shard: u32, most: usize) -> bool {
        let (slot, piece) = match self.0.lock().unwrap().shards[shard as usize] {
            Fill::Whole => return true,
            Fill::At { slot, piece } => (slot, piece + 1),
            Fill::NotBegun => (0, 1),
        };
        let mut told = None;
        let next = owner.fill(shard, slot, most, piece, |record| told = Some(ToldCommand::of(record)));
        let mut stream = self.0.lock().unwrap();
        stream.sent.extend(told);
        stream.shards[shard as usize] = next.map_or(Fill::Whole, |slot| Fill::At { slot, piece });
        next.is_none()
    }
}

/// A copy at the other end of a link that loses what was not acknowledged: it gets this again.
struct Receiver {
    copy: Shards,
    taken: usize,
}

impl Receiver {
    fn take(&mut self, stream: &Stream, most: usize, resent: usize) {
        let stream = stream.0.lock().unwrap();
        let end = stream.sent.len().min(self.taken.saturating_add(most));
        for told in &stream.sent[self.taken.saturating_sub(resent)..end] {
            told.replay_on(&mut self.copy).unwrap();
        }
        self.taken = end;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Call(Call),
    Fill { shard: u32, most: usize },
    Take { most: usize, resent: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let call = calls().prop_map(|calls| calls.into_iter().map(Step::Call).collect::<Vec<_>>());
    let fill = (0..SHARDS, 1usize..20).prop_map(|(shard, most)| vec![Step::Fill { shard, most }]);
    let take = (0usize..30, 0usize..30).prop_map(|(most, resent)| vec![Step::Take { most, resent }]);
    let some = prop_oneof![2 => call, 6 => fill, 3 => take];
    prop::collection::vec(some, 1..40).prop_map(|steps| steps.into_iter().flatten().collect())
}

/// The floats of the rows of a shard, as bits, by key.
type Rows = BTreeMap<u64, Vec<u32>>;

/// The rows of each shard by key as bits, its last command, and the pushers of all.
fn content(shards: &mut Shards) -> (Vec<(u64, Rows)>, Vec<PushProgress>) {
    let positions = shards.positions();
    let of_shard = |position: &Position| {
        let (mut keys, mut floats) = (Vec::new(), Vec::new());
        assert_eq!(shards.scan(position.shard, 0, 1 << 20, &mut keys, &mut floats), None);
        let bits = |row: &[f32]| row.iter().map(|float| float.to_bits()).collect();
        let rows = floats.chunks_exact(shards.schema().floats()).map(bits);
        (position.command, keys.into_iter().zip(rows).collect())
    };
    (positions.iter().map(of_shard).collect(), shards.push_progress())
}

fn copy_of(owner: &Shards) -> Receiver {
    let births: Vec<(u32, u64)> = (0..).zip(owner.births()).collect();
    let copy = Shards::open_copies(&Store::memory(), owner.schema(), owner.identity(), &births).unwrap();
    assert!(!copy.are_whole() && copy.births() == owner.births());
    Receiver { copy, taken: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_that_is_filled_meanwhile_becomes_the_same(
        steps in steps(), which in 0u8..6, durable in any::<bool>(),
    ) {
        let (schema, writes) = schema(which);
        let folder = tempfile::tempdir().unwrap();
        let store = if durable { Store::open_dir(folder.path()).unwrap() } else { Store::memory() };
        let stream = Stream::new();
        let mut shards = Shards::open(&store, &schema, 0..SHARDS).unwrap();
        let mut copy = copy_of(&shards);
        shards.tell(Some(Box::new(stream.clone())));
        let mut owner = Owner::new(shards);
        for step in &steps {
            match step {
                Step::Call(call) => owner.call(call, &writes),
                Step::Fill { shard, most } => drop(stream.fill(&mut owner.shards, *shard, *most)),
                Step::Take { most, resent } => copy.take(&stream, *most, *resent),
            }
        }
        for shard in 0..SHARDS {
            while !stream.fill(&mut owner.shards, shard, 7) {}
        }
        owner.shards.close_pusher(9, 1).unwrap();
        copy.take(&stream, usize::MAX, 50);
        prop_assert!(copy.copy.are_whole());
        // A reader of the owner may have skipped numbers since its last command.
        owner.shards.fence_pusher(9, 1).unwrap();
        copy.take(&stream, usize::MAX, usize::MAX);
        prop_assert_eq!(content(&mut copy.copy), content(&mut owner.shards));
        decide_alike(&mut owner.shards, std::slice::from_mut(&mut copy.copy))?;
    }
}

/// Programs change all rows. A copy runs them on the rows that it has.
#[test]
fn vectors_are_filled_between_programs() {
    let schema = Vectors { wide: 4, narrow: 2 }.schema("v", SHARDS);
    let stream = Stream::new();
    let mut owner = Shards::open(&Store::memory(), &schema, 0..SHARDS).unwrap();
    let mut copy = copy_of(&owner);
    owner.tell(Some(Box::new(stream.clone())));
    let name = |seq| PushName { pusher: 1, incarnation: 1, seq, row: 0 };
    let keys = by_shard((0..500).collect());
    let values: Vec<f32> = keys.iter().flat_map(|key| [*key as f32, 0.0]).collect();
    let pass = (1 << 16) + 1; // pass 1, push 1
    owner.push(&name(pass), Write::Sum, &keys, None, &values).unwrap();
    for round in 0..40 {
        let terms = vec![Term::new(1.5 + round as f64, 0)];
        let program = Program {
            pass: 1,
            free: Some(3),
            steps: vec![ProgramStep::Combine { to: 1, terms }],
            sums: vec![ColumnSum::Dot { a: 1, b: 1, penalised: true }],
        };
        for shard in 0..SHARDS {
            owner.run_program(shard, &name(pass + 1 + round), &program).unwrap();
        }
        stream.fill(&mut owner, round as u32 % SHARDS, 20);
        copy.take(&stream, 9, 4);
    }
    for shard in 0..SHARDS {
        while !stream.fill(&mut owner, shard, 20) {}
    }
    copy.take(&stream, usize::MAX, 30);
    assert!(copy.copy.are_whole());
    assert_eq!(content(&mut copy.copy), content(&mut owner));
}

/// What was lost on the way is noticed, whatever was lost.
#[test]
fn a_copy_that_missed_a_piece_is_refused() {
    let schema = Schema { shards: 1, ..Schema::scalar("t", gannet_optim::Rule::Add(gannet_optim::Add)) };
    let stream = Stream::new();
    let mut owner = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
    owner.tell(Some(Box::new(stream.clone())));
    let push = |owner: &mut Shards, seq: u64| {
        let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
        let keys: Vec<u64> = (seq * 10..seq * 10 + 10).collect();
        owner.push(&name, Write::Gradient, &keys, None, &[1.0; 10]).unwrap();
    };
    (1..4).for_each(|seq| push(&mut owner, seq));
    for seq in 4..100 {
        let whole = stream.fill(&mut owner, 0, 25);
        push(&mut owner, seq);
        if whole && seq > 20 {
            break;
        }
    }
    let sent = stream.0.lock().unwrap().sent.clone();
    assert!(sent.len() > 20);
    for missing in 0..sent.len() - 1 {
        let mut copy = copy_of(&owner).copy;
        sent[..missing].iter().for_each(|told| told.replay_on(&mut copy).unwrap());
        let error =
            sent[missing + 1..].iter().find_map(|told| told.replay_on(&mut copy).err()).expect("an error");
        let refused = matches!(error, ReplayError::Missed { .. } | ReplayError::Filling(_));
        assert!(refused, "without piece {missing}: {error}");
    }
}
