//! The options of a training, and checks before it begins.

use crate::failure::Failure;
use crate::flags::{ModelName, TrainArgs};
use crate::input;
use crate::job::sync;
use crate::model::lr::TABLE;
use crate::model::{folder, labels, optimizer};
use crate::train::{cache, input_check};
use gannet::Schema;
use gannet::train::{Options, PushContent, Share};

/// The schema that the flags choose.
pub fn schema(args: &TrainArgs) -> Result<Schema, Failure> {
    let mut schema = optimizer::schema(TABLE, &args.optimizer)?;
    schema.admission = args.admission.admission();
    schema.shards = args.job.table.shards.unwrap_or(schema.shards);
    schema.check().map_err(|e| Failure::input(e.to_string()))?;
    Ok(schema)
}

/// The options of the training.
pub fn options(args: &TrainArgs, share: Share, with_test: bool) -> Result<Options, Failure> {
    let mut data = input::data(&args.data, &args.input, !args.no_intercept)?;
    data.labels = labels::labels(&args.model, &args.input, data.labels)?;
    let mut options = Options::new(data);
    if with_test && !args.test.is_empty() {
        options.test = Some(input::data(&args.test, &args.input, !args.no_intercept)?);
    }
    // With --feed a worker has no data. A worker that neither tests nor saves finds errors when it reads.
    if !args.data.is_empty() && (with_test || args.input.scale.is_some()) {
        let tells = with_test && args.job.task_index == 0 && !args.json;
        input_check::look(args, &mut options.data, options.test.as_mut(), tells)?;
    }
    options.data.cache = cache::cache(args)?;
    options.epochs = args.epochs;
    options.threads = args.threads.unwrap_or(2) as usize;
    options.share = share;
    options.push = optimizer::push(&args.optimizer).or(sync::push(&args.job));
    options.batch = match args.model.model {
        ModelName::Lr => batch(args, options.push)?,
        _ => args.batch.unwrap_or(MODEL_BATCH) as usize,
    };
    options.reduce = optimizer::reduce(&args.optimizer);
    Ok(options)
}

/// Examples in a batch, for models other than logistic regression.
const MODEL_BATCH: u32 = 256;

/// Examples in a batch. With replay the loss does not depend on it, and a larger batch pulls and pushes fewer unique
/// keys for each example.
fn batch(args: &TrainArgs, push: Option<PushContent>) -> Result<usize, Failure> {
    const GRADIENTS: usize = 256;
    const REPLAY_IN_A_JOB: usize = 2048;
    let push = PushContent::choose(push, &schema(args)?)?;
    Ok(match (args.batch, &args.job.job_name) {
        (Some(batch), _) => batch as usize,
        (None, Some(_)) if push == PushContent::Replay => REPLAY_IN_A_JOB,
        (None, _) => GRADIENTS,
    })
}

/// Finds errors that would otherwise show only after the training, such as a folder that cannot be written. The
/// [data](crate::train::input_check::look) is checked separately.
pub fn preflight(args: &TrainArgs, options: &Options, schema: &Schema) -> Result<(), Failure> {
    if options.epochs > 1 {
        let once = options.data.must_be_files("a second epoch");
        once.map_err(|e| Failure::input(e.to_string()))?;
    }
    if let Some(folder) = &args.out {
        folder::may_write(folder, schema)?;
    }
    Ok(())
}
