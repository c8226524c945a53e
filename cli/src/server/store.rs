//! The store of the shards of a process.

use crate::failure::Failure;
use crate::flags::StoreArgs;
use crate::server::image_check;
use gannet::backups::{MemoryCoordinator, refuse_without_coordinator};
use gannet::server::ServerError;
use gannet::storage::{Checkpoint, CheckpointError, GrowthConfig, Store};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Refuses to save a model among shards.
pub fn check_folders(out: Option<&Path>, data_dir: Option<&Path>) -> Result<(), Failure> {
    match (out, data_dir) {
        (Some(out), Some(shards)) if out == shards => Err(Failure::input(format!(
            "--out {0} and --data-dir {0} are the same folder: name a different folder for each",
            out.display()
        ))),
        _ => Ok(()),
    }
}

/// The store for the shards of this process, within its limits.
///
/// # Errors
/// The folder has a saved model, or cannot be used.
pub fn store(data_dir: Option<&Path>, memory: &StoreArgs) -> Result<Store, Failure> {
    let is_model =
        |folder: &&Path| matches!(Checkpoint::open(folder), Ok(_) | Err(CheckpointError::Damaged { .. }));
    if let Some(folder) = data_dir.filter(is_model) {
        return Err(Failure::input(format!(
            "--data-dir {}: holds a saved model (--out), not shards; name another folder (to train the model further, \
             use --warm-start {0})",
            folder.display()
        )));
    }
    let memory_limit = memory.memory_limit.map_or(u64::MAX, |size| size.as_u64());
    let growing = GrowthConfig { memory_limit, clock: Some(since_start) };
    let store = match data_dir {
        Some(folder) => Store::open_dir_with(folder, growing)?,
        None => Store::memory_with(growing),
    };
    if !memory.no_verify {
        image_check::check_images(&store)?;
    }
    Ok(store)
}

/// The store of a process that has no coordinator.
///
/// # Errors
/// As [`store`]. Or the folder is that of a server, or of a scheduler, of a job with a coordinator.
pub fn own_store(data_dir: Option<&Path>, memory: &StoreArgs) -> Result<Store, Failure> {
    let store = store(data_dir, memory)?;
    refuse_without_coordinator(&store).map_err(ServerError::from)?;
    if let Some(folder) = data_dir.filter(|folder| MemoryCoordinator::is_in(folder)) {
        return Err(Failure::input(format!(
            "--data-dir {}: a gannet scheduler keeps what it knows as a coordinator here; name another folder",
            folder.display()
        )));
    }
    Ok(store)
}

pub fn since_start() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
