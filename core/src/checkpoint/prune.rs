//! Removes old checkpoints. A kill at any step leaves no folder that passes for a whole checkpoint and is not one.

use crate::checkpoint::directory::{CheckpointDir, CheckpointState, ListedCheckpoint, MANIFEST, folder_name};
use crate::checkpoint::error::CheckpointDirError;
use std::collections::BTreeSet;
use std::io;

/// What [`CheckpointDir::prune`] does with each checkpoint of a directory. Numbers are in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// The checkpoints that stay, and those that they need.
    pub kept: Vec<u64>,
    /// Older checkpoints, and unfinished saves that are older than the newest checkpoint.
    pub removed: Vec<u64>,
    /// Damaged checkpoints, which stay: a later version of gannet may read them.
    pub damaged: Vec<u64>,
    /// Saves without a manifest that are newer than the newest checkpoint. They may be in progress.
    pub unfinished: Vec<u64>,
}

impl CheckpointDir {
    /// What [`prune`](Self::prune) would do.
    ///
    /// # Errors
    /// The directory or a manifest cannot be read. Of a checkpoint that cannot be read now nobody knows what it needs.
    pub fn prune_plan(&self, keep: u32) -> Result<PrunePlan, CheckpointDirError> {
        let mut all = self.list()?;
        let unread = |c: &ListedCheckpoint| matches!(&c.state, CheckpointState::Damaged(e) if e.is_system());
        if let Some(at) = all.iter().position(unread)
            && let CheckpointState::Damaged(error) = all.swap_remove(at).state
        {
            return Err(error);
        }
        let mut kept = BTreeSet::new();
        let mut newest = 0;
        // A parent has a smaller number, so whoever needs it comes before it here.
        let mut free = keep.max(1);
        for listed in all.iter().rev() {
            let CheckpointState::Valid(manifest) = &listed.state else { continue };
            newest = newest.max(listed.number);
            if free > 0 {
                free -= 1;
                kept.insert(listed.number);
            }
            if kept.contains(&listed.number) {
                kept.extend(manifest.parent);
            }
        }
        let mut plan = PrunePlan::default();
        for listed in &all {
            let list = match &listed.state {
                CheckpointState::Valid(_) if kept.contains(&listed.number) => &mut plan.kept,
                CheckpointState::Valid(_) => &mut plan.removed,
                CheckpointState::Incomplete if listed.number < newest => &mut plan.removed,
                CheckpointState::Incomplete => &mut plan.unfinished,
                CheckpointState::Damaged(_) => &mut plan.damaged,
            };
            list.push(listed.number);
        }
        Ok(plan)
    }

    /// Keeps the newest `keep` valid checkpoints (at least 1), and every one that they need. Removes the other valid
    /// ones, and unfinished saves that are older than the newest valid checkpoint. Returns what it did.
    ///
    /// ```
    /// use gannet_core::{CheckpointDir, JobManifest};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let directory = CheckpointDir::create(folder.path())?;
    /// for _ in 0..3 {
    ///     let draft = directory.begin()?;
    ///     let manifest = JobManifest::new(draft.number(), "monday");
    ///     draft.publish(&manifest)?;
    /// }
    /// let done = directory.prune(2)?;
    /// assert_eq!((done.removed, done.kept), (vec![1], vec![2, 3]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    pub fn prune(&self, keep: u32) -> Result<PrunePlan, CheckpointDirError> {
        let plan = self.prune_plan(keep)?;
        // The newest first: an increment goes before its parent.
        for number in plan.removed.iter().rev() {
            self.remove(*number)?;
        }
        Ok(plan)
    }

    /// Removes a checkpoint whose save failed. Its writers must have ended.
    ///
    /// # Errors
    /// A file cannot be removed. [`prune`](Self::prune) removes what is left, once there is a newer checkpoint.
    pub fn discard(&self, number: u64) -> Result<(), CheckpointDirError> {
        self.remove(number)
    }

    /// Removes a checkpoint: its manifest first, so that the rest no longer passes for one.
    fn remove(&self, number: u64) -> Result<(), CheckpointDirError> {
        let (name, folder) = (folder_name(number), self.folder(number));
        let absent_is_good = |removed: io::Result<()>| match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let removed = absent_is_good(self.store().remove(&name, MANIFEST));
        removed.map_err(CheckpointDirError::io("removing", &folder.join(MANIFEST)))?;
        let removed = absent_is_good(self.store().remove_folder(&name));
        removed.map_err(CheckpointDirError::io("removing", &folder))
    }
}
