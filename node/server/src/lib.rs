//! The server: an acceptor, and threads that each own a set of the shards of every table.
#![forbid(unsafe_code)]

mod counters;
mod cuts;
#[cfg(test)]
mod data_server_tests;
mod error;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod hostile;
#[cfg(test)]
mod incarnation_tests;
pub mod limits;
mod local;
mod membership;
mod peers;
mod replication;
mod requests;
mod restore;
#[cfg(any(test, feature = "test-support"))]
mod scripted;
mod server;
mod sessions;
mod steps;
mod tables;
mod thread;

pub use counters::server::ServerCounters;
pub use error::ServerError;
pub use local::{LocalServer, ServerTurn};
pub use membership::folder::{PlaceFolderError, refuse_without_coordinator};
pub use membership::forgetting::{PlacesForgotten, forget_places};
pub use membership::founding::OnServerLoss;
pub use membership::registry::{BackupStatus, MemberStatus, members, places};
pub use membership::undone::{GenerationStatus, generation};
pub use membership::{Membership, MembershipConfig, PlaceStatus, place};
pub use peers::memory::SessionLimits;
pub use replication::ReplicationMode;
pub use replication::replicator::Replicator;
pub use requests::incarnations::CounterError;
pub use restore::error::RestoreError;
pub use restore::{RestoreSource, Restored, restore_folder};
pub use server::{Server, ServerConfig, ServerStats};
pub use tables::identities::open_whole;
