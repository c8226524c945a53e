//! What a server thread does for its backups in each round of its event loop.

use crate::requests::copies::promote_server;
use crate::requests::copies;
use crate::replication::states::tell_states;
use crate::replication::states::take_over_states;
use crate::error::ServerError;
use crate::membership::standing::Promotion;
use crate::membership::undone::Positions;
use crate::replication::queue::CommandQueue;
use crate::replication::replicator::Replicator;
use crate::replication::slot::BackupLink;
use crate::replication::states::SCHEDULER_PLACE;
use crate::replication::{Replication, ReplicationGate};
use crate::requests::bulk::RequestFailure;
use crate::requests::incarnations::Incarnations;
use crate::restore::place::{LoadedPart, PlaceStates};
use crate::restore::states::StateHolders;
use crate::tables::server_tables::{ServerTable, ServerTables};
use crate::thread::event_loop::ShardThread;
use gannet_core::Shards;
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::{Net, Poll};
use std::sync::Arc;
use std::time::Duration;

/// What sends the commands of a thread to each of its backups, and what is to be sent.
pub(crate) type ThreadBackups<N> = (Vec<Replicator<N>>, ThreadQueues);

/// What a thread is to send to each of its backups.
pub(crate) type ThreadQueues = Vec<Arc<CommandQueue>>;

/// From now on backups are told all commands.
pub(crate) fn replicate_to(tables: &mut ServerTables, mut replication: Replication) {
    for (number, table) in tables.all.numbered_mut() {
        let identity = table.identity();
        let map = tables.partitioning.map(identity.servers);
        replication.add_table(number, table, (&map, tables.places.get(identity.server)), true);
    }
    tables.replication = Some(replication);
}

/// A turn of the replication. Returns whether it has more to do at once.
pub(crate) fn replicate(tables: &mut ServerTables) -> bool {
    let Some(replication) = &mut tables.replication else { return false };
    let more = replication.turn(&mut tables.all, tables.partitioning, &tables.places);
    replication.publish(&tables.all);
    tables.group_changed |= replication.has_room_again();
    more
}

/// What may leave the sessions now. The clock is read here, so behind everything that was done for an answer: a
/// thread that slept meanwhile must not answer with the rows of a place that another server has taken.
pub(crate) fn gate(tables: &ServerTables, now: impl FnOnce() -> Duration) -> ReplicationGate {
    let gate = |replication: &Replication| replication.gate(tables.all.len());
    let gate = tables.replication.as_ref().map_or(ReplicationGate::OPEN, gate);
    let is_silent = tables.standing.as_ref().is_some_and(|standing| standing.is_silent(now()));
    // A backup of the owner before may go on without what is here.
    let holds = tables.standing.as_ref().is_some_and(|standing| standing.holds_any());
    let acknowledged = if holds { 0 } else { gate.acknowledged };
    ReplicationGate { acknowledged, is_silent, ..gate }
}

/// The backups are told the states of place 0 when the server is ready with it.
fn defer_states(tables: &mut ServerTables) {
    let replication = tables.replication.as_mut().filter(|_| tables.places.has_taken(SCHEDULER_PLACE));
    if let Some(replication) = replication {
        replication.defer_states();
    }
}

/// How far the shards of this thread are, each with the name of its table.
fn positions(tables: &ServerTables) -> Positions {
    let of = |table: &ServerTable| {
        let shards = table.shards.iter().flat_map(Shards::positions);
        shards.map(|position| (table.schema.name.clone(), position)).collect::<Positions>()
    };
    tables.all.iter().flat_map(of).collect()
}

/// How many commands were told, if acknowledgements are kept apart from the answers that wait for no command.
pub(crate) fn told_apart(tables: &ServerTables) -> Option<u64> {
    tables.replication.as_ref().and_then(Replication::told_apart)
}

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
            take_over_states(&mut self.tables, holders, promotion.has_all_since.unwrap_or(0), self.net.now())?;
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
        let Some(replication) = &self.tables.replication else { return };
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
