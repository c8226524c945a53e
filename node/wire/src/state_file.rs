//! Files of state: small files that are rewritten whole for each change. The file before stays until the new one is on
//! the disk, so a process or a machine that dies leaves one of the two.
//!
//! ```text
//! 0   8  what it is; the last byte is the version of the format, a digit
//! 8   4  crc32c of what follows byte 16
//! 12  4  0
//! 16     a control message of that version
//! ```
//! A checkpoint has the same bytes as its states.

use crate::messages::control;
use gannet_core::own_files;
use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Error;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

const HEAD: usize = 16;

/// The last byte of a magic number is the version of the format.
const VERSION_AT: usize = 7;

/// A kind of files of state, which hold a `T`.
#[derive(Debug)]
pub struct StateFile<T> {
    magic: &'static [u8; 8],
    /// What it is, in the words of an error.
    what: &'static str,
    /// What to do with a file that cannot be put back, in words that follow "or".
    remedy: &'static str,
    holds: PhantomData<fn() -> T>,
}

/// Why a file of state cannot be read or written.
///
/// ```
/// use gannet_wire::StateFileError;
/// use gannet_wire::state_file::StateFile;
///
/// const NUMBER: StateFile<u64> = StateFile::new(b"GNTDOCS1", "the number", "count again");
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("NUMBER");
/// assert_eq!(NUMBER.load(&path)?, None);
/// NUMBER.save(&path, &7)?;
/// assert_eq!(NUMBER.load(&path)?, Some(7));
/// std::fs::write(&path, "this is no number of Gannet's")?;
/// assert!(matches!(NUMBER.load(&path), Err(StateFileError::Torn { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    /// The system reported an error.
    #[error("{what} {}: {source}; {}", path.display(), system_remedy(source))]
    Io {
        /// What the file is.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is damaged, or is something else.
    #[error("{what} {}: {why}; put the file back as it was, or {remedy}", path.display())]
    Torn {
        /// What the file should be.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// What else to do.
        remedy: &'static str,
    },
    /// The file has another version of the format.
    #[error("{what} {}: another version of gannet wrote it; run the gannet that wrote it, or {remedy}", path.display())]
    Version {
        /// What the file is.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What else to do.
        remedy: &'static str,
    },
    /// The file is whole, and of another job than the flags are.
    #[error("{why}")]
    OtherJob {
        /// What differs, and what to do.
        why: String,
    },
}

impl StateFileError {
    /// Whether the system failed, so that the file and the flags may be right.
    pub fn is_system(&self) -> bool {
        matches!(self, StateFileError::Io { .. })
    }
}

/// What to do about an error of the system.
pub fn system_remedy(error: &io::Error) -> &'static str {
    use io::ErrorKind::{
        AlreadyExists, FileTooLarge, IsADirectory, NotADirectory, PermissionDenied, QuotaExceeded,
        ReadOnlyFilesystem, StorageFull,
    };
    match error.kind() {
        AlreadyExists | IsADirectory | NotADirectory => "something else has that name: move it away",
        FileTooLarge => "raise the limit on the size of files (ulimit -f)",
        StorageFull => "free some space",
        QuotaExceeded => "free some space, or raise the user's quota",
        PermissionDenied => "give the user of this process the right to write there",
        ReadOnlyFilesystem => "mount that file system for writing, or name another folder",
        _ => "free some space, or check the folder's permissions",
    }
}

/// Whether a file begins as those of another version of the format with this magic number do. The last byte is then
/// another digit; a file with any other byte there is damaged.
pub fn is_of_another_version(magic: &[u8; 8], bytes: &[u8]) -> bool {
    bytes.starts_with(&magic[..VERSION_AT])
        && bytes
            .get(VERSION_AT)
            .is_some_and(|version| version.is_ascii_digit() && *version != magic[VERSION_AT])
}

impl<T> StateFile<T> {
    /// Files that begin with `magic`, whose last byte is a digit. `what` and `remedy` are for errors: what it is, and
    /// what follows "put the file back as it was, or".
    pub const fn new(magic: &'static [u8; 8], what: &'static str, remedy: &'static str) -> StateFile<T> {
        assert!(magic[VERSION_AT].is_ascii_digit(), "the version is a digit");
        StateFile { magic, what, remedy, holds: PhantomData }
    }

    /// What files of all versions begin with.
    pub const fn beginning(&self) -> &'static [u8] {
        self.magic.split_at(VERSION_AT).0
    }

    fn version(&self) -> u32 {
        u32::from(self.magic[VERSION_AT] - b'0')
    }

    /// An error of the system, with this file.
    pub fn io_error(&self, path: &Path) -> impl FnOnce(io::Error) -> StateFileError + use<T> {
        let (what, path) = (self.what, path.to_path_buf());
        move |source| StateFileError::Io { what, path, source }
    }

    /// Removes a file. Returns whether there was one.
    ///
    /// # Errors
    /// The system reports an error, or a file of the user has the name.
    pub fn remove(&self, path: &Path) -> io::Result<bool> {
        own_files::remove_own(path, &[self.beginning()])
    }

    fn is_of_another_version(&self, bytes: &[u8]) -> bool {
        bytes.len() >= HEAD && is_of_another_version(self.magic, bytes)
    }

    fn payload<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let Some((head, payload)) = bytes.split_first_chunk::<HEAD>() else {
            return Err("it is too short".into());
        };
        if self.is_of_another_version(bytes) {
            return Err("another version of gannet wrote it".into());
        }
        if !head.starts_with(self.magic) {
            return Err(format!("it does not begin as {} does", self.what));
        }
        match head[8..12] == crc32c::crc32c(payload).to_le_bytes() && head[12..] == [0; 4] {
            true => Ok(payload),
            false => Err("its checksum is wrong".into()),
        }
    }
}

impl<T> StateFile<T>
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, Error>>,
{
    /// The bytes of a file.
    pub fn encode(&self, state: &T) -> Vec<u8> {
        let payload = control::seal_as(self.version(), state);
        let mut bytes = Vec::with_capacity(HEAD + payload.len());
        bytes.extend_from_slice(self.magic);
        bytes.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&payload);
        bytes
    }

    /// Replaces a file so that it survives the process and the machine: syncs the new file before it renames it, and
    /// syncs the new name before it returns.
    ///
    /// # Errors
    /// The system reports an error, or a file of the user has the name. The old file may be there, or the new one.
    pub fn save(&self, path: &Path, state: &T) -> Result<(), StateFileError> {
        own_files::replace(path, self.beginning(), &self.encode(state)).map_err(self.io_error(path))
    }

    /// As [`save`](Self::save), for a file that only needs to survive the process. A machine that goes down may leave a
    /// torn one.
    ///
    /// # Errors
    /// As for `save`.
    pub fn save_unsynced(&self, path: &Path, state: &T) -> Result<(), StateFileError> {
        own_files::replace_unsynced(path, self.beginning(), &self.encode(state)).map_err(self.io_error(path))
    }
}

impl<T> StateFile<T>
where
    T: Archive,
    T::Archived: for<'a> CheckBytes<HighValidator<'a, Error>> + Deserialize<T, HighDeserializer<Error>>,
{
    /// The state in the bytes of a file.
    ///
    /// # Errors
    /// They are no such file, one of another version, or a torn one: in words.
    pub fn decode(&self, bytes: &[u8]) -> Result<T, String> {
        control::open_as(self.version(), self.payload(bytes)?).map_err(|error| error.to_string())
    }

    /// The state in a file. `None`: there is no file.
    ///
    /// # Errors
    /// The system reports an error, or the file is no such file, of another version, or torn.
    pub fn load(&self, path: &Path) -> Result<Option<T>, StateFileError> {
        let Some(bytes) = own_files::read_whole(path).map_err(self.io_error(path))? else { return Ok(None) };
        self.decode(&bytes).map(Some).map_err(|why| {
            let (what, path, remedy) = (self.what, path.to_path_buf(), self.remedy);
            match self.is_of_another_version(&bytes) {
                true => StateFileError::Version { what, path, remedy },
                false => StateFileError::Torn { what, path, why, remedy },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NUMBER: StateFile<u64> = StateFile::new(b"GNTTEST2", "a test", "count again");

    fn bytes() -> Vec<u8> {
        let payload = [2, 0, 0, 0, 8, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        let mut bytes = b"GNTTEST2".to_vec();
        bytes.extend(crc32c::crc32c(&payload).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_file_is_these_bytes() {
        assert_eq!(NUMBER.encode(&0x0102_0304_0506_0708), bytes());
        assert_eq!(NUMBER.decode(&bytes()), Ok(0x0102_0304_0506_0708));
        assert_eq!(crc32c::crc32c(b"123456789"), 0xE306_9283, "the check value of crc32c");
    }

    #[test]
    fn any_other_bytes_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("STATE");
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = NUMBER.load(&path).unwrap_err();
            assert!(!error.is_system() && error.to_string().contains("STATE"), "{error}");
            let (advice, is_of_version) = match &error {
                StateFileError::Version { .. } => ("run the gannet that wrote it, or count again", true),
                _ => ("put the file back as it was, or count again", false),
            };
            assert!(error.to_string().ends_with(advice), "{error}");
            (NUMBER.decode(bytes).unwrap_err(), is_of_version)
        };
        let whole = bytes();
        for at in 0..whole.len() {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            let wanted = match at {
                0..7 => "it does not begin as a test does",
                7 => "another version of gannet wrote it",
                _ => "its checksum is wrong",
            };
            assert_eq!(refused(&torn), (wanted.into(), at == 7), "byte {at}");
            let short = if at < HEAD { "it is too short" } else { "its checksum is wrong" };
            assert_eq!(refused(&whole[..at]), (short.into(), false), "{at} bytes");
        }
    }

    #[test]
    fn a_file_whose_version_is_no_digit_is_torn_and_not_called_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("STATE");
        for version in [0, b'/', b':', b'x', 0xFF] {
            let mut torn = bytes();
            torn[VERSION_AT] = version;
            fs::write(&path, &torn).unwrap();
            let error = NUMBER.load(&path).unwrap_err();
            assert!(matches!(error, StateFileError::Torn { .. }), "byte {version}: {error}");
            assert_eq!(
                NUMBER.decode(&torn),
                Err("it does not begin as a test does".into()),
                "byte {version}"
            );
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_missing_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("STATE");
        assert_eq!(NUMBER.load(&file).unwrap(), None);
        for number in [1, 2] {
            NUMBER.save(&file, &number).unwrap();
            assert_eq!(NUMBER.load(&file).unwrap(), Some(number));
            NUMBER.save_unsynced(&file, &(number + 10)).unwrap();
            assert_eq!(NUMBER.load(&file).unwrap(), Some(number + 10));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file stays");
        assert!(NUMBER.save(&folder.path().join("no/STATE"), &1).unwrap_err().is_system());
        assert!(NUMBER.load(folder.path()).unwrap_err().is_system(), "a folder is no file");
        assert!(NUMBER.remove(&file).unwrap() && !NUMBER.remove(&file).unwrap());
        fs::write(&file, "a letter of the user").unwrap();
        assert!(NUMBER.remove(&file).is_err() && NUMBER.save(&file, &1).is_err() && file.exists());
    }
}
