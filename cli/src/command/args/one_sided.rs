//! Whether rows are read without asking their server.

use clap::{Args, ValueEnum};
use gannet::worker::OneSided;

/// What `--one-sided` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSidedName {
    /// Where it costs less than asking: in the memory of a server on this host, and over RDMA where the devices of both sides read
    /// by themselves (software devices such as soft-RoCE do not).
    Auto,
    /// Wherever it can be done, over software devices too.
    Always,
    /// Nowhere: the server is asked for all rows.
    Never,
}

/// Whether rows are read without asking their server.
#[derive(Args, Debug, Clone, Copy)]
pub struct OneSidedArgs {
    /// When a worker reads rows in its server's memory, without asking it [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub one_sided: Option<OneSidedName>,
}

impl OneSidedArgs {
    /// What was chosen.
    pub fn choice(self) -> OneSided {
        match self.one_sided {
            None | Some(OneSidedName::Auto) => OneSided::Auto,
            Some(OneSidedName::Always) => OneSided::Always,
            Some(OneSidedName::Never) => OneSided::Never,
        }
    }

    /// The flag again, for a process that this one starts.
    pub fn flag(self) -> Option<String> {
        let value = self.one_sided?.to_possible_value()?;
        Some(format!("--one-sided={}", value.get_name()))
    }
}
