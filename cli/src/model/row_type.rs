//! What weights of 2 bytes (`--row-type bf16` and `--row-type f16`) change in a training.

use crate::flags::model::RowTypeArgs;
use crate::flags::{OptimizerArgs, SyncArgs};
use crate::job::sync;
use gannet::Rule;
use gannet::table::RowType;

/// Says that a training learns by gradients for its row type, if one with f32 would replay: that learns more from a
/// pass.
pub fn tell_of_gradients(row_type: RowTypeArgs, optimizer: &OptimizerArgs, sync: &SyncArgs, rule: &Rule) {
    let by_default = optimizer.push.is_none() && !sync::is_bsp(sync);
    if row_type.choice() != RowType::F32 && by_default && rule.replays() {
        notice!(
            "gannet: --row-type {} pushes gradients; with f32 this training would replay, and learn more from a pass: \
             compare it with f32 and --push gradient",
            row_type.name()
        );
    }
}
