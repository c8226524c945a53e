//! The run of a process that keeps its rows in a folder.

use crate::failure::{Failure, SYSTEM};
use crate::flags::RunArgs;
use crate::report::account::Account;
use crate::runs::begin::{check_begin, intent, keep_scale, notes, print_decision, scale_of, wall_clock};
use gannet::runs::{Registry, RunAlone, RunDecision, RunId, RunSetting};
use gannet::storage::Store;
use gannet::train::{Data, Scale};

/// The run of a process that keeps its rows in a folder.
pub struct LocalRun {
    registry: Registry,
    id: RunId,
    decided: RunDecision,
    /// The scaling of the numbers in the rows.
    scale: Option<Scale>,
}

/// Joins the run of a folder. Without a folder no rows survive the process, so there are no runs. `again`: which data
/// is trained again.
pub fn alone(
    run: &RunArgs,
    store: &Store,
    (settings, scale): (impl FnOnce() -> Result<Vec<RunSetting>, Failure>, &Scale),
    (tables, again): (&[String], &str),
) -> Result<Option<LocalRun>, Failure> {
    check_begin(run)?;
    let Some(folder) = store.folder() else { return Ok(None) };
    let system = |text: String| Failure::new(SYSTEM, text);
    let mut registry = Registry::of_one_process(folder).map_err(|error| system(error.to_string()))?;
    let (tables, name, settings) = (tables.to_vec(), run.name(), settings()?);
    let joined = registry.join_alone(name, intent(run), settings, tables, wall_clock(), notes(scale));
    let RunAlone { id, decided, to_drop, notes } = joined.map_err(Failure::input)?;
    for table in &to_drop {
        let dropped = store.drop_table(table);
        dropped.map_err(|error| system(format!("table {table:?} cannot be dropped: {error}")))?;
    }
    registry.dropped_alone(run.name(), &to_drop).map_err(system)?;
    print_decision(&id, decided, intent(run), again);
    Ok(Some(LocalRun { registry, id, decided, scale: scale_of(&notes) }))
}

impl LocalRun {
    /// Applies the run's scaling to the data.
    pub fn scale(&self, data: &mut Data, test: Option<&mut Data>) {
        keep_scale(&self.id, self.scale.as_ref(), data, test);
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
