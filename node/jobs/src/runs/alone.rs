//! Runs of a process that has its tables itself, without servers: nobody else is in them.

use crate::failure_detector::FailureDetector;
use crate::runs::registry::{Registry, RunEnd};
use gannet_wire::StateFileError;
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::messages::runs::{JoinV1, RunDecision, RunId, RunIntent, RunReplyV1, RunSetting};
use std::path::Path;
use std::time::Duration;

/// The decision about a process that has its tables itself, without servers. [`Registry`] has an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalRunDecision {
    /// Which run it is.
    pub id: RunId,
    /// What was decided.
    pub decided: RunDecision,
    /// Tables of earlier generations, which the process must drop.
    pub to_drop: Vec<String>,
    /// What the run remembers of its data.
    pub notes: String,
}

impl Registry {
    /// Opens the registry of a process that has its tables itself: nobody else can be in its runs.
    ///
    /// # Errors
    /// The registry's file cannot be read.
    pub fn of_one_process(folder: &Path) -> Result<Registry, StateFileError> {
        let mut registry = Registry::open(Some(folder), &FailureDetector::default(), Duration::ZERO)?;
        registry.presences.clear();
        Ok(registry)
    }

    /// Adds that process to a run.
    ///
    /// # Errors
    /// The reason, in words for the user.
    pub fn join_alone(
        &mut self,
        name: &str,
        want: RunIntent,
        settings: Vec<RunSetting>,
        tables: Vec<String>,
        at: u64,
        notes: String,
    ) -> Result<LocalRunDecision, String> {
        let Some(birth) = gannet_wire::random::draw_number() else {
            return Err("the system gives no random bytes".into());
        };
        if let Some(why) = self.refuses_alone(name, want, &settings) {
            return Err(why);
        }
        let before = self.runs.get(name).and_then(|run| run.members.get(&0)).map_or(0, |m| m.incarnation);
        let incarnation = WorkerIncarnation { rank: 0, incarnation: before + 1 };
        let join = JoinV1 { want, settings, tables, at, notes, birth, left: Vec::new(), timeout_ms: 0 };
        match self.join(name, incarnation, join, 0, Duration::ZERO, &[]).map_err(|(_, text)| text)? {
            RunReplyV1::Joined { generation, rows_since, decided, to_drop, notes, birth } => {
                let decided = RunDecision::of_code(decided).unwrap_or(RunDecision::Begun);
                let id = RunId { name: name.to_owned(), generation, rows_since, birth };
                Ok(LocalRunDecision { id, decided, to_drop, notes })
            }
            _ => Err(format!("run {name:?}: another process is in it")),
        }
    }

    /// Why that process cannot go on with a run: the run was begun with other flags. No other worker needs to be named.
    fn refuses_alone(&self, name: &str, want: RunIntent, settings: &[RunSetting]) -> Option<String> {
        let run = self.runs.get(name).filter(|run| run.finished.is_none() && want == RunIntent::Auto)?;
        let (flag, ours, theirs) = run.differing(settings)?;
        let begun = match ours.as_str() {
            "yes" => format!("with {flag}"),
            "no" | "none" => format!("without {flag}"),
            ours => format!("with {flag} {ours}"),
        };
        let verb = match theirs.as_str() {
            "yes" => "was given it",
            "no" | "none" => "was not",
            _ => "was given ",
        };
        let theirs = if verb.ends_with(' ') { theirs.as_str() } else { "" };
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).display();
        let on = match run.rows_differ(settings) {
            None => "--continue trains its rows further with these flags, over all the data, ",
            Some(_) => "",
        };
        Some(format!(
            "run {name:?} in {folder} was begun {begun}, and this training {verb}{theirs}: {on}--fresh starts it \
             again, without its rows; another training wants a name of its own (--run NAME)"
        ))
    }

    /// Notes that this process has dropped the tables that it had to drop.
    ///
    /// # Errors
    /// The registry cannot be saved.
    pub fn dropped_alone(&mut self, name: &str, tables: &[String]) -> Result<(), String> {
        self.dropped(name, tables).map(|_| ()).map_err(|(_, text)| text)
    }

    /// Notes that this process has finished a run.
    ///
    /// # Errors
    /// The registry cannot be saved.
    pub fn finish_alone(&mut self, run: &RunId, rows: u64, at: u64) -> Result<(), String> {
        self.finish(&run.name, run.generation, 0, RunEnd { at, rows, missing: Vec::new() }, Duration::ZERO)
            .map(|_| ())
            .map_err(|(_, text)| text)
    }
}
