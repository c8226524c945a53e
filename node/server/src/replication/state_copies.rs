//! A backup's copies of another server's states that are not rows.

use crate::limits::{STATE_BYTES_MAX, STATE_STREAMS_MAX};
use crate::places::states::ToldStates;
use crate::replication::copies::StreamOrigin;
use gannet_wire::messages::control;
use gannet_wire::messages::control::StateV1;

/// The states of another server, of which this one is a backup.
#[derive(Debug, Default)]
pub(crate) struct StateCopies {
    pub(crate) stream: u64,
    /// Who began them.
    pub(crate) origin: StreamOrigin,
    /// Frames of the stream that came.
    pub(crate) frames: u64,
    /// The beginning of a state whose end has not come.
    pub(crate) begun: Vec<u8>,
    pub(crate) states: ToldStates,
    /// Bytes of all of them.
    pub(crate) bytes: usize,
    /// A frame could not be taken.
    pub(crate) has_failed: bool,
    /// What owners of earlier epochs have told, the last one at the end. It counts until the owner of this one has told
    /// everything.
    pub(crate) before: Vec<(u64, ToldStates)>,
}

impl StateCopies {
    /// All states, if they are here. The owner of epoch `since` has told everything that was acknowledged. Later ones
    /// have acknowledged nothing, so a state is as it was told last.
    pub(crate) fn all(self, since: u64) -> Option<ToldStates> {
        let StateCopies { origin, before, states, has_failed, .. } = self;
        if origin.epoch <= since {
            return (!has_failed).then_some(states);
        }
        let mut told = before.into_iter().filter(|(epoch, _)| *epoch >= since).peekable();
        told.peek().filter(|(epoch, _)| *epoch == since)?;
        let told = told.map(|(_, states)| states);
        Some(told.chain([states]).flatten().collect())
    }

    /// What counts until a new stream of an owner of this epoch has told everything.
    pub(crate) fn base(self, epoch: u64) -> Vec<(u64, ToldStates)> {
        let StateCopies { origin, mut before, states, has_failed, .. } = self;
        if origin.epoch < epoch && !has_failed {
            before.push((origin.epoch, states));
        }
        before.drain(..before.len().saturating_sub(STATE_STREAMS_MAX));
        before
    }

    pub(crate) fn take(&mut self, number: u64, more: bool, payload: &[u8]) -> Result<(), String> {
        if self.has_failed {
            return Err("an earlier frame of the stream could not be taken".into());
        }
        match number.checked_sub(self.frames) {
            // It came before, over a link that was lost.
            None | Some(0) => return Ok(()),
            Some(1) => self.frames = number,
            Some(_) => return Err(format!("frame {number} of the stream came behind frame {}", self.frames)),
        }
        if self.bytes + self.begun.len() + payload.len() > STATE_BYTES_MAX {
            return Err(format!("the states have more than {STATE_BYTES_MAX} bytes, the limit"));
        }
        self.begun.extend_from_slice(payload);
        if more {
            return Ok(());
        }
        let sealed = std::mem::take(&mut self.begun);
        let StateV1 { name, run, bytes } =
            control::open(&sealed).map_err(|error| format!("a state cannot be read: {error}"))?;
        let (of, has) = ((name, run), bytes.len());
        let before = match bytes.is_empty() {
            true => self.states.remove(&of),
            false => self.states.insert(of, bytes),
        };
        self.bytes = self.bytes + has - before.map_or(0, |before| before.len());
        Ok(())
    }
}
