//! How shards forget clients without an index that push no more, so that others can have their entries. A shard that
//! has forgotten some refuses every client up to a number that it does not know: whoever comes back may have pushed
//! before.
//!
//! ```text
//! a client's entry --fence and close--> closed --remember CLIENTS--> vacant --another pusher--> gone
//!                                       (refused from here on)
//! ```
//! Each step is a command, so copies, checkpoints and restarts have them in the same order.

use crate::error::PushError;
use crate::limits::PUSHERS_MAX;
use crate::push_name::{CLIENTS, DATA_PUSHERS};
use crate::table::commands::command::ShardCommand;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::progress::pushers::{CLOSED, PusherEntry};
use std::collections::BTreeSet;

impl Shards {
    /// How many pushers the fullest shard here must remember, of [`PUSHERS_MAX`](crate::limits::PUSHERS_MAX).
    pub fn pushers_known(&self) -> usize {
        self.shards.iter().map(|shard| shard.kept_pushers().count()).max().unwrap_or(0)
    }

    /// How many clients without an index are closed or gone, in the shard here that has the most of them.
    pub fn clients_gone(&self, is_gone: impl Fn(u64) -> bool) -> usize {
        let may_go =
            |entry: &PusherEntry| entry.client().is_some_and(|client| entry.is_closed() || is_gone(client));
        self.shards.iter().map(|shard| shard.kept_pushers().filter(may_go).count()).max().unwrap_or(0)
    }

    /// Whether a shard here must remember more pushers than this.
    pub fn has_more_pushers(&self, most: usize) -> bool {
        let has_more = |shard: &Shard| shard.pushers.len() > most && shard.kept_pushers().nth(most).is_some();
        self.shards.iter().any(has_more)
    }

    /// Forgets clients without an index ([`crate::CLIENTS`]) that push no more: those that are closed, and those that
    /// are gone. At most `most` of them, those with the lowest numbers. From now on every shard here refuses a client
    /// up to the highest of these numbers that it does not know: a forgotten one that comes back must not push again
    /// what it has pushed. So clients that are `here` get an entry first in shards that have none of them. Returns how
    /// many were forgotten.
    ///
    /// ```
    /// use gannet_core::{CLIENTS, PushError, PushName, Schema, Shards, Store, Write};
    /// use gannet_optim::{Add, Rule};
    ///
    /// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// let name = |client| PushName { pusher: CLIENTS + client, incarnation: client, seq: 1, row: 0 };
    /// shards.push(&name(7), Write::Gradient, &[1], None, &[1.0])?;
    /// shards.push(&name(8), Write::Gradient, &[1], None, &[1.0])?;
    /// assert_eq!(shards.forget_clients(|client| client == 7, &[8], 100)?, 1);
    /// let resent = shards.push(&name(7), Write::Gradient, &[1], None, &[1.0]);
    /// assert!(matches!(resent, Err(PushError::Fenced { .. })));
    /// assert_eq!(shards.push(&name(8), Write::Gradient, &[1], None, &[1.0])?.duplicate, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no space to remember that clients are forgotten. Then none of their entries is used again.
    pub fn forget_clients(
        &mut self,
        is_gone: impl Fn(u64) -> bool,
        here: &[u64],
        most: usize,
    ) -> Result<usize, PushError> {
        let may_go =
            |entry: &PusherEntry| entry.client().filter(|&client| entry.is_closed() || is_gone(client));
        let mut all = BTreeSet::new();
        for shard in &self.shards {
            all.extend(shard.kept_pushers().filter_map(|entry| may_go(&entry)));
        }
        let chosen: BTreeSet<u64> =
            all.into_iter().filter(|client| !here.contains(client)).take(most).collect();
        let Some(&last) = chosen.last() else { return Ok(0) };
        for &client in &chosen {
            self.fence_client(client)?;
        }
        let newcomers = self.newcomers(here, last);
        // Entries are used again only behind this.
        self.remember(CLIENTS, last, 0, true)?;
        for (at, client) in newcomers {
            let entry =
                PusherEntry { pusher: CLIENTS + client, incarnation: client, ..PusherEntry::default() };
            match self.apply_at(at, ShardCommand::Remember(entry)) {
                // It is refused if it comes to this shard.
                Err(PushError::TooManyPushers { .. }) => break,
                applied => applied?,
            };
        }
        Ok(chosen.len())
    }

    /// Those of the clients up to `last` that each shard does not know, and has never forgotten: it has no push of
    /// them. If many clients are here, only those that another shard knows.
    fn newcomers(&self, here: &[u64], last: u64) -> Vec<(usize, u64)> {
        let is_known = |client: u64| self.incarnations.newest.contains_key(&(CLIENTS + client));
        let mut newcomers = Vec::new();
        for (at, shard) in self.shards.iter().enumerate() {
            let forgotten = shard.pushers.forgotten(&shard.image);
            let is_new = |&client: &u64| {
                let few = here.len() <= PUSHERS_MAX / 4;
                client > forgotten
                    && client <= last
                    && (few || is_known(client))
                    && !shard.pushers.knows(CLIENTS + client)
            };
            newcomers.extend(here.iter().copied().filter(is_new).map(|client| (at, client)));
        }
        newcomers
    }

    /// Fences and closes a client wherever it is known and not closed.
    fn fence_client(&mut self, client: u64) -> Result<(), PushError> {
        let (pusher, incarnation) = (CLIENTS + client, client + 1);
        for at in 0..self.shards.len() {
            let shard = &mut self.shards[at];
            let Some(i) = shard.pushers.find(pusher) else { continue };
            if !PusherEntry::load(&shard.image, i).is_closed() {
                let fence = PusherEntry { pusher, incarnation, flags: CLOSED, ..PusherEntry::default() };
                self.apply_at(at, ShardCommand::Remember(fence))?;
            }
        }
        self.incarnations.raise(pusher, incarnation);
        Ok(())
    }
}

impl Shard {
    /// The entries of all pushers, except those of clients that are forgotten.
    pub(crate) fn remembered_pushers(&self) -> impl Iterator<Item = PusherEntry> + '_ {
        let forgotten = self.pushers.forgotten(&self.image);
        let is_client = move |entry: &PusherEntry| entry.pusher < DATA_PUSHERS && entry.is_vacant(forgotten);
        self.entries().filter(move |entry| !is_client(entry))
    }

    /// The entries that no other pusher may have.
    fn kept_pushers(&self) -> impl Iterator<Item = PusherEntry> + '_ {
        let forgotten = self.pushers.forgotten(&self.image);
        self.entries().filter(move |entry| !entry.is_vacant(forgotten))
    }

    fn entries(&self) -> impl Iterator<Item = PusherEntry> + '_ {
        (0..self.pushers.len()).map(|i| PusherEntry::load(&self.image, i))
    }
}
