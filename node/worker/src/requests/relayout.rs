//! The layout of a batch in flight: the caller's cut, and the chunks that its requests name.
//!
//! The chunks are those of the cut, which it shares. If the links have changed since the cut was made, or the keys
//! were sorted without a worker, the request has its own chunks. The chunks of a request in flight never change their
//! numbers, because those are on the wire. Rows that are cut again go to new chunks at the end, and their old chunk
//! becomes empty.

use gannet_core::Schema;
use gannet_wire::sharded_keys::{Chunk, ShardedKeys};
use std::ops::Range;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Relayout {
    pub(crate) cut: Arc<ShardedKeys>,
    table: usize,
    own: Option<Vec<Chunk>>,
}

impl Relayout {
    /// A cut of a table for the links of this layout. `owners` are the owners of the shards.
    pub(crate) fn new(
        cut: Arc<ShardedKeys>,
        table: usize,
        layout: u64,
        schema: &Schema,
        owners: &[u32],
    ) -> Relayout {
        let own = (cut.layout != layout || cut.table != table).then(|| {
            let mut chunks = Vec::new();
            cut.all_chunks_of(schema, owners, &mut chunks);
            chunks
        });
        Relayout { cut, table, own }
    }

    pub(crate) fn chunks(&self) -> &[Chunk] {
        self.own.as_deref().unwrap_or_else(|| self.cut.chunks())
    }

    /// The keys in shard order.
    pub(crate) fn keys(&self) -> &[u64] {
        self.cut.keys()
    }

    pub(crate) fn table(&self) -> usize {
        self.table
    }

    /// Whether another batch has the same keys and the same chunks.
    pub(crate) fn is_as(&self, other: &Relayout) -> bool {
        let cut_alike = self.own.is_none() && other.own.is_none() && self.cut.layout == other.cut.layout;
        cut_alike && (Arc::ptr_eq(&self.cut, &other.cut) || self.keys() == other.keys())
    }

    /// Cuts the rows of these chunks again, for shards with these owners. Returns the numbers of the new chunks.
    pub(crate) fn cut_anew(&mut self, chunks: &[u32], schema: &Schema, owners: &[u32]) -> Range<u32> {
        let Relayout { cut, own, .. } = self;
        let own = own.get_or_insert_with(|| cut.chunks().to_vec());
        let mut rows: Vec<Range<u32>> = chunks
            .iter()
            .map(|&number| {
                let chunk = &mut own[number as usize];
                chunk.start..chunk.start + std::mem::take(&mut chunk.len)
            })
            .filter(|rows| !rows.is_empty())
            .collect();
        rows.sort_unstable_by_key(|rows| rows.start);
        let first = own.len() as u32;
        let mut rows = rows.into_iter().peekable();
        while let Some(mut range) = rows.next() {
            while let Some(next) = rows.next_if(|next| next.start == range.end) {
                range.end = next.end;
            }
            cut.chunks_of(range, schema, owners, own);
        }
        first..own.len() as u32
    }
}
