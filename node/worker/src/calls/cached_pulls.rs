//! Pulls through the cache: rows that it has are copied at once, the others are requested in the same flight. Also what
//! own pushes do to the cache.

use crate::cache::caching::Caching;
use crate::cache::misses::CacheMisses;
use crate::cache::rows::{CacheLookup, CacheReader, RowCache};
use crate::cache::swept::Swept;
use crate::calls::subscriptions::follow_rows;
use crate::error::WorkerError;
use crate::reads::path_choice::ChoiceOf;
use crate::requests::in_flight::LocalHits;
use crate::requests::names::TableId;
use crate::worker::Worker;
use gannet_core::{Read, Schema, Segments, Write};
use gannet_optim::Rule;
use gannet_transport::Net;
use gannet_wire::frames::pull_newer::{CachedRows, bit_words};
use gannet_wire::sharded_keys::{Chunk, ShardedKeys};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Pulls whose start is remembered.
pub(crate) const TURNS_REMEMBERED: usize = 1024;

/// Whether the server adds a push's values to the rows, so that the worker can add them to its copies too.
pub(crate) fn adds(schema: &Schema, read: Read, write: Write) -> bool {
    let sums = matches!(schema.rule, Rule::Add(_)) && schema.more.is_empty() && schema.replays();
    match write {
        Write::Gradient => sums,
        Write::Change => sums || read == Read::State,
        Write::Sum | Write::Damped | Write::Row | Write::Delete => false,
    }
}

impl<N: Net> Worker<N> {
    /// Lets the cache answer pulls of a table's rows from now on: pulls of all segments, read as the cache was made
    /// for. [`RowCache`] has an example.
    ///
    /// # Errors
    /// The cache is of another table; or the table does not admit keys at once, so that the effect of a push to a
    /// missing row is unknown; or rows of the table may die.
    pub fn cache_rows(&mut self, table: TableId, rows: Arc<RowCache>) -> Result<(), WorkerError> {
        let schema = &self.tables[table.0].schema;
        let of_run = self.links.config.run.as_ref().map(|run| run.table(&rows.table));
        let named = of_run.as_ref().unwrap_or(&rows.table);
        if schema.name != *named || schema.read_floats(rows.read) != rows.floats {
            let table = &schema.name;
            return Err(WorkerError::Call(format!("a cache of rows of table {named:?} for table {table:?}")));
        }
        if schema.admission != gannet_core::Admission::All {
            let text = format!(
                "table {:?} admits keys by count or chance: a cache cannot know whether a push makes its row",
                schema.name
            );
            return Err(WorkerError::Call(text));
        }
        if self.tables[table.0].eviction.is_some() {
            let text = format!(
                "rows of table {:?} may die: a cache cannot know whether a push changes the row that it has",
                schema.name
            );
            return Err(WorkerError::Call(text));
        }
        if rows.config.active.is_some() && rows.sharers.load(Relaxed) > 0 {
            let text = format!(
                "table {:?}: a cache whose rows servers keep fresh can be only one worker's",
                schema.name
            );
            return Err(WorkerError::Call(text));
        }
        rows.sharers.fetch_add(1, Relaxed);
        let sharer = rows.sharers_ever.fetch_add(1, Relaxed);
        let (next_follow, begun) = (Duration::ZERO, VecDeque::new());
        self.reads.choices.begin_cache(table.0, rows.config.staleness);
        self.tables[table.0].cache = Some(Caching { rows, sharer, next_follow, begun });
        Ok(())
    }
}

/// Begins a pull of `keys` rows through the cache. `None` if it does not go through one.
pub(crate) fn cached_pull<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    read: Read,
    segments: Segments,
    keys: usize,
    clock: Option<u64>,
) -> Result<Option<CacheReader>, WorkerError> {
    let Some(caching) = &worker.tables[table.0].cache else { return Ok(None) };
    if caching.rows.read != read || segments != Segments::ALL {
        return Ok(None);
    }
    if caching.may_pause() && !choose_cache(worker, table, keys) {
        return Ok(None);
    }
    let Some(caching) = &worker.tables[table.0].cache else { return Ok(None) };
    let (sharer, now) = (caching.sharer, worker.links.net.now());
    let turn = caching.rows.turns.fetch_add(1, Relaxed) + 1;
    caching.rows.sketch.tick(turn);
    worker.links.counters.cache_rows.set(caching.rows.rows());
    let active = caching.rows.config.active.is_some();
    // Receive answers that have come, so that their rows are not requested again.
    if worker.links.in_flight() || active {
        worker.poll()?;
    }
    follow_rows(worker, table, now)?;
    let at_us = worker.links.net.now().as_micros() as u64;
    if let Some(caching) = &mut worker.tables[table.0].cache {
        caching.begun.push_back((at_us, turn));
        if caching.begun.len() > TURNS_REMEMBERED {
            caching.begun.pop_front();
        }
    }
    let (least, in_step) = (worker.tables.least(table.0, clock), clock.is_some());
    Ok(Some(CacheReader {
        sharer,
        turn,
        at_us,
        incarnation: 0,
        epoch: 0,
        least,
        in_step,
        generation: 0,
        swept: Swept::default(),
    }))
}

/// Whether a pull of `keys` rows, which begins now, goes through the table's cache. If not, the cache is empty
/// afterwards: pushes need not look there.
fn choose_cache<N: Net>(worker: &mut Worker<N>, table: TableId, keys: usize) -> bool {
    let (of, now) = (ChoiceOf::cache(table.0), worker.links.net.now());
    worker.reads.choices.enter(now);
    worker.reads.choices.begin_pull(of, keys, now);
    let is_used = worker.reads.choices.quarters(of) > 0;
    let Some(caching) = &worker.tables[table.0].cache else { return false };
    // Not only when a trial ends: the survey of another choice may have ended this one.
    if !is_used && caching.rows.rows() > 0 {
        caching.rows.forget_all();
        worker.links.counters.cache_rows.set(0);
    }
    is_used
}

/// Copies the rows of a chunk that the cache has into `values`. The others must be requested.
pub(crate) fn read_cached<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    chunk: &Chunk,
    keys: &[u64],
    values: &mut [f32],
    pull: &CacheReader,
) -> Option<Box<LocalHits>> {
    let rows = worker.tables[table.0].cache.as_ref()?.rows.clone();
    let peer = &mut worker.links.peers[chunk.peer as usize];
    let followed = peer.followed_of(table.0);
    let (generation, swept) = (followed.generation(&rows), followed.swept);
    let reader = CacheReader {
        incarnation: peer.session.incarnation,
        epoch: peer.session.epoch,
        generation,
        swept,
        ..*pull
    };
    let mut near = LocalHits::default();
    let (mut versions, mut fills) = (Vec::new(), vec![0; bit_words(keys.len())]);
    let (mut hits, mut lowest) = (0, u64::MAX);
    for (place, (&key, row)) in keys.iter().zip(values.chunks_exact_mut(rows.floats)).enumerate() {
        match rows.look(key, &reader, row) {
            CacheLookup::Hit(of) => (hits, lowest) = (hits + 1, lowest.min(of.unwrap_or(0))),
            CacheLookup::Miss { cached, fills: fill } => {
                fills[near.keys.len() / 64] |= u64::from(fill) << (near.keys.len() % 64);
                versions.push(cached);
                near.keys.push(key);
                near.places.push(place as u32);
            }
        }
    }
    let cached = CachedRows::new(peer.session.incarnation, &versions);
    near.lowest = (hits > 0 && pull.in_step).then_some(lowest);
    worker.links.counters.cache_hits.add(hits);
    worker.links.counters.cache_requested.add(near.keys.len() as u64);
    worker.links.counters.cache_held.add(cached.held() as u64);
    near.misses = Some(Box::new(CacheMisses { cached, rows, reader, versions, fills }));
    Some(Box::new(near))
}

/// Applies an own push, which begins now, to the cached rows. Returns the cache, which must learn of the push's
/// outcome.
///
/// # Errors
/// The cache is shared with other workers.
pub(crate) fn push_cached<N: Net>(
    worker: &Worker<N>,
    table: TableId,
    cut: &ShardedKeys,
    write: Write,
    values: &[f32],
) -> Result<Option<Arc<RowCache>>, WorkerError> {
    let known = &worker.tables[table.0];
    let Some(Caching { rows, .. }) = &known.cache else { return Ok(None) };
    if rows.sharers.load(Relaxed) > 1 {
        let text = format!(
            "a push to table {:?}, whose cache is shared by several workers: such a cache is for reading only",
            rows.table
        );
        return Err(WorkerError::Call(text));
    }
    if rows.rows() == 0 {
        return Ok(Some(rows.clone()));
    }
    // The result of a synchronous step is not known here.
    let in_step = known.group.as_ref().is_some_and(|group| group.sync.mode.is_bsp());
    if adds(&known.schema, rows.read, write) && !in_step {
        let changes = values.chunks_exact(rows.floats);
        cut.keys().iter().zip(changes).for_each(|(&key, change)| rows.change(key, change));
    } else {
        cut.keys().iter().for_each(|&key| rows.forget(key));
    }
    Ok(Some(rows.clone()))
}
