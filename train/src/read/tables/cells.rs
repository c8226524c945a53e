//! The cells of a column of a record batch, those of a dictionary among them.

use crate::read::error::ReadError;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayAccessor, ArrayRef};
use std::ops::Range;

/// The cells of a column: those of an array, or those that a dictionary has for the keys of an array.
pub(super) struct Cells {
    pub(super) array: ArrayRef,
    /// The array of keys, and for each row the place in the dictionary. The place of a null is any one.
    pub(super) packed: Option<(ArrayRef, Vec<usize>)>,
}

impl Cells {
    pub(super) fn of(array: &ArrayRef) -> Cells {
        let Some(packed) = array.as_any_dictionary_opt() else {
            return Cells { array: array.clone(), packed: None };
        };
        let values = packed.values().clone();
        // Without values all rows are null.
        let places = if values.is_empty() { vec![0; packed.len()] } else { packed.normalized_keys() };
        Cells { array: values, packed: Some((array.clone(), places)) }
    }

    /// Where the array has the cell of a row. `None`: it is null.
    #[inline(always)]
    pub(super) fn place(&self, row: usize) -> Option<usize> {
        let place = match &self.packed {
            None => row,
            Some((keys, _)) if keys.is_null(row) => return None,
            Some((_, places)) => places[row],
        };
        (!self.array.is_null(place)).then_some(place)
    }
}

/// Takes the text of a cell, and the number of its row among those that are visited. `None`: it is null.
pub(super) type TakeText<'a> = &'a mut dyn FnMut(usize, Option<&[u8]>) -> Result<(), ReadError>;

/// A cell of a numeric column.
pub(super) enum Cell<'a> {
    /// `None`: it is null.
    Number(Option<f32>),
    /// Its text has to be parsed.
    Text(&'a [u8]),
}

/// Takes a cell, and the number of its row among those that are visited.
pub(super) type TakeNumber<'a> = &'a mut dyn FnMut(usize, Cell<'_>) -> Result<(), ReadError>;

/// Calls `each` with the cell of each of these rows. `array` is that of the cells, with its type.
pub(super) fn visit<A: ArrayAccessor>(
    cells: &Cells,
    array: A,
    rows: Range<usize>,
    mut each: impl FnMut(usize, Option<A::Item>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let begin = rows.start;
    for row in rows {
        each(row - begin, cells.place(row).map(|place| array.value(place)))?;
    }
    Ok(())
}
