//! Deletions: pushes that carry keys and no values.

use crate::error::PushError;
use crate::push_name::PushName;
use crate::table::push::{Applied, begin_run};
use crate::table::shard::Shard;
use crate::table::shards::Shards;

impl Shards {
    /// Deletes the rows of `keys`, which are in shard order. Each key is one step of the journal, like a row of another
    /// push.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub(crate) fn delete(&mut self, name: &PushName, total: u64, keys: &[u64]) -> Result<Applied, PushError> {
        self.cut_runs(keys)?;
        let Shards { shards, scratch, incarnations, .. } = self;
        let mut applied = Applied::default();
        for r in 0..scratch.runs.len() {
            let run = begin_run(
                shards,
                incarnations,
                &scratch.runs[r..],
                (name, total, r == 0),
                keys.len(),
                &mut applied,
            )?;
            let Some((owner, range, part)) = run else { continue };
            let (shard, start) = (&mut shards[owner], part.from as usize);
            let keys = &keys[range][start..];
            keys.iter().for_each(|&key| shard.delete_in_part(key));
            applied.applied += keys.len() as u32;
            shard.end_part(part, &Ok(()));
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
