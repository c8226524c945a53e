//! What a coordinator knows of a place.

use crate::config::ReplicationMode;
use gannet_wire::coordinator::{Coordinator, CoordinatorError};
use gannet_wire::messages::control::PlaceV3;
use gannet_wire::place_keys::PlaceKeys;

/// What a coordinator knows of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceStatus {
    /// The address of the server that has it, or had it last.
    pub owner: String,
    /// Raised with each owner.
    pub epoch: u64,
    /// How often the job had gone back to a checkpoint when its rows were begun.
    pub generation: u64,
    /// The owner has all rows. A backup that takes the place has not, at first.
    pub ready: bool,
    /// The owner has a lease: it was heard of within the time of that.
    pub has_lease: bool,
    /// The addresses of the backups that have everything that was acknowledged.
    pub backups: Vec<String>,
    /// For what the answers of the owner wait.
    pub replication: ReplicationMode,
}

/// What a coordinator knows of place `place` of a job. `None`: no server has had the place.
///
/// # Errors
/// The coordinator gave no answer.
pub fn place_status(
    coordinator: &dyn Coordinator,
    job: &str,
    place: u32,
) -> Result<Option<PlaceStatus>, CoordinatorError> {
    let keys = PlaceKeys::new(job, place);
    let has_lease = coordinator.get(&keys.owner)?.is_some();
    let status = |(place, _): (PlaceV3, u64)| {
        let PlaceV3 { owner, epoch, generation, ready, backups, is_async, .. } = place;
        let backups = backups.into_iter().map(|(addr, _)| addr).collect();
        let replication = mode_of(is_async);
        PlaceStatus { owner, epoch, generation, ready, has_lease, backups, replication }
    };
    Ok(keys.get(coordinator)?.map(status))
}

/// How an owner replicates.
pub(crate) fn mode_of(is_async: bool) -> ReplicationMode {
    if is_async { ReplicationMode::Async } else { ReplicationMode::Sync }
}
