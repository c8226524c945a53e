//! The tables of one server thread, by their numbers. A number says at which place of the list a table is, and the
//! how-manieth table of that place it is. So a dropped table leaves nothing, its place is used again, and its number
//! never reaches another table.

use crate::limits::TABLES_MAX;
use crate::peers::outcome::{RequestFailure, refuse};
use crate::peers::pusher::place_of;
use crate::tables::table::ServerTable;
use gannet_wire::refusal::Refusal;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// Tables that one place can have, one after another. After that it stays empty.
const TURNS_MAX: usize = (u32::MAX as usize + 1) / TABLES_MAX;

/// Why a table has no rows here.
pub(crate) const NO_SHARD: &str =
    "this thread owns no shard of the table, or its rows were dropped (the run was started again)";

/// See the module.
#[derive(Default)]
pub(crate) struct TableList {
    places: Vec<TablePlace>,
    /// Empty places, the one that has been empty for the longest time first.
    free: VecDeque<usize>,
}

struct TablePlace {
    /// The number of the table here, or of the next one.
    number: usize,
    table: Option<Box<ServerTable>>,
}

impl TableList {
    /// How many tables there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there is no place for `more` tables.
    pub(crate) fn lacks_room_for(&self, more: usize) -> bool {
        self.len() + more > TABLES_MAX
    }

    /// Adds a table. Returns its number.
    ///
    /// # Panics
    /// When there is no room ([`lacks_room_for`](Self::lacks_room_for)).
    pub(crate) fn add(&mut self, table: ServerTable) -> usize {
        let place = self.free.pop_front().unwrap_or_else(|| {
            assert!(self.places.len() < TABLES_MAX, "a thread has {TABLES_MAX} tables");
            self.places.push(TablePlace { number: self.places.len(), table: None });
            self.places.len() - 1
        });
        let place = &mut self.places[place];
        place.table = Some(Box::new(table));
        place.number
    }

    /// Takes a table out of the list.
    pub(crate) fn remove(&mut self, number: usize) -> Option<ServerTable> {
        let at = number % TABLES_MAX;
        let place = self.places.get_mut(at).filter(|place| place.number == number)?;
        let table = place.table.take()?;
        place.number += TABLES_MAX;
        if place.number / TABLES_MAX < TURNS_MAX {
            self.free.push_back(at);
        }
        Some(*table)
    }

    /// Refuses a request for a table that is not here.
    pub(crate) fn refuse_number<T>(&self, number: u32) -> Result<T, RequestFailure> {
        let place = self.places.get(place_of(number));
        match place.is_some_and(|place| (number as usize) < place.number) {
            true => refuse(Refusal::WrongShard, NO_SHARD),
            false => refuse(Refusal::Unknown, format!("no table {number} has been opened on this thread")),
        }
    }

    pub(crate) fn get(&self, number: usize) -> Option<&ServerTable> {
        self.places.get(number % TABLES_MAX).filter(|place| place.number == number)?.table.as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut ServerTable> {
        let place = self.places.get_mut(number % TABLES_MAX);
        place.filter(|place| place.number == number)?.table.as_deref_mut()
    }

    /// The tables, each with its number.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &ServerTable)> {
        self.places.iter().filter_map(|place| Some((place.number, place.table.as_deref()?)))
    }

    /// The tables, each with its number.
    pub(crate) fn numbered_mut(&mut self) -> impl Iterator<Item = (usize, &mut ServerTable)> {
        self.places.iter_mut().filter_map(|place| Some((place.number, place.table.as_deref_mut()?)))
    }

    /// The numbers of the tables.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.numbered().map(|(number, _)| number).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ServerTable> {
        self.places.iter().filter_map(|place| place.table.as_deref())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ServerTable> {
        self.places.iter_mut().filter_map(|place| place.table.as_deref_mut())
    }

    /// All tables.
    pub(crate) fn into_tables(self) -> Vec<ServerTable> {
        self.places.into_iter().filter_map(|place| place.table.map(|table| *table)).collect()
    }
}

impl Index<usize> for TableList {
    type Output = ServerTable;

    /// The table of this number.
    ///
    /// # Panics
    /// When there is none.
    fn index(&self, number: usize) -> &ServerTable {
        self.get(number).unwrap_or_else(|| panic!("no table {number} on this thread"))
    }
}

impl IndexMut<usize> for TableList {
    fn index_mut(&mut self, number: usize) -> &mut ServerTable {
        self.get_mut(number).unwrap_or_else(|| panic!("no table {number} on this thread"))
    }
}

const _: () = assert!(TABLES_MAX.is_power_of_two() && TURNS_MAX > 1 << 16);
