//! All models by name, and which of them answers a request.

use super::served::ServedModel;
use super::slot::Slot;
use crate::config::{ModelSource, TrafficShare};
use crate::error::{RequestError, ServeError};
use gannet::table::mix;
use gannet::train::ColumnKeys;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Parts of a percent, in which shares are counted.
const PARTS: f64 = 10_000.0;

/// The models of a process.
pub struct Catalog {
    slots: Vec<Arc<Slot>>,
    /// Which slot answers a share of the requests to the first one: its place, and the end of its range in 0..100 % in
    /// [`PARTS`] of a percent.
    splits: Vec<(usize, u64)>,
    /// Requests to the first model so far.
    turn: AtomicU64,
}

/// A model that answers a request.
pub struct Chosen {
    /// The slot that it is in.
    pub slot: Arc<Slot>,
    /// The model.
    pub model: Arc<ServedModel>,
}

impl Catalog {
    /// Loads all models.
    ///
    /// # Errors
    /// A model cannot be loaded, a name is there twice or has a `/`, or the splits do not fit.
    pub fn load(models: &[ModelSource], splits: &[TrafficShare]) -> Result<Catalog, ServeError> {
        let settings = |what: String| Err(ServeError::Settings(what));
        let mut slots: Vec<Arc<Slot>> = Vec::new();
        for ModelSource { name, origin } in models {
            if name.is_empty() || !name.bytes().all(|c| c.is_ascii_graphic() && !b"/%?#".contains(&c)) {
                return settings(format!(
                    "the name {name:?} is in addresses: it has letters, digits, and signs but `/`, `%`, `?` and `#`"
                ));
            }
            if slots.iter().any(|slot| slot.name == *name) {
                return settings(format!("two models have the name {name:?}: give each its own (NAME=DIR)"));
            }
            let loaded = Slot::load(name, origin.clone());
            slots.push(Arc::new(loaded.map_err(|error| ServeError::Model { name: name.clone(), error })?));
        }
        if slots.is_empty() {
            return settings(
                "there is no model to serve: give --model DIR, --checkpoint DIR or --follow HOST:PORT,.."
                    .to_owned(),
            );
        }
        let mut ranges = Vec::new();
        let mut end = 0.0;
        for TrafficShare { name, percent } in splits {
            let Some(at) = slots.iter().position(|slot| slot.name == *name) else {
                return settings(format!("--split {name}={percent}: no model has this name"));
            };
            if at == 0 {
                let first = &slots[0].name;
                return settings(format!(
                    "--split {name}={percent}: {first} is the first model, which answers what the splits leave"
                ));
            }
            end += percent;
            if !(0.0..=100.0).contains(percent) || end > 100.0 {
                return settings(format!(
                    "--split {name}={percent}: shares are percents, 100 together at most"
                ));
            }
            ranges.push((at, (end * PARTS).round() as u64));
        }
        Ok(Catalog { slots, splits: ranges, turn: AtomicU64::new(0) })
    }

    /// All slots. The first one answers requests that name none.
    pub fn slots(&self) -> &[Arc<Slot>] {
        &self.slots
    }

    /// The slot with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn slot(&self, name: &str) -> Result<&Arc<Slot>, RequestError> {
        self.slots.iter().find(|slot| slot.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.slots.iter().map(|slot| &*slot.name).collect();
            RequestError::NotFound(format!("there is no model {name:?}; there is {}", names.join(", ")))
        })
    }

    /// The model with this name, and this version if one is given.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Chosen, RequestError> {
        let slot = self.slot(name)?.clone();
        let model = slot.current();
        match version.filter(|version| *version != model.version) {
            None => Ok(Chosen { slot, model }),
            Some(version) => Err(RequestError::NotFound(format!(
                "model {name:?} has no version {version:?}; it has {:?}",
                model.version
            ))),
        }
    }

    /// The model that answers a request to this name (or to none): a request to the first model without a version may
    /// go to one that has a share of them. `id`: requests with the same id go to the same model.
    ///
    /// # Errors
    /// There is none.
    pub fn choose(
        &self,
        name: Option<&str>,
        version: Option<&str>,
        id: Option<&str>,
    ) -> Result<Chosen, RequestError> {
        let first = &*self.slots[0].name;
        let name = name.unwrap_or(first);
        if self.splits.is_empty() || version.is_some() || name != first {
            return self.find(name, version);
        }
        let at = self.share(id).unwrap_or(0);
        self.find(&self.slots[at].name, None)
    }

    /// The slot whose share the next request is in. `None`: that of the first model.
    fn share(&self, id: Option<&str>) -> Option<usize> {
        let drawn = match id {
            Some(id) => mix(ColumnKeys::new("request").categorical(id.as_bytes())),
            None => mix(self.turn.fetch_add(1, Relaxed)),
        };
        let of_all = (u128::from(drawn) * (100.0 * PARTS) as u128) >> 64;
        self.splits.iter().find(|(_, end)| of_all < u128::from(*end)).map(|(at, _)| *at)
    }

    /// Why the process should get no requests now. `None`: all models are there, and none is older than `max_age`.
    pub fn unready(&self, max_age: Option<Duration>) -> Option<String> {
        let max_age = max_age?;
        self.slots.iter().find_map(|slot| {
            let age = SystemTime::now().duration_since(slot.current().saved_at).unwrap_or_default();
            (age > max_age).then(|| {
                let (age, max) = (age.as_secs(), max_age.as_secs_f64());
                let what = if slot.origin.follows() { "has the rows of" } else { "was saved" };
                format!("model {:?} {what} {age} s ago; --max-age is {max} s", slot.name)
            })
        })
    }
}
