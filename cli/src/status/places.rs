//! Who owns which place of a job with a coordinator, and how far the backups are.

use crate::job::connection::POLL_EVERY;
use crate::report::numbers::Numbers;
use crate::report::words::counted;
use crate::status::asking::Round;
use bytesize::ByteSize;
use gannet::backups::{
    BackupStatus, CoordinatorError, GenerationStatus, MemberStatus, PlaceStatus, Places, generation, members,
    place_statuses,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

/// What the coordinator knows of a job.
pub struct Placement {
    /// The places that a server has had.
    places: BTreeMap<u32, PlaceStatus>,
    /// How many places the job has, as far as is known.
    count: u32,
    /// The servers that have been heard of within their leases.
    members: Vec<MemberStatus>,
    /// The checkpoint with which the places have begun.
    generation: Option<GenerationStatus>,
}

/// What the coordinator knows, or why it has not answered.
pub type PlaceAnswers = Result<Placement, String>;

/// Asks for all places and servers, until there is an answer or the round is over. Each failure is said, too. `named`:
/// how many places the job has at least.
pub fn query(of: &Places, named: usize, round: Round, say: &Sender<PlaceAnswers>) {
    let known = || -> Result<Placement, CoordinatorError> {
        let places = place_statuses(&*of.coordinator, &of.job)?;
        let count = places.keys().last().map_or(0, |last| last + 1).max(named as u32);
        let members = members(&*of.coordinator, &of.job)?;
        Ok(Placement { places, count, members, generation: generation(&*of.coordinator, &of.job)? })
    };
    loop {
        let known = known().map_err(|error| error.to_string());
        let is_known = known.is_ok();
        let _ = say.send(known);
        if is_known || round.is_over() {
            return;
        }
        // Each call to a cluster of etcd asks the next member.
        std::thread::sleep(POLL_EVERY);
    }
}

/// Why nothing is known of a coordinator that has not even failed.
pub fn silent(seconds: u64) -> String {
    format!("the coordinator has said nothing within {seconds} s (--peer-timeout)")
}

impl Placement {
    /// The addresses of the servers that have been heard of.
    pub fn servers(&self) -> Vec<String> {
        self.members.iter().map(|member| member.addr.clone()).collect()
    }

    /// The server of each place, or that of `--ps-hosts` if nobody has had the place. `None`: not all are known.
    pub fn owners(&self, hosts: &[String]) -> Option<Vec<String>> {
        let owner = |number: u32| {
            let known = self.places.get(&number).map(|place| &place.owner);
            known.or(hosts.get(number as usize)).cloned()
        };
        (0..self.count).map(owner).collect::<Option<Vec<_>>>().filter(|owners| !owners.is_empty())
    }

    /// How many backups of a place have all its rows, and how many it is to have. `None`: nobody serves it, or the
    /// owner has not registered.
    fn complete(&self, place: &PlaceStatus) -> Option<(usize, usize)> {
        let owner = self.members.iter().find(|member| member.addr == place.owner)?;
        let (complete, wanted) = (place.backups.len(), owner.backups.len());
        (place.ready && place.has_lease).then_some((complete, wanted.max(complete)))
    }

    fn all(&self) -> impl Iterator<Item = (u32, Option<&PlaceStatus>)> {
        (0..self.count).map(|number| (number, self.places.get(&number)))
    }
}

/// The state of a place in a word.
fn state(place: &PlaceStatus) -> &'static str {
    match (place.has_lease, place.ready) {
        (true, true) => "serves",
        (true, false) => "takes the place",
        (false, _) => "is silent",
    }
}

/// Adds the places, the servers that have registered, and the checkpoint with which the places have begun. They are
/// null if no coordinator was named, or if it has not answered.
pub fn put_places(report: &mut Numbers, places: Option<&PlaceAnswers>) {
    let placement = match places {
        Some(Ok(placement)) => placement,
        unknown => {
            if let Some(Err(why)) = unknown {
                report.say(format_args!("places     not known: {why}"));
            }
            return ["places", "members", "generation"].iter().for_each(|name| report.add(name, Value::Null));
        }
    };
    let mut places = Vec::new();
    for (number, place) in placement.all() {
        match place {
            Some(place) => places.push(report.take(of_place(placement, number, place))),
            None => {
                report.say(format_args!("place {number:<5}no server has begun it"));
                places.push(Value::Null);
            }
        }
    }
    report.add("places", places);
    match &placement.generation {
        Some(generation) => report.part("generation", of_generation(generation)),
        None => report.add("generation", Value::Null),
    }
    report.list("members", placement.members.iter().map(of_server));
}

fn of_place(placement: &Placement, number: u32, place: &PlaceStatus) -> Numbers {
    let mut of = Numbers::default();
    of.words(format_args!("place {number:<5}"));
    of.show("owner", place.owner.as_str(), " ");
    of.show("state", state(place), ", epoch ");
    of.show("epoch", place.epoch, "");
    match place.generation {
        0 => of.add("generation", 0),
        number => {
            of.words(", generation ");
            of.show("generation", number, "");
        }
    }
    of.words(", ");
    of.show("replication", place.replication.name(), ", ");
    of.words(match &place.backups[..] {
        [] => "no backup has its rows".to_owned(),
        backups => format!("backups {}", backups.join(", ")),
    });
    let complete = placement.complete(place);
    of.add_all(json!({
        "backups": place.backups, "backups_wanted": complete.map(|(_, wanted)| wanted),
        "survives_deaths": complete.map(|(complete, _)| complete),
    }));
    if let Some((complete, wanted)) = complete.filter(|(_, wanted)| *wanted > 0) {
        let survives = match complete {
            0 => "does not survive a death".to_owned(),
            1 => "survives one more death".to_owned(),
            more => format!("survives {more} more deaths"),
        };
        let backups = counted(wanted as u64, "backup", "backups");
        of.say(format_args!("place {number:<5}{complete} of {backups} complete: {survives}"));
    }
    of
}

/// To which checkpoint a job went back, and what that has undone.
fn of_generation(generation: &GenerationStatus) -> Numbers {
    let (GenerationStatus { number, checkpoint, undone }, mut of) = (generation, Numbers::default());
    of.add_all(json!({ "number": number, "checkpoint": checkpoint, "undone": undone }));
    if *number > 0 {
        let to = match checkpoint {
            Some(checkpoint) => format!("to checkpoint {checkpoint}"),
            None => "to the beginning".to_owned(),
        };
        let undone = match undone {
            0 => "how many pushes that has undone is not known".to_owned(),
            _ => format!("at least {} undone", counted(*undone, "push was", "pushes were")),
        };
        of.words(format_args!("went back  {to} (generation {number}): {undone}"));
    }
    of
}

/// A server that has registered: a line for each of its backups, or that it has no place.
fn of_server(member: &MemberStatus) -> Numbers {
    let (owner, mut of) = (&member.addr, Numbers::default());
    of.add("address", owner.as_str());
    of.add("places", member.places.as_slice());
    of.list("backups", member.backups.iter().map(|backup| of_backup(owner, backup)));
    if member.backups.is_empty() && member.places.is_empty() {
        of.say(format_args!("spare      {owner} has no place"));
    }
    of
}

/// What a backup of a server does.
fn of_backup(owner: &str, backup: &BackupStatus) -> Numbers {
    let (BackupStatus { addr, joined, filled, shards, commands, bytes, .. }, mut of) =
        (backup, Numbers::default());
    of.add_all(json!({
        "address": addr, "joined": joined, "shards_filled": filled, "shards": shards,
        "commands_behind": commands, "bytes_behind": bytes,
    }));
    let behind = counted(*commands, "command", "commands");
    let behind = format!("{behind} ({}) behind", ByteSize(*bytes).display().iec());
    of.words("backup     ");
    match (addr, joined, commands) {
        (None, _, _) => of.words(format_args!("{owner} has none here: no other server is there for it")),
        (Some(addr), true, 0) => of.words(format_args!("{addr} has all rows of {owner}")),
        (Some(addr), true, _) => {
            of.words(format_args!("{addr} has all rows of {owner}, which waits for it: {behind}"));
        }
        (Some(addr), false, _) => {
            of.words(format_args!("{addr} is filled by {owner}: {filled} of {shards} shards, {behind}"));
        }
    }
    of
}
