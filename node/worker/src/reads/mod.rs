//! Rows that a worker reads itself: in the images of a server on its host, or over RDMA.

pub(crate) mod one_sided;
pub(crate) mod own_push_filter;
pub(crate) mod path_choice;
#[cfg(test)]
mod path_choice_tests;
pub(crate) mod query;
pub(crate) mod rdma_reads;
pub(crate) mod row_handles;
pub(crate) mod row_reader;
pub(crate) mod spec;
