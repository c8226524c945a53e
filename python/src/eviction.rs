//! Which rows of a table die, as Python says it. Texts have the form of the flags of `gannet train`.

use crate::failure::CallFailure;
use bytesize::ByteSize;
use gannet::table::{Capacity, Eviction, EvictionError, TableId};
use gannet::{Schema, Transports, Worker};
use pyo3::FromPyObject;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// The longest age that means something: a hundred years.
const AGE_SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// The settings as they were given. All `None`: no row dies.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct EvictionTexts {
    evict_after: Option<String>,
    evict_below: Option<f32>,
    capacity: Option<String>,
    evict_floor: Option<u64>,
}

impl EvictionTexts {
    /// Which rows die. `None`: nothing was said.
    pub fn eviction(self) -> Result<Option<Eviction>, CallFailure> {
        let after = self.evict_after.as_deref().map(age).transpose()?;
        let capacity = self.capacity.as_deref().map(capacity).transpose()?;
        let eviction =
            Eviction { after, below: self.evict_below, capacity, floor: self.evict_floor.unwrap_or(0) };
        eviction.check().map_err(|error| CallFailure::input(format!("{}: {error}", argument(&error))))?;
        Ok(eviction.is_on().then_some(eviction))
    }
}

/// The argument that an error is about.
fn argument(error: &EvictionError) -> &'static str {
    match error {
        EvictionError::After => "evict_after",
        EvictionError::Below(_) => "evict_below",
        EvictionError::OnlyFloor => "evict_floor",
        _ => "capacity",
    }
}

/// An age such as `30d`; without a unit in seconds.
fn age(text: &str) -> Result<Duration, CallFailure> {
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let (number, unit) =
        units.into_iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of))).unwrap_or((text, 1));
    let seconds = number.parse().ok().and_then(|number: u64| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=AGE_SECONDS_MAX).contains(seconds));
    let wrong = || format!("evict_after is {text:?}: a time such as 3600, 15m, 12h or 30d is needed");
    seconds.map(Duration::from_secs).ok_or_else(|| CallFailure::input(wrong()))
}

/// Rows as a number, or bytes with a unit.
fn capacity(text: &str) -> Result<Capacity, CallFailure> {
    let rows = text.parse().map(Capacity::Rows);
    let bytes = || text.parse::<ByteSize>().ok().map(|size| Capacity::Bytes(size.as_u64()));
    let found = rows.ok().or_else(bytes);
    let found = found.filter(|found| !matches!(found, Capacity::Rows(0) | Capacity::Bytes(0)));
    let wrong = || format!("capacity is {text:?}: a number of rows, or bytes such as 4GiB are needed");
    found.ok_or_else(|| CallFailure::input(wrong()))
}

/// What a client has said of rows that die, by the table's name.
#[derive(Debug, Default)]
pub struct Evictions {
    /// The worker keeps what it was told, also when it could not open the table.
    said: HashMap<String, Eviction>,
    opened: HashSet<String>,
}

impl Evictions {
    /// Creates or opens a table. Who says nothing of an open table gets it as it is.
    pub fn open(
        &mut self,
        worker: &mut Worker<Transports>,
        schema: &Schema,
        eviction: Option<Eviction>,
    ) -> Result<TableId, CallFailure> {
        let (name, said) = (&schema.name, self.said.get(&schema.name));
        match eviction {
            Some(eviction) if said != Some(&eviction) => {
                worker.evict_rows(name, eviction)?;
                self.said.insert(name.clone(), eviction);
            }
            None if said.is_some() && !self.opened.contains(name) => {
                return Err(CallFailure::input(format!(
                    "table {name:?}: an earlier call, which failed, said that its rows may die: say it again, or make \
                     another client"
                )));
            }
            _ => {}
        }
        let id = worker.open_table(schema)?;
        self.opened.insert(name.clone());
        Ok(id)
    }
}
