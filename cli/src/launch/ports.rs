//! Free ports of this machine, for the servers of a job.

use crate::failure::{Failure, SYSTEM};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Ports without a listener. While it lives, no other launcher of this machine gets them.
pub struct Ports {
    at: String,
    numbers: Vec<u16>,
    /// Sockets whose names claim the ports.
    _claims: Vec<UnixListener>,
}

/// The first port that is tried.
const FIRST: u16 = 10_000;

/// Linux chooses the ports of connections from here on, if it does not say otherwise.
const EPHEMERAL: u16 = 32_768;

impl Ports {
    /// Claims so many ports at an address of this machine. They are below those that the system chooses for
    /// connections, so a connection does not take the port of a server that is started again.
    pub fn claim(at: &str, count: usize) -> Result<Ports, Failure> {
        let end = ephemeral().unwrap_or(EPHEMERAL).max(FIRST + 1);
        let range = usize::from(end - FIRST);
        let begin = std::process::id() as usize * 97;
        let (mut numbers, mut claims) = (Vec::new(), Vec::new());
        for step in 0..range {
            if numbers.len() == count {
                break;
            }
            let port = FIRST + ((begin + step) % range) as u16;
            let Ok(name) = SocketAddr::from_abstract_name(format!("gannet-launch-port-{port}")) else {
                continue;
            };
            let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
            if TcpListener::bind((at, port)).is_ok() {
                claims.push(claim);
                numbers.push(port);
            }
        }
        // With a coordinator the order of the addresses says which place a server has. So server 0 comes first, and
        // finds its folder when the job is launched again with other ports. All ports have five digits.
        numbers.sort_unstable();
        match numbers.len() == count {
            true => Ok(Ports { at: at.to_owned(), numbers, _claims: claims }),
            false => Err(Failure::new(
                SYSTEM,
                format!(
                    "{count} free ports are needed at {at}, and this machine has {} from {FIRST} to {end}: check that \
                     {at} is an address of this machine",
                    numbers.len()
                ),
            )),
        }
    }

    /// The addresses, in ascending order.
    pub fn addrs(&self) -> Vec<String> {
        self.numbers.iter().map(|port| format!("{}:{port}", self.at)).collect()
    }

    /// The ports, in ascending order.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }
}

/// The first port that the system chooses for connections.
fn ephemeral() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_launchers_get_different_ports() {
        let (one, other) = (Ports::claim("127.0.0.1", 3).unwrap(), Ports::claim("127.0.0.1", 3).unwrap());
        let mut all: Vec<String> = one.addrs().into_iter().chain(other.addrs()).collect();
        assert!(one.addrs().is_sorted());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6);
    }
}
