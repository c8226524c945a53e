//! Removes old checkpoints. A kill at any step leaves no folder that passes for a whole checkpoint and is not one.

use crate::checkpoint::directory::{CheckpointDir, CheckpointState, ListedCheckpoint};
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::JobManifest;
use crate::checkpoint::names::{
    MANIFEST, MANIFEST_BEGINNING, REMOVED, SAVER, SAVER_BEGINNING, STATES, STATES_BEGINNING, folder_name,
    state_file,
};
use crate::checkpoint::row_files::row_file::MAGIC as ROWS_BEGINNING;
use crate::checkpoint::stores::store::StoredFile;
use crate::limits::CHECKPOINT_MANIFEST_BYTES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

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

fn prune_key(manifest: &JobManifest) -> RunKey<'_> {
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
            let (_, free) = runs.entry(prune_key(manifest)).or_insert((listed.number, keep.max(1)));
            if *free > 0 || run.is_some_and(|run| run != prune_key(manifest)) {
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
        self.carry_out(self.plan(Some(prune_key(newest)), keep)?)
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
        self.remove_own(number)
    }

    /// Removes a checkpoint, and its folder if nothing of the user is in it.
    pub(crate) fn remove(&self, number: u64) -> Result<(), CheckpointDirError> {
        self.remove_own(number)?;
        let removed = self.store().remove_folder(&folder_name(number));
        removed.map_err(CheckpointDirError::io("removing", &self.folder(number)))
    }

    /// Removes the files of a checkpoint. Its manifest goes first, so that the rest no longer passes for one. A copy of
    /// it goes last, so that after a kill the next try knows which files are those of the checkpoint.
    fn remove_own(&self, number: u64) -> Result<(), CheckpointDirError> {
        match self.read_manifest(number) {
            Ok(manifest) => {
                let kept = self.store().publish(&folder_name(number), REMOVED, &manifest.encode());
                kept.map_err(CheckpointDirError::io("writing", &self.folder(number).join(REMOVED)))?;
                self.remove_files(number, &[MANIFEST.to_owned()])?;
            }
            Err(CheckpointDirError::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        let (files, lists) = self.own_files(number)?;
        self.remove_files(number, &files)?;
        self.remove_files(number, &lists)
    }

    fn remove_files(&self, number: u64, names: &[String]) -> Result<(), CheckpointDirError> {
        if names.is_empty() {
            return Ok(());
        }
        let removed = self.store().remove_files(&folder_name(number), names);
        removed.map_err(CheckpointDirError::io("removing files of", &self.folder(number)))
    }

    /// The files in the folder of a removed or unfinished checkpoint that Gannet has written: those of rows and states,
    /// and those that list them.
    fn own_files(&self, number: u64) -> Result<(Vec<String>, Vec<String>), CheckpointDirError> {
        let listed = self.listed_files(number)?;
        let (mut files, mut lists) = (Vec::new(), Vec::new());
        for StoredFile { name, .. } in self.files(number)? {
            let whole = name.strip_suffix(".new").unwrap_or(&name);
            let list = LISTS.iter().find(|(list, _)| *list == whole);
            // A list gets its name when it is whole.
            match list {
                Some((_, beginning)) if self.begins(number, &name, beginning, whole != name)? => {
                    lists.push(name)
                }
                Some(_) => {}
                None if listed.contains(&name) => files.push(name),
                None if is_row_file(&name) && self.begins(number, &name, ROWS_BEGINNING, true)? => {
                    files.push(name);
                }
                None => {}
            }
        }
        // Each list goes after what it lists.
        lists.sort_by_key(|name| name == REMOVED);
        Ok((files, lists))
    }

    /// The files that the manifest of a removed checkpoint lists, and the states that a draft lists.
    fn listed_files(&self, number: u64) -> Result<BTreeSet<String>, CheckpointDirError> {
        let mut listed = BTreeSet::new();
        let removed = self.read_file(number, REMOVED, CHECKPOINT_MANIFEST_BYTES_MAX)?;
        if let Some(manifest) = removed.and_then(|bytes| JobManifest::decode(&bytes).ok()) {
            listed.extend(manifest.files().map(|file| file.name.clone()));
            listed.extend(manifest.states.iter().map(|state| state_file(&state.name)));
        }
        let states = self.read_file(number, STATES, STATES_BYTES_MAX)?;
        if let Some(names) = states.as_deref().and_then(|bytes| bytes.strip_prefix(STATES_BEGINNING)) {
            listed.extend(String::from_utf8_lossy(names).lines().map(state_file));
        }
        Ok(listed)
    }

    /// Whether a file begins so. `part`: a writer that was killed may have left a part of the beginning.
    fn begins(
        &self,
        number: u64,
        name: &str,
        beginning: &[u8],
        part: bool,
    ) -> Result<bool, CheckpointDirError> {
        let bytes = self.read_file(number, name, beginning.len() as u64)?;
        Ok(bytes.is_some_and(|bytes| bytes == beginning || part && beginning.starts_with(&bytes)))
    }

    /// The first bytes of a file, at most `most`. `None`: it is not there.
    fn read_file(&self, number: u64, name: &str, most: u64) -> Result<Option<Vec<u8>>, CheckpointDirError> {
        let mut bytes = Vec::new();
        let opened = self.store().open(&folder_name(number), name);
        match opened.and_then(|file| file.input.take(most).read_to_end(&mut bytes)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => {
                read.map_err(CheckpointDirError::io("reading", &self.folder(number).join(name)))?;
                Ok(Some(bytes))
            }
        }
    }
}

/// The files that list others, with what they begin with.
const LISTS: [(&str, &[u8]); 4] = [
    (MANIFEST, MANIFEST_BEGINNING),
    (REMOVED, MANIFEST_BEGINNING),
    (SAVER, SAVER_BEGINNING),
    (STATES, STATES_BEGINNING),
];
/// The most bytes of the list of states.
const STATES_BYTES_MAX: u64 = 1 << 20;

/// Whether a name is one of [`crate::RowFileHead::file_name`].
fn is_row_file(name: &str) -> bool {
    let parts = name.strip_prefix('t').and_then(|name| name.strip_suffix(".rows")?.split_once('-'));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(table, shard)| is_number(table) && is_number(shard))
}
