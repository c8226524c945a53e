//! Checks all images of a data folder against their checksums, before they are opened.

use crate::error::OpenError;
use crate::image::checksums::{self, Checked};
use crate::image::files::store::Store;
use crate::image::files::table_folder;
use crate::limits::CHUNK_BYTES;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// What [`Store::check_images`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageCheck {
    /// Images.
    pub images: u64,
    /// Bytes that have their checksum. A hole in a file counts as bytes.
    pub good: u64,
    /// Bytes that nobody can check: they have changed since the image was last closed in order, or no checksum of them
    /// is there.
    pub unknown: u64,
    /// Images that were closed in order, and whose checksums are gone or damaged.
    pub without: u64,
}

impl Store {
    /// Checks the images in the data folder against the checksums that were written when they were last closed in
    /// order. What has changed in a life that was killed has no checksum. No shard may be open. `threads` read at once.
    /// `go_on` gets the number of bytes that are read and that of all, and says whether to go on.
    ///
    /// ```
    /// # use gannet_core::{Schema, Shards, Store};
    /// # use gannet_optim::{Add, Rule};
    /// # let folder = tempfile::tempdir()?;
    /// let store = Store::open_dir(folder.path())?;
    /// let schema = Schema { shards: 2, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// Shards::open(&store, &schema, 0..2)?.mark_clean()?;
    /// let found = store.check_images(2, &|_, _| true)?;
    /// assert_eq!((found.images, found.unknown), (2, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`OpenError::Damaged`]: bytes have changed. Or an image cannot be read, or `go_on` said no.
    pub fn check_images(
        &self,
        threads: usize,
        go_on: &(dyn Fn(u64, u64) -> bool + Sync),
    ) -> Result<ImageCheck, OpenError> {
        let images = self.images()?;
        let bytes = |path: &PathBuf| std::fs::metadata(path).map_or(0, |there| there.len());
        let bytes_of_all = images.iter().map(bytes).sum();
        let (next, read, stop) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let (found, failed) = (Mutex::new(ImageCheck::default()), Mutex::new(None));
        let given_up = AtomicBool::new(false);
        let work = || {
            while let Some(path) = images.get(next.fetch_add(1, Relaxed)) {
                let mut go_on = |bytes| {
                    let all = read.fetch_add(bytes, Relaxed) + bytes;
                    given_up.fetch_or(!go_on(all, bytes_of_all), Relaxed);
                    !given_up.load(Relaxed) && !stop.load(Relaxed)
                };
                let checked = checksums::check_checksums(path, &mut go_on);
                let error = match checked {
                    Ok(Checked { damaged: Some(chunk), .. }) => {
                        OpenError::Damaged { path: path.clone(), at: chunk * CHUNK_BYTES as u64 }
                    }
                    Ok(checked) => {
                        found.lock().unwrap_or_else(PoisonError::into_inner).add(&checked);
                        continue;
                    }
                    Err(source) => OpenError::Io { what: "checking", path: path.clone(), source },
                };
                stop.store(true, Relaxed);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(images.len()) {
                scope.spawn(work);
            }
            work();
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        if given_up.load(Relaxed) {
            let folder = self.folder().map(PathBuf::from).unwrap_or_default();
            return Err(OpenError::CheckGivenUp { folder, read: read.load(Relaxed) });
        }
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The images of all tables.
    fn images(&self) -> Result<Vec<PathBuf>, OpenError> {
        let (Some(folder), mut images) = (self.folder(), Vec::new()) else { return Ok(Vec::new()) };
        for table in self.tables() {
            let table = folder.join(table);
            let listed = table_folder::images_of_table(&table);
            images.extend(listed.map_err(|source| OpenError::Io { what: "listing", path: table, source })?);
        }
        Ok(images)
    }
}

impl ImageCheck {
    fn add(&mut self, image: &Checked) {
        self.images += 1;
        self.good += image.good * CHUNK_BYTES as u64;
        self.unknown += image.unknown * CHUNK_BYTES as u64;
        self.without += u64::from(image.is_without);
    }
}
