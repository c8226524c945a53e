//! Fields: the column, vw namespace or libffm field that a feature belongs to.

use crate::read::formats::text_key::text_key;

/// A field. It is the same in all formats: a column, a namespace and a libffm field of one name are one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldId {
    /// The key of its name.
    pub id: u64,
    /// The first byte of its name; a space if the name is empty, as in vw.
    pub letter: u8,
}

impl FieldId {
    /// The field of this name.
    pub fn of(name: &[u8]) -> FieldId {
        FieldId { id: text_key(0, name), letter: name.first().copied().unwrap_or(b' ') }
    }
}

/// Features of one field that are beside each other in an example.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldRun {
    pub field: FieldId,
    /// Where they end in the block.
    pub end: usize,
}
