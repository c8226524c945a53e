//! Why a checkpoint cannot be restored.

use gannet_core::{CheckpointDirError, OpenError, RestoreRowsError};
use std::io;
use std::path::PathBuf;

/// Why a server cannot be restored from a checkpoint. The server does not listen then.
///
/// ```
/// use gannet_core::CheckpointDir;
/// use gannet_server::{RestoreError, RestoreSource, Server, ServerConfig, ServerError};
/// # use gannet_transport::multi::Transports;
///
/// # let folder = tempfile::tempdir()?;
/// let directory = CheckpointDir::open(folder.path())?;
/// let restore = Some(RestoreSource::new(&directory, 0, 1));
/// let config = ServerConfig { restore, ..ServerConfig::new("127.0.0.1:0") };
/// match Server::start(Transports::new(), config) {
///     Err(ServerError::Restore(RestoreError::NoCheckpoint(path))) => assert_eq!(path, folder.path()),
///     Err(error) => println!("{error}"),
///     Ok(server) => println!("serving at {}", server.addr()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointDirError),
    /// The directory has no finished checkpoint.
    #[error("{}: no checkpoint was finished here; start without a restore to begin anew", .0.display())]
    NoCheckpoint(PathBuf),
    /// There is no such server.
    #[error("server {server} of {servers}: servers are counted from 0, so the last one is {}", .servers.saturating_sub(1))]
    Place {
        /// The server's number.
        server: u32,
        /// How many there are.
        servers: u32,
    },
    /// The tables cannot have so many shards.
    #[error("{shards} shards: {why}")]
    Shards {
        /// The requested number.
        shards: u32,
        /// Why not.
        why: String,
    },
    /// A table cannot be made or opened.
    #[error("table {table:?} cannot be restored: {why}")]
    Table {
        /// Its name.
        table: String,
        /// Why not, and what to do.
        why: String,
        /// The system failed, for example because the disk is full.
        system: bool,
    },
    /// A row cannot be restored.
    #[error("{}: {source}{}", file.display(), rows_remedy(.source))]
    Rows {
        /// The row file.
        file: PathBuf,
        /// Why not.
        source: RestoreRowsError,
    },
    /// A state of the checkpoint cannot be used.
    #[error("{}: {why}", file.display())]
    State {
        /// The state file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The data folder holds something else.
    #[error("{}: {why}", folder.display())]
    Folder {
        /// The data folder.
        folder: PathBuf,
        /// What it holds, and what to do.
        why: String,
    },
    /// A restore into this data folder was interrupted.
    #[error(
        "{}: a restore of {checkpoint} into this folder did not come to its end: restore it again (--restore), or move \
         the folder away",
        folder.display()
    )]
    Interrupted {
        /// The data folder.
        folder: PathBuf,
        /// Which checkpoint, in words.
        checkpoint: String,
    },
    /// The system reports an error.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The images in the data folder cannot be read.
    #[error(transparent)]
    Images(#[from] OpenError),
}

impl RestoreError {
    /// Whether the checkpoint was removed while it was read, so that there is a newer one.
    pub(crate) fn is_pruned(&self) -> bool {
        matches!(self, RestoreError::Checkpoint(error) if error.is_pruned())
    }

    /// Whether the system failed or has no more memory, so that the checkpoint and the flags may be right.
    pub fn is_system(&self) -> bool {
        match self {
            RestoreError::Io { .. } | RestoreError::Images(_) => true,
            RestoreError::Checkpoint(error) => error.is_system(),
            RestoreError::Table { system, .. } => *system,
            RestoreError::Rows { source, .. } => matches!(source, RestoreRowsError::Push(_)),
            _ => false,
        }
    }
}

/// What to do when rows cannot be restored.
fn rows_remedy(source: &RestoreRowsError) -> &'static str {
    match source {
        RestoreRowsError::Push(_) => {
            "; give the server more memory (--memory-limit), or restore onto more servers"
        }
        _ => "; restore another checkpoint",
    }
}
