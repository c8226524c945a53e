//! The coordinator: a small store of keys that all processes of a job agree on, whatever else fails. It says who owns
//! what. It is no part of the path of pushes and pulls.

pub(crate) mod addr;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod kept;
pub mod memory;
