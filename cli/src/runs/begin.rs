//! How a run begins: its name, its notes, and what its user learns.

use crate::failure::Failure;
use crate::flags::RunArgs;
use gannet::runs::{RunDecision, RunId, RunIntent};
use gannet::train::{Data, Scale, ScaleKind};
use std::time::{SystemTime, UNIX_EPOCH};

/// What happens to the data when a worker with a fixed share is started again.
pub const AGAIN_IN_A_JOB: &str = "This worker trains its whole share again, on top of what the run has learned. \
                              --fresh begins with new rows; with --tasks on each record is trained once a pass";

/// What happens to the data when a training in one process is started again.
pub const AGAIN_ALONE: &str =
    "The whole data is trained again, on top of what the run has learned. --fresh begins with new rows";

/// Seconds since 1970. They only appear in messages about when a run ended; no decision depends on them.
pub fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether the flags begin a new run, or continue one.
pub fn intent(args: &RunArgs) -> RunIntent {
    match (args.go_on, args.fresh) {
        (true, _) => RunIntent::Continue,
        (_, true) => RunIntent::Fresh,
        _ => RunIntent::Auto,
    }
}

/// Refuses a name that is not valid for a run.
pub fn check_begin(run: &RunArgs) -> Result<(), Failure> {
    RunId::check_name(run.name()).map_err(|why| Failure::input(format!("--run {}: {why}", run.name())))
}

/// Says how the run continues, unless it is a normal first start. `again` says which data is trained again.
pub fn print_decision(id: &RunId, decided: RunDecision, want: RunIntent, again: &str) {
    let name = &id.name;
    match (decided, want) {
        (RunDecision::Continued, _) => notice!("gannet: run {name:?}: its rows are trained further"),
        (RunDecision::Fresh, _) => notice!("gannet: run {name:?} begins with new rows"),
        (RunDecision::Resumed, _) if !again.is_empty() => {
            notice!("gannet: run {name:?} is not finished and continues with its rows. {again}");
        }
        (RunDecision::Resumed, _) => {
            notice!("gannet: run {name:?} is not finished and continues with its rows")
        }
        (RunDecision::Begun, RunIntent::Continue) => {
            notice!("gannet: run {name:?} begins: there is no run to continue")
        }
        _ => {}
    }
}

/// The notes of a run about its data: the scaling of numbers, if it depends on all of them.
pub fn notes(scale: &Scale) -> String {
    match scale.kind.looks_at_all() {
        true => format!("{}\n{}", scale.kind.name(), scale.lines()),
        false => String::new(),
    }
}

pub fn scale_of(notes: &str) -> Option<Scale> {
    let (kind, lines) = notes.split_once('\n')?;
    Some(Scale::of_lines(ScaleKind::of_name(kind)?, lines))
}

/// Applies the run's scaling to other data, because the rows were trained with numbers in that scaling.
pub fn keep_scale(id: &RunId, run_scale: Option<&Scale>, data: &mut Data, test: Option<&mut Data>) {
    let Some(run_scale) = run_scale.filter(|run_scale| **run_scale != data.scale) else { return };
    notice!(
        "gannet: run {:?}: numbers are scaled as at the start of the run (--scale {})",
        id.name,
        run_scale.kind.name()
    );
    data.scale.clone_from(run_scale);
    if let Some(test) = test {
        test.scale.clone_from(run_scale);
    }
}
