//! Where a training keeps its parsed data.

use crate::failure::Failure;
use crate::flags::DataCacheArgs;
use gannet::train::Cache;

/// The cache that the flags ask for; without them, that of a training that reads its data in several passes.
/// `in_splits`: a scheduler hands out the data.
pub fn cache(args: &DataCacheArgs, passes: u32, in_splits: bool) -> Result<Option<Cache>, Failure> {
    if let Some(folder) = &args.cache {
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
    let wanted = passes > 1 && !args.no_cache && !in_splits;
    Ok(if wanted { Cache::temporary() } else { None })
}
