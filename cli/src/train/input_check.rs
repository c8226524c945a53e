//! Checks the data before the training: whether the files fit together, the roles of the columns, and the scaling of
//! numbers.

use crate::failure::Failure;
use crate::flags::{DataArgs, InputArgs};
use crate::input;
use crate::model::{same_reading, warm_start};
use crate::report::words::{NAMES_SHOWN, counted, first_few};
use gannet::train::{
    Columns, Data, DetectedFile, Format, ReadError, Reader, ScaleKind, Survey, TrainError, is_in_object,
    is_index_of_lines,
};
use std::path::Path;

/// Lines that are read to find columns that look numeric.
const LINES_READ: u64 = 1_000;

fn wrong(error: ReadError) -> Failure {
    TrainError::from(error).into()
}

/// Checks the training data, and makes the test data be read in the same way. `warm`: the model from which the training
/// starts. With `prints` it prints the roles of the columns.
///
/// # Errors
/// A file cannot be read, files do not fit together, or flags do not fit them.
pub fn look(
    args: &DataArgs,
    warm: Option<&Path>,
    data: &mut Data,
    test: Option<&mut Data>,
    prints: bool,
) -> Result<(), Failure> {
    let warm = warm_start::reading(warm, args)?;
    if let Some((reading, folder)) = &warm {
        same_reading::labels(reading, data, &args.input, &format!("--warm-start {}", folder.display()))?;
    }
    let scale = input::scale(&args.input);
    data.scale.kind = scale.unwrap_or_default();
    let requested = scale.filter(|kind| *kind != ScaleKind::None);
    if let Some(columns) = warm.as_ref().and_then(|(reading, _)| reading.columns.as_ref())
        && scale.is_none_or(|kind| kind == columns.scale.kind)
    {
        data.scale.clone_from(&columns.scale);
    }
    // Finding the columns needs no scaling.
    let plain = Data { scale: Default::default(), ..data.clone() };
    let found = Reader::look(&plain).map_err(wrong)?;
    if let Some(found) = &found {
        fits(&args.input, found, requested)?;
        if let Some((reading, folder)) = &warm {
            warm_start::same_data(args, reading, folder, found)?;
        }
    }
    if let Some(found) = found.as_ref().filter(|_| args.follow.grows()) {
        as_first(data, found);
    }
    match (requested, &found) {
        (Some(kind), _) if warm.is_none() && kind.looks_at_all() => {
            let survey = Survey::of(&plain, None).map_err(wrong)?;
            let columns = found.as_ref().and_then(|found| found.columns.as_ref());
            data.scale = survey.scale(kind, columns.into_iter().flat_map(Columns::numbers));
        }
        (_, None) if warm.is_some() => {
            let text = "--warm-start: standard input cannot be checked before the training: save it to a file and name that";
            return Err(Failure::input(text));
        }
        _ => {}
    }
    if let Some(test) = test {
        test.labels = data.labels;
        alike(data, test, found.as_ref())?;
    }
    match found {
        Some(DetectedFile { columns: Some(columns), .. }) if prints => {
            print_columns(&plain, &columns, data.scale.kind)
        }
        _ => Ok(()),
    }
}

/// Whether some of this data can be read only once.
pub fn comes_once(args: &DataArgs) -> bool {
    [&args.files, &args.test, &args.validate].into_iter().any(|files| {
        let data = input::data(files, &args.input, true);
        data.is_ok_and(|data| data.must_be_files("").is_err())
    })
}

/// Makes data that is held out be read as the training data, which was checked.
///
/// # Errors
/// As for [`look`].
pub fn look_at_held_out(data: &Data, held_out: &mut Data) -> Result<(), Failure> {
    let plain = Data { scale: Default::default(), ..data.clone() };
    let found = Reader::look(&plain).map_err(wrong)?;
    held_out.labels = data.labels;
    alike(data, held_out, found.as_ref())
}

/// Makes all files that come later be read as the first one.
fn as_first(data: &mut Data, first: &DetectedFile) {
    data.format = Format::of_name(first.format).unwrap_or(data.format);
    if first.format == "tsv" {
        data.csv.delimiter.get_or_insert(b'\t');
    }
    if let Some(columns) = &first.columns {
        data.columns = columns.into();
    }
}

/// Refuses flags that name columns, if the files have none.
fn fits(input: &InputArgs, found: &DetectedFile, requested: Option<ScaleKind>) -> Result<(), Failure> {
    let (file, format) = (&found.file, found.format);
    let named = [&input.categorical, &input.numeric, &input.both, &input.ignore];
    let names_columns = [&input.label, &input.offset, &input.importance].iter().any(|name| name.is_some())
        || named.iter().any(|names| !names.is_empty());
    let has_csv_form = input.delimiter.is_some() || input.no_header;
    let text = match (&found.columns, requested) {
        (None, _) if names_columns => format!(
            "{file}: --label, --offset, --importance, --categorical, --numeric, --both and --ignore name columns; this \
             file has none: it is {format}"
        ),
        _ if has_csv_form && !matches!(format, "csv" | "tsv") => format!(
            "{file}: --delimiter and --no-header are for CSV, and this file is {format}; leave them out"
        ),
        (None, Some(kind)) => format!(
            "{file}: --scale {} scales columns of numbers; this file has none: it is {format}; scale its values \
             when it is made",
            kind.name()
        ),
        (Some(columns), Some(kind)) if columns.numbers().next().is_none() => format!(
            "{file}: --scale {}: no column has numbers; name those that do (--numeric A,B,..)",
            kind.name()
        ),
        _ if format == "criteo" && input.positive.is_some() => {
            format!("{file}: --positive: the labels of Criteo's logs are 0 and 1; leave the flag out")
        }
        _ => return Ok(()),
    };
    Err(Failure::input(text))
}

/// Checks that the test data has the format of the training data, and makes it be read with the same columns.
fn alike(data: &Data, test: &mut Data, found: Option<&DetectedFile>) -> Result<(), Failure> {
    let Some(found) = found else { return Reader::check(test).map(|_| ()).map_err(wrong) };
    if let Some(columns) = &found.columns {
        test.columns = columns.into();
    }
    Reader::alike(test, data, found.format).map_err(wrong)?;
    test.scale.clone_from(&data.scale);
    Ok(())
}

/// Prints the role of each column, and which categorical columns look numeric.
fn print_columns(data: &Data, columns: &Columns, scale: ScaleKind) -> Result<(), Failure> {
    let survey = match data.must_be_files("") {
        Ok(()) => Survey::of(data, Some(LINES_READ)).map_err(wrong)?,
        Err(_) => Survey::default(),
    };
    if survey.lines.1 > 0 && data.skip_bad_lines == 0 {
        // The training will stop at the bad line, with a longer error.
        return Ok(());
    }
    let how = if scale == ScaleKind::None { String::new() } else { format!(", --scale {}", scale.name()) };
    let numbers = columns.numeric.iter().map(|name| format!("{name}: number{how}"));
    let both = columns.both.iter().map(|name| format!("{name}: number and category{how}"));
    // JSON lines have no header: their columns are those of the first lines.
    let names = || survey.columns.iter().map(|column| &column.name);
    let (categorical, nameless): (Vec<String>, Vec<String>) = match columns.others {
        true => (
            names().filter(|name| columns.takes(name)).cloned().collect(),
            names().filter(|name| is_index_of_lines(name)).cloned().collect(),
        ),
        false => (columns.categorical.clone(), columns.nameless.clone()),
    };
    let categories = categorical.iter().map(|name| format!("{name}: category"));
    let label = columns.label.as_deref().unwrap_or("(none)");
    notice!(
        "gannet: columns: label {label}; {}",
        first_few(numbers.chain(both).chain(categories).collect(), "; ")
    );
    if columns.others && survey.lines.0 > 0 {
        tell_unseen(columns, &survey);
    }
    if let Some(first) = nameless.first() {
        notice!(
            "gannet: left out, because it has no name of its own: {}; such a column is mostly the index of pandas; to \
             learn from it: --categorical or --numeric {first:?}",
            first_few(nameless.clone(), ", "),
        );
    }
    let looks = |name: &&String| survey.column(name).is_some_and(|column| column.looks_numeric());
    let numeric: Vec<String> = categorical.iter().filter(looks).cloned().collect();
    if let Some(first) = numeric.first() {
        let flag = if numeric.len() > NAMES_SHOWN { format!("{first},..") } else { numeric.join(",") };
        notice!(
            "gannet: all values of {} are numbers, and each different one is a category of its own; where that is not \
             meant: --numeric {flag}",
            first_few(numeric, ", "),
        );
    }
    Ok(())
}

/// Names the columns that flags name and that no line has so far: they may be spelt wrong.
fn tell_unseen(columns: &Columns, survey: &Survey) {
    let has = |name: &&String| survey.columns.iter().any(|column| is_in_object(&column.name, name));
    let mut unseen: Vec<String> = columns
        .categorical
        .iter()
        .chain(columns.numbers())
        .filter(|name| survey.column(name).is_none())
        .cloned()
        .collect();
    unseen.extend(columns.ignored.iter().filter(|name| !has(name)).cloned());
    if !unseen.is_empty() {
        notice!(
            "gannet: the first {} have no {}, which flags name: is it spelt right?",
            counted(survey.lines.0, "line", "lines"),
            first_few(unseen, ", ")
        );
    }
}
