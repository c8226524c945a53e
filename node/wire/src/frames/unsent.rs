//! A control request that waits for its link.

use crate::frames::declare::FrameKind;
use gannet_transport::Head;

/// A request without its id. A worker keeps it until it knows the link, because each link numbers tables by itself.
/// The low half of w0 is then that number, in the requests that are about a table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UnsentFrame(Head);

impl UnsentFrame {
    /// `frame`: its table, if it has one, is 0.
    pub fn new(frame: &impl FrameKind) -> UnsentFrame {
        UnsentFrame(frame.encode(0))
    }

    pub fn kind(&self) -> u16 {
        self.0.kind
    }

    /// The request as it was made, if it is of this kind.
    pub fn get<F: FrameKind>(&self) -> Option<F> {
        F::decode(&self.0).ok()
    }

    /// The head on a link that calls the table by this number.
    pub fn head(&self, id: u64, table: Option<u32>) -> Head {
        let mut head = Head { id, ..self.0 };
        head.words[0] |= table.map_or(0, u64::from);
        head
    }
}
