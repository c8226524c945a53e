//! The reader of changes: it finds the slots of a shard whose rows have changed above a command, and looks only at
//! pages of slots that can have some.
//!
//! Cuts read from it ([`cut`](crate::table::cuts::cut)), and so do readers that watch keys
//! ([`watched_keys`](crate::table::pulls::watched_keys)). What they know ends at a *mark*, a command up to which they
//! have seen all changes. A shard keeps only its last mark. Pages are raised by the first change of a row after it.

use crate::image::layout::HIGH_WATER;
use crate::table::owned::page_versions::PAGE_SLOTS;
use crate::table::owned::shard::Shard;
use crate::table::owned::slots::Slots;
use std::sync::atomic::Ordering::Relaxed;

impl Shard {
    /// Marks the current command: what changes from now on can be found by who reads the changes above it.
    pub(crate) fn mark(&mut self) {
        self.last_mark = self.command;
    }

    /// The next of these slots whose version is above `from`, with its version word. The slot may be free: its version
    /// is then that of the deletion. `None` at the end of the slots, and when `visits` are used up: each slot or
    /// skipped page costs one. `from` is a command at which a mark was set, or 0.
    #[inline(always)]
    pub(crate) fn next_changed(
        &mut self,
        from: u64,
        slots: &mut impl Slots,
        visits: &mut usize,
    ) -> Option<(u32, u64)> {
        while *visits > 0
            && let Some(slot) = slots.next()
        {
            *visits -= 1;
            let page = slot / PAGE_SLOTS;
            if !self.pages.is_known(page) {
                self.learn_page(page);
            }
            if from > 0 && self.pages.highest(page) <= from {
                slots.skip_to((page + 1) * PAGE_SLOTS);
                continue;
            }
            slots.advance();
            let version = self.image.row(slot).version();
            if version >> 2 > from {
                return Some((slot, version));
            }
        }
        None
    }

    /// Finds out the highest version of a page that was in use when the shard was opened.
    #[cold]
    #[inline(never)]
    fn learn_page(&mut self, page: u32) {
        let used = self.image.word(HIGH_WATER).load(Relaxed) as u32;
        let slots = page * PAGE_SLOTS..used.min((page + 1) * PAGE_SLOTS);
        let highest = slots.map(|slot| self.image.row(slot).version() >> 2).max().unwrap_or(0);
        self.pages.learn(page, highest);
    }
}
