//! Pushes that stay incomplete because their pushers are gone: the coordinator has the pushers fenced.

use crate::calls::cut_client::{CutName, cut_step};
use crate::checkpoint::options::unexpected;
use crate::error::WorkerError;
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::messages::cuts::*;
use std::collections::BTreeSet;

/// Ends the torn pushes whose pushers are gone, as all threads say: fences the pushers in every shard.
pub(crate) fn give_up_gone<N: Net>(
    worker: &mut Worker<N>,
    cut: CutName<'_>,
    pushes: Vec<TornPushV1>,
) -> Result<(), WorkerError> {
    if pushes.is_empty() {
        return Ok(());
    }
    let mut gone: BTreeSet<CutPusherV1> = pushes
        .iter()
        .map(|&TornPushV1 { pusher, incarnation, .. }| CutPusherV1 { pusher, incarnation })
        .collect();
    for reply in cut_step(worker, cut, &CutActionV1::Torn { pushes })? {
        let CutReplyV1::Gone { pushers } = reply else { return Err(unexpected(&reply)) };
        gone.retain(|pusher| pushers.contains(pusher));
    }
    if !gone.is_empty() {
        cut_step(worker, cut, &CutActionV1::GiveUp { pushers: gone.into_iter().collect() })?;
    }
    Ok(())
}
