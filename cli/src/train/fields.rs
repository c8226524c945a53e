//! The fields of data, for models that have a vector for each: `--model deepfm` and `ffm`. The first examples say them,
//! or the model from which the training starts, or the run that it continues.

use crate::failure::Failure;
use crate::flags::{ModelName, TrainArgs};
use crate::model::warm_source::{WarmSource, open_warm_source};
use crate::report::words::counted;
use gannet::train::limits::FIELD_FACTORS_MAX;
use gannet::train::saved::{FIELDS, Shape, fields_of_note};
use gannet::train::{Data, FieldPlaces, Format, Options, Reader, TrainError};
use std::path::Path;

/// Whether a model has a vector for each field.
pub fn are_used(model: ModelName) -> bool {
    matches!(model, ModelName::Deepfm | ModelName::Ffm)
}

/// Finds the fields of the training data, and makes readers say them.
///
/// # Errors
/// The data cannot be read, or has no fields where the model needs some.
pub fn find(args: &TrainArgs, options: &mut Options) -> Result<(), Failure> {
    if !are_used(args.model.model) {
        return Ok(());
    }
    let ids = match &args.lbfgs.warm_start {
        Some(folder) => of_warm_start(folder)?,
        None => of_data(args, &options.data)?,
    };
    if ids.is_empty() && args.model.model == ModelName::Ffm {
        return Err(Failure::input(
            "--model ffm has a vector for each field, and this data says no fields before the training: use files of \
             CSV, Parquet, JSON, vw or libffm (--format libffm); for data without fields there is --model fm",
        ));
    }
    let shape = Shape { factors: args.model.factors() as usize, fields: ids, ..Shape::default() };
    let (fields, places_max) = (shape.fields.len(), shape.places_max());
    if fields > places_max && args.output.tells() && args.job.task_index == 0 {
        notice!(
            "gannet: {fields} fields share {places_max} vectors, because a row holds {FIELD_FACTORS_MAX} numbers for \
             them; for a vector of its own for each field: fewer --factors, or --ignore columns"
        );
    }
    // Each has places of its own, which count features of unknown fields.
    let all = std::iter::once(&mut options.data).chain(&mut options.test).chain(&mut options.validation);
    all.for_each(|data| data.fields.say(shape.field_places()));
    Ok(())
}

/// The fields of the first examples. None: the data has no fields, or cannot be read twice.
fn of_data(args: &TrainArgs, data: &Data) -> Result<Vec<u64>, Failure> {
    let wrong = |error| Failure::from(TrainError::from(error));
    let found = Reader::look(data).map_err(wrong)?;
    let may_look = data.must_be_files("").is_ok();
    let Some(found) = found.filter(|_| may_look) else {
        if args.output.tells() && args.model.model == ModelName::Deepfm {
            notice!(
                "gannet: this data comes once, so its fields are not known before the training: the network of --model \
                 {} reads one vector for all; for a vector a field, name files",
                crate::model::optimizer::spelt(&args.model.model)
            );
        }
        return Ok(Vec::new());
    };
    if Format::of_name(found.format).is_some_and(|format| matches!(format, Format::Libsvm | Format::Auto)) {
        return Ok(Vec::new());
    }
    if args.data.follow.grows() {
        // Of files that are still to come only the columns are known.
        let columns = found.columns.filter(|columns| !columns.others);
        return Ok(columns.map_or(Vec::new(), |columns| FieldPlaces::of_names(&columns.features())));
    }
    Reader::first_fields(data).map_err(wrong)
}

/// The fields of a model, or of a checkpoint of a job.
fn of_warm_start(folder: &Path) -> Result<Vec<u64>, Failure> {
    Ok(match open_warm_source(folder)? {
        WarmSource::Model(checkpoint) => Shape::of(&*checkpoint).fields,
        WarmSource::Job(job) => job.manifest().note(FIELDS).map_or(Vec::new(), fields_of_note),
    })
}

/// The ids of the fields that readers of this data say.
pub fn of_readers(data: &Data) -> &[u64] {
    data.fields.places.as_ref().map_or(&[], |places| places.ids())
}

/// Warns of features that had no part in the network, or in the pairs, because the first examples lacked their fields.
pub fn warn_of_strangers(data: &Data) {
    let strangers = data.fields.places.as_ref().map_or(0, |places| places.strangers());
    if strangers > 0 {
        notice!(
            "gannet: {} were of fields that the model does not know: it learned their weights, and no vectors by field. \
             It knows the fields of the first 10,000 examples of its first training: shuffle that data to begin anew",
            counted(strangers, "feature", "features")
        );
    }
}
