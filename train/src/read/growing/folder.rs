//! A folder to which files are added while it is trained. A file counts as whole when its name says so: a program
//! writes it under a name that is not read, and renames it then.

use crate::limits::{FILE_TASKS_MAX, GROWN_TASK_BYTES};
use crate::read::growing::looking::GrowingSource;
use crate::read::splits::scheduled_splits::plan_files;
use crate::read::splits::split::FileFingerprint;
use gannet_wire::limits::FOUND_NAME_BYTES_MAX;
use gannet_wire::{Found, FoundFile, GrownTask, SourceStand};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// When a training of a growing source ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// When somebody stops it.
    #[default]
    Stopped,
    /// With what is there at the start.
    End,
    /// With what is there at this time: nanoseconds since 1970.
    Time(u64),
}

/// Endings of names of files that are not whole.
const UNFINISHED: [&str; 5] = [".tmp", ".part", ".partial", ".crdownload", ".filepart"];

/// A file in the folder.
struct FolderFile {
    bytes: u64,
    written: u64,
}

/// What this process has said about the folder.
#[derive(Debug, Default)]
struct Told {
    /// The names of the last look. `None`: this is the first one.
    names: Option<BTreeSet<String>>,
    warned: BTreeSet<String>,
    is_full: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    by_time: bool,
    until: Until,
    task_bytes: u64,
    clock: fn() -> u64,
    told: Mutex<Told>,
}

impl Folder {
    /// The folder `path`, whose files are trained in the order of their names, or of the times when they were written.
    /// A file is cut into tasks of about `task_bytes`. `clock` has the nanoseconds since 1970.
    pub fn new(
        path: &Path,
        by_time: bool,
        until: Until,
        task_bytes: Option<u64>,
        clock: fn() -> u64,
    ) -> Folder {
        let task_bytes = task_bytes.unwrap_or(GROWN_TASK_BYTES);
        Folder { path: path.to_owned(), by_time, until, task_bytes, clock, told: Mutex::default() }
    }

    /// The path of the file that is trained first, if there is a file.
    ///
    /// # Errors
    /// The folder cannot be read, in words.
    pub fn first(&self) -> Result<Option<String>, String> {
        let listed = self.list()?;
        let first = listed.iter().min_by_key(|(name, file)| self.order(name, file));
        Ok(first.map(|(name, _)| self.path_to(name)))
    }

    /// Whether no file can come any more that is trained.
    pub fn is_over(&self) -> bool {
        match self.until {
            Until::Stopped => false,
            Until::End => true,
            Until::Time(time) => (self.clock)() > time,
        }
    }

    fn path_to(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn order<'a>(&self, name: &'a str, file: &FolderFile) -> (u64, &'a str) {
        (if self.by_time { file.written } else { 0 }, name)
    }

    /// The whole files that the training may read.
    fn list(&self) -> Result<BTreeMap<String, FolderFile>, String> {
        let failed = |error: std::io::Error| format!("--follow {}: {error}", self.path.display());
        let mut listed = BTreeMap::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                let name = entry.path().display().to_string();
                return Err(format!("{name}: the name is not UTF-8; rename the file"));
            };
            if name.starts_with(['.', '_']) || UNFINISHED.iter().any(|ending| name.ends_with(ending)) {
                continue;
            }
            // A file may have been renamed or removed meanwhile.
            let Ok(meta) = fs::metadata(entry.path()) else { continue };
            // Who writes a file under its own name begins with an empty one.
            if !meta.is_file() || meta.len() == 0 {
                continue;
            }
            let written = (meta.mtime() as u64).saturating_mul(1_000_000_000) + meta.mtime_nsec() as u64;
            if !matches!(self.until, Until::Time(time) if written > time) {
                listed.insert(name.to_owned(), FolderFile { bytes: meta.len(), written });
            }
        }
        Ok(listed)
    }

    /// Warns of files that are not trained: each one once.
    fn warn(&self, listed: &BTreeMap<String, FolderFile>, stand: &SourceStand) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for seen in &stand.seen {
            let changed = |file: &&FolderFile| (file.bytes, file.written) != (seen.bytes, seen.written);
            if listed.get(&seen.name).filter(changed).is_some() && told.warned.insert(seen.name.clone()) {
                let file = self.path_to(&seen.name);
                tracing::warn!(
                    file,
                    "has changed since it was found, and is not trained again: give new data a new name"
                );
            }
        }
        if let (Some(names), Some(forgotten)) = (&told.names, &stand.forgotten) {
            let late: Vec<String> =
                listed.keys().filter(|name| *name <= forgotten && !names.contains(*name)).cloned().collect();
            for name in late {
                let file = self.path_to(&name);
                tracing::warn!(
                    file,
                    after = forgotten,
                    "has come too late and is not trained: its name is before those of files that were trained long ago"
                );
            }
        }
        told.warned.retain(|name| listed.contains_key(name));
        told.names = Some(listed.keys().cloned().collect());
    }

    /// Says once that the folder has too many files whose names must be known.
    fn warn_if_full(&self, is_full: bool) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if is_full && !std::mem::replace(&mut told.is_full, is_full) {
            let folder = self.path.display().to_string();
            tracing::warn!(
                folder,
                "has so many trained files that no more are taken: move or delete those that a checkpoint has, or train \
                 in the order of names"
            );
        }
        told.is_full = is_full;
    }

    fn found(&self, name: &str, file: &FolderFile) -> Option<FoundFile> {
        let path = self.path_to(name);
        // The file may be gone, or have changed since it was listed: the next look finds it as it is then.
        let fingerprint = FileFingerprint::of(&path).ok()?;
        fingerprint.is_of(file.bytes, file.written).then_some(())?;
        let plan = plan_files(&[name.to_owned()], std::slice::from_ref(&fingerprint)).swap_remove(0);
        let tasks = match fingerprint.packed {
            true => 1,
            false => file.bytes.div_ceil(self.task_bytes).min(u64::from(FILE_TASKS_MAX)) as u32,
        };
        Some(FoundFile { file: plan, written: file.written, tasks })
    }
}

impl GrowingSource for Folder {
    fn look(&self, stand: &SourceStand) -> Result<Found, String> {
        let listed = self.list()?;
        self.warn(&listed, stand);
        let by_time = self.by_time;
        let place = |name: &str, file: &FolderFile| match by_time {
            true => format!("{:020} {name}", file.written),
            false => name.to_owned(),
        };
        let known: BTreeSet<&str> = stand.seen.iter().map(|seen| seen.name.as_str()).collect();
        let mut last = stand.last.clone();
        if self.until == Until::End && last.is_none() {
            last = Some(listed.iter().map(|(name, file)| place(name, file)).max().unwrap_or_default());
        }
        let is_new = |name: &str, file: &FolderFile| {
            !known.contains(name)
                && stand.forgotten.as_deref().is_none_or(|forgotten| name > forgotten)
                && last.as_ref().is_none_or(|last| place(name, file) <= *last)
        };
        let mut fresh: Vec<(&String, &FolderFile)> =
            listed.iter().filter(|(name, file)| is_new(name, file)).collect();
        fresh.sort_by_key(|(name, file)| self.order(name, file));
        let (mut files, mut tasks, mut bytes, mut all) = (Vec::new(), 0, 0, true);
        for (name, file) in fresh {
            bytes += name.len();
            if tasks >= stand.room || bytes > FOUND_NAME_BYTES_MAX {
                all = false;
                break;
            }
            match self.found(name, file) {
                Some(found) => {
                    tasks += found.tasks.max(1);
                    files.push(found);
                }
                None => all = false,
            }
        }
        let gone: Vec<String> = match by_time {
            true => known
                .iter()
                .filter(|name| !listed.contains_key(**name))
                .map(|name| (*name).to_owned())
                .collect(),
            false => Vec::new(),
        };
        let room_for_names = gannet_wire::limits::SEEN_FILES_MAX + gone.len() - known.len();
        self.warn_if_full(by_time && !files.is_empty() && room_for_names == 0);
        let complete = all && self.is_over();
        match files.is_empty() && gone.is_empty() && !complete {
            true => Ok(Found::Nothing),
            false => Ok(Found::Files { files, by_time, gone, last, complete }),
        }
    }

    fn name_of(&self, task: &GrownTask) -> String {
        self.path_of(task).unwrap_or_else(|| self.path.display().to_string())
    }

    fn path_of(&self, task: &GrownTask) -> Option<String> {
        match task {
            GrownTask::Lines { file, .. } => Some(self.path_to(&file.name)),
            GrownTask::Messages { .. } => None,
        }
    }
}
