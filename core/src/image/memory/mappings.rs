//! The mappings of this process. The system limits their number (vm.max_map_count), and a process at the limit gets no
//! memory for anything else: images leave some of them for the links, the threads and the allocator.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Mappings that images leave free; of a small limit an eighth.
const SPARE: usize = 1024;
/// The limit of a system that does not tell it.
const USUAL_LIMIT: usize = 65_530;

/// The mappings that images have made and not dropped. Neighbours may be one for the system, so they are at most so
/// many.
static MADE: AtomicUsize = AtomicUsize::new(0);
/// How many there were, and how many the process had in all, when they were last counted.
static COUNTED: Mutex<Option<(usize, usize)>> = Mutex::new(None);

/// The most mappings of the process for which an image may still make another.
fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        let limit = text.trim().parse().unwrap_or(USUAL_LIMIT);
        limit - SPARE.min(limit / 8)
    })
}

/// The mappings of the process now. `None`: the system does not say.
fn count() -> Option<usize> {
    let mut maps = BufReader::with_capacity(1 << 16, File::open("/proc/self/maps").ok()?);
    let (mut count, mut line) = (0, Vec::new());
    while maps.read_until(b'\n', &mut line).ok()? > 0 {
        count += 1;
        line.clear();
    }
    Some(count)
}

/// Notes a mapping that an image is about to make.
///
/// # Errors
/// There are too many: as the system says it at its limit.
pub(crate) fn begin() -> io::Result<()> {
    let made = MADE.fetch_add(1, Relaxed) + 1;
    // Others have far fewer than are spare.
    if made <= most() {
        return Ok(());
    }
    let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let at_most = |(before, all): (usize, usize)| all + made.saturating_sub(before);
    if counted.is_none_or(|then| at_most(then) > most()) {
        *counted = count().map(|all| (made, all));
    }
    if counted.is_some_and(|then| at_most(then) > most()) {
        end(1);
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    Ok(())
}

/// So many are dropped.
pub(crate) fn end(mappings: usize) {
    MADE.fetch_sub(mappings, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::memory::address_range::AddressRange;
    use memmap2::MmapMut;
    use std::sync::Arc;

    /// At the limit, the next mapping of anybody failed, and ended the process. It runs in a process of its own, whose
    /// other tests would meet the limit, too.
    #[test]
    fn images_leave_mappings_for_others() {
        const OWN: &str = "GANNET_TEST_MAPPINGS";
        if std::env::var_os(OWN).is_none() {
            let mut own = std::process::Command::new(std::env::current_exe().unwrap());
            own.args(["--exact", "image::memory::mappings::tests::images_leave_mappings_for_others"]);
            let done = own.env(OWN, "1").output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        let file = Arc::new(file);
        let reserve = || AddressRange::reserve(file.clone(), true, 0);
        let mut ranges = Vec::new();
        let error = loop {
            match reserve() {
                Ok(range) => ranges.push(range),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        assert!(count().unwrap() >= most() - 4, "refused too early: {:?}", count());
        // Neighbours of one kind would be one mapping.
        let others: Vec<MmapMut> = (0..SPARE / 2)
            .map(|at| {
                let map = MmapMut::map_anon(4096).expect("images left too few");
                if at % 2 == 0 { map.make_read_only().unwrap().make_mut().unwrap() } else { map }
            })
            .collect();
        drop(others);
        ranges.truncate(ranges.len() / 2);
        reserve().expect("there is room again");
    }
}
