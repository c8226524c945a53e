//! Kinds of requests, by which a server counts them.

use gannet_wire::frames::bulk::{PullFrame, PushFrame, ScanFrame};
use gannet_wire::frames::cuts::{CutFrame, ReadCutFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::read_paths::{ImagesFrame, RegionsFrame};
use gannet_wire::frames::runs::{AllocateFrame, RunFrame};
use gannet_wire::frames::scheduler::{BookFrame, FeedFrame, JobTableFrame};
use gannet_wire::frames::session::PingFrame;
use gannet_wire::frames::subscriptions::SubscribeFrame;
use gannet_wire::frames::sync::{AwaitFrame, FenceFrame, JoinFrame, LeaveFrame, TickFrame};
use gannet_wire::frames::tables::{
    ClosePusherFrame, ConfirmFrame, DropTableFrame, ForgetClientsFrame, IdentifyFrame, OpenTableFrame,
    StatusFrame,
};
use gannet_wire::frames::vectors::VectorFrame;

/// Kinds of requests, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Pull,
    Push,
    Scan,
    Identify,
    OpenTable,
    Confirm,
    Status,
    ClosePusher,
    Ping,
    Images,
    Regions,
    Join,
    Tick,
    Fence,
    Leave,
    Book,
    Vector,
    Feed,
    Allocate,
    Run,
    DropTable,
    ForgetClients,
    Subscribe,
    Cut,
    Await,
    /// A kind that is not in the protocol.
    Unknown,
}

impl RequestKind {
    pub(crate) const NAMES: [&str; 26] = [
        "pull",
        "push",
        "scan",
        "identify",
        "open_table",
        "confirm",
        "status",
        "close_pusher",
        "ping",
        "images",
        "regions",
        "join",
        "tick",
        "fence",
        "leave",
        "book",
        "vector",
        "feed",
        "allocate",
        "run",
        "drop_table",
        "forget_clients",
        "subscribe",
        "cut",
        "await",
        "unknown",
    ];
    pub(crate) const COUNT: usize = RequestKind::NAMES.len();

    /// The kind of a frame.
    pub(crate) fn of(kind: u16) -> RequestKind {
        match kind {
            PullFrame::KIND => RequestKind::Pull,
            PushFrame::KIND => RequestKind::Push,
            ScanFrame::KIND => RequestKind::Scan,
            IdentifyFrame::KIND => RequestKind::Identify,
            OpenTableFrame::KIND => RequestKind::OpenTable,
            ConfirmFrame::KIND => RequestKind::Confirm,
            StatusFrame::KIND => RequestKind::Status,
            ClosePusherFrame::KIND => RequestKind::ClosePusher,
            PingFrame::KIND => RequestKind::Ping,
            ImagesFrame::KIND => RequestKind::Images,
            RegionsFrame::KIND => RequestKind::Regions,
            JoinFrame::KIND => RequestKind::Join,
            TickFrame::KIND => RequestKind::Tick,
            FenceFrame::KIND => RequestKind::Fence,
            LeaveFrame::KIND => RequestKind::Leave,
            BookFrame::KIND | JobTableFrame::KIND => RequestKind::Book,
            VectorFrame::KIND => RequestKind::Vector,
            FeedFrame::KIND => RequestKind::Feed,
            AllocateFrame::KIND => RequestKind::Allocate,
            RunFrame::KIND => RequestKind::Run,
            DropTableFrame::KIND => RequestKind::DropTable,
            ForgetClientsFrame::KIND => RequestKind::ForgetClients,
            SubscribeFrame::KIND => RequestKind::Subscribe,
            CutFrame::KIND | ReadCutFrame::KIND => RequestKind::Cut,
            AwaitFrame::KIND => RequestKind::Await,
            _ => RequestKind::Unknown,
        }
    }
}
