//! Ports for the servers of tests: each is of one test, whatever runs beside it.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// An address where nobody listens. No other test process on this machine gets it, as long as this process runs, and
/// the system never chooses its port for a connection.
pub fn free_addr() -> String {
    /// Sockets whose names say which ports the processes of tests have.
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    /// Below the ports that Linux chooses for connections (`ip_local_port_range`).
    const PORTS: std::ops::Range<u16> = 12_000..32_000;
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    let first = std::process::id() as usize * 97 + claims.len();
    for step in 0..PORTS.len() {
        let port = PORTS.start + ((first + step) % PORTS.len()) as u16;
        let name = SocketAddr::from_abstract_name(format!("gannet-tests-port-{port}")).unwrap();
        let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            claims.push(claim);
            return format!("127.0.0.1:{port}");
        }
    }
    panic!("each of the ports {PORTS:?} is in use");
}
