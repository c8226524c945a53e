//! The end of a training of any model.

use crate::failure::{Failure, STOPPED};
use crate::flags::TrainArgs;
use crate::model::saves;
use gannet::train::BadLines;
use std::path::Path;

/// Says where the model was saved, and whether the training was stopped early.
pub fn print_saved(args: &TrainArgs, stopped: bool, saved: Option<(&Path, u64)>) {
    let early = if stopped { "stopped early, so this is the model so far: " } else { "" };
    match saved {
        Some((folder, rows)) if !args.json => {
            say!("model        {early}{rows} rows in {}{}", folder.display(), saves::before(folder))
        }
        Some((folder, rows)) => {
            notice!("gannet: {early}{rows} rows saved in {}{}", folder.display(), saves::before(folder))
        }
        None if stopped => notice!("gannet: {early}no --out was given, so no model was saved"),
        None => {}
    }
}

/// The result of a training of any model that a signal may have stopped.
pub fn ended_early(stopped: bool, examples: u64) -> Result<(), Failure> {
    if stopped {
        let text = format!("stopped by a signal after {examples} examples");
        return Err(Failure::new(STOPPED, text));
    }
    Ok(())
}

/// An error if this worker's share had bad lines only, so that it learned nothing.
pub fn learned_something(examples: u64, bad: &BadLines) -> Result<(), Failure> {
    match &bad.first[..] {
        [first, ..] if examples == 0 => Err(Failure::input(format!(
            "0 examples were learned: all lines of this worker's share are bad ({} were skipped), the first: {first}",
            bad.count
        ))),
        _ => Ok(()),
    }
}
