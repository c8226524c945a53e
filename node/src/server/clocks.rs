//! The clocks of the workers that keep step over a table, as one thread sees them: who is where, who is waited for.
//! Plain state, no I/O; what time it is comes as an argument.
//!
//! ```text
//! absent --join--> here --session ends--> away --join--> here
//!                   |  `--no sign for long (SSP)--> gone --sign--> here
//!                   |  `--fence--> gone, and its incarnation refused
//!                   `--leave--> left
//! ```
//! Who is absent or away is waited for; who is gone or has left is not.

use crate::sync::{SyncConfig, SyncMode};
use std::time::Duration;

/// Where a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockState {
    /// It has not come.
    Absent,
    /// It is there, over the session of this number.
    Here(u32),
    /// Its session has ended.
    Away,
    /// The others go on without it.
    Gone,
    /// It has said that it is done.
    Left,
}

/// A worker as its group knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupMember {
    pub(super) pusher: u64,
    pub(super) incarnation: u64,
    /// It has made the steps below.
    pub(super) clock: u64,
    pub(super) state: ClockState,
    /// Over which it can speak, though it may be given up.
    session: Option<u32>,
    /// When it gave its last sign.
    heard: Duration,
    /// Incarnations up to this one are refused.
    fenced: u64,
}

/// A worker that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Straggler {
    pub(super) rank: u32,
    pub(super) clock: u64,
    pub(super) incarnation: u64,
    pub(super) pusher: u64,
    /// Since its last sign.
    pub(super) silent: Duration,
}

/// Who comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Joiner {
    pub(super) rank: u32,
    pub(super) pusher: u64,
    pub(super) incarnation: u64,
    pub(super) session: u32,
}

/// A worker may not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JoinError {
    /// The others keep step in another way.
    Mismatch(String),
    /// A newer incarnation of it is there, or the others went on without it.
    Fenced(String),
}

#[derive(Debug, Clone)]
pub(super) struct Clocks {
    pub(super) mode: SyncMode,
    pub(super) ranks: Vec<GroupMember>,
    /// For how long a worker without a sign is waited for (SSP).
    timeout: Option<Duration>,
}

impl Clocks {
    /// Of a group whose workers have not come; they begin at `begin`.
    pub(super) fn new(member: &SyncConfig, begin: u64, now: Duration) -> Clocks {
        let (clock, state) = (begin, ClockState::Absent);
        let rank =
            GroupMember { pusher: 0, incarnation: 0, clock, state, session: None, heard: now, fenced: 0 };
        let timeout = (!member.strict).then_some(member.worker_timeout);
        Clocks { mode: member.mode, ranks: vec![rank; member.workers as usize], timeout }
    }

    /// Whether a comer who begins anew begins a new group: nobody is there whose clock counts, or would if he spoke
    /// again.
    pub(super) fn is_over(&self) -> bool {
        let speaks = |rank: &GroupMember| rank.session.is_some() && rank.incarnation > rank.fenced;
        !self.ranks.iter().any(|rank| match rank.state {
            ClockState::Here(_) => true,
            ClockState::Gone => speaks(rank),
            _ => false,
        })
    }

    /// The clock that the group has reached at most.
    pub(super) fn highest(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.clock).max().unwrap_or(0)
    }

    /// Whether the group is of this kind.
    pub(super) fn check(&self, member: &SyncConfig) -> Result<(), JoinError> {
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

    /// A worker comes, at its `clock` or (`None`) where the group is; answers the clock that it begins at. `least`:
    /// where who begins anew can begin.
    pub(super) fn join(
        &mut self,
        comer: Joiner,
        clock: Option<u64>,
        least: u64,
        now: Duration,
    ) -> Result<u64, JoinError> {
        let Joiner { rank: number, pusher, incarnation, session } = comer;
        let lowest = self.lowest();
        let rank = &mut self.ranks[number as usize];
        if incarnation <= rank.fenced {
            return Err(JoinError::Fenced(format!(
                "the others went on without worker {number}, which had given no sign for --worker-timeout: start it again"
            )));
        }
        if incarnation < rank.incarnation {
            return Err(JoinError::Fenced(format!(
                "a newer incarnation of worker {number} is there: two workers were given one index"
            )));
        }
        let same = rank.incarnation == incarnation;
        let clock = match clock {
            // What was heard of it is in, whatever it was told of that; pushes that wait for others are not.
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
        let (state, fenced) = (ClockState::Here(session), rank.fenced);
        *rank = GroupMember { pusher, incarnation, clock, state, session: Some(session), heard: now, fenced };
        Ok(clock)
    }

    /// Who has left, a bit each of the first 64: told to workers, who say it again to a server that has forgotten.
    pub(super) fn left(&self) -> u64 {
        let left = (0..64).zip(&self.ranks).filter(|(_, rank)| rank.state == ClockState::Left);
        left.fold(0, |all, (number, _)| all | 1 << number)
    }

    /// A worker says who has left: believed of those who have not come since this began.
    pub(super) fn believe_left(&mut self, left: u64) {
        for (number, rank) in (0..64).zip(&mut self.ranks) {
            if left >> number & 1 == 1 && rank.state == ClockState::Absent {
                rank.state = ClockState::Left;
            }
        }
    }

    /// Whether this session speaks for a rank; one that was given up and speaks is waited for again.
    pub(super) fn speaks(&mut self, number: u32, session: u32, incarnation: u64, now: Duration) -> bool {
        let Some(rank) = self.ranks.get_mut(number as usize) else { return false };
        if rank.incarnation != incarnation || incarnation <= rank.fenced {
            return false;
        }
        match rank.state {
            ClockState::Here(of) => of == session,
            ClockState::Gone => {
                (rank.state, rank.heard) = (ClockState::Here(session), now);
                true
            }
            _ => false,
        }
    }

    /// A worker has made the steps below `clock`.
    pub(super) fn tick(&mut self, number: u32, clock: u64) {
        let rank = &mut self.ranks[number as usize];
        rank.clock = rank.clock.max(clock);
    }

    /// A worker is done.
    pub(super) fn leave(&mut self, number: u32) {
        self.ranks[number as usize].state = ClockState::Left;
    }

    /// A session has ended: whose it was is away.
    pub(super) fn end(&mut self, session: u32, now: Duration) -> Option<u32> {
        let at = self.ranks.iter().position(|rank| rank.session == Some(session))?;
        let rank = &mut self.ranks[at];
        rank.session = None;
        if rank.state == ClockState::Here(session) {
            (rank.state, rank.heard) = (ClockState::Away, now);
        }
        Some(at as u32)
    }

    /// This server itself was stopped for a while: nobody could be heard.
    pub(super) fn forgive(&mut self, slept: Duration, now: Duration) {
        self.ranks.iter_mut().for_each(|rank| rank.heard = now.min(rank.heard + slept));
    }

    /// A sign of a worker.
    pub(super) fn hear(&mut self, session: u32, when: Duration) {
        if let Some(rank) = self.ranks.iter_mut().find(|rank| rank.state == ClockState::Here(session)) {
            rank.heard = rank.heard.max(when);
        }
    }

    /// The others go on without a worker, in this life or an earlier one; `false` when it has begun another since, or
    /// was gone.
    pub(super) fn fence(&mut self, number: u32, incarnation: u64) -> bool {
        let Some(rank) = self.ranks.get_mut(number as usize) else { return false };
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

    /// Gives up those of whom there was no sign for the time limit (SSP only: with BSP that is one decision for all
    /// shards).
    pub(super) fn give_up(&mut self, now: Duration) -> Vec<Straggler> {
        let Some(timeout) = self.timeout.filter(|_| matches!(self.mode, SyncMode::Ssp(_))) else {
            return Vec::new();
        };
        // Nobody waits in a group that nobody is left in.
        if !self.ranks.iter().any(|rank| matches!(rank.state, ClockState::Here(_))) {
            return Vec::new();
        }
        let mut given_up = Vec::new();
        for number in 0..self.ranks.len() {
            let counts = self.counts(&self.ranks[number]);
            let behind = self.behind_as(number, now);
            if counts && behind.silent >= timeout {
                self.ranks[number].state = ClockState::Gone;
                given_up.push(behind);
            }
        }
        given_up
    }

    /// Whether a worker is waited for.
    fn counts(&self, rank: &GroupMember) -> bool {
        match rank.state {
            ClockState::Gone | ClockState::Left => false,
            // Who has not come has no clock; only those who wait for all wait for it.
            ClockState::Absent => self.mode != SyncMode::Asp,
            ClockState::Here(_) | ClockState::Away => true,
        }
    }

    /// The workers that are waited for.
    pub(super) fn counted(&self) -> impl Iterator<Item = (u32, &GroupMember)> {
        (0..).zip(&self.ranks).filter(|(_, rank)| self.counts(rank))
    }

    /// The lowest clock of those that are waited for; with none of them, the highest that there was.
    pub(super) fn lowest(&self) -> u64 {
        self.counted().map(|(_, rank)| rank.clock).min().unwrap_or_else(|| self.highest())
    }

    /// Whether a pull at this clock is to be answered (ASP and SSP).
    pub(super) fn may_pull(&self, clock: u64) -> bool {
        match self.mode {
            SyncMode::Ssp(bound) => self.lowest() >= clock.saturating_sub(u64::from(bound)),
            _ => true,
        }
    }

    fn behind_as(&self, number: usize, now: Duration) -> Straggler {
        let GroupMember { clock, incarnation, pusher, heard, .. } = self.ranks[number];
        Straggler { rank: number as u32, clock, incarnation, pusher, silent: now.saturating_sub(heard) }
    }

    /// Who is furthest behind, of those the lowest.
    pub(super) fn behind(&self, now: Duration) -> Option<Straggler> {
        let (number, _) = self.counted().min_by_key(|(number, rank)| (rank.clock, *number))?;
        Some(self.behind_as(number as usize, now))
    }

    /// Who decides that another is gone: the lowest that is there and gave a sign of late.
    pub(super) fn decider(&self, now: Duration) -> Option<u32> {
        let limit = crate::limits::DECIDER_SILENCE;
        let alive = |rank: &GroupMember| {
            matches!(rank.state, ClockState::Here(_)) && now.saturating_sub(rank.heard) < limit
        };
        self.ranks.iter().position(alive).map(|number| number as u32)
    }
}

#[cfg(test)]
#[path = "clocks_tests.rs"]
mod tests;
