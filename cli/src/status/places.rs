//! Who owns which place of a job with a coordinator, and how far the backups are.

use crate::job::connection::POLL_EVERY;
use crate::report::words::counted;
use crate::status::asking::Round;
use bytesize::ByteSize;
use gannet::backups::{
    BackupStatus, CoordinatorError, GenerationStatus, MemberStatus, PlaceStatus, Places, generation, members,
    places,
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
        let places = places(&*of.coordinator, &of.job)?;
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

/// A line for each place, for each backup, and for each server without a place.
pub fn print(places: &PlaceAnswers) {
    let placement = match places {
        Ok(placement) => placement,
        Err(why) => return say!("places     not known: {why}"),
    };
    for (number, place) in placement.all() {
        let Some(place) = place else {
            say!("place {number:<5}no server has begun it");
            continue;
        };
        let backups = match &place.backups[..] {
            [] => "no backup has its rows".to_owned(),
            backups => format!("backups {}", backups.join(", ")),
        };
        let mode = place.replication.name();
        let generation = match place.generation {
            0 => String::new(),
            number => format!(", generation {number}"),
        };
        say!(
            "place {number:<5}{} {}, epoch {}{generation}, {mode}, {backups}",
            place.owner,
            state(place),
            place.epoch
        );
        if let Some((complete, wanted)) = placement.complete(place).filter(|(_, wanted)| *wanted > 0) {
            let survives = match complete {
                0 => "does not survive a death".to_owned(),
                1 => "survives one more death".to_owned(),
                more => format!("survives {more} more deaths"),
            };
            say!(
                "place {number:<5}{complete} of {} complete: {survives}",
                counted(wanted as u64, "backup", "backups")
            );
        }
    }
    if let Some(generation) = placement.generation.filter(|generation| generation.number > 0) {
        say!("went back  {}", words_of(&generation));
    }
    for member in &placement.members {
        let owner = &member.addr;
        match &member.backups[..] {
            [] if member.places.is_empty() => say!("spare      {owner} has no place"),
            backups => backups.iter().for_each(|backup| say!("backup     {}", words(owner, backup))),
        }
    }
}

/// To which checkpoint a job went back, and what that has undone.
fn words_of(generation: &GenerationStatus) -> String {
    let GenerationStatus { number, checkpoint, undone } = generation;
    let to = match checkpoint {
        Some(checkpoint) => format!("to checkpoint {checkpoint}"),
        None => "to the beginning".to_owned(),
    };
    let undone = match undone {
        0 => "how many pushes that has undone is not known".to_owned(),
        _ => format!("at least {} undone", counted(*undone, "push was", "pushes were")),
    };
    format!("{to} (generation {number}): {undone}")
}

/// What a backup of a server does.
fn words(owner: &str, backup: &BackupStatus) -> String {
    let Some(addr) = &backup.addr else {
        return format!("{owner} has none here: no other server is there for it");
    };
    let behind = counted(backup.commands, "command", "commands");
    let behind = format!("{behind} ({}) behind", ByteSize(backup.bytes).display().iec());
    match (backup.joined, backup.commands) {
        (true, 0) => format!("{addr} has all rows of {owner}"),
        (true, _) => format!("{addr} has all rows of {owner}, which waits for it: {behind}"),
        (false, _) => {
            let BackupStatus { filled, shards, .. } = backup;
            format!("{addr} is filled by {owner}: {filled} of {shards} shards, {behind}")
        }
    }
}

/// The places as JSON.
pub fn of(places: &PlaceAnswers) -> Value {
    let of_place = |placement: &Placement, (_, place): (u32, Option<&PlaceStatus>)| {
        place.map(|place| {
            let complete = placement.complete(place);
            json!({
                "owner": place.owner,
                "epoch": place.epoch,
                "generation": place.generation,
                "state": state(place),
                "replication": place.replication.name(),
                "backups": place.backups,
                "backups_wanted": complete.map(|(_, wanted)| wanted),
                "survives_deaths": complete.map(|(complete, _)| complete),
            })
        })
    };
    match places {
        Ok(placement) => json!(placement.all().map(|of| of_place(placement, of)).collect::<Vec<_>>()),
        Err(_) => Value::Null,
    }
}

/// The checkpoint with which the places have begun, as JSON.
pub fn of_generation(places: &PlaceAnswers) -> Value {
    let of = |of: &GenerationStatus| json!({"number": of.number, "checkpoint": of.checkpoint, "undone": of.undone});
    places.as_ref().ok().and_then(|placement| placement.generation.as_ref().map(of)).unwrap_or(Value::Null)
}

/// The servers that have registered, with their backups, as JSON.
pub fn of_members(places: &PlaceAnswers) -> Value {
    let of_backup = |backup: &BackupStatus| {
        json!({
            "address": backup.addr,
            "joined": backup.joined,
            "shards_filled": backup.filled,
            "shards": backup.shards,
            "commands_behind": backup.commands,
            "bytes_behind": backup.bytes,
        })
    };
    let of_member = |member: &MemberStatus| {
        json!({
            "address": member.addr,
            "places": member.places,
            "backups": member.backups.iter().map(of_backup).collect::<Vec<_>>(),
        })
    };
    match places {
        Ok(placement) => json!(placement.members.iter().map(of_member).collect::<Vec<_>>()),
        Err(_) => Value::Null,
    }
}
