//! The keysets of finished pulls: a push to the same cut names them instead of its keys.

use crate::limits::KEPT_PULLS_MAX;
use crate::links::peer::Peer;
use crate::requests::in_flight::PullPart;
use crate::requests::names::PullId;
use crate::requests::relayout::Relayout;
use gannet_transport::Stream;
use gannet_wire::frames::push_payload::KeysetRows;
use gannet_wire::frames::word::pair_of_words;
use gannet_wire::sharded_keys::Chunk;
use std::collections::VecDeque;

/// The keysets of a finished pull.
pub(crate) struct KeptKeysets {
    id: PullId,
    laid: Relayout,
    parts: Vec<PullPart>,
}

/// The keysets of the last pulls, the oldest first.
#[derive(Default)]
pub(crate) struct KeptPulls(VecDeque<KeptKeysets>);

/// What a push names instead of its keys, for each of its parts.
#[derive(Default)]
pub(crate) struct RowNames {
    /// The keyset that replaces the keys; 0 for none.
    pub(crate) keysets: Vec<u64>,
    /// Where the worker found the rows. Empty for none.
    pub(crate) slots: Vec<Vec<u32>>,
    /// Which rows a keyset covers, if only some.
    pub(crate) some: Vec<Option<KeysetRows>>,
    /// When the rows of each part were read. Empty: no pull has said it.
    pub(crate) read_at: Vec<[u64; 2]>,
}

/// Chunks of a batch, each with when its rows were read: a version, and the incarnation of a server.
pub(crate) type ReadChunks = Vec<(Chunk, [u64; 2])>;

/// When the rows of another chunk of that batch were read: the lowest version of the chunks with some of its rows. The
/// incarnation is 0, because other servers may have answered. Chunks that were cut again have no rows.
pub(crate) fn read_at_of(chunk: &Chunk, read: &ReadChunks) -> [u64; 2] {
    let has =
        |of: &Chunk| of.len > 0 && of.start < chunk.start + chunk.len && chunk.start < of.start + of.len;
    let versions = read.iter().filter(|(of, _)| has(of)).map(|(_, [version, _])| *version);
    [versions.min().unwrap_or(0), 0]
}

impl KeptPulls {
    /// Keeps the keysets and slots of a pull, if it has any, until a push uses them.
    pub(crate) fn keep<S: Stream>(
        &mut self,
        peers: &mut [Peer<S>],
        id: PullId,
        laid: Relayout,
        parts: Vec<PullPart>,
    ) {
        let found = |part: &PullPart| part.near.as_ref().is_some_and(|near| !near.slots.is_empty());
        if !parts.iter().any(|part| part.keep != 0 || part.read_at[0] != 0 || found(part)) {
            return;
        }
        if self.0.len() == KEPT_PULLS_MAX
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.forget(peers);
        }
        self.0.push_back(KeptKeysets { id, laid, parts });
    }

    /// For each part of a push to this cut: the keyset that replaces its keys, or the slots where this worker found its
    /// rows. The push uses up the keysets of the pull. Their numbers are free at once, because any request that reuses
    /// one comes after the push on the same link. The keyset of a pull through the cache covers only the rows that were
    /// requested: the push then sends the keys of the others.
    pub(crate) fn handles_of<S: Stream>(
        &mut self,
        peers: &mut [Peer<S>],
        pull: Option<PullId>,
        laid: &Relayout,
    ) -> RowNames {
        let found = pull.and_then(|pull| self.0.iter().rposition(|kept| kept.id == pull));
        let Some(mut keysets) = found.and_then(|at| self.0.remove(at)) else {
            return RowNames { keysets: vec![0; laid.chunks().len()], ..RowNames::default() };
        };
        let same = keysets.laid.is_as(laid);
        let name = |(chunk, part): (&Chunk, &PullPart)| {
            let peer = &peers[chunk.peer as usize];
            let valid = same && part.kept == peer.session.epoch && peer.link.is_some();
            if valid { pair_of_words(peer.session.number, part.keep) } else { 0 }
        };
        let read_at = keysets.read_at(laid, same);
        let names: Vec<u64> = match same {
            true => laid.chunks().iter().zip(&keysets.parts).map(name).collect(),
            false => vec![0; laid.chunks().len()],
        };
        keysets.forget(peers);
        let some = |((chunk, part), name): ((&Chunk, &PullPart), &u64)| {
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
        RowNames { keysets: names, slots, some, read_at }
    }
}

impl KeptKeysets {
    /// When the rows of each part of a push were read. A part that has rows of several parts of the pull counts as read
    /// when the first of them was. For other keys than those of the pull nobody knows it.
    fn read_at(&self, laid: &Relayout, same: bool) -> Vec<[u64; 2]> {
        if same {
            return self.parts.iter().map(|part| part.read_at).collect();
        }
        if self.laid.keys() != laid.keys() {
            return vec![[0; 2]; laid.chunks().len()];
        }
        let parts = self.laid.chunks().iter().zip(&self.parts);
        let read: ReadChunks = parts.map(|(chunk, part)| (*chunk, part.read_at)).collect();
        laid.chunks().iter().map(|chunk| read_at_of(chunk, &read)).collect()
    }

    fn forget<S: Stream>(&self, peers: &mut [Peer<S>]) {
        for (chunk, part) in self.laid.chunks().iter().zip(&self.parts) {
            peers[chunk.peer as usize].keysets.release(part.keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_counts_as_read_when_the_first_of_those_with_its_rows_was() {
        let chunk = |start, len| Chunk { peer: 0, start, len, row: 0 };
        // The second one was cut again.
        let read = vec![(chunk(0, 40), [9, 1]), (chunk(40, 0), [0, 0]), (chunk(40, 40), [7, 2])];
        assert_eq!(read_at_of(&chunk(0, 80), &read), [7, 0]);
        assert_eq!(read_at_of(&chunk(10, 30), &read), [9, 0]);
        assert_eq!(read_at_of(&chunk(80, 10), &read), [0, 0], "nobody has read them");
    }
}
