//! The first examples of the data, which are read before any is learned: they say how large values are.

use crate::limits::{SURVEYED_EXAMPLES, SURVEYED_FEATURES_MAX};
use crate::read::block::Block;
use crate::read::cache::packed_block::BlockEnd;
use crate::read::error::ReadError;
use crate::read::kept_negatives::KeptNegatives;
use crate::read::normalization::{Normalization, Normalize, SurveyQuestions};
use crate::read::size_survey::survey;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Blocks that were read ahead, and how the reading of them ended.
#[derive(Default)]
pub(crate) struct FirstExamples {
    blocks: VecDeque<(Block, BlockEnd)>,
    /// Where the reader was behind the last block that was handed out.
    end: BlockEnd,
    examples: usize,
    features: usize,
    /// The end of the data or an error, which comes after the blocks.
    over: Option<Result<(), ReadError>>,
}

impl FirstExamples {
    /// Reads blocks with `next` until enough is known, or until `patience` is over. It returns whether there was a
    /// block, and where it ends.
    pub fn read(
        patience: Duration,
        mut next: impl FnMut(&mut Block) -> (Result<bool, ReadError>, BlockEnd),
    ) -> FirstExamples {
        let (mut first, mut since) = (FirstExamples::default(), None::<Instant>);
        while first.examples < SURVEYED_EXAMPLES
            && first.features < SURVEYED_FEATURES_MAX
            && since.is_none_or(|since| since.elapsed() < patience)
        {
            let mut block = Block::default();
            match next(&mut block) {
                (Ok(true), end) => {
                    since.get_or_insert_with(Instant::now);
                    first.examples += block.len();
                    first.features += block.keys.len();
                    first.blocks.push_back((block, end));
                }
                (ended, end) => {
                    first.over = Some(ended.map(|_| ()));
                    first.blocks.push_back((Block::default(), end));
                    break;
                }
            }
        }
        first
    }

    /// What these examples say, of whose negatives a share may have been kept. `None`: there are none.
    pub fn survey(&self, asks: SurveyQuestions, kept: Option<KeptNegatives>) -> Option<Normalization> {
        let blocks = self.blocks.iter().map(|(block, _)| block);
        let of_one = kept.map_or(1.0, |kept| 1.0 / kept.share());
        (self.examples > 0).then(|| survey(blocks, SURVEYED_EXAMPLES, asks, of_one))
    }

    /// The sums of the importances of the labels 1, and of the others.
    ///
    /// # Errors
    /// The reading ended with one.
    pub fn labels(self) -> Result<(f64, f64), ReadError> {
        self.over.unwrap_or(Ok(()))?;
        let (mut ones, mut others) = (0.0, 0.0);
        for (block, _) in &self.blocks {
            for (i, &label) in block.labels.iter().enumerate() {
                *if label == 1.0 { &mut ones } else { &mut others } += f64::from(block.importance(i));
            }
        }
        Ok((ones, others))
    }

    /// The ids of their fields, each once; the intercept has none.
    ///
    /// # Errors
    /// The reading ended with one.
    pub fn fields(self) -> Result<Vec<u64>, ReadError> {
        self.over.unwrap_or(Ok(()))?;
        let all: HashSet<u64> =
            self.blocks.iter().flat_map(|(block, _)| block.fields.iter().copied()).collect();
        Ok(all.into_iter().filter(|&id| id != 0).collect())
    }

    /// Settles the normalization by these examples, unless there are none.
    pub fn settle(
        &self,
        normalize: &Normalize,
        asks: SurveyQuestions,
        kept: Option<KeptNegatives>,
    ) -> Result<(), ReadError> {
        self.survey(asks, kept).map_or(Ok(()), |own| normalize.settle(own))
    }

    /// Hands out the next block, as it was read. `None`: that was all.
    pub fn next(&mut self, block: &mut Block) -> Option<Result<bool, ReadError>> {
        let (next, end) = self.blocks.pop_front()?;
        (*block, self.end) = (next, end);
        match self.over.take_if(|_| self.blocks.is_empty()) {
            None => Some(Ok(true)),
            Some(ended) => {
                block.clear();
                Some(ended.map(|()| false))
            }
        }
    }

    /// Where the reader was behind the last block.
    pub fn end(&self) -> BlockEnd {
        self.end
    }
}
