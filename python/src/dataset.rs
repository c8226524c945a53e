//! Data sets: files, rows in memory, tables of other programs. Each is a `Data` of the train crate, which its readers
//! and trainings take.

use crate::arrow_source::{ArrowSource, types_of_columns};
use crate::batches::{Batches, Inside};
use crate::failure::{CallFailure, Kind};
use gannet::train::{
    ColumnChoice, Columns, Crosses, CsrRows, CsvForm, Data, FieldUse, Format, Labels, ReadError, Reader,
    Share, TableSettings, TwoLabels, files,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use std::sync::Arc;

/// How the data is read. Names are those of the parameters of `gannet.Dataset`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ReadSettings {
    label: Option<String>,
    categorical: Vec<String>,
    numeric: Vec<String>,
    both: Vec<String>,
    ignore: Vec<String>,
    offset: Option<String>,
    importance: Option<String>,
    format: String,
    delimiter: Option<String>,
    /// The names of the columns if CSV files have no header; empty for 1, 2, 3 and so on.
    header: Option<Vec<String>>,
    /// "binary", "number", or "none": examples need no label.
    labels: String,
    /// The value that means 1.
    positive: Option<String>,
    skip_bad_lines: u64,
    cross: Vec<String>,
    /// Whether batches have the field of each feature.
    fields: bool,
}

impl ReadSettings {
    fn format(&self) -> Result<Format, CallFailure> {
        Ok(match &*self.format {
            "auto" => Format::Auto,
            other => Format::of_name(other).ok_or_else(|| {
                CallFailure::input(format!(
                    "format is {other:?}; \"auto\", \"libsvm\", \"libffm\", \"csv\", \"json\", \"parquet\", \"arrow\", \
                     \"criteo\", \"vw\" or \"vw-json\" is wanted"
                ))
            })?,
        })
    }

    fn csv(&self) -> Result<CsvForm, CallFailure> {
        let delimiter = self.delimiter.as_deref().map(CsvForm::parse_delimiter).transpose();
        let delimiter = delimiter.map_err(|why| CallFailure::input(format!("delimiter: {why}")))?;
        Ok(CsvForm { delimiter, names: self.header.clone() })
    }

    fn fields(&self) -> Result<FieldUse, CallFailure> {
        let crosses = Crosses::new(&self.cross, &[]);
        let crosses = crosses.map_err(|what| CallFailure::input(format!("cross: {what}")))?;
        Ok(FieldUse { in_blocks: self.fields, ..FieldUse::of(crosses) })
    }

    fn table(&self) -> Result<TableSettings, CallFailure> {
        let choice = ColumnChoice {
            label: self.label.clone(),
            categorical: self.categorical.clone(),
            numeric: self.numeric.clone(),
            both: self.both.clone(),
            ignored: self.ignore.clone(),
            offset: self.offset.clone(),
            importance: self.importance.clone(),
            only: false,
            as_categories: false,
        };
        let labels = match (&*self.labels, &self.positive) {
            ("binary", Some(positive)) => Labels::Two(TwoLabels::new(positive, None)),
            ("binary", None) => Labels::Signs,
            _ => Labels::Numbers,
        };
        let unlabelled = self.labels == "none";
        Ok(TableSettings { choice, scale: Default::default(), labels, unlabelled, fields: self.fields()? })
    }
}

/// An error of reading, with Python's names of parameters.
pub fn unreadable(error: &ReadError) -> CallFailure {
    let kind = match error {
        ReadError::Stalled { .. } | ReadError::Thread(_) => Kind::Machine,
        _ => Kind::Input,
    };
    CallFailure::new(kind, with_parameters(&error.to_string()))
}

/// The readers' messages name flags of the command. The parameters of `gannet.Dataset` have the same names.
pub fn with_parameters(message: &str) -> String {
    const FLAGS: [(&str, &str); 19] = [
        ("--label COLUMN", "label=COLUMN"),
        ("--positive ", "positive="),
        ("(--positive)", "(positive=)"),
        ("--skip-bad-lines ", "skip_bad_lines="),
        ("--skip-bad-lines", "skip_bad_lines="),
        ("--offset", "offset="),
        ("--importance", "importance="),
        ("(--cross)", "(cross=)"),
        ("--no-header", "header=False"),
        ("--columns", "header="),
        ("--delimiter", "delimiter="),
        ("--ignore ", "ignore="),
        ("--ignore", "ignore="),
        ("--label", "label="),
        ("--categorical", "categorical="),
        ("--numeric", "numeric="),
        ("--both", "both="),
        ("--format", "format="),
        ("--epochs", "epochs="),
    ];
    FLAGS.iter().fold(message.to_owned(), |text, (flag, parameter)| text.replace(flag, parameter))
}

/// The names of columns by their roles: the label, the categorical and the numeric ones.
type Roles = (Option<String>, Vec<String>, Vec<String>, Vec<String>);

/// A data set.
#[pyclass(module = "gannet._native", frozen)]
pub struct Dataset {
    data: Data,
    /// The rows of a table, to read them with other settings.
    table: Option<Arc<ArrowSource>>,
    /// The format of files, or "table", or "matrix".
    #[pyo3(get)]
    format: String,
    columns: Option<Columns>,
}

impl Dataset {
    /// The data, for readers and trainings. `intercept`: each example begins with the intercept.
    pub fn data(&self, intercept: bool) -> Data {
        Data { intercept, ..self.data.clone() }
    }

    /// The rows of a table. `None`: the data is no table.
    pub fn table(&self) -> Option<&Arc<ArrowSource>> {
        self.table.as_ref()
    }

    /// Whether the data is a matrix.
    pub fn is_matrix(&self) -> bool {
        self.data.source.is_some() && self.table.is_none()
    }

    /// A table.
    pub fn of_rows(source: ArrowSource) -> Dataset {
        let (columns, source) = (Some(source.columns().clone()), Arc::new(source));
        Dataset { data: Data::rows(source.clone()), table: Some(source), format: "table".into(), columns }
    }
}

#[pymethods]
impl Dataset {
    /// Files: names, folders and patterns. It looks at the beginning of each file.
    #[staticmethod]
    fn of_files(py: Python<'_>, names: Vec<String>, reading: ReadSettings) -> PyResult<Dataset> {
        let _inside = Inside::enter_or_refuse()?;
        let (format, csv, table) = (reading.format()?, reading.csv()?, reading.table()?);
        let found = py.detach(move || {
            let data = Data {
                format,
                columns: table.choice,
                csv,
                fields: table.fields,
                labels: table.labels,
                unlabelled: table.unlabelled,
                skip_bad_lines: reading.skip_bad_lines,
                ..Data::of(files(&names)?)
            };
            Ok((Reader::look(&data)?, data))
        });
        let (found, data) = found.map_err(|error| unreadable(&error))?;
        // Pipes are not looked at.
        let format = found.as_ref().map_or(reading.format, |found| found.format.to_owned());
        Ok(Dataset { data, table: None, format, columns: found.and_then(|found| found.columns) })
    }

    /// A compressed sparse matrix: example `i` has the features `indptr[i]..indptr[i + 1]`.
    #[staticmethod]
    fn of_matrix(
        indptr: PyReadonlyArray1<'_, u64>,
        keys: PyReadonlyArray1<'_, u64>,
        values: PyReadonlyArray1<'_, f32>,
        labels: PyReadonlyArray1<'_, f32>,
        importances: PyReadonlyArray1<'_, f32>,
    ) -> PyResult<Dataset> {
        let (indptr, keys) = (indptr.as_slice()?.to_vec(), keys.as_slice()?.to_vec());
        let (values, labels) = (values.as_slice()?.to_vec(), labels.as_slice()?.to_vec());
        let rows = CsrRows::new(indptr, keys, values, labels, importances.as_slice()?.to_vec());
        let rows = rows.map_err(CallFailure::input)?.named("the matrix");
        Ok(Dataset { data: Data::rows(Arc::new(rows)), table: None, format: "matrix".into(), columns: None })
    }

    /// An object with `__arrow_c_stream__`. `look` has the same columns and fewer rows. `name` is for messages.
    #[staticmethod]
    fn of_table(
        py: Python<'_>,
        object: Py<PyAny>,
        look: Option<Py<PyAny>>,
        name: String,
        reading: ReadSettings,
    ) -> PyResult<Dataset> {
        let _inside = Inside::enter_or_refuse()?;
        let source = ArrowSource::new(py, object, look, name, reading.table()?)?;
        Ok(Dataset::of_rows(source.map_err(|error| unreadable(&error))?))
    }

    /// The columns of an object with `__arrow_c_stream__` that have numbers, and those that have numbers and
    /// categories at once, by their types and the values of the first `rows` rows. `label` is the column of labels, if
    /// it is there.
    #[staticmethod]
    fn types_of_table(
        py: Python<'_>,
        object: Py<PyAny>,
        name: String,
        label: String,
        rows: usize,
    ) -> PyResult<(Vec<String>, Vec<String>)> {
        let _inside = Inside::enter_or_refuse()?;
        let choice = ColumnChoice { label: Some(label), ..ColumnChoice::default() };
        let (scale, labels, fields) = (Default::default(), Labels::Numbers, FieldUse::default());
        let settings = TableSettings { choice, scale, labels, unlabelled: true, fields };
        let types = types_of_columns(object.bind(py), &name, &settings, rows)?;
        Ok(types.map_err(|error| unreadable(&error))?)
    }

    /// The columns by their roles, of a table or of CSV files.
    #[getter]
    fn columns(&self) -> Option<Roles> {
        let Columns { label, categorical, numeric, both, .. } = self.columns.clone()?;
        Some((label, categorical, numeric, both))
    }

    /// Begins to read batches of `size` examples, `epochs` times. Worker `rank` of `workers` gets batches `rank`,
    /// `rank + workers` and so on.
    fn batches(
        &self,
        py: Python<'_>,
        size: usize,
        epochs: u32,
        intercept: bool,
        rank: u32,
        workers: u32,
    ) -> PyResult<Batches> {
        let _inside = Inside::enter_or_refuse()?;
        if epochs > 1 {
            let checked = py.detach(|| self.data.must_be_files("epochs above 1"));
            checked.map_err(|error| unreadable(&error))?;
        }
        Ok(Batches::start(self.data(intercept), size, epochs, Share { worker: rank, workers })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_parameters() {
        for (text, want) in [
            ("say which value means 1 with --positive yes", "say which value means 1 with positive=yes"),
            ("skip such lines with --skip-bad-lines N", "skip such lines with skip_bad_lines=N"),
            ("no column \"x\" (named by --numeric)", "no column \"x\" (named by numeric=)"),
            ("\"2\" (--positive)", "\"2\" (positive=)"),
        ] {
            assert_eq!(with_parameters(text), want);
        }
    }
}
