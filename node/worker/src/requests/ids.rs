//! Names of requests in flight and of their parts.

use gannet_wire::frames::word::pair_of_words;

/// Names a request in flight: its index, and which of the requests at that index it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// One part of a request in flight, queued on one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) index: u32,
    pub(crate) chunk: u32,
    pub(crate) push: bool,
    /// Keys and floats of the request and of its answer: what it takes of the credit.
    pub(crate) bytes: u32,
}

impl Request {
    pub(crate) fn id(&self) -> u64 {
        pair_of_words(self.chunk, self.index)
    }
}
