//! Reads the rows of a checkpoint, also while saves replace it: a reader gets the old rows or the new ones, never a
//! mixture.
//!
//! A save removes the row files of the checkpoint before it. A reader therefore opens all files first, which takes less
//! time than a save, and begins again if one is gone meanwhile. Then it reads what it has open.

use crate::limits::{MODEL_FILES_HELD_MAX, MODEL_OPENS_MAX};
use crate::own_files;
use crate::table::models::checkpoint::{
    Checkpoint, CheckpointError, FileV1, HEAD, ROWS_MAGIC, model_io_error,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Rows that a reader passes on at a time.
const ROWS_A_BLOCK: usize = 4096;

impl Checkpoint {
    /// Opens a checkpoint with its row files. [`read`](Self::read) then finds its rows, also if a save replaces it.
    ///
    /// A checkpoint of more than 512 files is opened without them: see [`CheckpointError::Replaced`].
    ///
    /// ```
    /// use gannet_core::{Checkpoint, CheckpointWriter, Schema};
    /// use gannet_optim::{Add, Rule};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let save = |clicks| -> Result<u64, gannet_core::CheckpointError> {
    ///     let mut writer = CheckpointWriter::create(folder.path(), &schema)?;
    ///     writer.shard(0, &[7], &[clicks])?;
    ///     writer.finish()
    /// };
    /// save(0.5)?;
    /// let checkpoint = Checkpoint::open_to_read(folder.path())?;
    /// save(1.5)?;
    /// checkpoint.read(|keys, rows| assert_eq!((keys, rows), (&[7][..], &[0.5][..])))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open), or a file is missing or cannot be opened.
    pub fn open_to_read(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::open_tables(folder, |_| Vec::new()).map(|(checkpoint, _)| checkpoint)
    }

    /// As [`open_to_read`](Self::open_to_read), with the other tables of a model: `others` names the folder of each, by
    /// what the checkpoint in `folder` says. All are of one save, if the folders of two saves have different names and
    /// `folder` is saved last.
    ///
    /// # Errors
    /// As [`open_to_read`](Self::open_to_read), for each of them.
    pub fn open_tables(
        folder: &Path,
        others: impl Fn(&Checkpoint) -> Vec<PathBuf>,
    ) -> Result<(Checkpoint, Vec<Checkpoint>), CheckpointError> {
        let mut opens = 1;
        loop {
            let mut first = Checkpoint::open(folder)?;
            match first.hold_with(&others) {
                Ok(others) => return Ok((first, others)),
                Err(_) if opens < MODEL_OPENS_MAX && first.is_replaced() => opens += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the row files of this table and of the others.
    fn hold_with(
        &mut self,
        others: impl Fn(&Checkpoint) -> Vec<PathBuf>,
    ) -> Result<Vec<Checkpoint>, CheckpointError> {
        let mut left = MODEL_FILES_HELD_MAX;
        self.hold(&mut left)?;
        let open = |folder: PathBuf| -> Result<Checkpoint, CheckpointError> {
            let mut other = Checkpoint::open(&folder)?;
            other.hold(&mut left)?;
            Ok(other)
        };
        others(self).into_iter().map(open).collect()
    }

    /// Opens the row files, if so many may still be open.
    fn hold(&mut self, left: &mut usize) -> Result<(), CheckpointError> {
        let files = &self.manifest.files;
        let Some(rest) = left.checked_sub(files.len()) else { return Ok(()) };
        self.held = files.iter().map(|file| self.open_file(file)).collect::<Result<_, _>>()?;
        *left = rest;
        Ok(())
    }

    /// Whether the folder has another checkpoint now, or none.
    fn is_replaced(&self) -> bool {
        match Checkpoint::open(&self.folder) {
            Ok(now) => now.manifest != self.manifest,
            Err(error) => matches!(error, CheckpointError::Missing(_)),
        }
    }

    /// Opens a row file.
    fn open_file(&self, file: &FileV1) -> Result<File, CheckpointError> {
        let path = self.path_of(file)?;
        let damaged = |why: &str| CheckpointError::Damaged { path: path.clone(), why: why.into() };
        match own_files::open_regular(&path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(damaged(&error.to_string())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(model_io_error("opening", &path)(error))
            }
            Err(_) if self.is_replaced() => Err(CheckpointError::Replaced { path }),
            Err(_) => Err(damaged("the manifest names this file, but it does not exist")),
            Ok(file) => Ok(file),
        }
    }

    /// The path of a row file, which is in the folder itself.
    fn path_of(&self, file: &FileV1) -> Result<PathBuf, CheckpointError> {
        match file.name.contains(['/', '\\']) {
            false => Ok(self.folder.join(&file.name)),
            true => Err(CheckpointError::Damaged {
                path: self.folder.join(crate::table::models::checkpoint::MANIFEST),
                why: format!("it names {:?}, which is not a file of this folder", file.name),
            }),
        }
    }

    /// Reads every row file. Checks each file whole and only then passes its rows to `rows`, in blocks of at most 4096:
    /// keys, and [`Schema::floats`](crate::Schema::floats) floats for each.
    ///
    /// # Errors
    /// A file is missing, has another length, or does not match its checksum. [`CheckpointError::Replaced`]: a save has
    /// removed it, and it was not open ([`open_to_read`](Self::open_to_read)).
    pub fn read(&self, mut rows: impl FnMut(&[u64], &[f32])) -> Result<(), CheckpointError> {
        for (at, file) in self.manifest.files.iter().enumerate() {
            let bytes = match self.held.get(at) {
                Some(held) => self.whole(file, held)?,
                None => self.whole(file, &self.open_file(file)?)?,
            };
            self.pass_on(file, &bytes, &mut rows);
        }
        Ok(())
    }

    /// Reads a row file, and checks it.
    fn whole(&self, file: &FileV1, opened: &File) -> Result<Vec<u8>, CheckpointError> {
        let path = self.path_of(file)?;
        let length = opened.metadata().map_err(model_io_error("reading", &path))?.len();
        let damaged = |why: String| CheckpointError::Damaged { path: path.clone(), why };
        let want = (file.rows as usize).checked_mul(8 + 4 * self.schema.floats());
        let want = want.and_then(|bytes| bytes.checked_add(HEAD)).unwrap_or(usize::MAX);
        if want as u64 != length {
            return Err(damaged(format!("the file has {length} bytes, but {want} were saved")));
        }
        let mut bytes = vec![0; want];
        opened.read_exact_at(&mut bytes, 0).map_err(model_io_error("reading", &path))?;
        match crc32c::crc32c(&bytes) == file.crc && bytes[..8] == *ROWS_MAGIC {
            true => Ok(bytes),
            false => Err(damaged("its checksum is wrong".into())),
        }
    }

    /// Passes on the rows of a file that was checked.
    fn pass_on(&self, file: &FileV1, bytes: &[u8], rows: &mut impl FnMut(&[u64], &[f32])) {
        let floats = self.schema.floats();
        let (keys, values) = bytes[HEAD..].split_at(8 * file.rows as usize);
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for (keys, values) in keys.chunks(8 * ROWS_A_BLOCK).zip(values.chunks(4 * floats * ROWS_A_BLOCK)) {
            k.clear();
            k.extend(keys.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())));
            v.clear();
            v.extend(values.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap_or_default())));
            rows(&k, &v);
        }
    }
}
