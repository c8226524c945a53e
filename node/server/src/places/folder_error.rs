//! Why a data folder cannot be used for a place.

use gannet_core::OpenError;
use gannet_wire::StateFileError;
use gannet_wire::state_file::system_remedy;
use std::io;
use std::path::PathBuf;

/// Why a data folder cannot be used for a place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceFolderError {
    /// The system reported an error.
    #[error("{what} {}: {source}; {}", path.display(), system_remedy(source))]
    Io {
        /// What was done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file PLACE cannot be read or written.
    #[error(transparent)]
    Record(#[from] StateFileError),
    /// The folder is of another place.
    #[error(
        "--data-dir {}: it has the rows of {has}, and this server has {wanted}. With a coordinator the alphabetical \
         order of --ps-hosts numbers the places: start each server on the folder of its place",
        folder.display()
    )]
    Other {
        /// The folder.
        folder: PathBuf,
        /// Of which place it is.
        has: String,
        /// Which place the server has.
        wanted: String,
    },
    /// The server has no coordinator, and the folder is of a job that has one.
    #[error(
        "--data-dir {}: it has the rows of {has}, and another server may have newer ones: only a ps with the \
         --coordinator of that job can use it; name another folder",
        folder.display()
    )]
    NoCoordinator {
        /// The folder.
        folder: PathBuf,
        /// Of which place it is.
        has: String,
    },
    /// An image cannot be read.
    #[error(transparent)]
    Images(#[from] OpenError),
}

impl PlaceFolderError {
    /// Whether the system failed, so that the folder and the flags may be right.
    pub fn is_system(&self) -> bool {
        match self {
            PlaceFolderError::Io { .. } | PlaceFolderError::Images(_) => true,
            PlaceFolderError::Record(error) => error.is_system(),
            _ => false,
        }
    }
}
