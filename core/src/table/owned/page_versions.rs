//! Which pages of slots have changed since a command: what a reader of changes must look at.

/// For each page of slots the command at which a row of it changed first after a mark, or a later one. A change of a
/// row that has changed since the last mark does not raise it: who reads the changes since that mark or an earlier one
/// visits the page in any case. So the hot path only compares the row's version with the last mark.
#[derive(Default)]
pub(crate) struct PageVersions(Vec<u64>);

/// Slots of a page.
pub(crate) const PAGE_SLOTS: u32 = 64;

/// The page has changed before the shard was opened, and nobody has looked since.
const UNKNOWN: u64 = u64::MAX;

impl PageVersions {
    /// Of an image with `slots` used slots that was just opened. The first reader of each page
    /// [`learn`](Self::learn)s what is in it.
    pub(crate) fn opened(slots: u64) -> PageVersions {
        PageVersions(vec![UNKNOWN; slots.div_ceil(u64::from(PAGE_SLOTS)) as usize])
    }

    /// Notes that the row in a slot has changed for the first time since the last mark.
    #[inline(always)]
    pub(crate) fn raise(&mut self, slot: u32, command: u64) {
        self.0[(slot / PAGE_SLOTS) as usize] = command;
    }

    /// Makes space for a slot that is used for the first time.
    pub(crate) fn hold(&mut self, slot: u32) {
        let page = (slot / PAGE_SLOTS) as usize;
        if page >= self.0.len() {
            self.0.resize(page + 1, 0);
        }
    }

    /// Whether [`highest`](Self::highest) says something about this page.
    #[inline(always)]
    pub(crate) fn is_known(&self, page: u32) -> bool {
        self.highest(page) != UNKNOWN
    }

    /// No row of this page has changed since a mark at this command or a later one.
    #[inline(always)]
    pub(crate) fn highest(&self, page: u32) -> u64 {
        self.0.get(page as usize).copied().unwrap_or(0)
    }

    /// Notes the highest version of a page, which a reader has found.
    pub(crate) fn learn(&mut self, page: u32, highest: u64) {
        if let Some(known) = self.0.get_mut(page as usize) {
            *known = highest;
        }
    }
}
