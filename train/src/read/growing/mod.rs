//! Sources that grow while they are trained: who looks for what is new, and who hands it out.

pub(crate) mod folder;
#[cfg(test)]
mod folder_tests;
pub(crate) mod local_tasks;
pub(crate) mod looking;
