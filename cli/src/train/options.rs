//! The options of a training, and checks before it begins.

use crate::failure::Failure;
use crate::flags::{
    AdmissionArgs, DataArgs, JobArgs, ModelName, OptimizerArgs, TableArgs, TasksName, TrainArgs,
};
use crate::input;
use crate::job::sync;
use crate::model::lr::TABLE;
use crate::model::{folder, labels, optimizer};
use crate::train::{cache, class_weight, fields, input_check, normalize, validation};
use gannet::Schema;
use gannet::train::{Data, Holdout, Options, PushContent, Share};
use std::path::Path;

/// The schema that the flags choose.
pub fn schema(
    optimizer: &OptimizerArgs,
    admission: &AdmissionArgs,
    table: &TableArgs,
) -> Result<Schema, Failure> {
    let mut schema = optimizer::schema(TABLE, optimizer)?;
    schema.admission = admission.admission();
    schema.shards = table.shards.unwrap_or(schema.shards);
    schema.check().map_err(|e| Failure::input(e.to_string()))?;
    Ok(schema)
}

/// The options of the training.
pub fn options(args: &TrainArgs, share: Share, with_test: bool) -> Result<Options, Failure> {
    let (from, passes, job) = (&args.data, &args.passes, &args.job);
    let mut data = input::data(&from.files, &from.input, !from.no_intercept)?;
    data.labels = labels::labels(&args.model, &from.input, data.labels)?;
    let mut options = Options::new(data);
    if with_test && !from.test.is_empty() {
        options.test = Some(input::data(&from.test, &from.input, !from.no_intercept)?);
    }
    options.data.fields.group = None;
    hold_out(from, &mut options, with_test)?;
    options.normalize(&normalize::of_training(args)?);
    let has_data = !from.files.is_empty();
    // With --feed a worker has no data. A worker that neither tests nor saves finds errors when it reads.
    let warm = args.lbfgs.warm_start.as_deref();
    let looks = with_test || warm.is_some() || input::scale(&from.input).is_some() || from.follow.grows();
    if has_data && looks {
        let tells = with_test && job.task_index == 0 && args.output.tells();
        input_check::look(from, warm, &mut options.data, options.test.as_mut(), tells)?;
        if let Some(validation) = &mut options.validation {
            input_check::look_at_held_out(&options.data, validation)?;
        }
    }
    if has_data {
        fields::find(args, &mut options)?;
    }
    let in_splits = job.tasks.tasks == TasksName::On || job.data_server.feed.is_some();
    let read_once = args.model.model == ModelName::Lda;
    options.data.cache = cache::cache(&from.cache, if read_once { 1 } else { passes.epochs }, in_splits)?;
    options.epochs = passes.epochs;
    options.threads = passes.threads.unwrap_or(2) as usize;
    options.share = share;
    options.push = optimizer::push(&args.optimizer).or(sync::push(job));
    options.batch = match args.model.model {
        ModelName::Lr => {
            let schema = schema(&args.optimizer, &args.admission, &job.table)?;
            lr_batch(passes.batch, job, PushContent::choose(options.push, &schema)?)
        }
        _ => passes.batch.unwrap_or(MODEL_BATCH) as usize,
    };
    options.reduce = optimizer::reduce(&args.optimizer);
    class_weight::weigh(args, &mut options)?;
    Ok(options)
}

/// Holds out the data of `--validate`: files, or a share of the training data. `with_it`: this process validates.
fn hold_out(from: &DataArgs, options: &mut Options, with_it: bool) -> Result<(), Failure> {
    validation::check_held_out(&from.validate)?;
    let files = match validation::held_out_share(&from.validate) {
        Some(holdout) => {
            options
                .data
                .must_be_files("--validate with a share")
                .map_err(|e| Failure::input(format!("{e}; or name a file: --validate FILE")))?;
            options.data.holdout = Some(holdout);
            &from.files
        }
        None => &from.validate,
    };
    if with_it && !files.is_empty() && !from.validate.is_empty() {
        let data = input::data(files, &from.input, !from.no_intercept)?;
        let holdout = options.data.holdout.map(Holdout::validation);
        options.validation = Some(Data { holdout, ..data });
    }
    Ok(())
}

/// Examples in a batch, for models other than logistic regression.
const MODEL_BATCH: u32 = 256;

/// Examples in a batch. With replay the loss does not depend on it, and a larger batch pulls and pushes fewer unique
/// keys for each example.
fn lr_batch(batch: Option<u32>, job: &JobArgs, push: PushContent) -> usize {
    const GRADIENTS: usize = 256;
    const REPLAY_IN_A_JOB: usize = 2048;
    match (batch, job.job_name) {
        (Some(batch), _) => batch as usize,
        (None, Some(_)) if push == PushContent::Replay => REPLAY_IN_A_JOB,
        (None, _) => GRADIENTS,
    }
}

/// Finds errors that would otherwise show only after the training, such as a folder that cannot be written. The
/// [data](crate::train::input_check::look) is checked separately.
pub fn preflight(out: Option<&Path>, options: &Options, schema: &Schema) -> Result<(), Failure> {
    if options.epochs > 1 {
        let once = options.data.must_be_files("a second epoch");
        once.map_err(|e| Failure::input(e.to_string()))?;
    }
    if let Some(folder) = out {
        folder::may_write(folder, schema)?;
    }
    Ok(())
}
