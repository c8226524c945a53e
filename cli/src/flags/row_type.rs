//! `--row-type`: how servers store the weights of rows.

use clap::{Args, ValueEnum};
use gannet::table::RowType;

/// What `--row-type` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowTypeName {
    /// 4 bytes a weight.
    F32,
    /// 2 bytes a weight (bfloat16: the range of f32, 8 binary digits). Steps are computed in f32 and rounded by chance,
    /// so that small ones add up. The optimizer's state stays f32. Rows need more than one weight, and an optimizer
    /// that stores weights: not ftrl and group-ftrl. Workers push gradients.
    Bf16,
    /// 2 bytes a weight (half precision: up to 65504, 11 binary digits), as bf16 otherwise. Down to 6e-5 it
    /// rounds eight times as finely, which long trainings need.
    F16,
}

/// How the weights of rows are stored.
#[derive(Args, Debug, Clone, Copy)]
pub struct RowTypeArgs {
    /// How rows store their weights [default: f32]
    #[arg(long, value_enum, value_name = "TYPE", hide_short_help = true)]
    pub row_type: Option<RowTypeName>,
}

impl RowTypeArgs {
    /// The choice of the flag.
    pub fn choice(self) -> RowType {
        match self.row_type {
            None | Some(RowTypeName::F32) => RowType::F32,
            Some(RowTypeName::Bf16) => RowType::Bf16,
            Some(RowTypeName::F16) => RowType::F16,
        }
    }

    /// The choice as the flag spells it.
    pub fn name(self) -> &'static str {
        self.choice().name()
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> Option<String> {
        self.row_type.map(|_| format!("--row-type={}", self.name()))
    }
}
