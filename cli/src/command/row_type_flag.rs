//! Which trainings can store weights as bf16 (`--row-type bf16`).

use super::Failure;
use super::args::{ModelName, TrainArgs};
use gannet::table::RowType;

/// Refuses `--row-type bf16` for a training whose rows have one weight, or no weights. The schema refuses the
/// optimizers that store none.
pub fn check(args: &TrainArgs, lbfgs: bool) -> Result<(), Failure> {
    if args.row_type.choice() == RowType::F32 {
        return Ok(());
    }
    let refused = |why: &str| Err(Failure::input(format!("--row-type bf16 cannot be combined with {why}")));
    match args.model.model {
        _ if lbfgs => refused("--optimizer lbfgs: its vectors and sums must stay f32"),
        ModelName::Lda => refused("--model lda: its counts of words are added up, and must stay exact"),
        ModelName::Lr | ModelName::Linear => refused(
            "--model lr and linear: a row has one weight, so bf16 would save nothing (softmax, fm, deepfm and mf have more)",
        ),
        ModelName::Softmax | ModelName::Fm | ModelName::Deepfm | ModelName::Mf => Ok(()),
    }
}
