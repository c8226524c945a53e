//! A block of examples: one flat list of features, and where each example's features begin.

use crate::limits::OCCURRENCES_PER_BLOCK_MAX;
use crate::read::error::ReadError;
use std::ops::Range;

/// The key of the [intercept](gannet_core::INTERCEPT_KEY). No file may use this id.
pub const INTERCEPT_KEY: u64 = gannet_core::INTERCEPT_KEY;

/// Examples in the order of the file. Feature `j` of example `i` is `keys[offsets[i] + j]` with `values[offsets[i] +
/// j]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// 1 or 0 for each example; NaN when the file has no label.
    pub labels: Vec<f32>,
    /// Where each example's features begin, and the end of the last: `labels.len() + 1` entries, the first 0.
    pub offsets: Vec<u32>,
    /// Feature ids; the intercept, when there is one, comes first in each example.
    pub keys: Vec<u64>,
    /// Feature values, finite, in the order of `keys`.
    pub values: Vec<f32>,
    /// The importance of each example, finite and not negative. Empty when each is 1.
    pub importances: Vec<f32>,
    /// The base of each example, finite: its margin without features (vw's base, the offset of a generalized linear
    /// model). Empty when each is 0.
    pub bases: Vec<f32>,
    /// The field of each feature: the key of its name, and 0 for the intercept. Where [`FieldUse`](crate::FieldUse) has
    /// places it is the place, or [`NO_FIELD`](crate::NO_FIELD). Empty unless that asks for fields.
    pub fields: Vec<u64>,
    /// The group of each example, where [`FieldUse`](crate::FieldUse) names the field that says it; else empty.
    pub groups: Vec<u64>,
    /// Whether an example may have a key twice.
    pub(crate) may_repeat: bool,
}

impl Block {
    /// Empties the block and keeps its memory.
    pub fn clear(&mut self) {
        self.labels.clear();
        self.offsets.clear();
        self.offsets.push(0);
        self.keys.clear();
        self.values.clear();
        self.importances.clear();
        self.bases.clear();
        self.fields.clear();
        self.groups.clear();
        self.may_repeat = false;
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The range of example `i`'s features.
    ///
    /// # Panics
    /// When there is no such example.
    #[inline(always)]
    pub fn range(&self, i: usize) -> Range<usize> {
        self.offsets[i] as usize..self.offsets[i + 1] as usize
    }

    /// Appends the examples of another block.
    ///
    /// # Errors
    /// The block would have more features than its offsets can count.
    pub(crate) fn append(&mut self, other: &Block) -> Result<(), ReadError> {
        let base = self.keys.len() as u32;
        let all = self.keys.len() + other.keys.len();
        if all > OCCURRENCES_PER_BLOCK_MAX {
            return Err(Block::too_large(all));
        }
        if !(self.importances.is_empty() && other.importances.is_empty()) {
            self.importances.resize(self.labels.len(), 1.0);
            self.importances.extend((0..other.len()).map(|i| other.importance(i)));
        }
        if !(self.bases.is_empty() && other.bases.is_empty()) {
            self.bases.resize(self.labels.len(), 0.0);
            self.bases.extend((0..other.len()).map(|i| other.base(i)));
        }
        self.labels.extend_from_slice(&other.labels);
        self.offsets.extend(other.offsets[1..].iter().map(|&end| base + end));
        self.keys.extend_from_slice(&other.keys);
        self.values.extend_from_slice(&other.values);
        self.fields.extend_from_slice(&other.fields);
        self.may_repeat |= other.may_repeat;
        Ok(())
    }

    /// Ends an example whose features have been appended.
    #[inline(always)]
    pub(crate) fn end(&mut self, label: f32) {
        self.labels.push(label);
        self.offsets.push(self.keys.len() as u32);
    }

    /// Ends an example with this importance and this base. All examples of the block must end with this call.
    #[inline(always)]
    pub(crate) fn end_with(&mut self, label: f32, importance: f32, base: f32) {
        if base != 0.0 || !self.bases.is_empty() {
            self.bases.resize(self.labels.len(), 0.0);
            self.bases.push(base);
        }
        if importance != 1.0 || !self.importances.is_empty() {
            self.importances.resize(self.labels.len(), 1.0);
            self.importances.push(importance);
        }
        self.end(label);
    }

    /// Appends the bases and the importances of the next `rows` examples, before their labels. Empty: they are 0 and 1.
    pub(crate) fn append_numbers(&mut self, bases: &[f32], importances: &[f32], rows: usize) {
        let begun = self.labels.len();
        for (all, more, otherwise) in
            [(&mut self.bases, bases, 0.0), (&mut self.importances, importances, 1.0)]
        {
            if !(all.is_empty() && more.is_empty()) {
                all.resize(begun, otherwise);
                all.extend_from_slice(more);
                all.resize(begun + rows, otherwise);
            }
        }
    }

    /// The importance of example `i`.
    #[inline(always)]
    pub fn importance(&self, i: usize) -> f32 {
        self.importances.get(i).copied().unwrap_or(1.0)
    }

    /// The base of example `i`.
    #[inline(always)]
    pub fn base(&self, i: usize) -> f32 {
        self.bases.get(i).copied().unwrap_or(0.0)
    }

    /// Removes the features appended since the last complete example.
    pub(crate) fn undo(&mut self) {
        let whole = self.offsets.last().map_or(0, |&n| n as usize);
        self.keys.truncate(whole);
        self.values.truncate(whole);
        self.fields.truncate(whole);
    }

    /// Keeps the examples for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let (mut kept, mut end) = (0, 0);
        for i in 0..self.len() {
            if !keep(i) {
                continue;
            }
            let range = self.range(i);
            let to = end..end + range.len();
            self.keys.copy_within(range.clone(), to.start);
            self.values.copy_within(range.clone(), to.start);
            if !self.fields.is_empty() {
                self.fields.copy_within(range, to.start);
            }
            self.labels[kept] = self.labels[i];
            for numbers in [&mut self.importances, &mut self.bases].into_iter().filter(|all| !all.is_empty())
            {
                numbers[kept] = numbers[i];
            }
            (kept, end) = (kept + 1, to.end);
            self.offsets[kept] = end as u32;
        }
        self.labels.truncate(kept);
        self.offsets.truncate(kept + 1);
        self.keys.truncate(end);
        self.values.truncate(end);
        self.fields.truncate(end);
        self.importances.truncate(kept);
        self.bases.truncate(kept);
    }

    /// Keeps these examples, to learn them. A block that would be empty keeps one of importance 0, because without a
    /// push of the batch nobody would see that it was learned. Returns whether that one stands for none.
    pub(crate) fn sample(&mut self, kept: &[bool]) -> bool {
        if self.is_empty() || kept.contains(&true) {
            self.retain(|i| kept[i]);
            return false;
        }
        self.retain(|i| i == 0);
        self.importances = vec![0.0];
        true
    }

    /// The error of a batch with so many features.
    pub(crate) fn too_large(features: usize) -> ReadError {
        let (value, max) = (features as u64, OCCURRENCES_PER_BLOCK_MAX as u64);
        ReadError::Limit { what: "the number of features of a batch", value, max }
    }

    /// Whether the offsets may have no space for another example.
    #[inline(always)]
    pub(crate) fn full(&self) -> bool {
        self.keys.len() > OCCURRENCES_PER_BLOCK_MAX
    }
}
