//! Removes old checkpoints. A kill at any step leaves no folder that passes for a whole checkpoint and is not one.

use crate::checkpoint::directory::{CheckpointDir, CheckpointState, MANIFEST};
use crate::checkpoint::error::CheckpointDirError;
use crate::image::durability;
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
    /// The directory cannot be read.
    pub fn prune_plan(&self, keep: u32) -> Result<PrunePlan, CheckpointDirError> {
        let all = self.list()?;
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
        if !plan.removed.is_empty() {
            durability::folder(self.path()).map_err(CheckpointDirError::io("syncing", self.path()))?;
            crate::kill_point!();
        }
        Ok(plan)
    }

    /// Removes a checkpoint: its manifest first, so that the rest no longer passes for one.
    fn remove(&self, number: u64) -> Result<(), CheckpointDirError> {
        let folder = self.folder(number);
        let manifest = folder.join(MANIFEST);
        match std::fs::remove_file(&manifest) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(CheckpointDirError::io("removing", &manifest)(e));
            }
            _ => {}
        }
        crate::kill_point!();
        durability::folder(&folder).map_err(CheckpointDirError::io("syncing", &folder))?;
        crate::kill_point!();
        for entry in std::fs::read_dir(&folder).map_err(CheckpointDirError::io("listing", &folder))? {
            let path = entry.map_err(CheckpointDirError::io("listing", &folder))?.path();
            std::fs::remove_file(&path).map_err(CheckpointDirError::io("removing", &path))?;
            crate::kill_point!();
        }
        std::fs::remove_dir(&folder).map_err(CheckpointDirError::io("removing", &folder))?;
        crate::kill_point!();
        Ok(())
    }
}
