//! `--one-sided`: whether a worker reads rows in its server's memory, without a request.

use clap::{Args, ValueEnum};
use gannet::worker::OneSided;

/// What `--one-sided` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSidedName {
    /// Where the worker measures that it costs less than requests: in the memory of a server on this host, and over
    /// RDMA with hardware devices on both sides (software devices such as soft-RoCE do not count).
    Auto,
    /// Wherever it is possible, also over software devices.
    Always,
    /// Nowhere. The worker requests all rows.
    Never,
}

/// Whether a worker reads rows without a request.
#[derive(Args, Debug, Clone, Copy)]
pub struct OneSidedArgs {
    /// When a worker reads rows in its server's memory instead of sending a request [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub one_sided: Option<OneSidedName>,
}

impl OneSidedArgs {
    /// The choice of the flag.
    pub fn choice(self) -> OneSided {
        match self.one_sided {
            None | Some(OneSidedName::Auto) => OneSided::Auto,
            Some(OneSidedName::Always) => OneSided::Always,
            Some(OneSidedName::Never) => OneSided::Never,
        }
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> Option<String> {
        let value = self.one_sided?.to_possible_value()?;
        Some(format!("--one-sided={}", value.get_name()))
    }
}
