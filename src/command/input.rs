//! What the input flags mean to the readers.

use super::Failure;
use super::args::{CountsName, FormatName, InputArgs};
use gannet::train::{ColumnChoice, Counts, Data, Format, files};
use std::path::PathBuf;

/// The data files that these flags describe.
pub fn data(paths: &[PathBuf], args: &InputArgs, intercept: bool) -> Result<Data, Failure> {
    let text = |path: &PathBuf| {
        path.to_str()
            .map(str::to_owned)
            .ok_or_else(|| Failure::input(format!("{}: the path is not UTF-8; rename it", path.display())))
    };
    let named = paths.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let files = files(&named).map_err(|e| Failure::input(e.to_string()))?;
    let format = match args.format {
        FormatName::Auto => Format::Auto,
        FormatName::Libsvm => Format::Libsvm,
        FormatName::Csv => Format::Csv,
        FormatName::Criteo => Format::Criteo,
        FormatName::Vw => Format::Vw,
    };
    let counts = counts(args);
    let columns = ColumnChoice {
        label: args.label.clone(),
        categorical: args.categorical.clone(),
        numeric: args.numeric.clone(),
    };
    Ok(Data { format, counts, columns, intercept, skip_bad_lines: args.skip_bad_lines, ..Data::of(files) })
}

/// What the numbers of Criteo's logs become.
pub fn counts(args: &InputArgs) -> Counts {
    match args.criteo_counts {
        Some(CountsName::Log) => Counts::Log,
        Some(CountsName::Buckets) | None => Counts::Buckets,
    }
}
