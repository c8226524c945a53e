//! The keysets of finished pulls: a push to the same cut names them instead of its keys.

use crate::limits::KEPT_PULLS_MAX;
use crate::requests::in_flight::PullPart;
use crate::requests::names::PullId;
use crate::requests::relayout::Relayout;
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::push_payload::KeysetRows;
use gannet_wire::frames::word::pair;

/// The keysets of a finished pull.
pub(crate) struct KeptKeysets {
    id: PullId,
    laid: Relayout,
    parts: Vec<PullPart>,
}

impl<N: Net> Worker<N> {
    /// Keeps the keysets and slots of a pull, if it has any, until a push uses them.
    pub(crate) fn keep_keysets(&mut self, id: PullId, laid: Relayout, parts: Vec<PullPart>) {
        let found = |part: &PullPart| part.near.as_ref().is_some_and(|near| !near.slots.is_empty());
        if !parts.iter().any(|part| part.keep != 0 || found(part)) {
            return;
        }
        if self.kept_pulls.len() == KEPT_PULLS_MAX
            && let Some(oldest) = self.kept_pulls.pop_front()
        {
            self.forget(&oldest);
        }
        self.kept_pulls.push_back(KeptKeysets { id, laid, parts });
    }

    /// For each part of a push to this cut: the keyset that replaces its keys, or the slots where this worker found its
    /// rows. The push uses up the keysets of the pull. Their numbers are free at once, because any request that reuses
    /// one comes after the push on the same link. The keyset of a pull through the cache covers only the rows that were
    /// requested: the push then sends the keys of the others.
    #[allow(clippy::type_complexity)]
    pub(crate) fn handles_of(
        &mut self,
        pull: Option<PullId>,
        laid: &Relayout,
    ) -> (Vec<u64>, Vec<Vec<u32>>, Vec<Option<KeysetRows>>) {
        let found = pull.and_then(|pull| self.kept_pulls.iter().rposition(|kept| kept.id == pull));
        let Some(mut keysets) = found.and_then(|at| self.kept_pulls.remove(at)) else {
            return (vec![0; laid.chunks().len()], Vec::new(), Vec::new());
        };
        let same = keysets.laid.is_as(laid);
        let name = |(chunk, part): (&gannet_wire::sharded_keys::Chunk, &PullPart)| {
            let peer = &self.peers[chunk.peer as usize];
            let valid = same && part.kept == peer.session.epoch && peer.link.is_some();
            if valid { pair(peer.session.number, part.keep) } else { 0 }
        };
        let names: Vec<u64> = match same {
            true => laid.chunks().iter().zip(&keysets.parts).map(name).collect(),
            false => vec![0; laid.chunks().len()],
        };
        self.forget(&keysets);
        let some = |((chunk, part), name): ((&gannet_wire::sharded_keys::Chunk, &PullPart), &u64)| {
            let near =
                part.near.as_ref().filter(|near| *name != 0 && near.keys.len() < chunk.len as usize)?;
            Some(KeysetRows::new(&laid.keys()[chunk.floats(1)], &near.places))
        };
        let some = match same && keysets.parts.iter().any(|part| part.near.is_some()) {
            true => laid.chunks().iter().zip(&keysets.parts).zip(&names).map(some).collect(),
            false => Vec::new(),
        };
        let found = |part: &mut PullPart| part.near.take().map_or_else(Vec::new, |near| near.slots);
        let slots = match same && keysets.parts.iter().any(|part| part.near.is_some()) {
            true => keysets.parts.iter_mut().map(found).collect(),
            false => Vec::new(),
        };
        (names, slots, some)
    }

    fn forget(&mut self, keysets: &KeptKeysets) {
        for (chunk, part) in keysets.laid.chunks().iter().zip(&keysets.parts) {
            self.peers[chunk.peer as usize].keysets.release(part.keep);
        }
    }
}
