//! What the system does with the memory of images, found out on a chunk of its own.

use crate::image::budget::Budget;
use crate::image::extents::Extents;
use crate::image::filesystem::Medium;
use crate::image::layout::Region;
use crate::limits::CHUNK_BYTES;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Fills a chunk of an image in memory and asks for a huge page behind it, as the grower does for full chunks.
///
/// # Errors
/// What the system says: the chunk cannot be had, or stays in small pages (images work all the same, but large tables
/// are read more slowly).
pub fn try_huge_page() -> io::Result<()> {
    let file = File::from(memfd_create("gannet-trial", MemfdFlags::CLOEXEC)?);
    ftruncate(&file, CHUNK_BYTES as u64)?;
    let extents = Extents::map(file, |_| 0, Medium::Memory, Arc::new(Budget::new(u64::MAX)))?;
    extents.prepare(Region::Slab, CHUNK_BYTES).map_err(io::Error::other)?;
    extents.try_collapse(Region::Slab, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the trial says is what images get: the grower's way to a huge page has the same answer.
    #[test]
    fn the_trial_says_what_images_get() {
        let file = File::from(memfd_create("gannet-other", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, CHUNK_BYTES as u64).unwrap();
        let budget = Arc::new(Budget::new(u64::MAX));
        let extents = Extents::map(file, |_| 0, Medium::Memory, budget.clone()).unwrap();
        extents.prepare(Region::Slab, CHUNK_BYTES).unwrap();
        assert_eq!(try_huge_page().is_ok(), extents.collapse(Region::Slab, 0));
        drop(extents);
        assert_eq!(budget.used(), 0);
    }
}
