//! Turns the input flags into settings of the readers.

use crate::failure::Failure;
use crate::flags::{CountsName, FormatName, InputArgs, ScaleName};
use gannet::train::{
    ColumnChoice, Counts, Crosses, CsvForm, Data, FieldUse, Format, Labels, ScaleKind, TwoLabels, files,
};
use std::path::PathBuf;
use std::sync::OnceLock;

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
        FormatName::Libffm => Format::Libffm,
        FormatName::Csv => Format::Csv,
        FormatName::Criteo => Format::Criteo,
        FormatName::Vw => Format::Vw,
        FormatName::VwJson => Format::VwJson,
        FormatName::Json => Format::Json,
        FormatName::Parquet => Format::Parquet,
        FormatName::Arrow => Format::Arrow,
    };
    let counts = counts(args);
    let columns = ColumnChoice {
        label: args.label.clone(),
        categorical: args.categorical.clone(),
        numeric: args.numeric.clone(),
        both: args.both.clone(),
        ignored: args.ignore.clone(),
        offset: args.offset.clone(),
        importance: args.importance.clone(),
        only: false,
        as_categories: false,
    };
    let names = args.no_header.then(|| args.columns.clone());
    let csv = CsvForm { delimiter: args.delimiter, names };
    let fields = FieldUse { group: args.group.clone(), ..FieldUse::of(crosses(args)?) };
    let labels = args.positive.as_deref().map_or(Labels::Signs, |value| Labels::Two(two(value, None)));
    Ok(Data {
        labels,
        format,
        counts,
        columns,
        csv,
        fields,
        intercept,
        skip_bad_lines: args.skip_bad_lines,
        ..Data::of(files)
    })
}

/// The crosses that these flags name.
pub fn crosses(args: &InputArgs) -> Result<Crosses, Failure> {
    let lettered = [&args.quadratic[..], &args.cubic].concat();
    Crosses::new(&args.cross, &lettered).map_err(|what| Failure::input(format!("--cross: {what}")))
}

/// The features that the numbers of Criteo's logs become.
pub fn counts(args: &InputArgs) -> Counts {
    match args.criteo_counts {
        Some(CountsName::Log) => Counts::Log,
        Some(CountsName::Buckets) | None => Counts::Buckets,
    }
}

/// The two values of labels, which all readers of this process share. The first call decides.
pub fn two(positive: &str, other: Option<&str>) -> TwoLabels {
    let two = *TWO.get_or_init(|| TwoLabels::new(positive, None));
    other.into_iter().for_each(|other| two.settle(other));
    two
}

/// The two values of labels, if a reader has set them.
pub fn known_two() -> Option<TwoLabels> {
    TWO.get().copied()
}

static TWO: OnceLock<TwoLabels> = OnceLock::new();

/// The scaling of numbers. `None`: their distribution decides.
pub fn scale(args: &InputArgs) -> Option<ScaleKind> {
    match args.scale {
        ScaleName::Auto => None,
        ScaleName::None => Some(ScaleKind::None),
        ScaleName::Standard => Some(ScaleKind::Standard),
        ScaleName::Minmax => Some(ScaleKind::MinMax),
        ScaleName::Log => Some(ScaleKind::Log),
    }
}
