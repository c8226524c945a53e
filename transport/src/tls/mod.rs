//! TLS 1.3 around TCP streams. The server proves who it is by its certificate, and nobody on the way can read or change
//! bytes.
//!
//! [`TlsServer`] and [`TlsClient`] are made from PEM files and given to [`crate::tcp::Tcp`]. Its streams then carry the
//! same frames. A worker shakes hands while it connects. A listener shakes hands while frames are awaited, so the time
//! limit for a first frame also covers the handshake.

mod config;
mod error;
mod session;

pub use config::{TlsClient, TlsServer};
pub use error::{TlsError, TlsFileError};
pub(crate) use session::TlsSession;
