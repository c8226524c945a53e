//! The registry of runs: the settings of each run, its workers, and whether it is finished. Plain state: requests and
//! the time come in, and replies go out. A change is saved before it is answered.
//!
//! ```text
//! nothing --begin--> running --finish--> finished --continue--> running (the same rows, the next generation)
//!                       |                    +------fresh-----> running (new rows, the next generation)
//!                       +-- fresh, when no member is alive --> running (new rows, the next generation)
//! ```
//! A generation begins once. A worker that joins it later, joins it again, or comes when it is finished takes part in
//! that generation.

use crate::failure_detector::{FailureDetector, WorkerLimits};
use crate::limits::{RUN_MEMBERS_LISTED, RUNS_MAX};
use crate::runs::runs_file::{RUNS_FILE, runs_path};
use gannet_wire::StateFileError;
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::limits::{WORKER_TIMEOUT, WORKER_TIMEOUT_MAX};
use gannet_wire::messages::member::{WorkerIncarnation, WorkerState};
use gannet_wire::messages::runs::{Run, RunActionV1, RunId, RunIntent, RunReplyV1, RunRequestV1, RunSetting};
use gannet_wire::refusal::Refusal;
use rkyv::{Archive, Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunAdmission {
    pub(crate) incarnation: u64,
    /// It has trained its share.
    pub(crate) done: bool,
    pub(crate) state: WorkerState,
}

impl RunAdmission {
    /// A process that has just come.
    pub(crate) fn new(incarnation: u64, done: bool) -> RunAdmission {
        RunAdmission { incarnation, done, state: WorkerState::Live }
    }
}

#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    pub(crate) at: u64,
    pub(crate) rows: u64,
    /// Workers whose shares were not trained.
    pub(crate) missing: Vec<u32>,
}

/// A run as the registry stores it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct RunRecord {
    pub(crate) generation: u32,
    pub(crate) rows_since: u32,
    /// What the worker wanted that began this generation, and which worker it was.
    pub(crate) begun: RunIntent,
    pub(crate) by: WorkerIncarnation,
    pub(crate) settings: Vec<RunSetting>,
    pub(crate) tables: Vec<String>,
    pub(crate) to_drop: Vec<String>,
    pub(crate) notes: String,
    pub(crate) birth: u64,
    pub(crate) members: BTreeMap<u32, RunAdmission>,
    pub(crate) finished: Option<RunEnd>,
    /// The number of the job that trains this generation by splits. 0: none has begun.
    pub(crate) job: u64,
    /// Dead incarnations that are not yet fenced at every owner of shards.
    pub(crate) unfenced: BTreeSet<WorkerIncarnation>,
}

/// Over which session a worker last spoke to the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presence {
    pub(crate) worker: WorkerIncarnation,
    pub(crate) session: Option<u32>,
    /// Its session has ended.
    pub(crate) gone: bool,
    /// Batches that it has trained.
    pub(crate) batches: u64,
    /// It takes part in the job whose splits a scheduler hands out.
    pub(crate) in_job: bool,
}

/// Why a worker is refused that was declared dead.
fn worker_given_up(name: &str, rank: u32) -> String {
    format!(
        "run {name:?}: worker {rank} was silent for longer than --worker-timeout, or made no progress for several of \
         them, and has been given up; its tasks go to others: start it again to take part"
    )
}

/// The limits of a worker that may be silent for so many milliseconds; 0 if it has not said.
pub(crate) fn worker_limits(timeout_ms: u64) -> WorkerLimits {
    WorkerLimits::of(match timeout_ms {
        0 => WORKER_TIMEOUT,
        ms => Duration::from_millis(ms).min(WORKER_TIMEOUT_MAX),
    })
}

/// The registry of runs: see the module.
///
/// ```
/// use gannet_jobs::Registry;
/// use gannet_wire::{RunDecision, RunIntent};
///
/// # let folder = tempfile::tempdir()?;
/// // A process that has its tables itself, in this folder.
/// let mut registry = Registry::of_one_process(folder.path())?;
/// let (tables, at, notes) = (vec!["clicks".to_owned()], 1_800_000_000, String::new());
/// let joined = registry.join_alone("monday", RunIntent::Auto, Vec::new(), tables, at, notes)?;
/// assert_eq!((joined.decided, joined.id.generation), (RunDecision::Begun, 1));
/// registry.finish_alone(&joined.id, 500, at + 60)?; // 500 rows
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Registry {
    pub file: Option<PathBuf>,
    pub runs: BTreeMap<String, RunRecord>,
    pub(crate) presences: BTreeMap<(String, u32), Presence>,
    /// For each split that a worker holds, how many of its batches are acknowledged.
    pub acked: BTreeMap<(String, WorkerIncarnation), Vec<(u64, u64)>>,
    /// Says which workers are alive.
    pub detector: FailureDetector,
    /// When runs finished, for those that finished since the registry was opened.
    pub finished: BTreeMap<String, Duration>,
    /// Runs that have changed since somebody asked.
    changed: BTreeSet<String>,
    /// When something was last heard of a run, and since when nothing was heard of the others: on the detector's clock.
    pub heard: BTreeMap<String, Duration>,
    pub opened: Duration,
    /// Runs that were forgotten since somebody asked.
    pub forgotten: Vec<String>,
}

pub(crate) type RunRefusal = (Refusal, String);

impl Registry {
    /// Opens the registry of a folder, or one in memory.
    ///
    /// # Errors
    /// The registry's file cannot be read.
    pub fn open(
        folder: Option<&Path>,
        detector: &FailureDetector,
        now: Duration,
    ) -> Result<Registry, StateFileError> {
        let file = folder.map(runs_path);
        let runs = file.as_deref().map_or(Ok(None), |file| RUNS_FILE.load(file))?.unwrap_or_default();
        let (detector, opened) = (detector.clone(), detector.clock(now));
        let mut registry = Registry { file, runs, detector, opened, ..Registry::default() };
        let names: Vec<String> = registry.runs.keys().cloned().collect();
        names.iter().for_each(|name| registry.wait_for_members(name, now));
        Ok(registry)
    }

    /// Gives the members of a running run time to report: they may be alive.
    fn wait_for_members(&mut self, name: &str, now: Duration) {
        let Some(run) = self.runs.get(name).filter(|run| run.finished.is_none()) else { return };
        for (&rank, member) in run.members.iter().filter(|(_, member)| run.awaits(member)) {
            let worker = WorkerIncarnation { rank, incarnation: member.incarnation };
            self.detector.expect(worker, worker_limits(0), now);
            let presence = Presence { worker, session: None, gone: false, batches: 0, in_job: false };
            self.presences.insert((name.to_owned(), rank), presence);
        }
    }

    /// What this registry knows of a run, as a checkpoint has it (its state `runs`). `None`: it does not know the run.
    pub fn snapshot(&self, name: &str) -> Option<Vec<u8>> {
        let run = self.runs.get(name)?;
        Some(RUNS_FILE.encode(&BTreeMap::from([(name.to_owned(), run.clone())])))
    }

    /// The birth of a run by what [`snapshot`](Self::snapshot) has made. 0: it is not known.
    ///
    /// # Errors
    /// The bytes are no runs: in words.
    pub fn birth_in(snapshot: &[u8], name: &str) -> Result<u64, String> {
        Ok(RUNS_FILE.decode(snapshot)?.get(name).map_or(0, |run| run.birth))
    }

    /// The run of this name in a snapshot: which rows it trains now, and what it remembers of its data. `None`: the
    /// registry does not know it.
    ///
    /// # Errors
    /// The bytes are no runs: in words.
    pub fn run_in(snapshot: &[u8], name: &str) -> Result<Option<(RunId, String)>, String> {
        let known = RUNS_FILE.decode(snapshot)?;
        Ok(known.get(name).map(|run| {
            let RunRecord { generation, rows_since, birth, .. } = *run;
            (RunId { name: name.to_owned(), generation, rows_since, birth }, run.notes.clone())
        }))
    }

    /// Takes over the runs of a checkpoint, as [`snapshot`](Self::snapshot) made them. In a data folder they are also
    /// saved. Other runs that are known here stay.
    ///
    /// # Errors
    /// The bytes are no runs, there are too many runs, or they cannot be saved: in words.
    pub fn restore(&mut self, bytes: &[u8], now: Duration) -> Result<(), String> {
        self.insert(bytes, now, |run| run.settings.retain(|setting| !setting.is_of_place()))
    }

    /// Takes over the runs of the registry before, whose server has died. Its workers may be alive.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn take_over(&mut self, bytes: &[u8], now: Duration) -> Result<(), String> {
        self.insert(bytes, now, |_| ())
    }

    fn insert(&mut self, bytes: &[u8], now: Duration, change: impl Fn(&mut RunRecord)) -> Result<(), String> {
        for (name, mut run) in RUNS_FILE.decode(bytes)? {
            RunId::check_name(&name)?;
            change(&mut run);
            let before = self.runs.insert(name.clone(), run);
            if self.runs.len() > RUNS_MAX {
                self.runs.remove(&name);
                return Err(format!(
                    "{RUNS_MAX} runs are known here, the limit: delete some with `gannet forget --run NAME`, or begin \
                     with an empty data folder"
                ));
            }
            self.save(&name, before).map_err(|(_, why)| why)?;
            self.wait_for_members(&name, now);
        }
        Ok(())
    }

    /// Takes over tables of a run that no registry knows, as after an import. The first process that comes to the run
    /// decides its settings. Tables of other names stay unknown.
    ///
    /// # Errors
    /// The registry cannot be saved: in words.
    pub fn adopt(&mut self, name: &str, tables: &[String], birth: u64) -> Result<(), String> {
        let own = |table: &String| {
            let own = table.strip_prefix(name)?.strip_prefix('.')?;
            let generation = own.split_once('.').and_then(|(since, own)| Some((since.parse().ok()?, own)));
            Some(generation.map_or((1, own.to_owned()), |(since, own)| (since, own.to_owned())))
        };
        let own: Vec<(u32, String)> = tables.iter().filter_map(own).collect();
        if RunId::check_name(name).is_err() || own.is_empty() || self.runs.contains_key(name) {
            return Ok(());
        }
        let generation = own.iter().map(|(since, _)| *since).max().unwrap_or(1);
        let run = RunRecord {
            generation,
            rows_since: generation,
            begun: RunIntent::Auto,
            by: WorkerIncarnation { rank: 0, incarnation: NO_INCARNATION },
            settings: Vec::new(),
            tables: own.into_iter().map(|(_, own)| own).collect(),
            to_drop: Vec::new(),
            notes: String::new(),
            birth,
            members: BTreeMap::new(),
            finished: None,
            job: 0,
            unfenced: BTreeSet::new(),
        };
        self.runs.insert(name.to_owned(), run);
        self.save(name, None).map_err(|(_, why)| why)
    }

    /// Answers a request. `open`: the tables that this server has open.
    pub fn answer(
        &mut self,
        request: RunRequestV1,
        session: u32,
        now: Duration,
        open: &[String],
    ) -> Result<RunReplyV1, RunRefusal> {
        let RunRequestV1 { name, incarnation, what } = request;
        // If the server was stopped, workers could not be heard. That must not count before this answer.
        self.detector.wake(now);
        match what {
            RunActionV1::List => return Ok(RunReplyV1::Runs { runs: self.list(now) }),
            RunActionV1::Join(join) => return self.join(&name, incarnation, join, session, now, open),
            RunActionV1::Dropped { tables } => return self.dropped(&name, &tables),
            // The registry has no tables: who asks it is told so.
            RunActionV1::TablesV2 => return Ok(RunReplyV1::TablesV2 { tables: Vec::new() }),
            RunActionV1::Forget => return self.forget(&name, now),
            RunActionV1::Withdraw { generation } => return self.withdraw(&name, generation, incarnation),
            RunActionV1::Look { tables } => {
                let left = self.left_behind(&name, &tables, open);
                let (known, left) =
                    (self.runs.contains_key(&name), left.into_iter().map(|(_, t)| t).collect());
                return Ok(RunReplyV1::Seen { known, left });
            }
            RunActionV1::BeatV2 { generation, beat } => {
                self.member(&name, generation, incarnation)?;
                self.note_beat(&name, incarnation, session, beat, now);
            }
            RunActionV1::Fenced { generation, dead } => {
                self.member(&name, generation, incarnation)?;
                self.fenced(&name, dead)?;
            }
            RunActionV1::Leave { generation } => {
                self.member(&name, generation, incarnation)?;
                self.leave(&name, incarnation)?;
            }
            RunActionV1::Done { generation } => {
                self.member(&name, generation, incarnation)?;
                self.hear(&name, incarnation, session, None, now);
                self.excuse_all(&name, now);
                self.change(&name, |run| {
                    if let Some(member) = run.members.get_mut(&incarnation.rank) {
                        member.done = true;
                    }
                })?;
            }
            RunActionV1::JobV2 { generation, number, unfenced } => {
                self.member(&name, generation, incarnation)?;
                self.note_job(&name, number)?;
                self.note_unfenced(&name, unfenced)?;
            }
            RunActionV1::Finish { generation, rows, at, missing } => {
                self.member(&name, generation, incarnation)?;
                return self.finish(&name, generation, incarnation.rank, RunEnd { at, rows, missing }, now);
            }
        }
        let finished = self.runs.get(&name).is_some_and(|run| run.finished.is_some());
        let (members, fence) = (self.members(&name, now), self.fences_of(&name, incarnation, now));
        Ok(RunReplyV1::OrdersV2 { finished, members, fence, failed: None })
    }

    /// Notes the number of the job that trains a run by splits, or refuses another job. A scheduler that has lost its
    /// state would begin the job again, on the rows that it has trained.
    fn note_job(&mut self, name: &str, number: u64) -> Result<(), RunRefusal> {
        match self.runs.get(name).map_or(0, |run| run.job) {
            0 => self.change(name, |run| run.job = number),
            known if known == number => Ok(()),
            known => Err((
                Refusal::Mismatch,
                format!(
                    "run {name:?}: its rows were trained by job {known}, but the scheduler has begun job {number}: it was \
                     started without the state of the job, and would train the same records again; start the scheduler on \
                     its --data-dir as it was, or begin the run anew with --fresh"
                ),
            )),
        }
    }

    /// Checks that an incarnation of a worker is in a generation of a run.
    fn member(&self, name: &str, generation: u32, incarnation: WorkerIncarnation) -> Result<(), RunRefusal> {
        let unknown =
            || (Refusal::Unknown, format!("run {name:?}: worker {} is not in it", incarnation.rank));
        let run = self.runs.get(name).ok_or_else(unknown)?;
        if run.generation > generation {
            let text = format!(
                "run {name:?} was started again: worker {} belongs to the run before",
                incarnation.rank
            );
            return Err((Refusal::Fenced, text));
        }
        match run.members.get(&incarnation.rank) {
            Some(known) if known.incarnation == incarnation.incarnation => match known.state {
                WorkerState::Dead => Err((Refusal::Fenced, worker_given_up(name, incarnation.rank))),
                WorkerState::Live | WorkerState::Left => Ok(()),
            },
            Some(known) if known.incarnation > incarnation.incarnation => {
                let text = format!(
                    "run {name:?}: another process has taken the place of worker {}",
                    incarnation.rank
                );
                Err((Refusal::Fenced, text))
            }
            _ => Err(unknown()),
        }
    }

    fn list(&self, now: Duration) -> Vec<Run> {
        let run = |(name, run): (&String, &RunRecord)| {
            let mut members = self.members(name, now);
            members.truncate(if run.finished.is_some() { 0 } else { RUN_MEMBERS_LISTED });
            Run {
                name: name.clone(),
                generation: run.generation,
                rows_since: run.rows_since,
                finished: run.finished.is_some(),
                rows: run.finished.as_ref().map_or(0, |finished| finished.rows),
                finished_at: run.finished.as_ref().map_or(0, |finished| finished.at),
                members,
            }
        };
        self.runs.iter().map(run).collect()
    }

    /// Changes a run. If the change cannot be saved, the run stays as it was.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut RunRecord)) -> Result<(), RunRefusal> {
        let Some(before) = self.runs.get(name).cloned() else { return Ok(()) };
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        self.runs.insert(name.to_owned(), after);
        self.save(name, Some(before))
    }

    /// Whether a run has changed that [`take_changed`](Self::take_changed) has not taken.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Hands out what this registry knows of each run that has changed since the last call, as
    /// [`snapshot`](Self::snapshot) makes it. Nothing: the run is gone.
    pub fn take_changed(&mut self, mut take: impl FnMut(&str, Vec<u8>)) {
        for name in std::mem::take(&mut self.changed) {
            take(&name, self.snapshot(&name).unwrap_or_default());
        }
    }

    /// All runs count as changed.
    pub fn note_all_changed(&mut self) {
        self.changed.extend(self.runs.keys().cloned());
    }

    pub fn save(&mut self, name: &str, before: Option<RunRecord>) -> Result<(), RunRefusal> {
        self.changed.insert(name.to_owned());
        let Some(file) = &self.file else { return Ok(()) };
        RUNS_FILE.save(file, &self.runs).map_err(|error| {
            match before {
                Some(before) => self.runs.insert(name.to_owned(), before),
                None => self.runs.remove(name),
            };
            (Refusal::NoSpace, error.to_string())
        })
    }

    pub fn dropped(&mut self, name: &str, tables: &[String]) -> Result<RunReplyV1, RunRefusal> {
        self.change(name, |run| run.to_drop.retain(|to_drop| !tables.contains(to_drop)))?;
        Ok(RunReplyV1::Noted)
    }
}
