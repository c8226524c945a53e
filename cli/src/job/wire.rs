//! How weights and gradients travel (`--wire`).

use crate::failure::Failure;
use crate::flags::JobArgs;
use gannet::train::PushContent;
use gannet::worker::WireType;

/// How weights and gradients of a worker travel. `push` is what its pushes carry.
pub fn of_training(job: &JobArgs, push: PushContent) -> Result<WireType, Failure> {
    let wire = job.wire.choice();
    if wire == WireType::F16 && push == PushContent::Replay {
        return Err(Failure::input(
            "--wire f16 needs pushes of gradients: add --push gradient. This training replays: it pulls and pushes the state \
             of the optimizer, which always travels as f32",
        ));
    }
    Ok(wire)
}
