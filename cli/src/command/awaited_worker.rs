//! A worker with a fixed share that others wait for.

use super::job::pusher;
use super::report::counted;
use gannet::runs::RunMember;
use gannet::table::PusherStatus;
use std::time::{Duration, Instant};

/// A worker that sends heartbeats but pushes nothing is given this many times the time of a silent one.
const PATIENCE: u32 = 5;

/// A worker that others wait for.
pub struct AwaitedWorker {
    pub rank: u32,
    /// The latest state of the worker, and since when it has not changed.
    seen: (Option<RunMember>, Option<PusherStatus>),
    since: Instant,
    pub done: bool,
}

impl AwaitedWorker {
    /// Worker `rank`, of which nothing is known yet.
    pub fn new(rank: u32) -> AwaitedWorker {
        AwaitedWorker { rank, seen: (None, None), since: Instant::now(), done: false }
    }

    /// Whether it has trained its share.
    pub fn is_done(&mut self, members: &[RunMember], pushers: &[PusherStatus]) -> bool {
        let member = members.iter().find(|member| member.incarnation.rank == self.rank).copied();
        let of_it = |known: &&PusherStatus| {
            known.pusher == pusher(self.rank)
                && member.is_some_and(|member| member.incarnation.incarnation == known.incarnation)
        };
        let now = (member, pushers.iter().find(of_it).copied());
        if self.seen != now {
            (self.seen, self.since) = (now, Instant::now());
        }
        self.done = member.is_some_and(|member| member.done);
        self.done
    }

    /// Whether to wait for it longer.
    pub fn look(&self, limit: Duration) -> bool {
        let live = self.seen.0.is_some_and(|member| member.live);
        self.since.elapsed() < if live { limit * PATIENCE } else { limit }
    }

    /// Its batches that are trained.
    pub fn trained(&self) -> u64 {
        // Workers that keep step push under the step's name, so their own report counts.
        let reported = self.seen.0.map_or(0, |member| member.batches);
        self.seen.1.map_or(0, |pusher| pusher.seq).max(reported)
    }

    /// How far it is, in words.
    pub fn progress(&self, share: Option<u64>) -> String {
        match (self.seen.0, share) {
            (None, _) => "has not joined".to_owned(),
            (Some(_), Some(share)) => {
                format!("has trained {} of {}", self.trained(), counted(share, "batch", "batches"))
            }
            (Some(_), None) => format!("has trained {}", counted(self.trained(), "batch", "batches")),
        }
    }
}
