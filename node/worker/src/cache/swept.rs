//! As of when cached rows are current that their server keeps fresh.

/// As of when rows are current.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swept {
    pub(crate) turn: u64,
    pub(crate) at_us: u64,
    /// The lowest clock plus 1, or 0.
    pub(crate) lowest: u64,
}
