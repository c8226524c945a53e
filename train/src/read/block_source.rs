//! Examples that are not in files: in memory, or wherever a program has them.

use crate::limits::FEATURES_PER_EXAMPLE_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::data::Share;
use crate::read::error::ReadError;
use crate::read::fields::field_places::NO_FIELD;
use std::fmt;
use std::sync::Arc;

/// A source of examples, such as [`CsrRows`]. [`Data::rows`](crate::Data::rows) makes data of it, which trains, tests
/// and predicts as files do.
pub trait BlockSource: fmt::Debug + Send + Sync {
    /// What messages call it.
    fn name(&self) -> String;

    /// Begins a pass over the examples. Every pass has the same examples in the same order. `intercept`: each example
    /// begins with the [intercept](crate::INTERCEPT_KEY).
    ///
    /// # Errors
    /// The examples cannot be read, or not again.
    fn pass(&self, intercept: bool) -> Result<Box<dyn BlockPass>, ReadError>;

    /// Whether the examples are rows of a table with columns, whose skewed numbers may be learned as logarithms.
    fn has_columns(&self) -> bool {
        false
    }

    /// Calls `each` with the name of a column and the text of a value in it, for every column and value, so that the
    /// features have names. A source without columns calls nothing.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn texts(&self, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), ReadError> {
        let _ = each;
        Ok(())
    }
}

/// One pass over the examples of a [`BlockSource`].
pub trait BlockPass: Send {
    /// Appends the next examples to the block, at most `most`, or skips them if there is no block. Returns how many.
    /// Fewer than `most` if the pass ends or the block is full; 0 if the pass has ended.
    ///
    /// # Errors
    /// An example cannot be read.
    fn next(&mut self, most: usize, block: Option<&mut Block>) -> Result<usize, ReadError>;
}

/// Reads the batches of a share from a source.
pub(crate) struct SourceBlocks {
    pass: Box<dyn BlockPass>,
    name: String,
    batch: usize,
    share: Share,
    next_batch: u64,
    examples: u64,
    /// Whether the pass may have no examples.
    may_be_empty: bool,
}

impl SourceBlocks {
    pub(crate) fn begin(
        source: &dyn BlockSource,
        intercept: bool,
        batch: usize,
        share: Share,
    ) -> Result<SourceBlocks, ReadError> {
        Ok(SourceBlocks::of(source.pass(intercept)?, source.name(), batch, share, false))
    }

    /// The batches of a pass.
    pub(crate) fn of(
        pass: Box<dyn BlockPass>,
        name: String,
        batch: usize,
        share: Share,
        may_be_empty: bool,
    ) -> SourceBlocks {
        SourceBlocks { pass, name, batch, share, next_batch: 0, examples: 0, may_be_empty }
    }

    /// Skips so many batches.
    #[cfg(feature = "parquet")]
    pub(crate) fn skip(&mut self, batches: u64) -> Result<(), ReadError> {
        for _ in 0..batches {
            self.examples += self.pass.next(self.batch, None)? as u64;
            self.next_batch += 1;
        }
        Ok(())
    }

    /// As [`Reader::next`](crate::Reader::next).
    pub(crate) fn next(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        block.clear();
        loop {
            let mine = self.next_batch % u64::from(self.share.workers) == u64::from(self.share.worker);
            let count = self.pass.next(self.batch, mine.then_some(&mut *block))?;
            self.next_batch += 1;
            self.examples += count as u64;
            if count == 0 {
                let empty = || ReadError::Empty { file: self.name.clone() };
                return if self.examples == 0 && !self.may_be_empty { Err(empty()) } else { Ok(false) };
            }
            if mine {
                return Ok(true);
            }
        }
    }

    pub(crate) fn next_batch(&self) -> u64 {
        self.next_batch
    }

    pub(crate) fn examples(&self) -> u64 {
        self.examples
    }
}

/// Examples in memory, as a compressed sparse matrix: example `i` has the features `indptr[i]..indptr[i + 1]`.
///
/// ```
/// use gannet_train::{CsrRows, Data};
/// use std::sync::Arc;
///
/// // Two examples: features 7 and 9, and feature 9 with the value 0.5.
/// let rows = CsrRows::new(vec![0, 2, 3], vec![7, 9, 9], vec![1.0, 1.0, 0.5], vec![1.0, 0.0], Vec::new())?;
/// let data = Data::rows(Arc::new(rows));
/// // ... Options::new(data), train as from files ...
/// # Ok::<(), String>(())
/// ```
#[derive(Clone)]
pub struct CsrRows {
    name: String,
    vectors: Arc<CsrVectors>,
    has_columns: bool,
    /// The place of each feature's field. Empty: the examples have no fields.
    fields: Arc<Vec<u64>>,
}

/// What [`CsrRows::new`] takes.
struct CsrVectors {
    indptr: Vec<u64>,
    keys: Vec<u64>,
    values: Vec<f32>,
    labels: Vec<f32>,
    importances: Vec<f32>,
}

impl fmt::Debug for CsrRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} examples, {} features)", self.name, self.len(), self.vectors.keys.len())
    }
}

impl CsrRows {
    /// Examples whose features are in these vectors. A label is what a model takes: 1 or 0 for a click model, any
    /// finite number for a regression, a class; NaN for none. `importances`: one for each example, or none at all.
    ///
    /// # Errors
    /// The lengths do not fit each other, a number is not finite, an importance is negative, an example has too many
    /// features, or a key is that of the intercept: in words, with the place.
    pub fn new(
        indptr: Vec<u64>,
        keys: Vec<u64>,
        values: Vec<f32>,
        labels: Vec<f32>,
        importances: Vec<f32>,
    ) -> Result<CsrRows, String> {
        let vectors = CsrVectors { indptr, keys, values, labels, importances };
        vectors.check()?;
        let (name, vectors) = ("rows in memory".into(), Arc::new(vectors));
        Ok(CsrRows { name, vectors, has_columns: false, fields: Arc::default() })
    }

    /// The same examples as rows of a table with columns. `fields`: the place of the field of each feature, or
    /// [`NO_FIELD`], for a model with a vector for each field; or none at all.
    ///
    /// # Errors
    /// There are some fields, but not one for each feature: in words.
    pub fn of_columns(self, fields: Vec<u64>) -> Result<CsrRows, String> {
        let features = self.vectors.keys.len();
        if !fields.is_empty() && fields.len() != features {
            return Err(format!("{features} features, and {} fields: each feature needs one", fields.len()));
        }
        Ok(CsrRows { has_columns: true, fields: Arc::new(fields), ..self })
    }

    /// The same examples under another name, for messages.
    pub fn named(self, name: &str) -> CsrRows {
        CsrRows { name: name.to_owned(), ..self }
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.vectors.labels.len()
    }

    /// Whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.vectors.labels.is_empty()
    }
}

impl CsrVectors {
    fn check(&self) -> Result<(), String> {
        let CsrVectors { indptr, keys, values, labels, importances } = self;
        let (examples, features) = (labels.len(), keys.len());
        if indptr.len() != examples + 1 {
            let got = indptr.len();
            return Err(format!("indptr has {got} entries; {examples} labels need {}", examples + 1));
        }
        if values.len() != features {
            return Err(format!("{features} keys, and {} values: each key needs one", values.len()));
        }
        if !importances.is_empty() && importances.len() != examples {
            return Err(format!("{examples} examples, and {} importances", importances.len()));
        }
        if indptr[0] != 0 || indptr[examples] != features as u64 {
            let (first, last) = (indptr[0], indptr[examples]);
            return Err(format!("indptr goes from {first} to {last}; it must go from 0 to {features}"));
        }
        for (i, ends) in indptr.windows(2).enumerate() {
            let (from, to) = (ends[0], ends[1]);
            if from > to {
                return Err(format!("example {i}: its features begin at {from} and end at {to}"));
            }
            if to - from > FEATURES_PER_EXAMPLE_MAX as u64 {
                let most = FEATURES_PER_EXAMPLE_MAX;
                return Err(format!("example {i}: {} features; at most {most} are possible", to - from));
            }
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), String> {
        let CsrVectors { keys, values, labels, importances, .. } = self;
        if let Some(at) = keys.iter().position(|&key| key == INTERCEPT_KEY) {
            return Err(format!("feature {at}: the key {INTERCEPT_KEY} is that of the intercept"));
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(format!("feature {at}: the value {} is not a finite number", values[at]));
        }
        if let Some(at) = labels.iter().position(|label| label.is_infinite()) {
            return Err(format!("example {at}: the label {} is not a finite number", labels[at]));
        }
        let is_bad = |importance: &f32| !(importance.is_finite() && *importance >= 0.0);
        if let Some(at) = importances.iter().position(is_bad) {
            return Err(format!("example {at}: the importance {} is not 0 or more", importances[at]));
        }
        Ok(())
    }
}

impl BlockSource for CsrRows {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn pass(&self, intercept: bool) -> Result<Box<dyn BlockPass>, ReadError> {
        let (rows, fields) = (self.vectors.clone(), self.fields.clone());
        Ok(Box::new(CsrPass { rows, fields, intercept, next: 0 }))
    }

    fn has_columns(&self) -> bool {
        self.has_columns
    }
}

/// One pass over examples in memory.
struct CsrPass {
    rows: Arc<CsrVectors>,
    fields: Arc<Vec<u64>>,
    intercept: bool,
    next: usize,
}

impl BlockPass for CsrPass {
    fn next(&mut self, most: usize, block: Option<&mut Block>) -> Result<usize, ReadError> {
        let (from, rows) = (self.next, &*self.rows);
        let to = from.saturating_add(most).min(rows.labels.len());
        self.next = to;
        let Some(block) = block else { return Ok(to - from) };
        for i in from..to {
            // A block's offsets have 32 bits.
            if block.full() {
                self.next = i;
                return Ok(i - from);
            }
            let features = rows.indptr[i] as usize..rows.indptr[i + 1] as usize;
            if self.intercept {
                block.keys.push(INTERCEPT_KEY);
                block.values.push(1.0);
                block.fields.extend((!self.fields.is_empty()).then_some(NO_FIELD));
            }
            block.fields.extend(self.fields.get(features.clone()).unwrap_or_default());
            let keys = &rows.keys[features.clone()];
            block.may_repeat |= !keys.is_sorted_by(|one, next| one < next);
            block.keys.extend_from_slice(keys);
            block.values.extend_from_slice(&rows.values[features]);
            block.end_with(rows.labels[i], rows.importances.get(i).copied().unwrap_or(1.0), 0.0);
        }
        Ok(to - from)
    }
}
