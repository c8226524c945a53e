//! How a model's data was read, from its notes.

use super::error::SavedModelError;
use super::notes::{CROSSES, INTERCEPT, LETTER_CROSSES, ModelNotes, SCALE, ended, normalization};
use super::shape::Shape;
use crate::read::data::{Data, Format};
use crate::read::fields::crosses::Crosses;
use crate::read::fields::field_places::FieldPlaces;
use crate::read::formats::columns::{ColumnChoice, Columns};
use crate::read::formats::criteo::Counts;
use crate::read::formats::labels::{Labels, TwoLabels};
use crate::read::formats::scale::{Scale, ScaleKind};
use crate::read::normalization::{Normalization, Normalize};
use crate::read::reader::Reader;
use std::path::Path;
use std::sync::Arc;

/// How a model's data was read.
pub struct DataReading {
    /// Whether the model has an intercept.
    pub intercept: bool,
    /// The format that the model was trained on (for CSV possibly TSV).
    pub format: Format,
    /// The features that the numbers of Criteo's logs became.
    pub counts: Counts,
    /// Products of features.
    pub crosses: Crosses,
    /// The columns that the model was trained on, if it was trained on CSV.
    pub columns: Option<Columns>,
    /// The two values of the labels, if they were not numbers. The second is unknown when no example had it.
    pub two: Option<TwoLabels>,
    /// Whether the values of its features were normalized, and by what.
    pub normalize: Normalize,
    /// The fields for which the model has vectors, and their places.
    pub fields: Option<Arc<FieldPlaces>>,
    /// How its training ended, if it ended early.
    pub ended: Option<String>,
}

/// Reads the notes about the data.
///
/// # Errors
/// A note is damaged, or of a newer version.
pub fn reading(notes: &dyn ModelNotes, folder: &Path) -> Result<DataReading, SavedModelError> {
    let list = |name: &str| -> Vec<String> {
        let text = notes.note(name).unwrap_or_default();
        text.split('\n').filter(|s| !s.is_empty()).map(String::from).collect()
    };
    let columns = notes.note("categorical").map(|_| Columns {
        label: notes.note("label").filter(|s| !s.is_empty()).map(String::from),
        categorical: list("categorical"),
        numeric: list("numeric"),
        both: list("both"),
        ignored: list("ignored"),
        offset: notes.note("offset").map(String::from),
        importance: notes.note("importance").map(String::from),
        scale: scale(notes),
        others: notes.note("others") == Some("1"),
        nameless: Vec::new(),
    });
    let name = || folder.display().to_string();
    let format = notes.note("format").unwrap_or("libsvm");
    let Some(format) = Format::of_name(format) else {
        return Err(SavedModelError::UnknownFormat { folder: name(), format: format.to_owned() });
    };
    let counts = if notes.note("criteo-counts") == Some("log") { Counts::Log } else { Counts::Buckets };
    let crosses = Crosses::new(&list(CROSSES), &list(LETTER_CROSSES));
    let crosses = crosses.map_err(|what| SavedModelError::Crosses { folder: name(), what })?;
    let intercept = notes.note(INTERCEPT) != Some("0");
    let other = notes.note("negative").filter(|other| !other.is_empty());
    let two = notes.note("positive").map(|positive| TwoLabels::new(positive, other));
    let (normalize, ended) = (normalization(notes, folder)?, ended(notes));
    let fields = Shape::of(notes).field_places();
    Ok(DataReading { intercept, format, counts, crosses, columns, two, normalize, fields, ended })
}

/// The scaling in the notes.
fn scale(notes: &dyn ModelNotes) -> Scale {
    let kind = notes.note(SCALE).and_then(ScaleKind::of_name).unwrap_or_default();
    Scale::of_lines(kind, notes.note("scale-columns").unwrap_or_default())
}

impl DataReading {
    /// The name of the model's format.
    pub fn format_name(&self) -> &'static str {
        match self.format {
            Format::Auto | Format::Libsvm => "libsvm",
            Format::Libffm => "libffm",
            Format::Csv => "csv",
            Format::Criteo => "criteo",
            Format::Vw => "vw",
            Format::VwJson => "vw-json",
            Format::Json => "json",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
        }
    }

    /// The normalization of values as the data has them. `None`: there is none, or the values are scaled before.
    pub fn normalization_of_data(&self) -> Option<&Normalization> {
        let is_scaled = self.columns.as_ref().is_some_and(|columns| columns.scale.kind != ScaleKind::None);
        self.normalize.known().filter(|_| !is_scaled)
    }

    /// Makes `data` be read as the data of the model in this folder was. A column of labels that the data names stays.
    ///
    /// # Errors
    /// The data has another format. The keys of a model have a meaning in its own format only.
    pub fn read_as(&self, data: &mut Data, folder: &Path) -> Result<(), SavedModelError> {
        data.unlabelled = true;
        data.normalize = self.normalize.clone();
        data.fields.crosses = Arc::default();
        (data.format, data.counts) = (self.same_format(data, folder)?, self.counts);
        data.fields.crosses = Arc::new(self.crosses.clone());
        data.fields.say(self.fields.clone());
        if let Some(columns) = &self.columns {
            let label = data.columns.label.take().or_else(|| columns.label.clone());
            data.columns = ColumnChoice { label, ..columns.into() };
            data.scale.clone_from(&columns.scale);
        }
        if let Some(two) = self.two {
            data.labels = Labels::Two(two);
        }
        Ok(())
    }

    /// The format of the data. Refuses one in which the features of the model mean nothing.
    fn same_format(&self, data: &Data, folder: &Path) -> Result<Format, SavedModelError> {
        if data.format != Format::Auto {
            return Ok(data.format);
        }
        // Data whose format its first line does not show is read in the model's format.
        let Ok(Some(found)) = Reader::look(&Data { columns: ColumnChoice::default(), ..data.clone() }) else {
            return Ok(self.format);
        };
        let format = Format::of_name(found.format).unwrap_or(self.format);
        if format.is_like(self.format) {
            return Ok(format);
        }
        let (folder, own) = (folder.display().to_string(), self.format_name());
        Err(SavedModelError::OtherFormat { folder, data: found.file, found: found.format, own })
    }
}
