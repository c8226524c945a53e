//! The role of a process that the launcher starts.

use crate::failure::{Failure, SYSTEM};

/// Which process of a job a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRole {
    Coordinator,
    Server(u32),
    Worker(u32),
}

impl ProcessRole {
    /// For people.
    pub fn name(self) -> String {
        match self {
            ProcessRole::Coordinator => "coordinator".into(),
            ProcessRole::Server(index) => format!("ps {index}"),
            ProcessRole::Worker(index) => format!("worker {index}"),
        }
    }

    pub fn is_worker(self) -> bool {
        matches!(self, ProcessRole::Worker(_))
    }
}

pub fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(SYSTEM, format!("{what}: {error}"))
}
