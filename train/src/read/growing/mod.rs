//! Sources that grow while they are trained: who looks for what is new, and who hands it out.

pub(crate) mod folder;
#[cfg(test)]
mod folder_tests;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(feature = "kafka")]
pub(crate) mod kafka_address;
#[cfg(feature = "kafka")]
pub(crate) mod kafka_client;
#[cfg(feature = "kafka")]
pub(crate) mod kafka_commits;
#[cfg(all(test, feature = "kafka"))]
mod kafka_tests;
#[cfg(feature = "kafka")]
pub(crate) mod kafka_text;
pub(crate) mod local_tasks;
pub(crate) mod looking;
#[cfg(any(test, feature = "kafka"))]
pub(crate) mod message_text;
#[cfg(test)]
mod message_text_tests;
pub(crate) mod text_parts;
