//! Under which identity to open a table: what each server holds decides.

use crate::error::WorkerError;
use gannet_core::{Schema, ShardSet, TableUid};
use gannet_wire::messages::control::HeldV1;
use gannet_wire::partition::{PartitionMap, shards_for_threads};

/// The identity under which to open a table, from what the servers hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TablePlan {
    /// `None`: no server has it.
    pub(crate) uid: Option<TableUid>,
    pub(crate) places: Vec<u32>,
    /// Servers, by their positions among the addresses, that hold nothing of it.
    pub(crate) empty: Vec<usize>,
    /// All servers had made their shards, so there may have been pushes.
    pub(crate) confirmed: bool,
}

/// Decides under which identity to open a table.
pub(crate) fn plan_table(
    schema: &Schema,
    addrs: &[String],
    held: &[Option<HeldV1>],
) -> Result<TablePlan, WorkerError> {
    let places = places_by_tables(&schema.name, addrs, held).map_err(WorkerError::Identity)?;
    let uid = held.iter().flatten().next().map(|held| TableUid(held.uid));
    let confirmed = held.iter().flatten().any(|held| held.confirmed);
    let empty = (0..addrs.len()).filter(|&at| held[at].is_none()).collect();
    let plan = TablePlan { uid, places, empty, confirmed };
    match lost(schema, addrs, &plan) {
        Some(why) => Err(WorkerError::Gone(why)),
        None => Ok(plan),
    }
}

/// Which of the table's servers each server is. An error says what does not fit, and where.
pub(crate) fn places_by_tables(
    table: &str,
    addrs: &[String],
    held: &[Option<HeldV1>],
) -> Result<Vec<u32>, String> {
    let servers = addrs.len() as u32;
    let mut places: Vec<Option<u32>> = vec![None; addrs.len()];
    let mut first: Option<(usize, &HeldV1)> = None;
    for (at, held) in held.iter().enumerate().filter_map(|(at, held)| Some((at, held.as_ref()?))) {
        let addr = &addrs[at];
        if held.uid == TableUid::NONE.0 || held.server >= held.servers {
            return Err(format!(
                "table {table:?}: what {addr} holds was made without a table id, by a program that shares it with nobody: give \
                 the server another --data-dir"
            ));
        }
        if held.servers != servers {
            let made = match held.servers {
                1 => "1 server".to_owned(),
                made => format!("{made} servers"),
            };
            return Err(format!(
                "table {table:?} was made by {made}, as {addr} says, and {servers} are given: name those that made it in \
                 --ps-hosts, in any order, or begin anew with other folders (--data-dir)"
            ));
        }
        let (one, id) = first.map_or((addr, held.uid), |(one, held)| (&addrs[one], held.uid));
        if id != held.uid {
            let (id, other) = (TableUid(id), TableUid(held.uid));
            return Err(format!(
                "table {table:?}: {one} holds the table with id {id}, {addr} the table with id {other}: these are two tables; name the \
                 servers of one of them in --ps-hosts"
            ));
        }
        if let Some(twin) = places.iter().position(|place| *place == Some(held.server)) {
            let twin = &addrs[twin];
            return Err(format!(
                "table {table:?}: {twin} and {addr} both hold the part of server {} of {servers}: one is a copy, or one server \
                 is named twice; name each of the {servers} once",
                held.server
            ));
        }
        places[at] = Some(held.server);
        first.get_or_insert((at, held));
    }
    // A server that holds nothing takes its position among the addresses, if that is free.
    let mut free: Vec<u32> = (0..servers).filter(|place| !places.contains(&Some(*place))).collect();
    let place = |(at, place): (usize, Option<u32>)| {
        place.unwrap_or_else(|| free.remove(free.iter().position(|&own| own as usize == at).unwrap_or(0)))
    };
    Ok(places.into_iter().enumerate().map(place).collect())
}

/// Whether servers hold tables with different ids.
pub(crate) fn are_of_two_tables(held: &[Option<HeldV1>]) -> bool {
    let mut ids = held.iter().flatten().map(|held| held.uid);
    let first = ids.next();
    ids.any(|id| Some(id) != first)
}

/// Says which rows are gone, if a server has nothing of a table that may have had pushes.
pub(crate) fn lost(schema: &Schema, addrs: &[String], plan: &TablePlan) -> Option<String> {
    let map = PartitionMap::of_job(addrs.len() as u32);
    let own = |at: usize| map.shards(plan.places[at], schema.shards);
    let empty = || plan.empty.iter().filter(|_| plan.confirmed);
    let shards = ShardSet::of(empty().flat_map(|&at| own(at).iter().collect::<Vec<_>>()));
    if shards.is_empty() {
        return None;
    }
    let addrs: Vec<_> = empty().map(|&at| addrs[at].as_str()).collect();
    Some(format!(
        "table {:?}: the rows of {shards} are gone: {} has nothing of this table, which other servers have; start it on the folder \
         that it had (--data-dir), or begin anew with the table's folders of all servers moved away",
        schema.name,
        addrs.join(", ")
    ))
}

/// Who decides how many shards a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShardCount {
    /// The schema.
    Given,
    /// The servers: those that an existing table has, or as many as their threads use.
    Served,
    /// The schema, and a table that a server has nothing of is not made.
    Held,
}

impl ShardCount {
    /// The schema of a table, if this is what the servers hold of it, and they have so many threads. If the table has
    /// more shards than were asked for, its servers refuse that, and say so.
    pub(crate) fn of(self, schema: &Schema, held: &[Option<HeldV1>], threads: usize) -> Schema {
        let known = held.iter().flatten().map(|held| held.shards).next();
        let shards = match self {
            ShardCount::Given | ShardCount::Held => schema.shards,
            ShardCount::Served => known.unwrap_or_else(|| shards_for_threads(threads)).min(schema.shards),
        };
        Schema { shards, ..schema.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_optim::{Add, Rule};

    fn addrs(n: usize) -> Vec<String> {
        (0..n).map(|at| format!("h{at}:1")).collect()
    }

    fn held(uid: u8, server: u32, servers: u32, confirmed: bool) -> Option<HeldV1> {
        Some(HeldV1 { uid: [uid; 16], server, servers, shards: 8, confirmed })
    }

    fn decide(held: &[Option<HeldV1>]) -> Result<(Vec<u32>, Vec<usize>), String> {
        let schema = Schema { shards: 8, ..Schema::scalar("t", Rule::Add(Add)) };
        let plan = plan_table(&schema, &addrs(held.len()), held);
        plan.map(|plan| (plan.places, plan.empty)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_servers_hold_decides_and_not_the_order_of_hosts() {
        assert_eq!(decide(&[None, None]), Ok((vec![0, 1], vec![0, 1])));
        let both = [held(1, 1, 2, true), held(1, 0, 2, true)];
        assert_eq!(decide(&both), Ok((vec![1, 0], vec![])));
        // An interrupted creation goes on: a server with nothing takes a free position, its own if it can.
        let interrupted = [None, held(1, 0, 3, false), None];
        assert_eq!(decide(&interrupted), Ok((vec![1, 0, 2], vec![0, 2])));
        // Between the confirmations.
        let half = [held(1, 0, 2, true), held(1, 1, 2, false)];
        assert_eq!(decide(&half), Ok((vec![0, 1], vec![])));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let gone = decide(&[None, held(1, 1, 3, false), held(1, 0, 3, true)]).unwrap_err();
        assert!(gone.contains("shards 5 to 7") && gone.contains("h0:1") && gone.contains("gone"), "{gone}");
        let two = decide(&[held(1, 0, 2, true), held(2, 1, 2, true)]).unwrap_err();
        assert!(two.contains("two tables") && two.contains("h0:1") && two.contains("h1:1"), "{two}");
        let number = decide(&[held(1, 0, 2, true), held(1, 1, 2, true), None]).unwrap_err();
        assert!(number.contains("made by 2 servers") && number.contains("3 are given"), "{number}");
        let twins = decide(&[held(1, 1, 2, true), held(1, 1, 2, true)]).unwrap_err();
        assert!(twins.contains("server 1 of 2") && twins.contains("copy"), "{twins}");
        let other = decide(&[held(0, 0, 1, true)]).unwrap_err();
        assert!(other.contains("without a table id"), "{other}");
    }
}
