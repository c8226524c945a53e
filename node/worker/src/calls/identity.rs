//! How a worker finds a table at its servers, or makes it there. What each server holds decides, not the order in which
//! the servers are named. tables/identities.rs has the two phases in which a table is made.

use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::limits::PLACE_LOOKUP_EVERY;
use crate::links::peer::Peer;
use crate::links::refused::refusal_error;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::requests::names::TableId;
use crate::tables::births;
use crate::tables::opened_as::{OpenedAs, told};
use crate::tables::plan::{ShardCount, TablePlan, are_of_two_tables, plan_table};
use crate::worker::Worker;
use gannet_core::{Eviction, Schema, TableUid};
use gannet_transport::Net;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::session::RefusedFrame;
use gannet_wire::frames::tables::{ConfirmFrame, IdentifyFrame, OpenTableFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{ConfirmV2, HeldV1, IdentifyV2, IdentityV1, TableOpenedV4};
use gannet_wire::messages::jobs::{ShardHolder, TableRecord};
use gannet_wire::refusal::Refusal;
use std::ops::Range;

/// The links at one moment.
struct LinkEpochs {
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
    /// What the rows of a table are and where, for the scheduler: it tells the worker's next incarnation whether they
    /// are the same.
    ///
    /// # Panics
    /// When the table is another worker's.
    pub fn table_record(&self, table: TableId) -> TableRecord {
        let table = &self.tables[table.0];
        let opened = &table.opened;
        let holders = self.links.config.servers.iter().enumerate().flat_map(|(server, addr)| {
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

/// Opens a table at all servers, and makes it if no server has it.
pub(crate) fn open_at_servers<N: Net>(
    worker: &mut Worker<N>,
    schema: &Schema,
    shards: ShardCount,
    eviction: Option<&Eviction>,
) -> Result<OpenedTable, WorkerError> {
    let begun = worker.links.net.now();
    loop {
        let why = match try_to_open(worker, schema, shards, eviction)? {
            OpenAttempt::Opened(opened) => return Ok(*opened),
            OpenAttempt::Again(why) => why,
        };
        let waited = worker.links.net.now().saturating_sub(begun);
        if waited > worker.links.config.peer_timeout {
            let (table, seconds) = (&schema.name, waited.as_secs_f64());
            return Err(WorkerError::Identity(format!(
                "table {table:?} could not be opened in {seconds:.1} s (--peer-timeout): {why}"
            )));
        }
    }
}

fn try_to_open<N: Net>(
    worker: &mut Worker<N>,
    schema: &Schema,
    shards: ShardCount,
    eviction: Option<&Eviction>,
) -> Result<OpenAttempt, WorkerError> {
    let before = links_as_they_are(worker);
    let fronts: Vec<usize> = worker.links.wanted().filter(|&n| worker.links.peers[n].thread == 0).collect();
    let held = held_by_all(worker, schema, &fronts)?;
    let incarnations: Vec<u64> =
        fronts.iter().map(|&front| worker.links.peers[front].session.incarnation).collect();
    if let Some(why) = link_change(worker, &before) {
        return Ok(OpenAttempt::Again(why));
    }
    if worker.links.config.places.is_some() && are_of_two_tables(&held) {
        // A server of the generation before ends when it learns of the new one.
        worker.pump(PLACE_LOOKUP_EVERY)?;
        let why = "its servers hold two tables: the job goes back to a checkpoint, and not all servers have done so: start \
                   those that have ended";
        return Ok(OpenAttempt::Again(why.into()));
    }
    let schema = &shards.of(schema, &held, worker.links.wanted().count());
    let TablePlan { uid, places, empty, confirmed } =
        plan_table(schema, &worker.links.config.servers, &held)?;
    if shards == ShardCount::Held
        && let Some(&server) = empty.first()
    {
        let (table, addr) = (&schema.name, &worker.links.config.servers[server]);
        return Err(WorkerError::Gone(format!("{addr} has nothing of table {table:?}")));
    }
    let births = vec![0; schema.shards as usize];
    let mut opened = OpenedAs { uid: uid.unwrap_or(TableUid::NONE), places, births };
    let make_in = |server: usize| if empty.contains(&server) { incarnations[server] } else { 0 };
    if !empty.is_empty() && !confirmed {
        let order = making_order(&worker.links.config, &held);
        if let Some(why) = make_in_turn(worker, schema, &mut opened, &fronts, (order, &make_in))? {
            return Ok(OpenAttempt::Again(why));
        }
    }
    let all: Vec<usize> = worker.links.wanted().collect();
    let request = |_: usize, server: u32| {
        let server = server as usize;
        opened.request_in(schema, server, make_in(server))
    };
    let open = OpenTableFrame::evicting(eviction);
    let answers =
        worker.ask(&ControlRequest::with_payload(&open, None, &request), Recipients::Links(&all))?;
    let answers = match opened_by(worker, &answers, all.len())? {
        Ok(answers) => answers,
        Err(why) => return Ok(OpenAttempt::Again(why)),
    };
    // A server may have answered before it came back with other threads, or before another one took its place.
    if let Some(why) = link_change(worker, &before) {
        return Ok(OpenAttempt::Again(why));
    }
    set_births(worker, &mut opened, &answers)?;
    check_births(worker, &schema.name, &opened, &answers)?;
    if let Some(why) = confirm(worker, &opened, &answers)?.or_else(|| link_change(worker, &before)) {
        return Ok(OpenAttempt::Again(why));
    }
    Ok(OpenAttempt::Opened(Box::new((schema.clone(), opened, answers))))
}

/// The order in which all workers make a table at its servers, however they name the servers. With a coordinator it is
/// the order of their places. A server that has something of the table comes first.
fn making_order(config: &WorkerConfig, held: &[Option<HeldV1>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..config.servers.len()).collect();
    let addr = |server: usize| config.places.is_none().then(|| &config.servers[server]);
    order.sort_by_key(|&server| (held[server].is_none(), addr(server)));
    order
}

/// Makes a table at one server after another. The worker that reaches a server first decides which of the table's
/// servers it is. The others see that before they reach the next. The first server draws the id, or has it. While it
/// has not confirmed the table, no worker has pushed before the other servers make their shards. Returns why to try
/// again, if another worker makes it.
fn make_in_turn<N: Net>(
    worker: &mut Worker<N>,
    schema: &Schema,
    opened: &mut OpenedAs,
    fronts: &[usize],
    (order, make_in): (Vec<usize>, impl Fn(usize) -> u64),
) -> Result<Option<String>, WorkerError> {
    for one in order {
        let request = opened.request_in(schema, one, make_in(one));
        let payload = |_: usize, _: u32| request.clone();
        let open = OpenTableFrame::default();
        let open = ControlRequest::with_payload(&open, None, &payload);
        let answers = worker.ask(&open, Recipients::Links(&fronts[one..one + 1]))?;
        match opened_by(worker, &answers, 1)? {
            Ok(first) if first.iter().all(|(_, first)| !first.confirmed) => {
                opened.uid = first.first().map_or(opened.uid, |(_, first)| TableUid(first.uid));
            }
            Ok(_) => return Ok(Some("another worker was making it".into())),
            Err(why) => return Ok(Some(why)),
        }
    }
    Ok(None)
}

/// Says which link has been made again since. Answers from before may be those of another incarnation.
fn link_change<N: Net>(worker: &Worker<N>, before: &LinkEpochs) -> Option<String> {
    if worker.links.layout != before.layout {
        return Some("a server came back with another number of threads".into());
    }
    let same = |peer: &Peer<_>, epoch: u64| peer.link.is_some() && peer.session.epoch == epoch;
    let mut links = worker.links.wanted().map(|link| &worker.links.peers[link]).zip(&before.epochs);
    let other = links.find(|&(peer, &epoch)| !same(peer, epoch));
    other.map(|(peer, _)| format!("the link to {} was made again meanwhile", peer.name))
}

/// The present links, for comparison with later ones.
fn links_as_they_are<N: Net>(worker: &Worker<N>) -> LinkEpochs {
    let epochs = worker.links.wanted().map(|link| worker.links.peers[link].session.epoch).collect();
    LinkEpochs { layout: worker.links.layout, epochs }
}

/// What each server holds of a table, as they answer one after another.
fn held_by_all<N: Net>(
    worker: &mut Worker<N>,
    schema: &Schema,
    fronts: &[usize],
) -> Result<Vec<Option<HeldV1>>, WorkerError> {
    let held = identify(worker, schema, fronts)?;
    let is_partial = held.iter().any(Option::is_none) && held.iter().flatten().any(|held| held.confirmed);
    // The servers do not answer at one moment: another worker may have made the table between two answers. A
    // confirmed table is at all servers, so a server that still has nothing when it is asked again has lost it.
    if is_partial { identify(worker, schema, fronts) } else { Ok(held) }
}

/// What each server holds of a table.
fn identify<N: Net>(
    worker: &mut Worker<N>,
    schema: &Schema,
    fronts: &[usize],
) -> Result<Vec<Option<HeldV1>>, WorkerError> {
    // With a coordinator each address is that of a place, and a server can have several places.
    let servers =
        if worker.links.config.places.is_some() { worker.links.config.servers.len() as u32 } else { 0 };
    let request = |_: usize, server: u32| {
        control::seal_as(2, &IdentifyV2 { table: schema.name.clone(), server, servers })
    };
    let answers = worker
        .ask(&ControlRequest::with_payload(&IdentifyFrame {}, None, &request), Recipients::Links(fronts))?;
    let held = answers.iter().map(|ControlReply { link, head, payload: answer, .. }| {
        let peer = &worker.links.peers[*link].name;
        if head.kind == RefusedFrame::KIND {
            return Err(refusal_error(peer, IdentifyFrame::KIND, head, answer));
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
fn opened_by<N: Net>(
    worker: &Worker<N>,
    answers: &[ControlReply],
    expected: usize,
) -> Result<Result<Vec<(usize, TableOpenedV4)>, String>, WorkerError> {
    if answers.len() < expected {
        return Ok(Err("a server came back with another number of threads".into()));
    }
    let mut all = Vec::new();
    for ControlReply { link, head, payload: answer, .. } in answers {
        let peer = &worker.links.peers[*link].name;
        match head.kind {
            RefusedFrame::KIND => match refusal_error(peer, OpenTableFrame::KIND, head, answer) {
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
fn set_births<N: Net>(
    worker: &Worker<N>,
    opened: &mut OpenedAs,
    answers: &[(usize, TableOpenedV4)],
) -> Result<(), WorkerError> {
    for (link, answer) in answers {
        let peer = &worker.links.peers[*link];
        let (want, shards) = (opened.shards(peer.thread()), told(answer, opened.births.len()));
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
fn check_births<N: Net>(
    worker: &Worker<N>,
    table: &str,
    opened: &OpenedAs,
    answers: &[(usize, TableOpenedV4)],
) -> Result<(), WorkerError> {
    let server = |link: usize| worker.links.peers[link].server as usize;
    let told: Vec<_> = answers.iter().map(|(link, answer)| (server(*link), answer.all_births)).collect();
    let (all_births, own) = (births::in_one(&opened.births), |server| opened.of_server(server));
    births::must_be_together(table, &worker.links.config.servers, all_births, &told, own)
}

/// Tells the servers that do not know it that all servers have made their shards. Returns why to try again, if that
/// failed.
fn confirm<N: Net>(
    worker: &mut Worker<N>,
    opened: &OpenedAs,
    answers: &[(usize, TableOpenedV4)],
) -> Result<Option<String>, WorkerError> {
    let all_births = births::in_one(&opened.births);
    let open = answers.iter().filter(|(_, answer)| !answer.confirmed || answer.all_births == 0);
    let (links, tables): (Vec<usize>, Vec<u32>) = open.map(|(link, answer)| (*link, answer.table)).unzip();
    let request = |nth: usize, _: u32| {
        control::seal_as(2, &ConfirmV2 { table: tables[nth], uid: opened.uid.0, all_births })
    };
    // If a server came back with other threads there are no answers; the caller checks the links.
    let answers = worker
        .ask(&ControlRequest::with_payload(&ConfirmFrame {}, None, &request), Recipients::Links(&links))?;
    let refusal = answers.iter().find(|answer| answer.head.kind == RefusedFrame::KIND);
    // The server has restarted: ask again what it holds.
    Ok(refusal.map(|ControlReply { link, head, payload, .. }| {
        refusal_error(&worker.links.peers[*link].name, ConfirmFrame::KIND, head, payload).to_string()
    }))
}
