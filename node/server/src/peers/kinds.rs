//! Which kinds of requests are about copies, and which answers wait for backups.

use gannet_wire::frames::bulk::{PullFrame, ScanFrame};
use gannet_wire::frames::cuts::{CutFrame, ReadCutFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::is_acknowledged;
use gannet_wire::frames::read_paths::{ImagesFrame, RegionsFrame};
use gannet_wire::frames::replication::{CommandsFrame, CopyFrame, PromoteFrame, StateFrame};
use gannet_wire::frames::runs::{AllocateFrame, RunFrame};
use gannet_wire::frames::session::PingFrame;
use gannet_wire::frames::subscriptions::SubscribeFrame;
use gannet_wire::frames::tables::{ConfirmFrame, IdentifyFrame, OpenTableFrame, StatusFrame};

/// Whether requests of this kind are about copies.
pub(crate) fn are_about(kind: u16) -> bool {
    matches!(kind, CopyFrame::KIND | CommandsFrame::KIND | PromoteFrame::KIND | StateFrame::KIND)
}

/// Whether the reply to a request of this kind depends on commands of the shards here, and so waits for the backups.
/// The servers of a job are backups of each other: if the reply to a backup's commands waited too, two servers would
/// wait for each other.
pub(crate) fn depends_on_commands(kind: u16) -> bool {
    !matches!(kind, CopyFrame::KIND | CommandsFrame::KIND | StateFrame::KIND | PingFrame::KIND)
}

/// Whether the reply to a request of this kind may leave before the backups have what it depends on, with asynchronous
/// replication. Acknowledgements of pushes and clocks are kept apart.
pub(crate) fn leaves_at_once(kind: u16) -> bool {
    is_acknowledged(kind)
        || matches!(
            kind,
            PullFrame::KIND
                | ScanFrame::KIND
                | StatusFrame::KIND
                | SubscribeFrame::KIND
                | ImagesFrame::KIND
                | RegionsFrame::KIND
        )
        || !depends_on_commands(kind)
}

/// Whether requests of this kind change no rows and no state of a job. Some requests about runs do: the registry of a
/// follower refuses those.
pub(crate) fn only_reads(kind: u16) -> bool {
    matches!(
        kind,
        PullFrame::KIND
            | ScanFrame::KIND
            | SubscribeFrame::KIND
            | IdentifyFrame::KIND
            | OpenTableFrame::KIND
            | ConfirmFrame::KIND
            | StatusFrame::KIND
            | ImagesFrame::KIND
            | RegionsFrame::KIND
            | PingFrame::KIND
            | AllocateFrame::KIND
            | RunFrame::KIND
            | CutFrame::KIND
            | ReadCutFrame::KIND
    )
}
