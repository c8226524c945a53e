//! A checkpoint that is being written. It becomes one when its manifest is published.

use crate::checkpoint::directory::{CheckpointDir, check_file_lengths};
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::{JobManifest, StateEntry};
use crate::checkpoint::names::{
    MANIFEST, SAVER, SAVER_BEGINNING, STATES, STATES_BEGINNING, folder_name, state_file,
};
use crate::limits::{CHECKPOINT_MANIFEST_BYTES_MAX, CHECKPOINT_NUMBER_TRIES, CHECKPOINT_STATE_BYTES_MAX};
use crate::schema::table_schema::Schema;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The most bytes of that file.
const SAVER_BYTES_MAX: u64 = 1 << 10;

/// A checkpoint that is being written. Its folder has no manifest, so nobody takes it for a checkpoint.
///
/// Dropped without [`publish`](Self::publish), it stays as an incomplete checkpoint, which
/// [`CheckpointDir::prune`] removes later. [`CheckpointDir`] has an example.
#[derive(Debug)]
pub struct Draft {
    directory: CheckpointDir,
    number: u64,
    path: PathBuf,
}

impl CheckpointDir {
    /// As [`begin`](Self::begin), for somebody who never writes two checkpoints at once. If the process is killed,
    /// [`give_up_of`](Self::give_up_of) frees the space of the draft.
    ///
    /// ```
    /// # use gannet_core::CheckpointDir;
    /// # let folder = tempfile::tempdir()?;
    /// let directory = CheckpointDir::create(folder.path())?;
    /// let killed = directory.begin_as("the saver of monday")?;
    /// killed.state("tasks", b"what a save has written")?;
    /// assert_eq!(directory.give_up_of("the saver of monday")?, [1]);
    /// assert_eq!(directory.list()?[0].bytes, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Its folder cannot be made, or the file in it that names `saver`.
    pub fn begin_as(&self, saver: &str) -> Result<Draft, CheckpointDirError> {
        let draft = self.begin()?;
        let bytes = [SAVER_BEGINNING, saver.as_bytes()].concat();
        let written = self.store().publish(&folder_name(draft.number), SAVER, &bytes);
        written.map_err(CheckpointDirError::io("writing", &draft.path.join(SAVER)))?;
        Ok(draft)
    }

    /// Removes the files of the drafts that `saver` has begun and not published. The caller is `saver`, and writes no
    /// checkpoint now. Their numbers stay taken, as after [`give_up`](Self::give_up). Returns the numbers.
    ///
    /// # Errors
    /// The directory cannot be listed, or a file cannot be removed.
    pub fn give_up_of(&self, saver: &str) -> Result<Vec<u64>, CheckpointDirError> {
        self.give_up_if(|of| of == saver.as_bytes())
    }

    /// As [`give_up_of`](Self::give_up_of), for every saver whose name begins with `savers`: their servers are gone, so
    /// nothing that they still publish may count.
    ///
    /// # Errors
    /// As [`give_up_of`](Self::give_up_of).
    pub fn give_up_of_all(&self, savers: &str) -> Result<Vec<u64>, CheckpointDirError> {
        self.give_up_if(|of| of.starts_with(savers.as_bytes()))
    }

    fn give_up_if(&self, is_own: impl Fn(&[u8]) -> bool) -> Result<Vec<u64>, CheckpointDirError> {
        let mut given_up = Vec::new();
        for number in self.numbers()? {
            let files = self.files(number)?;
            let has = |name: &str| files.iter().any(|file| file.name == name);
            let is_own = !has(MANIFEST) && has(SAVER) && is_own(&self.saver_of(number)?);
            // A predecessor that is not dead yet may have published it meanwhile.
            if is_own && matches!(self.read_manifest(number), Err(CheckpointDirError::Missing(_))) {
                self.give_up(number)?;
                given_up.push(number);
            }
        }
        Ok(given_up)
    }

    /// What the file that names the saver of a draft says.
    fn saver_of(&self, number: u64) -> Result<Vec<u8>, CheckpointDirError> {
        let opened = self.store().open(&folder_name(number), SAVER);
        let mut bytes = Vec::new();
        let read = opened.and_then(|file| file.input.take(SAVER_BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => {
                read.map_err(CheckpointDirError::io("reading", &self.folder(number).join(SAVER)))?;
                Ok(bytes.strip_prefix(SAVER_BEGINNING).map(<[u8]>::to_vec).unwrap_or_default())
            }
        }
    }

    /// Begins a checkpoint with the next number. No other process gets the same one.
    ///
    /// # Errors
    /// Its folder cannot be made.
    pub fn begin(&self) -> Result<Draft, CheckpointDirError> {
        let mut number = self.numbers()?.last().map_or(0, |last| *last);
        // A folder of the user may have the name of a number, and keeps it.
        let names = self.store().folders().map_err(CheckpointDirError::io("listing", self.path()))?;
        let taken: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        for _ in 0..CHECKPOINT_NUMBER_TRIES {
            number = number.saturating_add(1);
            while taken.contains(&*folder_name(number)) {
                number = number.saturating_add(1);
            }
            let path = self.folder(number);
            let reserved = self.store().reserve(&folder_name(number));
            if reserved.map_err(CheckpointDirError::io("making", &path))? {
                return Ok(Draft { directory: self.clone(), number, path });
            }
        }
        let source = io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{CHECKPOINT_NUMBER_TRIES} numbers in a row were taken by other processes"),
        );
        Err(CheckpointDirError::Io { what: "making a checkpoint in", path: self.path().into(), source })
    }
}

impl Draft {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its folder, as messages name it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the only state file of the checkpoint, as [`states`](Self::states) does.
    ///
    /// # Errors
    /// As for `states`.
    pub fn state(&self, name: &str, bytes: &[u8]) -> Result<StateEntry, CheckpointDirError> {
        self.write_list(&[name])?;
        self.write_state(name, bytes)
    }

    /// Writes all state files of the checkpoint, synced: (name, bytes). Returns what the manifest says of them. A list
    /// of their names comes first, so that a later save knows the files of one that was killed.
    ///
    /// # Errors
    /// A name is not allowed, the bytes are too many, or a file cannot be written.
    pub fn states(&self, states: &[(String, Vec<u8>)]) -> Result<Vec<StateEntry>, CheckpointDirError> {
        let names: Vec<&str> = states.iter().map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            self.write_list(&names)?;
        }
        states.iter().map(|(name, bytes)| self.write_state(name, bytes)).collect()
    }

    fn write_list(&self, names: &[&str]) -> Result<(), CheckpointDirError> {
        if let Some(name) = names.iter().find(|name| Schema::check_name(name).is_err()) {
            return Err(self.no_state(name, "a state is named as a table is".into()));
        }
        let mut bytes = STATES_BEGINNING.to_vec();
        names.iter().for_each(|name| bytes.extend(format!("{name}\n").as_bytes()));
        let written = self.directory.store().publish(&folder_name(self.number), STATES, &bytes);
        written.map_err(CheckpointDirError::io("writing", &self.path.join(STATES)))
    }

    fn no_state(&self, name: &str, why: String) -> CheckpointDirError {
        let source = io::Error::new(io::ErrorKind::InvalidInput, why);
        CheckpointDirError::Io { what: "writing", path: self.path.join(state_file(name)), source }
    }

    fn write_state(&self, name: &str, bytes: &[u8]) -> Result<StateEntry, CheckpointDirError> {
        let path = self.path.join(state_file(name));
        if bytes.len() as u64 > CHECKPOINT_STATE_BYTES_MAX {
            let (most, found) = (CHECKPOINT_STATE_BYTES_MAX, bytes.len());
            return Err(
                self.no_state(name, format!("a state has at most {most} bytes; this one has {found}"))
            );
        }
        let folder = folder_name(self.number);
        let file = self.directory.store().create(&folder, &state_file(name));
        let mut file = file.map_err(CheckpointDirError::io("making", &path))?;
        let written = file.write(bytes.to_vec()).and_then(|_| file.finish());
        written.map_err(CheckpointDirError::io("writing", &path))?;
        Ok(StateEntry { name: name.into(), bytes: bytes.len() as u64, crc: crc32c::crc32c(bytes) })
    }

    /// Publishes the checkpoint: from now on readers find it, also after a power loss. All files of the manifest must
    /// be written and synced ([`RowFileWriter::finish`](crate::RowFileWriter::finish) and [`state`](Self::state) do).
    ///
    /// # Errors
    /// The manifest does not fit the files, its parent, or itself; or it cannot be written. Readers then find what they
    /// found before. After an error of the system while it syncs, the checkpoint may be there.
    pub fn publish(self, manifest: &JobManifest) -> Result<(), CheckpointDirError> {
        let path = self.path.join(MANIFEST);
        let bytes = manifest.encode();
        let read = JobManifest::decode(&bytes).and_then(|read| match read.number == self.number {
            true if bytes.len() as u64 <= CHECKPOINT_MANIFEST_BYTES_MAX => Ok(()),
            true => Err(format!("its {} bytes are too many", bytes.len())),
            false => Err(format!("it is that of checkpoint {}", read.number)),
        });
        read.map_err(|why| CheckpointDirError::damaged(&path, format!("the manifest is not sound: {why}")))?;
        if let Some(parent) = manifest.parent {
            let parent = self.directory.load(parent)?;
            manifest.check_follows(&parent).map_err(|why| CheckpointDirError::damaged(&path, why))?;
        }
        check_file_lengths(manifest, &self.directory.files(self.number)?, &self.path)?;
        let published = self.directory.store().publish(&folder_name(self.number), MANIFEST, &bytes);
        published.map_err(CheckpointDirError::io("writing", &path))
    }
}
