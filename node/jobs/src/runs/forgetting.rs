//! How the registry forgets runs: one that somebody has deleted, and one without rows that is long dead when another
//! run needs its room.

use crate::limits::{RUN_FORGOTTEN_AFTER, RUNS_MAX};
use crate::runs::joining::next;
use crate::runs::registry::{Registry, RunRecord, RunRefusal};
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::messages::runs::{RunDecision, RunIntent, RunReplyV1, who};
use gannet_wire::refusal::Refusal;
use std::path::Path;
use std::time::Duration;

impl Registry {
    /// Takes a step towards forgetting a run of which no worker is alive. First all its tables become tables that all
    /// servers must drop: a process that joins now finds no rows. When nothing is left of the run, it is forgotten.
    /// Returns the tables that are still to be dropped.
    pub fn forget(&mut self, name: &str, now: Duration) -> Result<RunReplyV1, RunRefusal> {
        let unknown = || (Refusal::Unknown, format!("run {name:?} is not known here"));
        let run = self.runs.get(name).ok_or_else(unknown)?;
        if let Some(&rank) = run.members.keys().find(|&&rank| self.is_live(name, rank, now)) {
            let text = format!(
                "run {name:?}: {} is in it and lives, so it is not forgotten: end its workers first",
                who(rank)
            );
            return Err((Refusal::Mismatch, text));
        }
        if run.tables.is_empty() && run.to_drop.is_empty() {
            self.remove(name)?;
            return Ok(RunReplyV1::Forgets { to_drop: Vec::new() });
        }
        if !run.tables.is_empty() {
            let by = WorkerIncarnation { rank: 0, incarnation: NO_INCARNATION };
            let emptied = next(name, run.clone(), by, Vec::new(), String::new(), RunDecision::Fresh);
            // The next process decides its settings.
            self.change(name, |run| *run = RunRecord { begun: RunIntent::Auto, ..emptied })?;
            self.forget_signs(name);
            self.finished.remove(name);
        }
        let to_drop = self.runs.get(name).map(|run| run.to_drop.clone()).unwrap_or_default();
        Ok(RunReplyV1::Forgets { to_drop })
    }

    /// Forgets the run that has been dead for longest, if there is no room for another one. Only a run without rows
    /// here goes, and only when nothing was heard of it for [`RUN_FORGOTTEN_AFTER`]. `open`: the tables that this
    /// server has open.
    pub fn make_room(&mut self, open: &[String], now: Duration) -> Result<(), RunRefusal> {
        if self.runs.len() < RUNS_MAX {
            return Ok(());
        }
        let clock = self.detector.clock(now);
        let heard = |name: &str| self.heard.get(name).copied().unwrap_or(self.opened);
        let is_idle = |(name, run): &(&String, &RunRecord)| {
            clock.saturating_sub(heard(name)) >= RUN_FORGOTTEN_AFTER
                && run.job == 0
                && !run.members.keys().any(|&rank| self.is_live(name, rank, now))
                && !self.has_rows(name, run, open)
        };
        let idle = self.runs.iter().filter(is_idle).min_by_key(|(name, _)| heard(name));
        let Some(name) = idle.map(|(name, _)| name.clone()) else {
            let text = format!(
                "{RUNS_MAX} runs are known here, the limit. One without rows is forgotten when it has been dead for {} \
                 min: delete others with `gannet forget --run NAME`, or train one of them anew (--run NAME --fresh)",
                RUN_FORGOTTEN_AFTER.as_secs() / 60
            );
            return Err((Refusal::Limit, text));
        };
        tracing::warn!(
            run = name,
            "a run that has no rows and is long dead was forgotten: another one needs its place"
        );
        self.remove(&name)
    }

    /// Whether this server has a table of the run.
    fn has_rows(&self, name: &str, run: &RunRecord, open: &[String]) -> bool {
        let folder = self.file.as_deref().and_then(Path::parent);
        let exists = |table: &String| {
            open.contains(table) || folder.is_some_and(|folder| folder.join(table).symlink_metadata().is_ok())
        };
        run.to_drop.iter().any(exists) || run.tables.iter().any(|own| exists(&run.id(name).table(own)))
    }

    fn remove(&mut self, name: &str) -> Result<(), RunRefusal> {
        let before = self.runs.remove(name);
        self.save(name, before)?;
        self.forget_signs(name);
        self.finished.remove(name);
        self.heard.remove(name);
        self.forgotten.push(name.to_owned());
        Ok(())
    }

    /// The runs that were forgotten since the last call: their jobs can go, too.
    pub fn take_forgotten(&mut self) -> Vec<String> {
        std::mem::take(&mut self.forgotten)
    }
}
