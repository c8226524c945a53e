//! The clocks of the workers that keep step over a table, as one thread knows them: where each worker is, and for whom
//! the others wait. Plain state, without I/O and without time: only a fence ends the wait for a worker that has not
//! left.
//!
//! ```text
//! absent --join--> here --session ends--> away --join--> here
//!                   |  `--fence--> gone, and its incarnation refused
//!                   `--leave--> left
//! ```
//! The group waits for workers that are absent or away. It does not wait for those that are gone or have left.

#[cfg(test)]
#[path = "clocks_tests.rs"]
mod tests;

use gannet_wire::sync::{SyncConfig, SyncMode};

/// Where a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockState {
    /// It has not joined.
    Absent,
    /// It is here, over the session of this number.
    Here(u32),
    /// Its session has ended.
    Away,
    /// The others go on without it.
    Gone,
    /// It has announced that it is done.
    Left,
}

/// A worker as its group knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupMember {
    pub(crate) pusher: u64,
    pub(crate) incarnation: u64,
    /// It has finished all steps below this clock.
    pub(crate) clock: u64,
    pub(crate) state: ClockState,
    /// The session over which it can speak, also after it has left.
    session: Option<u32>,
    /// The highest fenced incarnation. It and all below are refused.
    fenced: u64,
}

/// A worker for which the others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Straggler {
    pub(crate) rank: u32,
    pub(crate) clock: u64,
    pub(crate) incarnation: u64,
    pub(crate) pusher: u64,
}

/// A worker that joins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joiner {
    pub(crate) rank: u32,
    pub(crate) pusher: u64,
    pub(crate) incarnation: u64,
    pub(crate) session: u32,
}

/// Why a worker may not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JoinError {
    /// The group keeps step in another way.
    Mismatch(String),
    /// A newer incarnation of the worker has joined, or the others went on without it.
    Fenced(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Clocks {
    pub(crate) mode: SyncMode,
    pub(crate) ranks: Vec<GroupMember>,
}

impl Clocks {
    /// The clocks of a group whose workers have not joined yet. They begin at `begin`.
    pub(crate) fn new(member: &SyncConfig, begin: u64) -> Clocks {
        let (clock, state) = (begin, ClockState::Absent);
        let rank = GroupMember { pusher: 0, incarnation: 0, clock, state, session: None, fenced: 0 };
        Clocks { mode: member.mode, ranks: vec![rank; member.workers as usize] }
    }

    /// Whether the group is over: the next worker that begins anew begins a new group. A group lasts while a worker is
    /// here.
    pub(crate) fn is_over(&self) -> bool {
        !self.ranks.iter().any(|rank| matches!(rank.state, ClockState::Here(_)))
    }

    /// Whether steps may be made without some workers, by intent (`--replicas-to-aggregate`).
    pub(crate) fn leaves_out(&self) -> bool {
        matches!(self.mode, SyncMode::Bsp(step) if (step.aggregate as usize) < self.ranks.len())
    }

    /// The highest clock of the group.
    fn highest(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.clock).max().unwrap_or(0)
    }

    /// Refuses a worker that expects another number of workers or another mode.
    pub(crate) fn check(&self, member: &SyncConfig) -> Result<(), JoinError> {
        let (workers, mode) = (self.ranks.len(), self.mode);
        if (workers, mode) == (member.workers as usize, member.mode) {
            return Ok(());
        }
        let text = format!(
            "{workers} workers keep step by {mode}; worker {} of {} wants {}: give every worker the same --sync, \
             --replicas-to-aggregate, --push and --worker-hosts",
            member.rank, member.workers, member.mode
        );
        Err(JoinError::Mismatch(text))
    }

    /// The other session over which this incarnation of a worker is here.
    pub(crate) fn other_session(&self, joiner: &Joiner) -> Option<u32> {
        let rank = self.ranks.get(joiner.rank as usize)?;
        let same = (rank.pusher, rank.incarnation) == (joiner.pusher, joiner.incarnation);
        let there = same && rank.state != ClockState::Left;
        rank.session.filter(|other| there && *other != joiner.session)
    }

    /// Adds a worker at its `clock`, or where the group is (`None`). Returns the clock at which the worker begins.
    /// `least`: the lowest clock at which a worker may begin anew.
    pub(crate) fn join(&mut self, joiner: Joiner, clock: Option<u64>, least: u64) -> Result<u64, JoinError> {
        let Joiner { rank: number, pusher, incarnation, session } = joiner;
        let lowest = self.lowest();
        let rank = &mut self.ranks[number as usize];
        if incarnation <= rank.fenced {
            return Err(JoinError::Fenced(format!(
                "the others went on without worker {number}, which had given no sign for --worker-timeout: \
                 start it again"
            )));
        }
        if incarnation < rank.incarnation {
            return Err(JoinError::Fenced(format!(
                "a newer incarnation of worker {number} is there: two workers were given one index"
            )));
        }
        let same = rank.incarnation == incarnation;
        // A worker that has left makes a lost link again if it has no answer to its leave, or the join of an older link
        // comes late. The others do not wait for it.
        let has_left = same && clock.is_some() && rank.state == ClockState::Left;
        let clock = match clock {
            // The worker's clock is too low if an answer to it was lost: all that the server received is in the rows.
            // Under BSP it is not: pushes wait there for other workers.
            Some(clock) if same && !self.mode.is_bsp() => clock.max(rank.clock),
            Some(clock) => clock,
            None => {
                let left = match rank.state {
                    ClockState::Gone | ClockState::Left => true,
                    ClockState::Absent => self.mode == SyncMode::Asp,
                    _ => false,
                };
                lowest.min(if left { u64::MAX } else { rank.clock }).max(least)
            }
        };
        let state = if has_left { ClockState::Left } else { ClockState::Here(session) };
        let fenced = rank.fenced;
        *rank = GroupMember { pusher, incarnation, clock, state, session: Some(session), fenced };
        Ok(clock)
    }

    /// The workers that have left, a bit each for the first 64. The server reports it to workers, and they report it to
    /// a server that was restarted.
    pub(crate) fn left(&self) -> u64 {
        let left = (0..64).zip(&self.ranks).filter(|(_, rank)| rank.state == ClockState::Left);
        left.fold(0, |all, (number, _)| all | 1 << number)
    }

    /// Takes over a worker's report of who has left, for workers that have not joined this group.
    pub(crate) fn believe_left(&mut self, left: u64) {
        for (number, rank) in (0..64).zip(&mut self.ranks) {
            if left >> number & 1 == 1 && rank.state == ClockState::Absent {
                rank.state = ClockState::Left;
            }
        }
    }

    /// Whether this session speaks for a rank.
    pub(crate) fn speaks(&self, number: u32, session: u32, incarnation: u64) -> bool {
        let Some(rank) = self.ranks.get(number as usize) else { return false };
        if rank.incarnation != incarnation || incarnation <= rank.fenced {
            return false;
        }
        match rank.state {
            ClockState::Here(of) => of == session,
            // It may send again what it sent before it left.
            ClockState::Left => rank.session == Some(session),
            _ => false,
        }
    }

    /// A worker has finished the steps below `clock`.
    pub(crate) fn tick(&mut self, number: u32, clock: u64) {
        let rank = &mut self.ranks[number as usize];
        rank.clock = rank.clock.max(clock);
    }

    /// The server has dropped all pushes of the steps from `begin` on: no worker has made these steps.
    pub(crate) fn take_back(&mut self, begin: u64) {
        self.ranks.iter_mut().for_each(|rank| rank.clock = rank.clock.min(begin));
    }

    /// A worker is done.
    pub(crate) fn leave(&mut self, number: u32) {
        self.ranks[number as usize].state = ClockState::Left;
    }

    /// A session has ended: its worker is away. Returns the worker's rank.
    pub(crate) fn end(&mut self, session: u32) -> Option<u32> {
        let at = self.ranks.iter().position(|rank| rank.session == Some(session))?;
        let rank = &mut self.ranks[at];
        rank.session = None;
        if rank.state == ClockState::Here(session) {
            rank.state = ClockState::Away;
        }
        Some(at as u32)
    }

    /// Fences a worker: the others go on without this incarnation and all before it. Returns `false` if a newer
    /// incarnation has joined, or if the worker had left or was gone. A fence of another pusher is not about the worker
    /// that has joined with this rank.
    pub(crate) fn fence(&mut self, number: u32, pusher: u64, incarnation: u64) -> bool {
        let Some(rank) = self.ranks.get_mut(number as usize) else { return false };
        if rank.incarnation > 0 && rank.pusher != pusher {
            return false;
        }
        rank.fenced = rank.fenced.max(incarnation);
        if rank.incarnation > incarnation {
            return false;
        }
        let news = !matches!(rank.state, ClockState::Left | ClockState::Gone);
        if news {
            rank.state = ClockState::Gone;
        }
        news
    }

    /// Whether this incarnation of a worker is fenced.
    pub(crate) fn is_fenced(&self, number: u32, incarnation: u64) -> bool {
        self.ranks.get(number as usize).is_some_and(|rank| incarnation <= rank.fenced)
    }

    /// Whether the group waits for a worker.
    fn counts(&self, rank: &GroupMember) -> bool {
        match rank.state {
            ClockState::Gone | ClockState::Left => false,
            // A worker that has not joined has no clock. Only modes in which workers wait for all others count it.
            ClockState::Absent => self.mode != SyncMode::Asp,
            ClockState::Here(_) | ClockState::Away => true,
        }
    }

    /// The workers for which the group waits.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (u32, &GroupMember)> {
        (0..).zip(&self.ranks).filter(|(_, rank)| self.counts(rank))
    }

    /// The lowest clock of the workers for which the group waits. If it waits for none, the highest clock of all.
    pub(crate) fn lowest(&self) -> u64 {
        self.counted().map(|(_, rank)| rank.clock).min().unwrap_or_else(|| self.highest())
    }

    /// Whether a pull at this clock can be answered now (ASP and SSP).
    pub(crate) fn may_pull(&self, clock: u64) -> bool {
        match self.mode {
            SyncMode::Ssp(bound) => self.lowest() >= clock.saturating_sub(u64::from(bound)),
            _ => true,
        }
    }

    fn as_straggler(&self, number: u32) -> Straggler {
        let GroupMember { clock, incarnation, pusher, .. } = self.ranks[number as usize];
        Straggler { rank: number, clock, incarnation, pusher }
    }

    /// The worker that is furthest behind. Of several, one that is not here comes first, as it may have to resend its
    /// pushes; then the one of the lowest rank.
    pub(crate) fn behind(&self) -> Option<Straggler> {
        let is_here = |rank: &GroupMember| matches!(rank.state, ClockState::Here(_));
        let (number, _) = self.counted().min_by_key(|(number, rank)| (rank.clock, is_here(rank), *number))?;
        Some(self.as_straggler(number))
    }
}
