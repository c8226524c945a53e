//! The name of a push, by which a shard recognises a resend.

/// The name of a part of a push. The rows that a push has in one shard are its *run* there, in the order of the
/// push. The name of a part of the run consists of the push and the position of the part's first row in the
/// run. So it does not depend on how the push was divided into frames, nor on which thread or server owns the
/// shard.
///
/// Each shard receives the parts of a pusher in ascending order of (seq, row). A higher incarnation fences
/// lower ones. For a push of training data, `seq` is the number of the batch in its split; for other pushes it
/// is a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushName {
    /// The pusher: a stable number.
    pub pusher: u64,
    /// The pusher's incarnation.
    pub incarnation: u64,
    /// Sequence number.
    pub seq: u64,
    /// How many rows of the run, in the shard of the first key, come before the first key.
    pub row: u32,
}

/// Pushers from this number on are splits of the data (in one pass), not workers. After such a pusher is
/// closed, it never pushes again, and its entry may be reused.
pub const DATA_PUSHERS: u64 = 1 << 63;

/// A client without an index of its own starts once: its number as a pusher is its incarnation above this number. Such
/// a client may be forgotten when it is gone ([`Shards::forget_clients`](crate::Shards::forget_clients)). This number
/// itself is no client: under it a shard remembers up to which incarnation it has forgotten clients.
pub const CLIENTS: u64 = 1 << 32;

/// Whether this incarnation of a pusher is a client without an index, as [`CLIENTS`] says.
pub fn is_client(pusher: u64, incarnation: u64) -> bool {
    pusher < DATA_PUSHERS && incarnation > 0 && pusher.checked_sub(CLIENTS) == Some(incarnation)
}

/// The client that a shard remembers under this name, or fences with it: a fence has the incarnation behind that of the
/// client.
pub(crate) fn client_of(pusher: u64, incarnation: u64) -> Option<u64> {
    let client = pusher.wrapping_sub(CLIENTS);
    let is_its = incarnation == client || incarnation == client.wrapping_add(1);
    (is_client(pusher, client) && is_its).then_some(client)
}

/// The last push of a pusher that a cut contains. All earlier pushes of the pusher are in the cut as well.
///
/// ```
/// # use gannet_core::{Cursor, PushName, Schema, Shards, Store, Write};
/// # use gannet_optim::{Add, Rule};
/// # let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// # let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// shards.set_cursor(&Cursor { pusher: 1, incarnation: 1, seq: 5, closed: false })?;
/// let resent = PushName { pusher: 1, incarnation: 1, seq: 5, row: 0 };
/// assert_eq!(shards.push(&resent, Write::Gradient, &[7], None, &[1.0])?.duplicate, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The pusher's number.
    pub pusher: u64,
    /// Its incarnation. Lower ones are fenced.
    pub incarnation: u64,
    /// The sequence number of the push; 0: none of this incarnation.
    pub seq: u64,
    /// The pusher will push no more.
    pub closed: bool,
}

impl Cursor {
    /// Whether shards need not remember this pusher, because they refuse all clients up to `forgotten` that they do not
    /// know ([`CLIENTS`]).
    pub fn is_forgotten(&self, forgotten: u64) -> bool {
        self.closed && client_of(self.pusher, self.incarnation).is_some_and(|client| client <= forgotten)
    }
}
