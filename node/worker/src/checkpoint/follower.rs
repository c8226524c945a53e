//! A follower of a job: it cuts the tables of a run again and again, and reads what has changed between two cuts.

use crate::calls::cut_client::{CutName, cut_step};
use crate::checkpoint::coordinator::{Freeze, draw_cut, freeze_servers, of_coordinator, tables_of_cut};
use crate::checkpoint::cut_manifest::{MarkedCut, cursor};
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::links::control::all_threads;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::worker::Worker;
use gannet_core::{Cursor, Schema};
use gannet_jobs::runs::registry::Registry;
use gannet_transport::{Net, Poll};
use gannet_wire::frames::cuts::{CutRowsFrame, ReadCutFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::messages::cuts::*;
use gannet_wire::messages::runs::{RUNS, RunId};
use gannet_wire::random::draw_number;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// The longest time for which pushes wait for the cut of a follower.
const FREEZE: Duration = Duration::from_millis(250);

/// After so long without a cut it opens the tables of servers that have none open. Workers that come back open them
/// earlier, all of them: a checkpoint has the tables that are open.
const OPEN_AFTER: Duration = Duration::from_secs(5);

/// After so long without a cut a table that the last one had counts as dropped.
const DROPPED_AFTER: Duration = Duration::from_secs(10);

/// How often a cut is tried that servers refuse because they mark another one, and the longest pause before the next
/// try.
const TRIES: u32 = 5;
const RETRY_MAX: Duration = Duration::from_millis(40);

/// Rows of one shard that have changed, or keys whose rows are gone.
#[derive(Clone, Debug)]
pub struct FollowedRows {
    /// The place of the table among those of the cut.
    pub table: usize,
    /// The keys.
    pub keys: Vec<u64>,
    /// [`Schema::floats`] for each key. `None`: the rows of the keys were deleted.
    pub rows: Option<Vec<f32>>,
}

/// What [`Follower::cut`] has read: the state of a run at one moment, or what has changed since the cut before. It has
/// each push on all its shards, or on none.
#[derive(Clone, Debug)]
pub struct FollowedCut {
    /// The schemas of the tables on the servers, in the order of their names there.
    pub tables: Vec<Schema>,
    /// The cut has all rows. Otherwise it has what changed since the cut before.
    pub is_full: bool,
    /// Deletions and rows. A key whose row was deleted and made again is among the rows, and not among the deletions.
    pub rows: Vec<FollowedRows>,
    /// The last push of each pusher that is in the rows: the place of the table among those of the cut, and where the
    /// pusher is in it.
    pub cursors: Vec<(usize, Cursor)>,
    /// The run and what it remembers of its data, if the servers know it.
    pub run: Option<(RunId, String)>,
    /// The same, as the servers store it: for a server that mirrors them.
    pub snapshot: Option<Vec<u8>>,
    /// The commands of all shards together, from the birth of their tables on. If the servers follow others themselves,
    /// this and the history are those of the first ones.
    pub commands: u64,
    /// Tells histories of the rows apart: it changes when rows of the run were made anew, or restored.
    pub history: u64,
    /// The time of the net before the cut was marked: what was acknowledged before is in the cut.
    pub at: Duration,
    /// How old the rows were then. More than 0 if the servers follow others themselves.
    pub age: Duration,
}

/// A follower of the tables of a run.
///
/// ```
/// use gannet_core::{Schema, Write};
/// use gannet_worker::Follower;
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// use gannet_optim::{Add, Rule};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let mut worker = Worker::connect(Transports::new(), config)?;
/// let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
/// worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0])?;
///
/// let mut follower = Follower::new(Transports::new(), &WorkerConfig::reader([server.addr()]), "");
/// let first = follower.cut(&[])?;
/// assert!(first.is_full && first.rows.iter().map(|of| of.keys.len()).sum::<usize>() == 2);
///
/// worker.push(table, &[8], Write::Gradient, &[5.0])?;
/// worker.delete(table, &[7])?;
/// let next = follower.cut(&[])?;
/// let deleted = next.rows.iter().filter(|of| of.rows.is_none()).flat_map(|of| &of.keys);
/// let changed = next.rows.iter().filter_map(|of| of.rows.as_ref()).flatten();
/// assert!(!next.is_full && deleted.eq(&[7]) && changed.eq(&[7.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Follower<N: Net> {
    net: N,
    config: WorkerConfig,
    run: String,
    /// The connections. `None`: they are made for the next cut.
    worker: Option<Worker<N>>,
    /// Where the last cut ends: the names of its tables, and places in the history of their shards.
    last: Option<(Vec<String>, Vec<CutBaseV1>)>,
    /// The tables of the last cut, and the rows of which run they were.
    known: Vec<Schema>,
    known_run: Option<RunId>,
    /// Since when all cuts have failed.
    failing: Option<Duration>,
}

impl<N: Net> Follower<N> {
    /// A follower of the tables of `run` on the servers of `config`; empty: of all tables.
    pub fn new(net: N, config: &WorkerConfig, run: &str) -> Follower<N> {
        let config = of_coordinator(config);
        Follower {
            net,
            config,
            run: run.to_owned(),
            worker: None,
            last: None,
            known: Vec::new(),
            known_run: None,
            failing: None,
        }
    }

    /// Cuts the tables, and reads what has changed since the last cut that was read. `batch_tables`: those to which
    /// each batch pushes, by their names on the servers; the cut has a batch in all of them or in none.
    ///
    /// # Errors
    /// A server cannot be reached, another cut is being marked, or pushes stay incomplete. The next cut begins where
    /// the last one that was read ends.
    pub fn cut(&mut self, batch_tables: &[String]) -> Result<FollowedCut, WorkerError> {
        for _ in 1..TRIES {
            match self.cut_once(batch_tables) {
                Err(WorkerError::Refused { refusal: Refusal::Cut, .. }) => {
                    let pause = draw_number().unwrap_or_default() % RETRY_MAX.as_micros() as u64;
                    self.net.poll()?.wait(Duration::from_micros(pause), &mut Vec::new())?;
                }
                other => return other,
            }
        }
        self.cut_once(batch_tables)
    }

    /// One try of a cut. Servers may refuse it while they mark another one.
    fn cut_once(&mut self, batch_tables: &[String]) -> Result<FollowedCut, WorkerError> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.connect()?,
        };
        let mut read = self.read(&mut worker, batch_tables);
        if read.is_ok() && self.last.is_none() {
            // Some shards have another history now: the copy begins anew.
            read = self.read(&mut worker, batch_tables);
        }
        // After an error the servers may have the cut of this session: it ends with the session.
        self.worker = read.is_ok().then_some(worker);
        self.failing = if read.is_ok() { None } else { self.failing.or_else(|| Some(self.net.now())) };
        read
    }

    /// Connects to the servers. If those that were started again on their folders have no workers that open their
    /// tables, it opens them.
    fn connect(&self) -> Result<Worker<N>, WorkerError> {
        let mut worker = Worker::connect(self.net.clone(), self.config.clone())?;
        let opens = self.waited() >= OPEN_AFTER;
        for schema in self.known.iter().filter(|_| opens) {
            // If its rows are gone, the workers of the job say so. The cut has the tables that there are.
            if let Err(error) = worker.open_held_table(schema) {
                tracing::debug!(table = schema.name, %error, "a table that was followed cannot be opened");
            }
        }
        Ok(worker)
    }

    /// For how long all cuts have failed.
    fn waited(&self) -> Duration {
        self.failing.map_or(Duration::ZERO, |since| self.net.now().saturating_sub(since))
    }

    /// Refuses a cut of the same rows as before that lacks a table: a server that was started again has not opened it.
    /// After a while the table counts as dropped.
    fn must_have_known(&self, names: &[String], run: Option<&RunId>) -> Result<(), WorkerError> {
        let rows = |run: &RunId| (run.birth, run.rows_since);
        let missing = self.known.iter().find(|table| !names.contains(&table.name));
        match missing.filter(|_| self.known_run.as_ref().map(rows) == run.map(rows)) {
            Some(table) if self.waited() < DROPPED_AFTER => Err(WorkerError::Cut(format!(
                "table {:?} is not open, and was before: a server was started again; begin again",
                table.name
            ))),
            _ => Ok(()),
        }
    }

    /// How old the rows of a cut are now.
    pub fn age(&self, cut: &FollowedCut) -> Duration {
        self.net.now().saturating_sub(cut.at) + cut.age
    }

    /// Forgets where the last cut ends: the next one is full.
    pub fn begin_anew(&mut self) {
        self.last = None;
    }

    /// One cut. If it is a delta for some shards and full for others, the place of the last cut is forgotten.
    fn read(&mut self, worker: &mut Worker<N>, batch_tables: &[String]) -> Result<FollowedCut, WorkerError> {
        let number = draw_cut()?;
        let cut = CutName { number, run: &self.run };
        let freeze = Freeze { limit: FREEZE, batch_tables, for_follower: true };
        let frozen = freeze_servers(worker, &self.net, cut, &freeze)?;
        let tables = tables_of_cut(&frozen, &self.run)?;
        let names: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
        let known = self.last.clone().filter(|(before, _)| *before == names);
        let mark = FollowerMarkV1 {
            tables: names.clone(),
            bases: known.as_ref().map(|(_, bases)| bases.clone()).unwrap_or_default(),
        };
        let at = self.net.now();
        let marked = cut_step(worker, cut, &CutActionV1::MarkForFollower(mark))?;
        cut_step(worker, cut, &CutActionV1::Release)?;
        let marked = MarkedCut::of(marked, &tables, batch_tables)?;
        let schemas = schemas_of(&tables, &marked)?;
        let run = run_of(&marked, &self.run)?;
        self.must_have_known(&names, run.as_ref().map(|(run, _)| run))?;
        let rows = read_rows(worker, number, &schemas);
        // Before an error of the rows: the place of the cut before is still good then.
        self.last = known;
        let rows = rows?;
        cut_step(worker, cut, &CutActionV1::End)?;
        self.known.clone_from(&schemas);
        self.known_run = run.as_ref().map(|(run, _)| run.clone());
        let before = self.last.take().map(|(_, bases)| bases);
        let is_delta = before.is_some_and(|before| goes_on(&before, &tables, &marked));
        let is_full = !is_delta && marked.shards.values().all(|shard| shard.from == 0);
        self.last = (is_delta || is_full).then(|| (names, bases(&tables, &marked)));
        let own = (marked.shards.values().map(|shard| shard.to).sum(), history(&tables, &marked));
        let (commands, history) = first_position(&marked).unwrap_or(own);
        Ok(FollowedCut {
            is_full,
            rows,
            cursors: marked.pushers.iter().map(|(of, push)| (of.0 as usize, cursor(push))).collect(),
            run,
            snapshot: state(&marked, RUNS).map(<[u8]>::to_vec),
            commands,
            history,
            tables: schemas,
            at,
            age: age(&marked),
        })
    }
}

/// The schemas of the tables of a cut that has all their shards.
fn schemas_of(tables: &[CutTableV1], marked: &MarkedCut) -> Result<Vec<Schema>, WorkerError> {
    let schema = |(place, table): (u32, &CutTableV1)| {
        let name = &table.name;
        let schema = Schema::decode(&table.schema)
            .ok_or_else(|| WorkerError::Call(format!("the schema of table {name:?} cannot be read")))?;
        match (0..schema.shards).all(|shard| marked.shards.contains_key(&(place, shard))) {
            true => Ok(schema),
            false => Err(WorkerError::Cut(format!(
                "table {name:?}: some shards are open on none of these servers: name all servers of the job"
            ))),
        }
    };
    (0..).zip(tables).map(schema).collect()
}

/// Where the cut ends.
fn bases(tables: &[CutTableV1], marked: &MarkedCut) -> Vec<CutBaseV1> {
    let base = |shard: &CutShardV1| {
        let CutShardV1 { table, shard, birth, epoch, to: command, .. } = *shard;
        CutBaseV1 { table, uid: tables[table as usize].uid, shard, birth, epoch, command }
    };
    marked.shards.values().map(base).collect()
}

/// Whether the cut has in each shard what changed since these places. A shard that was empty there is cut in full.
fn goes_on(before: &[CutBaseV1], tables: &[CutTableV1], marked: &MarkedCut) -> bool {
    marked.shards.values().all(|shard| {
        let is_it = |base: &&CutBaseV1| (base.table, base.shard) == (shard.table, shard.shard);
        before.iter().find(is_it).is_some_and(|base| {
            let uid = tables[shard.table as usize].uid;
            (base.uid, base.birth, base.command) == (uid, shard.birth, shard.from)
        })
    })
}

/// Tells the history of these rows apart from others.
fn history(tables: &[CutTableV1], marked: &MarkedCut) -> u64 {
    let births = marked.shards.values().flat_map(|shard| [shard.birth, shard.epoch]);
    let uids = tables.iter().map(|table| u64::from_le_bytes(std::array::from_fn(|at| table.uid[at])));
    births.chain(uids).fold(0, |digest, word| gannet_core::mix(digest ^ word))
}

/// What the servers say under this name.
fn state<'a>(marked: &'a MarkedCut, name: &str) -> Option<&'a [u8]> {
    marked.states.iter().find(|(of, _)| of == name).map(|(_, bytes)| &bytes[..])
}

/// How old the rows were when they were cut: more than 0 if the server follows others itself.
fn age(marked: &MarkedCut) -> Duration {
    let bytes = state(marked, AGE).and_then(|bytes| bytes.try_into().ok());
    Duration::from_nanos(bytes.map_or(0, u64::from_le_bytes))
}

/// The commands and the history of the rows on the servers of the job, if the server follows others itself.
fn first_position(marked: &MarkedCut) -> Option<(u64, u64)> {
    let (commands, history) = state(marked, ROWS_POSITION)?.split_first_chunk()?;
    Some((u64::from_le_bytes(*commands), u64::from_le_bytes(history.try_into().ok()?)))
}

/// What the servers know of the run.
fn run_of(marked: &MarkedCut, run: &str) -> Result<Option<(RunId, String)>, WorkerError> {
    for (_, bytes) in marked.states.iter().filter(|(name, _)| name == RUNS) {
        let known = Registry::run_in(bytes, run).map_err(|why| {
            WorkerError::Call(format!("what a server knows of run {run:?} cannot be read: {why}"))
        })?;
        if known.is_some() {
            return Ok(known);
        }
    }
    Ok(None)
}

/// Reads the rows of a cut from all threads.
fn read_rows<N: Net>(
    worker: &mut Worker<N>,
    cut: u64,
    schemas: &[Schema],
) -> Result<Vec<FollowedRows>, WorkerError> {
    let mut threads = all_threads(&worker.links);
    let mut all = Vec::new();
    while !threads.is_empty() {
        let replies = worker.ask(&ControlRequest::new(&ReadCutFrame { cut }), Recipients::Links(&threads))?;
        if replies.len() != threads.len() {
            return Err(WorkerError::Cut("a server restarted while its rows were read: begin again".into()));
        }
        for ControlReply { link, head, payload, .. } in &replies {
            let nonsense = |what: String| worker.links.nonsense(*link, what);
            let answer = CutRowsFrame::decode(head).map_err(|error| nonsense(error.to_string()))?;
            if answer.flags & CutRowsFrame::LAST != 0 {
                threads.retain(|thread| thread != link);
            }
            if answer.rows > 0 {
                all.push(
                    block(&answer, payload, schemas).ok_or_else(|| {
                        nonsense("rows of a cut that are not rows of its tables".to_owned())
                    })?,
                );
            }
        }
    }
    Ok(all)
}

/// The rows of an answer. `None`: they are not rows of these tables.
fn block(answer: &CutRowsFrame, payload: &[u8], schemas: &[Schema]) -> Option<FollowedRows> {
    let CutRowsFrame { rows, floats, table, flags, .. } = *answer;
    let (rows, table) = (rows as usize, table as usize);
    let schema = schemas.get(table)?;
    let is_deleted = flags & CutRowsFrame::DELETED != 0;
    let want = if is_deleted { 0 } else { schema.floats() };
    let (keys, values) = payload.split_at_checked(rows * 8)?;
    if floats as usize != want || values.len() < rows * want * 4 {
        return None;
    }
    let float = |bytes: &[u8]| f32::from_le_bytes(std::array::from_fn(|at| bytes[at]));
    let key = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
    let values = (!is_deleted).then(|| values[..rows * want * 4].chunks_exact(4).map(float).collect());
    Some(FollowedRows { table, keys: keys.chunks_exact(8).map(key).collect(), rows: values })
}
