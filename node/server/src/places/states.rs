//! The states of a checkpoint that are not rows: what the scheduler and the registry know of the run, and the counter
//! of incarnations. A data folder gets them as the files that a restart reads; a server in memory takes them over.

use crate::limits::INCARNATION_NAMED_MAX;
use crate::places::incarnations::Incarnations;
use crate::restore::error::RestoreError;
use gannet_core::{CheckpointDir, JobManifest, mix};
use gannet_jobs::TASKS;
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_wire::messages::runs::RUNS;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// States by name and run.
pub(crate) type ToldStates = BTreeMap<(String, String), Vec<u8>>;

impl StateHolders<'_> {
    pub(crate) fn has_changed(&self) -> bool {
        let runs = self.runs.as_deref().is_some_and(|runs| runs.has_changed());
        self.scheduler.has_changed() || runs || self.incarnations.changed
    }

    pub(crate) fn note_all_changed(&mut self) {
        self.scheduler.note_all_changed();
        self.incarnations.changed = true;
        if let Some(runs) = &mut self.runs {
            runs.note_all_changed();
        }
    }

    /// Goes on with the states of the server before.
    pub(crate) fn take_over(&mut self, states: &ToldStates, now: Duration) -> Result<(), String> {
        for ((name, run), bytes) in states {
            let taken = match (name.as_str(), &mut self.runs) {
                (TASKS, _) => self.scheduler.take_over(run, bytes, now),
                (RUNS, Some(runs)) => runs.take_over(bytes, now),
                (INCARNATIONS, _) => self.incarnations.take_over(bytes),
                _ => Err("this server does not know it".into()),
            };
            taken.map_err(|why| format!("state {name} of run {run:?}: {why}"))?;
        }
        Ok(())
    }
}

/// The name of a state in a checkpoint, beside [`TASKS`].
pub(crate) const INCARNATIONS: &str = "incarnations";

/// Thread 0's parts of a server that have such states. A server without tables has no registry.
pub(crate) struct StateHolders<'a> {
    pub(crate) scheduler: &'a mut Schedulers,
    pub(crate) runs: Option<&'a mut Registry>,
    pub(crate) incarnations: &'a mut Incarnations,
}

/// What this thread knows of runs. Only thread 0 knows something.
pub(crate) type RunStates<'a> = (Option<&'a Schedulers>, Option<&'a Registry>, Option<&'a Incarnations>);

/// A state's name, and its bytes.
pub(crate) type NamedState = (&'static str, Vec<u8>);

/// What a checkpoint of a run saves of these holders. Nothing is saved of what does not know the run. The counter of
/// incarnations is that of the server with the registry, so that a checkpoint has it once.
pub(crate) fn snapshot(
    run: &str,
    scheduler: &Schedulers,
    runs: Option<&Registry>,
    incarnations: &Incarnations,
) -> Vec<NamedState> {
    let tasks = scheduler.snapshot(run).map(|bytes| (TASKS, bytes));
    let runs = runs.and_then(|runs| runs.snapshot(run)).map(|bytes| (RUNS, bytes));
    let counter = runs.is_some().then(|| (INCARNATIONS, incarnations.snapshot()));
    tasks.into_iter().chain(runs).chain(counter).collect()
}

/// As [`snapshot`], on any thread: only thread 0 has these holders.
pub(crate) fn states_of_run(
    run: &str,
    (scheduler, runs, incarnations): RunStates<'_>,
) -> Vec<(String, Vec<u8>)> {
    let (Some(scheduler), Some(incarnations)) = (scheduler, incarnations) else { return Vec::new() };
    let states = snapshot(run, scheduler, runs, incarnations);
    states.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// The states of a checkpoint, read.
#[derive(Debug, Clone)]
pub(crate) struct SavedStates {
    folder: PathBuf,
    run: String,
    /// The tables of the checkpoint.
    tables: Vec<String>,
    /// The birth of a run that begins with these tables: every restore of them has the same.
    birth: u64,
    /// This server is the scheduler and has the registry of runs.
    whole: bool,
    tasks: Option<Vec<u8>>,
    runs: Option<Vec<u8>>,
    incarnations: Option<Vec<u8>>,
    /// The highest incarnation that a cursor of the checkpoint names.
    named: u64,
}

impl SavedStates {
    /// Reads the states of a checkpoint. `whole`: also those of the scheduler and of the registry. The counter of
    /// incarnations concerns every server.
    pub(crate) fn read(
        directory: &CheckpointDir,
        manifest: &JobManifest,
        whole: bool,
    ) -> Result<SavedStates, RestoreError> {
        let has = |name: &str| manifest.states.iter().any(|state| state.name == name);
        let read = |name: &str, wanted: bool| -> Result<Option<Vec<u8>>, RestoreError> {
            match wanted && has(name) {
                true => Ok(Some(directory.read_state(manifest, name)?)),
                false => Ok(None),
            }
        };
        let cursors = manifest.tables.iter().flat_map(|table| &table.cursors);
        let named = cursors.map(|cursor| cursor.incarnation).filter(|&number| number < INCARNATION_NAMED_MAX);
        Ok(SavedStates {
            folder: directory.folder(manifest.number),
            run: manifest.run.clone(),
            birth: manifest.tables.iter().fold(1, |birth, table| mix(birth ^ table.uid.low())).max(1),
            tables: manifest.tables.iter().map(|table| table.schema.name.clone()).collect(),
            whole,
            tasks: read(TASKS, whole)?,
            runs: read(RUNS, whole)?,
            incarnations: read(INCARNATIONS, true)?,
            named: named.max().unwrap_or(0),
        })
    }

    /// The run that saved them.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// Gives the states to a server's thread 0, and saves them if it has a data folder.
    pub(crate) fn restore(&self, holders: StateHolders<'_>, now: Duration) -> Result<(), RestoreError> {
        let StateHolders { scheduler, runs, incarnations } = holders;
        let failed = |name: &str, why: String| {
            let file = self.folder.join(format!("{name}.state"));
            RestoreError::State { file, why }
        };
        if let Some(tasks) = &self.tasks {
            scheduler.restore(&self.run, tasks, now).map_err(|why| failed(TASKS, why))?;
        }
        match (&self.runs, runs) {
            (Some(saved), Some(runs)) => runs.restore(saved, now).map_err(|why| failed(RUNS, why))?,
            // Imported rows, for example: no job has trained them yet.
            (None, Some(runs)) if self.whole => {
                runs.adopt(&self.run, &self.tables, self.birth).map_err(|why| failed(RUNS, why))?;
            }
            _ => {}
        }
        let named = self.named.max(scheduler.highest_incarnation());
        let restored = incarnations.restore(self.incarnations.as_deref(), named);
        restored.map_err(|why| failed(INCARNATIONS, why))
    }
}
