//! The tables of one server thread, and the rare requests about them.

use crate::steps::group::numbered;
use crate::counters::server::ServerCounters;
use crate::counters::table::TableCounters;
use crate::cuts::cut_writer::CutExecutor;
use crate::cuts::protocol::Cuts;
use crate::membership::standing::{OwnPlaces, Standing};
use crate::replication::Replication;
use crate::replication::states::StateCopies;
use crate::requests::bulk::{Pusher, RequestFailure, RequestOutcome, refuse};
use crate::requests::copies::Copies;
use crate::steps::group::{Group, is_data};
use crate::steps::step_budget::StepBudget;
use crate::steps::step_files::{RecoveredSteps, StepFiles};
use crate::steps::{former_step_files, step_files};
use crate::tables::identities;
use crate::tables::identities::{Identities, IdentityClaim, to_begin_anew};
use crate::tables::regions::Regions;
use crate::tables::table_list::TableList;
use gannet_core::{DATA_PUSHERS, PusherStatus, Schema, ShardSet, Shards, Store, TableIdentity, TableUid};
use gannet_jobs::failure_detector::FailureDetector;
use gannet_transport::{Frame, Full, Registrar, Transmit};
use gannet_wire::coordinator::Coordinator;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::tables::{
    ClosePusherFrame, ConfirmFrame, ConfirmedFrame, DropTableFrame, OpenTableFrame, PusherClosedFrame,
    StatusFrame, StatusIsFrame, TableDroppedFrame, TableOpenedFrame,
};
use gannet_wire::limits::STATUS_PUSHERS_MAX;
use gannet_wire::log_limiter::LogLimiter;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{
    ConfirmV2, DropTableV1, OpenTableV2, PusherV1, RestoredShareV1, StatusV2, TableOpenedV4,
};
use gannet_wire::partition::{Partitioning, runs};
use gannet_wire::refusal::{REPLACED, Refusal};
use gannet_wire::share_pushers::{AGGREGATE, is_share};
use std::sync::Arc;
use std::time::Duration;

const NO_TABLES: &str = "this is a scheduler, which has no tables: name the servers in --ps-hosts";

/// A thread's part of a table.
pub(crate) struct ServerTable {
    pub(crate) schema: Schema,
    /// The table's id, and which of its servers this server is.
    identity: TableIdentity,
    /// The shards of this thread.
    own: ShardSet,
    /// The memory that peers may READ. Declared before the shards, so it is dropped before them.
    pub(crate) regions: Regions,
    /// `None` if this thread owns no shard of the table.
    pub(crate) shards: Option<Shards>,
    /// The workers that keep step over the table.
    pub(crate) group: Option<Group>,
    /// The steps that were recovered when the images were opened.
    pub(crate) recovered: RecoveredSteps,
    /// The files that hold a step while it is applied.
    pub(crate) step_files: Option<StepFiles>,
    pub(crate) counters: Arc<TableCounters>,
}

impl ServerTable {
    /// The table's id, and which of its servers this server is.
    pub(crate) fn identity(&self) -> TableIdentity {
        self.identity
    }

    /// Updates the gauges of the table's size.
    fn publish(&self) {
        if let Some(shards) = &self.shards {
            self.counters.note(shards);
        }
    }
}

/// All tables of a thread.
pub(crate) struct ServerTables {
    pub(crate) all: TableList,
    /// Makes memory readable for peers, if a transport can.
    pub(crate) registrar: Option<Arc<dyn Registrar>>,
    /// Something that a request waits for may have happened.
    pub(crate) group_changed: bool,
    /// A push waits for memory of the step budget.
    pub(crate) memory_short: bool,
    /// The memory for pushes that wait for their synchronous step.
    pub(crate) step_budget: Option<Arc<StepBudget>>,
    /// The cut of this thread.
    pub(crate) cuts: Cuts,
    /// Where checkpoints are written.
    pub(crate) checkpoints: Option<gannet_core::CheckpointDir>,
    /// Where their files are written.
    pub(crate) executor: CutExecutor,
    /// Sessions to end, each as (table, pusher, the highest fenced incarnation).
    pub(crate) fenced: Vec<(u32, u64, u64)>,
    /// Sessions to end: their worker keeps step over another session now.
    pub(crate) displaced: Vec<u32>,
    /// Tells the commands of the shards here to backups. `None`: there are no backups.
    pub(crate) replication: Option<Replication>,
    /// The places that this server owns.
    pub(crate) places: OwnPlaces,
    /// What the membership has decided. `None`: there is no coordinator.
    pub(crate) standing: Option<Arc<Standing>>,
    /// Copies of the shards of other servers.
    pub(crate) copies: Vec<Copies>,
    /// States of another server that are not rows.
    pub(crate) state_copies: Option<StateCopies>,
    /// The coordinator that is asked here.
    pub(crate) coordinator: Option<Arc<dyn Coordinator>>,
    /// The server is only a scheduler and has no tables.
    pub(crate) scheduler_only: bool,
    pub(crate) log_limiter: LogLimiter,
    /// Says which workers are alive.
    pub(crate) detector: FailureDetector,
    /// This incarnation of the server. It opens every image once. Row versions are compared only within one
    /// incarnation.
    pub(crate) incarnation: u64,
    /// The identities of the tables, shared by all threads of the server.
    pub(crate) identities: Arc<Identities>,
    store: Store,
    pub(crate) partitioning: Partitioning,
    pub(crate) thread: u32,
    threads: u32,
    pub(crate) counters: Arc<ServerCounters>,
}

impl ServerTables {
    pub(crate) fn new(
        store: Store,
        identities: Arc<Identities>,
        thread: u32,
        counters: Arc<ServerCounters>,
    ) -> ServerTables {
        let threads = counters.threads.len() as u32;
        ServerTables {
            all: TableList::default(),
            registrar: None,
            group_changed: false,
            memory_short: false,
            step_budget: None,
            cuts: Cuts::default(),
            checkpoints: None,
            executor: CutExecutor::default(),
            fenced: Vec::new(),
            displaced: Vec::new(),
            replication: None,
            places: OwnPlaces::default(),
            standing: None,
            copies: Vec::new(),
            state_copies: None,
            coordinator: None,
            scheduler_only: false,
            log_limiter: LogLimiter::default(),
            detector: FailureDetector::default(),
            incarnation: 0,
            identities,
            store,
            partitioning: Partitioning::here(),
            thread,
            threads,
            counters,
        }
    }

    /// Which thread of the server this is.
    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// Whether this thread should log a refusal.
    pub(crate) fn is_news(&self, why: &str, now: Duration) -> bool {
        self.identities.is_news(why, now)
    }

    /// Where the images are stored.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Opens a table, or finds it already open with the same schema.
    pub(crate) fn open(&mut self, schema: Schema, claim: IdentityClaim) -> Result<usize, RequestFailure> {
        if self.scheduler_only {
            return refuse(Refusal::Mismatch, NO_TABLES);
        }
        let is_it = |(_, table): &(usize, &ServerTable)| {
            table.schema.name == schema.name && self.identities.is_about(claim.identity, table.identity)
        };
        let position = self.all.numbered().find(is_it).map(|(number, _)| number);
        if let Some(known) = position {
            let table = &self.all[known];
            if table.schema != schema {
                let text = format!(
                    "table {:?} is open with another schema: {}; give every worker the same flags; to start again, {}",
                    schema.name,
                    table.schema.differences(&schema),
                    to_begin_anew(&self.store)
                );
                return refuse(Refusal::Mismatch, text);
            }
        } else if self.all.lacks_room_for(1) {
            return refuse(Refusal::Limit, identities::too_many_tables());
        }
        let identity = self.identities.claim(&schema, claim)?.identity;
        if let Some(known) = position {
            return Ok(known);
        }
        let TableIdentity { server, servers, .. } = identity;
        let own = self.own_part(server, servers, schema.shards);
        let origin = self.identities.origin(identity);
        let shards = match own.is_empty() {
            true => None,
            false => {
                match Shards::open_as(&self.identities.store_of(identity), &schema, own.clone(), &origin) {
                    Ok(shards) => Some(shards),
                    Err(error) => {
                        self.identities.note_opened(&schema.name, identity, false);
                        return refuse(Refusal::Images, error.to_string());
                    }
                }
            }
        };
        self.identities.note_opened(&schema.name, identity, true);
        self.add_table(schema, identity, shards, true)
    }

    /// Adds a table of which this thread has these shards. `is_new`: it has not come with a place that was taken.
    /// Returns its number.
    pub(crate) fn add_table(
        &mut self,
        schema: Schema,
        identity: TableIdentity,
        mut shards: Option<Shards>,
        is_new: bool,
    ) -> Result<usize, RequestFailure> {
        let store = self.identities.store_of(identity);
        let recovered =
            shards.as_mut().map(|shards| step_files::finish(&store, shards, AGGREGATE)).transpose();
        let recovered = match recovered {
            Ok(recovered) => recovered.unwrap_or_default(),
            Err(why) => return refuse(Refusal::Images, why),
        };
        let own = shards.as_ref().map(|shards| shards.set().clone()).unwrap_or_default();
        let map = self.partitioning.map(identity.servers);
        let of = |thread| map.shards_of_thread(identity.server, (thread, self.threads), schema.shards);
        let present: Vec<ShardSet> = (0..self.threads).map(of).collect();
        let open = |shards: &Shards| former_step_files::open(&store, shards, &recovered, &present);
        let step_files = shards.as_ref().map(open);
        tracing::info!(table = schema.name, %own, thread = self.thread, "table opened");
        let counters = self.counters.threads[self.thread as usize].add_table(&schema.name);
        let (regions, group) = (Regions::default(), None);
        let table =
            ServerTable { schema, identity, own, regions, shards, group, recovered, step_files, counters };
        let number = self.push_table(table, is_new);
        self.all[number].publish();
        Ok(number)
    }

    /// Adds a table, and tells the backups. Returns its number.
    pub(crate) fn push_table(&mut self, table: ServerTable, is_new: bool) -> usize {
        let identity = table.identity;
        let number = self.all.add(table);
        if let Some(replication) = &mut self.replication {
            let map = self.partitioning.map(identity.servers);
            let of = (&map, self.places.get(identity.server));
            replication.add_table(number, &mut self.all[number], of, is_new);
        }
        number
    }

    /// The shards of a server that this thread has if it is of that server, or keeps copies of if it is of a backup.
    pub(crate) fn own_part(&self, server: u32, servers: u32, shards: u32) -> ShardSet {
        self.partitioning.map(servers).shards_of_thread(server, (self.thread, self.threads), shards)
    }

    /// The names of the tables that are open.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all.iter().map(|table| table.schema.name.clone()).collect()
    }

    /// Sends workers away that come for the shards of another server.
    pub(crate) fn must_own(&self, place: u32) -> RequestOutcome {
        match self.places.may_serve(place) {
            true => Ok(()),
            false => refuse(Refusal::Moved, format!("this server does not own the shards of place {place}")),
        }
    }

    /// Updates the gauges of the tables' sizes.
    pub(crate) fn publish(&self) {
        self.all.iter().for_each(ServerTable::publish);
    }

    /// Rows of all tables on this thread.
    pub(crate) fn rows(&self) -> u64 {
        self.all.iter().filter_map(|table| table.shards.as_ref()).map(|shards| shards.stats().rows).sum()
    }
}

pub(crate) fn answer_open(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    OpenTableFrame::decode(&frame.head)?;
    let request = match control::open_as::<OpenTableV2>(2, frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    let Some(schema) = Schema::decode(&request.schema) else {
        return refuse(Refusal::Malformed, "the schema cannot be read");
    };
    if request.servers == 0 || request.server >= request.servers {
        return refuse(Refusal::Malformed, format!("server {} of {}", request.server, request.servers));
    }
    let OpenTableV2 { uid, server, servers, make_in, .. } = request;
    tables.must_own(server)?;
    let identity = TableIdentity { uid: TableUid(uid), server, servers };
    let number = tables.open(schema, IdentityClaim { identity, make_in })?;
    let fenced = |shards: &Shards| {
        let newer = |p: &PusherStatus| p.pusher == pusher.pusher && p.incarnation > pusher.incarnation;
        shards.pushers().iter().any(newer)
    };
    if tables.all[number].shards.as_ref().is_some_and(fenced) {
        return refuse(Refusal::Fenced, REPLACED);
    }
    let ServerTable { own, shards, identity, schema, .. } = &tables.all[number];
    let incarnation = shards.as_ref().map_or(0, Shards::incarnation);
    let ours = (pusher.pusher, pusher.incarnation);
    let pushers = shards.as_ref().map(Shards::pushers).unwrap_or_default();
    if pushers.iter().any(|status| status.pusher == ours.0 && status.incarnation > ours.1) {
        return refuse(Refusal::Fenced, REPLACED);
    }
    let (table, own) = (number as u32, runs(own));
    let births = shards.as_ref().map(Shards::births).unwrap_or_default();
    let (uid, confirmed) = (identity.uid.0, tables.identities.is_confirmed(&schema.name, *identity));
    let all_births = shards.as_ref().map_or(0, Shards::all_births);
    let opened = TableOpenedV4 { table, shards: own, incarnation, uid, confirmed, all_births, births };
    send_answer(frame, TableOpenedFrame {}, &control::seal_as(4, &opened), transmit)
}

/// Drops a table: its rows on this thread, and its folder once no thread has a shard of it open. Nobody who knows
/// the table's number reaches another table with it.
pub(crate) fn answer_drop(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    DropTableFrame::decode(&frame.head)?;
    pusher.must_have_incarnation()?;
    let DropTableV1 { table: name } = match control::open(frame.payload) {
        Ok(drop) => drop,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    if let Err(error) = Schema::check_name(&name) {
        return refuse(Refusal::Malformed, error.to_string());
    }
    transmit.reserve(0).ok_or(Full)?;
    tables.copies.retain(|copies| copies.table() != name);
    let is_it = |(_, table): &(usize, &ServerTable)| table.schema.name == name;
    let numbers: Vec<usize> = tables.all.numbered().filter(is_it).map(|(number, _)| number).collect();
    for number in numbers {
        let Some(mut table) = tables.all.remove(number) else { continue };
        if let Some(replication) = &mut tables.replication {
            replication.drop_table(number, &table, &tables.partitioning.map(table.identity.servers));
        }
        if let Some(shards) = &mut table.shards {
            // Before the rows go: a worker that reads the images itself stops trusting them.
            shards.stop_serving();
        }
        tables.counters.threads[tables.thread as usize].end_table(&table.counters);
        tracing::info!(table = name, thread = tables.thread, "table dropped");
    }
    tables.group_changed = true;
    let dropped = tables.identities.drop_table(&name);
    tables.identities.forget(&name);
    if let Err(error) = dropped {
        return refuse(Refusal::NoSpace, format!("table {name:?} cannot be dropped: {error}"));
    }
    transmit.commit(TableDroppedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

/// Answers what this server has of a table.
pub(crate) fn answer_identify(tables: &ServerTables, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
    if tables.scheduler_only {
        return refuse(Refusal::Mismatch, NO_TABLES);
    }
    let request = identities::request(frame)?;
    tables.must_own(request.server)?;
    tables.identities.answer(frame, &request, transmit)
}

/// Notes that all servers of a table have created their shards.
pub(crate) fn answer_confirm(tables: &mut ServerTables, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
    ConfirmFrame::decode(&frame.head)?;
    let ConfirmV2 { table: number, uid, all_births } = match control::open_as(2, frame.payload) {
        Ok(confirm) => confirm,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    let table = tables.all.get(number as usize).filter(|table| table.identity.uid.0 == uid);
    let Some(table) = table else {
        return refuse(
            Refusal::Identity,
            format!("table {number} of this thread has another id than the requested one"),
        );
    };
    let known = table.shards.as_ref().map_or(0, Shards::all_births);
    if known != 0 && known != all_births {
        return refuse(
            Refusal::Identity,
            format!("table {:?} was opened here together with other shards", table.schema.name),
        );
    }
    transmit.reserve(0).ok_or(Full)?;
    if let Some(shards) = &table.shards {
        shards.note_all_births(all_births);
        shards.confirm();
        if let Some(replication) = &mut tables.replication {
            let map = tables.partitioning.map(table.identity.servers);
            let of = (&map, tables.places.get(table.identity.server));
            replication.confirm_table(number as usize, table, of);
        }
    }
    tables.identities.confirm(&table.schema.name, table.identity);
    transmit.commit(ConfirmedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

pub(crate) fn answer_status(tables: &mut ServerTables, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
    let table = numbered(tables, StatusFrame::decode(&frame.head)?.table)?;
    let (stats, pushers) = match &table.shards {
        Some(shards) => (shards.stats(), shards.pushers()),
        None => Default::default(),
    };
    let restored = restored_shares(&pushers);
    // Reports workers only. The scheduler knows the pushers of data, and a frame may be too small for all of them.
    let workers = pushers.into_iter().filter(|status| status.pusher < DATA_PUSHERS);
    let pushers = workers.take(STATUS_PUSHERS_MAX).map(|status| PusherV1 {
        pusher: status.pusher,
        incarnation: status.incarnation,
        seq: status.seq,
        rows: status.rows,
        closed: status.closed,
    });
    let (rows, bytes, shards) = (stats.rows, stats.bytes, stats.shards);
    let status = StatusV2 { rows, bytes, shards, pushers: pushers.collect(), restored };
    send_answer(frame, StatusIsFrame {}, &control::seal_as(2, &status), transmit)
}

pub(crate) fn answer_close(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let request = ClosePusherFrame::decode(&frame.head)?;
    pusher.must_have_incarnation()?;
    let (target, incarnation) = match request.pusher {
        0 => (pusher.pusher, pusher.incarnation),
        target if is_data(target) => (target, request.incarnation),
        target => return refuse(Refusal::Name, format!("pusher {target:#x} is not a pusher of data")),
    };
    if tables.cuts.holds_close(request.table, target) {
        return Err(RequestFailure::Parked(request.table));
    }
    let table = numbered(tables, request.table)?;
    transmit.reserve(0).ok_or(Full)?;
    if let Some(shards) = &mut table.shards {
        // A fenced worker must not close data: another worker may train that data by now.
        let allowed = shards.check_pusher(pusher.pusher, pusher.incarnation);
        let closed = allowed.and_then(|()| shards.close_pusher(target, incarnation));
        closed.map_err(|error| RequestFailure::Refused(Refusal::of_push(&error), error.to_string()))?;
    }
    transmit.commit(PusherClosedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

/// The fixed shares whose last push is in a checkpoint that was restored here, and that have pushed nothing here since.
/// `None`: nothing here is as a checkpoint had it. The images say so, whichever process restored them.
fn restored_shares(pushers: &[PusherStatus]) -> Option<Vec<RestoredShareV1>> {
    let still = |status: &&PusherStatus| is_share(status.pusher) && status.is_restored() && !status.closed;
    let share = |&PusherStatus { pusher, incarnation, seq, .. }: &PusherStatus| RestoredShareV1 {
        pusher,
        incarnation,
        seq,
    };
    let all: Vec<_> = pushers.iter().filter(still).take(STATUS_PUSHERS_MAX).map(share).collect();
    pushers.iter().any(PusherStatus::is_restored).then_some(all)
}

/// Queues a control answer: its head and its payload.
pub(crate) fn send_answer(
    frame: &Frame<'_>,
    reply: impl FrameKind,
    payload: &[u8],
    transmit: &mut Transmit,
) -> RequestOutcome {
    Ok(transmit.send_copy(reply.encode(frame.head.id), payload)?)
}
