//! The keys of a place at the coordinator.

use crate::coordinator::{Coordinator, CoordinatorError, CoordinatorWrite};
use crate::messages::control;
use crate::messages::control::PlaceV3;

/// The keys of a place.
#[derive(Debug, Clone)]
pub struct PlaceKeys {
    pub number: u32,
    pub owner: String,
    place: String,
}

impl PlaceKeys {
    pub fn new(job: &str, place: u32) -> PlaceKeys {
        PlaceKeys {
            number: place,
            owner: format!("{job}/owner/{place}"),
            place: format!("{job}/place/{place}"),
        }
    }

    /// The write of what the coordinator is to know of the place.
    pub fn write(&self, version: u64, place: &PlaceV3) -> CoordinatorWrite {
        let (key, value) = (self.place.clone(), control::seal_as(3, place));
        CoordinatorWrite { key, version, value, lease: None }
    }

    /// What the coordinator knows of the place, and the version of that.
    pub fn get(&self, coordinator: &dyn Coordinator) -> Result<Option<(PlaceV3, u64)>, CoordinatorError> {
        let Some(entry) = coordinator.get(&self.place)? else { return Ok(None) };
        match control::open_as::<PlaceV3>(3, &entry.value) {
            Ok(place) => Ok(Some((place, entry.version))),
            Err(error) => Err(CoordinatorError(format!("key {:?} cannot be read: {error}", self.place))),
        }
    }
}
