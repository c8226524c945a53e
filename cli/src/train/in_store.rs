//! A training in this process whose rows are in shards: in memory, or in a folder (`--data-dir`).

use crate::failure::Failure;
use crate::flags::{JobArgs, StoreArgs};
use crate::metrics::Metrics;
use crate::report::account::Account;
use crate::runs::alone::{self, LocalRun};
use crate::runs::settings::local_files;
use crate::server::store;
use crate::train::normalize;
use crate::train::trained::Trained;
use gannet::job::PlanFile;
use gannet::runs::{RunId, RunSetting};
use gannet::storage::Store;
use gannet::train::Options;

/// Trains in a store of this process, as a run if the store has a folder. `train` trains in these tables, saves the
/// model, prints the report and closes the tables. `settings`: those of the run. `tables`: their names, and which data
/// is trained again in a run that continues.
pub fn train_in_store<T: Trained>(
    (job, memory): (&JobArgs, &StoreArgs),
    metrics: &Metrics,
    mut options: Options,
    settings: impl FnOnce(&[PlanFile], &Options) -> Vec<RunSetting>,
    tables: (&[&str], &str),
    train: impl FnOnce(Store, &Options, Option<&RunId>, &Account) -> Result<T, Failure>,
) -> Result<(), Failure> {
    let store = store::own_store(job.data_dir.as_deref(), memory)?;
    metrics.add_store(&store);
    let settings = || -> Result<_, Failure> { Ok(settings(&local_files(&options.data.files)?, &options)) };
    let all = normalize::with_table(tables.0);
    let run = alone::alone(&job.run, &store, (settings, &options.data), (&all, tables.1))?;
    if let Some(run) = &run {
        run.keep_reading(&mut options.data, options.test.as_mut());
        normalize::keep_in_store(&options.data.normalize, &store, run.id(), tables.0[0])?;
    }
    let account = run.as_ref().map(LocalRun::account).unwrap_or_default();
    let trained = train(store, &options, run.as_ref().map(LocalRun::id), &account)?;
    trained.ended_alone()?;
    run.map_or(Ok(()), |run| run.finish(trained.summary().rows))
}
