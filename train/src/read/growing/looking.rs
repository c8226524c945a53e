//! A worker of a growing source takes tasks, and in between it looks for what is new and reports that.

use crate::limits::{GROWN_ASK_EVERY, GROWN_LOOK_EVERY};
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::growing::text_parts::{PartedText, TextParts};
use gannet_wire::{Found, GrownTask, SourceStand, SplitGrant};
use std::fmt::Debug;
use std::time::Instant;

/// A source that grows, as this process sees it.
pub trait GrowingSource: Send + Sync + Debug {
    /// Looks for what is not known yet. `stand` is what the scheduler knows.
    ///
    /// # Errors
    /// Why the source cannot be seen, in words.
    fn look(&self, stand: &SourceStand) -> Result<Found, String>;

    /// The name of what a task is about, for messages.
    fn name_of(&self, task: &GrownTask) -> String;

    /// The path of the file that has the lines of a task. `None`: they are not in a file, but in [`text`](Self::text).
    fn path_of(&self, task: &GrownTask) -> Option<String>;

    /// The lines of a task that are not in a file, in these parts.
    ///
    /// # Errors
    /// Why they cannot be read, in words.
    fn text(&self, task: &GrownTask, _parts: TextParts, _stop: &StopFlag) -> Result<PartedText, String> {
        Err(format!("{} has no text of its own", self.name_of(task)))
    }

    /// The first lines of the source, if they are not in a file. They show the format and its columns.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    fn sample(&self, _stop: &StopFlag) -> Result<Sample, String> {
        Ok(Sample::Nothing)
    }

    /// Whether what has the source cannot be reached now, by any worker.
    fn is_away(&self) -> bool {
        false
    }

    /// All tasks are trained, and no more will come.
    fn end(&self, _stand: &SourceStand) {}

    /// How many messages of each partition are not trained, where that is known.
    fn lags(&self) -> Vec<(u32, u64)> {
        Vec::new()
    }
}

/// The first lines of a source that grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The beginning of them.
    Text(Vec<u8>),
    /// There are none, or they are in a file.
    Nothing,
    /// What has the source cannot be reached now.
    Unknown,
}

impl Sample {
    /// The beginning of the first lines. It waits where they are not known yet.
    ///
    /// # Errors
    /// As [`GrowingSource::sample`], and if `stop` is set.
    pub(crate) fn known(source: &dyn GrowingSource, stop: &StopFlag) -> Result<Option<Vec<u8>>, String> {
        loop {
            match source.sample(stop)? {
                Sample::Text(text) => return Ok(Some(text)),
                Sample::Nothing => return Ok(None),
                Sample::Unknown if stop.is_set() => return Err("stopped".into()),
                Sample::Unknown => std::thread::sleep(GROWN_ASK_EVERY),
            }
        }
    }
}

/// When this process looked last, and what the scheduler knew then.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    last: Option<Instant>,
    stand: SourceStand,
}

impl Looks {
    fn are_due(&self) -> bool {
        !self.stand.complete && self.last.is_none_or(|last| last.elapsed() >= GROWN_LOOK_EVERY)
    }

    /// Takes the next task, and waits for one until `stop`. `report` tells the scheduler what was found, and `take`
    /// asks it for a task. `None`: all tasks are trained, or `stop`.
    ///
    /// # Errors
    /// Of the scheduler or the source, in words.
    pub fn take(
        &mut self,
        source: &dyn GrowingSource,
        stop: &dyn Fn() -> bool,
        report: &dyn Fn(&Found) -> Result<SourceStand, String>,
        take: &dyn Fn() -> Result<SplitGrant, String>,
    ) -> Result<Option<(u64, GrownTask, u64)>, String> {
        loop {
            if stop() {
                return Ok(None);
            }
            if self.are_due() {
                self.stand = report(&Found::Nothing)?;
                if !self.stand.complete {
                    let found = source.look(&self.stand)?;
                    if found != Found::Nothing {
                        self.stand = report(&found)?;
                    }
                }
                self.last = Some(Instant::now());
            }
            match take()? {
                SplitGrant::Grown { index, task, from } => return Ok(Some((index, task, from))),
                SplitGrant::Over => {
                    source.end(&report(&Found::Nothing)?);
                    return Ok(None);
                }
                SplitGrant::Wait => std::thread::sleep(GROWN_ASK_EVERY),
                SplitGrant::Task { index, .. } => {
                    return Err(format!(
                        "the scheduler grants split {index} of files, and the data of this job grows"
                    ));
                }
            }
        }
    }
}
