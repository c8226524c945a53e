//! Whose checkpoints a directory has. The checkpoints of one run of one job follow each other there; any other saver is
//! refused.

use crate::checkpoint::directory::{CheckpointDir, CheckpointState};
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::JobManifest;
use crate::schema::identity::TableUid;

/// The newest checkpoints of a directory.
#[derive(Clone, Debug, Default)]
pub struct NewestCheckpoints {
    /// The newest one whose manifest can be read.
    pub last: Option<JobManifest>,
    /// The newest one that can be used.
    pub valid: Option<JobManifest>,
}

impl CheckpointDir {
    /// The newest checkpoints, if they are of this run, with this birth (0: not known). If none can be used, the next
    /// one must be a full one.
    ///
    /// A checkpoint that cannot be used may be that of a run that was undone while it was saved: its birth does not
    /// count.
    ///
    /// # Errors
    /// They are of another run, or of another job; or the directory cannot be read.
    pub fn newest_of(&self, run: &str, birth: u64) -> Result<NewestCheckpoints, CheckpointDirError> {
        let last = self.newest_manifest()?;
        if let Some(last) = &last {
            last.must_be_of(run, &self.folder(last.number))?;
        }
        let valid = match self.newest_valid() {
            Err(error) if !error.is_system() => {
                tracing::warn!(%error, "no checkpoint in the directory can be used: the next one is a full one");
                None
            }
            valid => valid?,
        };
        if let Some(valid) = &valid {
            valid.must_be_born(birth, &self.folder(valid.number))?;
        }
        Ok(NewestCheckpoints { last, valid })
    }

    /// The newest checkpoint besides one that this process has just published, if its manifest can be read.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn newest_beside(&self, own: u64) -> Result<Option<JobManifest>, CheckpointDirError> {
        self.newest_manifest_among(&|number| number != own)
    }

    /// Removes a checkpoint that this process has just published: another job has published one at the same moment.
    ///
    /// # Errors
    /// The directory cannot be changed.
    pub fn withdraw(&self, own: u64) -> Result<(), CheckpointDirError> {
        self.remove(own)
    }

    /// Refuses a save of these tables, given by name and id, beside `newest`, the newest checkpoint: none of them is in
    /// it, and none was restored from a checkpoint of the directory. `own`: one that does not count, because it was
    /// just published.
    ///
    /// # Errors
    /// The checkpoints are of another job; or the directory cannot be read.
    pub fn must_have_rows_of(
        &self,
        newest: &JobManifest,
        tables: &[(&str, TableUid)],
        own: Option<u64>,
    ) -> Result<(), CheckpointDirError> {
        let of = |manifest: &JobManifest| tables.iter().any(|&(name, uid)| manifest.has_rows_of(name, uid));
        let (saved, asked) = (newest.tables.first(), tables.iter().find(|(_, uid)| *uid != TableUid::NONE));
        let (Some(saved), Some((name, uid))) = (saved, asked) else { return Ok(()) };
        if of(newest) {
            return Ok(());
        }
        // They may have been restored from an older one.
        let mut older = self.list()?.into_iter().filter(|older| Some(older.number) != own);
        if older.any(|older| matches!(&older.state, CheckpointState::Valid(manifest) if of(manifest))) {
            return Ok(());
        }
        let in_words = |name: &str, uid: TableUid| format!("table {name:?} with the id {uid}");
        Err(CheckpointDirError::OtherTables {
            path: self.folder(newest.number),
            saved: in_words(&saved.schema.name, saved.uid),
            asked: in_words(name, *uid),
        })
    }
}
