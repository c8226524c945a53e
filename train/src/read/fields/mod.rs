//! Fields of examples: which column, vw namespace or libffm field a feature belongs to, and the crosses of fields.

pub(crate) mod crosses;
pub(crate) mod example_fields;
pub(crate) mod field;
pub(crate) mod field_places;
pub(crate) mod made_crosses;
