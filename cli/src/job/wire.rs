//! Which trainings can send f16 (`--wire f16`).

use crate::failure::Failure;
use crate::flags::{JobName, ModelName, TrainArgs};
use gannet::train::PushContent;
use gannet::worker::WireType;

/// Refuses `--wire f16` for a training that moves no weights and gradients.
pub fn check_wire(args: &TrainArgs, lbfgs: bool) -> Result<(), Failure> {
    if args.job.wire.choice() == WireType::F32 || args.job.job_name != Some(JobName::Worker) {
        return Ok(());
    }
    let refused = |why: &str| Err(Failure::input(format!("--wire f16 cannot be combined with {why}")));
    if lbfgs {
        return refused("--optimizer lbfgs: its vectors and sums must stay f32");
    }
    if args.model.model == ModelName::Lda {
        return refused("--model lda: its counts of words are added up, and must stay exact");
    }
    Ok(())
}

/// How weights and gradients of a worker travel. `push` is what its pushes carry.
pub fn of_training(args: &TrainArgs, push: PushContent) -> Result<WireType, Failure> {
    let wire = args.job.wire.choice();
    if wire == WireType::F16 && push == PushContent::Replay {
        return Err(Failure::input(
            "--wire f16 needs pushes of gradients: add --push gradient. This training replays: it pulls and pushes the state \
             of the optimizer, which always travels as f32",
        ));
    }
    Ok(wire)
}
