//! How a reply or a refusal goes into the out queue.

use crate::peers::outcome::RequestOutcome;
use crate::replication::hold::HeldAcks;
use crate::requests::backups::told_apart;
use crate::server_tables::ServerTables;
use gannet_transport::{Full, Head, Link, NoOwner, Stream, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::{HelloFrame, RefusedFrame};
use gannet_wire::limits::TEXT_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::control::RefusedV1;
use gannet_wire::refusal::Refusal;

/// Queues a reply without payload. If it is an acknowledgement that is kept apart, keeps it until backups have the
/// commands on which it depends.
pub(crate) fn send_reply(
    reply: Head,
    tables: &ServerTables,
    transmit: &mut Transmit,
    acks: &mut HeldAcks,
) -> Result<(), Full> {
    match told_apart(tables).filter(|_| HeldAcks::keeps(&reply)) {
        Some(told) => acks.keep(told, reply),
        None => transmit.send(reply)?,
    }
    Ok(())
}

/// Answers the request of this kind and id with the reason for its refusal.
pub(crate) fn answer_refused(
    kind: u16,
    id: u64,
    refusal: Refusal,
    mut text: String,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
    let refused = RefusedFrame { code: refusal as u16, kind };
    Ok(transmit.send_copy(refused.encode(id), &control::seal(&RefusedV1 { text }))?)
}

/// Tells a peer why its connection ends. The frame is small: a few tries send it, or it is dropped.
pub(crate) fn turn_away<S: Stream>(link: &mut Link<S>, id: u64, refusal: Refusal, why: String) {
    if answer_refused(HelloFrame::KIND, id, refusal, why, link.transmit()).is_ok() {
        // Whether the frame went out or the link is broken, the connection ends.
        let _ = (0..4).find(|_| link.flush(&mut NoOwner).unwrap_or(true));
    }
}
