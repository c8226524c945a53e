//! Pushes that stay incomplete because their pushers are gone: the coordinator has the pushers fenced.

use crate::calls::cut_client::{CutName, cut_step};
use crate::checkpoint::frozen::TornPush;
use crate::checkpoint::options::unexpected;
use crate::error::WorkerError;
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::messages::cuts::*;
use gannet_wire::share_pushers::is_share;
use std::collections::BTreeSet;

/// Ends the torn pushes whose pushers are gone, as all threads say: fences the pushers in every shard. A torn push of a
/// fixed share has the share's name, and the servers go on from that name after a restore. So it is noted as ended.
pub(crate) fn give_up_gone<N: Net>(
    worker: &mut Worker<N>,
    cut: CutName<'_>,
    torn: Vec<TornPush>,
) -> Result<(), WorkerError> {
    if torn.is_empty() {
        return Ok(());
    }
    let start = |of: &TornPush| CutPusherV1 { pusher: of.sender.pusher, incarnation: of.sender.incarnation };
    let mut gone: BTreeSet<CutPusherV1> = torn.iter().map(start).collect();
    let pushes = torn.iter().map(|of| of.sender.clone()).collect();
    for reply in cut_step(worker, cut, &CutActionV1::Torn { pushes })? {
        let CutReplyV1::Gone { pushers } = reply else { return Err(unexpected(&reply)) };
        gone.retain(|pusher| pushers.contains(pusher));
    }
    if gone.is_empty() {
        return Ok(());
    }
    let is_over = |of: &&TornPush| is_share(of.push.pusher) && gone.contains(&start(of));
    let ended = torn.iter().filter(is_over).map(|of| of.push.clone()).collect();
    cut_step(worker, cut, &CutActionV1::GiveUp { pushers: gone.into_iter().collect(), ended })?;
    Ok(())
}
