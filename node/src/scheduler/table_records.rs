//! The identity of the rows of a job's tables: the tables' ids and the birth numbers of their shards, as the first
//! worker of the job found them. If a worker later finds others, rows are gone.

use super::job_state::{JobState, JobStateError};
use super::member::WorkerIncarnation;
use crate::limits::JOB_TABLES_MAX;
use gannet_core::ShardSet;
use gannet_core::limits::SHARDS_MAX;
use rkyv::{Archive, Deserialize, Serialize};

/// A table of a job, as a worker found it at the servers.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct TableRecord {
    /// Its name.
    pub table: String,
    /// Its id, drawn when it was made.
    pub uid: [u8; 16],
    /// For each shard, the random number that it got when it was made.
    pub births: Vec<u64>,
    /// Which server has which shards. A server has an entry for each run of shards without gaps.
    pub holders: Vec<ShardHolder>,
}

/// A run of shards of a table that a server has.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct ShardHolder {
    /// Its address.
    pub addr: String,
    /// Its first shard.
    pub first: u32,
    /// The shard behind its last one.
    pub end: u32,
}

/// A worker's report of a table to the scheduler.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct JobTableV1 {
    pub(crate) incarnation: WorkerIncarnation,
    pub(crate) table: TableRecord,
}

impl TableRecord {
    /// Checks the limits of a record, which is saved and sent to others.
    fn check(&self) -> Result<(), String> {
        let (shards, holders) = (self.births.len(), self.holders.len());
        let bytes = self.table.len() + self.holders.iter().map(|holder| holder.addr.len()).sum::<usize>();
        let sound = |holder: &ShardHolder| holder.first <= holder.end && holder.end as usize <= shards;
        if shards > SHARDS_MAX as usize || holders > RECORD_HOLDERS_MAX || bytes > RECORD_TEXT_BYTES_MAX {
            return Err(format!(
                "a table of {shards} shards in {holders} runs at its servers, and {bytes} bytes of names"
            ));
        }
        match self.holders.iter().all(sound) {
            true => Ok(()),
            false => Err("a server with shards that the table does not have".into()),
        }
    }

    /// Says which rows are gone, if the rows that are there `now` are others.
    fn gone(&self, now: &TableRecord) -> Option<String> {
        let other = |shard: u32| {
            let shard = shard as usize;
            self.uid != now.uid || self.births.get(shard) != now.births.get(shard)
        };
        let mut lost = Vec::new();
        for ShardHolder { addr, first, end } in &self.holders {
            let mut shard = *first;
            while let Some(from) = (shard..*end).find(|&shard| other(shard)) {
                shard = (from..*end).find(|&shard| !other(shard)).unwrap_or(*end);
                let shards = ShardSet::from(from..shard);
                lost.push(format!("{shards} of table {:?} that {addr} held", self.table));
            }
        }
        if lost.is_empty() && (self.uid, self.births.len()) != (now.uid, now.births.len()) {
            lost.push(format!("table {:?}", self.table));
        }
        if lost.is_empty() {
            return None;
        }
        Some(format!(
            "the rows of {} are gone, and what was trained with them: start the server on the folder that it had (--data-dir), \
             or begin the training anew",
            lost.join(", and of ")
        ))
    }
}

/// The most entries of servers in a record.
const RECORD_HOLDERS_MAX: usize = SHARDS_MAX as usize;
/// The most bytes of names in a record.
const RECORD_TEXT_BYTES_MAX: usize = 64 << 10;

/// The result of comparing a record with the known one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordOutcome {
    /// The record is the known one.
    Same,
    /// The record is the first of this table, and is kept.
    First,
    /// Rows are gone; the text says which. The job has failed.
    Gone(String),
}

impl JobState {
    /// Forgets which images the tables have: a restore makes new ones.
    pub(super) fn forget_tables(&mut self) {
        self.tables.clear();
    }

    /// A worker reports the rows of a table. If they are not the rows that the job has trained, the job fails.
    ///
    /// # Errors
    /// The worker is not in the job, was given up, or the record is not valid.
    pub fn note_table(
        &mut self,
        incarnation: WorkerIncarnation,
        now: TableRecord,
    ) -> Result<RecordOutcome, JobStateError> {
        self.live_member(incarnation)?;
        now.check().map_err(JobStateError::Limit)?;
        match self.tables.iter().find(|known| known.table == now.table) {
            Some(known) => match known.gone(&now) {
                Some(why) => {
                    self.fail_all(&why);
                    Ok(RecordOutcome::Gone(why))
                }
                None => Ok(RecordOutcome::Same),
            },
            None if self.tables.len() == JOB_TABLES_MAX => Err(JobStateError::Limit(format!(
                "{JOB_TABLES_MAX} tables of the job are known, the limit: use a model with fewer"
            ))),
            None => {
                self.tables.push(now);
                Ok(RecordOutcome::First)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: u8, births: &[u64]) -> TableRecord {
        let holder = |at: u32| ShardHolder { addr: format!("h{at}:1"), first: 2 * at, end: 2 * at + 2 };
        TableRecord {
            table: "t".into(),
            uid: [uid; 16],
            births: births.to_vec(),
            holders: vec![holder(0), holder(1)],
        }
    }

    #[test]
    fn what_is_gone_is_named_by_server_and_shard() {
        let before = record(1, &[1, 2, 3, 4]);
        assert_eq!(before.gone(&before), None);
        // Which server holds which shards now does not matter.
        assert_eq!(before.gone(&TableRecord { holders: Vec::new(), ..before.clone() }), None);
        let one = before.gone(&record(1, &[1, 2, 9, 9])).unwrap();
        assert!(one.contains("shards 2 to 3 of table \"t\" that h1:1 held are gone"), "{one}");
        let two = before.gone(&record(1, &[9, 2, 3, 9])).unwrap();
        assert!(two.contains("shard 0 of table \"t\" that h0:1 held, and of shard 3"), "{two}");
        let all = before.gone(&record(2, &[1, 2, 3, 4])).unwrap();
        assert!(all.contains("shards 0 to 1") && all.contains("shards 2 to 3"), "{all}");
        assert!(before.gone(&record(1, &[1, 2, 3, 4, 5])).is_some());
    }

    #[test]
    fn records_have_limits() {
        let sound = record(1, &[1, 2, 3, 4]);
        assert_eq!(sound.check(), Ok(()));
        assert!(TableRecord { births: vec![1; SHARDS_MAX as usize + 1], ..sound.clone() }.check().is_err());
        assert!(TableRecord { births: vec![1; 3], ..sound.clone() }.check().is_err());
        assert!(TableRecord { table: "t".repeat(RECORD_TEXT_BYTES_MAX), ..sound }.check().is_err());
    }
}
