//! `gannet predict --explain`: what each feature contributes to each score.

use crate::failure::Failure;
use crate::predict::output::{Ended, write as write_out};
use crate::report::warnings::warn_of_bad_lines;
use gannet::train::saved::SavedModel;
use gannet::train::{Data, FeatureNames};
use gannet_serve::explanation;
use std::io;

/// Prints an object for each example: its prediction, its margin, and the contributions that add up to that.
pub fn print_explanations(data: &Data, model: &SavedModel) -> Result<(), Failure> {
    let names = FeatureNames::of(data, &|_| true).map_err(|e| Failure::input(e.to_string()))?;
    let mut out = io::stdout().lock();
    let explained = model.explain(data, |explained| -> Result<(), Ended> {
        let mut line = explanation(&explained, &names).to_string();
        line.push('\n');
        write_out(&mut out, &line)
    });
    match explained {
        Ok(bad_lines) => warn_of_bad_lines(&bad_lines),
        Err(ended) => return Ended::failure(ended).map_or(Ok(()), Err),
    }
    Ok(())
}
