//! The places that a server owns, and how one is handed to its threads.

use gannet_core::Position;
use std::collections::BTreeMap;

/// The place of a server that a backup takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promotion {
    pub(crate) server: u32,
    pub(crate) servers: u32,
    pub(crate) epoch: u64,
    /// This backup has everything that was acknowledged, and was told it in this epoch or a later one. So where it
    /// lacks rows, nothing of the table was. `None`: nobody knows.
    pub(crate) has_all_since: Option<u64>,
    /// Nothing is acknowledged before other backups have what is here.
    pub(crate) is_held: bool,
}

/// What a thread knows of a place that its server has, or takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnPlace {
    /// 0: there is no coordinator.
    pub(crate) epoch: u64,
    /// The coordinator knows that the server has all rows. Before, another backup may still take the place, so nothing
    /// may replace its copies.
    pub(crate) is_ready: bool,
    /// The server acknowledges nothing. Backups of the owner before may go on with the copies that they have.
    pub(crate) is_held: bool,
}

/// The places that a thread knows its server to have, or to take. `None`: the server has no membership, and owns what
/// it has.
#[derive(Debug, Default)]
pub(crate) struct OwnPlaces {
    pub(crate) places: Option<BTreeMap<u32, OwnPlace>>,
    /// How many changes of [`Standing`](crate::membership::standing::Standing) the thread knows.
    pub(crate) changes: u64,
}

impl OwnPlaces {
    /// Of a server that has a membership. It owns nothing at first.
    pub(crate) fn managed() -> OwnPlaces {
        OwnPlaces { places: Some(BTreeMap::new()), changes: 0 }
    }

    /// Whether the server owns a place, as far as it knows.
    pub(crate) fn may_serve(&self, place: u32) -> bool {
        self.places.as_ref().is_none_or(|places| places.contains_key(&place))
    }

    /// Whether the coordinator has given the server a place.
    pub(crate) fn has_taken(&self, place: u32) -> bool {
        self.places.as_ref().is_some_and(|places| places.contains_key(&place))
    }

    /// What the thread knows of a place.
    pub(crate) fn get(&self, place: u32) -> OwnPlace {
        let known = |places: &BTreeMap<u32, OwnPlace>| places.get(&place).copied();
        let is_ready = self.places.is_none();
        self.places.as_ref().and_then(known).unwrap_or(OwnPlace { epoch: 0, is_ready, is_held: false })
    }

    /// The server takes a place.
    pub(crate) fn take(&mut self, promotion: Promotion) {
        let Promotion { server: place, epoch, is_held, .. } = promotion;
        if let Some(places) = &mut self.places {
            places.insert(place, OwnPlace { epoch, is_ready: false, is_held });
        }
    }
}

/// How far the shards of a server are: each with the name of its table.
pub(crate) type Positions = Vec<(String, Position)>;

/// The place whose server is the scheduler, keeps the registry of runs and hands out incarnations.
pub(crate) const SCHEDULER_PLACE: u32 = 0;
