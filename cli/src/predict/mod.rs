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
use crate::report::measures::measured;
use crate::report::plots;
use gannet::train::models::{Forecast, Measured, Objective, forecast};
use gannet::train::predict;
use gannet::train::saved::{SavedModel, Scorer, load_model};
use std::fmt::Write as _;
use std::io::{self};

/// Runs the command.
pub fn run_predict(args: &PredictArgs) -> Result<(), Failure> {
    let SavedModel { scorer, reading, .. } = load_model(&args.model)?;
    let mut data = input::data(&args.data, &args.input, reading.intercept)?;
    read_as(&reading, &mut data, &args.model, &args.input)?;
    if let Some(folder) = &args.plots {
        if let Scorer::Tables(model, _) = &scorer
            && model.task() != Objective::Click
        {
            return Err(Failure::input(
                "--plots: this model predicts no probability of a label 1; leave the flag out",
            ));
        }
        plots::may_write(folder)?;
    }
    if let Scorer::Tables(model, _) = &scorer
        && !model.task().is_of_two()
    {
        data.labels = model.task().labels();
    }
    if args.explain {
        return print_explanations(&data, scorer);
    }
    saves::warn_of_early_end(&args.model, reading.ended.as_deref());
    let (mut out, mut text) = (io::stdout().lock(), String::new());
    let mut print = |forecasts: &mut dyn Iterator<Item = Forecast>| -> Result<(), Ended> {
        if args.json {
            return Ok(());
        }
        text.clear();
        for forecast in forecasts {
            let _ = match forecast {
                Forecast::Probability(x) | Forecast::Number(x) | Forecast::Margin(x) => {
                    writeln!(text, "{x:.6}")
                }
                Forecast::Class(class, probability) => writeln!(text, "{class} {probability:.6}"),
            };
        }
        write_out(&mut out, &text)
    };
    let lr = matches!(scorer, Scorer::Clicks(_));
    let predicted = match scorer {
        Scorer::Clicks(weights) => {
            let out = |scores: &[f32]| print(&mut scores.iter().map(|&x| Forecast::Probability(x)));
            let predicted = predict(&data, &weights, out);
            predicted.map(|of| (of.examples, of.quality.map(measured), of.bad_lines))
        }
        Scorer::Tables(mut model, mut tables) => {
            forecast(&data, &mut *model, &mut tables, |forecasts| print(&mut forecasts.iter().copied()))
        }
    };
    let (examples, measured, bad_lines) = match predicted {
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
    print_quality(args, examples, measured.as_ref(), &bad_lines, (reading.ended.is_none(), lr));
    Ok(())
}
