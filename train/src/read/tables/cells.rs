//! The cells of a column of a record batch, those of a dictionary among them.

use crate::read::error::ReadError;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayAccessor, ArrayRef};
use std::ops::Range;

/// The cells of a column: those of an array, or those that a dictionary has for the keys of an array.
pub(super) struct Cells {
    pub(super) array: ArrayRef,
    has_nulls: bool,
    packed: Option<Packed>,
}

/// Where a dictionary has the cells.
struct Packed {
    keys: ArrayRef,
    has_nulls: bool,
    /// For each row the place in the dictionary. The place of a null is any one.
    places: Vec<usize>,
}

impl Cells {
    pub(super) fn of(array: &ArrayRef) -> Cells {
        let Some(packed) = array.as_any_dictionary_opt() else { return Cells::plain(array) };
        // Without values all rows are null.
        let places =
            if packed.values().is_empty() { vec![0; packed.len()] } else { packed.normalized_keys() };
        let packed_keys = Packed { keys: array.clone(), has_nulls: array.null_count() > 0, places };
        Cells { packed: Some(packed_keys), ..Cells::plain(packed.values()) }
    }

    fn plain(array: &ArrayRef) -> Cells {
        Cells { array: array.clone(), has_nulls: array.null_count() > 0, packed: None }
    }

    /// The cells of the dictionary. `None`: there is none.
    pub(super) fn dictionary(&self) -> Option<Cells> {
        self.packed.as_ref().map(|_| Cells::plain(&self.array))
    }

    /// Where the array has the cell of a row. `None`: it is null.
    #[inline(always)]
    pub(super) fn place(&self, row: usize) -> Option<usize> {
        let place = match &self.packed {
            None => row,
            Some(packed) if packed.has_nulls && packed.keys.is_null(row) => return None,
            Some(packed) => packed.places[row],
        };
        (!(self.has_nulls && self.array.is_null(place))).then_some(place)
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
