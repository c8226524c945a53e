//! `gannet predict`: a probability a line for each example, or the measures as JSON.

pub mod output;
pub mod tables;

use crate::failure::Failure;
use crate::flags::PredictArgs;
use crate::input;
use crate::model::tables::load;
use crate::model::{lr, saves};
use crate::predict::output::{print_measures, print_object, write};
use crate::report::measures::{clicks_in_words, put_clicks};
use crate::report::warnings;
use gannet::train::predict;
use serde_json::Map;
use std::fmt::Write as _;
use std::io::{self};

/// Runs the command.
pub fn run(args: &PredictArgs) -> Result<(), Failure> {
    if let Some(saved) = load(&args.model)? {
        return tables::predict(args, saved);
    }
    let model = lr::load(&args.model)?;
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
    warnings::warn_of_bad_lines(&predicted.bad_lines);
    if let Some(quality) = predicted.quality.as_ref().filter(|_| !args.json) {
        print_measures(predicted.examples, &clicks_in_words(quality));
    }
    if args.json {
        let mut object = Map::new();
        put_clicks(&mut object, predicted.quality.as_ref());
        print_object(object, predicted.examples, &predicted.bad_lines, ended.is_none());
    }
    Ok(())
}
