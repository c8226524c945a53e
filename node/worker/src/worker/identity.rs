//! How a worker finds a table at its servers, or makes it there. What each server holds decides, not the order in which
//! the servers are named. tables/identities.rs has the two phases in which a table is made.

use crate::error::WorkerError;
use crate::limits::PLACE_LOOKUP_EVERY;
use crate::worker::peer::Peer;
use crate::worker::reconnect::refused;
use crate::worker::tables::{ControlReply, ControlRequest, Recipients, ShardCount, TableId};
use crate::worker::{Worker, births};
use gannet_core::{Schema, ShardSet, TableUid};
use gannet_transport::Net;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::RefusedFrame;
use gannet_wire::frames::tables::{ConfirmFrame, IdentifyFrame, OpenTableFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{ConfirmV2, HeldV1, IdentifyV2, IdentityV1, OpenTableV2, TableOpenedV4};
use gannet_wire::messages::jobs::{ShardHolder, TableRecord};
use gannet_wire::partition::{PartitionMap, set_of};
use gannet_wire::refusal::Refusal;
use std::ops::Range;
use std::sync::Arc;

/// The identity of a table at its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedAs {
    uid: TableUid,
    /// For each server, in the order of the worker's addresses, which of the table's servers it is.
    places: Vec<u32>,
    /// For each shard, the random number that it got when it was made.
    births: Vec<u64>,
}

impl OpenedAs {
    /// The shards behind a link.
    pub(crate) fn shards<S>(&self, peer: &Peer<S>) -> ShardSet {
        let (place, shards) = (self.places[peer.server as usize], self.births.len() as u32);
        self.map().shards_of_thread(place, (peer.thread, peer.threads), shards)
    }

    /// The shards of a server.
    fn of_server(&self, server: usize) -> ShardSet {
        self.map().shards(self.places[server], self.births.len() as u32)
    }

    fn map(&self) -> PartitionMap {
        PartitionMap::of_job(self.places.len() as u32)
    }

    /// The request to open the table again, over another link.
    pub(crate) fn request(&self, schema: &Schema, server: u32) -> Vec<u8> {
        self.request_in(schema, server as usize, 0)
    }

    fn request_in(&self, schema: &Schema, server: usize, make_in: u64) -> Vec<u8> {
        let (place, servers) = (self.places[server], self.places.len() as u32);
        let (schema, uid) = (schema.encode(), self.uid.0);
        control::seal_as(2, &OpenTableV2 { schema, uid, server: place, servers, make_in })
    }

    /// Checks that the table that was opened again is the one that was there before.
    pub(crate) fn check<S>(
        &self,
        table: &str,
        peer: &Peer<S>,
        now: &TableOpenedV4,
    ) -> Result<(), WorkerError> {
        let Some(shards) = told(now, self.births.len()) else {
            let what = format!("shards {:?} with {} births", now.shards, now.births.len());
            return Err(WorkerError::Protocol { peer: peer.name.clone(), what });
        };
        let other = shards.iter().zip(&now.births);
        let gone = other.filter(|(shard, now)| self.births[*shard as usize] != **now).map(|(shard, _)| shard);
        match ShardSet::of(gone) {
            gone if gone.is_empty() => Ok(()),
            gone => Err(forgot(table, &peer.name, gone)),
        }
    }

    /// The error of a server that has lost the table.
    pub(crate) fn gone<S>(&self, table: &str, peer: &Peer<S>) -> WorkerError {
        forgot(table, &peer.name, self.of_server(peer.server as usize))
    }
}

/// The shards that a thread says it has, if it names a birth for each.
fn told(opened: &TableOpenedV4, shards: usize) -> Option<ShardSet> {
    set_of(&opened.shards, shards as u32).filter(|told| told.len() == opened.births.len())
}

fn forgot(table: &str, peer: &Arc<str>, shards: ShardSet) -> WorkerError {
    WorkerError::Forgot { peer: peer.clone(), table: table.to_owned(), shards: shards.to_string() }
}

/// The identity under which to open a table, from what the servers hold.
#[derive(Debug, PartialEq, Eq)]
struct TablePlan {
    /// `None`: no server has it.
    uid: Option<TableUid>,
    places: Vec<u32>,
    /// Servers, by their positions among the addresses, that hold nothing of it.
    empty: Vec<usize>,
    /// All servers had made their shards, so there may have been pushes.
    confirmed: bool,
}

/// Decides under which identity to open a table.
fn plan(schema: &Schema, addrs: &[String], held: &[Option<HeldV1>]) -> Result<TablePlan, WorkerError> {
    let places = places(&schema.name, addrs, held).map_err(WorkerError::Identity)?;
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
fn places(table: &str, addrs: &[String], held: &[Option<HeldV1>]) -> Result<Vec<u32>, String> {
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
fn are_of_two_tables(held: &[Option<HeldV1>]) -> bool {
    let mut ids = held.iter().flatten().map(|held| held.uid);
    let first = ids.next();
    ids.any(|id| Some(id) != first)
}

/// Says which rows are gone, if a server has nothing of a table that may have had pushes.
fn lost(schema: &Schema, addrs: &[String], plan: &TablePlan) -> Option<String> {
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

/// The links at one moment.
struct Links {
    layout: u64,
    epochs: Vec<u64>,
}

/// A table at its servers: its schema, its identity, and the answer of each link's thread.
pub(crate) type OpenedTable = (Schema, OpenedAs, Vec<(usize, TableOpenedV4)>);

/// The outcome of one attempt to open a table.
enum OpenAttempt {
    Opened(Box<OpenedTable>),
    /// Try again: what the servers hold has changed meanwhile. The text says why.
    Again(String),
}

impl<N: Net> Worker<N> {
    /// Opens a table at all servers, and makes it if no server has it.
    pub(crate) fn open_at_servers(
        &mut self,
        schema: &Schema,
        shards: ShardCount,
    ) -> Result<OpenedTable, WorkerError> {
        let begun = self.net.now();
        loop {
            let why = match self.try_to_open(schema, shards)? {
                OpenAttempt::Opened(opened) => return Ok(*opened),
                OpenAttempt::Again(why) => why,
            };
            let waited = self.net.now().saturating_sub(begun);
            if waited > self.config.peer_timeout {
                let (table, seconds) = (&schema.name, waited.as_secs_f64());
                return Err(WorkerError::Identity(format!(
                    "table {table:?} could not be opened in {seconds:.1} s (--peer-timeout): {why}"
                )));
            }
        }
    }

    fn try_to_open(&mut self, schema: &Schema, shards: ShardCount) -> Result<OpenAttempt, WorkerError> {
        let servers = self.config.servers.len();
        let before = self.links_as_they_are();
        let fronts: Vec<usize> = self.links_now().filter(|&n| self.peers[n].thread == 0).collect();
        let held = self.held_by_all(schema, &fronts)?;
        let incarnations: Vec<u64> =
            fronts.iter().map(|&front| self.peers[front].session.incarnation).collect();
        if let Some(why) = self.link_change(&before) {
            return Ok(OpenAttempt::Again(why));
        }
        if self.config.places.is_some() && are_of_two_tables(&held) {
            // A server of the generation before ends when it learns of the new one.
            self.pump(PLACE_LOOKUP_EVERY)?;
            let why = "its servers hold two tables: the job goes back to a checkpoint, and not all servers have done so: start \
                       those that have ended";
            return Ok(OpenAttempt::Again(why.into()));
        }
        let schema = &shards.of(schema, &held, self.links_now().count());
        let TablePlan { uid, places, empty, confirmed } = plan(schema, &self.config.servers, &held)?;
        let births = vec![0; schema.shards as usize];
        let mut opened = OpenedAs { uid: uid.unwrap_or(TableUid::NONE), places, births };
        let make_in = |server: usize| if empty.contains(&server) { incarnations[server] } else { 0 };
        if !empty.is_empty() && !confirmed {
            // One server after another, in an order that is the same for all workers, however they name the servers.
            // The worker that reaches a server first decides which of the table's servers it is. The others see that
            // before they reach the next. The first server draws the id, or has it. While it has not confirmed the
            // table, no worker has pushed before the other servers make their shards.
            // With a coordinator, their places are that order.
            let mut order: Vec<usize> = (0..servers).collect();
            let addr = |server: usize| self.config.places.is_none().then(|| &self.config.servers[server]);
            order.sort_by_key(|&server| (held[server].is_none(), addr(server)));
            for one in order {
                let request = opened.request_in(schema, one, make_in(one));
                let payload = |_: usize, _: u32| request.clone();
                let open = ControlRequest::with_payload(&OpenTableFrame {}, None, &payload);
                let answers = self.ask(&open, Recipients::Links(&fronts[one..one + 1]))?;
                match self.opened(&answers, 1)? {
                    Ok(first) if first.iter().all(|(_, first)| !first.confirmed) => {
                        opened.uid = first.first().map_or(opened.uid, |(_, first)| TableUid(first.uid));
                    }
                    Ok(_) => return Ok(OpenAttempt::Again("another worker was making it".into())),
                    Err(why) => return Ok(OpenAttempt::Again(why)),
                }
            }
        }
        let all: Vec<usize> = self.links_now().collect();
        let request = |_: usize, server: u32| {
            let server = server as usize;
            opened.request_in(schema, server, make_in(server))
        };
        let answers = self.ask(
            &ControlRequest::with_payload(&OpenTableFrame {}, None, &request),
            Recipients::Links(&all),
        )?;
        let answers = match self.opened(&answers, all.len())? {
            Ok(answers) => answers,
            Err(why) => return Ok(OpenAttempt::Again(why)),
        };
        // A server may have answered before it came back with other threads, or before another one took its place.
        if let Some(why) = self.link_change(&before) {
            return Ok(OpenAttempt::Again(why));
        }
        self.set_births(&mut opened, &answers)?;
        self.check_births(&schema.name, &opened, &answers)?;
        if let Some(why) = self.confirm(&opened, &answers)?.or_else(|| self.link_change(&before)) {
            return Ok(OpenAttempt::Again(why));
        }
        Ok(OpenAttempt::Opened(Box::new((schema.clone(), opened, answers))))
    }

    /// Says which link has been made again since. Answers from before may be those of another incarnation.
    fn link_change(&self, before: &Links) -> Option<String> {
        if self.layout != before.layout {
            return Some("a server came back with another number of threads".into());
        }
        let same = |peer: &Peer<_>, epoch: u64| peer.link.is_some() && peer.session.epoch == epoch;
        let mut links = self.links_now().map(|link| &self.peers[link]).zip(&before.epochs);
        let other = links.find(|&(peer, &epoch)| !same(peer, epoch));
        other.map(|(peer, _)| format!("the link to {} was made again meanwhile", peer.name))
    }

    /// The present links, for comparison with later ones.
    fn links_as_they_are(&self) -> Links {
        let epochs = self.links_now().map(|link| self.peers[link].session.epoch).collect();
        Links { layout: self.layout, epochs }
    }

    /// What each server holds of a table, as they answer one after another.
    fn held_by_all(&mut self, schema: &Schema, fronts: &[usize]) -> Result<Vec<Option<HeldV1>>, WorkerError> {
        let held = self.identify(schema, fronts)?;
        let is_partial = held.iter().any(Option::is_none) && held.iter().flatten().any(|held| held.confirmed);
        // The servers do not answer at one moment: another worker may have made the table between two answers. A
        // confirmed table is at all servers, so a server that still has nothing when it is asked again has lost it.
        if is_partial { self.identify(schema, fronts) } else { Ok(held) }
    }

    /// What each server holds of a table.
    fn identify(&mut self, schema: &Schema, fronts: &[usize]) -> Result<Vec<Option<HeldV1>>, WorkerError> {
        // With a coordinator each address is that of a place, and a server can have several places.
        let servers = if self.config.places.is_some() { self.config.servers.len() as u32 } else { 0 };
        let request = |_: usize, server: u32| {
            control::seal_as(2, &IdentifyV2 { table: schema.name.clone(), server, servers })
        };
        let answers = self.ask(
            &ControlRequest::with_payload(&IdentifyFrame {}, None, &request),
            Recipients::Links(fronts),
        )?;
        let held = answers.iter().map(|ControlReply { link, head, payload: answer }| {
            let peer = &self.peers[*link].name;
            if head.kind == RefusedFrame::KIND {
                return Err(refused(peer, IdentifyFrame::KIND, head, answer));
            }
            let nonsense = |error: control::ControlError| WorkerError::Protocol {
                peer: peer.clone(),
                what: error.to_string(),
            };
            control::open::<IdentityV1>(answer).map(|identity| identity.held).map_err(nonsense)
        });
        held.collect()
    }

    /// The answers to `expected` requests to open; or why to request them again.
    #[allow(clippy::type_complexity)]
    fn opened(
        &self,
        answers: &[ControlReply],
        expected: usize,
    ) -> Result<Result<Vec<(usize, TableOpenedV4)>, String>, WorkerError> {
        if answers.len() < expected {
            return Ok(Err("a server came back with another number of threads".into()));
        }
        let mut all = Vec::new();
        for ControlReply { link, head, payload: answer } in answers {
            let peer = &self.peers[*link].name;
            match head.kind {
                RefusedFrame::KIND => match refused(peer, OpenTableFrame::KIND, head, answer) {
                    error @ WorkerError::Refused { refusal: Refusal::Identity, .. } => {
                        return Ok(Err(error.to_string()));
                    }
                    error => return Err(error),
                },
                _ => {
                    let opened = control::open_as::<TableOpenedV4>(4, answer);
                    let nonsense = |error: control::ControlError| WorkerError::Protocol {
                        peer: peer.clone(),
                        what: error.to_string(),
                    };
                    all.push((*link, opened.map_err(nonsense)?));
                }
            }
        }
        Ok(Ok(all))
    }

    /// Stores the birth numbers of all shards.
    fn set_births(
        &self,
        opened: &mut OpenedAs,
        answers: &[(usize, TableOpenedV4)],
    ) -> Result<(), WorkerError> {
        for (link, answer) in answers {
            let peer = &self.peers[*link];
            let (want, shards) = (opened.shards(peer), told(answer, opened.births.len()));
            if shards.as_ref() != Some(&want) || answer.uid != opened.uid.0 {
                let (shards, births) = (&answer.shards, answer.births.len());
                let what = format!("shards {shards:?} with {births} births, not {want}, or another table id");
                return Err(WorkerError::Protocol { peer: peer.name.clone(), what });
            }
            for (shard, birth) in want.iter().zip(&answer.births) {
                opened.births[shard as usize] = *birth;
            }
        }
        Ok(())
    }

    /// Refuses servers of which some went on, and others restored the same checkpoint once more.
    fn check_births(
        &self,
        table: &str,
        opened: &OpenedAs,
        answers: &[(usize, TableOpenedV4)],
    ) -> Result<(), WorkerError> {
        let server = |link: usize| self.peers[link].server as usize;
        let told: Vec<_> = answers.iter().map(|(link, answer)| (server(*link), answer.all_births)).collect();
        let (all_births, own) = (births::in_one(&opened.births), |server| opened.of_server(server));
        births::must_be_together(table, &self.config.servers, all_births, &told, own)
    }

    /// Tells the servers that do not know it that all servers have made their shards. Returns why to try again, if that
    /// failed.
    fn confirm(
        &mut self,
        opened: &OpenedAs,
        answers: &[(usize, TableOpenedV4)],
    ) -> Result<Option<String>, WorkerError> {
        let all_births = births::in_one(&opened.births);
        let open = answers.iter().filter(|(_, answer)| !answer.confirmed || answer.all_births == 0);
        let (links, tables): (Vec<usize>, Vec<u32>) =
            open.map(|(link, answer)| (*link, answer.table)).unzip();
        let request = |nth: usize, _: u32| {
            control::seal_as(2, &ConfirmV2 { table: tables[nth], uid: opened.uid.0, all_births })
        };
        // If a server came back with other threads there are no answers; the caller checks the links.
        let answers = self.ask(
            &ControlRequest::with_payload(&ConfirmFrame {}, None, &request),
            Recipients::Links(&links),
        )?;
        let refusal = answers.iter().find(|answer| answer.head.kind == RefusedFrame::KIND);
        // The server has restarted: ask again what it holds.
        Ok(refusal.map(|ControlReply { link, head, payload }| {
            refused(&self.peers[*link].name, ConfirmFrame::KIND, head, payload).to_string()
        }))
    }

    /// What the rows of a table are and where, for the scheduler: it tells the worker's next incarnation whether they
    /// are the same.
    ///
    /// # Panics
    /// When the table is another worker's.
    pub fn table_record(&self, table: TableId) -> TableRecord {
        let table = &self.tables[table.0];
        let opened = &table.opened;
        let holders = self.config.servers.iter().enumerate().flat_map(|(server, addr)| {
            let holder = |run: Range<u32>| ShardHolder { addr: addr.clone(), first: run.start, end: run.end };
            opened.of_server(server).runs().into_iter().map(holder).collect::<Vec<_>>()
        });
        TableRecord {
            table: table.schema.name.clone(),
            uid: opened.uid.0,
            births: opened.births.clone(),
            holders: holders.collect(),
        }
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
        let plan = plan(&schema, &addrs(held.len()), held);
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
