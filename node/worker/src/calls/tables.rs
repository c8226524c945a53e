//! The rare calls about tables: open, status, scan, close. Also how control requests are sent.

use crate::calls::identity::open_at_servers;
use crate::error::WorkerError;
use crate::links::control::{links_of, post_requests};
use crate::links::read_paths::request_read_path;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::requests::in_flight::{ControlInFlight, LinkAnswer, RequestWork};
use crate::requests::names::TableId;
use crate::tables::plan::ShardCount;
use crate::tables::table::WorkerTable;
use crate::worker::Worker;
use bytemuck::{cast_slice, cast_slice_mut};
use gannet_core::{Admission, Eviction, OpenError, PusherStatus, SHARDS_DEFAULT, Schema, Stats};
use gannet_transport::Net;
use gannet_wire::frames::bulk::{ScanFrame, ScannedFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::tables::{ClosePusherFrame, StatusFrame};
use gannet_wire::limits::part_keys;
use gannet_wire::messages::control;
use gannet_wire::messages::control::StatusV2;
use std::time::Duration;

/// Sizes of a table over all servers, and what the servers remember of its pushers. [`Worker::status`] has an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStatus {
    /// Rows, bytes and shards.
    pub stats: Stats,
    /// For each pusher the highest push that any thread has, and whether all threads know that it has ended.
    pub pushers: Vec<PusherStatus>,
}

impl<N: Net> Worker<N> {
    /// Creates the table, or opens it if it exists with the same schema. The data that each server holds decides which
    /// server has which shards; the order of the addresses does not.
    ///
    /// With [`SHARDS_DEFAULT`] in the schema an existing table of at most so many shards is opened as it is. A new one
    /// gets as many as its servers' threads use evenly
    /// ([`shards_for_threads`](gannet_wire::partition::shards_for_threads)). [`schema`](Self::schema) says how many. So
    /// a table of few rows takes little memory, and a server can have thousands of them. Keys in the order of
    /// [`SHARDS_DEFAULT`] shards fit all of these. A table that admits keys by count has [`SHARDS_DEFAULT`].
    ///
    /// ```
    /// use gannet_core::Schema;
    /// use gannet_optim::{Rule, Sgd};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    ///
    /// let schema = Schema { dim: 16, ..Schema::scalar("users", Rule::Sgd(Sgd { lr: 0.1 })) };
    /// let users = worker.open_table(&schema)?;
    /// assert_eq!(worker.open_table(&schema)?, users);
    /// // A table keeps the schema that it was created with.
    /// assert!(worker.open_table(&Schema { dim: 8, ..schema }).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The schema is not valid; the table exists with another schema, or was made by another number of servers; rows of
    /// it are gone; or a peer is lost for good.
    pub fn open_table(&mut self, schema: &Schema) -> Result<TableId, WorkerError> {
        open_table_with(self, schema, shard_count(schema))
    }

    /// Says that rows of a table of this name may die. The worker tells it to the servers when it opens the table, and
    /// after each link that it makes again. If workers say different things, the last word counts, until the server
    /// ends.
    ///
    /// A push of changes of state should name the pull from which they were computed
    /// ([`begin_push`](Self::begin_push)). Otherwise changes of all keys that have ever died are refused.
    ///
    /// ```
    /// use gannet_core::{Capacity, Eviction, Schema, Write};
    /// use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    ///
    /// let full = Eviction { capacity: Some(Capacity::Rows(1000)), ..Eviction::default() };
    /// worker.evict_rows("clicks", full)?;
    /// let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// let keys: Vec<u64> = (0..5000).collect();
    /// worker.push(table, &keys, Write::Gradient, &[1.0; 5000])?;
    /// // The server evicts between requests. Each shard has its share of the rows.
    /// while worker.status(table)?.stats.rows > 1064 {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The settings make no sense, or the table is open already.
    pub fn evict_rows(&mut self, table: &str, eviction: Eviction) -> Result<(), WorkerError> {
        eviction.check().map_err(|error| WorkerError::Call(error.to_string()))?;
        let table = self.links.config.run.as_ref().map_or_else(|| table.to_owned(), |run| run.table(table));
        if self.tables.iter().any(|known| known.schema.name == table) {
            let text = format!("table {table:?} is open: say before that its rows may die");
            return Err(WorkerError::Call(text));
        }
        self.evictions.push((table, eviction));
        Ok(())
    }

    /// [`open_table`](Self::open_table), for a table that has as many shards as the schema says, whichever number that
    /// is.
    ///
    /// # Errors
    /// As [`open_table`](Self::open_table).
    pub fn open_table_exactly(&mut self, schema: &Schema) -> Result<TableId, WorkerError> {
        open_table_with(self, schema, ShardCount::Given)
    }

    /// Opens a table that all servers hold, such as in data folders from which they were started again. It makes none.
    pub(crate) fn open_held_table(&mut self, schema: &Schema) -> Result<TableId, WorkerError> {
        open_table_with(self, schema, ShardCount::Held)
    }

    /// The schema of a table.
    ///
    /// # Panics
    /// When the table is another worker's.
    pub fn schema(&self, table: TableId) -> &Schema {
        &self.tables[table.0].schema
    }

    /// A sequence number for the next push to this table.
    ///
    /// # Panics
    /// When the table is another worker's.
    pub fn next_seq(&self, table: TableId) -> u64 {
        self.tables[table.0].last_seq + 1
    }

    /// Sizes and pushers of a table.
    ///
    /// ```
    /// # use gannet_core::{Schema, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0])?;
    /// let status = worker.status(table)?;
    /// assert_eq!(status.stats.rows, 2);
    /// assert_eq!((status.pushers[0].pusher, status.pushers[0].seq), (1, 1)); // worker 0 is pusher 1
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A peer is lost for good.
    pub fn status(&mut self, table: TableId) -> Result<TableStatus, WorkerError> {
        let mut status = TableStatus { stats: Stats::default(), pushers: Vec::new() };
        for part in status_parts(self, table)? {
            status.stats.rows += part.rows;
            status.stats.bytes += part.bytes;
            status.stats.shards += part.shards;
            part.pushers.iter().for_each(|pusher| add_pusher(&mut status.pushers, pusher));
        }
        Ok(status)
    }

    /// Calls `rows` with pages of the table's rows until all have come: keys, and the stored floats of each. Pushes
    /// during the scan may or may not be included. A row that exists all the time comes once.
    ///
    /// ```
    /// # use gannet_core::{Schema, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0])?;
    /// let mut rows = Vec::new();
    /// worker.scan(table, |keys, floats| rows.extend(keys.iter().copied().zip(floats.iter().copied())))?;
    /// rows.sort_by_key(|(key, _)| *key);
    /// assert_eq!(rows, [(7, 1.0), (8, 2.0)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A peer is lost for good.
    pub fn scan(&mut self, table: TableId, mut rows: impl FnMut(&[u64], &[f32])) -> Result<(), WorkerError> {
        let schema = &self.tables[table.0].schema;
        let (floats, shards) = (schema.floats(), schema.shards);
        for shard in 0..shards {
            let mut from = 0;
            loop {
                let scan = ScanFrame { table: 0, most: part_keys(floats) as u32, shard, from };
                let answers = self.ask(&ControlRequest::about(table, &scan), Recipients::Owner(shard))?;
                let Some(ControlReply { link, head, payload, .. }) = answers.first() else { break };
                let peer = || self.links.peers[*link].name.clone();
                let nonsense = |what: String| WorkerError::Protocol { peer: peer(), what };
                let answer = ScannedFrame::decode(head).map_err(|error| nonsense(error.to_string()))?;
                let ScannedFrame { rows: count, floats: got, next } = answer;
                let (keys, page) = (count as usize * 8, count as usize * floats * 4);
                if got as usize != floats || payload.len() != (keys + page).next_multiple_of(8) {
                    return Err(nonsense(format!(
                        "a page of {count} rows of {got} floats, which does not fit the request"
                    )));
                }
                let mut aligned = vec![0u64; payload.len() / 8];
                cast_slice_mut(&mut aligned).copy_from_slice(payload);
                let bytes: &[u8] = cast_slice(&aligned);
                rows(cast_slice(&bytes[..keys]), cast_slice(&bytes[keys..keys + page]));
                match u32::try_from(next) {
                    Ok(next) => from = next,
                    Err(_) => break,
                }
            }
        }
        Ok(())
    }

    /// Declares that this worker will push no more to a table, once all its pushes have been acknowledged.
    ///
    /// # Errors
    /// A push was refused, or a peer is lost for good.
    pub fn close_pusher(&mut self, table: TableId) -> Result<(), WorkerError> {
        self.drain()?;
        self.ask(&ControlRequest::about(table, &ClosePusherFrame::default()), Recipients::All).map(|_| ())
    }

    /// Declares that no worker pushes this split any more: all its pushes have been acknowledged, and the scheduler
    /// knows that its task is done. The shards forget the split's name.
    ///
    /// # Errors
    /// A push was refused, or a peer is lost for good.
    pub fn close_data(&mut self, table: TableId, pusher: u64, incarnation: u64) -> Result<(), WorkerError> {
        self.drain()?;
        let close = ClosePusherFrame { table: 0, pusher, incarnation };
        self.ask(&ControlRequest::about(table, &close), Recipients::All).map(|_| ())
    }

    /// Sends a request and waits for all answers. A thread that its server no longer has gives none. If a server's
    /// number of threads changes meanwhile, all are asked again. Requests that every thread must get are an exception:
    /// the new threads get them instead (layout.rs).
    pub(crate) fn ask(
        &mut self,
        ask: &ControlRequest<'_>,
        to: Recipients<'_>,
    ) -> Result<Vec<ControlReply>, WorkerError> {
        self.tables.must_have_ticked("a request")?;
        loop {
            let (now, links) = (self.links.net.now(), links_of(&self.links, &self.tables, ask.table, to));
            if links.iter().any(|&link| !self.links.peers[link].is_wanted()) {
                return Ok(Vec::new());
            }
            let payloads = match ask.payload {
                None => Vec::new(),
                Some(make) => links
                    .iter()
                    .enumerate()
                    .map(|(n, &link)| make(n, self.links.peers[link].server))
                    .collect(),
            };
            let (frame, table) = (ask.frame, ask.table.map(|table| table.0));
            let control = ControlInFlight { frame, table, payloads, ..ControlInFlight::default() };
            let id = post_requests(&mut self.links, control, &links, now)?;
            while self.links.flights.get(id).is_some_and(|flight| flight.left > 0) {
                self.pump(self.links.config.peer_timeout)?;
            }
            // The last answer to a request without a waiting call frees its index, which another request may have by
            // now.
            let place = self.links.flights.get(id).map(|_| id.index);
            let flight = place.and_then(|place| self.links.flights.take(place));
            let Some(RequestWork::Control(control)) = flight.map(|flight| flight.work) else {
                return Ok(Vec::new());
            };
            self.pump(Duration::ZERO)?;
            if control.again && matches!(to, Recipients::Links(_)) {
                return Ok(Vec::new());
            }
            if !control.again {
                let answers = links.into_iter().zip(control.answers);
                return Ok(answers
                    .filter_map(|(link, answer)| {
                        let LinkAnswer { head, payload, epoch } = answer?;
                        Some(ControlReply { link, head, payload, epoch })
                    })
                    .collect());
            }
        }
    }
}

/// A table that admits keys by count has all shards: each has a sketch, and fewer would count less exactly.
fn shard_count(schema: &Schema) -> ShardCount {
    match schema.admission {
        Admission::Count { .. } => ShardCount::Given,
        _ if schema.shards == SHARDS_DEFAULT => ShardCount::Served,
        _ => ShardCount::Given,
    }
}

fn open_table_with<N: Net>(
    worker: &mut Worker<N>,
    schema: &Schema,
    shards: ShardCount,
) -> Result<TableId, WorkerError> {
    if worker.links.config.one_thread {
        return Err(WorkerError::Call("a table needs links to all threads of its servers".into()));
    }
    schema.check().map_err(OpenError::from)?;
    let of_run = worker
        .links
        .config
        .run
        .as_ref()
        .map(|run| Schema { name: run.table(&schema.name), ..schema.clone() });
    let schema = of_run.as_ref().unwrap_or(schema);
    schema.check().map_err(OpenError::from)?;
    let is_it = |known: &Schema| {
        known == schema
            || (shards == ShardCount::Served
                && known.shards <= schema.shards
                && *known == Schema { shards: known.shards, ..schema.clone() })
    };
    if let Some(known) = worker.tables.iter().position(|table| is_it(&table.schema)) {
        return Ok(TableId(known));
    }
    let eviction = worker.evictions.iter().rfind(|(name, _)| *name == schema.name).map(|(_, of)| *of);
    let (schema, opened, answers) = open_at_servers(worker, schema, shards, eviction.as_ref())?;
    let mut owners = vec![u32::MAX; schema.shards as usize];
    for (number, answer) in answers {
        let peer = &mut worker.links.peers[number];
        opened.shards(peer.thread()).iter().for_each(|shard| owners[shard as usize] = number as u32);
        peer.session.tables.push(answer.table);
    }
    worker.tables.push(WorkerTable::new(schema, opened, owners, eviction));
    for number in 0..worker.links.peers.len() {
        request_read_path(&mut worker.links, &worker.tables, number)?;
    }
    Ok(TableId(worker.tables.len() - 1))
}

/// The status of a table on each thread.
pub(crate) fn status_parts<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
) -> Result<Vec<StatusV2>, WorkerError> {
    let answers = worker.ask(&ControlRequest::about(table, &StatusFrame { table: 0 }), Recipients::All)?;
    let part = |ControlReply { link, payload, .. }: &ControlReply| {
        let nonsense = |error: control::ControlError| WorkerError::Protocol {
            peer: worker.links.peers[*link].name.clone(),
            what: error.to_string(),
        };
        control::open_as::<StatusV2>(2, payload).map_err(nonsense)
    };
    answers.iter().map(part).collect()
}

/// Asks every thread of every server over the present links. If a link is lost after its answer, it asks all again.
pub(crate) fn ask_of_links<N: Net>(
    worker: &mut Worker<N>,
    ask: &ControlRequest<'_>,
) -> Result<Vec<ControlReply>, WorkerError> {
    loop {
        let layout = worker.links.layout;
        let answers = worker.ask(ask, Recipients::All)?;
        let stands = |answer: &ControlReply| {
            let peer = &worker.links.peers[answer.link];
            peer.link.is_some() && peer.session.epoch == answer.epoch
        };
        if worker.links.layout == layout && answers.iter().all(stands) {
            return Ok(answers);
        }
    }
}

fn add_pusher(all: &mut Vec<PusherStatus>, part: &control::PusherV1) {
    let control::PusherV1 { pusher, incarnation, seq, rows, closed } = *part;
    let status = PusherStatus { pusher, incarnation, seq, rows, closed };
    match all.iter_mut().find(|known| known.pusher == pusher) {
        None => all.push(status),
        Some(known) => {
            let both = known.incarnation != incarnation || known.closed && closed;
            let newest = if (incarnation, seq, rows) > (known.incarnation, known.seq, known.rows) {
                status
            } else {
                *known
            };
            *known = PusherStatus { closed: newest.closed && both, ..newest };
        }
    }
}
