//! Why a session ends.

use gannet_transport::LinkError;
use std::sync::Arc;

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{peer} has more requests under way than its credit of {credit}")]
    Overrun { peer: Arc<str>, credit: usize },
    #[error("{0} sent a frame, or took answers, too slowly: {1} s are the limit")]
    Stalled(Arc<str>, u64),
    #[error("{0} has said nothing for {1} s")]
    Silent(Arc<str>, u64),
    #[error("the others went on without {0}")]
    Fenced(Arc<str>),
    #[error("{0} keeps step over another session now")]
    Displaced(Arc<str>),
    #[error("{0} has gone while a request of it waited for other workers")]
    Gone(Arc<str>),
}
