//! The worker's event loop: a turn for each link, then a wait. It also handles lost links and time limits.

use crate::cache::following::Delta;
use crate::config::registrars::deciding_server;
use crate::error::WorkerError;
use crate::limits::{CHECK_EVERY, LOSSES_TOGETHER, PLACE_SILENCE};
use crate::links::attempts::{back_off, check_wait, try_connect};
use crate::links::control::post_on;
use crate::links::owners::look_for_owner;
use crate::links::peer::Peer;
use crate::links::replies::ReplyResult;
use crate::links::state::{Arrived, Links};
use crate::requests::ids::Request;
use crate::requests::in_flight::{ControlInFlight, LinkAnswer, RequestWork};
use crate::tables::table::Tables;
use gannet_transport::{Net, Poll};
use gannet_wire::frames;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::read_paths::{ImagesFrame, RegionsFrame};
use gannet_wire::frames::session::{PingFrame, RefusedFrame};
use gannet_wire::frames::subscriptions::SubscribeFrame;
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::limits::{OWN_SLEEP, SPIN_FRAME_BYTES};
use gannet_wire::messages::control;
use gannet_wire::messages::control::RefusedV1;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Refusals that wait until a call returns them.
const REFUSALS_MAX: usize = 16;

impl<N: Net> Links<N> {
    /// Sends and receives what it can. If nothing moves, it waits at most `patience`. Returns when it began, and
    /// whether it has waited. What came and is not for the links is then in `arrived`.
    pub(crate) fn exchange(
        &mut self,
        tables: &mut Tables,
        patience: Duration,
    ) -> Result<(Duration, bool), WorkerError> {
        let begun = self.net.now();
        if self.turn_once(tables, begun)? || patience.is_zero() {
            return Ok((begun, false));
        }
        // Short answers come soon: polling costs less than sleeping. For long ones the worker sleeps.
        let short = self.flights.bytes <= SPIN_FRAME_BYTES;
        if short {
            self.spin.begin(self.net.now());
        }
        loop {
            let now = self.net.now();
            let polling = short && self.spin.polls(now);
            self.wait(if polling { Duration::ZERO } else { patience.min(CHECK_EVERY) })?;
            if self.turn_all(tables, now)? || !polling {
                break;
            }
        }
        Ok((begun, true))
    }

    /// Sends and receives what it can, without waiting. Returns when it began, and whether there was anything.
    pub(crate) fn receive(&mut self, tables: &mut Tables) -> Result<(Duration, bool), WorkerError> {
        self.wait(Duration::ZERO)?;
        let now = self.net.now();
        Ok((now, self.turn_once(tables, now)?))
    }

    /// A turn for every link. Returns whether something was sent or received.
    fn turn_once(&mut self, tables: &mut Tables, now: Duration) -> Result<bool, WorkerError> {
        self.counters.turns.add(1);
        self.turn_all(tables, now)
    }

    /// Waits for events and passes them to their links.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<(), WorkerError> {
        self.poll.wait(patience, &mut self.events)?;
        for event in &self.events {
            let Some(peer) = self.peers.get_mut(event.token as usize) else { continue };
            let opening = peer.opening.as_mut().map(|opening| &mut opening.link);
            if let Some(link) = peer.link.as_mut().or(opening) {
                link.note(event);
            }
        }
        Ok(())
    }

    /// Gives every link a turn. Returns `true` if anything moved.
    fn turn_all(&mut self, tables: &mut Tables, now: Duration) -> Result<bool, WorkerError> {
        let mut moved = false;
        for number in 0..self.peers.len() {
            moved |= self.turn(tables, number, now)?;
        }
        Ok(moved)
    }

    fn turn(&mut self, tables: &mut Tables, number: usize, now: Duration) -> Result<bool, WorkerError> {
        let peer = &mut self.peers[number];
        let turned = peer.turn(&mut self.flights, &self.counters, &mut self.answers, now);
        let moved = match turned {
            Ok(moved) => moved,
            Err(error) => {
                self.lose(number, error, now)?;
                true
            }
        };
        let mut answers = std::mem::take(&mut self.answers);
        for answer in answers.drain(..) {
            self.take_in(tables, number, answer);
        }
        self.answers = answers;
        Ok(moved)
    }

    /// Sends on one link the requests that have just been queued.
    pub(crate) fn send(&mut self, number: usize) -> Result<(), WorkerError> {
        let sent = self.peers[number].post(&mut self.flights, &self.counters);
        match sent {
            // The caller may have other things to do before it waits.
            Ok(_) => Ok(self.poll.submit()?),
            Err(error) => self.lose(number, error, self.net.now()),
        }
    }

    /// Handles a link that ended, or a server that refused for now: the requests are sent again. If the server is short
    /// of space, or does not own the shards, the worker pauses first.
    pub(crate) fn lose(
        &mut self,
        number: usize,
        error: WorkerError,
        now: Duration,
    ) -> Result<(), WorkerError> {
        if matches!(error, WorkerError::Call(_) | WorkerError::Net(_)) {
            return Err(error);
        }
        self.log_loss(number, &error.to_string(), now);
        let refused_for_now = matches!(
            error,
            WorkerError::Refused { refusal: Refusal::NoSpace | Refusal::Blocked | Refusal::Moved, .. }
        );
        self.end_link(number, error.to_string(), refused_for_now, now);
        Ok(())
    }

    /// Ends a link. The worker pauses before the next one if the server refused for now, or if the link did not stand
    /// long. It also pauses if the link was made for the waiting requests and answered none of them. Otherwise it
    /// would ask a server that breaks every link, or every request, without a pause.
    fn end_link(&mut self, number: usize, why: String, refused_for_now: bool, now: Duration) {
        let peer = &mut self.peers[number];
        let pauses = refused_for_now || peer.health.answered_nothing() || !peer.health.stands(now);
        peer.lose(why, &mut self.flights, &self.counters, now);
        peer.health.refused_for_now = refused_for_now;
        if pauses {
            back_off(self, number, now);
        }
    }

    /// Logs that a link was lost. The links to the other threads of the server are lost with it: the log says so once,
    /// with their number.
    fn log_loss(&mut self, number: usize, why: &str, now: Duration) {
        let lost = &self.peers[number];
        let its: Vec<&Peer<N::Stream>> =
            self.peers.iter().filter(|peer| peer.server == lost.server).collect();
        let logged = self.config.secondary
            || its
                .iter()
                .filter_map(|peer| peer.health.loss_logged)
                .max()
                .is_some_and(|at| now < at + LOSSES_TOGETHER);
        let (peer, waiting, links) = (&lost.name, lost.requests.queue.len(), its.len());
        if logged {
            return tracing::debug!(%peer, waiting, why, "a link was lost; it will be made again");
        }
        tracing::warn!(%peer, waiting, why, links, "a link was lost; the worker makes it again, and the other lost links to this server");
        self.peers[number].health.loss_logged = Some(now);
    }

    /// Takes in what a link has brought, in its order.
    fn take_in(&mut self, tables: &mut Tables, number: usize, answer: ReplyResult) {
        let place = match answer {
            ReplyResult::Part(place) => place,
            ReplyResult::Refused { request, refusal, text } => {
                self.refuse(tables, number, request, refusal, text);
                request.index
            }
            ReplyResult::Waits => return self.arrived.push_back(Arrived::Waits { link: number }),
            ReplyResult::Delta(delta) => return self.take_delta(tables, number, &delta),
        };
        let Some(flight) = self.flights.at(place) else { return };
        let near = &mut self.peers[number].near;
        near.note_answer(flight.begun());
        if let RequestWork::Push(_) = flight.work {
            near.own_pushes.end();
        }
        flight.left -= 1;
        if flight.left == 0 {
            let now = self.net.now();
            self.flights.time(place, now);
        }
        let Some(flight) = self.flights.at(place) else { return };
        // A push ends with its last acknowledgement, and so does a refused request. Other answers wait for their call.
        let over = flight.failed || matches!(flight.work, RequestWork::Push(_)) || flight.is_unawaited();
        if flight.left > 0 || !over {
            return;
        }
        match self.flights.take(place).map(|flight| (flight.failed, flight.work)) {
            Some((_, RequestWork::Push(push))) => {
                let (table, seq, late, rows) = (push.laid.table(), push.seq, push.late, push.values);
                self.arrived.push_back(Arrived::PushEnded { table, seq, late, rows });
            }
            Some((false, RequestWork::Control(control)))
                if matches!(control.kind(), ImagesFrame::KIND | RegionsFrame::KIND) =>
            {
                self.arrived.push_back(Arrived::ReadPath { link: number, control: Box::new(control) });
            }
            _ => {}
        }
    }

    /// Stores the changes of rows that a server keeps fresh. They come among the answers, in order, so they are taken
    /// before the next answer is.
    fn take_delta(&mut self, tables: &Tables, number: usize, delta: &Delta) {
        match self.peers[number].take_delta(tables, delta) {
            Some(refreshed) => self.counters.cache_refreshed.add(refreshed),
            None => self.give_up(number, "unreadable changes of rows".to_owned()),
        }
    }

    /// Ends a link whose server sent what it must not. Another attempt may bring something right.
    pub(crate) fn give_up(&mut self, number: usize, why: String) {
        let now = self.net.now();
        self.log_loss(number, &why, now);
        self.end_link(number, why, false, now);
    }

    fn refuse(
        &mut self,
        tables: &Tables,
        number: usize,
        request: Request,
        refusal: Refusal,
        mut text: String,
    ) {
        let peer = self.peers[number].name.clone();
        if let Some(flight) = self.flights.at(request.index) {
            if let RequestWork::Control(control) = &mut flight.work
                && frames::is_of_opening(control.kind())
            {
                let refused = RefusedFrame { code: refusal as u16, kind: control.kind() };
                let (head, payload) = (refused.encode(0), control::seal(&RefusedV1 { text }));
                let epoch = self.peers[number].session.epoch;
                control.answers[request.chunk as usize] = Some(LinkAnswer { head, payload, epoch });
                return;
            }
            flight.failed = true;
            if refusal == Refusal::Malformed && flight.is_f16(request.chunk as usize) {
                text.push_str(
                    ". A server older than this worker knows no f16: upgrade it, or leave --wire f16 out",
                );
            }
        }
        if self.flights.kind(request.index) == Some(SubscribeFrame::KIND) {
            tracing::warn!(%peer, ?refusal, text, "rows of the cache are not kept fresh");
            return self.peers[number].follow_refused();
        }
        if self.flights.kind(request.index).is_some_and(frames::is_of_link) {
            return self.arrived.push_back(Arrived::ReadPathRefused { link: number, why: text });
        }
        let what = match self.flights.at(request.index).map(|flight| &flight.work) {
            Some(RequestWork::Pull(pull)) => {
                format!("a pull from table {:?}", tables[pull.laid.table()].schema.name)
            }
            Some(RequestWork::Push(push)) => {
                let row = push.laid.chunks()[request.chunk as usize].start;
                let table = &tables[push.laid.table()].schema.name;
                format!("push {}, from its row {row} on, to table {table:?}", push.seq)
            }
            _ => "a request".to_owned(),
        };
        let kind = refusal.name();
        if self.refused.len() == REFUSALS_MAX {
            tracing::error!(%peer, what, kind, text, "the server refused a request; earlier refusals wait to be reported");
        } else {
            // A call returns this error.
            tracing::debug!(%peer, what, kind, text, "refused");
            self.refused.push_back(WorkerError::Refused { peer, what, refusal, text });
        }
    }

    /// Returns refusals. From time to time it says that time limits and lost links must be [checked](Self::check).
    pub(crate) fn begin_check(&mut self, now: Duration) -> Result<bool, WorkerError> {
        if let Some(error) = self.refused.pop_front() {
            return Err(error);
        }
        let lost = self.peers.iter().any(|peer| peer.link.is_none() && peer.is_wanted());
        if !lost && now < self.next_check {
            return Ok(false);
        }
        self.next_check = now + CHECK_EVERY;
        self.excuse_own_sleep(now);
        let waits = self.peers.iter().find_map(|peer| peer.steps.waits.as_ref());
        self.counters.waits_clock.set(waits.map_or(0, |waits| waits.clock));
        self.counters.waits_for.set(waits.map_or(0, |waits| u64::from(waits.rank) + 1));
        Ok(true)
    }

    /// Checks time limits, and takes the next steps to make lost links again.
    pub(crate) fn check(&mut self, tables: &mut Tables, now: Duration) -> Result<(), WorkerError> {
        for number in 0..self.peers.len() {
            let peer = &self.peers[number];
            if !peer.is_wanted() {
                continue;
            }
            let silent = now.saturating_sub(peer.health.worked_at().max(peer.health.linked_at));
            if peer.requests.queue.is_empty() && peer.link.is_some() {
                if silent >= peer.requests.credit.ping_after.min(self.heartbeat_every(tables, number)) {
                    self.ping(number, now)?;
                }
                continue;
            }
            if peer.link.is_some() && silent > self.config.stall_timeout {
                let seconds = silent.as_secs_f64();
                let why = format!("{} sent nothing for {seconds:.1} s while answers were due", peer.name);
                tracing::warn!(why, "the worker makes a link again");
                self.end_link(number, why, false, now);
            }
            if silent > PLACE_SILENCE {
                look_for_owner(self, number);
            }
            try_connect(self, tables, number)?;
            // An unanswered ping loses the link, but no call waits for it.
            let unawaited =
                |request: &Request| self.flights.kind(request.index).is_some_and(frames::is_of_link);
            if !self.peers[number].requests.queue.iter().all(unawaited) {
                check_wait(self, tables, number, self.net.now())?;
            }
        }
        Ok(())
    }

    /// While this process was stopped, or its program did other things, it could not hear any peer. That time does not
    /// count as the peer's silence.
    fn excuse_own_sleep(&mut self, now: Duration) {
        let slept = now.saturating_sub(std::mem::replace(&mut self.checked_at, now));
        if slept > OWN_SLEEP {
            self.peers.iter_mut().for_each(|peer| peer.health.excuse(slept, now));
        }
    }

    /// How often the thread behind this link must hear of this worker while it keeps step. The deciding thread would
    /// otherwise take a worker for dead that waits elsewhere.
    fn heartbeat_every(&self, tables: &Tables, link: usize) -> Duration {
        let Peer { thread, addr, .. } = &self.peers[link];
        let decides = deciding_server(&self.config) == Some(addr) || self.config.places.is_some();
        let timeout = tables.worker_timeout().filter(|_| *thread == 0 && decides);
        timeout.map_or(Duration::MAX, |timeout| timeout / 3)
    }

    /// Pings a peer that has been silent for a while. A peer that does not answer is stalled.
    pub(crate) fn ping(&mut self, number: usize, now: Duration) -> Result<(), WorkerError> {
        self.counters.pings.add(1);
        let ping = UnsentFrame::new(&PingFrame {});
        post_on(self, number, ControlInFlight { frame: ping, ..ControlInFlight::default() }, 0, now).map(drop)
    }
}
