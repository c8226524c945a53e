//! Removes old checkpoints. A kill at any step leaves no folder that passes for a whole checkpoint and is not one.

use crate::checkpoint::directory::{CheckpointDir, CheckpointState, ListedCheckpoint};
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::JobManifest;
use crate::checkpoint::names::{MANIFEST, folder_name};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// What [`CheckpointDir::prune`] does with each checkpoint of a directory. Numbers are in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// The checkpoints that stay, and those that they need.
    pub kept: Vec<u64>,
    /// Older checkpoints, and unfinished saves that are older than the newest checkpoint of each run.
    pub removed: Vec<u64>,
    /// Damaged checkpoints, which stay: a later version of gannet may read them.
    pub damaged: Vec<u64>,
    /// Saves without a manifest that are newer than the newest checkpoint of some run. They may be in progress.
    pub unfinished: Vec<u64>,
}

/// A run: its name and its birth.
type RunKey<'a> = (&'a str, Option<&'a str>);

fn key(manifest: &JobManifest) -> RunKey<'_> {
    (&manifest.run, manifest.run_birth())
}

impl CheckpointDir {
    /// What [`prune`](Self::prune) would do.
    ///
    /// # Errors
    /// The directory or a manifest cannot be read. Of a checkpoint that cannot be read now nobody knows what it needs.
    pub fn prune_plan(&self, keep: u32) -> Result<PrunePlan, CheckpointDirError> {
        self.plan(None, keep)
    }

    /// What a prune of one run, or of every run, does.
    fn plan(&self, run: Option<RunKey<'_>>, keep: u32) -> Result<PrunePlan, CheckpointDirError> {
        let mut all = self.list()?;
        let unread = |c: &ListedCheckpoint| matches!(&c.state, CheckpointState::Damaged(e) if e.is_system());
        if let Some(at) = all.iter().position(unread)
            && let CheckpointState::Damaged(error) = all.swap_remove(at).state
        {
            return Err(error);
        }
        let mut kept = BTreeSet::new();
        // Of each run: its newest checkpoint, and how many more of it stay.
        let mut runs = BTreeMap::<RunKey<'_>, (u64, u32)>::new();
        // A parent has a smaller number, so whoever needs it comes before it here.
        for listed in all.iter().rev() {
            let CheckpointState::Valid(manifest) = &listed.state else { continue };
            let (_, free) = runs.entry(key(manifest)).or_insert((listed.number, keep.max(1)));
            if *free > 0 || run.is_some_and(|run| run != key(manifest)) {
                *free = free.saturating_sub(1);
                kept.insert(listed.number);
            }
            if kept.contains(&listed.number) {
                kept.extend(manifest.parent);
            }
        }
        // Nobody knows whose an unfinished save is. A save of a run is newer than its newest checkpoint.
        let newest = runs.values().map(|(newest, _)| *newest).min().unwrap_or(0);
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

    /// Keeps the newest `keep` valid checkpoints of each run (at least 1), and every one that they need. Removes the
    /// other valid ones, and unfinished saves that are older than the newest valid checkpoint of each run. Returns what
    /// it did.
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
        self.carry_out(self.plan(None, keep)?)
    }

    /// As [`prune`](Self::prune), for the run that saved `newest`: the checkpoints of other runs stay, and those of
    /// other jobs whose run has the same name.
    ///
    /// ```
    /// use gannet_core::{CheckpointDir, JobManifest};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let directory = CheckpointDir::create(folder.path())?;
    /// let mut newest = JobManifest::new(1, "");
    /// for run in ["monday", "tuesday", "monday"] {
    ///     let draft = directory.begin()?;
    ///     newest = JobManifest::new(draft.number(), run);
    ///     draft.publish(&newest)?;
    /// }
    /// let done = directory.prune_run(&newest, 1)?;
    /// assert_eq!((done.removed, done.kept), (vec![1], vec![2, 3]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`prune`](Self::prune).
    pub fn prune_run(&self, newest: &JobManifest, keep: u32) -> Result<PrunePlan, CheckpointDirError> {
        self.carry_out(self.plan(Some(key(newest)), keep)?)
    }

    fn carry_out(&self, plan: PrunePlan) -> Result<PrunePlan, CheckpointDirError> {
        // The newest first: an increment goes before its parent.
        for number in plan.removed.iter().rev() {
            self.remove(*number)?;
        }
        Ok(plan)
    }

    /// Removes a checkpoint whose save failed. Its writers must have ended: its number may be given out again.
    ///
    /// # Errors
    /// A file cannot be removed. [`prune`](Self::prune) removes what is left, once there is a newer checkpoint.
    pub fn discard(&self, number: u64) -> Result<(), CheckpointDirError> {
        self.remove(number)
    }

    /// Removes the files of a save that failed, and keeps its number taken: a writer on another host may still write.
    /// What it writes late belongs to no checkpoint. [`prune`](Self::prune) removes all of it, once there is a newer
    /// checkpoint.
    ///
    /// ```
    /// # use gannet_core::CheckpointDir;
    /// # let folder = tempfile::tempdir()?;
    /// let directory = CheckpointDir::create(folder.path())?;
    /// let draft = directory.begin()?;
    /// draft.state("tasks", b"what a save has written")?;
    /// directory.give_up(draft.number())?;
    /// assert_eq!(directory.list()?[0].bytes, 0);
    /// assert_eq!(directory.begin()?.number(), draft.number() + 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A file cannot be removed. It takes space until the prune.
    pub fn give_up(&self, number: u64) -> Result<(), CheckpointDirError> {
        self.remove_manifest(number)?;
        let emptied = absent_is_good(self.store().empty_folder(&folder_name(number)));
        emptied.map_err(CheckpointDirError::io("removing the files of", &self.folder(number)))
    }

    /// Removes a checkpoint: its manifest first, so that the rest no longer passes for one.
    fn remove(&self, number: u64) -> Result<(), CheckpointDirError> {
        self.remove_manifest(number)?;
        let removed = absent_is_good(self.store().remove_folder(&folder_name(number)));
        removed.map_err(CheckpointDirError::io("removing", &self.folder(number)))
    }

    fn remove_manifest(&self, number: u64) -> Result<(), CheckpointDirError> {
        let removed = absent_is_good(self.store().remove(&folder_name(number), MANIFEST));
        removed.map_err(CheckpointDirError::io("removing", &self.folder(number).join(MANIFEST)))
    }
}

fn absent_is_good(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
