//! What is decided for whoever comes to a run: the rules of [`Registry`].

use super::asking::{JoinV1, RunId, RunToldV1, Setting, Want};
use super::registry::{Decided, Finished, Kept, Refused, Registry, Taking, who};
use crate::error::Refusal;
use crate::limits::{LATE_TIME, RUN_TABLES_MAX, RUNS_MAX, STATUS_PUSHERS_MAX};
use crate::scheduler::member::Life;
use crate::worker::NO_INCARNATION;
use std::collections::BTreeMap;
use std::time::Duration;

fn mismatch(text: String) -> Refused {
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

impl Registry {
    /// Brings a life of a worker into a run, which it may begin.
    pub(super) fn join(
        &mut self,
        name: &str,
        life: Life,
        join: JoinV1,
        session: u32,
        now: Duration,
    ) -> Result<RunToldV1, Refused> {
        RunId::check_name(name).map_err(|text| (Refusal::Malformed, text))?;
        if life.incarnation == NO_INCARNATION {
            let text = format!("worker {} has no incarnation (0): allocate one when it starts", life.rank);
            return Err((Refusal::Name, text));
        }
        let run = RunId { name: name.to_owned(), generation: u32::MAX, rows_since: u32::MAX };
        let unfit = |own: &&String| gannet_core::Schema::check_name(&run.table(own)).is_err();
        if join.tables.len() > RUN_TABLES_MAX || join.tables.iter().any(|own| unfit(&own)) {
            let text =
                format!("{} tables of run {name:?}, or a table's name that none may have", join.tables.len());
            return Err((Refusal::Limit, text));
        }
        let members = self.runs.get(name).map_or(0, |run| run.members.len());
        if members >= STATUS_PUSHERS_MAX {
            return Err((Refusal::Limit, format!("{members} workers are in run {name:?}, the limit")));
        }
        let decided = match self.runs.get(name) {
            None if self.runs.len() >= RUNS_MAX => {
                let text = format!(
                    "{RUNS_MAX} runs are known here, the limit: train one of them anew (--run NAME --fresh), or begin with \
                     empty data folders"
                );
                return Err((Refusal::Limit, text));
            }
            None => Decided::Begun,
            Some(run) if run.finished.is_none() => match self.of_running(name, run, life, &join, now)? {
                Ok(decided) => decided,
                Err(taken) => return Ok(taken),
            },
            Some(run) => self.of_finished(name, run, life, &join, now)?,
        };
        self.enter(name, life, join, decided)?;
        self.hear(name, life.rank, session, now);
        let Some(run) = self.runs.get(name) else { return Ok(RunToldV1::Noted) };
        let (generation, rows_since, doomed) = (run.generation, run.rows_since, run.doomed.clone());
        tracing::info!(run = name, generation, worker = life.rank, decided = decided.name(), "a run");
        Ok(RunToldV1::Joined { generation, rows_since, decided: decided.code(), doomed })
    }

    /// What becomes of whoever comes to a run that goes on.
    fn of_running(
        &self,
        name: &str,
        run: &Kept,
        life: Life,
        join: &JoinV1,
        now: Duration,
    ) -> Result<Result<Decided, RunToldV1>, Refused> {
        let differs = run.differs(&join.settings, life.rank);
        let live: Vec<u32> =
            run.members.keys().copied().filter(|&rank| self.is_live(name, rank, now)).collect();
        // Who is started again with the same flags goes on: the rows of a run that was begun anew are the new ones.
        if join.want == Want::Fresh && (run.begun != Want::Fresh || differs.is_some()) {
            if let Some(rank) = live.first() {
                return Err(mismatch(format!(
                    "run {name:?}: {} is in it and lives, so its rows are not dropped (--fresh): end its workers \
                     first, or give this job a name of its own (--run NAME)",
                    who(*rank)
                )));
            }
            return Ok(Ok(Decided::Fresh));
        }
        if let Some(difference) = differs {
            // Who was to continue it with a wrong flag has spoilt nothing: its rows are trained further with the right one.
            if join.want == Want::Continue && live.is_empty() {
                return Ok(Ok(Decided::Continued));
            }
            let anew = match live.is_empty() {
                true => {
                    "; nobody of the run lives: --continue trains its rows further with these flags, --fresh begins it anew, \
                     without its rows"
                }
                false => "",
            };
            return Err(mismatch(format!(
                "run {name:?}: {difference}; give every worker of a run the same. A job that has nothing to do with it wants \
                 a name of its own (--run NAME){anew}"
            )));
        }
        let Some(known) = run.members.get(&life.rank) else { return Ok(Ok(Decided::Joined)) };
        if known.incarnation > life.incarnation {
            let text = format!("run {name:?}: a newer life of worker {} is in it: start it again", life.rank);
            return Err((Refusal::Fenced, text));
        }
        if known.incarnation == life.incarnation {
            // The answer to the first was lost.
            return Ok(Ok(match run.by == life {
                false => Decided::Joined,
                true if run.generation == 1 => Decided::Begun,
                true if run.rows_since == run.generation => Decided::Fresh,
                true => Decided::Continued,
            }));
        }
        let heard = self.heard.get(&(name.to_owned(), life.rank));
        let linked = heard.filter(|heard| heard.session.is_some() && self.is_live(name, life.rank, now));
        match linked {
            Some(heard) => {
                let silent_ms = now.saturating_sub(heard.at).as_millis() as u64;
                Ok(Err(RunToldV1::Taken { silent_ms }))
            }
            None => Ok(Ok(Decided::Resumed)),
        }
    }

    /// What becomes of whoever comes to a run that is over.
    fn of_finished(
        &self,
        name: &str,
        run: &Kept,
        life: Life,
        join: &JoinV1,
        now: Duration,
    ) -> Result<Decided, Refused> {
        let known = run.members.get(&life.rank);
        let again = known.is_some_and(|known| known.incarnation == life.incarnation);
        let just = self.finished.get(name).is_some_and(|&at| now.saturating_sub(at) < LATE_TIME);
        let of_it = join.want == Want::Auto || join.want == run.begun;
        let same = run.differs(&join.settings, life.rank).is_none();
        if again || known.is_none() && just && of_it && same {
            return Ok(Decided::Late);
        }
        match join.want {
            Want::Continue => Ok(Decided::Continued),
            Want::Fresh => Ok(Decided::Fresh),
            Want::Auto => {
                let Finished { at, rows } = run.finished.unwrap_or(Finished { at: 0, rows: 0 });
                let ended = ago(join.at.saturating_sub(at));
                Err(mismatch(format!(
                    "run {name:?} is finished: it ended {ended}, and its {rows} rows are here. --continue trains these rows \
                     further, --fresh begins with new rows (those are then gone), --run NAME is for another job"
                )))
            }
        }
    }

    /// Notes who is in a run now, and what it is when it begins.
    fn enter(&mut self, name: &str, life: Life, join: JoinV1, decided: Decided) -> Result<(), Refused> {
        let before = self.runs.get(name).cloned();
        let mut run = match (decided, before.clone()) {
            (Decided::Begun | Decided::Continued | Decided::Fresh, Some(run)) if run.by == life => run,
            (Decided::Begun, _) | (_, None) => Kept {
                generation: 1,
                rows_since: 1,
                begun: Want::Auto,
                by: life,
                settings: join.settings,
                tables: Vec::new(),
                doomed: Vec::new(),
                members: BTreeMap::new(),
                finished: None,
            },
            (Decided::Continued | Decided::Fresh, Some(run)) => next(name, run, life, join.settings, decided),
            (_, Some(run)) => run,
        };
        for own in join.tables {
            if !run.tables.contains(&own) {
                run.tables.push(own);
            }
        }
        run.members
            .insert(life.rank, Taking { incarnation: life.incarnation, done: decided == Decided::Late });
        if before.as_ref() == Some(&run) {
            return Ok(());
        }
        if matches!(decided, Decided::Begun | Decided::Continued | Decided::Fresh) {
            self.heard.retain(|(of, _), _| of != name);
            self.finished.remove(name);
        }
        self.runs.insert(name.to_owned(), run);
        self.keep(name, before)
    }
}

/// The next generation of a run.
fn next(name: &str, run: Kept, by: Life, settings: Vec<Setting>, decided: Decided) -> Kept {
    let generation = run.generation.saturating_add(1);
    let id = run.id(name);
    let Kept { rows_since, tables, mut doomed, .. } = run;
    let (begun, rows_since, tables) = match decided {
        Decided::Fresh => {
            doomed.extend(tables.iter().map(|own| id.table(own)));
            (Want::Fresh, generation, Vec::new())
        }
        _ => (Want::Continue, rows_since, tables),
    };
    Kept {
        generation,
        rows_since,
        begun,
        by,
        settings,
        tables,
        doomed,
        members: BTreeMap::new(),
        finished: None,
    }
}
