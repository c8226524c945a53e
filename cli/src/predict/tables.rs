//! `gannet predict` with a model of several tables.

use crate::failure::Failure;
use crate::flags::PredictArgs;
use crate::input;
use crate::model::saves::warn_of_early_end;
use crate::model::tables::SavedTablesModel;
use crate::predict::output::{Ended, print_quality, write as write_out};
use gannet::train::models::{Forecast, Objective, forecast};
use std::fmt::Write as _;
use std::io;

/// Runs `gannet predict` with such a model.
pub fn predict(args: &PredictArgs, saved: SavedTablesModel) -> Result<(), Failure> {
    let SavedTablesModel { mut model, mut tables, reading } = saved;
    let mut data = input::data(&args.data, &args.input, reading.intercept)?;
    reading.of(&mut data, args)?;
    if model.task() != Objective::Click {
        data.labels = model.task().labels();
    }
    warn_of_early_end(&args.model, reading.ended.as_deref());
    let mut out = io::stdout().lock();
    let mut text = String::new();
    let predicted = forecast(&data, &mut *model, &mut tables, |forecasts| {
        if args.json {
            return Ok(());
        }
        text.clear();
        for forecast in forecasts {
            let _ = match forecast {
                Forecast::Probability(x) | Forecast::Number(x) => writeln!(text, "{x:.6}"),
                Forecast::Class(class, probability) => writeln!(text, "{class} {probability:.6}"),
            };
        }
        write_out(&mut out, &text)
    });
    let (examples, measured, bad_lines) = match predicted {
        Ok(predicted) => predicted,
        Err(ended) => return Ended::failure(ended).map_or(Ok(()), Err),
    };
    print_quality(args, examples, measured.as_ref(), &bad_lines, (reading.ended.is_none(), false));
    Ok(())
}
