//! Tests how the system treats the memory of images, on a chunk that belongs to no image.

use crate::image::files::filesystem::Medium;
use crate::image::layout::Region;
use crate::image::memory::budget::Budget;
use crate::image::memory::extents::Extents;
use crate::limits::CHUNK_BYTES;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Fills a chunk in memory as an image does, and requests a huge page for it, as the grower does for full chunks.
///
/// ```
/// match gannet_core::try_huge_page() {
///     Ok(()) => println!("large tables get huge pages"),
///     Err(error) => println!("no huge page: {error}"),
/// }
/// ```
///
/// # Errors
/// The system's error: there is no memory for the chunk, or it stays in small pages. Images still work in small pages,
/// but reads of large tables are slower.
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

    /// The trial takes the grower's way to a huge page, so its result holds for images.
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
