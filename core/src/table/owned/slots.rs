//! Which slots a reader of changes visits: all of a range, or those of the rows that it wants.

/// The slots that a reader visits, in ascending order.
pub(crate) trait Slots {
    /// The next slot to visit.
    fn next(&self) -> Option<u32>;

    /// Passes over the next slot.
    fn advance(&mut self);

    /// Passes over all slots below `end`.
    fn skip_to(&mut self, end: u32);
}

/// A range of slots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotRange {
    pub(crate) next: u32,
    pub(crate) end: u32,
}

impl Slots for SlotRange {
    #[inline(always)]
    fn next(&self) -> Option<u32> {
        (self.next < self.end).then_some(self.next)
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.next += 1;
    }

    #[inline(always)]
    fn skip_to(&mut self, end: u32) {
        self.next = self.next.max(end);
    }
}
