//! Which pages of slots have changed since a command: what a reader of changes must look at.

/// The highest version in each page of slots.
#[derive(Default)]
pub(crate) struct PageVersions(Vec<u64>);

/// Slots of a page.
pub(crate) const PAGE_SLOTS: u32 = 64;

impl PageVersions {
    /// Of an image with `slots` used slots that was opened at this command. Each page may have changed with it, until
    /// a reader has looked ([`lower`](Self::lower)).
    pub(crate) fn opened(slots: u64, command: u64) -> PageVersions {
        PageVersions(vec![command; slots.div_ceil(u64::from(PAGE_SLOTS)) as usize])
    }

    /// Notes that a slot has changed.
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

    /// No row of this page has a higher version.
    pub(crate) fn highest(&self, page: u32) -> u64 {
        self.0.get(page as usize).copied().unwrap_or(0)
    }

    /// Notes the highest version of a page, which a reader has found.
    pub(crate) fn lower(&mut self, page: u32, highest: u64) {
        if let Some(known) = self.0.get_mut(page as usize) {
            *known = highest.min(*known);
        }
    }
}
