//! The tables of a thread.

pub(crate) mod closing;
pub(crate) mod identities;
#[cfg(test)]
mod identities_tests;
pub(crate) mod regions;
pub(crate) mod server_tables;
pub(crate) mod table_list;
