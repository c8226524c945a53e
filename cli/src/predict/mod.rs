//! `gannet predict`: a line for each example, or the measures as JSON.

pub mod explanations;
pub mod output;

use crate::failure::Failure;
use crate::flags::PredictArgs;
use crate::input;
use crate::model::same_reading::read_as;
use crate::model::saves;
use crate::predict::explanations::print_explanations;
use crate::predict::output::{Ended, print_quality, write as write_out};
use crate::report::plots;
use gannet::train::models::{Forecast, Measured, Objective};
use gannet::train::saved::load_model;
use std::fmt::Write as _;
use std::io;

/// Runs the command.
pub fn run_predict(args: &PredictArgs) -> Result<(), Failure> {
    let model = load_model(&args.model)?;
    let mut data = input::data(&args.data, &args.input, model.reading.intercept)?;
    read_as(&model, &mut data, &args.model, &args.input)?;
    let task = model.task();
    if let Some(folder) = &args.plots {
        if task != Objective::Click {
            return Err(Failure::input(
                "--plots: this model predicts no probability of a label 1; leave the flag out",
            ));
        }
        plots::may_write(folder)?;
    }
    if args.explain {
        return print_explanations(&data, &model);
    }
    saves::warn_of_early_end(&args.model, model.reading.ended.as_deref());
    let (mut out, mut text) = (io::stdout().lock(), String::new());
    let print = |outputs: &[f32]| -> Result<(), Ended> {
        if args.json {
            return Ok(());
        }
        text.clear();
        for outputs in outputs.to_vec().chunks_mut(task.outputs()) {
            let _ = writeln!(text, "{}", Forecast::of(task, outputs));
        }
        write_out(&mut out, &text)
    };
    let (examples, measured, bad_lines) = match model.outputs(&data, print) {
        Ok(predicted) => predicted,
        Err(ended) => return Ended::failure(ended).map_or(Ok(()), Err),
    };
    if let (Some(folder), Some(quality)) = (&args.plots, measured.as_ref().and_then(Measured::click)) {
        plots::write(folder, quality)?;
    } else if args.plots.is_some() {
        return Err(Failure::input(
            "--plots: no example has a label, so nothing says how good the predictions are; leave the flag out",
        ));
    }
    let is_complete = model.reading.ended.is_none();
    let lr = model.shape().model == "lr";
    print_quality(args, examples, measured.as_ref(), &bad_lines, (is_complete, lr));
    Ok(())
}
