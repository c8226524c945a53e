//! Deletions: pushes that carry keys and no values.

use crate::error::PushError;
use crate::push_name::PushName;
use crate::table::commands::command_record::{CommandChange, PushPart};
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::pushes::push_loop::{RunCall, begin_run};
use crate::table::pushes::push_request::{Applied, PushOptions};
use crate::table::pushes::read_write::Write;

impl Shards {
    /// Deletes the rows of `keys`, which are in shard order. Each key is one step of the journal, like a row of another
    /// push.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub(crate) fn delete(
        &mut self,
        name: &PushName,
        options: PushOptions,
        keys: &[u64],
    ) -> Result<Applied, PushError> {
        self.cut_runs(keys)?;
        let Shards { shards, scratch, incarnations, listener, .. } = self;
        let mut applied = Applied::default();
        for r in 0..scratch.runs.len() {
            let of = RunCall { name, total: options.total, is_first: r == 0, keys: keys.len(), more: 0 };
            let run = begin_run(shards, incarnations, &scratch.runs[r..], &of, &mut applied)?;
            let Some((owner, range, part)) = run else { continue };
            let (shard, start) = (&mut shards[owner], part.from as usize);
            let (part_keys, keys) = (&keys[range.clone()], &keys[range][start..]);
            keys.iter().for_each(|&key| shard.delete_in_part(key));
            applied.applied += keys.len() as u32;
            shard.end_part(part, None);
            listener.tell(shard, shard.before_part, || {
                CommandChange::Part(PushPart {
                    name: if r == 0 { *name } else { PushName { row: 0, ..*name } },
                    clock: options.clock,
                    total: options.total,
                    write: Write::Delete,
                    rows: part_keys.len() as u32,
                    keys: part_keys,
                    values: &[],
                })
            });
        }
        Ok(applied)
    }
}

impl Shard {
    /// Deletes the row of `key` as one step of a part. A key without a row is a step too.
    fn delete_in_part(&mut self, key: u64) {
        if !self.delete_row(key) {
            self.skip_step();
        }
    }
}
