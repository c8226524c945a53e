//! Fences that some threads have and others lack. Whoever fenced the pusher died meanwhile, or lost a server. The
//! shards of the other threads would still apply what is left of its push, behind the cut.

use gannet_core::{CLIENTS, DATA_PUSHERS, is_client};
use gannet_wire::messages::cuts::{CutPushV1, CutPusherV1, CutReplyV1};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A table's name, and a pusher.
type TablePusher<'a> = (&'a str, u64);

/// The pushers that some threads have fenced and others not, as all threads say.
pub(crate) fn half_fenced(replies: &[CutReplyV1]) -> BTreeSet<CutPusherV1> {
    let mut fences = BTreeMap::<TablePusher<'_>, u64>::new();
    for (name, push) in replies.iter().flat_map(pushes_by_table).filter(|(_, push)| is_fence(push)) {
        let fence = fences.entry((name, push.pusher)).or_default();
        *fence = push.incarnation.max(*fence);
    }
    if fences.is_empty() {
        return BTreeSet::new();
    }
    let lacks = |reply| lacking_fences(reply, &fences);
    replies.iter().flat_map(lacks).collect()
}

/// What a thread says of each pusher, with the name of the table.
fn pushes_by_table(reply: &CutReplyV1) -> impl Iterator<Item = (&str, &CutPushV1)> {
    let (tables, pushes) = match reply {
        CutReplyV1::Frozen { tables, pushes, .. } => (&tables[..], &pushes[..]),
        _ => (&[][..], &[][..]),
    };
    pushes.iter().filter_map(|push| Some((&*tables.get(push.table as usize)?.name, push)))
}

/// Whether this is all that a fence leaves of a worker. Entry [`CLIENTS`] is about clients that are forgotten.
fn is_fence(push: &CutPushV1) -> bool {
    let no_push = (push.seq, push.done, push.total) == (0, 0, 0);
    no_push && push.incarnation > 0 && push.pusher < DATA_PUSHERS && push.pusher != CLIENTS
}

/// The fenced pushers that a thread with shards of the table has not fenced.
fn lacking_fences<'a>(reply: &'a CutReplyV1, fences: &BTreeMap<TablePusher<'a>, u64>) -> Vec<CutPusherV1> {
    let CutReplyV1::Frozen { tables, .. } = reply else { return Vec::new() };
    // A thread without shards of a table does not know its id.
    let own: BTreeSet<&str> =
        tables.iter().filter(|table| table.uid != [0; 16]).map(|table| &*table.name).collect();
    let known: HashMap<TablePusher<'a>, u64> =
        pushes_by_table(reply).map(|(name, push)| ((name, push.pusher), push.incarnation)).collect();
    let incarnation = |of: TablePusher<'a>| known.get(&of).copied().unwrap_or(0);
    let lacks = |(&(name, pusher), &fence): (&TablePusher<'a>, &u64)| {
        let start = fence - 1;
        // A thread refuses clients that it has forgotten.
        let is_forgotten = is_client(pusher, start) && incarnation((name, CLIENTS)) >= start;
        let has = incarnation((name, pusher)) >= fence || is_forgotten;
        (own.contains(name) && !has).then_some(CutPusherV1 { pusher, incarnation: start })
    };
    fences.iter().filter_map(lacks).collect()
}
