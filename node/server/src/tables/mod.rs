//! The tables of a thread.

pub(crate) mod home;
pub(crate) mod identities;
#[cfg(test)]
mod identities_tests;
pub(crate) mod mirror;
pub(crate) mod regions;
pub(crate) mod table;
pub(crate) mod table_list;
