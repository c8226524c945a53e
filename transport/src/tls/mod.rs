//! TLS 1.3 around tcp streams: who the server is, proved by its certificate, and nothing readable or changed on the way.
//!
//! [`TlsServer`] and [`TlsClient`] are made from PEM files and given to [`crate::tcp::Tcp`]; its streams then carry the
//! same frames. A worker shakes hands while it connects; a listener does so while frames are waited for, so that
//! whoever limits the time to a first frame limits the handshake with it.

mod config;
mod error;
mod session;

pub use config::{TlsClient, TlsServer};
pub use error::{TlsError, TlsFileError};
pub(crate) use session::TlsSession;
