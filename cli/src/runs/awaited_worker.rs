//! A worker with a fixed share that others wait for.

use crate::job::connection::pusher;
use crate::report::words::counted;
use gannet::runs::RunMember;
use gannet::table::PusherStatus;
use std::time::{Duration, Instant};

/// A worker that others wait for.
pub struct AwaitedWorker {
    pub rank: u32,
    /// What the registry of the run, and the servers, last said of it.
    member: Option<RunMember>,
    pusher: Option<PusherStatus>,
    since: Instant,
    pub done: bool,
}

impl AwaitedWorker {
    /// Worker `rank`, of which nothing is known yet.
    pub fn new(rank: u32) -> AwaitedWorker {
        AwaitedWorker { rank, member: None, pusher: None, since: Instant::now(), done: false }
    }

    /// Whether it has trained its share.
    pub fn is_done(&mut self, members: &[RunMember], pushers: &[PusherStatus]) -> bool {
        self.member = members.iter().find(|member| member.incarnation.rank == self.rank).copied();
        let of_it = |known: &&PusherStatus| {
            known.pusher == pusher(self.rank)
                && self.member.is_some_and(|member| member.incarnation.incarnation == known.incarnation)
        };
        self.pusher = pushers.iter().find(of_it).copied();
        self.done = self.member.is_some_and(|member| member.done);
        self.done
    }

    /// Whether to wait for it longer. A worker that has not come has `limit` for that. Of one that has come the
    /// registry knows whether it is dead.
    pub fn is_awaited(&self, limit: Duration) -> bool {
        match self.member {
            Some(member) => !member.lost,
            None => self.since.elapsed() < limit,
        }
    }

    /// The incarnation that has come, if one has.
    pub fn incarnation(&self) -> Option<u64> {
        self.member.map(|member| member.incarnation.incarnation)
    }

    /// Its batches that are trained.
    pub fn trained(&self) -> u64 {
        // Workers that keep step push under the step's name, so their own report counts.
        let reported = self.member.map_or(0, |member| member.batches);
        self.pusher.map_or(0, |pusher| pusher.seq).max(reported)
    }

    /// How far it is, in words.
    pub fn progress(&self, share: Option<u64>) -> String {
        match (self.member, share) {
            (None, _) => "has not joined".to_owned(),
            (Some(_), Some(share)) => {
                format!("has trained {} of {}", self.trained(), counted(share, "batch", "batches"))
            }
            (Some(_), None) => format!("has trained {}", counted(self.trained(), "batch", "batches")),
        }
    }
}
