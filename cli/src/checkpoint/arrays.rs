//! Two arrays of rows: `keys` (n) and `values` (n x width). Their bytes move as streams, so memory does not grow with
//! the rows.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The arrays of a file that is read.
pub struct ArrayRows<'a> {
    /// Rows.
    pub rows: u64,
    /// Values of a row.
    pub width: usize,
    /// The keys: little-endian, 8 bytes each.
    pub keys: &'a mut dyn Read,
    /// The values: little-endian, 4 bytes each, row by row.
    pub values: &'a mut dyn Read,
}

/// The arrays of a file that is written.
pub struct ArrayFiles {
    /// Rows.
    pub rows: u64,
    /// Values of a row.
    pub width: usize,
    /// The keys, from the file's beginning on.
    pub keys: File,
    /// The values, from the file's beginning on.
    pub values: File,
}

/// What a file says of an array.
#[derive(Debug, PartialEq, Eq)]
pub struct ArrayHead {
    /// The type of its elements, as the format writes it.
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
}

/// Rows and width of two arrays that fit each other.
pub fn dimensions(
    path: &Path,
    (keys, key_types): (&ArrayHead, &[&str]),
    (values, value_type): (&ArrayHead, &str),
) -> Result<(u64, usize), Failure> {
    let refused = |why: String| Failure::input(format!("{}: {why}", path.display()));
    let ArrayHead { dtype, shape } = keys;
    let [rows] = shape[..] else {
        return Err(refused(format!("`keys` has the shape {shape:?}: one dimension is needed")));
    };
    if !key_types.contains(&dtype.as_str()) {
        let needed = key_types.join(" or ");
        return Err(refused(format!(
            "`keys` has the type {dtype}: {needed} is needed, as keys.astype('<u8') makes it"
        )));
    }
    let ArrayHead { dtype, shape } = values;
    let (of_values, width) = match shape[..] {
        [rows] => (rows, 1),
        [rows, width] => (rows, width),
        _ => return Err(refused(format!("`values` has the shape {shape:?}: (rows, dim) is needed"))),
    };
    if dtype != value_type {
        return Err(refused(format!(
            "`values` has the type {dtype}: {value_type} is needed, as values.astype('<f4') makes it"
        )));
    }
    if of_values != rows {
        return Err(refused(format!("there are {rows} keys, but {of_values} rows of values")));
    }
    match usize::try_from(width) {
        Ok(width) if (1..=1 << 20).contains(&width) => Ok((rows, width)),
        _ => Err(refused(format!("a row has {width} values, which no table has"))),
    }
}

/// The failure of a file that cannot be read.
pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::NotFound => {
            crate::failure::INPUT
        }
        _ => crate::failure::SYSTEM,
    };
    Failure::new(code, format!("reading {}: {error}", path.display()))
}
