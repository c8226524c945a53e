//! The columns of a record batch: which types may have which role, and the features that their cells become.
//!
//! A cell becomes what its text in a CSV file becomes. Numbers take a shorter way where that gives the same bits.

use crate::read::error::ReadError;
use crate::read::formats::columns::{Role, parse_number};
use crate::read::formats::labels::Labels;
use crate::read::formats::text_key::ColumnKeys;
use crate::read::table_rows::NewRows;
use crate::read::tables::cells::{Cell, Cells, TakeNumber, visit};
use crate::read::tables::known_keys::KnownKeys;
use crate::read::tables::texts::{FLAGS, float_text, texts, with_integers};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use std::ops::Range;

/// Whether a column of this type has numbers unless a flag says otherwise: its values have a decimal point.
pub(crate) fn has_numbers(of: &DataType) -> bool {
    let of = if let DataType::Dictionary(_, values) = of { values } else { of };
    match of {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale > 0,
        of => of.is_floating(),
    }
}

/// Refuses a column whose type does not fit its role: what is wrong, and what to do. `takes_all`: floats may be
/// categories, because the model that reads them may have seen them as such in JSON lines.
pub(crate) fn check(name: &str, of: &DataType, role: &Role, takes_all: bool) -> Result<(), String> {
    let is_list = element(of).is_some();
    let one = element(of).unwrap_or(of);
    let (one, is_packed) = match one {
        DataType::Dictionary(_, values) => (&**values, true),
        one => (one, false),
    };
    let is_time = matches!(one, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
        || matches!(one, DataType::Time32(_) | DataType::Time64(_));
    let is_known = one.is_floating()
        || one.is_integer()
        || one.is_decimal()
        || one.is_string()
        || is_time
        || matches!(one, DataType::Boolean | DataType::Null);
    let packed = if is_packed { "a dictionary of " } else { "" };
    let list = if is_list { "a list of " } else { "" };
    let of = format!("{list}{packed}{one}");
    match role {
        Role::Skipped => Ok(()),
        _ if !is_known => Err(format!(
            "column {name:?} has type {of}; strings, integers, floats, decimals, booleans, dates, times, and lists of \
             these can be read: cast it, or leave it out (--ignore {name})"
        )),
        Role::Categorical(_) | Role::Both(..) if one.is_floating() && is_list => Err(format!(
            "column {name:?} has type {of}: categories are integers or strings; cast it, give each element a column, or \
             leave it out (--ignore {name})"
        )),
        Role::Categorical(_) if one.is_floating() && !takes_all => Err(format!(
            "column {name:?} has type {of}, and is categorical: name it in --numeric, or make it integers or strings"
        )),
        Role::Numeric(..) | Role::Both(..) | Role::OfExample(_) | Role::Label if is_list || is_time => {
            Err(format!(
                "column {name:?} has type {of}: it can only be categorical; as a number, or as the label, it must be cast"
            ))
        }
        _ => Ok(()),
    }
}

/// The type of the elements of a list.
pub(crate) fn element(of: &DataType) -> Option<&DataType> {
    match of {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            Some(field.data_type())
        }
        _ => None,
    }
}

/// A column of a record batch.
pub(crate) struct Column {
    /// Its index in the schema.
    at: usize,
    cells: Cells,
    /// The role's keys, for categories.
    keys: Option<ColumnKeys>,
    role: Role,
    lists: Option<Lists>,
}

/// The categories of a column of lists.
struct Lists {
    /// The key of each element.
    of_elements: Vec<u64>,
    /// Which of them each row has. `None`: the row is null.
    of_rows: Vec<Option<Range<usize>>>,
}

impl Column {
    /// A column that has [passed](check). `None`: its role is to be skipped.
    ///
    /// # Errors
    /// None that its cells can cause.
    pub(crate) fn of(at: usize, role: &Role, array: &ArrayRef) -> Result<Option<Column>, ReadError> {
        let keys = match *role {
            Role::Skipped => return Ok(None),
            Role::Label | Role::OfExample(_) | Role::Numeric(..) => None,
            Role::Categorical(keys) | Role::Both(keys, ..) => Some(keys),
        };
        let lists = match (keys, lists_of(array)) {
            (Some(keys), Some((elements, rows))) => Some(Lists::of(&elements, rows, keys)?),
            _ => None,
        };
        Ok(Some(Column { at, cells: Cells::of(array), keys, role: *role, lists }))
    }

    /// Calls `each` with the text of each of the first values of a column, or with those of lists. `None`: it is null.
    pub(crate) fn texts_of(
        array: &ArrayRef,
        most: usize,
        each: &mut dyn FnMut(Option<&[u8]>),
    ) -> Result<(), ReadError> {
        let (cells, rows) = match lists_of(array) {
            Some((elements, rows)) => {
                let most = rows.iter().take(most).flatten().map(|row| row.end).max();
                (Cells::of(&elements), 0..most.unwrap_or(0))
            }
            None => (Cells::of(array), 0..most),
        };
        texts(&cells, rows, FLAGS, &mut |_, text| {
            each(text);
            Ok(())
        })
    }

    /// Writes the cells of these rows. `known` has keys of the column's values.
    ///
    /// # Errors
    /// A cell is not a number, or not a label.
    pub(super) fn fill(
        &self,
        rows: Range<usize>,
        labels: Labels,
        known: &mut KnownKeys,
        new: &mut NewRows<'_>,
    ) -> Result<(), ReadError> {
        let Some(keys) = self.keys else { return self.fill_others(rows, labels, new) };
        self.fill_categories(rows.clone(), keys, known, new)?;
        if !matches!(self.role, Role::Both(..)) {
            return Ok(());
        }
        let of = self.cells.array.data_type();
        if of.is_integer() || of.is_floating() {
            return self.fill_numbers(rows, new);
        }
        let at = self.at;
        // As in a CSV file: true and false are no numbers.
        texts(&self.cells, rows, FLAGS, &mut |row, text| {
            new.number_of_text(at, row, text.unwrap_or_default())
        })
    }

    fn fill_numbers(&self, rows: Range<usize>, new: &mut NewRows<'_>) -> Result<(), ReadError> {
        numbers(&self.cells, rows, &mut |row, cell| match cell {
            Cell::Number(number) => new.number(self.at, row, number),
            Cell::Text(text) => new.number_of_text(self.at, row, text),
        })
    }

    fn fill_others(
        &self,
        rows: Range<usize>,
        labels: Labels,
        new: &mut NewRows<'_>,
    ) -> Result<(), ReadError> {
        let cells = &self.cells;
        match self.role {
            Role::OfExample(which) => numbers(cells, rows, &mut |row, cell| match cell {
                Cell::Number(number) => new.example_number(which, row, number),
                Cell::Text(text) => new.example_number(which, row, parse_number(text).unwrap_or_default()),
            }),
            Role::Label => {
                let flags = if matches!(labels, Labels::Two(_)) { FLAGS } else { ["0", "1"] };
                texts(cells, rows, flags, &mut |row, text| new.label(row, text))
            }
            _ => self.fill_numbers(rows, new),
        }
    }

    fn fill_categories(
        &self,
        rows: Range<usize>,
        keys: ColumnKeys,
        known: &mut KnownKeys,
        new: &mut NewRows<'_>,
    ) -> Result<(), ReadError> {
        let (at, cells, begin, missing) = (self.at, &self.cells, rows.start, keys.categorical(b""));
        if let Some(lists) = &self.lists {
            for row in rows {
                match lists.of_rows[row].clone() {
                    Some(elements) => new.categories(at, row - begin, &lists.of_elements[elements]),
                    None => new.categories(at, row - begin, &[missing]),
                }
            }
            return Ok(());
        }
        if let Some(dictionary) = cells.dictionary() {
            let mut of_values = known.of_dictionary(&cells.array);
            for row in rows {
                let key = match cells.place(row) {
                    Some(place) => of_values.at(place, || key_of(&dictionary, place, keys))?,
                    None => missing,
                };
                new.category(at, row - begin, key);
            }
            return Ok(());
        }
        macro_rules! integers {
            ($of:ty) => {{
                let (array, mut digits) = (cells.array.as_primitive::<$of>(), itoa::Buffer::new());
                visit(cells, array, rows, |row, number| {
                    let Some(number) = number else { return Ok(new.category(at, row, missing)) };
                    let make = || Ok(keys.categorical(digits.format(number).as_bytes()));
                    new.category(at, row, known.of_bits(number as u64, make)?);
                    Ok(())
                })
            }};
        }
        let width = width_of_slow(cells.array.data_type());
        let Some(width) = width else {
            let texts = |new: &mut NewRows<'_>| {
                texts(cells, rows.clone(), FLAGS, &mut |row, text| {
                    new.category(at, row, text.map_or(missing, |text| keys.categorical(text)));
                    Ok(())
                })
            };
            return with_integers!(cells.array.data_type(), integers, texts(new));
        };
        let data = cells.array.to_data();
        for row in rows {
            let Some(place) = cells.place(row) else {
                new.category(at, row - begin, missing);
                continue;
            };
            let bits = match width {
                4 => u64::from(data.buffer::<u32>(0)[place]),
                _ => data.buffer::<u64>(0)[place],
            };
            new.category(at, row - begin, known.of_bits(bits, || key_of(cells, place, keys))?);
        }
        Ok(())
    }
}

impl Lists {
    fn of(
        elements: &ArrayRef,
        rows: Vec<Option<Range<usize>>>,
        keys: ColumnKeys,
    ) -> Result<Lists, ReadError> {
        // Keys count from the first element that a row has.
        let from = rows.iter().flatten().map(|row| row.start).min().unwrap_or(0);
        let to = rows.iter().flatten().map(|row| row.end).max().unwrap_or(0);
        let mut of_elements = vec![0; to - from];
        texts(&Cells::of(elements), from..to, FLAGS, &mut |place, text| {
            of_elements[place] = keys.categorical(text.unwrap_or_default());
            Ok(())
        })?;
        let shifted = |row: Range<usize>| row.start - from..row.end - from;
        let of_rows = rows.into_iter().map(|row| row.map(shifted)).collect();
        Ok(Lists { of_elements, of_rows })
    }
}

/// The key of one value.
#[cold]
fn key_of(values: &Cells, place: usize, keys: ColumnKeys) -> Result<u64, ReadError> {
    let mut key = 0;
    if let Some(text) = float_text(values, place) {
        return Ok(keys.categorical(text.as_bytes()));
    }
    texts(values, place..place + 1, FLAGS, &mut |_, text| {
        key = keys.categorical(text.unwrap_or_default());
        Ok(())
    })?;
    Ok(key)
}

/// The bytes of a value whose text takes long to write. Values with the same bits have the same text.
fn width_of_slow(of: &DataType) -> Option<usize> {
    let is_slow = of.is_temporal() || matches!(of, DataType::Float32 | DataType::Float64);
    of.primitive_width().filter(|width| is_slow && matches!(width, 4 | 8))
}

/// The elements of an array of lists, and which of them each row has. `None`: it is no such array.
#[allow(clippy::type_complexity)]
fn lists_of(array: &ArrayRef) -> Option<(ArrayRef, Vec<Option<Range<usize>>>)> {
    let row = |row: usize, range: Range<usize>| array.is_valid(row).then_some(range);
    let of_offsets = |elements: &ArrayRef, offset: &dyn Fn(usize) -> usize| {
        let rows = (0..array.len()).map(|at| row(at, offset(at)..offset(at + 1))).collect();
        (elements.clone(), rows)
    };
    match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            Some(of_offsets(lists.values(), &|at| lists.value_offsets()[at] as usize))
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            Some(of_offsets(lists.values(), &|at| lists.value_offsets()[at] as usize))
        }
        DataType::FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            Some(of_offsets(lists.values(), &|at| lists.value_offset_at(at)))
        }
        _ => None,
    }
}

/// The number of each cell, or its text where that has to be parsed.
fn numbers(cells: &Cells, rows: Range<usize>, each: TakeNumber<'_>) -> Result<(), ReadError> {
    let array = &*cells.array;
    macro_rules! rounded {
        ($of:ty) => {
            // The nearest f32, as of the decimal text.
            visit(cells, array.as_primitive::<$of>(), rows, |row, number| {
                each(row, Cell::Number(number.map(|number| number as f32)))
            })
        };
    }
    match array.data_type() {
        DataType::Float16 => visit(cells, array.as_primitive::<Float16Type>(), rows, |row, number| {
            each(row, Cell::Number(number.map(f32::from)))
        }),
        DataType::Float32 => visit(cells, array.as_primitive::<Float32Type>(), rows, |row, number| {
            each(row, Cell::Number(number))
        }),
        DataType::Float64 => {
            let mut text = zmij::Buffer::new();
            visit(cells, array.as_primitive::<Float64Type>(), rows, |row, number| match number {
                // Of two shortest texts Python, pyarrow and this write the even one.
                Some(number) if may_round_otherwise(number) => {
                    each(row, Cell::Text(text.format(number).as_bytes()))
                }
                number => each(row, Cell::Number(number.map(|number| number as f32))),
            })
        }
        DataType::Boolean => visit(cells, array.as_boolean(), rows, |row, flag| {
            each(row, Cell::Number(flag.map(|flag| f32::from(u8::from(flag)))))
        }),
        of => with_integers!(
            of,
            rounded,
            texts(cells, rows, FLAGS, &mut |row, text| {
                each(row, text.map_or(Cell::Number(None), Cell::Text))
            })
        ),
    }
}

/// Whether the shortest decimal text of a number may round to another f32 than the number itself: it is in the middle
/// of two f32s, and its text is a little beside it. Numbers below the normal f32s are all taken for such.
fn may_round_otherwise(number: f64) -> bool {
    let below_f32 = number.to_bits() & ((1 << 29) - 1);
    below_f32 == 1 << 28 || (number != 0.0 && number.abs() < f64::from(f32::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short way and the text give the same bits, also beside the middle of two f32s.
    #[test]
    fn a_double_becomes_the_f32_of_its_text() {
        let mut seed = 7u64;
        let mut others = 0;
        for _ in 0..200_000 {
            seed = gannet_core::mix(seed);
            let near = f32::from_bits(seed as u32);
            if !near.is_finite() {
                continue;
            }
            let middle = f64::from_bits(f64::from(near).to_bits() | 1 << 28);
            for number in [middle, middle.next_up(), middle.next_down(), f64::from_bits(seed)] {
                let by_text: f32 = number.to_string().parse().unwrap_or(f32::NAN);
                let short = number as f32;
                if short.to_bits() != by_text.to_bits() && !number.is_nan() {
                    assert!(may_round_otherwise(number), "{number:?}");
                    others += 1;
                }
            }
        }
        assert!(others > 0, "the text never makes a difference: the longer way is of no use");
    }
}
