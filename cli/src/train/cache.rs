//! Where a training keeps its parsed data.

use crate::failure::Failure;
use crate::flags::{ModelName, OptimizerName, TasksName, TrainArgs};
use gannet::train::Cache;

/// The cache that the flags ask for; without them, that of a training of several passes.
pub fn cache(args: &TrainArgs) -> Result<Option<Cache>, Failure> {
    let job = &args.job;
    let in_splits = job.tasks.tasks == TasksName::On || job.data_server.feed.is_some();
    if let Some(folder) = &args.cache.cache {
        if in_splits {
            let why = "--cache: with --tasks on or --feed each pass may bring a worker other parts of the data, so \
                       there is nothing to keep; use --tasks off, or leave --cache out";
            return Err(Failure::input(why));
        }
        let made = Cache::in_folder(folder).map_err(|error| {
            let folder = folder.display();
            Failure::input(format!("--cache {folder}: {error}; name a folder that this process may write"))
        });
        return made.map(Some);
    }
    // These read the data once and keep it in memory.
    let reads_once =
        args.model.model == ModelName::Lda || args.optimizer.optimizer == Some(OptimizerName::Lbfgs);
    let wanted = args.epochs > 1 && !args.cache.no_cache && !in_splits && !reads_once;
    Ok(if wanted { Cache::temporary() } else { None })
}
