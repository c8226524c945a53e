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
use std::time::Duration;

/// Incomplete pushes, and since when nothing more of each has come.
#[derive(Default)]
pub(crate) struct StandingPushes(Vec<(TornPush, Duration)>);

impl StandingPushes {
    /// Takes the pushes that are incomplete now. Returns those that have been as they are for `least`, once in that
    /// time.
    pub(crate) fn update(&mut self, torn: Vec<TornPush>, now: Duration, least: Duration) -> Vec<TornPush> {
        let before = std::mem::take(&mut self.0);
        let since =
            |push: &TornPush| before.iter().find(|(of, _)| of == push).map_or(now, |(_, since)| *since);
        let mut standing = Vec::new();
        for push in torn {
            let since = since(&push);
            let is_due = now >= since + least;
            if is_due {
                standing.push(push.clone());
            }
            self.0.push((push, if is_due { now } else { since }));
        }
        standing
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody asked about the push of a dead worker while those of live ones made progress.
    #[test]
    fn a_push_stands_although_others_make_progress() {
        let torn = |pusher: u64, done: u64| {
            let (table, seq) = ("t".to_owned(), 3);
            let push = PushLimitV1 { table: table.clone(), pusher, incarnation: 1, seq };
            let sender = TornPushV1 { table, pusher, incarnation: 1, seq, done, unfinished: false };
            TornPush { push, sender }
        };
        let (mut standing, mut asked) = (StandingPushes::default(), Vec::new());
        for ms in 0..1000 {
            let of = standing.update(
                vec![torn(1, 7), torn(2, ms)],
                Duration::from_millis(ms),
                Duration::from_millis(250),
            );
            asked.extend(of.iter().map(|of| (ms, of.push.pusher)));
        }
        assert_eq!(asked, [(250, 1), (500, 1), (750, 1)]);
    }
}
