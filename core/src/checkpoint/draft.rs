//! A checkpoint that is being written. It becomes one when its manifest is published.

use crate::checkpoint::directory::{CheckpointDir, MANIFEST, check_lengths, folder_name};
use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::manifest::{JobManifest, StateEntry};
use crate::limits::{CHECKPOINT_MANIFEST_BYTES_MAX, CHECKPOINT_NUMBER_TRIES, CHECKPOINT_STATE_BYTES_MAX};
use std::io;
use std::path::{Path, PathBuf};

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
