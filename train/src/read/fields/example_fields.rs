//! The fields of the example that is being read. Crosses find their features with them, and models with a table for
//! each field read them from the block.

use crate::read::block::Block;
use crate::read::error::{ReadError, few};
use crate::read::fields::crosses::Crosses;
use crate::read::fields::field::{FieldId, FieldRun};
use crate::read::fields::field_places::FieldPlaces;
use crate::read::fields::made_crosses::{MadeCrosses, OwnCrosses};
use crate::read::formats::columns::Columns;
use gannet_core::mix;
use std::sync::Arc;

/// What a pass does with the fields of its examples.
#[derive(Clone, Debug, Default)]
pub struct FieldUse {
    /// Products of features of several fields, which examples get.
    pub crosses: Arc<Crosses>,
    /// Whether blocks say the [field](crate::Block::fields) of each feature.
    pub in_blocks: bool,
    /// The places of fields, which readers say in blocks instead of their ids.
    pub places: Option<Arc<FieldPlaces>>,
    /// The field whose feature says in which group an example is, for the [AUC by group](crate::GroupedQuality): the
    /// name of a column, a namespace or a libffm field. Readers then say groups in blocks.
    pub group: Option<String>,
    /// Which crosses have made a feature, of all passes over the data.
    pub made: Arc<MadeCrosses>,
}

impl FieldUse {
    /// A use of crosses alone.
    pub fn of(crosses: Crosses) -> FieldUse {
        FieldUse { crosses: Arc::new(crosses), ..FieldUse::default() }
    }

    /// Whether parsers say the fields of features in blocks.
    pub(crate) fn is_said(&self) -> bool {
        self.in_blocks || self.group.is_some()
    }

    /// Whether readers say the fields of features in blocks, and as what: by their places if they are given.
    pub fn say(&mut self, places: Option<Arc<FieldPlaces>>) {
        (self.in_blocks, self.places) = (places.is_some(), places);
    }

    /// Says the groups of a block's examples, and makes places of its fields if there are places.
    pub(crate) fn settle(&self, block: &mut Block) {
        if let Some(group) = &self.group {
            let field = FieldId::of(group.as_bytes()).id;
            // Of a number the value says the group.
            let of = |at: usize| block.keys[at] ^ mix(u64::from(block.values[at].to_bits()));
            let group =
                |i: usize| block.range(i).find(|&at| block.fields.get(at) == Some(&field)).map_or(0, of);
            block.groups = (0..block.len()).map(group).collect();
        }
        match &self.places {
            Some(places) => places.apply(block),
            None if self.group.is_some() && !self.in_blocks => block.fields.clear(),
            None => {}
        }
    }

    /// Which crosses have made no feature, as flags name them, and in how many examples. `None`: each has made one, or
    /// fewer than `least` examples were looked at.
    pub fn unmade(&self, least: u64) -> Option<(Vec<String>, u64)> {
        let examples = self.made.examples();
        let unmade = self.crosses.names(|cross| !self.made.has(cross));
        (examples >= least && !unmade.is_empty()).then_some((unmade, examples))
    }

    /// Checks that crosses name only these columns of features.
    ///
    /// # Errors
    /// One names another column.
    pub(crate) fn check(&self, file: &str, features: impl FnOnce() -> Vec<String>) -> Result<(), ReadError> {
        if self.crosses.is_empty() && self.group.is_none() {
            return Ok(());
        }
        let features = features();
        let all = format!("; they are {}", few(&features));
        self.check_names(file, |name| features.iter().any(|feature| feature == name), &all)
    }

    /// Checks that crosses name only columns of features, where every column is one that is not left out.
    ///
    /// # Errors
    /// One names a column that is left out.
    pub(crate) fn check_others(&self, file: &str, columns: &Columns) -> Result<(), ReadError> {
        let is_one = |of: &Option<String>, name: &str| of.as_deref() == Some(name);
        let is_feature = |name: &str| {
            let is_left_out = columns.ignored.iter().any(|ignored| ignored == name);
            let of_example = is_one(&columns.offset, name) || is_one(&columns.importance, name);
            !(is_left_out || is_one(&columns.label, name) || of_example)
        };
        self.check_names(file, is_feature, "")
    }

    fn check_names(&self, file: &str, is_feature: impl Fn(&str) -> bool, all: &str) -> Result<(), ReadError> {
        let group = self.group.as_deref().filter(|name| !is_feature(name));
        let what = match (self.crosses.unknown(&is_feature), group) {
            (Some(name), _) => format!("a cross (--cross) has {name:?}, which is no column of features{all}"),
            (None, Some(name)) => format!("--group {name:?} is no column of features{all}"),
            (None, None) => return Ok(()),
        };
        Err(ReadError::Columns { file: file.to_owned(), what })
    }
}

/// The fields of the current example.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExampleFields {
    is_used: bool,
    of: FieldUse,
    runs: Vec<FieldRun>,
    made: OwnCrosses,
}

impl ExampleFields {
    pub fn new(of: &FieldUse) -> ExampleFields {
        let is_used = of.is_said() || !of.crosses.is_empty();
        ExampleFields { is_used, of: of.clone(), ..ExampleFields::default() }
    }

    /// Whether anything uses fields.
    #[inline(always)]
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// The features up to here that have no field yet belong to this one.
    #[inline(always)]
    pub fn add(&mut self, field: FieldId, block: &Block) {
        if self.is_used {
            self.runs.push(FieldRun { field, end: block.keys.len() });
        }
    }

    /// Ends an example whose features begin at `start`, behind the intercept: appends its crosses, and says the fields
    /// in the block.
    ///
    /// # Errors
    /// The crosses have too many features.
    #[inline(always)]
    pub fn end(&mut self, block: &mut Block, start: usize) -> Result<(), &'static str> {
        if self.is_used { self.end_used(block, start) } else { Ok(()) }
    }

    /// As [`end`](Self::end), for an example that has one feature of each of these fields.
    ///
    /// # Errors
    /// As for [`end`](Self::end).
    #[inline(always)]
    pub fn end_row(
        &mut self,
        block: &mut Block,
        start: usize,
        fields: &[FieldId],
    ) -> Result<(), &'static str> {
        if !self.is_used {
            return Ok(());
        }
        let run = |(at, &field): (usize, &FieldId)| FieldRun { field, end: start + at + 1 };
        self.runs.clear();
        self.runs.extend(fields.iter().enumerate().map(run));
        self.end_used(block, start)
    }

    fn end_used(&mut self, block: &mut Block, start: usize) -> Result<(), &'static str> {
        if self.of.is_said() {
            block.fields.resize(start, 0);
            for run in &self.runs {
                block.fields.resize(run.end, run.field.id);
            }
        }
        let FieldUse { crosses, made, .. } = &self.of;
        let crossed = crosses.append(block, start, &self.runs, |cross| self.made.add(cross, made));
        self.made.end(crosses.len(), made);
        self.runs.clear();
        crossed
    }

    /// Forgets the fields of an example that is not whole.
    pub fn undo(&mut self) {
        self.runs.clear();
    }
}
