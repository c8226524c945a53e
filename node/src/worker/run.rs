//! A worker's place in a run: what it asks of the registry, over a link of its own, and the signs of life that it gives there
//! until it is dropped.

use super::tables::{Answer, Ask, To};
use super::{Worker, WorkerConfig};
use crate::control::{self, DropTableV1};
use crate::error::{Refusal, WorkerError};
use crate::limits::{BEAT_MAX, RUN_BYTES_MAX, TAKEN_PATIENCE};
use crate::message;
use crate::runs::{Decided, JoinV1, Run, RunAskV1, RunId, RunMember, RunToldV1, RunWhatV1, Setting, Want};
use crate::scheduler::member::Life;
use gannet_transport::Net;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a worker comes to a run with.
#[derive(Debug, Clone)]
pub struct RunWanted {
    /// The run's name.
    pub name: String,
    /// What is to become of it.
    pub want: Want,
    /// What all its workers must be given alike.
    pub settings: Vec<Setting>,
    /// Its tables, by their own names.
    pub tables: Vec<String>,
    /// What time it is, in seconds since 1970: for words about when a run ended, and for nothing else.
    pub at: u64,
}

/// See the module.
pub struct RunSeat<N: Net> {
    shared: Arc<Shared<N>>,
    id: RunId,
    decided: Decided,
}

struct Shared<N: Net> {
    worker: Mutex<Worker<N>>,
    ask: RunAskV1,
    over: Mutex<bool>,
    changed: Condvar,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server that keeps the registry of runs: the one whose address comes first in the order of text, in whatever order
/// they are named.
pub fn registrar(servers: &[String]) -> Option<&String> {
    servers.iter().min()
}

impl<N> RunSeat<N>
where
    N: Net + Send + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    /// Comes into a run on the servers of `config`, as worker `rank` in the life `config.incarnation`. Tables of an earlier
    /// generation, whose rows are to go, are dropped at all servers before it returns.
    ///
    /// # Errors
    /// A server is lost; or the run is another job's, is finished, or has another worker of this index.
    pub fn join(
        net: N,
        config: &WorkerConfig,
        rank: u32,
        wanted: RunWanted,
    ) -> Result<RunSeat<N>, WorkerError> {
        let life = Life { rank, incarnation: config.incarnation };
        let mut worker = Worker::connect(net.clone(), of_registry(config))?;
        let RunWanted { name, want, settings, tables, at } = wanted;
        let join = JoinV1 { want, settings, tables, at };
        let mut ask = RunAskV1 { name, life, what: RunWhatV1::Join(join) };
        if control::seal(&ask).len() > RUN_BYTES_MAX {
            let text = format!("the flags of run {:?} are too long for one message: name fewer", ask.name);
            return Err(WorkerError::Call(text));
        }
        let (generation, rows_since, decided, doomed) = worker.come(&ask)?;
        let id = RunId { name: ask.name.clone(), generation, rows_since };
        if !doomed.is_empty() {
            let all = WorkerConfig { run: None, one_thread: false, ..config.clone() };
            let mut everywhere = Worker::connect(net, all)?;
            doomed.iter().try_for_each(|table| everywhere.drop_table(table))?;
            let dropped = RunWhatV1::Dropped { tables: doomed };
            worker.run(&RunAskV1 { what: dropped, ..ask.clone() })?;
        }
        ask.what = RunWhatV1::Beat { generation };
        let (worker, over) = (Mutex::new(worker), Mutex::default());
        let shared = Arc::new(Shared { worker, ask, over, changed: Condvar::new() });
        let beating = shared.clone();
        let builder = std::thread::Builder::new().name("gannet-run".into());
        let begun = builder.spawn(move || beating.beat_on());
        begun.map_err(|error| WorkerError::Call(format!("the system gives no thread: {error}")))?;
        Ok(RunSeat { shared, id, decided })
    }
}

impl<N: Net> Shared<N> {
    fn ask(&self, what: RunWhatV1) -> Result<RunToldV1, WorkerError> {
        lock(&self.worker).run(&RunAskV1 { what, ..self.ask.clone() })
    }

    /// Gives signs of life until the end.
    fn beat_on(&self) {
        loop {
            match self.ask(self.ask.what.clone()) {
                Ok(_) => {}
                Err(error @ WorkerError::Refused { .. }) => {
                    tracing::error!(%error, "this worker is no longer in the run");
                    return;
                }
                // The worker's own links say when its servers are lost for good.
                Err(error) => tracing::warn!(%error, "the registry of runs does not answer"),
            }
            let over = lock(&self.over);
            let waited = self.changed.wait_timeout_while(over, BEAT_MAX, |over| !*over);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }
}

impl<N: Net> RunSeat<N> {
    /// Which run it is, and which generation of it.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// What was decided when this worker came.
    pub fn decided(&self) -> Decided {
        self.decided
    }

    /// Who is in the run.
    ///
    /// # Errors
    /// The server is lost, or another process has taken this worker's place.
    pub fn members(&self) -> Result<Vec<RunMember>, WorkerError> {
        match self.shared.ask(self.shared.ask.what.clone())? {
            RunToldV1::Members { members, .. } => Ok(members),
            other => Err(lock(&self.shared.worker).not_of_a_run(&other)),
        }
    }

    /// Says that this worker has trained what it had to.
    ///
    /// # Errors
    /// As [`members`](Self::members).
    pub fn done(&self) -> Result<(), WorkerError> {
        self.shared.ask(RunWhatV1::Done { generation: self.id.generation }).map(|_| ())
    }

    /// Says that the run is finished, with so many rows, at this time: all is trained, and the model is saved.
    ///
    /// # Errors
    /// As [`members`](Self::members).
    pub fn finish(&self, rows: u64, at: u64) -> Result<(), WorkerError> {
        let generation = self.id.generation;
        self.shared.ask(RunWhatV1::Finish { generation, rows, at }).map(|_| ())
    }
}

impl<N: Net> Drop for RunSeat<N> {
    fn drop(&mut self) {
        // A beat that waits for a server is not waited for.
        *lock(&self.shared.over) = true;
        self.shared.changed.notify_all();
    }
}

/// How the server is called that keeps the registry.
fn of_registry(config: &WorkerConfig) -> WorkerConfig {
    let servers = registrar(&config.servers).into_iter().cloned().collect();
    WorkerConfig { servers, one_thread: true, secondary: true, ..config.clone() }
}

impl Run {
    /// The runs that the servers of `config` know of.
    ///
    /// # Errors
    /// The server that keeps the registry is lost.
    pub fn all<N: Net>(net: N, config: &WorkerConfig) -> Result<Vec<Run>, WorkerError> {
        let mut worker = Worker::connect(net, of_registry(config))?;
        let life = Life { rank: u32::MAX, incarnation: 0 };
        match worker.run(&RunAskV1 { name: String::new(), life, what: RunWhatV1::List })? {
            RunToldV1::Runs { runs } => Ok(runs),
            other => Err(worker.not_of_a_run(&other)),
        }
    }
}

impl<N: Net> Worker<N> {
    /// Comes into a run; what was decided. One whose place another life has waits a moment for that one's session to end.
    fn come(&mut self, ask: &RunAskV1) -> Result<(u32, u32, Decided, Vec<String>), WorkerError> {
        let since = Instant::now();
        loop {
            match self.run(ask)? {
                RunToldV1::Joined { generation, rows_since, decided, doomed } => {
                    let decided = Decided::of_code(decided);
                    let nonsense = || self.not_of_a_run(&RunToldV1::Noted);
                    return Ok((generation, rows_since, decided.ok_or_else(nonsense)?, doomed));
                }
                RunToldV1::Taken { silent_ms } if since.elapsed() > TAKEN_PATIENCE => {
                    let (name, rank, seconds) = (&ask.name, ask.life.rank, silent_ms as f64 / 1000.0);
                    let text = format!(
                        "run {name:?}: worker {rank} is there already and lives ({seconds:.1} s ago): two workers have the \
                         same --task-index, or another job wants a name of its own (--run NAME)"
                    );
                    let peer = self.peers[0].name.clone();
                    let what = "a place in the run".to_owned();
                    return Err(WorkerError::Refused { peer, what, refusal: Refusal::Mismatch, text });
                }
                RunToldV1::Taken { .. } => std::thread::sleep(Duration::from_millis(50)),
                other => return Err(self.not_of_a_run(&other)),
            }
        }
    }

    /// Asks the registry of runs, which is in thread 0 of the first server.
    fn run(&mut self, ask: &RunAskV1) -> Result<RunToldV1, WorkerError> {
        let payload = |_: usize, _: u32| control::seal(ask);
        let answers = self.ask(&Ask::of(message::RUN, None, &payload), To::First(1))?;
        let Some(Answer { payload, .. }) = answers.first() else {
            return Err(self.not_of_a_run(&RunToldV1::Noted));
        };
        let peer = &self.peers[0].name;
        control::open(payload)
            .map_err(|error| WorkerError::Protocol { peer: peer.clone(), what: error.to_string() })
    }

    fn not_of_a_run(&self, told: &RunToldV1) -> WorkerError {
        let what = match told {
            RunToldV1::Noted => "no answer about a run",
            _ => "an answer about a run that was not asked for",
        };
        WorkerError::Protocol { peer: self.peers[0].name.clone(), what: what.to_owned() }
    }

    /// Drops a table at all servers: its rows are gone, and their memory and files are given back. No run of this worker's
    /// is put before the name.
    ///
    /// # Errors
    /// A peer is lost for good, or refuses.
    pub fn drop_table(&mut self, table: &str) -> Result<(), WorkerError> {
        let payload = |_: usize, _: u32| control::seal(&DropTableV1 { table: table.to_owned() });
        self.ask(&Ask::of(message::DROP_TABLE, None, &payload), To::All).map(|_| ())
    }
}
