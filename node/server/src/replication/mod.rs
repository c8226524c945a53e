//! Replication: a server tells the commands of its shards to its backups, which keep copies.
//!
//! ```text
//! shards --listener--> CommandQueue --Replicator (its own thread)--> backup: requests/copies.rs
//!                          ^ fill: the rows of shards, between commands
//! ```
//! A backup *joins* when it has all rows and commands. From then on nothing leaves a session before all commands that
//! were told until then are acknowledged by the backups ([`ReplyHold`](crate::replication::hold::ReplyHold)). So no
//! worker sees anything that the death of this server could undo. A backup whose connection is lost for good, or that
//! refuses a command, leaves. It is filled again from the beginning when it is back.

pub(crate) mod copies;
pub(crate) mod gate;
pub(crate) mod held;
pub(crate) mod hold;
pub(crate) mod published;
pub(crate) mod queue;
#[cfg(test)]
mod queue_tests;
pub(crate) mod replicator;
pub(crate) mod slot;
pub(crate) mod state_copies;
pub(crate) mod stream;

use crate::config::ReplicationMode;
use crate::limits::{FILL_BYTES, FILL_QUEUE_BYTES, REPLICATION_BYTES_MAX};
use crate::places::own::{OwnPlace, OwnPlaces, SCHEDULER_PLACE};
use crate::places::states::ToldStates;
use crate::replication::gate::ReplicationGate;
use crate::replication::published::PublishedCommands;
use crate::replication::queue::{CommandQueue, Deferred, QueueProgress, StreamBeginning};
use crate::replication::stream::Fill;
use crate::tables::table::ServerTable;
use crate::tables::table_list::TableList;
use gannet_core::{CommandListener, CommandRecord, Shards, TableIdentity, ToldShard, hash};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{CopyV1, StateV1};
use gannet_wire::partition::{PartitionMap, Partitioning};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Where a table of this server stands.
#[derive(Clone, Copy)]
pub(crate) struct TablePlace<'a> {
    pub(crate) map: &'a PartitionMap,
    pub(crate) place: OwnPlace,
}

/// The replication of one server thread.
pub(crate) struct Replication {
    queues: Vec<Arc<CommandQueue>>,
    /// The connection of each queue that the streams of the tables belong to.
    connections: Vec<u64>,
    /// Commands and pieces of rows that were told, and 1.
    told: Arc<AtomicU64>,
    /// The number of the next stream.
    next_stream: u64,
    was_full: bool,
    published: PublishedCommands,
    /// The states that are not rows, as the backups were told them last. `None`: they are not told.
    states: Option<ToldStates>,
    /// The membership decides for which backups workers wait. Otherwise that is each that has all.
    is_managed: bool,
    /// Streams of tables wait until the server is ready with a place.
    defers: bool,
    /// The states wait for that, too.
    defers_states: bool,
    mode: ReplicationMode,
}

impl Replication {
    /// `seed`: no other thread of any server has it. `is_managed`: the membership decides for which backups workers
    /// wait.
    pub(crate) fn new(
        queues: Vec<Arc<CommandQueue>>,
        seed: u64,
        is_managed: bool,
        mode: ReplicationMode,
    ) -> Replication {
        let connections = vec![0; queues.len()];
        // A backup that lacks a new table has acknowledged 0. That is less than what was told from the beginning on, so
        // the reply that the first table is open waits.
        let told = Arc::new(AtomicU64::new(1));
        Replication {
            queues,
            connections,
            told,
            next_stream: seed,
            was_full: false,
            published: PublishedCommands::default(),
            states: None,
            is_managed,
            defers: false,
            defers_states: false,
            mode,
        }
    }

    /// Listens to the commands of a table that was opened, and begins its streams to the backups that are connected.
    /// `place`: that of the table. `is_new`: it was opened, and has not come with a place that was taken. Backups that
    /// have joined may take the place of a new table, so workers wait until they have it.
    pub(crate) fn add_table(
        &mut self,
        number: usize,
        table: &mut ServerTable,
        of: TablePlace<'_>,
        is_new: bool,
    ) {
        if let Some(shards) = &mut table.shards {
            // If the place is held, nobody is told where the images are.
            published::publish_all(shards);
            let (told, queues) = (self.told.clone(), self.queues.clone());
            shards.tell(Some(Box::new(TableListener { table: number, told, queues })));
        }
        (0..self.queues.len()).for_each(|at| self.begin_table(at, number, table, of, is_new));
    }

    /// Begins the stream of a table to a backup, if it is connected.
    fn begin_table(
        &mut self,
        at: usize,
        number: usize,
        table: &ServerTable,
        of: TablePlace<'_>,
        is_awaited: bool,
    ) {
        let TablePlace { map, place } = of;
        let queue = &self.queues[at];
        let threads = match queue.connection() {
            Some((connection, threads)) if connection == self.connections[at] => threads,
            _ => return,
        };
        let Some(shards) = &table.shards else { return queue.end_table(number) };
        if !place.is_ready {
            self.defers = true;
            return queue.defer(Deferred::Table(number));
        }
        self.next_stream = hash(self.next_stream.wrapping_add(1));
        let copies = copies_of(table.identity(), shards, map, threads);
        let (stream, told) = (self.next_stream, self.told.load(Relaxed));
        queue.begin_table(number, StreamBeginning { stream, place, told, is_awaited }, &copies);
    }

    /// Tells the backups again what they know of a table besides its rows.
    pub(crate) fn confirm_table(&mut self, number: usize, table: &ServerTable, of: TablePlace<'_>) {
        for queue in &self.queues {
            if let (Some((_, threads)), Some(shards)) = (queue.connection(), &table.shards) {
                let copies = copies_of(table.identity(), shards, of.map, threads);
                queue.confirm_table(number, of.place, self.told.fetch_add(1, Relaxed), &copies);
            }
        }
    }

    /// A table is dropped. The backups end their copies, and the answer waits for that.
    pub(crate) fn drop_table(&mut self, number: usize, table: &ServerTable, map: &PartitionMap) {
        let Some(shards) = &table.shards else {
            return self.queues.iter().for_each(|queue| queue.forget_table(number));
        };
        for mut end in copies_of(table.identity(), shards, map, 1) {
            end.births.clear();
            let told = self.told.fetch_add(1, Relaxed);
            self.queues.iter().for_each(|queue| queue.drop_table(number, told, &end));
        }
    }

    /// Begins the streams of all tables to a backup that was connected anew, and tells the next rows of a shard that is
    /// not whole. Returns whether there are more rows to tell at once.
    pub(crate) fn turn(
        &mut self,
        tables: &mut TableList,
        partitioning: Partitioning,
        places: &OwnPlaces,
    ) -> bool {
        let mut more = false;
        self.begin_deferred(tables, partitioning, places);
        for at in 0..self.queues.len() {
            let queue = self.queues[at].clone();
            if let Some((connection, _)) = queue.connection()
                && connection != self.connections[at]
            {
                self.connections[at] = connection;
                self.tell_all_states(at, places.get(SCHEDULER_PLACE).epoch);
                if self.defers_states {
                    queue.defer(Deferred::States);
                }
                for (number, table) in tables.numbered() {
                    let identity = table.identity();
                    let map = partitioning.map(identity.servers);
                    // No worker waits for the backup before it has all tables.
                    let of = TablePlace { map: &map, place: places.get(identity.server) };
                    self.begin_table(at, number, table, of, true);
                }
            }
            if let Some((number, shard, fill)) = queue.next_fill(FILL_QUEUE_BYTES) {
                if let Some(shards) = tables.get_mut(number).and_then(|table| table.shards.as_mut()) {
                    self.fill(&queue, number, shards, shard, fill);
                }
                more |= queue.next_fill(FILL_QUEUE_BYTES).is_some();
            }
            queue.note_ready(tables.len());
            if !self.is_managed {
                if queue.is_lost() {
                    queue.leave();
                }
                queue.join();
            }
        }
        more
    }

    /// Begins the streams of tables in places with which the server is ready now.
    fn begin_deferred(&mut self, tables: &TableList, partitioning: Partitioning, places: &OwnPlaces) {
        if !std::mem::take(&mut self.defers) {
            return;
        }
        for at in 0..self.queues.len() {
            for number in self.queues[at].deferred_tables() {
                let Some(table) = tables.get(number) else { continue };
                let identity = table.identity();
                let map = partitioning.map(identity.servers);
                // The backup joins the set of the place when it has all rows.
                let of = TablePlace { map: &map, place: places.get(identity.server) };
                self.begin_table(at, number, table, of, false);
            }
        }
    }

    /// The states of place 0 are told when the server is ready with it.
    pub(crate) fn defer_states(&mut self) {
        self.defers_states = true;
        self.queues.iter().for_each(|queue| queue.defer(Deferred::States));
    }

    /// Tells the next rows of a shard.
    fn fill(&self, queue: &CommandQueue, number: usize, shards: &mut Shards, shard: u32, fill: Fill) {
        let (slot, piece) = match fill {
            Fill::Upto { slot, piece } => (slot, piece + 1),
            _ => (0, 1),
        };
        let most = (FILL_BYTES / (8 + 4 * shards.schema().floats())).max(1);
        let told = self.told.fetch_add(1, Relaxed);
        let next = shards.fill(shard, slot, most, piece, |record| queue.add_piece(number, told, record));
        let fill = next.map_or(Fill::Whole, |slot| Fill::Upto { slot, piece });
        queue.set_fill(number, shard, fill, told + 1);
    }

    /// Whether the backups are so far behind that pushes must wait.
    pub(crate) fn is_full(&mut self) -> bool {
        let full = self.queues.iter().any(|queue| queue.bytes() > REPLICATION_BYTES_MAX);
        self.was_full |= full;
        full
    }

    /// Whether pushes that waited because the backups were behind may try again.
    pub(crate) fn has_room_again(&mut self) -> bool {
        self.was_full && {
            self.was_full = false;
            !self.is_full()
        }
    }

    /// Tells those who read the images which rows they may believe.
    pub(crate) fn publish(&mut self, tables: &TableList) {
        let gate = self.gate(tables.len());
        self.published.update(tables, gate);
    }

    /// How many commands were told, if acknowledgements are kept apart from the answers that wait for no command.
    pub(crate) fn told_apart(&self) -> Option<u64> {
        (self.mode == ReplicationMode::Async).then(|| self.told.load(Relaxed))
    }

    /// What may leave now. `tables`: tables of the thread.
    pub(crate) fn gate(&self, tables: usize) -> ReplicationGate {
        let acknowledged = self.queues.iter().map(|queue| queue.gate(tables)).min().unwrap_or(u64::MAX);
        let (told, is_async) = (self.told.load(Relaxed), self.mode == ReplicationMode::Async);
        ReplicationGate { told, acknowledged, is_silent: false, is_async }
    }

    /// How many backups have all rows, and how far all backups are together.
    pub(crate) fn progress(&self) -> (usize, QueueProgress) {
        let all = || self.queues.iter().map(|queue| queue.progress());
        (all().filter(|of| of.joined).count(), all().fold(QueueProgress::default(), QueueProgress::and))
    }

    /// The backups whose replicators have something new to do.
    pub(crate) fn take_news(&self) -> impl Iterator<Item = usize> + '_ {
        self.queues.iter().enumerate().filter(|(_, queue)| queue.take_news()).map(|(at, _)| at)
    }
}

/// The copies of these shards that each thread of a backup keeps, if it has so many.
fn copies_of(identity: TableIdentity, shards: &Shards, map: &PartitionMap, threads: usize) -> Vec<CopyV1> {
    let TableIdentity { uid, server, servers } = identity;
    let (schema, all_births) = (shards.schema(), shards.all_births());
    let copies = |thread| {
        let own = map.shards_of_thread(server, thread, threads as u32, schema.shards);
        let births = shards.set().iter().zip(shards.births());
        let births = births.filter(|(shard, _)| own.contains(*shard)).collect();
        let (schema, uid, confirmed) = (schema.encode(), uid.0, all_births != 0);
        CopyV1 { schema, uid, server, servers, confirmed, all_births, births }
    };
    (0..threads as u32).map(copies).collect()
}

/// Hears the commands of a table, and adds them to the queues.
struct TableListener {
    table: usize,
    told: Arc<AtomicU64>,
    queues: Vec<Arc<CommandQueue>>,
}

impl CommandListener for TableListener {
    fn hear(&mut self, command: &CommandRecord<'_>, shard: &mut ToldShard<'_>) {
        let told = self.told.fetch_add(1, Relaxed);
        self.queues.iter().for_each(|queue| queue.hear(self.table, told, command, shard));
    }
}

impl Replication {
    /// From now on the backups are told states. Returns whether they were not before.
    pub(crate) fn begin_states(&mut self, epoch: u64) -> bool {
        let begins = self.states.is_none();
        self.defers_states = false;
        if begins {
            self.states = Some(ToldStates::new());
            (0..self.queues.len()).for_each(|at| self.tell_all_states(at, epoch));
        }
        begins
    }

    /// Tells a backup that was connected anew all states.
    pub(crate) fn tell_all_states(&mut self, at: usize, epoch: u64) {
        let Some(states) = &self.states else { return };
        let queue = &self.queues[at];
        self.next_stream = hash(self.next_stream.wrapping_add(1));
        queue.begin_states(self.next_stream, epoch);
        for ((name, run), bytes) in states {
            let state = StateV1 { name: name.clone(), run: run.clone(), bytes: bytes.clone() };
            queue.add_state(self.told.fetch_add(1, Relaxed), &control::seal(&state), true);
        }
    }

    /// Tells all backups a state that has changed. `is_first`: they have not been told it before, and need it to have
    /// all.
    pub(crate) fn tell_state(&mut self, is_first: bool, name: &str, run: &str, bytes: Vec<u8>) {
        let Some(states) = &mut self.states else { return };
        let state = StateV1 { name: name.to_owned(), run: run.to_owned(), bytes };
        let (sealed, told) = (control::seal(&state), self.told.fetch_add(1, Relaxed));
        for (queue, own) in self.queues.iter().zip(&self.connections) {
            // One that was connected since the last turn is told all states in the next.
            if queue.connection().is_some_and(|(connection, _)| connection == *own) {
                queue.add_state(told, &sealed, is_first);
            }
        }
        let StateV1 { name, run, bytes } = state;
        match bytes.is_empty() {
            true => states.remove(&(name, run)),
            false => states.insert((name, run), bytes),
        };
    }
}
