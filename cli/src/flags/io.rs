//! How a process moves its bytes over TCP.

use clap::{Args, ValueEnum};
use gannet::transport::{Io, Tcp};

/// What `--io` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoName {
    /// The one that was faster for training: epoll. docs/transports.md says when uring is faster.
    Auto,
    /// io_uring. If the system refuses it, epoll is used and the log says so.
    Uring,
    /// Plain sockets and epoll.
    Epoll,
}

/// How a process moves its bytes over TCP.
#[derive(Args, Debug, Clone, Copy)]
pub struct IoArgs {
    /// How bytes move over TCP.
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoName,
}

impl IoArgs {
    /// The network that the flag chose.
    pub fn net(self) -> Tcp {
        Tcp::new().with_io(match self.io {
            IoName::Auto => Io::Auto,
            IoName::Uring => Io::Uring,
            IoName::Epoll => Io::Epoll,
        })
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> String {
        let name = self.io.to_possible_value();
        format!("--io={}", name.as_ref().map_or("auto", |value| value.get_name()))
    }
}
