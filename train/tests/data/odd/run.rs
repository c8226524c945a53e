//! Reads the file of a case and compares.

use gannet_train::{
    Block, ColumnChoice, ColumnKeys, Crosses, CsvForm, Data, FieldUse, Format, Labels, ReadError, Reader,
    Share, TwoLabels, text_key,
};

/// An odd file.
pub struct Case {
    /// What is odd.
    pub what: &'static str,
    /// The file's name.
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// As flags: `numeric=n skip=1`.
    pub settings: &'static str,
    pub want: Want,
}

/// What must come.
pub enum Want {
    /// These rows.
    Rows(&'static str),
    /// So many rows.
    Count(usize),
    /// An error with the name of the file, and all of these.
    Error(&'static [&'static str]),
}
pub use Want::{Count, Error, Rows};

/// A label, and features.
type Row = (f32, Vec<(u64, f32)>);

/// A case of text without settings.
pub fn text(what: &'static str, name: &'static str, text: impl AsRef<[u8]>, want: Want) -> Case {
    with(what, name, text, "", want)
}

/// A case with settings.
pub fn with(
    what: &'static str,
    name: &'static str,
    text: impl AsRef<[u8]>,
    settings: &'static str,
    want: Want,
) -> Case {
    Case { what, name, bytes: text.as_ref().to_vec(), settings, want }
}

fn data(path: &str, settings: &str) -> Data {
    let mut data = Data { intercept: false, labels: Labels::Numbers, ..Data::new(path) };
    let list = |value: &str| value.split(',').map(str::to_owned).collect::<Vec<_>>();
    for setting in settings.split_whitespace() {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let columns: &mut ColumnChoice = &mut data.columns;
        match name {
            "format" => data.format = Format::of_name(value).unwrap(),
            "label" => columns.label = Some(value.to_owned()),
            "numeric" => columns.numeric = list(value),
            "categorical" => columns.categorical = list(value),
            "both" => columns.both = list(value),
            "ignore" => columns.ignored = list(value),
            "offset" => columns.offset = Some(value.to_owned()),
            "importance" => columns.importance = Some(value.to_owned()),
            "skip" => data.skip_bad_lines = value.parse().unwrap(),
            "unlabelled" => data.unlabelled = true,
            "signs" => data.labels = Labels::Signs,
            "positive" => data.labels = Labels::Two(TwoLabels::new(value, None)),
            "cross" => data.fields = FieldUse::of(Crosses::new(&[value.to_owned()], &[]).unwrap()),
            "delimiter" => data.csv.delimiter = Some(CsvForm::parse_delimiter(value).unwrap()),
            "columns" => data.csv.names = Some(if value.is_empty() { Vec::new() } else { list(value) }),
            _ => panic!("{setting}"),
        }
    }
    data
}

fn read(data: &Data) -> Result<Vec<Row>, ReadError> {
    Reader::look(data)?;
    // Batches of two, and on several threads, are the same.
    let (mut reader, mut block, mut rows) =
        (Reader::open(data, 2, Share::ALL)?, Block::default(), Vec::new());
    while reader.next(&mut block)? {
        assert!(!block.is_empty(), "an empty batch");
        let features = |i: usize| block.range(i).map(|at| (block.keys[at], block.values[at])).collect();
        rows.extend((0..block.len()).map(|i| (block.labels[i], features(i))));
    }
    Ok(rows)
}

fn feature(text: &str) -> (u64, f32) {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text}"));
    if let Some((column, value)) = text.split_once('=') {
        return (ColumnKeys::new(column).categorical(value.as_bytes()), 1.0);
    }
    if let Some((column, value)) = text.split_once('#') {
        return (ColumnKeys::new(column).numeric(), number(value));
    }
    if let Some(column) = text.strip_suffix('?') {
        return (ColumnKeys::new(column).missing(), 1.0);
    }
    let (name, value) = text.rsplit_once(':').unwrap_or((text, "1"));
    match name.split_once('^') {
        Some((space, name)) => (text_key(text_key(0, space.as_bytes()), name.as_bytes()), number(value)),
        None => (name.parse().unwrap_or_else(|_| panic!("{text}")), number(value)),
    }
}

fn rows(text: &str) -> Vec<Row> {
    let row = |text: &str| {
        let mut parts = text.split('¦');
        let label = parts.next().unwrap().parse().unwrap();
        (label, parts.map(feature).collect())
    };
    text.split('§').map(row).collect()
}

fn same(got: &[Row], want: &[Row]) -> bool {
    let is_same = |(a, b): (&Row, &Row)| (a.0 == b.0 || a.0.is_nan() && b.0.is_nan()) && a.1 == b.1;
    got.len() == want.len() && got.iter().zip(want).all(is_same)
}

/// Writes the file and reads it.
pub fn check(case: &Case) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(case.name);
    std::fs::write(&path, &case.bytes).unwrap();
    let path = path.to_str().unwrap();
    let found = read(&data(path, case.settings));
    let of = format!("{} ({} {})", case.what, case.name, case.settings);
    match (&case.want, found) {
        (Rows(want), Ok(found)) if same(&found, &rows(want)) => Ok(()),
        (Rows(want), Ok(found)) => Err(format!("{of}: {found:?}, not {:?} ({want})", rows(want))),
        (Count(want), Ok(found)) if found.len() == *want => Ok(()),
        (Count(want), Ok(found)) => Err(format!("{of}: {} rows, not {want}", found.len())),
        (Error(parts), Err(error)) => {
            let error = error.to_string();
            let is_named = error.starts_with(path);
            match parts.iter().find(|part| !error.contains(**part)) {
                None if is_named => Ok(()),
                None => Err(format!("{of}: the file is not named: {error}")),
                Some(part) => Err(format!("{of}: no {part:?} in: {error}")),
            }
        }
        (Error(parts), Ok(found)) => Err(format!("{of}: no error ({parts:?}): {found:?}")),
        (_, Err(error)) => Err(format!("{of}: {error}")),
    }
}
