//! The texts of cells, as a CSV file would have them.

use crate::read::error::ReadError;
use crate::read::tables::cells::{Cells, TakeText, visit};
use arrow_array::PrimitiveArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTemporalType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_schema::{DataType, TimeUnit};
use std::fmt::{Display, Write as _};
use std::ops::Range;

/// Runs `$do!(type)` for the array's type of integers.
macro_rules! with_integers {
    ($of:expr, $do:ident, $otherwise:expr) => {
        match $of {
            DataType::Int8 => $do!(Int8Type),
            DataType::Int16 => $do!(Int16Type),
            DataType::Int32 => $do!(Int32Type),
            DataType::Int64 => $do!(Int64Type),
            DataType::UInt8 => $do!(UInt8Type),
            DataType::UInt16 => $do!(UInt16Type),
            DataType::UInt32 => $do!(UInt32Type),
            DataType::UInt64 => $do!(UInt64Type),
            _ => $otherwise,
        }
    };
}
pub(super) use with_integers;

/// The texts of false and true.
pub(super) const FLAGS: [&str; 2] = ["false", "true"];

/// The text of each cell, as a CSV file would have it. `flags` are the texts of false and true.
pub(super) fn texts(
    cells: &Cells,
    rows: Range<usize>,
    flags: [&str; 2],
    each: TakeText<'_>,
) -> Result<(), ReadError> {
    let array = &*cells.array;
    let (mut text, mut digits) = (String::new(), itoa::Buffer::new());
    macro_rules! integers {
        ($of:ty) => {
            visit(cells, array.as_primitive::<$of>(), rows, |row, number| {
                each(row, number.map(|number| digits.format(number).as_bytes()))
            })
        };
    }
    macro_rules! displayed {
        ($of:ty) => {
            visit(cells, array.as_primitive::<$of>(), rows, |row, number| {
                text.clear();
                // Writing to a String does not fail.
                let _ = number.map(|number| write!(text, "{number}"));
                each(row, number.is_some().then_some(text.as_bytes()))
            })
        };
    }
    macro_rules! strings {
        ($array:expr) => {
            visit(cells, $array, rows, |row, text| each(row, text.map(str::as_bytes)))
        };
    }
    match array.data_type() {
        DataType::Utf8 => strings!(array.as_string::<i32>()),
        DataType::LargeUtf8 => strings!(array.as_string::<i64>()),
        DataType::Utf8View => strings!(array.as_string_view()),
        DataType::Boolean => visit(cells, array.as_boolean(), rows, |row, flag| {
            each(row, flag.map(|flag| flags[usize::from(flag)].as_bytes()))
        }),
        DataType::Float16 => displayed!(Float16Type),
        DataType::Float32 => displayed!(Float32Type),
        DataType::Float64 => displayed!(Float64Type),
        DataType::Decimal32(..) => decimals::<Decimal32Type>(cells, rows, each),
        DataType::Decimal64(..) => decimals::<Decimal64Type>(cells, rows, each),
        DataType::Decimal128(..) => decimals::<Decimal128Type>(cells, rows, each),
        DataType::Decimal256(..) => decimals::<Decimal256Type>(cells, rows, each),
        DataType::Date32 => moments::<Date32Type, _>(cells, rows, each, PrimitiveArray::value_as_date),
        DataType::Date64 => moments::<Date64Type, _>(cells, rows, each, PrimitiveArray::value_as_date),
        DataType::Timestamp(unit, _) => timestamps(*unit, cells, rows, each),
        DataType::Time32(TimeUnit::Second) => {
            moments::<Time32SecondType, _>(cells, rows, each, PrimitiveArray::value_as_time)
        }
        DataType::Time32(_) => {
            moments::<Time32MillisecondType, _>(cells, rows, each, PrimitiveArray::value_as_time)
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            moments::<Time64MicrosecondType, _>(cells, rows, each, PrimitiveArray::value_as_time)
        }
        DataType::Time64(_) => {
            moments::<Time64NanosecondType, _>(cells, rows, each, PrimitiveArray::value_as_time)
        }
        // Only nulls: other types do not pass the check.
        of => with_integers!(of, integers, (0..rows.len()).try_for_each(|row| each(row, None))),
    }
}

/// The text of a float as JSON lines and CSV files of Python have it: `1.0`, `0.25`, `1e-07`, `1e+16`. `None`: the
/// value is no float, or not finite.
pub(super) fn float_text(values: &Cells, place: usize) -> Option<String> {
    let shortest = match values.array.data_type() {
        DataType::Float32 => format!("{:e}", values.array.as_primitive::<Float32Type>().value(place)),
        DataType::Float64 => format!("{:e}", values.array.as_primitive::<Float64Type>().value(place)),
        _ => return None,
    };
    let (digits, exponent) = shortest.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    match exponent {
        -4..16 => {
            let number: f64 = shortest.parse().ok()?;
            let text = number.to_string();
            Some(if text.contains('.') { text } else { text + ".0" })
        }
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            Some(format!("{digits}e{sign}{:02}", exponent.abs()))
        }
    }
}

fn decimals<T: DecimalType>(cells: &Cells, rows: Range<usize>, each: TakeText<'_>) -> Result<(), ReadError> {
    let (begin, array) = (rows.start, cells.array.as_primitive::<T>());
    for row in rows {
        let text = cells.place(row).map(|place| array.value_as_string(place));
        each(row - begin, text.as_deref().map(str::as_bytes))?;
    }
    Ok(())
}

/// Times of any unit, in UTC: `2026-11-27 10:30:00`, with a fraction if there is one.
fn timestamps(
    unit: TimeUnit,
    cells: &Cells,
    rows: Range<usize>,
    each: TakeText<'_>,
) -> Result<(), ReadError> {
    match unit {
        TimeUnit::Second => {
            moments::<TimestampSecondType, _>(cells, rows, each, PrimitiveArray::value_as_datetime)
        }
        TimeUnit::Millisecond => {
            moments::<TimestampMillisecondType, _>(cells, rows, each, PrimitiveArray::value_as_datetime)
        }
        TimeUnit::Microsecond => {
            moments::<TimestampMicrosecondType, _>(cells, rows, each, PrimitiveArray::value_as_datetime)
        }
        TimeUnit::Nanosecond => {
            moments::<TimestampNanosecondType, _>(cells, rows, each, PrimitiveArray::value_as_datetime)
        }
    }
}

/// The texts of dates or times. One beyond the calendar is infinite, or has its number as text.
fn moments<T: ArrowTemporalType, M: Display>(
    cells: &Cells,
    rows: Range<usize>,
    each: TakeText<'_>,
    moment: fn(&PrimitiveArray<T>, usize) -> Option<M>,
) -> Result<(), ReadError>
where
    i64: From<T::Native>,
{
    let (begin, array) = (rows.start, cells.array.as_primitive::<T>());
    for row in rows {
        let text = cells.place(row).map(|place| match moment(array, place) {
            Some(moment) => moment.to_string(),
            None => beyond_calendar(array.value(place).into()),
        });
        each(row - begin, text.as_deref().map(str::as_bytes))?;
    }
    Ok(())
}

/// The text of a moment that the calendar does not have. Duckdb and Postgres write infinity as the largest number, and
/// its opposite as the smallest or the one above it.
fn beyond_calendar(number: i64) -> String {
    let largest = [i64::MAX, i32::MAX.into()];
    if largest.contains(&number) {
        "infinity".into()
    } else if largest.iter().any(|&largest| number == -largest || number == -largest - 1) {
        "-infinity".into()
    } else {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Float32Array, Float64Array};
    use std::sync::Arc;

    #[test]
    fn floats_have_the_texts_that_python_writes() {
        let numbers = [1.0, -0.0, 0.25, 3.5, 1e-4, 1e-5, 1.5e-7, 1e15, 1e16, 1.25e20, f64::MIN_POSITIVE];
        let texts = [
            "1.0",
            "-0.0",
            "0.25",
            "3.5",
            "0.0001",
            "1e-05",
            "1.5e-07",
            "1000000000000000.0",
            "1e+16",
            "1.25e+20",
            "2.2250738585072014e-308",
        ];
        let cells = Cells::of(&(Arc::new(Float64Array::from(numbers.to_vec())) as ArrayRef));
        for (place, text) in texts.iter().enumerate() {
            assert_eq!(float_text(&cells, place).as_deref(), Some(*text));
        }
        let cells = Cells::of(&(Arc::new(Float32Array::from(vec![0.1, f32::NAN, 1e-7])) as ArrayRef));
        let found: Vec<_> = (0..3).map(|place| float_text(&cells, place)).collect();
        assert_eq!(found, [Some("0.1".into()), None, Some("1e-07".into())]);
    }
}
