//! The rows of a place as they were loaded, for each thread.

use crate::places::states::SavedStates;
use crate::tables::table::ServerTable;

/// The rows of a place, for the threads of the server.
pub(crate) struct LoadedPlace {
    /// How many rows.
    pub(crate) rows: u64,
    /// The tables of each thread.
    pub(crate) tables: Vec<Vec<ServerTable>>,
    /// What thread 0 knows besides rows.
    pub(crate) states: Option<PlaceStates>,
}

/// What thread 0 knows besides rows.
pub(crate) enum PlaceStates {
    Saved(SavedStates),
    /// From now on they are in the data folder.
    Folder,
}

/// What one thread takes of a place.
pub(crate) struct LoadedPart {
    pub(crate) tables: Vec<ServerTable>,
    pub(crate) states: Option<PlaceStates>,
}

impl LoadedPlace {
    /// The part of a thread. It takes it once.
    pub(crate) fn take(&mut self, thread: u32) -> LoadedPart {
        let tables = self.tables.get_mut(thread as usize).map(std::mem::take).unwrap_or_default();
        LoadedPart { tables, states: self.states.take_if(|_| thread == 0) }
    }
}
