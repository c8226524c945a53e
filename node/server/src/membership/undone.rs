//! What a job loses when it goes back to a checkpoint. Each server that ends because of it says how far its shards are
//! behind the cut of the checkpoint. The coordinator keeps the largest of these numbers.

use crate::limits::UNDONE_WAIT;
use crate::membership::Membership;
use crate::places::own::Positions;
use gannet_transport::{Net, Poll};
use gannet_wire::coordinator::{Coordinator, CoordinatorError};
use gannet_wire::messages::control;
use gannet_wire::messages::control::GenerationV2;
use std::time::Duration;

/// What a coordinator knows of the checkpoint with which the places of a job began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationStatus {
    /// How often the job has gone back.
    pub number: u64,
    /// The checkpoint. `None`: the places began without rows.
    pub checkpoint: Option<u64>,
    /// At least so many pushes to a shard were undone when the job went back last, as the servers know that had rows.
    /// Deletions and synchronous steps count as pushes. 0: no such server was left.
    pub undone: u64,
}

/// What a coordinator knows of a job's checkpoint. `None`: no server has begun.
///
/// # Errors
/// The coordinator gave no answer.
pub fn generation(
    coordinator: &dyn Coordinator,
    job: &str,
) -> Result<Option<GenerationStatus>, CoordinatorError> {
    let known = known_generation(coordinator, &generation_key(job))?;
    let status = |(GenerationV2 { number, checkpoint, undone, .. }, _)| GenerationStatus {
        number,
        checkpoint,
        undone,
    };
    Ok(known.map(status))
}

/// The key of a job's generation.
pub(crate) fn generation_key(job: &str) -> String {
    format!("{job}/generation")
}

/// The generation under a key, and its version.
pub(crate) fn known_generation(
    coordinator: &dyn Coordinator,
    key: &str,
) -> Result<Option<(GenerationV2, u64)>, CoordinatorError> {
    let Some(entry) = coordinator.get(key)? else { return Ok(None) };
    match control::open_as::<GenerationV2>(2, &entry.value) {
        Ok(generation) => Ok(Some((generation, entry.version))),
        Err(error) => Err(CoordinatorError(format!("key {key:?} cannot be read: {error}"))),
    }
}

impl<N: Net> Membership<N> {
    /// This server ends because the job has gone back. Says how many pushes that undoes, as far as this server knows.
    pub(crate) fn report_undone(&self, now: GenerationV2) {
        let counted =
            self.last_positions().ok_or_else(|| "a thread of this server does not answer".to_owned());
        let undone = counted.and_then(|positions| match (&self.loading, now.checkpoint) {
            (Some(loading), Some(number)) => {
                loading.loader.undone(number, &positions).map_err(|error| error.to_string())
            }
            _ => Ok(positions.iter().map(|(_, position)| position.command).max().unwrap_or(0)),
        });
        match undone {
            Ok(undone) => {
                let checkpoint = now.checkpoint.unwrap_or(0);
                tracing::error!(
                    checkpoint,
                    undone,
                    "the job goes back to the checkpoint (0: to the beginning): at least so many pushes to a shard of \
                     this server are undone, and the workers train their records again"
                );
                if let Err(error) = self.keep_undone(now, undone) {
                    tracing::warn!(%error, "the coordinator does not know how many pushes are undone");
                }
            }
            Err(why) => tracing::warn!(why, "how many pushes are undone is not known"),
        }
    }

    /// How far the shards of all threads are, which say nothing more to anybody. `None`: a thread takes too long.
    fn last_positions(&self) -> Option<Positions> {
        self.standing.go_back();
        let until = self.net.now() + UNDONE_WAIT;
        let mut poll = self.net.poll().ok()?;
        loop {
            self.wake();
            if let Some(positions) = self.standing.last_positions(self.threads.len()) {
                return Some(positions);
            }
            if self.net.now() >= until || poll.wait(Duration::from_millis(5), &mut Vec::new()).is_err() {
                return None;
            }
        }
    }

    /// The coordinator keeps the number, if no other server knows of more.
    fn keep_undone(&self, now: GenerationV2, undone: u64) -> Result<(), CoordinatorError> {
        let key = generation_key(&self.config.job);
        let coordinator = &*self.config.coordinator;
        while let Some((known, version)) = known_generation(coordinator, &key)? {
            if known.number != now.number || known.undone >= undone {
                break;
            }
            if self.set_generation(version, &GenerationV2 { undone, ..known })?.is_some() {
                break;
            }
        }
        Ok(())
    }
}
