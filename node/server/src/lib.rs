//! The server: an acceptor, and threads that each own a set of the shards of every table.
#![forbid(unsafe_code)]

mod config;
mod counters;
mod cuts;
#[cfg(test)]
mod data_server_tests;
mod error;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod hostile;
mod incarnation;
#[cfg(test)]
mod incarnation_tests;
pub mod limits;
mod local;
mod membership;
mod mirror_server;
mod peers;
mod places;
mod replication;
mod requests;
mod restore;
#[cfg(any(test, feature = "test-support"))]
mod scripted;
mod server;
mod server_tables;
mod sessions;
mod steps;
mod tables;
mod thread;

pub use config::{
    MembershipConfig, OnServerLoss, ReplicationMode, RestoreSource, ServerConfig, SessionLimits,
};
pub use counters::server::ServerCounters;
pub use error::ServerError;
pub use local::{LocalServer, ServerTurn};
pub use membership::Membership;
pub use membership::forgetting::{PlacesForgotten, forget_places};
pub use membership::registry::{BackupStatus, MemberStatus, members, place_statuses};
pub use membership::status::{PlaceStatus, place_status};
pub use membership::undone::{GenerationStatus, generation};
pub use mirror_server::MirrorServer;
pub use places::folder::refuse_without_coordinator;
pub use places::folder_error::PlaceFolderError;
pub use places::incarnations::CounterError;
pub use replication::replicator::Replicator;
pub use restore::error::RestoreError;
pub use restore::{Restored, restore_folder};
pub use server::{Server, ServerStats};
pub use tables::identities::{check_held_tables, open_whole};
