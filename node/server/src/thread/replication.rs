//! What a server thread does for its backups in each round of its event loop.

use crate::error::ServerError;
use crate::peers::outcome::RequestFailure;
use crate::places::incarnations::Incarnations;
use crate::places::own::{Promotion, SCHEDULER_PLACE};
use crate::places::states::StateHolders;
use crate::replication::Replication;
use crate::replication::queue::{CommandQueue, ThreadQueues};
use crate::replication::replicator::Replicator;
use crate::replication::slot::BackupLink;
use crate::requests::backups::{defer_states, gate, positions, replicate, replicate_to};
use crate::requests::copies;
use crate::requests::copies::promote_server;
use crate::requests::states::{take_over_states, tell_states};
use crate::restore::loaded::{LoadedPart, PlaceStates};
use crate::thread::event_loop::ShardThread;
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::{Net, Poll};
use std::sync::Arc;

/// What sends the commands of a thread to each of its backups, and what is to be sent.
pub(crate) type ThreadBackups<N> = (Vec<Replicator<N>>, ThreadQueues);

impl<N: Net> ShardThread<N> {
    /// Tells backups the next rows, if they need some, and sends the replies that waited for them. Returns whether
    /// there is more to do at once.
    pub(crate) fn replicate(&mut self) -> bool {
        if let Some(holders) = states_of(&mut self.scheduler, &mut self.runs, &mut self.incarnations) {
            tell_states(&mut self.tables, holders);
        }
        let more = replicate(&mut self.tables);
        let gate = gate(&self.tables, || self.net.now());
        // The backups may have acknowledged everything since a session's turn: then the gate is as it was before.
        if std::mem::take(&mut self.holds) {
            for token in 0..self.sessions.len() {
                let Some(session) = &self.sessions[token] else { continue };
                self.holds |= session.is_holding();
                if session.is_free(gate) {
                    self.enqueue(token);
                }
            }
        }
        self.wake_replicators();
        more
    }

    /// Follows what the membership has decided.
    ///
    /// # Errors
    /// Another server owns the shards.
    pub(crate) fn follow_membership(&mut self) -> Result<(), ServerError> {
        let Some(standing) = self.settings.standing.clone() else { return Ok(()) };
        if let Some(why) = standing.deposed() {
            return Err(ServerError::Deposed(why));
        }
        if standing.goes_back() {
            standing.note_positions(self.settings.thread, || positions(&self.tables));
        }
        standing.update(&mut self.tables.places);
        while let Some((promotion, loaded)) = standing.next_promotion(self.promotions, self.settings.thread) {
            let outcome = match loaded {
                Some(loaded) => self.take_loaded(promotion, loaded),
                None => self.promote(promotion),
            };
            standing.note_promoted(self.promotions, outcome);
            self.promotions += 1;
        }
        Ok(())
    }

    /// Takes a place on this thread. Returns how many tables it has.
    fn promote(&mut self, promotion: Promotion) -> Result<u32, String> {
        let tables = promote_server(&mut self.tables, promotion).map_err(|failure| match failure {
            RequestFailure::Refused(_, why) => why,
            _ => "the copies are in use".to_owned(),
        })?;
        let holders = states_of(&mut self.scheduler, &mut self.runs, &mut self.incarnations);
        if let Some(holders) = holders.filter(|_| promotion.server == SCHEDULER_PLACE) {
            take_over_states(
                &mut self.tables,
                holders,
                promotion.has_all_since.unwrap_or(0),
                self.net.now(),
            )?;
            defer_states(&mut self.tables);
        }
        Ok(tables)
    }

    /// Takes a place on this thread whose rows were loaded from a checkpoint. Returns how many tables it has.
    fn take_loaded(&mut self, promotion: Promotion, loaded: LoadedPart) -> Result<u32, String> {
        let LoadedPart { tables, states } = loaded;
        let count = copies::take_loaded(&mut self.tables, promotion, tables)?;
        let holders = states_of(&mut self.scheduler, &mut self.runs, &mut self.incarnations);
        match (states, holders) {
            (Some(PlaceStates::Saved(states)), Some(holders)) => {
                states.restore(holders, self.net.now()).map_err(|error| error.to_string())?;
            }
            (Some(PlaceStates::Folder), Some(_)) => self.go_on_in_folder()?,
            _ => return Ok(count),
        }
        if promotion.server == SCHEDULER_PLACE {
            defer_states(&mut self.tables);
        }
        Ok(count)
    }

    /// From now on what thread 0 knows besides rows is in the data folder, as that has it.
    fn go_on_in_folder(&mut self) -> Result<(), String> {
        let (store, now) = (self.tables.store(), self.net.now());
        let scheduler = Schedulers::open(store.folder(), self.settings.data_server.clone(), now);
        let runs =
            Registry::open(store.folder(), &self.tables.detector, now).map_err(|error| error.to_string())?;
        let incarnations = Incarnations::open(store, self.settings.highest_incarnation.clone(), false);
        let mut incarnations = incarnations.map_err(|error| error.to_string())?;
        // Numbers that this server has heard of as the server of other places.
        if let Some(known) = &self.incarnations {
            incarnations.take_over(&known.snapshot())?;
        }
        self.scheduler = Some(scheduler.map_err(|error| error.to_string())?);
        (self.runs, self.incarnations) = (Some(runs), Some(incarnations));
        Ok(())
    }

    /// Wakes the replicators that have something new to send.
    pub(crate) fn wake_replicators(&self) {
        let Some(replication) = &self.tables.backups.replication else { return };
        replication.take_news().for_each(|backup| self.replicators[backup].wake());
    }

    /// From now on backups are told all commands. Returns what sends them, which needs a thread for each.
    pub(crate) fn replicate_to(&mut self, backups: &[BackupLink]) -> ThreadBackups<N> {
        if backups.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let mut replicators = Vec::new();
        let mut queues = Vec::new();
        for link in backups {
            let queue = Arc::<CommandQueue>::default();
            let (replicator, waker) =
                Replicator::new(self.net.clone(), link.clone(), queue.clone(), self.poll.waker());
            replicators.push(replicator);
            queues.push(queue);
            self.replicators.push(waker);
        }
        let seed = self.settings.incarnation.wrapping_add(u64::from(self.settings.thread));
        let is_managed = self.settings.standing.is_some();
        let mode = self.settings.replication;
        replicate_to(&mut self.tables, Replication::new(queues.clone(), seed, is_managed, mode));
        (replicators, queues)
    }
}

/// What thread 0 knows besides rows.
fn states_of<'a>(
    scheduler: &'a mut Option<Schedulers>,
    runs: &'a mut Option<Registry>,
    incarnations: &'a mut Option<Incarnations>,
) -> Option<StateHolders<'a>> {
    let (scheduler, incarnations) = (scheduler.as_mut()?, incarnations.as_mut()?);
    Some(StateHolders { scheduler, runs: runs.as_mut(), incarnations })
}
