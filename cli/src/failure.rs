//! Failures of a command: a message for users and the documented exit code.

use gannet::server::ServerError;
use gannet::storage::{CheckpointDirError, CheckpointError, OpenError};
use gannet::train::lbfgs::LbfgsError;
use gannet::train::saved::SavedModelError;
use gannet::train::{BackendError, ReadError, TrainError};
use gannet::worker::WorkerError;
use gannet_serve::ServeError;
use std::fmt;

/// An error of the system: disk, memory, threads.
pub const SYSTEM: u8 = 1;

/// Bad input or a bad flag.
pub const INPUT: u8 = 2;

/// A peer could not be reached, stalled, or refused.
pub const PEER: u8 = 3;

/// Stopped by a signal.
pub const STOPPED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// Whether rows of a table are lost, so that no worker of the job can continue.
    pub rows_gone: bool,
    /// Whether a checkpoint was removed while the command read it.
    pub pruned: bool,
    message: String,
}

impl Failure {
    /// A failure with one of the codes above.
    pub fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, rows_gone: false, pruned: false, message: message.into() }
    }

    /// Bad input or a bad flag.
    pub fn input(message: impl Into<String>) -> Failure {
        Failure::new(INPUT, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Failure {
        let code = match &error {
            ServerError::Config { .. } => INPUT,
            ServerError::Restore(error) if !error.is_system() => INPUT,
            ServerError::PlaceFolder(error) if !error.is_system() => INPUT,
            _ => SYSTEM,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Failure {
        let error = match error {
            WorkerError::Checkpoint(error) => return error.into(),
            WorkerError::CheckpointDir(error) => return error.into(),
            other => other,
        };
        let code = match &error {
            WorkerError::Call(_) | WorkerError::Schema(_) => INPUT,
            WorkerError::CutFiles(_) => SYSTEM,
            _ => PEER,
        };
        let rows_gone = matches!(error, WorkerError::Forgot { .. } | WorkerError::Gone(_));
        Failure { rows_gone, ..Failure::new(code, error.to_string()) }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let code = if matches!(error, OpenError::Schema(_)) { INPUT } else { SYSTEM };
        Failure::new(code, error.to_string())
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Failure {
        let code = if matches!(error, CheckpointError::Io { .. }) { SYSTEM } else { INPUT };
        Failure::new(code, error.to_string())
    }
}

impl From<CheckpointDirError> for Failure {
    fn from(error: CheckpointDirError) -> Failure {
        if error.is_forbidden() {
            return Failure::input(format!(
                "{error}; name a folder that this process may use, or change who may use this one"
            ));
        }
        let code = if error.is_system() { SYSTEM } else { INPUT };
        Failure { pruned: error.is_pruned(), ..Failure::new(code, error.to_string()) }
    }
}

impl From<SavedModelError> for Failure {
    fn from(error: SavedModelError) -> Failure {
        match error {
            SavedModelError::Checkpoint(error) => error.into(),
            error => Failure::input(error.to_string()),
        }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Failure {
        let text = error.to_string();
        match error {
            ServeError::Model { error, .. } => Failure::new(Failure::from(error).code, text),
            ServeError::Settings(_) => Failure::input(text),
            ServeError::System(_) => Failure::new(SYSTEM, text),
        }
    }
}

impl From<LbfgsError> for Failure {
    fn from(error: LbfgsError) -> Failure {
        match error {
            LbfgsError::Read(error @ ReadError::Stopped { .. }) => Failure::new(STOPPED, error.to_string()),
            LbfgsError::Backend(error) => error.into(),
            LbfgsError::Read(_) | LbfgsError::Memory { .. } | LbfgsError::NotFinite(_) => {
                Failure::new(INPUT, error.to_string())
            }
            LbfgsError::WorkerLost { .. } | LbfgsError::WorkerLeft { .. } | LbfgsError::ChiefLost { .. } => {
                Failure::new(PEER, error.to_string())
            }
            error => Failure::new(SYSTEM, error.to_string()),
        }
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Failure {
        match error {
            TrainError::Read(error @ ReadError::Stopped { .. }) => Failure::new(STOPPED, error.to_string()),
            TrainError::Read(ReadError::Splits(why)) => Failure::new(PEER, why),
            // The fault is on this machine. Other workers may be able to read the same data.
            TrainError::Read(error @ ReadError::Stalled { .. }) => Failure::new(SYSTEM, error.to_string()),
            TrainError::Read(error) => Failure::new(INPUT, error.to_string()),
            TrainError::Backend(error) => error.into(),
            error @ TrainError::Example { .. } => Failure::new(INPUT, error.to_string()),
            other => Failure::new(SYSTEM, other.to_string()),
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Failure {
        match error {
            BackendError::Worker(error) => error.into(),
            BackendError::Open(error) => error.into(),
            BackendError::Schema(text) => Failure::new(INPUT, text),
            BackendError::Pull(error) => Failure::new(PEER, error.to_string()),
            other => Failure::new(SYSTEM, other.to_string()),
        }
    }
}
