//! How a process that comes to a run differs from it: the settings that all processes of a run share.

use crate::runs::registry::RunRecord;
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::messages::runs::{CLIENT, RunId, RunSetting, SHARDS, who};
use std::collections::BTreeSet;

/// The value of a setting that a run does not have. Runs whose rows are f32 do not name their type, and those whose
/// values are as they are do not say so.
fn shown_if_absent(flag: &str) -> &'static str {
    match flag {
        "--row-type" => "f32",
        "--normalize" => "off",
        _ => "none",
    }
}

/// A setting in words, beside another value of it. The hash tells apart data of the same length.
fn shown_setting(of: Option<&RunSetting>, other: Option<&RunSetting>) -> String {
    let Some(of) = of else { return other.map_or("none", |other| shown_if_absent(&other.flag)).to_owned() };
    let hashed = |of: &RunSetting| of.value.split_once(' ').map(|(n, hash)| (n.to_owned(), hash.to_owned()));
    match (hashed(of), other.and_then(hashed)) {
        (Some((bytes, hash)), Some((others, _))) if of.flag.starts_with("DATA") && bytes == others => {
            format!("{}, hash of both ends {hash}", of.shown)
        }
        _ => of.shown.clone(),
    }
}

impl RunRecord {
    /// Whether no process has come to the run: its tables were imported ([`Registry::adopt`]).
    pub(crate) fn is_undecided(&self) -> bool {
        self.settings.is_empty() && self.by.incarnation == NO_INCARNATION
    }

    /// Whether the run takes this setting of a process that comes to it: no process has decided it yet. A restore
    /// forgets settings of the place ([`RunSetting::is_of_place`]), and tables that were imported have no settings.
    pub(crate) fn is_open(&self, setting: &RunSetting) -> bool {
        self.is_undecided()
            || setting.is_of_place() && !self.settings.iter().any(|own| own.flag == setting.flag)
    }

    /// The first flag that differs, with the run's value and the new one.
    pub(crate) fn differing<'a>(&'a self, settings: &'a [RunSetting]) -> Option<(&'a str, String, String)> {
        let find = |all: &'a [RunSetting], flag: &str| all.iter().find(|s| s.flag == flag);
        let theirs = settings.iter().filter(|setting| !self.is_open(setting));
        let mut flags = self.settings.iter().chain(theirs).map(|setting| setting.flag.as_str());
        let differs = |flag: &&str| {
            let value = |all| find(all, flag).map(|setting| &setting.value);
            value(&self.settings) != value(settings)
        };
        let flag = flags.find(differs)?;
        let (ours, theirs) = (find(&self.settings, flag), find(settings, flag));
        Some((flag, shown_setting(ours, theirs), shown_setting(theirs, ours)))
    }

    /// Whether these settings differ in the number of shards alone. No row depends on it, and the tables refuse a wrong
    /// one. (Another scheduler would hand out the data a second time.)
    pub(crate) fn differs_in_shards(&self, settings: &[RunSetting]) -> bool {
        let of = |all: &[RunSetting]| {
            let others = all.iter().filter(|setting| setting.flag != SHARDS);
            others.map(|setting| (setting.flag.clone(), setting.value.clone())).collect::<BTreeSet<_>>()
        };
        let differs = self.differing(settings).is_some_and(|(flag, ..)| flag == SHARDS);
        differs && of(&self.settings) == of(settings)
    }

    /// The first difference in words, for a worker of a job.
    pub(crate) fn differs(&self, settings: &[RunSetting], rank: u32) -> Option<String> {
        let (flag, ours, theirs) = self.differing(settings)?;
        let by = who(self.by.rank);
        let this = if rank == CLIENT { "the client".into() } else { format!("this worker ({rank})") };
        Some(format!("{flag}: {by} has {ours}, {this} was given {theirs}"))
    }

    /// The first flag that differs, of those on which the rows depend, with the run's value and the new one.
    pub(crate) fn rows_differ(&self, settings: &[RunSetting]) -> Option<(String, String, String)> {
        let find = |all: &[RunSetting], flag: &str| all.iter().find(|s| s.flag == flag).cloned();
        let theirs = settings.iter().filter(|setting| !self.is_open(setting));
        let of_rows = self.settings.iter().chain(theirs).filter(|s| s.of_rows && !s.is_of_place());
        let mut pairs = of_rows.map(|s| (&s.flag, find(&self.settings, &s.flag), find(settings, &s.flag)));
        let value = |of: &Option<RunSetting>| of.as_ref().map(|setting| setting.value.clone());
        let (flag, was, given) = pairs.find(|(_, was, given)| value(was) != value(given))?;
        let shown =
            |of: Option<RunSetting>| of.map_or(shown_if_absent(flag).to_owned(), |setting| setting.shown);
        Some((flag.clone(), shown(was), shown(given)))
    }

    pub(crate) fn id(&self, name: &str) -> RunId {
        RunId {
            name: name.to_owned(),
            generation: self.generation,
            rows_since: self.rows_since,
            birth: self.birth,
        }
    }
}
