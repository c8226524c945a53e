//! A synchronous step in a file. The server writes the file before it applies the first row of the step, and the next
//! step replaces it. If a server is killed in the middle of a step, it finishes the step when it opens the table again,
//! whichever of its workers are still there.
//!
//! There are two files for each table and set of shards, beside the images. Like the images, they survive the
//! process. Steps take turns in them. A torn file is of a step that was not begun, and the other file still says who
//! was in the step before. When the step is applied, the server marks its file: names in it may be closed from then on,
//! and must not be noted again. docs/image.md has the bytes.
//!
//! A thread that opens other shards than the one before (another number of threads) writes down where they are, in
//! files of its own. So the files before are not needed any more, and go (unowned_step_files.rs).

#[cfg(test)]
#[path = "step_files_tests.rs"]
mod tests;

use crate::steps::step::{StepNote, StepSum};
use gannet_core::limits::SHARDS_MAX;
use gannet_core::own_files::FileOwner;
use gannet_core::{Applied, PushError, PushName, ShardSet, Shards, Store, Write, hash, own_files, shard_of};
use gannet_wire::messages::control;
use gannet_wire::partition::{runs_of_set, set_of};
use gannet_wire::state_file::is_of_another_version;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

const MAGIC: [u8; 8] = *b"GNTSTEP5";

/// What the files of all versions begin with.
pub(crate) const BEGINNING: &[u8] = b"GNTSTEP";

/// Bytes before the message: the magic, the checksum, the mark, the length.
const HEAD: usize = 24;

/// Where the mark is. It is 0 until the step is applied, and then the checksum with all bits turned.
const MARK: u64 = 12;

const PREFIX: &str = "step-";

/// A step as the file has it. Frozen: a change is a new struct.
#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct StepV5 {
    /// The shards of the thread that wrote the step, in runs: the first of each, and the one behind its last.
    shards: Vec<(u32, u32)>,
    /// The birth of each shard. If an image was made anew since, the step does not belong to it.
    births: Vec<u64>,
    pub(crate) step: u64,
    /// The workers whose rows are in the step, a bit each.
    mask: u32,
    /// The workers in this step and in those before it, the last step first.
    masks: Vec<u32>,
    /// 0: gradients, 1: changes of state.
    write: u32,
    keys: Vec<u64>,
    values: Vec<f32>,
    /// The names that the shards must remember: (shard, pusher, incarnation, seq, row, rows of the whole push).
    notes: Vec<(u32, u64, u64, u64, u32, u64)>,
}

impl StepV5 {
    fn of(sum: &StepSum, masks: Vec<u32>, shards: &Shards) -> StepV5 {
        let note = |&StepNote { shard, name, total }: &StepNote| {
            (shard, name.pusher, name.incarnation, name.seq, name.row, total)
        };
        StepV5 {
            shards: runs_of_set(shards.set()),
            births: shards.births(),
            step: sum.step,
            mask: sum.mask,
            masks,
            write: u32::from(sum.write == Write::Change),
            keys: sum.keys.clone(),
            values: sum.values.clone(),
            notes: sum.notes.iter().map(note).collect(),
        }
    }

    /// The shards of the thread that wrote the step, each with the birth of its image.
    pub(crate) fn births(&self) -> Vec<(u32, u64)> {
        let of = set_of(&self.shards, SHARDS_MAX).unwrap_or_default();
        of.iter().zip(self.births.iter().copied()).collect()
    }

    /// The shards here to which the step belongs.
    fn own(&self, shards: &Shards) -> Vec<u32> {
        let Some(of) = set_of(&self.shards, SHARDS_MAX) else { return Vec::new() };
        let written = |shard: u32| self.births.get(of.position(shard)?).copied();
        let here = shards.set().iter().zip(shards.births());
        here.filter(|&(shard, birth)| written(shard) == Some(birth)).map(|(shard, _)| shard).collect()
    }

    /// The part of the step for these shards, which are in ascending order. `None` if the step is of another table.
    fn sum(&self, shards: &Shards, own: &[u32]) -> Option<StepSum> {
        let write = [Write::Gradient, Write::Change].into_iter().nth(self.write as usize)?;
        let (table, floats) = (shards.schema().shards, shards.schema().write_floats(write));
        if self.values.len() != self.keys.len() * floats {
            return None;
        }
        let here = |key: &u64| own.binary_search(&shard_of(hash(*key), table)).is_ok();
        let rows = self.keys.iter().zip(self.values.chunks_exact(floats)).filter(|(key, _)| here(key));
        let (keys, rows): (Vec<u64>, Vec<&[f32]>) = rows.unzip();
        let note = |&(shard, pusher, incarnation, seq, row, total): &(u32, u64, u64, u64, u32, u64)| {
            StepNote { shard, name: PushName { pusher, incarnation, seq, row }, total }
        };
        let notes = self.notes.iter().map(note);
        let notes = notes.filter(|note| own.binary_search(&note.shard).is_ok()).collect();
        Some(StepSum { step: self.step, mask: self.mask, write, keys, values: rows.concat(), notes })
    }
}

/// The state of a table's steps, as recovered when the table was opened.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RecoveredSteps {
    /// All steps below this one are applied, in all shards.
    pub(crate) at: u64,
    /// The workers in those steps, the last step first.
    pub(crate) masks: Vec<u32>,
    /// Shards that are ahead, because another thread had them before. Each comes with the first step that it does not
    /// have.
    pub(crate) ahead: Vec<(u32, u64)>,
}

impl RecoveredSteps {
    /// The first step that a shard lacks, and the first one that all shards lack. `None` if no shard has a step.
    pub(crate) fn reached(&self) -> Option<(u64, u64)> {
        let highest = self.ahead.iter().map(|&(_, at)| at).fold(self.at, u64::max);
        (highest > 0).then_some((self.at, highest))
    }
}

/// The step files of the shards of a thread. There are none if the images end with the process.
pub(crate) struct StepFiles {
    paths: Option<[PathBuf; 2]>,
    files: [Option<File>; 2],
    /// The file for the next step: not the one that has the last step.
    next: usize,
    /// The checksum of the last step.
    sum: u32,
    buffer: Vec<u8>,
}

impl StepFiles {
    /// The files for these shards of a store.
    pub(crate) fn new(store: &Store, shards: &Shards) -> StepFiles {
        let folder = store.folder().map(|folder| folder.join(&shards.schema().name));
        let path = |folder: &Path, turn| folder.join(file_name(shards.set(), turn));
        let paths = folder.map(|folder| [path(&folder, 0), path(&folder, 1)]);
        // A file that cannot be read was reported when the table was opened.
        let step = |path: &Path| read_step(path).ok().flatten().map(|found| found.step.step);
        let next = paths.as_ref().is_some_and(|[a, b]| step(a) > step(b));
        StepFiles { paths, files: [None, None], next: usize::from(next), sum: 0, buffer: Vec::new() }
    }

    /// Writes down where these shards are, once their steps are finished, unless a file of this thread says so. Shards
    /// that are ahead of others keep the files that say how far.
    pub(crate) fn begin(&mut self, shards: &Shards, found: &RecoveredSteps) {
        let Some(paths) = self.paths.clone().filter(|_| found.at > 0 && found.ahead.is_empty()) else {
            return;
        };
        let mut is_written = false;
        for (turn, path) in paths.iter().enumerate() {
            let Some(StepFile { step, sum, applied }) = read_step(path).ok().flatten() else { continue };
            if step.births != shards.births() || step.step >= found.at {
                continue;
            }
            is_written |= step.step + 1 == found.at;
            if !applied {
                self.mark(turn, sum);
            }
        }
        if !is_written {
            self.pass(shards, found.at, found.masks.clone());
        }
    }

    /// Writes a step before it is applied.
    ///
    /// # Errors
    /// The reason, in words. The caller must not apply anything of the step then.
    pub(crate) fn write(&mut self, shards: &Shards, sum: &StepSum, masks: Vec<u32>) -> Result<(), String> {
        let Some(paths) = &self.paths else { return Ok(()) };
        let path = &paths[self.next];
        let message = control::seal(&StepV5::of(sum, masks, shards));
        self.sum = crc32c::crc32c(&message);
        self.buffer.clear();
        self.buffer.extend_from_slice(&MAGIC);
        self.buffer.extend_from_slice(&u64::from(self.sum).to_le_bytes());
        self.buffer.extend_from_slice(&(message.len() as u64).to_le_bytes());
        self.buffer.extend_from_slice(&message);
        let failed = |error: io::Error| format!("writing {}: {error}", path.display());
        let file = match &mut self.files[self.next] {
            Some(file) => file,
            none => none.insert(open_step_file(path).map_err(failed)?),
        };
        file.write_all_at(&self.buffer, 0).map_err(failed)?;
        self.next = 1 - self.next;
        Ok(())
    }

    /// Marks the last step as applied in all these shards, with its notes. Without the mark a restart applies it again:
    /// shards drop its rows, but would note names again that may have been closed since.
    pub(crate) fn applied(&mut self) {
        self.mark(1 - self.next, self.sum);
    }

    fn mark(&mut self, turn: usize, sum: u32) {
        let Some(paths) = &self.paths else { return };
        let file = match &mut self.files[turn] {
            Some(file) => Ok(file),
            none => open_step_file(&paths[turn]).map(|file| none.insert(file)),
        };
        if let Err(error) = file.and_then(|file| file.write_all_at(&(!sum).to_le_bytes(), MARK)) {
            tracing::debug!(%error, "a step is not marked as applied");
        }
    }

    /// Writes down that these shards have the steps below `at`, the last of which had no rows for them. So after a
    /// restart they are not taken for shards that lack it. If this fails they are, until workers join again. `masks`:
    /// the workers in those steps, the last step first.
    pub(crate) fn pass(&mut self, shards: &Shards, at: u64, masks: Vec<u32>) {
        let (step, write) = (at.saturating_sub(1), Write::Gradient);
        let (keys, values, notes) = Default::default();
        match self.write(shards, &StepSum { step, mask: 0, write, keys, values, notes }, masks) {
            Ok(()) => self.applied(),
            Err(text) => {
                let table = &shards.schema().name;
                tracing::debug!(table, step, text, "a step without rows is not written down");
            }
        }
    }
}

/// The name of a file of these shards. Another set has another name: a thread may not overwrite a step that another
/// one still needs.
pub(crate) fn file_name(set: &ShardSet, turn: usize) -> String {
    let all: Vec<u8> = set.iter().flat_map(u32::to_le_bytes).collect();
    let first = set.numbers().first().copied().unwrap_or(0);
    format!("{PREFIX}{first:04}-{:08x}.{turn}", crc32c::crc32c(&all))
}

fn open_step_file(path: &Path) -> io::Result<File> {
    match own_files::owner_of_part(path, &[BEGINNING]) {
        FileOwner::User => Err(own_files::in_the_way(path)),
        _ => own_files::open_or_make(path),
    }
}

/// A step that was read.
pub(crate) struct StepFile {
    pub(crate) step: StepV5,
    /// The checksum of its message.
    sum: u32,
    /// The step was applied, with its notes.
    applied: bool,
}

/// Reads the step in a file. `None` if the file is torn.
///
/// # Errors
/// The system reports an error, or another version of Gannet wrote the file: it may have a step that was begun.
pub(crate) fn read_step(path: &Path) -> io::Result<Option<StepFile>> {
    let Some(bytes) = own_files::read_whole(path)? else { return Err(io::ErrorKind::NotFound.into()) };
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    if is_of_another_version(&MAGIC, head) {
        let why = "another version of gannet wrote it; run the gannet that wrote it, or begin from a checkpoint in \
                   another data folder";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    if !head.starts_with(&MAGIC) {
        return Ok(None);
    }
    let number = |from: usize, to: usize| {
        head[from..to].iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let (sum, mark) = (number(8, 12) as u32, number(12, 16) as u32);
    let message = usize::try_from(number(16, 24)).ok().and_then(|length| rest.get(..length));
    let whole = |message: &&[u8]| sum == crc32c::crc32c(message) && (mark == 0 || mark == !sum);
    let Some(message) = message.filter(whole) else { return Ok(None) };
    let step = control::open(message).ok();
    Ok(step.map(|step| StepFile { step, sum, applied: mark == !sum }))
}

/// `None`: the file is not there, because another thread has removed it.
pub(crate) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finishes the steps that were begun in these shards, by the thread of these shards or by others (of a server with
/// another number of threads). If the shards are not equally far, the thread goes on at the step of the one furthest
/// behind. Workers resend what was not acknowledged, and shards that are ahead drop the steps that they have.
/// `aggregate`: the pusher in the names of steps.
///
/// # Errors
/// A file cannot be read, a step cannot be finished, or a step was begun and its file is missing: in words.
pub(crate) fn finish(store: &Store, shards: &mut Shards, aggregate: u64) -> Result<RecoveredSteps, String> {
    let own = shards.set().clone();
    // For each shard, the first step that is not applied. For each file, the workers in its steps.
    let mut reached = vec![0; own.len()];
    let mut known: Vec<(u64, Vec<u32>)> = Vec::new();
    for path in step_files_of(store, &shards.schema().name)? {
        // A file that another thread has just removed is of a step that these shards have (unowned_step_files.rs).
        let found =
            if_there(read_step(&path)).map_err(|error| format!("reading {}: {error}", path.display()))?;
        let Some(StepFile { step, applied, .. }) = found.flatten() else { continue };
        let of_these = step.own(shards);
        if of_these.is_empty() {
            continue;
        }
        let sum = step
            .sum(shards, &of_these)
            .ok_or_else(|| format!("{}: this step belongs to another table", path.display()))?;
        if !applied {
            apply_step(shards, &sum, aggregate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        for shard in of_these {
            let at = own.position(shard).and_then(|place| reached.get_mut(place));
            at.into_iter().for_each(|at| *at = step.step.saturating_add(1).max(*at));
        }
        known.push((step.step.saturating_add(1), step.masks));
    }
    if let Some(shard) = shards.unfinished(aggregate) {
        return Err(format!(
            "shard {shard} of table {:?}: a synchronous step is half applied, and its file ({PREFIX}...) is missing or \
             damaged; begin from a checkpoint in another data folder",
            shards.schema().name
        ));
    }
    // A shard has the steps that it remembers, even if their file is gone.
    for (shard, at) in own.iter().zip(&mut reached) {
        *at = shards.last_push(shard, aggregate).unwrap_or(0).max(*at);
    }
    let at = reached.iter().copied().min().unwrap_or(0);
    let ahead = own.iter().zip(reached).filter(|&(_, reached)| reached > at).collect();
    // The masks in the file of a later step begin with that step.
    let nearest = known.into_iter().filter(|(step, _)| *step >= at).min_by_key(|(step, _)| *step);
    let masks = nearest.map_or_else(Vec::new, |(step, masks)| {
        masks.into_iter().skip(usize::try_from(step - at).unwrap_or(usize::MAX)).collect()
    });
    Ok(RecoveredSteps { at, masks, ahead })
}

/// The step files beside the images of a table.
pub(crate) fn step_files_of(store: &Store, table: &str) -> Result<Vec<PathBuf>, String> {
    let Some(folder) = store.folder().map(|folder| folder.join(table)) else {
        return Ok(Vec::new());
    };
    let listed = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()
    };
    let mut paths = listed().map_err(|error| format!("listing {}: {error}", folder.display()))?;
    let ours = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
            && own_files::owner_of_part(path, &[BEGINNING]) == FileOwner::Gannet
    };
    paths.retain(ours);
    paths.sort();
    Ok(paths)
}

/// Applies a step. Shards drop the rows that they already have.
pub(crate) fn apply_step(shards: &mut Shards, sum: &StepSum, aggregate: u64) -> Result<Applied, PushError> {
    let name = PushName { pusher: aggregate, incarnation: 1, seq: sum.step + 1, row: 0 };
    let (table, floats) = (shards.schema().shards, sum.values.len() / sum.keys.len().max(1));
    let (mut all, mut start) = (Applied::default(), 0);
    for run in sum.keys.chunk_by(|a, b| shard_of(hash(*a), table) == shard_of(hash(*b), table)) {
        let values = &sum.values[start * floats..(start + run.len()) * floats];
        start += run.len();
        let applied = shards.push(&name, sum.write, run, None, values)?;
        all.applied += applied.applied;
        all.duplicate += applied.duplicate;
        all.not_finite += applied.not_finite;
        all.not_admitted += applied.not_admitted;
    }
    for StepNote { shard, name, total } in &sum.notes {
        // A shard that has later steps noted these names before. Their data may have been closed since, so it must not
        // note them again.
        if shards.last_push(*shard, aggregate) <= Some(sum.step + 1) {
            shards.note(*shard, name, *total)?;
        }
    }
    Ok(all)
}
