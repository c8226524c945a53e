//! `--wire`: how weights and gradients travel between a worker and its servers.

use clap::{Args, ValueEnum};
use gannet::worker::WireType;

/// What `--wire` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireName {
    /// 4 bytes a float.
    F32,
    /// 2 bytes for each weight that is pulled and each gradient that is pushed (--push gradient). What the rounding of
    /// a gradient leaves out is added to the next gradient of its key. Stored rows stay as they are.
    F16,
}

/// How weights and gradients travel.
#[derive(Args, Debug, Clone, Copy)]
pub struct WireArgs {
    /// How floats travel [default: f32]
    ///
    /// It is about weights that this worker pulls, and gradients that it pushes.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub wire: Option<WireName>,
}

impl WireArgs {
    /// The choice of the flag.
    pub fn choice(self) -> WireType {
        match self.wire {
            None | Some(WireName::F32) => WireType::F32,
            Some(WireName::F16) => WireType::F16,
        }
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> Option<String> {
        let value = self.wire?.to_possible_value()?;
        Some(format!("--wire={}", value.get_name()))
    }
}
