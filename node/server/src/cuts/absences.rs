//! Which pushers have no session on this thread, and for how long. The coordinator of a checkpoint asks when a push is
//! not complete on all its shards: its pusher may be gone. See the module `cuts` for the protocol.

use crate::limits::{ABSENCES_MAX, CUT_PUSHES_MAX};
use crate::peers::pusher::Pusher;
use gannet_core::CLIENTS;
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::messages::cuts::TornPushV1;
use std::collections::HashMap;
use std::time::Duration;

/// A pusher and its incarnation.
type Start = (u64, u64);

/// The sessions of pushers on one thread. Times are those of the failure detector's clock: it stands still while the
/// thread is stopped.
#[derive(Default)]
pub(crate) struct Absences {
    /// How many sessions each pusher has.
    pub(crate) here: HashMap<Start, u32>,
    /// When the last session of a pusher ended.
    pub(crate) left: HashMap<Start, Duration>,
    /// Since when `left` is complete. `None`: the thread has just begun, or has just taken shards over.
    since: Option<Duration>,
    /// Torn pushes about which a coordinator asked: sequence number, applied rows, and since when they are the same.
    torn: HashMap<(String, Start), (u64, u64, Duration)>,
}

impl Absences {
    pub(crate) fn begin(&mut self, of: &Pusher) {
        if of.incarnation != NO_INCARNATION {
            *self.here.entry((of.pusher, of.incarnation)).or_default() += 1;
        }
    }

    pub(crate) fn end(&mut self, of: &Pusher, clock: Duration) {
        let start = (of.pusher, of.incarnation);
        let Some(sessions) = self.here.get_mut(&start) else { return };
        *sessions -= 1;
        if *sessions > 0 {
            return;
        }
        self.here.remove(&start);
        self.left.insert(start, clock);
        // Who left earlier than the first half is not remembered: it counts as gone since the last of those.
        if self.left.len() > ABSENCES_MAX {
            let mut times: Vec<Duration> = self.left.values().copied().collect();
            times.sort_unstable();
            let since = times[times.len() / 2];
            self.left.retain(|_, left| *left > since);
            self.since = self.since.max(Some(since));
        }
    }

    /// Shards have come here. Their pushers had their sessions elsewhere.
    pub(crate) fn forget(&mut self) {
        (self.left, self.torn, self.since) = (HashMap::new(), HashMap::new(), None);
    }

    /// The thread runs.
    pub(crate) fn wake(&mut self, clock: Duration) -> Duration {
        *self.since.get_or_insert(clock)
    }

    /// The start that this one fences: a fence has the number behind it, and never a session here. Returns a start that
    /// is no fence as it is.
    pub(crate) fn start_before_fence(&self, start: Start) -> Start {
        let had = |of: &Start| self.here.contains_key(of) || self.left.contains_key(of);
        let before = (start.0, start.1.saturating_sub(1));
        if !had(&start) && had(&before) { before } else { start }
    }

    /// For how long this start of a pusher has had no session here. `None`: it has one.
    pub(crate) fn absence(&mut self, start: Start, clock: Duration) -> Option<Duration> {
        let since = self.wake(clock);
        let left = self.left.get(&start).copied().unwrap_or(since);
        (!self.here.contains_key(&start)).then(|| clock.saturating_sub(left))
    }

    /// The incarnations of a pusher that have a session here.
    pub(crate) fn starts_here(&self, pusher: u64) -> impl Iterator<Item = u64> + '_ {
        self.here.keys().filter(move |(of, _)| *of == pusher).map(|(_, incarnation)| *incarnation)
    }

    /// Whether a client without an index ([`gannet_core::CLIENTS`]) has had no session here for `least`.
    pub(crate) fn is_client_gone(&self, client: u64, least: Duration, clock: Duration) -> bool {
        let start = (CLIENTS + client, client);
        let left = self.left.get(&start).copied().or(self.since).unwrap_or(clock);
        !self.here.contains_key(&start) && clock.saturating_sub(left) >= least
    }

    /// For how long coordinators have found this push as it is.
    pub(crate) fn standstill(&mut self, push: &TornPushV1, clock: Duration) -> Duration {
        if self.torn.len() > CUT_PUSHES_MAX {
            self.torn.clear();
        }
        let known = self.torn.entry((push.table.clone(), (push.pusher, push.incarnation)));
        let known = known.or_insert((push.seq, push.done, clock));
        if (known.0, known.1) != (push.seq, push.done) {
            *known = (push.seq, push.done, clock);
        }
        clock.saturating_sub(known.2)
    }
}
