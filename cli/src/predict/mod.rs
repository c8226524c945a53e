//! `gannet predict`: a probability a line for each example, or the measures as JSON.

pub mod output;
pub mod tables;

use crate::failure::Failure;
use crate::flags::PredictArgs;
use crate::input;
use crate::model::tables::load_tables;
use crate::model::{lr, saves};
use crate::predict::output::{print_quality, write};
use crate::report::measures::measured;
use gannet::train::predict;
use std::fmt::Write as _;
use std::io::{self};

/// Runs the command.
pub fn run_predict(args: &PredictArgs) -> Result<(), Failure> {
    if let Some(saved) = load_tables(&args.model)? {
        return tables::predict(args, saved);
    }
    let model = lr::load_lr(&args.model)?;
    let mut data = input::data(&args.data, &args.input, model.reading.intercept)?;
    model.reading.of(&mut data, args)?;
    let ended = model.reading.ended.as_deref();
    saves::warn_of_early_end(&args.model, ended);
    let mut out = io::stdout().lock();
    let mut text = String::new();
    let predicted = predict(&data, &model.weights, |scores| {
        if args.json {
            return Ok(());
        }
        text.clear();
        for score in scores {
            let _ = writeln!(text, "{score:.6}");
        }
        write(&mut out, &text)
    });
    let predicted = match predicted {
        Ok(predicted) => predicted,
        Err(ended) => return ended.failure().map_or(Ok(()), Err),
    };
    let quality = predicted.quality.map(measured);
    print_quality(args, predicted.examples, quality.as_ref(), &predicted.bad_lines, (ended.is_none(), true));
    Ok(())
}
