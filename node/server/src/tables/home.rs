//! Where the tables of a server are, and which part of them is a thread's.

use crate::tables::identities::Identities;
use gannet_core::Store;
use gannet_wire::partition::Partitioning;
use std::sync::Arc;

/// See the module.
pub(crate) struct ThreadHome {
    /// This incarnation of the server. It opens every image once. Row versions are compared only within one
    /// incarnation.
    pub(crate) incarnation: u64,
    /// Where the images are stored.
    pub(crate) store: Store,
    /// The identities of the tables, shared by all threads of the server.
    pub(crate) identities: Arc<Identities>,
    pub(crate) partitioning: Partitioning,
    pub(crate) thread: u32,
    pub(crate) threads: u32,
}
