//! Files that hold a secret, which only their owner may use.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file with a secret cannot be used. No message contains a byte of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateFileError {
    /// The file cannot be read.
    #[error("{flag} {}: {source}", path.display())]
    Read {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{flag} {}: it is no regular file", path.display())]
    NotAFile {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Users other than its owner may read or change the file.
    #[error("{flag} {0}: its mode is {mode:04o}, so others than its owner may use it; run: chmod 600 {0}", path.display())]
    Exposed {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// The first `most` bytes of a file that only its owner may use. `flag` names it in messages.
///
/// # Errors
/// The file cannot be read, or users other than its owner may use it.
pub fn read_private(flag: &'static str, path: &Path, most: u64) -> Result<Vec<u8>, PrivateFileError> {
    let failed = |source| PrivateFileError::Read { flag, path: path.to_owned(), source };
    // Checked before it is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(PrivateFileError::NotAFile { flag, path: path.to_owned() });
    }
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileError::Exposed { flag, path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
