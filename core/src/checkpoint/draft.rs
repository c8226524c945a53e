//! A checkpoint that is being written. It becomes one when its manifest is published.

use crate::checkpoint::directory::{CheckpointDir, check_lengths};
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::{JobManifest, StateEntry};
use crate::checkpoint::names::{MANIFEST, folder_name};
use crate::limits::{CHECKPOINT_MANIFEST_BYTES_MAX, CHECKPOINT_NUMBER_TRIES, CHECKPOINT_STATE_BYTES_MAX};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file of a draft that names who writes it.
const SAVER: &str = "SAVER";
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
        let written = self.store().publish(&folder_name(draft.number), SAVER, saver.as_bytes());
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
                Ok(bytes)
            }
        }
    }

    /// Begins a checkpoint with the next number. No other process gets the same one.
    ///
    /// # Errors
    /// Its folder cannot be made.
    pub fn begin(&self) -> Result<Draft, CheckpointDirError> {
        let mut number = self.numbers()?.last().map_or(0, |last| *last);
        for _ in 0..CHECKPOINT_NUMBER_TRIES {
            number = number.saturating_add(1);
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

    /// Writes a state file, synced. Returns what the manifest says of it.
    ///
    /// # Errors
    /// The name is not allowed, the bytes are too many, or the file cannot be written.
    pub fn state(&self, name: &str, bytes: &[u8]) -> Result<StateEntry, CheckpointDirError> {
        let path = self.path.join(format!("{name}.state"));
        let allowed = crate::schema::table_schema::Schema::check_name(name).is_ok();
        if !allowed || bytes.len() as u64 > CHECKPOINT_STATE_BYTES_MAX {
            let why = format!(
                "a state is named as a table is, and has at most {CHECKPOINT_STATE_BYTES_MAX} bytes; this one has {}",
                bytes.len()
            );
            let source = io::Error::new(io::ErrorKind::InvalidInput, why);
            return Err(CheckpointDirError::Io { what: "writing", path, source });
        }
        let folder = folder_name(self.number);
        let file = self.directory.store().create(&folder, &format!("{name}.state"));
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
        check_lengths(manifest, &self.directory.files(self.number)?, &self.path)?;
        let published = self.directory.store().publish(&folder_name(self.number), MANIFEST, &bytes);
        published.map_err(CheckpointDirError::io("writing", &path))
    }
}
