//! The types of columns that no flag names: what the first rows hold, or what the model knows from which the training
//! starts. They become values of --numeric and --both, so all that follows sees them as if the user had given them.

use crate::failure::Failure;
use crate::flags::{DataArgs, ModelName, TrainArgs, TypesName};
use crate::input;
use crate::model::labels;
use crate::model::warm_source::{WarmSource, is_described, open_warm_source};
use gannet::train::saved::reading;
use gannet::train::{Columns, Data, Reader, Survey, TrainError};

/// Rows that are read to find the types.
const ROWS_READ: u64 = 10_000;

/// Gives each column its type.
///
/// # Errors
/// The data or the model cannot be read.
pub fn settle(args: &mut TrainArgs) -> Result<(), Failure> {
    take_over(args)?;
    let reads_ids = matches!(args.model.model, ModelName::Mf | ModelName::Lda);
    let DataArgs { files, input, types, follow, .. } = &args.data;
    if *types == TypesName::Off
        || follow.grows()
        || reads_ids
        || files.is_empty()
        || !input.categorical.is_empty()
    {
        return Ok(());
    }
    if let Some(columns) = of_model(args)? {
        let input = &mut args.data.input;
        if input.numeric.is_empty() && input.both.is_empty() {
            (input.numeric, input.both) = (columns.numeric, columns.both);
        }
        return Ok(());
    }
    let mut data = input::data(&args.data.files, &args.data.input, true)?;
    data.labels = labels::labels(&args.model, &args.data.input, data.labels)?;
    // What is wrong with the data, the training says.
    let Some(columns) = columns_of(&data) else { return Ok(()) };
    let survey = Survey::of(&data, Some(ROWS_READ)).map_err(TrainError::from)?;
    let (numeric, both) = survey.numbers_of(&columns);
    let input = &mut args.data.input;
    // Of tables the columns that have numbers by their type.
    let by_type: Vec<String> =
        columns.numeric.into_iter().filter(|name| !input.numeric.contains(name)).collect();
    input.numeric.extend(by_type);
    input.numeric.extend(numeric);
    input.both.extend(both);
    Ok(())
}

/// Takes over which columns the model knows from which the training starts, where the data has another format: JSON
/// lines do not say what their columns are, and other files do not say what is left out of JSON lines.
fn take_over(args: &mut TrainArgs) -> Result<(), Failure> {
    if args.data.follow.grows() || args.data.files.is_empty() {
        return Ok(());
    }
    let Some(model) = of_model(args)? else { return Ok(()) };
    let data = input::data(&args.data.files, &args.data.input, true)?;
    let Some(columns) = columns_of(&data).filter(|columns| columns.others != model.others) else {
        return Ok(());
    };
    let left_out: Vec<String> = if model.others {
        let features = columns.features();
        model.ignored.into_iter().filter(|name| features.contains(name)).collect()
    } else {
        let survey = Survey::of(&data, Some(ROWS_READ)).map_err(TrainError::from)?;
        let features = model.features();
        let names = survey.columns.into_iter().map(|column| column.name);
        names.filter(|name| columns.takes(name) && !features.contains(name)).collect()
    };
    let ignore = &mut args.data.input.ignore;
    ignore.extend(left_out.into_iter().filter(|name| !ignore.contains(name)).collect::<Vec<_>>());
    Ok(())
}

/// The columns of data that can be read twice.
fn columns_of(data: &Data) -> Option<Columns> {
    data.must_be_files("").ok()?;
    Reader::look(data).ok()??.columns
}

/// The columns of the model from which the training starts.
fn of_model(args: &TrainArgs) -> Result<Option<Columns>, Failure> {
    let Some(folder) = &args.lbfgs.warm_start else { return Ok(None) };
    match open_warm_source(folder)? {
        WarmSource::Model(checkpoint) => Ok(reading(&*checkpoint, folder)?.columns),
        WarmSource::Job(job) if is_described(&job) => Ok(reading(job.manifest(), folder)?.columns),
        WarmSource::Job(_) => Ok(None),
    }
}
