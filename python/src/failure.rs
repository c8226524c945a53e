//! Failures of calls, and the Python exceptions that they become. The exit codes are those of the command
//! (cli/src/failure.rs).

use gannet::storage::{CheckpointError, OpenError};
use gannet::worker::WorkerError;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Which exception a failure becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `InputError`: a bad argument, or input that cannot be used.
    Input,
    /// `PeerError`: a server could not be reached, stalled or refused.
    Peer,
    /// `RowsGoneError`: a server lost rows that it had.
    RowsGone,
    /// `MachineError`: disk, memory, threads.
    Machine,
    /// `ForkError`: the process was forked after it had connected.
    Fork,
}

impl Kind {
    /// The name of the class in `gannet._errors`.
    fn class(self) -> &'static str {
        match self {
            Kind::Input => "InputError",
            Kind::Peer => "PeerError",
            Kind::RowsGone => "RowsGoneError",
            Kind::Machine => "MachineError",
            Kind::Fork => "ForkError",
        }
    }
}

/// Why a call failed. It can be made on any thread, and becomes an exception on a thread of Python.
#[derive(Debug, Clone)]
pub struct CallFailure {
    kind: Kind,
    message: String,
    peer: Option<String>,
}

impl CallFailure {
    /// A failure without a peer.
    pub fn new(kind: Kind, message: impl Into<String>) -> CallFailure {
        CallFailure { kind, message: message.into(), peer: None }
    }

    /// A bad argument, or input that cannot be used.
    pub fn input(message: impl Into<String>) -> CallFailure {
        CallFailure::new(Kind::Input, message)
    }

    /// The client's thread is gone, so the client cannot do anything any more.
    pub fn ended() -> CallFailure {
        let text =
            "the client's thread has ended after an internal error (standard error has it): connect again";
        CallFailure::new(Kind::Machine, text)
    }

    /// The thread that reads a data set is gone.
    pub fn reading_ended() -> CallFailure {
        let text = "the thread that reads the data has ended after an internal error (standard error has it)";
        CallFailure::new(Kind::Machine, text)
    }

    /// Which exception it becomes.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<WorkerError> for CallFailure {
    fn from(error: WorkerError) -> CallFailure {
        let kind = match &error {
            WorkerError::Checkpoint(CheckpointError::Io { .. }) => Kind::Machine,
            WorkerError::Checkpoint(_) => Kind::Input,
            WorkerError::CheckpointDir(error) if error.is_system() => Kind::Machine,
            WorkerError::CheckpointDir(_) => Kind::Input,
            WorkerError::CutFiles(_) => Kind::Machine,
            WorkerError::Call(_) => Kind::Input,
            WorkerError::Schema(OpenError::Schema(_)) => Kind::Input,
            WorkerError::Schema(_) => Kind::Machine,
            WorkerError::Forgot { .. } | WorkerError::Gone(_) => Kind::RowsGone,
            _ => Kind::Peer,
        };
        CallFailure { kind, message: with_arguments(&error.to_string()), peer: peer_of(&error) }
    }
}

/// Messages of workers name flags of the command. The arguments of this package have names of their own. Flags of
/// servers stay: whoever starts a server gives it flags.
pub fn with_arguments(message: &str) -> String {
    const FLAGS: [(&str, &str); 17] = [
        ("--peer-timeout", "timeout="),
        ("--worker-timeout", "worker_timeout="),
        ("--token-file ", "token_file="),
        ("--token-file", "token_file="),
        ("give the worker --tls-ca ", "give tls_ca="),
        ("--tls-ca", "tls_ca="),
        ("--tls-name", "tls_name="),
        ("our --tls-cert", "our tls_cert="),
        ("give --tls-cert FILE and --tls-key FILE, signed", "give tls_cert= and tls_key=, signed"),
        ("use --transport tcp", "use transport=\"tcp\""),
        ("try another --transport", "try another transport="),
        ("--sync bsp", "sync=\"bsp\""),
        ("--ps-hosts", "servers="),
        ("--task-index", "rank="),
        ("give the folder that --out named", "give the folder that Client.save has written"),
        ("use fewer --shards", "use fewer shards="),
        // That of a server.
        ("start it with token_file=", "start it with --token-file"),
    ];
    FLAGS.iter().fold(message.to_owned(), |text, (flag, argument)| text.replace(flag, argument))
}

/// The address and thread of the server that an error is about.
fn peer_of(error: &WorkerError) -> Option<String> {
    match error {
        WorkerError::PeerLost { peer, .. }
        | WorkerError::Refused { peer, .. }
        | WorkerError::Forgot { peer, .. }
        | WorkerError::Protocol { peer, .. }
        | WorkerError::Impostor { peer } => Some(peer.to_string()),
        WorkerError::Unproved { source, .. } => peer_of(source),
        _ => None,
    }
}

impl From<CallFailure> for PyErr {
    fn from(failure: CallFailure) -> PyErr {
        Python::attach(|py| {
            let made = || -> PyResult<PyErr> {
                let class = py.import("gannet._errors")?.getattr(failure.kind.class())?;
                let named = PyDict::new(py);
                named.set_item("peer", failure.peer.as_deref())?;
                Ok(PyErr::from_value(class.call((failure.message.as_str(),), Some(&named))?))
            };
            made().unwrap_or_else(|error| error)
        })
    }
}

/// A `TypeError` of Python.
pub fn wrong_type(message: String) -> PyErr {
    PyTypeError::new_err(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_arguments() {
        for (text, want) in [
            ("has not answered for 1.0 s (--peer-timeout): it", "has not answered for 1.0 s (timeout=): it"),
            ("--token-file job.token: its mode", "token_file=job.token: its mode"),
            ("has the token of --token-file: it", "has the token of token_file=: it"),
            ("TLS: give the worker --tls-ca FILE", "TLS: give tls_ca=FILE"),
            (
                "it does not trust our --tls-cert: an authority of its --tls-client-ca",
                "it does not trust our tls_cert=: an authority of its --tls-client-ca",
            ),
            (
                "start it on the folder that it had (--data-dir)",
                "start it on the folder that it had (--data-dir)",
            ),
            ("it has no token: start it with --token-file", "it has no token: start it with --token-file"),
            ("have the same --task-index", "have the same rank="),
            ("give the folder that --out named", "give the folder that Client.save has written"),
        ] {
            assert_eq!(with_arguments(text), want);
        }
    }
}
