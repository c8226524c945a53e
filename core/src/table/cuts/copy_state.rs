//! What a copy of a shard has of its owner.

/// How much of its owner's shard a copy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CopyState {
    /// All of it, or this is no copy.
    #[default]
    Whole,
    /// So many pieces of the fill.
    Filling(u64),
    /// A command was replayed in part: nobody knows.
    Broken,
}
