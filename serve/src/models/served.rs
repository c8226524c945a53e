//! A model that answers requests. It never changes: a new model is another one.

use crate::error::RequestError;
use gannet::train::saved::{SavedModel, SavedModelError};
use gannet::train::{Data, Format};
use std::time::SystemTime;

/// In which form a request has its examples as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// In the format that the model was trained on.
    Own,
    /// As JSON: an object a line.
    Json,
}

/// A loaded model.
pub struct ServedModel {
    /// The model.
    pub saved: SavedModel,
    /// Names its content: models with the same bytes have the same version.
    pub version: String,
    /// When it was saved.
    pub saved_at: SystemTime,
    /// How lines in the model's own format are read.
    own: Data,
    /// How JSON is read. `None`: the model was trained on data without columns or namespaces.
    json: Option<Data>,
    /// How features by their keys are read.
    pub keys: Data,
}

/// The data of a request with this format, without its bytes.
fn settings(saved: &SavedModel, format: Format) -> Result<Data, SavedModelError> {
    let mut data = Data { format, ..Data::text("the request", Vec::new()) };
    data.intercept = saved.reading.intercept;
    saved.read_as(&mut data)?;
    // Predictions need no labels. No column has this name; where any name is a column, the label's must be known.
    if saved.reading.columns.as_ref().is_some_and(|columns| !columns.others) {
        data.columns.label = Some(String::new());
    }
    Ok(data)
}

impl ServedModel {
    /// A model under this version.
    ///
    /// # Errors
    /// As for [`SavedModel::read_as`].
    pub fn new(
        saved: SavedModel,
        version: String,
        saved_at: SystemTime,
    ) -> Result<ServedModel, SavedModelError> {
        let of_json = match saved.reading.format {
            format if format.has_columns() => Some(Format::Json),
            Format::Vw | Format::VwJson => Some(Format::VwJson),
            _ => None,
        };
        // Files of tables are no text: their rows travel as JSON.
        let own = match saved.reading.format {
            Format::Parquet | Format::Arrow => Format::Json,
            format => format,
        };
        let own = settings(&saved, own)?;
        let json = of_json.map(|format| settings(&saved, format)).transpose()?;
        let keys = Data { format: Format::Auto, text: None, ..own.clone() };
        Ok(ServedModel { saved, version, saved_at, own, json, keys })
    }

    /// The data of a request with these lines.
    ///
    /// # Errors
    /// The model reads no JSON.
    pub fn data(&self, lines: TextForm, bytes: Vec<u8>) -> Result<Data, RequestError> {
        let settings = match lines {
            TextForm::Own => &self.own,
            TextForm::Json => self.json.as_ref().ok_or_else(|| {
                let own = self.saved.reading.format_name();
                RequestError::Bad(format!(
                    "this model was trained on {own}, which has no columns: send lines of {own} as text/plain"
                ))
            })?,
        };
        Ok(Data { text: Data::text("the request", bytes).text, ..settings.clone() })
    }
}
