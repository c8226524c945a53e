//! Messages of a cut that are longer than a frame: those of a thread with thousands of tables. They travel in parts.

use crate::peers::outcome::{RequestFailure, refuse};
use gannet_wire::limits::{CUT_BYTES_MAX, CUT_PART_BYTES};
use gannet_wire::messages::control;
use gannet_wire::messages::cuts::{CutReplyV1, CutRequestV1};
use gannet_wire::refusal::Refusal;

/// The message that is arriving in parts, and the reply that leaves in parts.
#[derive(Default)]
pub(crate) struct CutParts {
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Bytes of the reply that have left.
    sent: usize,
}

impl CutParts {
    /// Takes a part of a request, of which so many bytes are left. Returns the request when it is whole.
    pub(crate) fn add(&mut self, bytes: &[u8], left: u64) -> Result<Option<CutRequestV1>, RequestFailure> {
        let all = (self.request.len() + bytes.len()) as u64;
        if all.saturating_add(left) > CUT_BYTES_MAX as u64 {
            self.request = Vec::new();
            let text = format!(
                "a step of a cut has more than {CUT_BYTES_MAX} bytes, the limit: save fewer tables at once"
            );
            return refuse(Refusal::Limit, text);
        }
        self.request.extend_from_slice(bytes);
        if left > 0 {
            return Ok(None);
        }
        match control::open(&std::mem::take(&mut self.request)) {
            Ok(request) => Ok(Some(request)),
            Err(error) => refuse(Refusal::Malformed, error.to_string()),
        }
    }

    /// Begins a reply that is longer than a frame. Returns its first part.
    pub(crate) fn begin(&mut self, reply: Vec<u8>) -> CutReplyV1 {
        (self.reply, self.sent) = (reply, 0);
        self.next()
    }

    /// The next part of the last long reply.
    pub(crate) fn next(&mut self) -> CutReplyV1 {
        let end = (self.sent + CUT_PART_BYTES).min(self.reply.len());
        let bytes = self.reply[self.sent..end].to_vec();
        self.sent = end;
        let left = (self.reply.len() - end) as u64;
        if left == 0 {
            (self.reply, self.sent) = (Vec::new(), 0);
        }
        CutReplyV1::Part { bytes, left }
    }
}
