//! The run of a process that keeps its rows in a folder.

use crate::failure::{Failure, SYSTEM};
use crate::flags::RunArgs;
use crate::report::account::Account;
use crate::runs::begin::{RunReading, check_begin, intent, notes, print_decision, wall_clock};
use gannet::runs::{Registry, RunAlone, RunDecision, RunId, RunSetting};
use gannet::storage::Store;
use gannet::train::Data;

/// The run of a process that keeps its rows in a folder.
pub struct LocalRun {
    registry: Registry,
    id: RunId,
    decided: RunDecision,
    /// How the data of the rows was read.
    reading: RunReading,
}

/// Joins the run of a folder. Without a folder no rows survive the process, so there are no runs. `again`: which data
/// is trained again.
pub fn alone(
    run: &RunArgs,
    store: &Store,
    (settings, data): (impl FnOnce() -> Result<Vec<RunSetting>, Failure>, &Data),
    (tables, again): (&[String], &str),
) -> Result<Option<LocalRun>, Failure> {
    check_begin(run)?;
    let Some(folder) = store.folder() else { return Ok(None) };
    let system = |text: String| Failure::new(SYSTEM, text);
    let mut registry = Registry::of_one_process(folder).map_err(|error| system(error.to_string()))?;
    let (tables, name, settings) = (tables.to_vec(), run.name(), settings()?);
    let joined =
        registry.join_alone(name, intent(run), settings, tables, wall_clock(), notes(data, Vec::new()));
    let RunAlone { id, decided, to_drop, notes } = joined.map_err(Failure::input)?;
    for table in &to_drop {
        let dropped = store.drop_table(table);
        dropped.map_err(|error| system(format!("table {table:?} cannot be dropped: {error}")))?;
    }
    registry.dropped_alone(run.name(), &to_drop).map_err(system)?;
    print_decision(&id, decided, intent(run), again);
    Ok(Some(LocalRun { registry, id, decided, reading: RunReading::of(&notes) }))
}

impl LocalRun {
    /// Makes the data be read as that of the run.
    pub fn keep_reading(&self, data: &mut Data, test: Option<&mut Data>) {
        self.reading.keep(&self.id, data, test);
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The run's part of the report.
    pub fn account(&self) -> Account {
        Account { run: Some((self.id.clone(), self.decided)), untrained: Some(0), ..Account::default() }
    }

    /// Marks the run as finished, with so many rows.
    pub fn finish(mut self, rows: u64) -> Result<(), Failure> {
        let finished = self.registry.finish_alone(&self.id, rows, wall_clock());
        finished.map_err(|why| Failure::new(SYSTEM, why))
    }
}
