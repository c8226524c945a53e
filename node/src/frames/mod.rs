//! The frames of the protocol: one type for each kind of frame. docs/wire.md has the table, and a test holds both
//! equal.
//!
//! A frame type turns its fields into a head ([`FrameKind::encode`]) and reads them back ([`FrameKind::decode`]). Only
//! this folder knows which word of a head holds which field. Payloads travel beside the head: push_payload.rs,
//! pull_newer.rs and control.rs have their layouts.

#[macro_use]
mod declare;
pub(crate) mod awaited;
mod bulk;
pub(crate) mod command_payload;
#[cfg(test)]
mod command_payload_tests;
pub(crate) mod control;
mod coordinator;
mod cuts;
pub(crate) mod f16;
pub(crate) mod members;
pub(crate) mod pull_newer;
pub(crate) mod push_payload;
mod read_paths;
mod replication;
mod runs;
mod scheduler;
mod session;
mod subscriptions;
mod sync;
#[cfg(test)]
mod table_tests;
mod tables;
mod unsent;
mod vectors;
mod word;

pub(crate) use bulk::{AckFrame, PullFrame, PushFrame, RowsFrame, ScanFrame, ScannedFrame};
pub(crate) use coordinator::{CoordinateFrame, CoordinatedFrame};
pub(crate) use cuts::{CutFrame, CutIsFrame};
pub(crate) use declare::{Field, FrameDirection, FrameError, FrameKind, FrameRow};
pub(crate) use read_paths::{ImagesFrame, ImagesGivenFrame, RegionsAreFrame, RegionsFrame};
pub(crate) use replication::{
    CommandsDoneFrame, CommandsFrame, CopiedFrame, CopyFrame, PromoteFrame, PromotedFrame, StateDoneFrame,
    StateFrame,
};
pub(crate) use runs::{AllocateFrame, AllocatedFrame, RunFrame, RunIsFrame};
pub(crate) use scheduler::{
    BookFrame, BookedFrame, DataBytes, FedFrame, FeedFrame, JobTableFrame, JobTableNotedFrame,
};
pub(crate) use session::{
    ChallengeFrame, HelloFrame, KnockFrame, PingFrame, PongFrame, ProveFrame, ProvenFrame, RefusedFrame,
    WelcomeFrame,
};
pub(crate) use subscriptions::{DeltaFrame, SubscribeFlags, SubscribeFrame, SubscribedFrame};
pub(crate) use sync::{
    AwaitFrame, AwaitedFrame, FenceFrame, FencedFrame, JoinFrame, JoinedFrame, LeaveFrame, LeftFrame,
    TickFrame, TickedFrame, WaitsFrame,
};
pub(crate) use tables::{
    ClosePusherFrame, ConfirmFrame, ConfirmedFrame, DropTableFrame, IdentifyFrame, IdentityFrame,
    OpenTableFrame, PusherClosedFrame, StatusFrame, StatusIsFrame, TableDroppedFrame, TableOpenedFrame,
};
pub(crate) use unsent::UnsentFrame;
pub(crate) use vectors::{VectorDoneFrame, VectorFrame};
pub(crate) use word::{clock_word, pair, unpair};

#[cfg(any(test, feature = "test-support"))]
use gannet_transport::Head;

/// Every frame kind, by subject.
#[cfg(any(test, feature = "test-support"))]
pub(crate) const ALL: [&[FrameRow]; 12] = [
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
pub(crate) fn is_of_link(kind: u16) -> bool {
    matches!(kind, PingFrame::KIND | ImagesFrame::KIND | RegionsFrame::KIND | SubscribeFrame::KIND)
}

/// Requests that open a table. The caller gets a refusal as an answer.
pub(crate) fn is_of_opening(kind: u16) -> bool {
    matches!(kind, IdentifyFrame::KIND | OpenTableFrame::KIND | ConfirmFrame::KIND)
}

/// Requests that a worker resends in their first order and before all others: their meaning depends on the order.
pub(crate) fn is_ordered(kind: u16) -> bool {
    matches!(
        kind,
        PushFrame::KIND | TickFrame::KIND | CopyFrame::KIND | CommandsFrame::KIND | StateFrame::KIND
    )
}

/// Requests whose replies only say that the server has them for good. With asynchronous replication these replies come
/// later than the replies to requests behind them.
pub(crate) fn is_acknowledged(kind: u16) -> bool {
    matches!(kind, PushFrame::KIND | TickFrame::KIND)
}

/// Requests that go to each thread of each server. Their answers only acknowledge them.
pub(crate) fn is_for_each(kind: u16) -> bool {
    matches!(
        kind,
        TickFrame::KIND | FenceFrame::KIND | LeaveFrame::KIND | ClosePusherFrame::KIND | DropTableFrame::KIND
    )
}

/// The kind that answers a request of this kind.
pub(crate) fn answer_to(kind: u16) -> u16 {
    kind + 1
}

/// A head with any fields, also those that no frame type allows: for tests that play a peer which breaks the protocol.
#[cfg(any(test, feature = "test-support"))]
pub(crate) fn any_head(kind: u16, aux: u16, id: u64, words: [u64; 4]) -> Head {
    Head::new(kind, aux, id, words)
}

/// Decodes a head as every kind of frame, whatever its own kind is. A head that decodes must encode to one that decodes
/// to the same frame. Except for pulls, all its words must be the same again.
///
/// # Panics
/// If a frame type breaks that: a bug.
#[cfg(any(test, feature = "test-support"))]
pub(crate) fn decode_as_all(head: &Head) {
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
