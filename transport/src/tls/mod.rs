//! TLS 1.3 around TCP streams. The server proves its identity with its certificate, and no machine on the path
//! can read or change bytes.
//!
//! [`TlsServer`] and [`TlsClient`] are made from PEM files and passed to [`crate::tcp::Tcp`]. Its streams then
//! carry the same frames. A worker completes the TLS handshake while it connects. A listener completes it while
//! the server waits for frames, so the time limit for a first frame also covers the handshake.

mod config;
mod error;
mod session;

pub use config::{TlsClient, TlsServer};
pub use error::{TlsError, TlsFileError};
pub(crate) use session::TlsSession;
