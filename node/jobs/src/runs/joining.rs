//! The decisions about processes that come to a run: the rules of [`Registry`].

use crate::limits::{LATE_TIME, RUN_TABLES_MAX};
use crate::runs::registry::{Registry, RunAdmission, RunEnd, RunRecord, RunRefusal};
use gannet_core::has_images;
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::limits::STATUS_PUSHERS_MAX;
use gannet_wire::messages::member::{WorkerIncarnation, WorkerState};
use gannet_wire::messages::runs::{
    JoinV1, RunDecision, RunId, RunIntent, RunReplyV1, RunSetting, SHARDS, who,
};
use gannet_wire::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

fn mismatch(text: String) -> RunRefusal {
    (Refusal::Mismatch, text)
}

/// How long ago, in words.
fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Refuses settings with which a run's rows cannot be trained further: the rows depend on the settings that differ.
fn may_continue(name: &str, run: &RunRecord, settings: &[RunSetting]) -> Result<(), RunRefusal> {
    let Some((flag, was, given)) = run.rows_differ(settings) else { return Ok(()) };
    Err(mismatch(format!(
        "run {name:?}: its rows were trained with {flag} {was}, and {flag} {given} is given now: --continue needs the \
         same {flag}. --fresh deletes these rows and begins with new ones, --run NAME is for another training"
    )))
}

/// The refusal of a run whose tables are here, but that no registry knows.
fn registry_lost(name: &str, left: &[(u32, String)]) -> RunRefusal {
    let tables: Vec<String> = left.iter().map(|(_, table)| format!("{table:?}")).collect();
    mismatch(format!(
        "run {name:?}: its rows are here (table {}), and no registry of runs knows it: the file RUNS, which one of the \
         servers keeps in its --data-dir, is lost, or that server is not named. Name all servers, or put the file \
         back; --fresh deletes these rows and begins with new ones",
        tables.join(", ")
    ))
}

impl Registry {
    /// The tables of a run that this registry does not know: those in its folder and those of `open`. Each comes with
    /// the generation of its rows.
    pub(crate) fn left_behind(&self, name: &str, tables: &[String], open: &[String]) -> Vec<(u32, String)> {
        if self.runs.contains_key(name) {
            return Vec::new();
        }
        let folder = self.file.as_deref().and_then(Path::parent).and_then(|folder| folder.read_dir().ok());
        // A folder that has no image is none of a table any more: files of the user kept it from going with the rows.
        let entries = folder.into_iter().flatten().flatten().filter(|entry| has_images(&entry.path()));
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let of_run = |table: String| {
            let own_name = table.strip_prefix(name)?.strip_prefix('.')?;
            if tables.iter().any(|of| of == own_name) {
                return Some((1, table));
            }
            let (since, own_name) = own_name.split_once('.')?;
            let since = since.parse().ok().filter(|_| tables.iter().any(|of| of == own_name))?;
            Some((since, table))
        };
        let mut left: Vec<(u32, String)> = names.chain(open.iter().cloned()).filter_map(of_run).collect();
        left.sort();
        left.dedup();
        left
    }

    /// Takes back that this worker has begun a run, unless another worker is in it.
    pub(crate) fn withdraw(
        &mut self,
        name: &str,
        generation: u32,
        incarnation: WorkerIncarnation,
    ) -> Result<RunReplyV1, RunRefusal> {
        let is_its_own = self.runs.get(name).is_some_and(|run| {
            let alone = run.members.len() == 1;
            alone && run.by == incarnation && run.generation == generation && run.finished.is_none()
        });
        if is_its_own {
            let before = self.runs.remove(name);
            self.forget_signs(name);
            self.save(name, before)?;
        }
        Ok(RunReplyV1::Noted)
    }

    /// Adds an incarnation of a worker to a run, which it may begin.
    pub fn join(
        &mut self,
        name: &str,
        incarnation: WorkerIncarnation,
        join: JoinV1,
        session: u32,
        now: Duration,
        open: &[String],
    ) -> Result<RunReplyV1, RunRefusal> {
        RunId::check_name(name).map_err(|text| (Refusal::Malformed, text))?;
        if incarnation.incarnation == NO_INCARNATION {
            let text =
                format!("worker {} has no incarnation (0): allocate one when it starts", incarnation.rank);
            return Err((Refusal::Name, text));
        }
        let run = RunId { name: name.to_owned(), generation: u32::MAX, rows_since: u32::MAX, birth: 0 };
        let is_invalid = |own_name: &String| gannet_core::Schema::check_name(&run.table(own_name)).is_err();
        if join.tables.len() > RUN_TABLES_MAX || join.tables.iter().any(is_invalid) {
            let text =
                format!("{} tables of run {name:?}, or a table's name that none may have", join.tables.len());
            return Err((Refusal::Limit, text));
        }
        let members = self.runs.get(name).map_or(0, |run| run.members.len());
        if members >= STATUS_PUSHERS_MAX {
            return Err((Refusal::Limit, format!("{members} workers are in run {name:?}, the limit")));
        }
        self.check_unfenced(name, incarnation)?;
        let open: Vec<String> = open.iter().chain(&join.left).cloned().collect();
        let left = self.left_behind(name, &join.tables, &open);
        let decided = match self.runs.get(name) {
            None if join.want != RunIntent::Fresh && !left.is_empty() => {
                return Err(registry_lost(name, &left));
            }
            None => {
                self.make_room(&open, now)?;
                if left.is_empty() { RunDecision::Begun } else { RunDecision::Fresh }
            }
            Some(run) if run.finished.is_none() => {
                match self.of_running(name, run, incarnation, &join, now)? {
                    Ok(decided) => decided,
                    Err(taken) => return Ok(taken),
                }
            }
            Some(run) => self.of_finished(name, run, incarnation, &join, now)?,
        };
        let timeout_ms = join.timeout_ms;
        self.enter(name, incarnation, join, decided, left)?;
        self.hear(name, incarnation, session, Some(timeout_ms), now);
        let Some(run) = self.runs.get(name) else { return Ok(RunReplyV1::Noted) };
        let (generation, rows_since) = (run.generation, run.rows_since);
        let (to_drop, notes, birth) = (run.to_drop.clone(), run.notes.clone(), run.birth);
        tracing::info!(run = name, generation, worker = incarnation.rank, decided = decided.name(), "a run");
        Ok(RunReplyV1::Joined { generation, rows_since, decided: decided.code(), to_drop, notes, birth })
    }

    /// The decision about a worker that comes to a run under way.
    fn of_running(
        &self,
        name: &str,
        run: &RunRecord,
        incarnation: WorkerIncarnation,
        join: &JoinV1,
        now: Duration,
    ) -> Result<Result<RunDecision, RunReplyV1>, RunRefusal> {
        let differs = run.differs(&join.settings, incarnation.rank);
        let live: Vec<u32> =
            run.members.keys().copied().filter(|&rank| self.is_live(name, rank, now)).collect();
        // A worker that restarts with the same flags goes on. If the run was begun with --fresh, its rows are the new
        // ones.
        if join.want == RunIntent::Fresh && (run.begun != RunIntent::Fresh || differs.is_some()) {
            if let Some(rank) = live.first() {
                return Err(mismatch(format!(
                    "run {name:?}: {} is in it and lives, so its rows are not dropped (--fresh): end its workers \
                     first, or give this job a name of its own (--run NAME)",
                    who(*rank)
                )));
            }
            return Ok(Ok(RunDecision::Fresh));
        }
        // A worker with a wrong number of shards may have come first, and have left.
        let moved = live.is_empty() && run.differs_in_shards(&join.settings);
        if let Some(difference) = differs.filter(|_| !moved) {
            // A continuation with a wrong flag has changed no rows: a worker with the right flag may train them
            // further.
            if join.want == RunIntent::Continue && live.is_empty() {
                return may_continue(name, run, &join.settings).map(|()| Ok(RunDecision::Continued));
            }
            let anew = ways_on(live.is_empty(), run.rows_differ(&join.settings).is_some());
            return Err(mismatch(format!(
                "run {name:?}: {difference}; give every worker of a run the same. A job that has nothing to do with it \
                 wants a name of its own (--run NAME){anew}"
            )));
        }
        let Some(known) = run.members.get(&incarnation.rank) else { return Ok(Ok(RunDecision::Joined)) };
        if known.incarnation > incarnation.incarnation {
            let text = format!(
                "run {name:?}: a newer incarnation of worker {} is in it: start this worker again",
                incarnation.rank
            );
            return Err((Refusal::Fenced, text));
        }
        if known.incarnation == incarnation.incarnation {
            // This worker's first request was answered, but the answer was lost.
            return Ok(Ok(match run.by == incarnation {
                false => RunDecision::Joined,
                true if run.generation == 1 => RunDecision::Begun,
                true if run.rows_since == run.generation => RunDecision::Fresh,
                true => RunDecision::Continued,
            }));
        }
        let presence = self.presences.get(&(name.to_owned(), incarnation.rank));
        let linked = presence
            .filter(|presence| presence.session.is_some() && self.is_live(name, incarnation.rank, now));
        match linked {
            Some(presence) => {
                let silent_ms = self.detector.silence(presence.worker, now).as_millis() as u64;
                Ok(Err(RunReplyV1::Taken { silent_ms }))
            }
            None => Ok(Ok(RunDecision::Resumed)),
        }
    }

    /// The decision about a worker that comes to a finished run.
    fn of_finished(
        &self,
        name: &str,
        run: &RunRecord,
        incarnation: WorkerIncarnation,
        join: &JoinV1,
        now: Duration,
    ) -> Result<RunDecision, RunRefusal> {
        let known = run.members.get(&incarnation.rank);
        let again = known.is_some_and(|known| known.incarnation == incarnation.incarnation);
        let just = self.finished.get(name).is_some_and(|&at| now.saturating_sub(at) < LATE_TIME);
        // A member that had not trained its share when the others finished is late whenever it comes, but only once.
        // So is one that was killed after the end, before it had left the job: its next start is no error. Whoever asks
        // for more training later gets it. Only the workers' clocks outlive a restart of the registry.
        let ended_at = run.finished.as_ref().map_or(0, |finished| finished.at);
        let is_soon = join.at.saturating_sub(ended_at) < LATE_TIME.as_secs();
        let may_not_have_left = join.want == RunIntent::Auto || is_soon;
        let has_not_left = may_not_have_left && run.in_job().any(|of| of.rank == incarnation.rank);
        let is_late = known.map_or(just, |known| !known.done) || has_not_left;
        let of_it = join.want == RunIntent::Auto || join.want == run.begun;
        let same = run.differs(&join.settings, incarnation.rank).is_none();
        let finished = run.finished.clone().unwrap_or(RunEnd { at: 0, rows: 0, missing: Vec::new() });
        if again || is_late && of_it && same {
            return match finished.missing.contains(&incarnation.rank) {
                false => Ok(RunDecision::Late),
                true => Err(mismatch(format!(
                    "run {name:?} was finished without the share of worker {} (--allow-missing-workers), which is not \
                     trained. --continue trains all shares again on its rows, --fresh begins with new rows",
                    incarnation.rank
                ))),
            };
        }
        match join.want {
            RunIntent::Continue => may_continue(name, run, &join.settings).map(|()| RunDecision::Continued),
            RunIntent::Fresh => Ok(RunDecision::Fresh),
            RunIntent::Auto => {
                let RunEnd { at, rows, .. } = finished;
                let ended = ago(join.at.saturating_sub(at));
                Err(mismatch(format!(
                    "run {name:?} is finished: it ended {ended}, and its {rows} rows are here. --continue trains these \
                     rows further, --fresh deletes these rows and begins with new ones, --run NAME is for another job"
                )))
            }
        }
    }

    /// Notes the worker as a member of the run. Begins the run, or its next generation, if that was decided.
    fn enter(
        &mut self,
        name: &str,
        incarnation: WorkerIncarnation,
        join: JoinV1,
        decided: RunDecision,
        left: Vec<(u32, String)>,
    ) -> Result<(), RunRefusal> {
        let before = self.runs.get(name).cloned();
        let (new_settings, new_notes) = (join.settings.clone(), join.notes.clone());
        let mut run = match (decided, before.clone()) {
            (RunDecision::Begun | RunDecision::Continued | RunDecision::Fresh, Some(run))
                if run.by == incarnation =>
            {
                run
            }
            (RunDecision::Begun, _) | (_, None) => {
                // Tables of an unknown run have generations too. The new generation is above those.
                let generation = left.iter().map(|(of, _)| of + 1).max().unwrap_or(1);
                RunRecord {
                    generation,
                    rows_since: generation,
                    begun: join.want,
                    by: incarnation,
                    settings: join.settings,
                    tables: Vec::new(),
                    to_drop: left.into_iter().map(|(_, table)| table).collect(),
                    notes: join.notes,
                    birth: join.birth,
                    members: BTreeMap::new(),
                    finished: None,
                    job: 0,
                    unfenced: BTreeSet::new(),
                }
            }
            (RunDecision::Continued | RunDecision::Fresh, Some(run)) => {
                next(name, run, incarnation, join.settings, join.notes, decided)
            }
            (_, Some(run)) => run,
        };
        if run.differs_in_shards(&new_settings) {
            run.settings.retain(|setting| setting.flag != SHARDS);
        }
        if run.is_undecided() {
            run.notes = new_notes;
        }
        let open: Vec<_> = new_settings.into_iter().filter(|setting| run.is_open(setting)).collect();
        run.settings.extend(open);
        for own_name in join.tables {
            if !run.tables.contains(&own_name) {
                run.tables.push(own_name);
            }
        }
        let is_late = decided == RunDecision::Late;
        let mut admission = RunAdmission::new(incarnation.incarnation, is_late);
        if is_late {
            // There is nothing that it could push.
            admission.state = WorkerState::Left;
        }
        run.admit(incarnation.rank, admission);
        if before.as_ref() == Some(&run) {
            return Ok(());
        }
        if matches!(decided, RunDecision::Begun | RunDecision::Continued | RunDecision::Fresh) {
            self.forget_signs(name);
            self.finished.remove(name);
        }
        self.runs.insert(name.to_owned(), run);
        self.save(name, before)
    }
}

/// The next generation of a run.
pub(crate) fn next(
    name: &str,
    run: RunRecord,
    by: WorkerIncarnation,
    settings: Vec<RunSetting>,
    new_notes: String,
    decided: RunDecision,
) -> RunRecord {
    let generation = run.generation.saturating_add(1);
    let (id, unfenced) = (run.id(name), run.to_fence().collect());
    let RunRecord { rows_since, tables, mut to_drop, notes, birth, .. } = run;
    let (begun, rows_since, tables, notes) = match decided {
        RunDecision::Fresh => {
            to_drop.extend(tables.iter().map(|own_name| id.table(own_name)));
            (RunIntent::Fresh, generation, Vec::new(), new_notes)
        }
        _ => (RunIntent::Continue, rows_since, tables, notes),
    };
    RunRecord {
        generation,
        rows_since,
        begun,
        by,
        settings,
        tables,
        to_drop,
        notes,
        birth,
        members: BTreeMap::new(),
        finished: None,
        job: 0,
        unfenced,
    }
}

/// The end of a refusal: what the user of a worker with other settings can do about a run. Nothing while workers of the
/// run are alive.
fn ways_on(all_gone: bool, rows_differ: bool) -> &'static str {
    match (all_gone, rows_differ) {
        (true, false) => {
            "; no worker of the run is alive: --continue trains its rows further with these flags, over all the data; \
             --fresh starts the run again, without its rows"
        }
        (true, true) => "; no worker of the run is alive: --fresh starts the run again, without its rows",
        (false, _) => "",
    }
}
