//! The identity of the rows of a job's tables: the tables' ids and the birth numbers of their shards, as the first
//! worker of the job found them. If a worker later finds others, rows are gone.

use crate::limits::JOB_TABLES_MAX;
use crate::scheduler::job_state::{JobState, JobStateError};
use gannet_wire::messages::jobs::TableRecord;
use gannet_wire::messages::member::WorkerIncarnation;

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
    pub(crate) fn forget_tables(&mut self) {
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
    use gannet_core::limits::SHARDS_MAX;
    use gannet_wire::messages::jobs::{RECORD_TEXT_BYTES_MAX, ShardHolder};

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
