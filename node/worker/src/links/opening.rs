//! A connection that becomes the link of a peer: what it waits for, and what it has heard.

use crate::error::WorkerError;
use crate::requests::request_queue::Credit;
use gannet_transport::{Head, Link, LinkError, NoOwner, Stream};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::{HelloFrame, KnockFrame, ProveFrame};
use gannet_wire::frames::sync::JoinFrame;
use gannet_wire::frames::tables::OpenTableFrame;
use gannet_wire::messages::control::WelcomeV1;
use gannet_wire::token::{Nonce, Nonces};
use std::time::Duration;

/// The answer that the connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpeningStep {
    /// The challenge. This is the nonce that the worker sent.
    Knock(Nonce),
    /// The server's proof.
    Prove(Nonces),
    /// The welcome.
    Hello,
    /// This table of the worker, opened.
    Table(usize),
    /// The answer to the request to keep step over this table.
    Join(usize),
}

impl OpeningStep {
    /// The server has answered nothing yet.
    pub(crate) fn is_first(self, token: bool) -> bool {
        match self {
            OpeningStep::Knock(_) => true,
            OpeningStep::Hello => !token,
            _ => false,
        }
    }
}

/// A connection that is no link yet. It has at most one request in flight.
pub(crate) struct Opening<S> {
    pub(crate) link: Link<S>,
    pub(crate) step: OpeningStep,
    pub(crate) begun: Duration,
    pub(crate) welcome: Option<(WelcomeV1, Credit)>,
    /// The numbers of the tables opened so far.
    pub(crate) tables: Vec<u32>,
}

impl<S: Stream> Opening<S> {
    /// The server has said how many threads it has.
    pub(crate) fn is_welcome(&self) -> bool {
        self.welcome.is_some()
    }

    pub(crate) fn ask(
        &mut self,
        step: OpeningStep,
        request: impl FrameKind,
        payload: &[u8],
    ) -> Result<(), WorkerError> {
        self.step = step;
        let sent = self.link.transmit().send_copy(request.encode(0), payload);
        sent.map_err(|full| WorkerError::Call(full.to_string()))
    }

    pub(crate) fn kind(&self) -> u16 {
        match self.step {
            OpeningStep::Knock(_) => KnockFrame::KIND,
            OpeningStep::Prove(_) => ProveFrame::KIND,
            OpeningStep::Hello => HelloFrame::KIND,
            OpeningStep::Table(_) => OpenTableFrame::KIND,
            OpeningStep::Join(_) => JoinFrame::KIND,
        }
    }

    /// The next answer, if it is here.
    pub(crate) fn receive_answer(&mut self) -> Result<Option<(Head, Vec<u8>)>, LinkError> {
        self.link.flush(&mut NoOwner)?;
        if self.link.is_readable() {
            self.link.fill(&mut NoOwner)?;
            // The end of a TLS handshake makes postponed output sendable, and no event reports that.
            if self.link.can_send() {
                self.link.flush(&mut NoOwner)?;
            }
        }
        let Some(frame) = self.link.receive().peek(&mut NoOwner)? else { return Ok(None) };
        let answer = (frame.head, frame.payload.to_vec());
        self.link.receive().consume();
        Ok(Some(answer))
    }
}
