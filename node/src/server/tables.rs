//! The tables of one server thread, and the rare requests about them.

use super::bulk::{Pusher, RequestFailure, RequestOutcome, refuse};
use super::group::{AGGREGATE, Group, is_data};
use super::identities::{Identities, IdentityClaim, to_begin_anew};
use super::regions::Regions;
use super::step_budget::StepBudget;
use super::step_files::{self, RecoveredSteps, StepFiles};
use crate::counters::{ServerCounters, TableCounters};
use crate::error::{REPLACED, Refusal, ServerError};
use crate::frames::control::{self, ConfirmV1, DropTableV1, OpenTableV2, PusherV1, StatusV1, TableOpenedV2};
use crate::frames::{
    ClosePusherFrame, ConfirmFrame, ConfirmedFrame, DropTableFrame, FrameKind, OpenTableFrame,
    PusherClosedFrame, StatusFrame, StatusIsFrame, TableDroppedFrame, TableOpenedFrame,
};
use crate::limits::{STATUS_PUSHERS_MAX, TABLES_MAX};
use crate::log_limiter::LogLimiter;
use crate::partition::share;
use gannet_core::{DATA_PUSHERS, PusherStatus, Schema, Shards, Store, TableIdentity, TableUid};
use gannet_transport::{Frame, Full, Registrar, Transmit};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const NO_TABLES: &str = "this is a scheduler, which has no tables: name the servers in --ps-hosts";

/// A thread's part of a table.
pub(super) struct ServerTable {
    pub(super) schema: Schema,
    /// Which table it is, and which of its servers this one is.
    identity: TableIdentity,
    range: Range<u32>,
    /// What peers may READ; before the shards, as they go in this order.
    pub(super) regions: Regions,
    /// `None` when the part is empty.
    pub(super) shards: Option<Shards>,
    /// The workers that keep step over it.
    pub(super) group: Option<Group>,
    /// What the steps of its images have come to.
    pub(super) found: RecoveredSteps,
    /// Where a step stands while it is applied.
    pub(super) steps: Option<StepFiles>,
    pub(super) tally: Arc<TableCounters>,
}

/// All tables of a thread, numbered in the order in which they were opened.
pub(super) struct ServerTables {
    pub(super) all: Vec<ServerTable>,
    /// What makes memory readable to peers, where a transport can.
    pub(super) registrar: Option<Arc<dyn Registrar>>,
    /// What some request waits for may have come.
    pub(super) moved: bool,
    /// A push waits for room among those that are kept.
    pub(super) short: bool,
    /// For pushes that are kept for synchronous steps.
    pub(super) kept: Option<Arc<StepBudget>>,
    /// Of a table, pushers, and up to which life, whose sessions are to end.
    pub(super) fenced: Vec<(u32, u64, u64)>,
    /// It is to have none.
    pub(super) none: bool,
    pub(super) log_limiter: LogLimiter,
    /// This life of the server, in which every image is opened once: versions of rows are compared within it only.
    pub(super) incarnation: u64,
    /// As what all threads of the server have their tables.
    identities: Arc<Identities>,
    store: Store,
    thread: u32,
    threads: u32,
    tally: Arc<ServerCounters>,
}

impl ServerTables {
    pub(super) fn new(
        store: Store,
        identities: Arc<Identities>,
        thread: u32,
        tally: Arc<ServerCounters>,
    ) -> ServerTables {
        let threads = tally.threads.len() as u32;
        ServerTables {
            all: Vec::new(),
            registrar: None,
            moved: false,
            short: false,
            kept: None,
            fenced: Vec::new(),
            none: false,
            log_limiter: LogLimiter::default(),
            incarnation: 0,
            identities,
            store,
            thread,
            threads,
            tally,
        }
    }

    /// Which thread of the server this is.
    pub(super) fn thread(&self) -> u32 {
        self.thread
    }

    /// Whether a refusal is to be logged by this thread.
    pub(super) fn is_news(&self, why: &str, now: Duration) -> bool {
        self.identities.is_news(why, now)
    }

    /// Where its images live.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Opens a table, or finds it open with the same schema.
    pub(super) fn open(&mut self, schema: Schema, claim: IdentityClaim) -> Result<usize, RequestFailure> {
        if self.none {
            return refuse(Refusal::Mismatch, NO_TABLES);
        }
        let open = self.all.iter().position(|table| table.schema.name == schema.name);
        if let Some(known) = open {
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
        } else if self.all.len() == TABLES_MAX {
            return refuse(
                Refusal::Limit,
                format!(
                    "{TABLES_MAX} tables are open, or were dropped since this server began, the limit: start it again"
                ),
            );
        }
        let identity = self.identities.claim(&schema, claim)?.identity;
        if let Some(known) = open {
            return Ok(known);
        }
        let TableIdentity { server, servers, .. } = identity;
        let range = share(share(0..schema.shards, server, servers), self.thread, self.threads);
        let origin = self.identities.origin(identity);
        let mut shards = match range.is_empty() {
            true => None,
            false => match Shards::open_as(&self.store, &schema, range.clone(), &origin) {
                Ok(shards) => Some(shards),
                Err(error) => {
                    self.identities.note_opened(&schema.name, false);
                    return refuse(Refusal::Images, error.to_string());
                }
            },
        };
        self.identities.note_opened(&schema.name, true);
        let found =
            shards.as_mut().map(|shards| step_files::finish(&self.store, shards, AGGREGATE)).transpose();
        let found = match found {
            Ok(found) => found.unwrap_or_default(),
            Err(why) => return refuse(Refusal::Images, why),
        };
        let steps = shards.as_ref().map(|shards| StepFiles::new(&self.store, shards));
        tracing::info!(table = schema.name, ?range, thread = self.thread, "table opened");
        let tally = self.tally.threads[self.thread as usize].add_table(&schema.name);
        let (regions, group) = (Regions::default(), None);
        self.all.push(ServerTable { schema, identity, range, regions, shards, group, found, steps, tally });
        self.publish();
        Ok(self.all.len() - 1)
    }

    pub(super) fn answer_open(
        &mut self,
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
        let identity = TableIdentity { uid: TableUid(uid), server, servers };
        let number = self.open(schema, IdentityClaim { identity, make_in })?;
        let fenced = |shards: &Shards| {
            let newer = |p: &PusherStatus| p.pusher == pusher.pusher && p.incarnation > pusher.incarnation;
            shards.pushers().iter().any(newer)
        };
        if self.all[number].shards.as_ref().is_some_and(fenced) {
            return refuse(Refusal::Fenced, REPLACED);
        }
        let ServerTable { range, shards, identity, schema, .. } = &self.all[number];
        let incarnation = shards.as_ref().map_or(0, Shards::incarnation);
        let ours = (pusher.pusher, pusher.incarnation);
        let pushers = shards.as_ref().map(Shards::pushers).unwrap_or_default();
        if pushers.iter().any(|status| status.pusher == ours.0 && status.incarnation > ours.1) {
            return refuse(Refusal::Fenced, REPLACED);
        }
        let (table, first_shard, end_shard) = (number as u32, range.start, range.end);
        let births = shards.as_ref().map(Shards::births).unwrap_or_default();
        let (uid, confirmed) = (identity.uid.0, self.identities.is_confirmed(&schema.name));
        let opened = TableOpenedV2 { table, first_shard, end_shard, incarnation, uid, confirmed, births };
        answer(frame, TableOpenedFrame {}, &control::seal_as(2, &opened), transmit)
    }

    /// The names of the tables that are open.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.all.iter().map(|table| table.schema.name.clone());
        names.filter(|name| !name.is_empty()).collect()
    }

    /// Drops a table: its rows go, on this thread and, with those of the last thread, from the folder. Its number
    /// stays, so that nobody who knows it by that is given another.
    pub(super) fn answer_drop(
        &mut self,
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
        for table in self.all.iter_mut().filter(|table| table.schema.name == name) {
            if let Some(shards) = &mut table.shards {
                // Before they go: whoever reads the images by himself believes them no longer.
                shards.stop_serving();
            }
            (table.regions, table.group, table.steps, table.shards) = (Regions::default(), None, None, None);
            // No name is empty: nobody finds it any more.
            table.schema.name.clear();
            table.tally.clear();
            tracing::info!(table = name, thread = self.thread, "table dropped");
        }
        self.moved = true;
        let dropped = self.store.drop_table(&name);
        self.identities.forget(&name);
        if let Err(error) = dropped {
            return refuse(Refusal::NoSpace, format!("table {name:?} cannot be dropped: {error}"));
        }
        transmit.commit(TableDroppedFrame {}.encode(frame.head.id), 0);
        Ok(())
    }

    /// Answers what this server holds of a table.
    pub(super) fn answer_identify(&self, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
        match self.none {
            true => refuse(Refusal::Mismatch, NO_TABLES),
            false => self.identities.answer(frame, transmit),
        }
    }

    /// All servers of a table have made their shards.
    pub(super) fn answer_confirm(&self, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
        ConfirmFrame::decode(&frame.head)?;
        let ConfirmV1 { table: number, uid } = match control::open(frame.payload) {
            Ok(confirm) => confirm,
            Err(error) => return refuse(Refusal::Malformed, error.to_string()),
        };
        let table = self.all.get(number as usize).filter(|table| table.identity.uid.0 == uid);
        let Some(table) = table else {
            return refuse(
                Refusal::Identity,
                format!("table {number} of this thread is not the one that is meant"),
            );
        };
        transmit.reserve(0).ok_or(Full)?;
        if let Some(shards) = &table.shards {
            shards.confirm();
        }
        self.identities.confirm(&table.schema.name);
        transmit.commit(ConfirmedFrame {}.encode(frame.head.id), 0);
        Ok(())
    }

    fn get(&mut self, number: u32) -> Result<&mut ServerTable, RequestFailure> {
        match self.all.get_mut(number as usize) {
            Some(table) => Ok(table),
            None => refuse(Refusal::Unknown, format!("no table {number} has been opened on this thread")),
        }
    }

    pub(super) fn answer_status(&mut self, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
        let table = self.get(StatusFrame::decode(&frame.head)?.table)?;
        let (stats, pushers) = match &table.shards {
            Some(shards) => (shards.stats(), shards.pushers()),
            None => Default::default(),
        };
        // Of workers: those of data are the scheduler's to know, and more than a frame may hold.
        let workers = pushers.into_iter().filter(|status| status.pusher < DATA_PUSHERS);
        let pushers = workers.take(STATUS_PUSHERS_MAX).map(|status| PusherV1 {
            pusher: status.pusher,
            incarnation: status.incarnation,
            seq: status.seq,
            rows: status.rows,
            closed: status.closed,
        });
        let (rows, bytes, shards) = (stats.rows, stats.bytes, stats.shards);
        let status = StatusV1 { rows, bytes, shards, pushers: pushers.collect() };
        answer(frame, StatusIsFrame {}, &control::seal(&status), transmit)
    }

    pub(super) fn answer_close(
        &mut self,
        frame: &Frame<'_>,
        pusher: &Pusher,
        transmit: &mut Transmit,
    ) -> RequestOutcome {
        let request = ClosePusherFrame::decode(&frame.head)?;
        pusher.must_have_incarnation()?;
        let (of, incarnation) = match request.pusher {
            0 => (pusher.pusher, pusher.incarnation),
            of if is_data(of) => (of, request.incarnation),
            of => return refuse(Refusal::Name, format!("pusher {of:#x}: no name of data")),
        };
        let table = self.get(request.table)?;
        transmit.reserve(0).ok_or(Full)?;
        if let Some(shards) = &mut table.shards {
            // Data that a fenced worker closed could be another's by now.
            let taken = shards.check_pusher(pusher.pusher, pusher.incarnation);
            let closed = taken.and_then(|()| shards.close_pusher(of, incarnation));
            closed.map_err(|error| RequestFailure::Refused(Refusal::of_push(&error), error.to_string()))?;
        }
        transmit.commit(PusherClosedFrame {}.encode(frame.head.id), 0);
        Ok(())
    }

    /// Marks every image as closed in order.
    pub(super) fn close(&mut self) -> Result<(), ServerError> {
        for table in &mut self.all {
            if let Some(shards) = &mut table.shards {
                // Before anything is closed: whoever reads the images by himself believes them no longer.
                shards.stop_serving();
                let closed = shards.mark_clean();
                closed.map_err(|source| ServerError::Close { table: table.schema.name.clone(), source })?;
            }
        }
        Ok(())
    }

    /// Sizes as they are now, in the counts.
    pub(super) fn publish(&self) {
        for table in &self.all {
            if let Some(shards) = &table.shards {
                table.tally.note(shards);
            }
        }
    }

    /// Rows of all tables here.
    pub(super) fn rows(&self) -> u64 {
        self.all.iter().filter_map(|table| table.shards.as_ref()).map(|shards| shards.stats().rows).sum()
    }
}

/// Queues a control answer: its frame and its payload.
pub(super) fn answer(
    frame: &Frame<'_>,
    reply: impl FrameKind,
    payload: &[u8],
    transmit: &mut Transmit,
) -> RequestOutcome {
    Ok(transmit.send_copy(reply.encode(frame.head.id), payload)?)
}
