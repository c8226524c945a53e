//! The queue of commands for one backup: what a server thread has told and the backup has not acknowledged.
//!
//! The thread that owns the shards adds commands. The replicator, which has the links, takes them out in blocks. A
//! block is one frame. The backup's threads have a queue each, because each of them keeps the copies of its own shards.

use crate::places::own::OwnPlace;
use crate::replication::stream::{Fill, TableStream};
use gannet_core::{CommandChange, CommandRecord, RowStates, ToldShard};
use gannet_wire::command_block::Block;
use gannet_wire::frames::command_payload;
use gannet_wire::limits::PART_BYTES_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::control::CopyV1;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Words of a block.
const BLOCK_WORDS: usize = PART_BYTES_MAX / 8;

/// Blocks of one thread of the backup that are under way at a time. Commands gather in the next block meanwhile.
const BLOCKS_SENT: usize = 4;

/// The blocks for one thread of the backup.
#[derive(Default)]
struct ThreadQueue {
    /// Each with the number of the commands that were told before it.
    waiting: VecDeque<(u64, Block)>,
    /// Of each block under way: how many commands were told before it, and its bytes.
    sent: VecDeque<(u64, usize)>,
}

impl ThreadQueue {
    /// How many commands were told before the first that is not acknowledged.
    fn acknowledged(&self) -> Option<u64> {
        self.sent.front().map(|sent| sent.0).or_else(|| self.waiting.front().map(|waiting| waiting.0))
    }

    /// Adds the words of a command. Returns how many bytes the queue has got.
    fn add(&mut self, stream: &mut ThreadStream, told: u64, mut words: &[u64]) -> usize {
        let bytes = words.len() * 8;
        if let Some((_, Block::Commands { stream: last, words: block, more, .. })) = self.waiting.back_mut()
            && *last == stream.stream
            && !*more
            && block.len() + words.len() <= BLOCK_WORDS
        {
            block.extend_from_slice(words);
            return bytes;
        }
        while !words.is_empty() {
            let (now, rest) = words.split_at(words.len().min(BLOCK_WORDS));
            stream.number += 1;
            let (stream, number) = (stream.stream, stream.number);
            let block = Block::Commands { stream, number, more: !rest.is_empty(), words: now.to_vec() };
            self.waiting.push_back((told, block));
            words = rest;
        }
        bytes
    }
}

/// A stream to one thread of the backup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadStream {
    pub(crate) stream: u64,
    /// The number of its last frame.
    pub(crate) number: u64,
}

/// A stream that must not begin yet: the server takes a place, and is not ready. If it dies now, another backup takes
/// the place with the copies that the stream would replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deferred {
    States,
    /// The number of the table.
    Table(usize),
}

/// How far a backup is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueProgress {
    /// Workers wait for it.
    pub(crate) joined: bool,
    /// Shards whose rows were all told, of how many.
    pub(crate) filled: u64,
    pub(crate) shards: u64,
    /// Commands, and their bytes, that it has not acknowledged.
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
}

impl QueueProgress {
    /// Both together.
    pub(crate) fn and(self, other: QueueProgress) -> QueueProgress {
        QueueProgress {
            joined: self.joined && other.joined,
            filled: self.filled + other.filled,
            shards: self.shards + other.shards,
            commands: self.commands + other.commands,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// The queue for one backup.
#[derive(Default)]
pub(crate) struct CommandQueue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// Counts the connections to the backup.
    connection: u64,
    /// Of the backup.
    incarnation: u64,
    /// One for each thread of the backup. Empty while there is no connection.
    threads: Vec<ThreadQueue>,
    /// Bytes in the queues, also of blocks under way.
    bytes: usize,
    /// By the numbers of the tables on the thread. `None`: the table has no shards there.
    tables: BTreeMap<usize, Option<TableStream>>,
    /// Streams that the backup needs, and that must not begin yet.
    deferred: BTreeSet<Deferred>,
    /// The stream of the states that are not rows, if the backup is told them, and the epoch of their place.
    states: Option<(ThreadStream, u64)>,
    /// When these commands are acknowledged, the backup has all that was told before it joined.
    whole_at: Option<u64>,
    /// The backup has all rows and commands up to some point.
    ready: bool,
    /// Workers wait for the acknowledgements of the backup.
    joined: bool,
    /// How many commands had been told when they began to wait.
    joined_at: u64,
    /// How many commands have been told, as far as the queue knows.
    last: u64,
    /// The connection was lost, and workers wait until somebody has decided that they need not.
    lost: bool,
    /// There is something new for the replicator.
    news: bool,
    words: Vec<u64>,
}

impl QueueState {
    /// Forgets everything but whether workers wait.
    fn reset(&mut self, connection: u64) {
        let (joined, lost) = (self.joined, self.lost);
        *self = QueueState { connection, joined, lost, ..QueueState::default() };
    }

    fn acknowledged(&self) -> u64 {
        self.threads.iter().filter_map(ThreadQueue::acknowledged).min().unwrap_or(u64::MAX)
    }

    /// Whether the queue has commands for all shards of the thread: none of them is being filled.
    fn is_whole(&self, tables: usize) -> bool {
        let whole = self.tables.values().flatten().all(TableStream::is_whole);
        !self.threads.is_empty() && self.tables.len() >= tables && whole && self.deferred.is_empty()
    }

    /// Whether the backup has all rows of all tables of the thread, and has acknowledged them.
    fn has_all(&self, tables: usize) -> bool {
        self.is_whole(tables) && self.whole_at.is_none_or(|at| self.acknowledged() >= at)
    }

    /// Whether the backup has all rows of the tables for which workers wait, and has acknowledged them. It may take the
    /// place of these tables, and no other.
    fn has_awaited(&self, tables: usize) -> bool {
        let mut awaited = self.tables.values().flatten().filter(|stream| stream.is_awaited());
        let acknowledged = self.acknowledged();
        let is_whole = |stream: &TableStream| stream.whole_at().is_some_and(|at| acknowledged >= at);
        !self.threads.is_empty() && self.tables.len() >= tables && awaited.all(is_whole)
    }

    /// Adds the beginnings of copies.
    fn add_copies(&mut self, stream: u64, place: OwnPlace, told: u64, threads: &[CopyV1]) {
        let OwnPlace { epoch, is_held: keeps, .. } = place;
        for (queue, copies) in self.threads.iter_mut().zip(threads) {
            if !copies.births.is_empty() {
                let block = Block::Copy { stream, epoch, keeps, payload: control::seal(copies) };
                self.bytes += block.bytes();
                queue.waiting.push_back((told, block));
            }
        }
        self.news = true;
    }

    /// Adds a command of a shard, and counts its bytes. Returns `false` if the backup is not told of the shard: the
    /// replicator may lose the connection at any moment, also while the thread reads the rows of a piece.
    fn add(&mut self, table: usize, told: u64, command: &CommandRecord<'_>) -> bool {
        let QueueState { tables, threads, words, bytes, news, last, .. } = self;
        let stream = tables.get_mut(&table).and_then(Option::as_mut);
        let Some((thread, stream)) = stream.and_then(|of| of.thread(command.shard)) else { return false };
        // Another connection may be to a backup with fewer threads. The streams to it begin in the next turn.
        let Some(queue) = threads.get_mut(thread) else { return false };
        *last = told + 1;
        words.clear();
        command_payload::put_command(words, command);
        *bytes += queue.add(stream, told, words);
        *news = true;
        true
    }
}

/// How the stream of a table begins.
pub(crate) struct StreamBeginning {
    /// Its number.
    pub(crate) stream: u64,
    /// The place of the table.
    pub(crate) place: OwnPlace,
    /// The number of its first message.
    pub(crate) told: u64,
    /// The backup may take the place of the table before it has all places of this server.
    pub(crate) is_awaited: bool,
}

impl CommandQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the connection, and how many threads the backup has. `None`: there is no connection, or workers
    /// still wait for what an earlier connection has lost. Until they need not, the backup may be the only one that has
    /// the rows, so nothing may replace its copies.
    pub(crate) fn connection(&self) -> Option<(u64, usize)> {
        let state = self.lock();
        let is_connected = !state.threads.is_empty() && !state.lost;
        is_connected.then_some((state.connection, state.threads.len()))
    }

    /// Begins the stream of a table. `threads` has the copies that each thread of the backup keeps.
    pub(crate) fn begin_table(&self, table: usize, begun: StreamBeginning, threads: &[CopyV1]) {
        self.end_table(table);
        let StreamBeginning { stream, place, told, is_awaited } = begun;
        let mut state = self.lock();
        state.ready = false;
        state.tables.insert(table, Some(TableStream::new(stream, threads, is_awaited)));
        state.add_copies(stream, place, told, threads);
    }

    /// Tells the backup again what it knows of a table besides its rows.
    pub(crate) fn confirm_table(&self, table: usize, place: OwnPlace, told: u64, threads: &[CopyV1]) {
        let mut state = self.lock();
        if let Some(stream) = state.tables.get(&table).and_then(Option::as_ref).map(TableStream::id) {
            state.add_copies(stream, place, told, threads);
        }
    }

    /// The table is dropped. `end`: a message without shards, which ends the copies of all threads of the backup.
    pub(crate) fn drop_table(&self, table: usize, told: u64, end: &CopyV1) {
        let mut state = self.lock();
        if let Some(stream) = state.tables.get(&table).and_then(Option::as_ref).map(TableStream::id) {
            let payload = control::seal(end);
            state.bytes += payload.len() * state.threads.len();
            for queue in &mut state.threads {
                let block = Block::Copy { stream, epoch: 0, keeps: false, payload: payload.clone() };
                queue.waiting.push_back((told, block));
            }
            (state.news, state.last) = (true, told + 1);
        }
        drop(state);
        self.forget_table(table);
    }

    /// There is no such table any more.
    pub(crate) fn forget_table(&self, table: usize) {
        let QueueState { tables, deferred, .. } = &mut *self.lock();
        tables.remove(&table);
        deferred.remove(&Deferred::Table(table));
    }

    /// The table has no shards on this thread.
    pub(crate) fn end_table(&self, table: usize) {
        let QueueState { tables, deferred, .. } = &mut *self.lock();
        tables.insert(table, None);
        deferred.remove(&Deferred::Table(table));
    }

    /// The backup needs a stream that must not begin yet.
    pub(crate) fn defer(&self, stream: Deferred) {
        if let Deferred::Table(table) = stream {
            self.end_table(table);
        }
        let mut state = self.lock();
        state.ready = false;
        state.deferred.insert(stream);
    }

    /// The tables whose streams must begin.
    pub(crate) fn deferred_tables(&self) -> Vec<usize> {
        let table = |stream: &Deferred| match stream {
            Deferred::Table(table) => Some(*table),
            Deferred::States => None,
        };
        self.lock().deferred.iter().filter_map(table).collect()
    }

    /// Adds a command that has just been applied. While its shard is filled, adds the rows that it has changed instead.
    /// `told`: how many commands were told before it.
    pub(crate) fn hear(
        &self,
        table: usize,
        told: u64,
        command: &CommandRecord<'_>,
        shard: &mut ToldShard<'_>,
    ) {
        let mut state = self.lock();
        let fill = state.tables.get(&table).and_then(Option::as_ref).map(|of| of.fill(command.shard));
        let changed: &[u64] = match (fill, command.change) {
            (None | Some(Fill::NotBegun), _) => return,
            (Some(Fill::Whole), _) | (_, CommandChange::Program(..)) => {
                state.add(table, told, command);
                return;
            }
            (_, CommandChange::Part(part)) => part.keys,
            (_, CommandChange::Deletion(key)) => &[key],
            _ => &[],
        };
        let (mut keys, mut rows, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        shard.states(changed, &mut keys, &mut rows, &mut gone);
        let states = RowStates { piece: 0, keys: &keys, rows: &rows, gone: &gone };
        state.add(table, told, &CommandRecord { change: CommandChange::Rows(states), ..*command });
    }

    /// The next shard to fill: its table, its number and how far it is. Tables for which workers wait come first.
    /// `None`: all are filled, there is no connection, or the queue has `bytes_max` bytes.
    pub(crate) fn next_fill(&self, bytes_max: usize) -> Option<(usize, u32, Fill)> {
        let state = self.lock();
        if state.threads.is_empty() || state.bytes > bytes_max {
            return None;
        }
        let next = |is_awaited: bool| {
            let unfilled = |(&table, of): (&usize, &Option<TableStream>)| {
                let of = of.as_ref().filter(|of| of.is_awaited() == is_awaited)?;
                of.next_fill().map(|(shard, fill)| (table, shard, fill))
            };
            state.tables.iter().find_map(unfilled)
        };
        next(true).or_else(|| next(false))
    }

    /// Adds a piece of a shard's rows. `told`: how many commands and pieces were told before it.
    pub(crate) fn add_piece(&self, table: usize, told: u64, piece: &CommandRecord<'_>) {
        let mut state = self.lock();
        if state.add(table, told, piece) {
            state.whole_at = Some(told + 1);
        }
    }

    /// Begins the stream of the states that are not rows.
    pub(crate) fn begin_states(&self, stream: u64, epoch: u64) {
        let mut state = self.lock();
        state.ready = false;
        state.deferred.remove(&Deferred::States);
        state.states = Some((ThreadStream { stream, number: 0 }, epoch));
    }

    /// Adds a state. Thread 0 of the backup keeps it. `told`: how many commands and states were told before it.
    /// `is_fill`: the backup needs it to have all.
    pub(crate) fn add_state(&self, told: u64, sealed: &[u8], is_fill: bool) {
        let mut state = self.lock();
        let QueueState { threads, states: Some((of, epoch)), bytes, news, last, whole_at, .. } = &mut *state
        else {
            return;
        };
        let Some(queue) = threads.first_mut() else { return };
        let mut pieces = sealed.chunks(PART_BYTES_MAX).peekable();
        while let Some(piece) = pieces.next() {
            of.number += 1;
            let (stream, number, more) = (of.stream, of.number, pieces.peek().is_some());
            let block = Block::State { stream, number, more, epoch: *epoch, payload: piece.to_vec() };
            queue.waiting.push_back((told, block));
            *bytes += piece.len();
        }
        (*news, *last) = (true, told + 1);
        if is_fill {
            *whole_at = Some(told + 1);
        }
    }

    /// Notes how far a shard is filled, by so many commands and pieces that were told.
    pub(crate) fn set_fill(&self, table: usize, shard: u32, fill: Fill, told: u64) {
        if let Some(Some(stream)) = self.lock().tables.get_mut(&table) {
            stream.set_fill(shard, fill, told);
        }
    }

    /// How many of the commands that were told the backup has acknowledged, if workers wait for it. `u64::MAX`: all, or
    /// they do not. `tables`: tables of the thread.
    ///
    /// The backup may have joined, and be filled with a place that this server has taken. It cannot take that place
    /// yet. So replies wait for what was told, of which pieces of rows are a small part, and not until it has all.
    pub(crate) fn gate(&self, tables: usize) -> u64 {
        let state = self.lock();
        match state.joined {
            false => u64::MAX,
            true if !state.has_awaited(tables) => 0,
            true => state.acknowledged(),
        }
    }

    /// Notes whether the backup has all now. `tables`: tables of the thread.
    pub(crate) fn note_ready(&self, tables: usize) {
        let mut state = self.lock();
        state.ready = state.has_all(tables);
    }

    /// Whether the backup is this incarnation of a server, and has all.
    pub(crate) fn is_ready(&self, incarnation: u64) -> bool {
        let state = self.lock();
        state.ready && state.incarnation == incarnation
    }

    /// How far the backup is.
    pub(crate) fn progress(&self) -> QueueProgress {
        let state = self.lock();
        let shards = state.tables.values().flatten().map(TableStream::progress);
        let (filled, shards) = shards.fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
        let behind =
            if state.threads.is_empty() { 0 } else { state.last - state.acknowledged().min(state.last) };
        QueueProgress { joined: state.joined, filled, shards, commands: behind, bytes: state.bytes as u64 }
    }

    /// From now on workers wait for this backup, if it has all.
    pub(crate) fn join(&self) {
        let mut state = self.lock();
        if state.ready && !state.joined {
            (state.joined, state.joined_at) = (true, state.last);
        }
    }

    /// The incarnation of this backup, if it has everything that any worker knows of: workers wait for it, it has
    /// acknowledged all that was told before they did, and it has all rows of tables that came later.
    pub(crate) fn joined(&self) -> Option<u64> {
        let state = self.lock();
        let has_joined =
            state.joined && !state.lost && state.ready && state.acknowledged() >= state.joined_at;
        has_joined.then_some(state.incarnation)
    }

    /// Workers wait for this backup, which was lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lock().lost
    }

    /// Workers need not wait for this backup.
    pub(crate) fn leave(&self) {
        let mut state = self.lock();
        (state.joined, state.lost) = (false, false);
    }

    /// Bytes that wait or are under way.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Whether workers wait for this backup.
    pub(crate) fn is_joined(&self) -> bool {
        self.lock().joined
    }

    /// Whether the replicator has something new to do. The next call says so only if there is more.
    pub(crate) fn take_news(&self) -> bool {
        std::mem::take(&mut self.lock().news)
    }

    /// The replicator is connected to this incarnation of a backup, which has so many threads and no copies.
    pub(crate) fn connect(&self, threads: usize, incarnation: u64) {
        let mut state = self.lock();
        let connection = state.connection + 1;
        state.reset(connection);
        state.threads.resize_with(threads, ThreadQueue::default);
        state.incarnation = incarnation;
    }

    /// The connection is lost, and what the backup has is not known any more. Returns whether workers wait for it.
    pub(crate) fn disconnect(&self) -> bool {
        let mut state = self.lock();
        state.lost |= state.joined;
        let connection = state.connection;
        state.reset(connection);
        state.joined
    }

    /// Takes the next block for a thread of the backup, unless enough are under way.
    pub(crate) fn take(&self, thread: usize) -> Option<Block> {
        let mut state = self.lock();
        let queue = state.threads.get_mut(thread)?;
        if queue.sent.len() >= BLOCKS_SENT {
            return None;
        }
        let (told, block) = queue.waiting.pop_front()?;
        queue.sent.push_back((told, block.bytes()));
        Some(block)
    }

    /// The thread has acknowledged its first block that is under way.
    pub(crate) fn acknowledge(&self, thread: usize) {
        let mut state = self.lock();
        if let Some((_, bytes)) = state.threads.get_mut(thread).and_then(|queue| queue.sent.pop_front()) {
            state.bytes -= bytes;
        }
    }
}

/// What a thread is to send to each of its backups.
pub(crate) type ThreadQueues = Vec<Arc<CommandQueue>>;
