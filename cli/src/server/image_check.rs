//! Checks the images of a data folder before they are served: on all cores, with a line on the progress, and a limit on
//! the time.

use crate::failure::Failure;
use crate::report::words::counted;
use bytesize::ByteSize;
use gannet::storage::{ImageCheck, Store};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// A check may take this long, and as long again for each gibibyte: an image on a disk that hangs must not hold a
/// server up for ever.
const LIMIT: Duration = Duration::from_secs(60);

const GIB: u64 = 1 << 30;

/// Checks all images of the store.
///
/// # Errors
/// An image is damaged or cannot be read, or the check takes too long.
pub fn check_images(store: &Store) -> Result<ImageCheck, Failure> {
    let (start, last) = (Instant::now(), Mutex::new(Duration::ZERO));
    let folder = store.folder().map(|folder| folder.display().to_string()).unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let go_on = |read: u64, all: u64| {
        let elapsed = start.elapsed();
        if let Ok(mut last) = last.try_lock()
            && elapsed - *last >= LINE_EVERY
        {
            *last = elapsed;
            let (read, all) = (ByteSize(read), ByteSize(all));
            notice!("gannet: checking the images in {folder}: {read} of {all} (--no-verify skips this)");
        }
        elapsed < LIMIT + LIMIT.mul_f64(all as f64 / GIB as f64)
    };
    let found = store.check_images(threads, &go_on)?;
    if found.without > 0 {
        let without = counted(found.without, "image was", "images were");
        tracing::warn!(
            "{folder}: {without} closed in order, and the checksums are gone or damaged: served unchecked"
        );
    }
    Ok(found)
}
