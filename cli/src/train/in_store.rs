//! A training in this process whose rows are in shards: in memory, or in a folder (`--data-dir`).

use crate::failure::Failure;
use crate::flags::TrainArgs;
use crate::metrics::Metrics;
use crate::report::account::Account;
use crate::runs::alone::{self, LocalRun};
use crate::runs::settings;
use crate::server::store;
use crate::train::trained::Trained;
use gannet::runs::RunId;
use gannet::storage::Store;
use gannet::train::Options;

/// Trains in a store of this process, as a run if the store has a folder. `train` trains in these tables, saves the
/// model, prints the report and closes the tables. `learns_batches` as for a worker.
pub fn train_in_store<T: Trained>(
    args: &TrainArgs,
    metrics: &Metrics,
    mut options: Options,
    (tables, learns_batches): (&[&str], bool),
    train: impl FnOnce(Store, &Options, Option<&RunId>, &Account) -> Result<T, Failure>,
) -> Result<(), Failure> {
    let store = store::own_store(args.job.data_dir.as_deref(), &args.memory)?;
    metrics.add_store(&store);
    let batches = learns_batches.then_some(&options);
    let settings = || settings::settings(args, &options.data.files, None, batches);
    let run = alone::alone(args, &store, (settings, &options.data.scale), tables)?;
    if let Some(run) = &run {
        run.scale(&mut options.data, options.test.as_mut());
    }
    let account = run.as_ref().map(LocalRun::account).unwrap_or_default();
    let trained = train(store, &options, run.as_ref().map(LocalRun::id), &account)?;
    trained.ended()?;
    run.map_or(Ok(()), |run| run.finish(trained.summary().rows))
}
