//! Control requests: those that move no rows.

use crate::requests::names::TableId;
use gannet_transport::Head;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::unsent::UnsentFrame;

/// The recipients of a request. Their links may change while it is in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Recipients<'a> {
    /// Every thread of every server.
    All,
    /// The owner of a shard.
    Owner(u32),
    /// The owner of each shard, one request for each shard.
    Owners,
    /// Thread 0 of the first server, this many requests.
    First(usize),
    /// These links. If a server's threads change meanwhile, there are no answers.
    Links(&'a [usize]),
}

/// A control request: one that moves no rows.
pub(crate) struct ControlRequest<'a> {
    pub(crate) frame: UnsentFrame,
    pub(crate) table: Option<TableId>,
    /// Makes the payload of the n-th request, which goes to this server.
    pub(crate) payload: Option<&'a dyn Fn(usize, u32) -> Vec<u8>>,
}

impl<'a> ControlRequest<'a> {
    /// A request with payloads; the table in `frame` is 0.
    pub(crate) fn with_payload(
        frame: &impl FrameKind,
        table: Option<TableId>,
        payload: &'a dyn Fn(usize, u32) -> Vec<u8>,
    ) -> ControlRequest<'a> {
        ControlRequest { frame: UnsentFrame::new(frame), table, payload: Some(payload) }
    }

    /// A request about no table, without a payload.
    pub(crate) fn new(frame: &impl FrameKind) -> ControlRequest<'a> {
        ControlRequest { frame: UnsentFrame::new(frame), table: None, payload: None }
    }

    /// A request about a table, without a payload; the table in `frame` is 0.
    pub(crate) fn about(table: TableId, frame: &impl FrameKind) -> ControlRequest<'a> {
        ControlRequest { frame: UnsentFrame::new(frame), table: Some(table), payload: None }
    }
}

/// The answer of a link.
pub(crate) struct ControlReply {
    pub(crate) link: usize,
    pub(crate) head: Head,
    pub(crate) payload: Vec<u8>,
    /// The epoch of the link over which it came.
    pub(crate) epoch: u64,
}
