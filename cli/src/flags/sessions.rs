//! Limits of a server's sessions.

use crate::flags::memory::size;
use bytesize::ByteSize;
use clap::Args;
use gannet::Transports;
use gannet::server::SessionLimits;
use std::time::Duration;

/// Limits of sessions. docs/security.md says how they work together.
#[derive(Args, Debug, Clone)]
pub struct SessionArgs {
    /// Server: most sessions of each thread. A worker has one session with every thread. Default: 4096.
    #[arg(long, value_name = "N")]
    pub sessions_max: Option<usize>,
    /// Server: seconds after which a silent session is closed. Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub session_silence: Option<u64>,
    /// Server: memory for the buffers of all sessions. When it is used up, sessions wait. Default: 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub session_memory: Option<ByteSize>,
    /// Server: memory for the keysets of all sessions. When it is used up, pushes carry their keys. Default: 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub keyset_memory: Option<ByteSize>,
    /// Server: pinned memory for the RDMA rings of all sessions, 1 MiB each. When it is used up, new workers use tcp.
    /// Default: 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub rdma_memory: Option<ByteSize>,
    /// Server: requests that a session may have in flight. Default: 1024.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub credit_requests: Option<u32>,
}

impl SessionArgs {
    /// The first of these flags that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let flags = [
            (self.sessions_max.is_some(), "--sessions-max"),
            (self.session_silence.is_some(), "--session-silence"),
            (self.session_memory.is_some(), "--session-memory"),
            (self.keyset_memory.is_some(), "--keyset-memory"),
            (self.rdma_memory.is_some(), "--rdma-memory"),
            (self.credit_requests.is_some(), "--credit-requests"),
        ];
        flags.iter().find(|(is_given, _)| *is_given).map(|(_, flag)| *flag)
    }

    /// The server's network, with this limit of RDMA memory.
    pub fn net(&self, net: Transports) -> Transports {
        match self.rdma_memory {
            Some(size) => net.with_rdma_memory(size.as_u64() as usize),
            None => net,
        }
    }

    /// The limits, with defaults for flags that were not given.
    pub fn limits(&self) -> SessionLimits {
        let usual = SessionLimits::default();
        let bytes = |size: Option<ByteSize>, usual: usize| size.map_or(usual, |size| size.as_u64() as usize);
        SessionLimits {
            sessions: self.sessions_max.unwrap_or(usual.sessions),
            credit_frames: self.credit_requests.unwrap_or(usual.credit_frames),
            silence: self.session_silence.map_or(usual.silence, Duration::from_secs),
            buffer_bytes: bytes(self.session_memory, usual.buffer_bytes),
            keyset_bytes: bytes(self.keyset_memory, usual.keyset_bytes),
            ..usual
        }
    }
}
