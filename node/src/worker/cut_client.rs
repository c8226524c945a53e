//! What a worker does for checkpoints: the steps of a cut, if it is the coordinator, and the order of its own pushes.

use super::Worker;
use super::tables::{ControlReply, ControlRequest, Recipients, TableId};
use crate::cuts::{CutActionV1, CutReplyV1, CutRequestV1};
use crate::error::WorkerError;
use crate::frames::{CutFrame, control};
use crate::limits::CUT_MESSAGE_BYTES_MAX;
use crate::sharded_keys::ShardedKeys;
use gannet_transport::Net;
use std::collections::HashSet;
use std::sync::Arc;

impl<N: Net> Worker<N> {
    /// Sends a step of a cut to every thread, and returns the reply of each.
    pub(crate) fn cut_step(
        &mut self,
        (cut, run): (u64, &str),
        action: &CutActionV1,
    ) -> Result<Vec<CutReplyV1>, WorkerError> {
        let request = CutRequestV1 { cut, run: run.into(), action: action.clone() };
        let payload = control::seal(&request);
        if payload.len() > CUT_MESSAGE_BYTES_MAX {
            return Err(WorkerError::Call(format!(
                "a checkpoint of so many shards needs a message of {} bytes, and {CUT_MESSAGE_BYTES_MAX} are the limit: \
                 use fewer --shards, or save full checkpoints",
                payload.len()
            )));
        }
        let payload = |_: usize, _: u32| payload.clone();
        let ask = ControlRequest::with_payload(&CutFrame {}, None, &payload);
        let threads = self.all_threads();
        let to = if self.config.places.is_some() { Recipients::Links(&threads) } else { Recipients::All };
        let replies = self.ask(&ask, to)?;
        let wanted = self.all_threads().len();
        if replies.len() != wanted {
            return Err(WorkerError::Call(format!(
                "{} of {wanted} server threads answered a step of a checkpoint: a server restarted meanwhile; begin \
                 the checkpoint again",
                replies.len()
            )));
        }
        let open = |ControlReply { link, payload, .. }: &ControlReply| {
            control::open(payload).map_err(|error| WorkerError::Protocol {
                peer: self.peers[*link].name.clone(),
                what: error.to_string(),
            })
        };
        replies.iter().map(open).collect()
    }

    /// A link to each thread of each server. A server that has several places has links for each of them.
    fn all_threads(&self) -> Vec<usize> {
        let mut seen = HashSet::new();
        let mut is_first =
            |link: &usize| seen.insert((self.peers[*link].addr.as_str(), self.peers[*link].thread));
        self.links_now().filter(|link| is_first(link)).collect()
    }

    /// Waits for earlier pushes to the table that have rows on a link where this batch has none. So whoever has the
    /// last push of a worker, whole, has all earlier ones, too: a checkpoint relies on that. A batch with rows on every
    /// link waits for nothing.
    pub(super) fn wait_for_other_links(
        &mut self,
        table: TableId,
        cut: &Arc<ShardedKeys>,
    ) -> Result<(), WorkerError> {
        let laid = self.laid(table, cut.clone());
        let mut has = vec![false; self.peers.len()];
        laid.chunks().iter().filter(|chunk| chunk.len > 0).for_each(|chunk| has[chunk.peer as usize] = true);
        if self.links_now().all(|link| has[link]) {
            return Ok(());
        }
        while self.flights.has_push_elsewhere(table.0, &has) {
            self.pump(self.config.peer_timeout)?;
        }
        Ok(())
    }

    /// Waits, and keeps the links alive.
    pub(crate) fn cut_wait(&mut self, time: std::time::Duration) -> Result<(), WorkerError> {
        let until = self.net.now() + time;
        while self.net.now() < until {
            self.pump(until.saturating_sub(self.net.now()))?;
        }
        Ok(())
    }
}
