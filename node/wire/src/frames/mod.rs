//! The frames of the protocol: one type for each kind of frame. scripts/book/frames.py prints the table of them.
//!
//! A frame type turns its fields into a head ([`FrameKind::encode`]) and reads them back ([`FrameKind::decode`]). Only
//! this folder knows which word of a head holds which field. Payloads travel beside the head: the folders
//! payloads and messages have their layouts.

#[macro_use]
pub mod declare;
pub mod bulk;
pub mod coordinator;
pub mod cuts;
pub mod payloads;
pub mod read_paths;
pub mod replication;
pub mod runs;
pub mod scheduler;
pub mod session;
pub mod subscriptions;
pub mod sync;
#[cfg(test)]
mod table_tests;
pub mod tables;
pub mod unsent;
pub mod vectors;
pub mod word;

pub use payloads::{command_payload, f16, pull_newer, push_payload};

#[cfg(any(test, feature = "test-support"))]
use crate::frames::bulk::PullFrame;
use crate::frames::bulk::PushFrame;
use crate::frames::declare::FrameKind;
#[cfg(any(test, feature = "test-support"))]
use crate::frames::declare::FrameRow;
use crate::frames::read_paths::{ImagesFrame, RegionsFrame};
use crate::frames::replication::{CommandsFrame, CopyFrame, StateFrame};
use crate::frames::session::PingFrame;
use crate::frames::subscriptions::SubscribeFrame;
use crate::frames::sync::{FenceFrame, LeaveFrame, TickFrame};
use crate::frames::tables::{ClosePusherFrame, ConfirmFrame, DropTableFrame, IdentifyFrame, OpenTableFrame};
#[cfg(any(test, feature = "test-support"))]
use gannet_transport::Head;

/// Every frame kind, by subject.
#[cfg(any(test, feature = "test-support"))]
pub const ALL: [&[FrameRow]; 12] = [
    session::FRAMES,
    tables::FRAMES,
    bulk::FRAMES,
    read_paths::FRAMES,
    sync::FRAMES,
    vectors::FRAMES,
    scheduler::FRAMES,
    subscriptions::FRAMES,
    runs::FRAMES,
    cuts::FRAMES,
    replication::FRAMES,
    coordinator::FRAMES,
];

/// Requests about one link. The worker does not resend them over another link, and no call waits for their answers.
pub fn is_of_link(kind: u16) -> bool {
    matches!(kind, PingFrame::KIND | ImagesFrame::KIND | RegionsFrame::KIND | SubscribeFrame::KIND)
}

/// Requests that open a table. The caller gets a refusal as an answer.
pub fn is_of_opening(kind: u16) -> bool {
    matches!(kind, IdentifyFrame::KIND | OpenTableFrame::KIND | ConfirmFrame::KIND)
}

/// Requests that a worker resends in their first order and before all others: their meaning depends on the order.
pub fn is_ordered(kind: u16) -> bool {
    matches!(
        kind,
        PushFrame::KIND | TickFrame::KIND | CopyFrame::KIND | CommandsFrame::KIND | StateFrame::KIND
    )
}

/// Requests whose replies only say that the server has them for good. With asynchronous replication these replies come
/// later than the replies to requests behind them.
pub fn is_acknowledged(kind: u16) -> bool {
    matches!(kind, PushFrame::KIND | TickFrame::KIND)
}

/// Requests that go to each thread of each server. Their answers only acknowledge them.
pub fn is_for_each(kind: u16) -> bool {
    matches!(
        kind,
        TickFrame::KIND | FenceFrame::KIND | LeaveFrame::KIND | ClosePusherFrame::KIND | DropTableFrame::KIND
    )
}

/// The kind that answers a request of this kind.
pub fn answer_to(kind: u16) -> u16 {
    kind + 1
}

/// A head with any fields, also those that no frame type allows: for tests that play a peer which breaks the protocol.
#[cfg(any(test, feature = "test-support"))]
pub fn any_head(kind: u16, aux: u16, id: u64, words: [u64; 4]) -> Head {
    Head::new(kind, aux, id, words)
}

/// Decodes a head as every kind of frame, whatever its own kind is. A head that decodes must encode to one that decodes
/// to the same frame. Except for pulls, all its words must be the same again.
///
/// # Panics
/// If a frame type breaks that: a bug.
#[cfg(any(test, feature = "test-support"))]
pub fn decode_as_all(head: &Head) {
    for row in ALL.into_iter().flatten() {
        let head = Head { kind: row.kind, ..*head };
        let Ok(again) = (row.reencode)(&head) else { continue };
        assert_eq!((row.reencode)(&again), Ok(again), "{}", row.name);
        // In a pull, 0 and all bits name the same segments.
        assert!(
            row.kind == PullFrame::KIND || (again.words, again.aux) == (head.words, head.aux),
            "{}",
            row.name
        );
    }
}
