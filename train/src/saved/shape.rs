//! The structure of a model, as the notes of its folder have it.

use super::loss::LossName;
use super::notes::{FIELDS, ModelNotes, fields_of_note, note_of_fields};
use crate::limits::FIELD_FACTORS_MAX;
use crate::read::fields::field_places::FieldPlaces;
use std::sync::Arc;

/// The structure of a model, without its tables' settings. What a model does not have is 0.
#[derive(Default)]
pub struct Shape {
    /// The model's name in `--model`.
    pub model: String,
    /// The number of classes of a softmax.
    pub classes: usize,
    /// The number of factors of a feature.
    pub factors: usize,
    /// The number of units of each hidden layer.
    pub hidden: Vec<usize>,
    /// The ids of the fields for which it has vectors.
    pub fields: Vec<u64>,
    /// What a model of one output learns; by default what its kind learns.
    pub loss: Option<LossName>,
    /// How many trainings came before this one, each from the model of the one before (`--warm-start`).
    pub generation: u64,
}

impl Shape {
    /// A logistic regression.
    pub fn lr() -> Shape {
        Shape { model: "lr".to_owned(), ..Shape::default() }
    }

    /// The shape of a saved model.
    pub fn of(notes: &dyn ModelNotes) -> Shape {
        let number = |name: &str| notes.note(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let hidden = notes.note("hidden").unwrap_or_default();
        Shape {
            model: notes.note("model").unwrap_or_default().to_owned(),
            classes: number("classes"),
            factors: number("factors"),
            hidden: hidden.split(',').filter_map(|units| units.parse().ok()).collect(),
            fields: notes.note(FIELDS).map_or(Vec::new(), fields_of_note),
            loss: notes.note("loss").and_then(|name| name.parse().ok()),
            generation: generation(notes),
        }
    }

    /// The most places of fields: a row has a vector of all factors for each.
    pub fn places_max(&self) -> usize {
        (FIELD_FACTORS_MAX / self.factors.max(1)).max(1)
    }

    /// The places of its fields. Data without fields has one.
    pub fn places(&self) -> usize {
        self.fields.len().clamp(1, self.places_max())
    }

    /// The fields with their places, for readers. `None`: the model has no vectors by field.
    pub fn field_places(&self) -> Option<Arc<FieldPlaces>> {
        let ids = Some(&self.fields).filter(|ids| !ids.is_empty());
        ids.map(|ids| Arc::new(FieldPlaces::new(ids.clone(), self.places_max())))
    }

    /// The settings that the model has, by flag.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let hidden = || self.hidden.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let factors = ("factors", self.factors.to_string());
        let mut settings = match &*self.model {
            "softmax" => vec![("classes", self.classes.to_string())],
            "fm" | "ffm" | "mf" => vec![factors],
            "deepfm" => vec![factors, ("hidden", hidden())],
            _ => Vec::new(),
        };
        settings.extend(self.loss.map(|loss| ("loss", loss.to_string())));
        settings
    }

    /// The notes in the folder of the model.
    pub fn notes(&self) -> Vec<(&'static str, String)> {
        let mut notes = vec![("model", self.model.clone())];
        notes.extend(self.settings());
        if !self.fields.is_empty() {
            notes.push((FIELDS, note_of_fields(&self.fields)));
        }
        if self.generation > 0 {
            notes.push(("generation", self.generation.to_string()));
        }
        notes
    }
}

/// How many trainings came before that of a saved model.
pub fn generation(notes: &dyn ModelNotes) -> u64 {
    notes.note("generation").and_then(|text| text.parse::<u32>().ok()).map_or(0, u64::from)
}
