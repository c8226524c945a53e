//! Jobs: the scheduler, the registry of runs, the coordinators, and the detector of dead workers.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod coordinator;
#[doc(hidden)]
pub mod failure_detector;
pub mod limits;
#[doc(hidden)]
pub mod runs;
#[doc(hidden)]
pub mod scheduler;

pub use coordinator::addr::CoordinatorAddr;
#[cfg(feature = "etcd")]
pub use coordinator::etcd::EtcdCoordinator;
#[cfg(feature = "etcd")]
pub use coordinator::etcd::EtcdTls;
pub use coordinator::memory::MemoryCoordinator;
pub use runs::alone::LocalRunDecision as RunAlone;
pub use runs::registry::Registry;
pub use scheduler::data_server::{DataServerConfig, DataSource, FeedStatus, ServedBytes};
pub use scheduler::job_state_file::{TASKS, forget_job, partitions_in};
