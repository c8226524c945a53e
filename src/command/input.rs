//! What the input flags mean to the readers.

use super::Failure;
use super::args::{FormatName, InputArgs};
use gannet::train::{ColumnChoice, Data, Format};
use std::path::Path;

/// The data file that these flags describe.
pub fn data(path: &Path, args: &InputArgs, intercept: bool) -> Result<Data, Failure> {
    let text =
        path.to_str().ok_or_else(|| Failure::input(format!("{}: the path is not UTF-8", path.display())))?;
    let format = match args.format {
        FormatName::Auto => Format::Auto,
        FormatName::Libsvm => Format::Libsvm,
        FormatName::Csv => Format::Csv,
    };
    let columns = ColumnChoice {
        label: args.label.clone(),
        categorical: args.categorical.clone(),
        numeric: args.numeric.clone(),
    };
    Ok(Data { format, columns, intercept, skip_bad_lines: args.skip_bad_lines, ..Data::new(text) })
}
