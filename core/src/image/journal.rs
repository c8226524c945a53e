//! The undo journal of a shard. Each step (a row is applied, inserted or freed; a part begins) happens
//! completely or not at all, whenever the process is killed. The page cache keeps stores in program order, so
//! the code only stops the compiler from moving them.
//!
//! Two undo halves take turns. A step first writes a complete record into half `step & 1`, then stores `step <<
//! 1 | 1` into the commit word. This one store commits the previous step and arms this step. More records may
//! be appended while the step is armed. Opening an image restores the records of an armed half, newest first.
//! An image that is lost with its process (memfd) has no journal: `on` is false and every call returns at once.

use crate::image::layout::*;
use crate::image::owned_image::Image;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, compiler_fence};

pub(crate) struct Journal {
    pub(crate) on: bool,
    /// The number of completed steps, which is also the number of the current step.
    step: u64,
    half_bytes: usize,
    /// Where the next record of this step goes, and where its half starts.
    at: usize,
    half: usize,
}

impl Journal {
    /// Undoes the step that was in progress, if there is one.
    ///
    /// # Errors
    /// This program cannot have written the undo half. The image is unchanged.
    pub(crate) fn recover(image: &mut Image, stride: usize, on: bool) -> Result<Journal, String> {
        let half_bytes = undo_half(stride);
        let commit = image.word(COMMIT).load(Relaxed);
        let mut journal = Journal { on, step: commit >> 1, half_bytes, at: 0, half: 0 };
        if commit & 1 == 0 {
            return Ok(journal);
        }
        journal.begin();
        let end = journal.half + image.undo_word(journal.half).load(Relaxed) as usize;
        let mut records = Vec::new();
        while journal.at < end {
            if end > journal.half + half_bytes || journal.at + 16 > end {
                return Err("an undo record is longer than its half".into());
            }
            let to = image.undo_word(journal.at).load(Relaxed) as usize;
            let bytes = image.undo_word(journal.at + 8).load(Relaxed) as usize;
            if bytes > half_bytes || !image.holds(to, bytes) || journal.at + 16 + bytes > end {
                return Err(format!("an undo record points at {to}, which is not in the image"));
            }
            records.push((journal.at + 16, to, bytes));
            journal.at += 16 + bytes.next_multiple_of(8);
        }
        for &(from, to, bytes) in records.iter().rev() {
            image.copy(from, to, bytes);
            crate::kill_point!();
        }
        journal.settle(image);
        Ok(journal)
    }

    /// The number of the current step.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Starts the records of a step. They have no effect before [`arm`](Self::arm).
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.half = UNDO + (self.step & 1) as usize * self.half_bytes;
        self.at = self.half + UNDO_HEAD;
    }

    /// Records `bytes` (a multiple of 8) at `from`. If the step is armed, the caller may change these bytes
    /// right after the call.
    pub(crate) fn log(&mut self, image: &mut Image, from: usize, bytes: usize) {
        if !self.on {
            return;
        }
        assert!(
            self.at + 16 + bytes <= self.half + self.half_bytes,
            "an undo half holds every step (layout.rs)"
        );
        image.undo_word(self.at).store(from as u64, Relaxed);
        image.undo_word(self.at + 8).store(bytes as u64, Relaxed);
        image.copy(from, self.at + 16, bytes);
        self.at += 16 + bytes;
        compiler_fence(SeqCst);
        crate::kill_point!();
        image.undo_word(self.half).store((self.at - self.half) as u64, Release);
        compiler_fence(SeqCst);
    }

    /// Commits the step before this one and makes this step's records valid.
    #[inline(always)]
    pub(crate) fn arm(&mut self, image: &Image) {
        if self.on {
            compiler_fence(SeqCst);
            crate::kill_point!();
            image.word(COMMIT).store(self.step << 1 | 1, Release);
            compiler_fence(SeqCst);
            crate::kill_point!();
        }
    }

    /// Records a whole row and arms the step: the hot path. Does nothing if the journal is off.
    #[inline(always)]
    pub(crate) fn arm_row(&mut self, image: &mut Image, slot: u32, bytes: usize) {
        if !self.on {
            return;
        }
        self.begin();
        image.undo_word(self.at).store(image.row_offset(slot) as u64, Relaxed);
        image.undo_word(self.at + 8).store(bytes as u64, Relaxed);
        image.save_row(slot, self.at + 16, bytes);
        image.undo_word(self.half).store((UNDO_HEAD + 16 + bytes) as u64, Relaxed);
        self.arm(image);
    }

    /// Ends the step. The next `arm` or `settle` commits it.
    #[inline(always)]
    pub(crate) fn done(&mut self) {
        self.step += 1;
    }

    /// Commits the completed steps. No step is armed afterwards.
    pub(crate) fn settle(&mut self, image: &Image) {
        if self.on {
            compiler_fence(SeqCst);
            crate::kill_point!();
            image.word(COMMIT).store(self.step << 1, Release);
            compiler_fence(SeqCst);
        }
    }
}
