//! Several readers cut a table at once, each with a chain of its own: a checkpoint and followers.

use super::{Action, Rows, SHARDS, Table, action, positions};
use gannet_core::*;
use proptest::prelude::*;

/// Floats of a row.
const DIM: u32 = 2;

/// What a reader does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It marks a cut, and gives up the one before.
    Mark { full: bool },
    /// It reads so many rows of the next shard.
    Read(usize),
    /// It gives its cut up.
    End,
}

/// A reader, its copy of the table, and the cut that it reads.
struct Copying {
    reader: CutReader,
    copy: Rows,
    from: Vec<Position>,
    cut: Option<Cut>,
}

struct Cut {
    marked: Vec<MarkedShard>,
    /// The table at the mark.
    want: Rows,
    rows: Rows,
    shard: u32,
}

impl Copying {
    fn new(reader: CutReader) -> Copying {
        Copying { reader, copy: Rows::new(), from: Vec::new(), cut: None }
    }

    fn act(&mut self, table: &mut Table, step: Step) {
        match step {
            Step::Mark { full } => {
                let from = if full { &[][..] } else { &self.from };
                let marked = table.shards.mark_cut(self.reader, from);
                self.cut = Some(Cut { marked, want: table.rows.clone(), rows: Rows::new(), shard: 0 });
            }
            Step::Read(most) => self.read(table, most),
            Step::End => {
                table.shards.end_cut(self.reader);
                self.cut = None;
            }
        }
    }

    /// Reads a slice. At the end of the cut the copy is the table at the mark.
    fn read(&mut self, table: &mut Table, most: usize) {
        let Some(mut cut) = self.cut.take() else { return };
        let rows = &mut cut.rows;
        let progress = table.shards.read_cut(self.reader, cut.shard, most, |keys, floats| {
            for (&key, row) in keys.iter().zip(floats.chunks(DIM as usize)) {
                assert_eq!(rows.insert(key, row.to_vec()), None, "key {key} came twice");
            }
        });
        cut.shard += u32::from(progress == CutProgress::End);
        if cut.shard < SHARDS {
            self.cut = Some(cut);
            return;
        }
        for of in &cut.marked {
            if of.from == 0 {
                self.copy.retain(|&key, _| shard_of(hash(key), SHARDS) != of.position.shard);
            }
            of.deletions.iter().for_each(|key| drop(self.copy.remove(key)));
        }
        self.copy.extend(cut.rows);
        assert_eq!(self.copy, cut.want, "{:?}", self.reader);
        self.from = positions(&cut.marked);
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<bool>().prop_map(|full| Step::Mark { full }),
        12 => (1usize..60).prop_map(Step::Read),
        1 => Just(Step::End),
    ]
}

proptest! {
    #[test]
    fn readers_of_cuts_do_not_disturb_each_other(
        steps in prop::collection::vec((prop::option::of(action()), 0usize..3, step()), 1..160),
    ) {
        let mut table = Table::open(&Store::memory(), DIM);
        let readers = [CutReader::Checkpoint, CutReader::Follower(1), CutReader::Follower(2)];
        let mut all = readers.map(Copying::new);
        for (action, reader, step) in &steps {
            action.iter().for_each(|action: &Action| table.act(action));
            all[*reader].act(&mut table, *step);
        }
        for copying in &mut all {
            copying.act(&mut table, Step::Mark { full: false });
            while copying.cut.is_some() {
                copying.read(&mut table, 50);
            }
            prop_assert_eq!(&copying.copy, &table.rows);
            prop_assert_eq!(table.shards.saved_bytes(copying.reader), 0);
        }
    }
}
