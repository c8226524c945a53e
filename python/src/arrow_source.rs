//! Examples of any object with `__arrow_c_stream__`: a data frame, a table, a reader of record batches. A pass asks the
//! object for a stream and takes one record batch after the other.

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_schema::{ArrowError, DataType, Schema};
use gannet::train::{BatchRows, Block, BlockPass, BlockSource, Columns, ReadError, Survey, TableSettings};
use pyo3::prelude::*;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Asks an object for a stream. The function of gannet/_arrow.py moves it here, and refuses what is not a stream.
fn stream_of(object: &Bound<'_, PyAny>) -> PyResult<Result<RecordBatchStreamReader, ArrowError>> {
    let mut stream = FFI_ArrowArrayStream::empty();
    let address = (&raw mut stream).expose_provenance();
    object.py().import("gannet._arrow")?.getattr("move_stream")?.call1((object, address))?;
    Ok(RecordBatchStreamReader::try_new(stream))
}

/// The names of columns of numbers, and of those of numbers and categories at once.
pub type NumberColumns = (Vec<String>, Vec<String>);

/// The columns of numbers of an object, and those of numbers and categories at once: by their types, and by the values
/// of the first `rows` rows.
pub fn types_of_columns(
    object: &Bound<'_, PyAny>,
    name: &str,
    settings: &TableSettings,
    rows: usize,
) -> PyResult<Result<NumberColumns, ReadError>> {
    let stream = stream_of(object)?;
    let failed = |error: ArrowError| ReadError::Source { data: name.to_owned(), what: reason(&error) };
    Ok(stream.map_err(failed).and_then(|stream| {
        let table = BatchRows::new(name, &stream.schema(), settings, false)?;
        let survey = Survey::of_batches(&table, stream.map(|batch| batch.map_err(failed)), rows)?;
        let columns = table.rows().columns();
        let (by_value, both) = survey.numbers_of(columns);
        Ok(([columns.numeric.clone(), by_value].concat(), both))
    }))
}

/// Methods of readers, which give their record batches once: of pyarrow and arro3, and of nanoarrow.
const OF_READERS: [&str; 4] = ["__next__", "read_next_batch", "read_next", "get_next"];

/// A source of blocks over a Python object.
pub struct ArrowSource {
    name: String,
    object: Py<PyAny>,
    settings: TableSettings,
    columns: Columns,
    passes: Arc<Mutex<Passes>>,
}

/// The passes over an object so far.
#[derive(Default)]
struct Passes {
    /// The stream of an object that gives only one, until a pass takes it. The object is then exhausted.
    first: Option<RecordBatchStreamReader>,
    /// Whether the object gives only one stream.
    is_once: bool,
    begun: u64,
    /// The rows of a whole pass.
    rows: Option<u64>,
    seen: Seen,
}

/// The columns that a look has seen: their names, and their types. Types are unknown until the first pass if the look
/// was at something smaller: pandas chooses some types by the values.
#[derive(Default)]
struct Seen {
    names: Vec<String>,
    types: Option<Vec<DataType>>,
}

impl Seen {
    fn of(schema: &Schema, knows_types: bool) -> Seen {
        Seen { names: names_of(schema), types: knows_types.then(|| types_of(schema)) }
    }

    /// Refuses a pass whose columns differ.
    fn check(&mut self, schema: &Schema, pass: u64) -> Result<(), String> {
        let (names, types) = (names_of(schema), types_of(schema));
        let remedy = "every pass must have the same columns; read it into a table first";
        for at in 0..names.len().max(self.names.len()) {
            match (self.names.get(at), names.get(at)) {
                (Some(before), Some(name)) if before != name => {
                    return Err(format!(
                        "column {at} (the first is 0) is {name:?} in pass {pass}, and was {before:?} before: {remedy}"
                    ));
                }
                (Some(before), None) => {
                    return Err(format!(
                        "pass {pass} has no column {before:?}, which was there before: {remedy}"
                    ));
                }
                (None, Some(name)) => {
                    return Err(format!("pass {pass} has one more column, {name:?}: {remedy}"));
                }
                _ => {}
            }
        }
        let before = self.types.get_or_insert_with(|| types.clone());
        let changed = (0..names.len()).find(|&at| !types[at].equals_datatype(&before[at]));
        changed.map_or(Ok(()), |at| {
            let (name, of, was) = (&names[at], &types[at], &before[at]);
            Err(format!("column {name:?} has type {of} in pass {pass}, and had {was} before: {remedy}"))
        })
    }
}

fn names_of(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn types_of(schema: &Schema) -> Vec<DataType> {
    schema.fields().iter().map(|field| field.data_type().clone()).collect()
}

impl fmt::Debug for ArrowSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.columns)
    }
}

impl ArrowSource {
    /// Looks at the columns of the object, or of `look`, which has the same columns and is smaller. A reader of record
    /// batches is taken to give only one stream.
    pub fn new(
        py: Python<'_>,
        object: Py<PyAny>,
        look: Option<Py<PyAny>>,
        name: String,
        settings: TableSettings,
    ) -> PyResult<Result<ArrowSource, ReadError>> {
        let mut passes = Passes::default();
        for method in OF_READERS {
            passes.is_once |= object.bind(py).hasattr(method)?;
        }
        let stream = match stream_of(look.as_ref().unwrap_or(&object).bind(py))? {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(ReadError::Source { data: name, what: reason(&error) })),
        };
        let rows = BatchRows::new(&name, &stream.schema(), &settings, false);
        let columns = rows.map(|rows| rows.rows().columns().clone());
        passes.seen = Seen::of(&stream.schema(), look.is_none());
        passes.first = passes.is_once.then_some(stream);
        let passes = Arc::new(Mutex::new(passes));
        Ok(columns.map(|columns| ArrowSource { name, object, settings, columns, passes }))
    }

    /// The columns by their roles.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The column of labels, if somebody named it.
    pub fn chosen_label(&self) -> Option<String> {
        self.settings.choice.label.clone()
    }

    /// The same rows, read with other settings. A look at the columns is not repeated: a pass says what does not fit.
    pub fn with(&self, py: Python<'_>, settings: TableSettings) -> ArrowSource {
        let (name, object) = (self.name.clone(), self.object.clone_ref(py));
        ArrowSource { name, object, settings, columns: self.columns.clone(), passes: self.passes.clone() }
    }

    /// The stream of a new pass. It has the columns that were looked at.
    fn stream(&self) -> Result<RecordBatchStreamReader, ReadError> {
        let failed = |what: String| ReadError::Source { data: self.name.clone(), what };
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        passes.begun += 1;
        if passes.is_once && passes.begun > 1 {
            return Err(failed(format!(
                "its record batches can be read only once, and pass {} is asked for: make one pass, or read it into a \
                 table first (read_all)",
                passes.begun
            )));
        }
        let (first, pass) = (passes.first.take(), passes.begun);
        // The object may run Python in other threads.
        drop(passes);
        let stream = match first {
            Some(stream) => stream,
            None => match Python::attach(|py| stream_of(self.object.bind(py))) {
                Ok(stream) => stream.map_err(|error| failed(reason(&error)))?,
                Err(error) => return Err(failed(error.to_string())),
            },
        };
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        passes.seen.check(&stream.schema(), pass).map_err(failed)?;
        Ok(stream)
    }
}

/// What a stream says about its failure.
fn reason(error: &ArrowError) -> String {
    match error {
        ArrowError::CDataInterface(why) => why.trim().to_owned(),
        error => error.to_string(),
    }
}

impl BlockSource for ArrowSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn has_columns(&self) -> bool {
        true
    }

    fn pass(&self, intercept: bool) -> Result<Box<dyn BlockPass>, ReadError> {
        let stream = self.stream()?;
        let rows = BatchRows::new(&self.name, &stream.schema(), &self.settings, intercept)?;
        let (name, passes) = (self.name.clone(), self.passes.clone());
        Ok(Box::new(ArrowPass { name, passes, stream: Some(stream), rows, read: 0 }))
    }

    fn texts(&self, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), ReadError> {
        let stream = self.stream()?;
        let rows = BatchRows::new(&self.name, &stream.schema(), &self.settings, false)?;
        for batch in stream {
            let failed = |error| ReadError::Source { data: self.name.clone(), what: reason(&error) };
            let batch = batch.map_err(failed)?;
            rows.texts(&batch, batch.num_rows(), &mut |name, text, _| each(name, text))?;
        }
        Ok(())
    }
}

/// A pass over the record batches of a stream.
struct ArrowPass {
    name: String,
    passes: Arc<Mutex<Passes>>,
    /// `None`: it has ended.
    stream: Option<RecordBatchStreamReader>,
    rows: BatchRows,
    /// Rows so far.
    read: u64,
}

impl ArrowPass {
    fn failed(&self, error: &ArrowError) -> ReadError {
        let what = format!("after {} rows the next could not be read: {}", self.read, reason(error));
        ReadError::Source { data: self.name.clone(), what }
    }

    /// Takes the next record batch. This thread does not hold the GIL: a stream that needs Python takes it itself.
    fn pull(&mut self) -> Result<bool, ReadError> {
        // Freed first: memory has one record batch at a time.
        self.rows.end();
        let Some(stream) = &mut self.stream else { return Ok(false) };
        let Some(batch) = stream.next() else {
            self.stream = None;
            self.end()?;
            return Ok(false);
        };
        let batch = batch.map_err(|error| self.failed(&error))?;
        self.rows.begin(&batch).map(|()| true)
    }

    /// Every pass must have as many rows as the first.
    fn end(&self) -> Result<(), ReadError> {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *passes.rows.get_or_insert(self.read);
        if before == self.read {
            return Ok(());
        }
        let what = format!(
            "it had {before} rows in an earlier pass and {} in this one: every pass must have the same rows; read it \
             into a table first",
            self.read
        );
        Err(ReadError::Source { data: self.name.clone(), what })
    }
}

impl BlockPass for ArrowPass {
    fn next(&mut self, most: usize, mut block: Option<&mut Block>) -> Result<usize, ReadError> {
        let mut done = 0;
        while done < most {
            if self.rows.is_at_end() {
                if !self.pull()? {
                    break;
                }
                continue;
            }
            let count = self.rows.take(most - done, block.as_deref_mut())?;
            if count == 0 {
                break;
            }
            done += count;
            self.read += count as u64;
        }
        Ok(done)
    }
}
