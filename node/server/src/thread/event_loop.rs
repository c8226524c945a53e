//! A server thread: it polls its links and owns its shards. `run_once` is one round of the event loop.

use crate::counters::server::{ServerCounters, ThreadCounters};
use crate::cuts::state::CutTurn;
use crate::error::ServerError;
use crate::limits::{CUT_RETRY, INBOX_MAX, MEMORY_RETRY, STOP_TIME};
use crate::peers::buffers::RequestBuffers;
use crate::peers::keysets::Keysets;
use crate::peers::pusher::Pusher;
use crate::places::incarnations::Incarnations;
use crate::places::states::{NamedState, SavedStates, StateHolders, snapshot};
use crate::replication::replicator::ReplicatorWaker;
use crate::requests::cuts::absent::forget_clients;
use crate::requests::cuts::holding::{cut_expires, end_cut_of, expire_cut};
use crate::requests::cuts::slices::write_cut;
use crate::requests::evictions::evict_rows;
use crate::requests::steps::awaited::{end_session, hear};
use crate::server_tables::ServerTables;
use crate::sessions::context::{GreetedConnection, RequestContext};
use crate::sessions::end::SessionEnd;
use crate::sessions::send::turn_away;
use crate::sessions::session::Session;
use crate::thread::settings::ThreadSettings;
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::limits::LINK_BYTES_MAX;
use gannet_transport::{Event, LinkError, Net, Poll};
use gannet_wire::frames::session::WelcomeFrame;
use gannet_wire::limits::{SPIN_FRAME_BYTES, TICK};
use gannet_wire::log_limiter::LogLimiter;
use gannet_wire::messages::control::WelcomeV1;
use gannet_wire::refusal::Refusal;
use gannet_wire::spin::Spin;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub(crate) struct ShardThread<N: Net> {
    pub(crate) net: N,
    pub(crate) poll: N::Poll,
    events: Vec<Event>,
    inbox: Receiver<GreetedConnection<N::Stream>>,
    pub(crate) sessions: Vec<Option<Session<N::Stream>>>,
    /// Sessions that have work, each at most once: `queued` marks them.
    ready: VecDeque<usize>,
    queued: Vec<bool>,
    /// Sessions that wait for memory, in the order of their arrival, each at most once: `waiting` marks them.
    waiting_for_memory: VecDeque<usize>,
    waiting: Vec<bool>,
    pub(crate) tables: ServerTables,
    scratch: RequestBuffers,
    log_limiter: LogLimiter,
    pub(crate) scheduler: Option<Schedulers>,
    /// The registry of runs, in thread 0 of a server that has tables.
    pub(crate) runs: Option<Registry>,
    /// The counter of incarnations, in thread 0.
    pub(crate) incarnations: Option<Incarnations>,
    /// Of each backup, in order.
    pub(crate) replicators: Vec<ReplicatorWaker<N>>,
    /// Replies of some session may wait for backups.
    pub(crate) holds: bool,
    /// Promotions that the membership has wanted.
    pub(crate) promotions: u64,
    pub(crate) settings: ThreadSettings,
    next_session: u32,
    /// Whether the thread polls before it sleeps.
    spin: Spin,
    /// Short frames were handled since the thread was last idle: their sender may wait for the answer, and send more.
    short_frames: bool,
    next_tick: Duration,
    /// When the next sweep of a subscription is due.
    next_sweep: Duration,
    /// When pushes that wait for memory try again: another thread may have freed some.
    next_memory_retry: Duration,
    counters: Arc<ServerCounters>,
}

impl<N: Net> ShardThread<N> {
    pub(crate) fn new(
        net: N,
        inbox: Receiver<GreetedConnection<N::Stream>>,
        (mut tables, states): (ServerTables, Option<SavedStates>),
        settings: ThreadSettings,
        counters: Arc<ServerCounters>,
    ) -> Result<Self, ServerError> {
        let poll = net.poll()?;
        // With a coordinator a data folder may have states that another server has taken over since.
        let store =
            if settings.standing.is_some() { tables.store().beside() } else { tables.store().clone() };
        let mut scheduler = match settings.thread {
            0 => {
                let data_server = settings.data_server.clone();
                Some(Schedulers::open(store.folder(), data_server, net.now())?)
            }
            _ => None,
        };
        let mut incarnations = match settings.thread {
            0 => {
                Some(Incarnations::open(&store, settings.highest_incarnation.clone(), tables.scheduler_only)?)
            }
            _ => None,
        };
        let mut runs = match settings.thread {
            0 if !tables.scheduler_only => Some(Registry::open(store.folder(), &tables.detector, net.now())?),
            _ => None,
        };
        if let Some(((states, scheduler), incarnations)) =
            states.zip(scheduler.as_mut()).zip(incarnations.as_mut())
        {
            let holders = StateHolders { scheduler, runs: runs.as_mut(), incarnations };
            states.restore(holders, net.now())?;
        }
        tables.registrar = net.registrar();
        let spin = Spin::new(settings.spin);
        (tables.home.incarnation, tables.standing) = (settings.incarnation, settings.standing.clone());
        tables.waits.budget = Some(settings.step_budget.clone());
        let next_session = (settings.incarnation as u32).rotate_left(settings.thread);
        Ok(ShardThread {
            net,
            poll,
            events: Vec::new(),
            inbox,
            sessions: Vec::new(),
            ready: VecDeque::new(),
            queued: Vec::new(),
            waiting_for_memory: VecDeque::new(),
            waiting: Vec::new(),
            tables,
            scratch: RequestBuffers::default(),
            log_limiter: LogLimiter::default(),
            scheduler,
            runs,
            incarnations,
            replicators: Vec::new(),
            holds: false,
            promotions: 0,
            settings,
            next_session,
            spin,
            short_frames: false,
            next_tick: Duration::ZERO,
            next_sweep: Duration::MAX,
            next_memory_retry: Duration::MAX,
            counters,
        })
    }

    /// What a checkpoint of `run` saves of this thread, besides rows. Only thread 0 has something.
    pub(crate) fn saved_states(&self, run: &str) -> Vec<NamedState> {
        match (&self.scheduler, &self.incarnations) {
            (Some(scheduler), Some(incarnations)) => {
                snapshot(run, scheduler, self.runs.as_ref(), incarnations)
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn waker(&self) -> N::Waker {
        self.poll.waker()
    }

    /// One round: reads events, takes over new sessions, gives each ready session its turn, and checks time limits.
    /// Sleeps at most `sleep` if there is no work. Returns `true` if more work is ready.
    pub(crate) fn run_once(&mut self, sleep: Duration) -> Result<bool, ServerError> {
        self.follow_and_feed();
        let writing = write_cut(&mut self.tables, || self.net.now());
        self.follow_membership()?;
        // Sessions whose replies have waited for backups may be ready then.
        let replicating = self.replicate();
        let idle_from = if self.ready.is_empty() { Some(self.net.now()) } else { None };
        if let (Some(now), true) = (idle_from, self.short_frames) {
            self.short_frames = false;
            self.spin.begin(now);
        }
        let busy = replicating
            || self.tables.waits.evicts
            || writing == CutTurn::More
            || idle_from.is_none_or(|now| self.spin.polls(now));
        let sleep = if writing == CutTurn::Behind { sleep.min(CUT_RETRY) } else { sleep };
        let sleep = if self.waiting_for_memory.is_empty() { sleep } else { sleep.min(MEMORY_RETRY) };
        let sleep = match self.next_sweep.min(self.next_memory_retry).min(cut_expires(&self.tables)) {
            Duration::MAX => sleep,
            at => sleep.min(at.saturating_sub(self.net.now())),
        };
        let mut events = std::mem::take(&mut self.events);
        self.wait(if busy { Duration::ZERO } else { sleep.min(TICK) }, &mut events)?;
        for event in &events {
            if let Some(Some(session)) = self.sessions.get_mut(event.token as usize) {
                session.note(event);
                self.enqueue(event.token as usize);
            }
        }
        self.events = events;
        self.admit()?;
        let now = self.net.now();
        if let Some(from) = idle_from {
            self.own_counters().idle_nanos.add(now.saturating_sub(from).as_nanos() as u64);
        }
        for _ in 0..self.ready.len() {
            let Some(token) = self.ready.pop_front() else { break };
            self.queued[token] = false;
            self.serve(token, now);
        }
        if !self.waiting_for_memory.is_empty() {
            self.resume_memory_waiters(now);
        }
        if now >= self.next_sweep {
            self.sweep(now);
        }
        if now >= self.next_memory_retry {
            (self.next_memory_retry, self.tables.waits.group_changed) = (Duration::MAX, true);
            self.resume_group_waiters();
        }
        if now >= cut_expires(&self.tables) {
            expire_cut(&mut self.tables, now);
        }
        self.resume_group_waiters();
        self.tables.waits.evicts = evict_rows(&mut self.tables, now);
        if now >= self.next_tick {
            self.tick(now);
        }
        self.wake_replicators();
        Ok(!self.ready.is_empty())
    }

    /// Waits for events. A coordinator of this thread learns for how long it can hear nobody.
    fn wait(&mut self, limit: Duration, events: &mut Vec<Event>) -> Result<(), ServerError> {
        let coordinator = self.tables.coordinator.as_deref();
        coordinator.inspect(|coordinator| coordinator.begin_wait(limit));
        self.poll.wait(limit, events)?;
        coordinator.inspect(|coordinator| coordinator.end_wait());
        Ok(())
    }

    /// This thread's counters.
    pub(crate) fn own_counters(&self) -> &ThreadCounters {
        &self.counters.threads[self.settings.thread as usize]
    }

    pub(crate) fn enqueue(&mut self, token: usize) {
        if !std::mem::replace(&mut self.queued[token], true) {
            self.ready.push_back(token);
        }
    }

    fn serve(&mut self, token: usize, now: Duration) {
        let Some(session) = &mut self.sessions[token] else { return };
        let counters = &self.counters.threads[self.settings.thread as usize];
        let read_time = || self.net.now();
        let (tables, scratch, log_limiter) = (&mut self.tables, &mut self.scratch, &mut self.log_limiter);
        let (scheduler, incarnations) = (self.scheduler.as_mut(), self.incarnations.as_mut());
        let runs = self.runs.as_mut();
        let mut context = RequestContext {
            tables,
            scratch,
            counters,
            log_limiter,
            scheduler,
            runs,
            incarnations,
            now: &read_time,
        };
        match session.turn(&mut context, now) {
            Ok(turn) => {
                if turn.frames > 0 && turn.largest <= SPIN_FRAME_BYTES {
                    self.short_frames = true;
                }
                self.next_sweep = self.next_sweep.min(session.next_sweep());
                self.holds |= session.is_holding();
                if turn.more {
                    self.enqueue(token);
                }
                // A session waits once, whatever its peer sends meanwhile.
                if turn.waiting_for_memory && !std::mem::replace(&mut self.waiting[token], true) {
                    self.own_counters().memory_waits.add(1);
                    self.waiting_for_memory.push_back(token);
                }
            }
            Err(end) => self.end(token, &end),
        }
        if std::mem::take(&mut self.tables.waits.memory_short) {
            self.next_memory_retry = self.next_memory_retry.min(now + MEMORY_RETRY);
        }
        self.resume_group_waiters();
    }

    /// Sends the sessions that are due the changes of the rows that they have subscribed to.
    fn sweep(&mut self, now: Duration) {
        self.next_sweep = Duration::MAX;
        for token in 0..self.sessions.len() {
            let Some(session) = &mut self.sessions[token] else { continue };
            if session.next_sweep() <= now {
                let counters = &self.counters.threads[self.settings.thread as usize];
                let read_time = || self.net.now();
                let (tables, scratch, log_limiter) =
                    (&mut self.tables, &mut self.scratch, &mut self.log_limiter);
                let (scheduler, incarnations) = (self.scheduler.as_mut(), self.incarnations.as_mut());
                let runs = self.runs.as_mut();
                let context = &mut RequestContext {
                    tables,
                    scratch,
                    counters,
                    log_limiter,
                    scheduler,
                    runs,
                    incarnations,
                    now: &read_time,
                };
                session.sweep(context, now);
                // The session's next turn sends the frames.
                if !std::mem::replace(&mut self.queued[token], true) {
                    self.ready.push_back(token);
                }
            }
            self.next_sweep = self.next_sweep.min(session.next_sweep());
        }
    }

    /// After a change of the workers that keep step: ends the sessions of fenced workers and those that other sessions
    /// have displaced, and lets waiting sessions try again.
    fn resume_group_waiters(&mut self) {
        while std::mem::take(&mut self.tables.waits.group_changed)
            || !self.tables.waits.fenced.is_empty()
            || !self.tables.waits.displaced.is_empty()
        {
            let fenced = std::mem::take(&mut self.tables.waits.fenced);
            let displaced = std::mem::take(&mut self.tables.waits.displaced);
            for token in 0..self.sessions.len() {
                let Some(session) = &mut self.sessions[token] else { continue };
                let Pusher { pusher, incarnation, session: number, .. } = *session.pusher();
                if displaced.contains(&number) {
                    let end = SessionEnd::Displaced(session.peer.clone());
                    self.end(token, &end);
                    continue;
                }
                let belongs_to = |table| session.pusher().is_of(table);
                if fenced
                    .iter()
                    .any(|&(at, who, upto)| pusher == who && incarnation <= upto && belongs_to(at))
                {
                    let end = session.fence();
                    self.end(token, &end);
                } else if session.is_waiting() {
                    self.enqueue(token);
                }
            }
        }
    }

    fn end(&mut self, token: usize, end: &SessionEnd) {
        let Some(session) = self.sessions[token].take() else { return };
        let number = session.pusher().session;
        self.tables
            .checkpoints
            .cuts
            .absences
            .end(session.pusher(), self.tables.detector.clock(self.net.now()));
        end_session(&mut self.tables, number);
        end_cut_of(&mut self.tables, number, self.net.now());
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.closed(number);
        }
        if let Some(runs) = &mut self.runs {
            runs.closed(number);
        }
        tracing::info!(peer = %session.peer, thread = self.settings.thread, why = %end, "a session ended");
        let counters = self.own_counters();
        counters.over(session.over).ended.add(1);
        match end {
            SessionEnd::Link(LinkError::Frame { .. }) => counters.bad_frames.add(1),
            SessionEnd::Link(_) | SessionEnd::Fenced(_) | SessionEnd::Gone(_) | SessionEnd::Displaced(_) => {}
            SessionEnd::Overrun { .. } => counters.overruns.add(1),
            SessionEnd::Stalled(..) => counters.stalled.add(1),
            SessionEnd::Silent(..) => counters.silent.add(1),
        }
    }

    /// Frees the memory of idle sessions, and wakes sessions that wait for memory.
    fn resume_memory_waiters(&mut self, now: Duration) {
        let buffers = self.settings.buffers.clone();
        if !buffers.has(LINK_BYTES_MAX) {
            self.sessions.iter_mut().flatten().for_each(|session| session.rest(now, true));
        }
        // Each session checks again in its own turn. One that still finds no memory queues here again.
        let mut context = 0;
        while buffers.has(context + LINK_BYTES_MAX)
            && let Some(token) = self.waiting_for_memory.pop_front()
        {
            context += LINK_BYTES_MAX;
            self.waiting[token] = false;
            self.enqueue(token);
        }
    }

    /// Takes over the sessions that the acceptor has greeted.
    fn admit(&mut self) -> Result<(), ServerError> {
        for _ in 0..INBOX_MAX {
            let Ok(mut greeted) = self.inbox.try_recv() else { break };
            let free = self.sessions.iter().position(Option::is_none).unwrap_or(self.sessions.len());
            let limit = self.settings.limits.sessions;
            if free == limit {
                self.own_counters().refused_sessions.add(1);
                let more = "the limit (--sessions-max): end some, or start the server with more";
                self.refuse(greeted, format!("this server thread has {limit} sessions, {more}"));
                continue;
            }
            // Bytes behind the hello are in a buffer that is not counted yet. Gannet's workers wait for the welcome
            // before they send more.
            if greeted.link.receive().is_partial() && !self.settings.buffers.has(LINK_BYTES_MAX) {
                let why = "there is no memory for frames before the welcome (--session-memory): wait for the welcome";
                self.refuse(greeted, why.to_owned());
                continue;
            }
            if free == self.sessions.len() {
                self.sessions.push(None);
                self.queued.push(false);
                self.waiting.push(false);
            }
            if let Err(error) = self.poll.add(greeted.link.stream(), free as u64) {
                tracing::warn!(peer = %greeted.link.peer(), %error, "refused");
                continue;
            }
            self.next_session = self.next_session.wrapping_add(1);
            let session = self.begin(greeted);
            self.tables.checkpoints.cuts.absences.begin(session.pusher());
            self.own_counters().over(session.over).begun.add(1);
            self.sessions[free] = Some(session);
            self.enqueue(free);
        }
        Ok(())
    }

    fn begin(&self, greeted: GreetedConnection<N::Stream>) -> Session<N::Stream> {
        let ThreadSettings {
            threads, incarnation, keyset_bytes_max, limits, buffers, keysets, standing, ..
        } = &self.settings;
        let (session, threads) = (self.next_session, *threads);
        self.settings.highest_incarnation.note(greeted.hello.incarnation);
        let welcome = WelcomeV1 { incarnation: *incarnation, session, threads };
        let silence = limits.silence.as_millis() as u64;
        let grant = WelcomeFrame {
            credit_requests: u64::from(limits.credit_frames),
            credit_bytes: limits.credit_bytes,
            silence_ms: silence,
            lease_ms: standing.as_ref().map_or(0, |standing| standing.lease().as_millis() as u64),
        };
        let keysets = Keysets::new(*keyset_bytes_max, keysets.clone());
        Session::new(greeted, (grant, welcome), limits, keysets, buffers.clone(), self.net.now())
    }

    fn refuse(&mut self, mut greeted: GreetedConnection<N::Stream>, why: String) {
        if let Some(kept_back) = self.log_limiter.allow(self.net.now()) {
            tracing::warn!(peer = %greeted.link.peer(), why, kept_back, "a session was refused");
        }
        self.own_counters().refused[Refusal::Limit.place()].add(1);
        turn_away(&mut greeted.link, greeted.hello_id, Refusal::Limit, why);
    }

    /// Once in [`TICK`]: ends sessions that are overdue, frees the memory of idle ones, and updates the gauges.
    fn tick(&mut self, now: Duration) {
        self.next_tick = now + TICK;
        let standing = self.tables.standing.as_ref();
        self.tables.detector.hold_back(standing.is_some_and(|standing| standing.is_silent(now)), now);
        self.tables.detector.wake(now);
        self.tables.checkpoints.cuts.absences.wake(self.tables.detector.clock(now));
        self.counters.tick(self.settings.thread);
        let (silence, pressed) = (self.settings.limits.silence, !self.waiting_for_memory.is_empty());
        for token in 0..self.sessions.len() {
            let Some(session) = &mut self.sessions[token] else { continue };
            session.tick(now);
            let reported = session.report_wait(&self.tables, now);
            hear(&self.tables, session.pusher(), session.last_received());
            if reported && !std::mem::replace(&mut self.queued[token], true) {
                self.ready.push_back(token);
            }
            if let Some(end) = session.overdue(now, silence, pressed) {
                self.end(token, &end);
            }
        }
        forget_clients(&mut self.tables, now);
        self.resume_group_waiters();
        if let Some(runs) = &mut self.runs
            && let Err((_, why)) = runs.give_up_dead_workers(now)
            && let Some(kept_back) = self.log_limiter.allow(now)
        {
            tracing::error!(
                why,
                kept_back,
                "a dead worker cannot be given up: the registry of runs is not saved"
            );
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.tick(now);
        }
        self.publish();
    }

    /// Answers the requests that were received whole, gives peers some time to take their answers, and closes the
    /// images. Leaves the images as they are if the server has died meanwhile.
    pub(crate) fn stop(mut self, dead: impl Fn() -> bool) -> Result<u64, ServerError> {
        let give_up = self.net.now() + STOP_TIME;
        (0..self.sessions.len()).for_each(|token| self.enqueue(token));
        while self.net.now() < give_up {
            let more = self.run_once(Duration::from_millis(5))?;
            let unsent =
                self.sessions.iter_mut().flatten().any(|session| !session.link.transmit().is_empty());
            if !more && !unsent {
                break;
            }
        }
        self.sessions.clear();
        if dead() {
            return Ok(0);
        }
        self.tables.close()?;
        Ok(self.tables.rows())
    }
}
