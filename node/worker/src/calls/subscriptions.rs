//! How a worker subscribes to rows that its servers then keep fresh in its cache.

use crate::error::WorkerError;
use crate::links::control::post_on;
use crate::requests::in_flight::ControlInFlight;
use crate::requests::names::TableId;
use crate::worker::Worker;
use bytemuck::cast_slice;
use gannet_core::{Read, hash, shard_of};
use gannet_transport::Net;
use gannet_wire::frames::subscriptions::{SubscribeFlags, SubscribeFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::limits::{PART_KEYS_MAX, SUBSCRIBED_ROWS_MAX};
use std::time::Duration;

/// Subscribes to rows that have been used again since the last call.
pub(crate) fn follow_rows<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    now: Duration,
) -> Result<(), WorkerError> {
    let Some(caching) = &mut worker.tables[table.0].cache else { return Ok(()) };
    let Some(every) = caching.rows.config.active.filter(|_| now >= caching.next_follow) else {
        return Ok(());
    };
    caching.next_follow = now + every;
    let rows = caching.rows.clone();
    let to_follow =
        rows.to_follow.lock().map(|mut to_follow| std::mem::take(&mut *to_follow)).unwrap_or_default();
    let known = &worker.tables[table.0];
    let mut by_peer: Vec<Vec<u64>> = vec![Vec::new(); worker.links.peers.len()];
    for key in to_follow {
        let shard = shard_of(hash(key), known.schema.shards);
        by_peer[known.owners[shard as usize] as usize].push(key);
    }
    for (number, keys) in by_peer.iter().enumerate() {
        let peer = &mut worker.links.peers[number];
        let anew = peer.followed_of(table.0).gone * 2 > peer.followed_of(table.0).sent.max(1_000);
        if anew {
            peer.followed_of(table.0).lose();
        }
        if peer.link.is_none() {
            continue;
        }
        // The server's answers say as of when the rows that it does not mention are current.
        if !peer.followed_of(table.0).keys.is_empty() {
            worker.links.ping(number, now)?;
        }
        for keys in keys.chunks(PART_KEYS_MAX) {
            subscribe(worker, number, table, keys, every, rows.read)?;
        }
    }
    Ok(())
}

fn subscribe<N: Net>(
    worker: &mut Worker<N>,
    number: usize,
    table: TableId,
    keys: &[u64],
    every: Duration,
    read: Read,
) -> Result<(), WorkerError> {
    let now = worker.links.net.now();
    let followed = worker.links.peers[number].followed_of(table.0);
    if followed.generation == 0 || followed.refused || followed.keys.len() + keys.len() > SUBSCRIBED_ROWS_MAX
    {
        return Ok(());
    }
    let flags = SubscribeFlags { anew: followed.keys.is_empty(), state: read == Read::State };
    followed.keys.extend_from_slice(keys);
    let frame = UnsentFrame::new(&SubscribeFrame {
        table: 0,
        keys: keys.len() as u32,
        period_ms: every.as_millis().clamp(1, u128::from(u32::MAX)) as u32,
        flags,
        set: followed.generation,
    });
    let payloads = vec![cast_slice(keys).to_vec()];
    let control = ControlInFlight { frame, table: Some(table.0), payloads, ..ControlInFlight::default() };
    post_on(&mut worker.links, number, control, 0, now).map(drop)
}
