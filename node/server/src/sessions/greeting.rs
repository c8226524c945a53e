//! What a connection must send before a thread takes it over: with a token a knock and a proof, then the hello.

use crate::counters::server::ServerCounters;
use crate::sessions::send::turn_away;
use gannet_core::DATA_PUSHERS;
use gannet_transport::{Frame, Head, HeadError, Link, LinkError, NoOwner, Stream};
use gannet_wire::frames::declare::{FrameError, FrameKind};
use gannet_wire::frames::session::{ChallengeFrame, HelloFrame, KnockFrame, ProveFrame, ProvenFrame};
use gannet_wire::log_limiter::{LogLimiter, Suppressed};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{ChallengeV1, HelloV1, KnockV1, ProofV1};
use gannet_wire::random::draw;
use gannet_wire::refusal::Refusal;
use gannet_wire::token::{Nonces, ProofSide, Token};
use std::sync::Arc;
use std::time::Duration;

/// How far the greeting of a connection has come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    /// It has sent nothing.
    New,
    /// It has knocked, and was challenged.
    Challenged(Nonces),
    /// It has proved that it has the token.
    Proven,
}

/// Why a connection is refused.
#[derive(Debug)]
pub(crate) struct GreetingError {
    pub(crate) refusal: Refusal,
    /// The id of the refused frame, or 0.
    pub(crate) id: u64,
    pub(crate) why: String,
}

/// The hello, and the id of its frame.
pub(crate) type Hello = (HelloV1, u64);

/// Conducts the greeting of connections.
pub(crate) struct Greeter {
    token: Option<Token>,
    counters: Arc<ServerCounters>,
    /// Keeps strangers from filling the log.
    log_limiter: LogLimiter,
}

impl Greeter {
    pub(crate) fn new(token: Option<Token>, counters: Arc<ServerCounters>) -> Greeter {
        Greeter { token, counters, log_limiter: LogLimiter::default() }
    }

    /// Reads what has come, and answers it. Returns the hello once it has come whole, from a peer that may send it.
    pub(crate) fn hear<S: Stream>(
        &self,
        link: &mut Link<S>,
        stage: &mut Stage,
    ) -> Result<Option<Hello>, GreetingError> {
        let broken = |error: LinkError| GreetingError {
            refusal: match error {
                LinkError::Tls { .. } | LinkError::Frame { source: HeadError::TlsClient, .. } => Refusal::Tls,
                _ => Refusal::Malformed,
            },
            id: 0,
            why: error.to_string(),
        };
        loop {
            let (receive, transmit) = link.halves();
            if let Some(frame) = receive.peek(&mut NoOwner).map_err(broken)? {
                let answer = match self.handle(&frame, stage)? {
                    GreetingOutcome::Hello(hello) => {
                        receive.consume();
                        return Ok(Some(hello));
                    }
                    GreetingOutcome::Token(head, payload) => (head, payload),
                };
                receive.consume();
                let sent = transmit.send_copy(answer.0, &answer.1);
                sent.map_err(|full| malformed(answer.0.id, full.to_string()))?;
            } else if link.is_readable() {
                link.fill(&mut NoOwner).map_err(broken)?;
            } else {
                if link.can_send() {
                    link.flush(&mut NoOwner).map_err(broken)?;
                }
                return Ok(None);
            }
        }
    }

    fn handle(&self, frame: &Frame<'_>, stage: &mut Stage) -> Result<GreetingOutcome, GreetingError> {
        let id = frame.head.id;
        let invalid = |error: control::ControlError| malformed(id, error.to_string());
        let bad_frame = |error: FrameError| malformed(id, error.to_string());
        match (frame.head.kind, *stage, &self.token) {
            (HelloFrame::KIND, Stage::Proven, _) | (HelloFrame::KIND, Stage::New, None) => {
                HelloFrame::decode(&frame.head).map_err(bad_frame)?;
                let hello: HelloV1 = control::open(frame.payload).map_err(invalid)?;
                if hello.pusher >= DATA_PUSHERS {
                    let why = format!("pusher {:#x}: a worker's number is below 2^63", hello.pusher);
                    return Err(GreetingError { refusal: Refusal::Name, id, why });
                }
                Ok(GreetingOutcome::Hello((hello, id)))
            }
            (HelloFrame::KIND, _, Some(_)) => {
                Err(unproven(id, "this server asks for a token: give the worker the same --token-file"))
            }
            (KnockFrame::KIND, _, None) => Err(unproven(
                id,
                "this server has no token: start it with --token-file, or the worker without",
            )),
            (KnockFrame::KIND, Stage::New, Some(_)) => {
                KnockFrame::decode(&frame.head).map_err(bad_frame)?;
                let KnockV1 { nonce: worker } = control::open(frame.payload).map_err(invalid)?;
                let server = draw().ok_or_else(|| unproven(id, "the system gives no random bytes"))?;
                *stage = Stage::Challenged(Nonces { worker, server });
                Ok(GreetingOutcome::Token(
                    ChallengeFrame {}.encode(id),
                    control::seal(&ChallengeV1 { nonce: server }),
                ))
            }
            (ProveFrame::KIND, Stage::Challenged(nonces), Some(token)) => {
                ProveFrame::decode(&frame.head).map_err(bad_frame)?;
                let ProofV1 { proof } = control::open(frame.payload).map_err(invalid)?;
                if !token.check(ProofSide::Worker, &nonces, &proof) {
                    return Err(unproven(
                        id,
                        "the worker's token is not this server's: give both the same --token-file",
                    ));
                }
                *stage = Stage::Proven;
                let proof = token.prove(ProofSide::Server, &nonces);
                Ok(GreetingOutcome::Token(ProvenFrame {}.encode(id), control::seal(&ProofV1 { proof })))
            }
            (kind, ..) => Err(malformed(id, format!("frame kind {kind} where a hello is due"))),
        }
    }

    /// Tells a connection why it ends, counts the refusal, and logs it with its peer, within the log's limit.
    pub(crate) fn refuse<S: Stream>(&mut self, link: &mut Link<S>, error: GreetingError, now: Duration) {
        let GreetingError { refusal, id, why } = error;
        self.counters.acceptor.dropped.add(1);
        self.counters.acceptor.refused[refusal.place()].add(1);
        let peer = link.peer().clone();
        self.complain(now, |others| tracing::warn!(%peer, ?refusal, why, others, "a connection was refused"));
        turn_away(link, id, refusal, why);
    }

    /// Logs about a connection, within the log's limit. `others`: how many messages the limit has suppressed.
    pub(crate) fn complain(&mut self, now: Duration, log: impl FnOnce(Suppressed)) {
        if let Some(others) = self.log_limiter.allow(now) {
            log(others);
        }
    }
}

enum GreetingOutcome {
    /// The greeting is over.
    Hello(Hello),
    /// A step of the proof, and its answer.
    Token(Head, Vec<u8>),
}

fn malformed(id: u64, why: String) -> GreetingError {
    GreetingError { refusal: Refusal::Malformed, id, why }
}

fn unproven(id: u64, why: &str) -> GreetingError {
    GreetingError { refusal: Refusal::Token, id, why: why.to_owned() }
}
