//! Who owns which place of a job with a coordinator.

use gannet::backups::{PlaceStatus, Places, place};
use serde_json::{Value, json};

/// What the coordinator knows of each place, or why it has not answered.
pub type PlaceAnswers = Result<Vec<Option<PlaceStatus>>, String>;

/// Asks for all places.
pub fn query(places: &Places, servers: u32) -> PlaceAnswers {
    let of = |number| place(&*places.coordinator, &places.job, number);
    (0..servers).map(of).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// The state of a place in a word.
fn state(place: &PlaceStatus) -> &'static str {
    match (place.has_lease, place.ready) {
        (true, true) => "serves",
        (true, false) => "takes the place",
        (false, _) => "is silent",
    }
}

/// A line for each place.
pub fn print(places: &PlaceAnswers) {
    let places = match places {
        Ok(places) => places,
        Err(why) => return say!("places     not known: {why}"),
    };
    for (number, place) in places.iter().enumerate() {
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
    }
}

/// The places as JSON.
pub fn of(places: &PlaceAnswers) -> Value {
    let of_place = |place: &Option<PlaceStatus>| {
        place.as_ref().map(|place| {
            json!({
                "owner": place.owner,
                "epoch": place.epoch,
                "generation": place.generation,
                "state": state(place),
                "replication": place.replication.name(),
                "backups": place.backups,
            })
        })
    };
    match places {
        Ok(places) => json!(places.iter().map(of_place).collect::<Vec<_>>()),
        Err(_) => Value::Null,
    }
}
