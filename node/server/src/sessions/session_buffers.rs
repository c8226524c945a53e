//! The memory behind the buffers of a session's link. The server's sessions share one budget of it.

use crate::peers::memory::{SessionMemory, SessionShare};
use gannet_transport::limits::LINK_BYTES_MAX;
use gannet_transport::{Head, Link, Stream};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::WelcomeFrame;
use gannet_wire::messages::control;
use gannet_wire::messages::control::WelcomeV1;
use std::sync::Arc;

/// A session's share of the server's buffer memory: enough for a link's buffers, or nothing.
pub(crate) struct SessionBuffers {
    share: SessionShare,
    /// The welcome, which the session sends once it has memory.
    welcome: Option<(Head, Vec<u8>)>,
    waiting: bool,
}

impl SessionBuffers {
    /// `hello_id`: the id of the request that the welcome answers.
    pub(crate) fn new(
        memory: Arc<SessionMemory>,
        hello_id: u64,
        grant: WelcomeFrame,
        welcome: &WelcomeV1,
    ) -> SessionBuffers {
        SessionBuffers {
            share: SessionShare::new(memory),
            welcome: Some((grant.encode(hello_id), control::seal(welcome))),
            waiting: false,
        }
    }

    /// Reserves memory for the link's buffers, and sends the welcome as soon as there is some. `false`: there is none.
    pub(crate) fn reserve<S: Stream>(&mut self, link: &mut Link<S>) -> bool {
        self.waiting = self.share.bytes() == 0 && !self.share.resize(LINK_BYTES_MAX);
        if !self.waiting
            && let Some((head, welcome)) = self.welcome.take()
        {
            let sent = link.transmit().send_copy(head, &welcome);
            debug_assert!(sent.is_ok(), "a new link has room");
        }
        !self.waiting
    }

    /// Returns the memory if the link's buffers are empty.
    pub(crate) fn release<S: Stream>(&mut self, link: &mut Link<S>) {
        link.rest();
        if link.held_bytes() == 0 {
            self.share.resize(0);
        }
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.share.bytes() > 0
    }

    /// The session waits for memory.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }
}
