//! The links to each thread of each server: how they are made, lost and made again, and what travels over them.

pub(crate) mod attempts;
pub(crate) mod control;
pub(crate) mod greeting;
pub(crate) mod keysets;
pub(crate) mod layout;
pub(crate) mod opening;
pub(crate) mod owners;
pub(crate) mod peer;
pub(crate) mod peer_reads;
pub(crate) mod peer_state;
pub(crate) mod read_paths;
pub(crate) mod refused;
pub(crate) mod replies;
pub(crate) mod state;
pub(crate) mod steps;
pub(crate) mod turns;
