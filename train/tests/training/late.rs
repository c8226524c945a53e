//! A batch of a split may arrive after its synchronous step was applied without it. It is then applied in a later
//! step, once on each shard.

use gannet_core::{Read, Schema, Stats, Write, hash, shard_of};
use gannet_optim::{Rule, Sgd};
use gannet_train::{
    Backend, BackendError, BatchKeys, Data, FileFingerprint, InSplit, Options, PulledRows, PushContent,
    Split, Splits, TrainedRows, train,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

const SHARDS: u32 = 4;

/// Servers in synchronous steps: each shard drops batches that it has applied, and accepts the batches of a split in
/// order only. Some pushes come too late for some shards. The worker learns that when all pushes are acknowledged.
#[derive(Default)]
struct Steps {
    schema: Option<Schema>,
    keys: Vec<Vec<u64>>,
    finished: Option<Vec<u64>>,
    /// For each push the shards for which it comes too late, one bit each.
    late: Vec<u8>,
    pushes: u64,
    /// Late pushes: not acknowledged yet, and reported.
    coming: Vec<u64>,
    reported: Vec<u64>,
    /// The last batch of each split that a shard has applied.
    has: HashMap<(u64, u32), u64>,
    /// How often each key was applied.
    applied: BTreeMap<u64, u32>,
}

impl Backend for Steps {
    fn schema(&self) -> &Schema {
        self.schema.as_ref().unwrap()
    }

    fn depth(&self) -> usize {
        0
    }

    fn begin_pull(&mut self, keys: BatchKeys<'_>, _: Read) -> Result<(), BackendError> {
        let keys = keys.keys;
        self.keys.push(keys.to_vec());
        assert_eq!(self.keys.len(), 1, "a pull ahead would wait for its own worker");
        Ok(())
    }

    fn finish_pull(&mut self) -> Result<PulledRows, BackendError> {
        let keys = self.keys.remove(0);
        let rows = PulledRows { values: vec![0.0; keys.len()], saw: Vec::new() };
        assert!(self.finished.replace(keys).is_none(), "a push must follow a finished pull");
        Ok(rows)
    }

    fn forget_pull(&mut self, _: PulledRows) -> Result<(), BackendError> {
        assert!(self.finished.take().is_some());
        Ok(())
    }

    fn push(
        &mut self,
        keys: &[u64],
        _: PulledRows,
        write: Write,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        assert_eq!((self.finished.take().as_deref(), write), (Some(keys), Write::Gradient));
        let (split, late) = (split.unwrap(), self.late.get(self.pushes as usize).copied().unwrap_or(0));
        let mut dropped = false;
        for run in keys.chunk_by(|a, b| shard_of(hash(*a), SHARDS) == shard_of(hash(*b), SHARDS)) {
            let shard = shard_of(hash(run[0]), SHARDS);
            if late >> shard & 1 == 1 {
                dropped = true;
                continue;
            }
            let has = self.has.entry((split.name.0, shard)).or_default();
            if *has < split.seq {
                *has = split.seq;
                run.iter().for_each(|&key| *self.applied.entry(key).or_default() += 1);
            }
        }
        self.coming.extend(dropped.then_some(self.pushes));
        self.pushes += 1;
        Ok(())
    }

    fn take_late(&mut self, late: &mut Vec<u64>) {
        late.append(&mut self.reported);
    }

    fn weights(&mut self, _: &[u64], weights: &mut [f32]) -> Result<(), BackendError> {
        weights.fill(0.0);
        Ok(())
    }

    fn scan(&mut self, _: &mut dyn FnMut(&[u64], &[f32])) -> Result<(), BackendError> {
        Ok(())
    }

    fn stats(&mut self) -> Result<Stats, BackendError> {
        Ok(Stats::default())
    }
}

impl TrainedRows for Steps {
    fn transport(&self) -> String {
        "steps".into()
    }

    fn drain(&mut self) -> Result<(), BackendError> {
        self.reported.append(&mut self.coming);
        Ok(())
    }

    fn rest(&mut self) -> Result<(), BackendError> {
        assert!(
            self.coming.is_empty() && self.reported.is_empty(),
            "a worker that has left gets no report of late pushes"
        );
        Ok(())
    }

    fn may_be_late(&self) -> bool {
        true
    }

    fn not_finite(&self) -> u64 {
        0
    }
}

/// ListedSplits out its splits one after the other.
struct ListedSplits {
    left: Mutex<Vec<Split>>,
    done: Mutex<Vec<(u64, u64)>>,
}

impl Splits for ListedSplits {
    fn take(&self, _: &dyn Fn() -> bool) -> Result<Option<Split>, String> {
        Ok(self.left.lock().unwrap().pop())
    }
    fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.done.lock().unwrap().push((index, examples));
        Ok(())
    }
    fn acked(&self, _: u64, _: u64) {}
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_worker_ended_when_a_step_was_made_without_its_batch(
        lines in 1u64..40, batch in 1usize..6, cut in 1u64..40, late in prop::collection::vec(0u8..16, 0..20),
    ) {
        // Each example has a feature of its own, and one that all examples have.
        let mut file = tempfile::NamedTempFile::new().unwrap();
        (0..lines).for_each(|i| writeln!(file, "1 {}:1 7:1", 100 + i).unwrap());
        file.flush().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let bytes = std::fs::metadata(&path).unwrap().len();
        let at = bytes * cut.min(lines) / lines;
        let split = |index, start, end| {
            Split { index, epoch: 0, file: 0, start, end, from: 0, name: (1 << 63 | index, 7) }
        };
        let left = Mutex::new(vec![split(1, at, bytes), split(0, 0, at)]);
        let source = Arc::new(ListedSplits { left, done: Mutex::default() });
        let mut options = Options { batch, ..Options::new(Data { intercept: false, ..Data::new(&path) }) };
        options.push = Some(PushContent::Gradient);
        options.splits = Some((source.clone(), vec![FileFingerprint::of(&path).unwrap()]));
        let schema = Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Sgd(Sgd { lr: 0.1 })) };
        let mut steps = Steps { schema: Some(schema), late, ..Steps::default() };
        let report = train(&options, &mut steps, &AtomicBool::new(false), &mut |_| {}).unwrap();
        prop_assert_eq!(report.examples, lines, "what is pushed again is counted once");
        prop_assert_eq!(report.dropped_late, (0, 0));
        // A key is applied once for each batch that has it. The common key is in all batches.
        let batches: u64 = source.done.lock().unwrap().iter().map(|done| done.1.div_ceil(batch as u64)).sum();
        let own: BTreeSet<u32> = steps.applied.iter().filter(|(_, n)| **n != batches as u32).map(|(_, n)| *n).collect();
        prop_assert!(batches == 1 || own == BTreeSet::from([1]), "{own:?}");
        prop_assert_eq!(steps.applied.len() as u64, lines + 1);
        prop_assert_eq!(steps.applied.values().map(|&n| u64::from(n)).sum::<u64>(), lines + batches);
    }
}
