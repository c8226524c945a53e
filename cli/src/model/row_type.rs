//! Which trainings can store weights in 2 bytes (`--row-type bf16` and `--row-type f16`).

use crate::failure::Failure;
use crate::flags::{ModelName, TrainArgs};
use crate::job::sync;
use gannet::Rule;
use gannet::table::RowType;

/// Refuses weights of 2 bytes for a training whose rows have one weight, or no weights. The schema refuses the
/// optimizers that store none.
pub fn check_row_type(args: &TrainArgs, lbfgs: bool) -> Result<(), Failure> {
    if args.row_type.choice() == RowType::F32 {
        return Ok(());
    }
    let name = args.row_type.name();
    let refused = |why: &str| Err(Failure::input(format!("--row-type {name} cannot be combined with {why}")));
    match args.model.model {
        _ if lbfgs => refused("--optimizer lbfgs: its vectors and sums must stay f32"),
        ModelName::Lda => refused("--model lda: its counts of words are added up, and must stay exact"),
        ModelName::Lr | ModelName::Linear => refused(&format!(
            "--model lr and linear: a row has one weight, so {name} would save nothing (softmax, fm, deepfm and mf have \
             more)"
        )),
        ModelName::Softmax | ModelName::Fm | ModelName::Deepfm | ModelName::Mf => Ok(()),
    }
}

/// Says that a training learns by gradients for its row type, if one with f32 would replay: that learns more from a
/// pass.
pub fn tell_of_gradients(args: &TrainArgs, rule: &Rule) {
    let by_default = args.optimizer.push.is_none() && !sync::is_bsp(&args.job.sync);
    if args.row_type.choice() != RowType::F32 && by_default && rule.replays() {
        notice!(
            "gannet: --row-type {} pushes gradients; with f32 this training would replay, and learn more from a pass: \
             compare it with f32 and --push gradient",
            args.row_type.name()
        );
    }
}
