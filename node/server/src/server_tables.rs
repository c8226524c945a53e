//! What one thread of a server holds. The files in requests/ act on it, one subject each.

use crate::counters::server::ServerCounters;
use crate::cuts::state::Checkpoints;
use crate::error::ServerError;
use crate::limits::{CLOSED_ALONE, CLOSERS};
use crate::membership::standing::Standing;
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::places::own::OwnPlaces;
use crate::replication::TablePlace;
use crate::replication::held::Backups;
use crate::steps::waits::StepWaits;
use crate::steps::{step_files, unowned_step_files};
use crate::tables::home::ThreadHome;
use crate::tables::identities;
use crate::tables::identities::{Identities, IdentityClaim, to_begin_anew};
use crate::tables::mirror::Mirror;
use crate::tables::regions::Regions;
use crate::tables::table::ServerTable;
use crate::tables::table_list::TableList;
use gannet_core::{OpenError, Schema, ShardSet, Shards, Store, TableIdentity};
use gannet_jobs::failure_detector::FailureDetector;
use gannet_transport::Registrar;
use gannet_wire::coordinator::Coordinator;
use gannet_wire::log_limiter::LogLimiter;
use gannet_wire::partition::Partitioning;
use gannet_wire::refusal::Refusal;
use gannet_wire::share_pushers::AGGREGATE;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

impl ServerTables {
    /// Marks every image as closed in order.
    pub(crate) fn close(&mut self) -> Result<(), ServerError> {
        let mut open: Vec<&mut Shards> =
            self.all.iter_mut().filter_map(|table| table.shards.as_mut()).collect();
        // Before any image is closed: a worker that reads the images itself stops trusting them.
        open.iter().for_each(|shards| shards.stop_serving());
        if open.len() <= CLOSED_ALONE {
            return close(&mut open);
        }
        // The disk writes several images at once.
        let part = open.len().div_ceil(CLOSERS);
        std::thread::scope(|scope| {
            let closers: Vec<_> = open.chunks_mut(part).map(|part| scope.spawn(|| close(part))).collect();
            let ended =
                closers.into_iter().map(|closer| closer.join().unwrap_or_else(|panic| resume_unwind(panic)));
            ended.fold(Ok(()), Result::and)
        })
    }
}

/// Marks the images of these tables as closed in order.
fn close(open: &mut [&mut Shards]) -> Result<(), ServerError> {
    open.iter_mut().try_for_each(|shards| {
        let closed = shards.mark_clean();
        closed.map_err(|source| ServerError::Close { table: shards.schema().name.clone(), source })
    })
}

pub(crate) const FOLLOWS: &str =
    "this is a follower, which has the rows of other servers and changes none: name those servers";

pub(crate) const NO_TABLES: &str = "this is a scheduler, which has no tables: name the servers in --ps-hosts";

/// What one thread of a server holds: its tables, and what each subject keeps beside them.
pub(crate) struct ServerTables {
    pub(crate) all: TableList,
    /// Where the tables are, and which part of them is this thread's.
    pub(crate) home: ThreadHome,
    /// The places that this server owns.
    pub(crate) places: OwnPlaces,
    /// What the membership has decided. `None`: there is no coordinator.
    pub(crate) standing: Option<Arc<Standing>>,
    /// What waits for synchronous steps, and which sessions end.
    pub(crate) waits: StepWaits,
    /// The cut of this thread, and where checkpoints are written.
    pub(crate) checkpoints: Checkpoints,
    /// What is told to backups, and kept for other servers.
    pub(crate) backups: Backups,
    /// The cuts whose rows are here. `None`: this server owns its rows.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// Makes memory readable for peers, if a transport can.
    pub(crate) registrar: Option<Arc<dyn Registrar>>,
    /// The coordinator that is asked here.
    pub(crate) coordinator: Option<Arc<dyn Coordinator>>,
    /// The server is only a scheduler and has no tables.
    pub(crate) scheduler_only: bool,
    pub(crate) log_limiter: LogLimiter,
    /// Says which workers are alive.
    pub(crate) detector: FailureDetector,
    pub(crate) counters: Arc<ServerCounters>,
}

impl ServerTables {
    pub(crate) fn new(
        store: Store,
        identities: Arc<Identities>,
        thread: u32,
        counters: Arc<ServerCounters>,
    ) -> ServerTables {
        let (incarnation, threads) = (0, counters.threads.len() as u32);
        let partitioning = Partitioning::here();
        ServerTables {
            all: TableList::default(),
            home: ThreadHome { incarnation, store, identities, partitioning, thread, threads },
            places: OwnPlaces::default(),
            standing: None,
            waits: StepWaits::default(),
            checkpoints: Checkpoints::default(),
            backups: Backups::default(),
            mirror: None,
            registrar: None,
            coordinator: None,
            scheduler_only: false,
            log_limiter: LogLimiter::default(),
            detector: FailureDetector::default(),
            counters,
        }
    }

    /// Which thread of the server this is.
    pub(crate) fn thread(&self) -> u32 {
        self.home.thread
    }

    /// Whether this thread should log a refusal.
    pub(crate) fn is_news(&self, why: &str, now: Duration) -> bool {
        self.home.identities.is_news(why, now)
    }

    /// Where the images are stored.
    pub(crate) fn store(&self) -> &Store {
        &self.home.store
    }

    /// Opens a table, or finds it already open with the same schema.
    pub(crate) fn open(&mut self, schema: Schema, claim: IdentityClaim) -> Result<usize, RequestFailure> {
        if self.scheduler_only {
            return refuse(Refusal::Mismatch, NO_TABLES);
        }
        let is_it = |(_, table): &(usize, &ServerTable)| {
            table.schema.name == schema.name && self.home.identities.is_about(claim.identity, table.identity)
        };
        let position = self.all.numbered().find(is_it).map(|(number, _)| number);
        if let Some(known) = position {
            let table = &self.all[known];
            if table.schema != schema {
                let text = format!(
                    "table {:?} is open with another schema: {}; give every worker the same flags; to start again, {}",
                    schema.name,
                    table.schema.differences(&schema),
                    to_begin_anew(&self.home.store)
                );
                return refuse(Refusal::Mismatch, text);
            }
        } else if self.mirror.is_some() {
            let text = format!("there is no table {:?} here: {FOLLOWS}", schema.name);
            return refuse(Refusal::Mismatch, text);
        } else if self.all.lacks_room_for(1) {
            return refuse(Refusal::Limit, identities::too_many_tables());
        }
        let identity = self.home.identities.claim(&schema, claim)?.identity;
        if let Some(known) = position {
            return Ok(known);
        }
        let TableIdentity { server, servers, .. } = identity;
        let own = self.own_part(server, servers, schema.shards);
        let origin = self.home.identities.origin(identity);
        let shards = match own.is_empty() {
            true => None,
            false => {
                match Shards::open_as(&self.home.identities.store_of(identity), &schema, own.clone(), &origin)
                {
                    Ok(shards) => Some(shards),
                    Err(error) => {
                        self.home.identities.note_opened(&schema.name, identity, false);
                        let is_limit = matches!(error, OpenError::Limit { .. });
                        let refusal = if is_limit { Refusal::Limit } else { Refusal::Images };
                        return refuse(refusal, error.to_string());
                    }
                }
            }
        };
        self.home.identities.note_opened(&schema.name, identity, true);
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
        let store = self.home.identities.store_of(identity);
        let recovered =
            shards.as_mut().map(|shards| step_files::finish(&store, shards, AGGREGATE)).transpose();
        let recovered = match recovered {
            Ok(recovered) => recovered.unwrap_or_default(),
            Err(why) => return refuse(Refusal::Images, why),
        };
        let own = shards.as_ref().map(|shards| shards.set().clone()).unwrap_or_default();
        let map = self.home.partitioning.map(identity.servers);
        let of = |thread| map.shards_of_thread(identity.server, thread, self.home.threads, schema.shards);
        let present: Vec<ShardSet> = (0..self.home.threads).map(of).collect();
        let open =
            |shards: &Shards| unowned_step_files::open_step_files(&store, shards, &recovered, &present);
        let step_files = shards.as_ref().map(open);
        tracing::info!(table = schema.name, %own, thread = self.home.thread, "table opened");
        let counters = self.counters.threads[self.home.thread as usize].add_table(&schema.name);
        let (regions, group, evictor) = (Regions::default(), None, None);
        let table = ServerTable {
            schema,
            identity,
            own,
            regions,
            shards,
            group,
            recovered,
            step_files,
            counters,
            evictor,
        };
        let number = self.push_table(table, is_new);
        self.all[number].publish();
        Ok(number)
    }

    /// Adds a table, and tells the backups. Returns its number.
    pub(crate) fn push_table(&mut self, table: ServerTable, is_new: bool) -> usize {
        let identity = table.identity;
        let number = self.all.add(table);
        if let Some(replication) = &mut self.backups.replication {
            let map = self.home.partitioning.map(identity.servers);
            let of = TablePlace { map: &map, place: self.places.get(identity.server) };
            replication.add_table(number, &mut self.all[number], of, is_new);
        }
        number
    }

    /// The shards of a server that this thread has if it is of that server, or keeps copies of if it is of a backup.
    pub(crate) fn own_part(&self, server: u32, servers: u32, shards: u32) -> ShardSet {
        self.home.partitioning.map(servers).shards_of_thread(
            server,
            self.home.thread,
            self.home.threads,
            shards,
        )
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
